// Package placement chooses the node for a piece of work and takes one of its slots. It is the only caller of the scripts
// that do so: it builds the choice from the caller's requirements, the pool's definition and the fleet's configuration,
// lists the nodes for work that no pool serves, and returns a berth.Refusal when no node can take the work.
package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
)

// Fleet is the snapshot that a choice is built from; *fleet.Fleet implements it.
type Fleet interface {
	// Snapshot returns the fleet as it was last read; never nil.
	Snapshot() *fleet.Snapshot
	// Ready is closed after the first reading.
	Ready() <-chan struct{}
	// CatchUp returns when the snapshot has the changes that were announced before the call, or when ctx ends.
	CatchUp(ctx context.Context)
}

// Placer places work on nodes.
type Placer struct {
	scripts *lua.Scripts
	fleet   Fleet
}

// New returns a Placer that uses the scripts and the snapshots of f.
func New(scripts *lua.Scripts, f Fleet) *Placer { return &Placer{scripts, f} }

// Request describes work to be placed.
type Request struct {
	berth.Requirements
	// Zone limits the choice to the zone's nodes of Kind that have the first required capability.
	Kind berth.NodeKind
	Zone string
	// Failed generations are excluded until their nodes register again; with Readmit only where another node could do the work.
	Failed  []berth.NodeRef
	Readmit bool
	// Avoided generations are excluded unless no other node can take the work.
	Avoided []berth.NodeRef
	// Hold is how long the slot is held unless it is confirmed; 0 means lua.Unconfirmed.
	Hold time.Duration
}

// Assign takes a slot under the lease id. Idempotent by lease id while the slot is held. It returns a *berth.Refusal when
// no slot can be taken now.
func (p *Placer) Assign(ctx context.Context, leaseID string, r Request) (berth.Assignment, error) {
	return p.place(ctx, r, func(c lua.Choice) (lua.Decision, error) { return p.scripts.Assign(ctx, leaseID, c) })
}

// AssignOrWait is Assign for work that can wait: where all nodes are full or other work waits, it enters the room of its pool and
// returns a *berth.Refusal with CodeNodeFull. Accepted work also waits while no node is eligible, or in a grace.
func (p *Placer) AssignOrWait(ctx context.Context, r Request, q lua.Queued, accepted bool) (berth.Assignment, error) {
	select {
	case <-p.fleet.Ready():
	case <-ctx.Done():
		return berth.Assignment{}, ctx.Err()
	}
	if r.Readmit && !hasOther(p.fleet.Snapshot(), r) {
		r.Failed = nil
	}
	try := func(c lua.Choice) (lua.Decision, error) { return p.scripts.TryAssign(ctx, c, q) }
	d, c, err := p.decide(ctx, r, r.Failed, try)
	if err != nil {
		return berth.Assignment{}, err
	}
	if d.Code == lua.AssignFull || d.Code == lua.AssignWaiting || accepted && (d.Code == lua.AssignNone || d.Code == lua.GuardGrace) {
		entered, err := p.enter(ctx, r, q)
		if err != nil {
			return berth.Assignment{}, err
		}
		if entered.Code == lua.AssignOK || entered.Code == lua.AssignExists || d.Code != lua.AssignFull && d.Code != lua.AssignNone {
			d = entered
		}
	}
	if err := refusal(d, c, p.fleet.Snapshot()); err != nil {
		return berth.Assignment{}, err
	}
	return d.Assignment, nil
}

// hasOther reports whether a node that has not failed the work could do it, now or when it has a free slot.
func hasOther(now *fleet.Snapshot, r Request) bool {
	pool := r.pool(now)
	c := choice(now, pool, r, r.Failed)
	return slices.ContainsFunc(now.Matching(pool), func(id string) bool {
		n := now.Nodes[id]
		if n.Excluded != "" && n.Excluded != berth.ExcludeFull || slices.Contains(c.Excluded, id) {
			return false
		}
		return !slices.ContainsFunc(slices.Concat(c.Services, c.Needed, c.Named), func(service string) bool {
			_, marked := n.Unavailable[service]
			demanded := slices.Contains(c.Needed, service) || len(n.Services) > 0 && slices.Contains(c.Named, service)
			return marked || demanded && !slices.Contains(n.Services, service)
		})
	})
}

// enter lets work wait, unless it gets a node that has become free in the meantime.
func (p *Placer) enter(ctx context.Context, r Request, q lua.Queued) (lua.Decision, error) {
	now := p.fleet.Snapshot()
	pool := r.pool(now)
	q.Listed = isListed(now, pool)
	d, err := p.scripts.JoinWaiting(ctx, choice(now, pool, r, r.Failed), q)
	if err != nil || d.Code != lua.AssignWaiting || !q.Listed {
		return d, err
	}
	again, _, err := p.decide(ctx, r, r.Failed, func(c lua.Choice) (lua.Decision, error) { return p.scripts.TryAssign(ctx, c, q) })
	if err != nil || again.Code == lua.AssignOK || again.Code == lua.AssignExists {
		return again, err
	}
	return d, nil
}

// Dispatch takes a slot for a job, on the node of its turn if that can take it. Idempotent by session, request and dispatch
// number. It returns a *berth.Refusal when no slot can be taken now, and CodeTurnFinalized when the turn takes no more jobs.
func (p *Placer) Dispatch(ctx context.Context, j berth.JobRequest, r Request) (berth.Assignment, error) {
	return p.place(ctx, r, func(c lua.Choice) (lua.Decision, error) { return p.scripts.DispatchJob(ctx, j, c) })
}

// script takes a slot according to a choice, or reports why it took none.
type script func(lua.Choice) (lua.Decision, error)

func (p *Placer) place(ctx context.Context, r Request, run script) (berth.Assignment, error) {
	select {
	case <-p.fleet.Ready():
	case <-ctx.Done():
		return berth.Assignment{}, ctx.Err()
	}
	d, c, err := p.decide(ctx, r, slices.Concat(r.Failed, r.Avoided), run)
	if err == nil && len(r.Avoided) > 0 && (d.Code == lua.AssignFull || d.Code == lua.AssignNone) {
		d, c, err = p.decide(ctx, r, r.Failed, run)
	}
	if err != nil {
		return berth.Assignment{}, err
	}
	if err := refusal(d, c, p.fleet.Snapshot()); err != nil {
		return berth.Assignment{}, err
	}
	return d.Assignment, nil
}

// decide runs the script, and runs it again where no node was found because this process did not know the pool yet, or among the
// listed nodes. It also returns the choice.
func (p *Placer) decide(ctx context.Context, r Request, excluded []berth.NodeRef, run script) (lua.Decision, lua.Choice, error) {
	now := p.fleet.Snapshot()
	pool := r.pool(now)
	c := choice(now, pool, r, excluded)
	if isListed(now, pool) {
		all := lists(now, pool, c)
		d, err := decideAmong(all, c, run)
		if err != nil || len(all) > 0 && d.Code != lua.AssignFull && d.Code != lua.AssignNone {
			return d, c, err
		}
		if listed, next := p.registered(ctx, now, pool); len(listed) > 0 {
			d, err = decideAmong(append(all, listed...), choice(next, pool, r, excluded), run)
			return d, c, err
		}
		if len(all) > 0 {
			return d, c, nil
		}
	}
	d, err := run(c)
	if err != nil || d.Code != lua.AssignNone || len(r.Capabilities) > 0 {
		return d, c, err
	}
	if _, known := now.Pools[pool.ID]; known {
		return d, c, nil
	}
	found, defined, err := p.scripts.FindPool(ctx, pool.ID)
	if err != nil || !defined {
		return d, c, err
	}
	c = choice(p.fleet.Snapshot(), found, r, excluded)
	d, err = run(c)
	return d, c, err
}

// pool returns the requested pool, with the capabilities that its nodes must have.
func (r Request) pool(now *fleet.Snapshot) berth.Pool {
	switch {
	case len(r.Capabilities) == 0:
		return now.Pool(r.PoolID)
	case r.Zone != "":
		return ZonePool(r.Kind, r.Capabilities[0], r.Zone)
	}
	return berth.Pool{ID: r.PoolID, Capabilities: r.Capabilities, Strategy: now.Pools[r.PoolID].Strategy}
}

// choice returns the input of the script's decision. The strategy is the first of: the requested one, the pool's, capability
// where capabilities were requested, the fleet's. Every service that a capability of the pool depends on must be available. A service
// that the configuration requires must be declared; one that only the request names is not demanded of nodes that declare none, which
// may be older than the declaration.
func choice(now *fleet.Snapshot, pool berth.Pool, r Request, excluded []berth.NodeRef) lua.Choice {
	c := lua.Choice{
		PoolID: pool.ID, Required: pool.Capabilities, Strategy: cmp.Or(r.Strategy, pool.Strategy),
		Services: services(pool.Capabilities), Needed: now.Services.Of(pool.Capabilities),
		Excluded: slices.Concat(r.Excluded, current(now, excluded)),
		Own:      r.Own, OwnZone: r.OwnZone, OwnHost: r.OwnHost, Hold: r.Hold,
	}
	if c.Strategy == "" && len(r.Capabilities) > 0 {
		c.Strategy = berth.StrategyCapability
	}
	c.Strategy = now.ResolveStrategy(pool.ID, cmp.Or(c.Strategy, now.Config.AssignmentStrategy))
	for _, service := range r.Services {
		switch {
		case slices.Contains(c.Needed, service):
		case now.Services.Has(service):
			c.Needed = append(c.Needed, service)
		case now.Declares() && service != berth.ServiceCommands: // berth itself marks that one, no unit declares it
			c.Named = append(c.Named, service)
		default:
			c.Services = append(c.Services, service)
		}
	}
	return now.Locate(c)
}

// services returns the services that a node needs for its capabilities: each capability, and its kind before the colon.
func services(capabilities []string) []string {
	var out []string
	for _, c := range capabilities {
		out = append(out, c)
		if kind, _, ok := strings.Cut(c, ":"); ok {
			out = append(out, kind)
		}
	}
	return out
}

// current returns the ids of the nodes that have not registered again since the given generations.
func current(now *fleet.Snapshot, generations []berth.NodeRef) []string {
	var out []string
	for _, g := range generations {
		if now.Nodes[g.NodeID].Generation <= g.Generation && !slices.Contains(out, g.NodeID) {
			out = append(out, g.NodeID)
		}
	}
	return out
}

// refusal returns the reason why a decision selected no node; nil when it selected one.
func refusal(d lua.Decision, c lua.Choice, now *fleet.Snapshot) error {
	r := &berth.Refusal{PoolID: d.PoolID, Reasons: d.Reasons, Missing: d.Missing}
	if d.Reasons[berth.ExcludeServiceMissing] > 0 {
		r.Services = slices.Concat(c.Needed, c.Named)
	}
	switch d.Code {
	case lua.AssignOK, lua.AssignExists:
		return nil
	case lua.AssignFull, lua.AssignWaiting:
		r.Code = berth.CodeNodeFull
	case lua.AssignNone:
		r.Code = berth.CodeNoNode
		if len(d.Missing) > 0 {
			break
		}
		if node, lacks := now.Closest(c.Required); len(lacks) > 0 {
			r.Missing = lacks
			r.Message = fmt.Sprintf("no eligible node of pool %s: no node has all of %s; the closest node %s lacks %s",
				d.PoolID, strings.Join(c.Required, ", "), node, strings.Join(lacks, ", "))
		}
	case lua.GuardGrace:
		r.Code, r.RetryAfter = berth.CodeUnavailable, d.Wait
	case lua.JobTurnEnded:
		return berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized")
	default:
		return berth.Errorf(berth.CodeInternal, "internal error").With(errors.New("unknown decision code " + d.Code))
	}
	return r
}
