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
	// Wait lets the work wait for a node in the room of its pool, which is then refused with CodeNodeFull; nil for work that does not.
	Wait *Wait
	// Hold is how long the slot is held unless it is confirmed; 0 means lua.Unconfirmed.
	Hold time.Duration
}

// Wait is how work waits that gets no node. It does where all nodes are full or other work waits; accepted work also while no node is
// eligible, or in a grace.
type Wait struct {
	lua.Waiting
	Accepted bool
}

// Assign takes a slot under the lease id. Idempotent by lease id while the slot is held. It returns a *berth.Refusal when
// no slot can be taken now.
func (p *Placer) Assign(ctx context.Context, leaseID string, r Request) (berth.Assignment, error) {
	return p.place(ctx, r, func(c lua.Choice) (lua.Decision, error) { return p.scripts.Assign(ctx, leaseID, c) })
}

// AssignOrWait is Assign for work that can wait, under the lease id of r.Wait.
func (p *Placer) AssignOrWait(ctx context.Context, r Request) (berth.Assignment, error) {
	return p.place(ctx, r, func(c lua.Choice) (lua.Decision, error) { return p.scripts.TryAssign(ctx, c, r.Wait.Waiting) })
}

// hasOther reports whether a node that has not failed the work could do it, now or when it has a free slot.
func hasOther(now *fleet.Snapshot, r Request) bool {
	pool := r.pool(now)
	c := choice(now, pool, r, r.Failed)
	return slices.ContainsFunc(now.Matching(pool), func(id string) bool {
		n := now.Nodes[id]
		if n.Excluded != "" && n.Excluded != berth.ExcludeFull || c.Excludes(id, n.Generation) {
			return false
		}
		return !slices.ContainsFunc(slices.Concat(c.Services, c.Needed, c.Named), func(service string) bool {
			_, marked := n.Unavailable[service]
			demanded := slices.Contains(c.Needed, service) || len(n.Services) > 0 && slices.Contains(c.Named, service)
			return marked || demanded && !slices.Contains(n.Services, service)
		})
	})
}

// wait lets work wait that the script has refused, unless it gets a node that has become free in the meantime: the script finds it then.
func (p *Placer) wait(ctx context.Context, r Request, refused lua.Decision, run script) (lua.Decision, error) {
	now := p.fleet.Snapshot()
	pool, w := r.pool(now), r.Wait.Waiting
	w.Listed = isListed(now, pool)
	d, err := p.scripts.JoinWaiting(ctx, choice(now, pool, r, r.Failed), w)
	if err == nil && d.Code == lua.AssignWaiting && w.Listed {
		var again lua.Decision
		again, _, err = p.decide(ctx, r, r.Failed, func(c lua.Choice) (lua.Decision, error) { return p.scripts.TryAssign(ctx, c, w) })
		if again.Code == lua.AssignOK || again.Code == lua.AssignExists {
			d = again
		}
	}
	switch {
	case err != nil:
		return d, err
	case d.Code == lua.AssignOK || d.Code == lua.AssignExists:
		return run(choice(now, pool, r, r.Failed))
	case refused.Code == lua.AssignFull || refused.Code == lua.AssignNone:
		return refused, nil
	default:
		return d, nil
	}
}

// waits reports whether work waits that was refused with a code.
func (r Request) waits(code string) bool {
	switch code {
	case lua.AssignFull, lua.AssignWaiting:
		return r.Wait != nil
	case lua.AssignNone, lua.GuardGrace:
		return r.Wait != nil && r.Wait.Accepted
	default:
		return false
	}
}

// Dispatch takes a slot for a job, on the node of its turn if that can take it. Idempotent by session, request and dispatch
// number. It returns a *berth.Refusal when no slot can be taken now, and CodeTurnFinalized when the turn takes no more jobs.
func (p *Placer) Dispatch(ctx context.Context, j berth.JobRequest, r Request) (berth.Assignment, error) {
	return p.place(ctx, r, func(c lua.Choice) (lua.Decision, error) {
		if r.Wait != nil {
			c.Waiter = &r.Wait.NodeWaiter
		}
		return p.scripts.DispatchJob(ctx, j, c)
	})
}

// script takes a slot according to a choice, or reports why it took none.
type script func(lua.Choice) (lua.Decision, error)

func (p *Placer) place(ctx context.Context, r Request, run script) (berth.Assignment, error) {
	select {
	case <-p.fleet.Ready():
	case <-ctx.Done():
		return berth.Assignment{}, ctx.Err()
	}
	if r.Readmit && !hasOther(p.fleet.Snapshot(), r) {
		r.Failed = nil
	}
	d, c, err := p.decide(ctx, r, slices.Concat(r.Failed, r.Avoided), run)
	if err == nil && len(r.Avoided) > 0 && (d.Code == lua.AssignFull || d.Code == lua.AssignNone) {
		d, c, err = p.decide(ctx, r, r.Failed, run)
	}
	if err == nil && r.waits(d.Code) {
		d, err = p.wait(ctx, r, d, run)
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
		Excluded: r.Excluded, Failed: excluded,
		Own: r.Own, OwnZone: r.OwnZone, OwnHost: r.OwnHost, Hold: r.Hold,
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
