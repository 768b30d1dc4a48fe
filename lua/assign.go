package lua

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Codes of the scripts that choose a node and take its slot, beside GuardGrace.
const (
	AssignOK     = "OK"
	AssignExists = "EXISTS"     // taken by an earlier call
	AssignFull   = "NODE_FULL"  // every suitable node is full
	AssignNone   = "NO_NODE"    // no node is suitable
	JobTurnEnded = "TURN_ENDED" // dispatch_job: the turn was finalized, and the job would bind it again
)

// MaxListed is how many nodes one decision compares one by one.
const MaxListed = 256

// Choice has the criteria by which a node is chosen.
type Choice struct {
	PoolID   string
	Strategy berth.Strategy // the pool's; a dynamic one has to be resolved
	// Required are the capabilities of the pool's nodes; the missing ones are reported when there is no node.
	Required []string
	// Services must not be marked as unavailable on the node. The node has to declare Needed too, and Named where it declares any.
	Services, Needed, Named []string
	// Listed are the nodes to choose from, instead of those of the pool; at most MaxListed. One that no longer has the required
	// capabilities is not chosen.
	Listed []string
	// Excluded nodes are not chosen, nor are the generations in Failed, such as one that just failed this work: a node that has
	// registered again since is chosen.
	Excluded []string
	Failed   []berth.NodeRef
	// Waiter is set for a job that waits for a node if it gets none: AssignWaiting is returned if other work of the pool waits already.
	// A node that was reserved for it while it waited is its node.
	Waiter *NodeWaiter
	// Own is the caller's own node; OwnZone and OwnHost are the caller's zone and host. Any may be empty.
	Own, OwnZone, OwnHost string
	// HostZones are the zones of the host's nodes; by default OwnZone.
	HostZones []string
	// Random is a uniform whole number below 2^52; 0 means a new one.
	Random int64
	// Hold is how long the slot is held unless it is confirmed; 0 means Unconfirmed.
	Hold time.Duration
}

// Excludes reports whether a generation of a node is not chosen.
func (c Choice) Excludes(nodeID string, generation int64) bool {
	return slices.Contains(c.Excluded, nodeID) || slices.Contains(c.Failed, berth.NodeRef{NodeID: nodeID, Generation: generation})
}

// Decision is the result of a choice.
type Decision struct {
	Code string // AssignOK, AssignExists, AssignFull, AssignNone, AssignWaiting, JobTurnEnded or GuardGrace
	berth.Assignment
	// Reasons counts the nodes of the pool that could not be chosen, by reason; AssignFull and AssignNone only.
	Reasons map[berth.ExcludeReason]int
	// Missing are the required capabilities that no registered node has; AssignFull and AssignNone only.
	Missing []string
	// Wait is how long nothing is granted; GuardGrace only.
	Wait time.Duration
}

// Assign chooses a node of a pool and takes one of its slots, in one decision. Idempotent by lease id for as long as the slot
// is held.
func (s *Scripts) Assign(ctx context.Context, leaseID string, c Choice) (Decision, error) {
	return s.assign(ctx, leaseID, c, "", Waiting{})
}

func (s *Scripts) assign(ctx context.Context, leaseID string, c Choice, mode string, w Waiting) (Decision, error) {
	args := append(s.choiceArgs(leaseID, c), millis(NodeGrace), s.epoch.Load())
	r := s.call(ctx, "assign", []string{s.keys.Guard(), s.keys.NodeLeases()}, append(args, s.waitArgs(c, mode, w)...)...)
	d := decision(r)
	d.LeaseID, d.PoolID = leaseID, c.PoolID
	switch d.Code {
	case AssignOK:
		d.NodeID, d.Generation, d.Strategy = r.text(), number(r.text()), berth.Strategy(r.text())
		if r.more() {
			s.handedOver(r)
		}
	case AssignWaiting:
		s.handedOver(r)
	case AssignExists:
		a, ok := leaseRow(leaseID, r.text())
		if !ok {
			r.fail()
		}
		d.Assignment, d.Existed = a, true
	}
	return d, r.done()
}

// FindLease returns the assignment of a lease of Assign; ok is false when it was released, or expired some time ago.
func (s *Scripts) FindLease(ctx context.Context, leaseID string) (a berth.Assignment, ok bool, err error) {
	row, ok, err := found(s.rdb.HGet(ctx, s.keys.NodeLeases(), leaseID), "lease")
	if !ok {
		return a, false, err
	}
	a, ok = leaseRow(leaseID, row)
	return a, ok, nil
}

func leaseRow(leaseID, row string) (berth.Assignment, bool) {
	f := strings.Split(row, "\n")
	if len(f) < 4 {
		return berth.Assignment{}, false
	}
	return berth.Assignment{
		LeaseID: leaseID, PoolID: f[0], NodeRef: berth.NodeRef{NodeID: f[1], Generation: number(f[2])}, Strategy: berth.Strategy(f[3]),
	}, true
}

// keepBinding is how long the same request gets the same result.
const keepBinding = 30 * time.Second

// DispatchJob chooses the node of a turn's job: the turn's node if it can take the job, else one by the pool's strategy. In
// the same decision it takes the slot, writes job and request binding, and with the turn's first job the affinity and
// the session's current turn. Idempotent by session, request and dispatch number.
func (s *Scripts) DispatchJob(ctx context.Context, j berth.JobRequest, c Choice) (Decision, error) {
	k := s.keys
	row, err := json.Marshal(j)
	if err != nil {
		return Decision{}, fmt.Errorf("job row: %w", err)
	}
	waiter := ""
	if c.Waiter != nil {
		waiter = c.Waiter.ID()
	}
	args := append(s.choiceArgs(j.LeaseID(), c), j.TurnID, j.JobID, flag(j.EndsTurn),
		millis(keepBinding), string(row[:len(row)-1]), j.AffinityNodeID, millis(NodeGrace), s.epoch.Load(), waiter)
	r := s.call(ctx, "dispatch_job", []string{
		k.Guard(), k.Request(j.UserID, j.SessionID, j.RequestID, j.Dispatch), k.Turn(j.TurnID), k.Session(j.UserID, j.SessionID), k.Job(j.JobID),
	}, args...)
	d := decision(r)
	d.LeaseID, d.JobID, d.PoolID = j.LeaseID(), j.JobID, c.PoolID
	switch d.Code {
	case AssignOK:
		d.NodeID, d.Generation, d.Strategy = r.text(), number(r.text()), berth.Strategy(r.text())
		d.Affinity, d.Missed = berth.Affinity(r.text()), berth.ExcludeReason(r.text())
	case AssignExists:
		if row := r.text(); r.err == nil {
			var job JobState
			job, r.err = parseJob(row)
			d.Assignment, d.Existed = job.Assignment, true
		}
	}
	return d, r.done()
}

func (s *Scripts) choiceArgs(leaseID string, c Choice) []any {
	if c.Random == 0 {
		c.Random = rand.Int64N(1 << 52)
	}
	c.Hold = cmp.Or(c.Hold, Unconfirmed)
	excluded := ""
	for _, id := range c.Excluded {
		excluded += "\n" + id + "\n"
	}
	for _, g := range c.Failed {
		excluded += "\n" + g.NodeID + "\x01" + strconv.FormatInt(g.Generation, 10) + "\n"
	}
	detail := strings.Join([]string{
		c.Own, strings.Join(c.locations(), "\n"), strings.Join(c.services(), "\n"), excluded, strings.Join(unique(c.Required), "\n"),
		strings.Join(c.Listed, "\n"), "",
	}, "\x02")
	return []any{s.keys.stem(), leaseID, millis(c.Hold), c.PoolID, string(c.Strategy.Script()), c.Random, detail}
}

// services returns the lines for include/lacks.lua.
func (c Choice) services() []string {
	out := slices.Clone(c.Services)
	for _, s := range c.Needed {
		out = append(out, "+"+s)
	}
	for _, s := range c.Named {
		out = append(out, "?"+s)
	}
	return out
}

// locations returns the prefixes in the index of locations that are near the caller, nearest first.
func (c Choice) locations() (out []string) {
	zones := c.HostZones
	if len(zones) == 0 {
		zones = []string{c.OwnZone}
	}
	for _, zone := range zones {
		if c.OwnHost != "" {
			out = append(out, zone+"\x01"+c.OwnHost+"\x01")
		}
	}
	if c.OwnZone != "" {
		out = append(out, c.OwnZone+"\x01")
	}
	return out
}

// decision reads the code, and what both scripts return with it in the same form.
func decision(r *reply) (d Decision) {
	d.Code = r.code(AssignOK, AssignExists, AssignFull, AssignNone, AssignWaiting, JobTurnEnded, GuardGrace)
	switch d.Code {
	case GuardGrace:
		d.Wait = r.duration()
	case AssignFull, AssignNone:
		d.Reasons = map[berth.ExcludeReason]int{}
		r.list(func() { d.Reasons[berth.ExcludeReason(r.text())] = int(number(r.text())) })
		d.Missing = r.texts()
	}
	return d
}

// Codes of confirm_node_slot and release_node_slot.
const (
	NodeSlotHeld     = "OK"
	NodeSlotLost     = "LOST" // expired or released
	NodeSlotReleased = "RELEASED"
)

// ConfirmNodeSlot holds a taken slot for ttl, such as the job's timeout. It returns NodeSlotHeld, NodeSlotLost, or NodeGone
// when the slot was deleted with the generation. In a grace after Redis lost data it restores the slot, also on the new
// generation of the same process; generation is the node's current one.
func (s *Scripts) ConfirmNodeSlot(ctx context.Context, a berth.Assignment, ttl time.Duration) (code string, generation int64, err error) {
	return s.confirm(ctx, a, ttl, "")
}

// RenewAssignment is ConfirmNodeSlot for a holder outside of berth: it restores a slot only if the node serves the pool and has a free
// slot. Otherwise it returns AssignNone or AssignFull.
func (s *Scripts) RenewAssignment(ctx context.Context, a berth.Assignment, ttl time.Duration) (code string, generation int64, err error) {
	return s.confirm(ctx, a, ttl, "checked")
}

// RestoreNodeSlot is ConfirmNodeSlot for work that a generation runs already: it holds the slot at any time, also beyond the node's
// capacity. It returns NodeSlotHeld, or NodeGone when nothing changed.
func (s *Scripts) RestoreNodeSlot(ctx context.Context, a berth.Assignment, ttl time.Duration) (code string, err error) {
	code, _, err = s.confirm(ctx, a, ttl, "running")
	return code, err
}

func (s *Scripts) confirm(ctx context.Context, a berth.Assignment, ttl time.Duration, how string) (code string, generation int64, err error) {
	k, assignment := s.keys, ""
	if a.JobID == "" {
		assignment = a.PoolID + "\n" + string(a.Strategy)
	}
	r := s.call(ctx, "confirm_node_slot", []string{k.Node(a.NodeID), k.NodeSlots(a.NodeID), k.Guard(), k.NodeLeases()},
		k.stem(), a.NodeID, a.Generation, a.LeaseID, millis(ttl), assignment, millis(NodeGrace), s.epoch.Load(), how)
	return r.text(), number(r.text()), r.done()
}

// ReleaseNodeSlot releases a slot. Idempotent; held reports whether the lease still held one.
func (s *Scripts) ReleaseNodeSlot(ctx context.Context, nodeID, leaseID string) (held bool, err error) {
	r := s.call(ctx, "release_node_slot", []string{s.keys.NodeSlots(nodeID), s.keys.NodeLeases()}, s.keys.stem(), nodeID, leaseID,
		millis(NodeGrace), s.epoch.Load())
	r.code(NodeSlotReleased)
	held = r.number() == 1
	s.handedOver(r)
	return held, r.done()
}
