package activities

import (
	"context"
	"log/slog"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
	"berth/lua"
	"berth/workflows"
)

// Executions are the side effects of executions.
type Executions struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Placer  *placement.Placer
	Logger  *slog.Logger
}

// AssignNode chooses a node and takes a slot. A refusal is an application error with a berth.Refusal as its detail.
// Idempotent by lease id while the slot is held.
func (e *Executions) AssignNode(ctx context.Context, in workflows.AssignInput) (workflows.AssignReply, error) {
	a, err := e.Placer.Assign(ctx, in.LeaseID, placement.Request{
		Requirements: in.Where, Failed: generations(in.Failed),
	})
	if err != nil {
		return workflows.AssignReply{}, refused(err)
	}
	config := e.Fleet.Snapshot().Config
	return workflows.AssignReply{Assignment: a, MaxRetries: config.MaxRetries, EnableFailover: config.EnableFailover}, nil
}

// generations returns the nodes as placement knows them.
func generations(nodes []workflows.NodeRef) []placement.Generation {
	var out []placement.Generation
	for _, n := range nodes {
		out = append(out, placement.Generation(n))
	}
	return out
}

// ConfirmNode extends the lease of a slot to the time left. In a grace it restores the slot if Redis lost it. The error is
// retryable while the node is not registered, because it may register again, and final when the slot is lost.
func (e *Executions) ConfirmNode(ctx context.Context, s workflows.HeldSlot) error {
	code, generation, err := e.Scripts.ConfirmNodeSlot(ctx, s.Assignment, s.Left)
	switch {
	case err != nil:
		return again(berth.CodeUnavailable, "the fleet's state is unavailable", 0, err)
	case code == lua.NodeSlotHeld:
		return nil
	case code == lua.NodeGone && generation == 0:
		return again(berth.CodeUnavailable, "the node is not registered", 0, nil)
	default:
		return final(berth.CodeUnavailable, "the slot was lost", nil)
	}
}

// ReleaseNode releases a slot, and first reports a node that missed heartbeats during the work. Idempotent.
func (e *Executions) ReleaseNode(ctx context.Context, slot workflows.HeldSlot) error {
	if err := reportUnresponsive(ctx, e.Scripts, e.Fleet, e.Logger, slot); err != nil {
		return err
	}
	if _, err := e.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
		return again(berth.CodeUnavailable, "the slot could not be released", 0, err)
	}
	return nil
}
