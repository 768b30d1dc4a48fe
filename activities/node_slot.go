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

// NodeSlots confirm and release the slots of nodes that workflows hold.
type NodeSlots struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Logger  *slog.Logger
}

// ConfirmSlots holds slots for as long as their work may take. In a grace period it restores those that Redis lost. Idempotent.
func (s *NodeSlots) ConfirmSlots(ctx context.Context, in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
	var out workflows.ConfirmedSlots
	for _, slot := range in.Slots {
		code, generation, err := s.Scripts.ConfirmNodeSlot(ctx, slot.Assignment, slot.Left)
		if err != nil {
			return out, unavailable("slots not confirmed", err)
		}
		if code != lua.NodeSlotHeld {
			level := slog.LevelWarn
			if code == lua.NodeGone { // expected: the node leaves, or its death was reported
				level = slog.LevelInfo
			}
			s.Logger.Log(ctx, level, "running work has lost its slot", "lease", slot.LeaseID, "node", slot.NodeID, "code", code)
		}
		out.Slots = append(out.Slots, workflows.ConfirmedSlot{Held: code == lua.NodeSlotHeld, Generation: generation})
	}
	return out, nil
}

// ReleaseSlots releases slots, after it has reported their nodes that were unresponsive. Idempotent.
func (s *NodeSlots) ReleaseSlots(ctx context.Context, in workflows.HeldSlots) error {
	for _, slot := range in.Slots {
		if slot.Unresponsive {
			if err := s.reportUnresponsive(ctx, slot.Assignment); err != nil {
				return err
			}
		}
		if _, err := s.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
			return unavailable("slots not released", err)
		}
	}
	return nil
}

func (s *NodeSlots) reportUnresponsive(ctx context.Context, slot berth.Assignment) error {
	code, err := s.Scripts.ReportUnresponsive(ctx, slot.NodeID, slot.Generation, s.Fleet.Snapshot().Config.TimesOf)
	if err != nil {
		return unavailable("unresponsive node not reported", err)
	}
	s.Logger.InfoContext(ctx, "node did not respond while it held work", "node", slot.NodeID, "generation", slot.Generation,
		"lease", slot.LeaseID, "code", code)
	return nil
}

// LeaveWaiting removes work that no longer waits for a node. Idempotent.
func (s *NodeSlots) LeaveWaiting(ctx context.Context, in workflows.NodeWait) error {
	if err := s.Scripts.LeaveWaiting(ctx, in.PoolID, waiterOf(in)); err != nil {
		return unavailable("the waiting work could not be removed", err)
	}
	return nil
}

func waiterOf(in workflows.NodeWait) lua.NodeWaiter {
	return lua.NodeWaiter{UserID: in.UserID, WorkflowID: in.WorkflowID, LeaseID: in.LeaseID}
}

func waitOf(in workflows.NodeWait, accepted bool) *placement.Wait {
	return &placement.Wait{Waiting: lua.Waiting{NodeWaiter: waiterOf(in), Since: in.Since, Again: in.Again, Left: in.Left}, Accepted: accepted}
}
