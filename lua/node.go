package lua

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Codes of the scripts of nodes.
const (
	NodeOK         = "OK"
	NodeExists     = "EXISTS"     // register_node: the same incarnation as before; drop_member: registered in the class
	NodeStale      = "STALE"      // register_node: a later incarnation of the same host is registered
	NodeReregister = "REREGISTER" // heartbeat_node: unknown, dead or superseded generation
	NodeGone       = "GONE"       // node not found, or another generation
	NodeResponsive = "HEARD"      // report_unresponsive: its heartbeat is not overdue
	NodesSwept     = "SWEPT"      // sweep_nodes
	OutboxTaken    = "TAKEN"      // take_outbox
)

// Registration is what a registration has beside the node's own description.
type Registration struct {
	// Previous is the generation that the same process had before, 0 for none: in a grace after Redis lost data its leases
	// can be restored. One that Redis does not know makes the node unsure for NodeUnsure.
	Previous int64
	// Announce puts the registration into the outbox, for reconciliation: what the node did meanwhile is not known.
	Announce bool
}

// RegisterReply is what register_node decided.
type RegisterReply struct {
	Code       string // NodeOK, NodeExists or NodeStale
	Generation int64
	Pools      []string
}

// RegisterNode registers an incarnation of a node and adds it to its pools. Idempotent for as long as the incarnation is
// registered. spec has to be valid.
func (s *Scripts) RegisterNode(ctx context.Context, spec berth.NodeSpec, r Registration) (RegisterReply, error) {
	slots := cmp.Or(spec.MaxConcurrentJobs, berth.DefaultMaxConcurrentJobs)
	k, kind := s.keys, string(spec.Kind)
	res := s.call(ctx, "register_node",
		[]string{k.Node(spec.ID), k.NodeCordon(spec.ID), k.NodeBeats(kind), k.NodeSuspects(kind), k.NodesDead()},
		k.stem(), spec.ID, kind, spec.Incarnation.Host, spec.Incarnation.PID, spec.Incarnation.StartedAt,
		spec.Hostname, spec.Zone, strings.Join(unique(spec.Capabilities), "\n"), slots, r.Previous, flag(r.Announce),
		millis(NodeUnsure), millis(NodeGrace), s.epoch.Load(), spec.ClientURL, spec.KeyID, strings.Join(unique(spec.Services), "\n"))
	out := RegisterReply{Code: res.text(), Generation: res.wide(), Pools: splitLines(res.text())}
	s.handedOver(res)
	return out, res.done()
}

// HeartbeatReply is the result of HeartbeatNode. Everything but the code is zero with NodeReregister.
type HeartbeatReply struct {
	Code string // NodeOK, or NodeReregister and nothing changed
	Kind berth.NodeKind
	// Cordoned and DrainUntil are the current operator settings; DrainUntil is by Redis's clock, zero when the node does not
	// drain.
	Cordoned   bool
	DrainUntil time.Time
}

// Weights are the weights of usages in the load of a node, relative to that of the CPU.
type Weights struct{ Memory, GPU float64 }

// HeartbeatNode takes a generation's heartbeat with its load. Nearly equal loads get a random order.
func (s *Scripts) HeartbeatNode(
	ctx context.Context, nodeID string, generation int64, l berth.NodeLoad, w Weights,
) (HeartbeatReply, error) {
	r := s.call(ctx, "heartbeat_node", []string{s.keys.Node(nodeID), s.keys.NodeCordon(nodeID)}, s.keys.stem(), nodeID, generation,
		l.CPUUsage, optional(l.GPUUsage), l.MemoryUsage, l.CurrentJobs, l.ActiveWorkflows, l.LatencyMs,
		l.MemoryUsage*w.Memory+l.GPU()*w.GPU, rand.IntN(1000), millis(NodeGrace), s.epoch.Load())
	out := HeartbeatReply{
		Code: r.code(NodeOK, NodeReregister), Kind: berth.NodeKind(r.text()), Cordoned: r.text() != "", DrainUntil: msTime(r.text()),
	}
	s.handedOver(r)
	return out, r.done()
}

// WithdrawNode ends a generation on request, with 0 the current one, because it was withdrawn or its service is lost. It returns
// NodeOK or NodeGone.
func (s *Scripts) WithdrawNode(ctx context.Context, nodeID string, generation int64, why berth.Departure) (code string, err error) {
	return s.code(ctx, "withdraw_node", []string{s.keys.Node(nodeID)}, s.keys.stem(), nodeID, generation, string(why))
}

// Cordon has the operator settings that keep new work from a node. The zero value allows new work.
type Cordon struct {
	Cordoned bool
	// Drain is the time until the deadline of a drain, 0 for none. At the deadline the outbox gets a notice, so that the
	// remaining work is moved.
	Drain time.Duration
}

// CordonNode replaces the operator settings of a node, whether or not it is registered.
func (s *Scripts) CordonNode(ctx context.Context, nodeID string, c Cordon) error {
	_, err := s.code(ctx, "cordon_node", []string{s.keys.Node(nodeID), s.keys.NodeCordon(nodeID)},
		s.keys.stem(), nodeID, c.Cordoned, max(0, c.Drain.Milliseconds()))
	return err
}

// MarkUnavailable marks a service of a node as unavailable for ttl; 0 removes the mark. It returns NodeOK or NodeGone.
func (s *Scripts) MarkUnavailable(ctx context.Context, nodeID, service string, ttl time.Duration) (code string, err error) {
	return s.code(ctx, "mark_unavailable", []string{s.keys.Node(nodeID), s.keys.NodeUnavailable(nodeID)},
		service, max(0, ttl.Milliseconds()), s.keys.stem(), nodeID)
}

// ReportUnresponsive reports that a generation did not start its work, or missed heartbeats while running it. It becomes
// suspect when its own heartbeat is overdue too; times returns the times of a kind. It returns NodeOK when the node is
// suspect, NodeResponsive or NodeGone.
func (s *Scripts) ReportUnresponsive(
	ctx context.Context, nodeID string, generation int64, times func(berth.NodeKind) berth.NodeTimes,
) (code string, err error) {
	args := []any{s.keys.stem(), nodeID, generation}
	for _, kind := range berth.NodeKinds() {
		args = append(args, string(kind), millis(times(kind).Heartbeat+HeartbeatMargin))
	}
	return s.code(ctx, "report_unresponsive", []string{s.keys.Node(nodeID), s.keys.Sweep()}, args...)
}

// SweepRule has the rules of the sweep for one kind of node.
type SweepRule struct {
	Kind      berth.NodeKind
	Times     berth.NodeTimes
	Confirmed bool // a mass loss of the kind was confirmed in another way: do not hold it back
}

// ObservedFor returns for how long there have been sweeps, and API processes that accept heartbeats, without a gap; 0 when
// there is one now.
func (s *Scripts) ObservedFor(ctx context.Context) (time.Duration, error) {
	server, err := s.ReadServer(ctx)
	if err != nil {
		return 0, err
	}
	state, err := s.rdb.HMGet(ctx, s.keys.Sweep(), "last_ms", "seen_from_ms", "listened_ms").Result()
	if err != nil {
		return 0, fmt.Errorf("read the sweep's state: %w", err)
	}
	ago := func(i int, none time.Duration) time.Duration {
		text, ok := state[i].(string)
		if !ok {
			return none
		}
		return server.Now.Sub(msTime(text))
	}
	if ago(0, time.Hour) > MaxSweepGap || ago(2, 0) > MaxSweepGap {
		return 0, nil
	}
	return max(ago(1, 0), 0), nil
}

// SweepLimits bound a sweep. Zero values take the defaults named.
type SweepLimits struct {
	Batch         int           // maximum number of nodes of each kind declared suspect, and dead; 200
	MaxGap        time.Duration // default MaxSweepGap
	MassLossDelay time.Duration // default MassLossDelay
}

// Sweep is the result of a sweep.
type Sweep struct {
	Suspects []string
	Deaths   []Death
	Held     []berth.NodeKind // kinds whose losses are held back
	Purged   int              // nodes checked for expired leases
}

// Death is a generation that was declared dead.
type Death struct {
	NodeID     string
	Generation int64
}

// MarkListening notes that an API process accepts heartbeats; each does so every ListeningEvery.
func (s *Scripts) MarkListening(ctx context.Context) error {
	_, err := s.code(ctx, "mark_listening", []string{s.keys.Sweep()})
	return err
}

// SweepNodes declares nodes without heartbeats suspect and dead, by Redis's clock. Every worker calls it about once a second;
// it is idempotent.
func (s *Scripts) SweepNodes(ctx context.Context, l SweepLimits, rules ...SweepRule) (Sweep, error) {
	l.Batch = cmp.Or(l.Batch, 200)
	l.MaxGap = cmp.Or(l.MaxGap, MaxSweepGap)
	l.MassLossDelay = cmp.Or(l.MassLossDelay, MassLossDelay)
	k := s.keys
	keys := []string{k.Sweep(), k.NodesDraining(), k.NodesDead(), k.Guard()}
	args := []any{k.stem(), l.Batch, millis(l.MaxGap), millis(l.MassLossDelay), millis(NodeGrace)}
	for _, r := range rules {
		keys = append(keys, k.NodeBeats(string(r.Kind)), k.NodeSuspects(string(r.Kind)))
		args = append(args, string(r.Kind), millis(r.Times.Suspect), millis(r.Times.Death), flag(r.Confirmed))
	}
	r := s.call(ctx, "sweep_nodes", keys, args...)
	r.code(NodesSwept)
	out := Sweep{Suspects: r.texts()}
	r.list(func() {
		id, generation, _ := strings.Cut(r.text(), "\n")
		g, err := strconv.ParseInt(generation, 10, 64)
		if err != nil {
			r.fail()
		}
		out.Deaths = append(out.Deaths, Death{id, g})
	})
	r.list(func() { out.Held = append(out.Held, berth.NodeKind(r.text())) })
	out.Purged = int(r.number())
	return out, r.done()
}

// TakeOutbox deletes the notices with the given receipts and takes the oldest of the others, at most limit; left is the
// number of notices in the outbox, including taken ones. For the time reserved no other caller gets the same notices; then
// a notice is taken again, until its receipt is given.
func (s *Scripts) TakeOutbox(
	ctx context.Context, limit int, reserved time.Duration, receipts ...string,
) (notices []berth.NodeNotice, left int, err error) {
	r := s.call(ctx, "take_outbox", []string{s.keys.Outbox()}, with([]any{limit, reserved.Milliseconds()}, receipts...)...)
	r.code(OutboxTaken)
	r.list(func() {
		var notice berth.NodeNotice
		if entry := r.text(); r.err == nil {
			notice, r.err = parseNotice(entry)
		}
		notices = append(notices, notice)
	})
	return notices, int(r.number()), r.done()
}

func parseNotice(entry string) (berth.NodeNotice, error) {
	var f struct{ NodeID, Generation, Kind, Host, PID, StartedAt, Reason, At string }
	if err := json.Unmarshal([]byte(entry), &f); err != nil {
		return berth.NodeNotice{}, fmt.Errorf("outbox entry %q: %w", entry, err)
	}
	n := berth.NodeNotice{
		NodeID: f.NodeID, Generation: number(f.Generation), Kind: berth.NodeKind(f.Kind),
		Incarnation: berth.Incarnation{Host: f.Host, PID: int(number(f.PID)), StartedAt: number(f.StartedAt)},
		Reason:      berth.Departure(f.Reason), At: msTime(f.At), Receipt: entry,
	}
	return n, nil
}
