package activities

import (
	"context"
	"log/slog"
	"slices"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
	"berth/workflows"
)

// Executions are the side effects of executions.
type Executions struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Logger  *slog.Logger
}

// AssignNode chooses a node and takes a slot (S10). A refusal is an application error with a berth.Refusal.
// Idempotent by lease id as long as the slot is held.
func (e *Executions) AssignNode(ctx context.Context, in workflows.AssignInput) (workflows.AssignReply, error) {
	select {
	case <-e.Fleet.Ready():
	case <-ctx.Done():
		return workflows.AssignReply{}, undecided(ctx.Err())
	}
	now := e.Fleet.Snapshot()
	c := choice(now, in)
	d, err := e.Scripts.Assign(ctx, in.LeaseID, c)
	if err == nil && d.Code == lua.AssignNone && len(d.Missing) == 0 {
		var changed bool
		if changed, err = e.Fleet.Gather(ctx, c.PoolID, c.Required); changed && err == nil {
			d, err = e.Scripts.Assign(ctx, in.LeaseID, c)
		}
	}
	if err != nil {
		return workflows.AssignReply{}, undecided(err)
	}
	if err := refusalFor(c.Required, now, d); err != nil {
		return workflows.AssignReply{}, err
	}
	return workflows.AssignReply{
		Assignment: d.Assignment, MaxRetries: now.Config.MaxRetries, EnableFailover: now.Config.EnableFailover,
	}, nil
}

// choice is what a node is chosen by, with the strategy that the pool has now unless another is asked for.
func choice(now *fleet.Snapshot, in workflows.AssignInput) lua.Choice {
	w := in.Where
	c := lua.Choice{
		PoolID: w.PoolID, Strategy: w.Strategy, Required: w.Capabilities,
		Excluded: slices.Concat(w.Excluded, excluded(now, in.Failed)),
		Own:      w.Own, OwnZone: w.OwnZone, OwnHost: w.OwnHost, Hold: in.Hold,
	}
	if c.Strategy == "" {
		if c.Strategy = now.Strategy(w.PoolID); len(w.Capabilities) > 0 && now.Pool(w.PoolID).Strategy == "" {
			c.Strategy = berth.StrategyCapability
		}
	}
	c.Strategy = now.Settled(w.PoolID, c.Strategy)
	if len(c.Required) == 0 {
		c.Required = now.Pool(w.PoolID).Capabilities
	}
	c.Services = slices.Concat(w.Services, services(berth.Pool{Capabilities: c.Required}))
	return now.Locate(c)
}

// ConfirmNode holds a taken slot for as long as is left (L7), and in a grace puts it back where Redis lost it (L12). A
// node that is not known, perhaps not yet again, is worth another try; a slot that is another's is not.
func (e *Executions) ConfirmNode(ctx context.Context, s workflows.HeldSlot) error {
	code, generation, err := e.Scripts.ConfirmNodeSlot(ctx, s.Assignment, s.Left)
	switch {
	case err != nil:
		return again(berth.CodeUnavailable, "the fleet's state cannot be reached", 0, err)
	case code == lua.NodeSlotHeld:
		return nil
	case code == lua.NodeGone && generation == 0:
		return again(berth.CodeUnavailable, "the node is not registered", 0, nil)
	default:
		return final(berth.CodeUnavailable, "the slot was lost", nil)
	}
}

// ReleaseNode gives a slot back, and tells when its node fell silent (L11). Idempotent.
func (e *Executions) ReleaseNode(ctx context.Context, slot workflows.HeldSlot) error {
	if err := reportUnresponsive(ctx, e.Scripts, e.Fleet, e.Logger, slot); err != nil {
		return err
	}
	if _, err := e.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
		return again(berth.CodeUnavailable, "the slot could not be given back", 0, err)
	}
	return nil
}
