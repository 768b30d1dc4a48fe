package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
	"berth/lua"
	"berth/workflows"
)

// Turns are the side effects of turns.
type Turns struct {
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Placer  *placement.Placer
	Logger  *slog.Logger
	// StreamTTL is how long a session's stream is kept after its last event, StreamTrim about how many events it has.
	StreamTTL  time.Duration
	StreamTrim int64
}

// DispatchJob decides a job's node and takes its slot (A3-A5, L6). Called again for the same dispatch it answers the
// same; when the slot has lapsed meanwhile, it fails with workflows.ErrorExpired. A refusal is an application error with a
// berth.Refusal, and leaves nothing.
func (t *Turns) DispatchJob(ctx context.Context, in workflows.DispatchInput) (berth.Assignment, error) {
	a, err := t.Placer.Dispatch(ctx, placement.Job{
		SessionID: in.SessionID, TurnID: in.TurnID, JobID: in.JobID, RequestID: in.RequestID, Dispatch: in.Dispatch,
		EndsTurn: in.EndsTurn, AffinityNodeID: in.AffinityNodeID,
	}, placement.Request{
		Requirements: berth.Requirements{PoolID: in.PoolID}, Failed: generations(in.Excluded), Avoided: generations(in.Avoided),
	})
	switch {
	case err != nil:
		if berth.CodeOf(err) == berth.CodeInternal {
			t.Logger.WarnContext(ctx, "job dispatch failed", "job", in.JobID, "error", err)
		}
		return berth.Assignment{}, refused(err)
	case !a.Existed:
		return a, nil
	case a.JobID != in.JobID:
		return berth.Assignment{}, refused(berth.Errorf(berth.CodeConflict, "the request id belongs to another segment of this session"))
	}
	code, _, err := t.Scripts.ConfirmNodeSlot(ctx, a, lua.Unconfirmed)
	if err != nil {
		return berth.Assignment{}, refused(err)
	}
	if code != lua.NodeSlotHeld {
		return berth.Assignment{}, temporal.NewNonRetryableApplicationError("the slot has expired", workflows.ErrorExpired, nil)
	}
	return a, nil
}

// CheckAvailability tells for how long jobs could be taken without a break: Redis had its data, and API and workers were there. While
// Redis may have lost data it fails, to be asked again.
func (t *Turns) CheckAvailability(ctx context.Context) (workflows.Availability, error) {
	g, err := t.Scripts.CheckGuard(ctx)
	if err == nil && g.Left > 0 {
		err = errors.New("data may have been lost")
	}
	if err != nil {
		return workflows.Availability{}, again(berth.CodeUnavailable, "segments cannot be taken now", max(g.Left, 0), err)
	}
	seen, err := t.Scripts.ObservedFor(ctx)
	if err != nil {
		return workflows.Availability{}, again(berth.CodeUnavailable, "segments cannot be taken now", 0, err)
	}
	return workflows.Availability{For: min(-g.Left, seen)}, nil
}

// ConfirmSlots holds slots for as long as their jobs may take (L7), and in a grace puts back those that Redis lost (L12).
// Idempotent.
func (t *Turns) ConfirmSlots(ctx context.Context, in workflows.HeldSlots) (workflows.ConfirmedSlots, error) {
	var out workflows.ConfirmedSlots
	for _, slot := range in.Slots {
		code, generation, err := t.Scripts.ConfirmNodeSlot(ctx, slot.Assignment, slot.Left)
		if err != nil {
			return out, again(berth.CodeUnavailable, "slots cannot be confirmed", 0, err)
		}
		if code != lua.NodeSlotHeld {
			level := slog.LevelWarn
			if code == lua.NodeGone { // the node is leaving, or its death was told
				level = slog.LevelInfo
			}
			t.Logger.Log(ctx, level, "slot of a running job is lost", "job", slot.JobID, "node", slot.NodeID, "code", code)
		}
		out.Slots = append(out.Slots, workflows.ConfirmedSlot{Held: code == lua.NodeSlotHeld, Generation: generation})
	}
	return out, nil
}

// ReleaseSlots gives slots back (L7), and tells which nodes fell silent (L11). Idempotent.
func (t *Turns) ReleaseSlots(ctx context.Context, in workflows.HeldSlots) error {
	for _, slot := range in.Slots {
		if err := reportUnresponsive(ctx, t.Scripts, t.Fleet, t.Logger, slot); err != nil {
			return err
		}
		if _, err := t.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
			return again(berth.CodeUnavailable, "slots cannot be given back", 0, err)
		}
	}
	return nil
}

// reportUnresponsive tells of a node that fell silent over its work, before its slot is given to another.
func reportUnresponsive(ctx context.Context, s *lua.Scripts, f *fleet.Fleet, logger *slog.Logger, slot workflows.HeldSlot) error {
	if !slot.Unresponsive {
		return nil
	}
	code, err := s.ReportUnresponsive(ctx, slot.NodeID, slot.Generation, f.Snapshot().Config.TimesOf)
	if err != nil {
		return again(berth.CodeUnavailable, "the fleet's state cannot be reached", 0, err)
	}
	logger.InfoContext(ctx, "node fell silent over its work", "node", slot.NodeID, "generation", slot.Generation, "lease", slot.LeaseID, "code", code)
	return nil
}

// FinalizeTurn deletes the turn's affinity (A6). Idempotent.
func (t *Turns) FinalizeTurn(ctx context.Context, in workflows.TurnRef) error {
	finalize := t.Scripts.FinalizeTurn
	if in.Withdraw {
		finalize = t.Scripts.WithdrawTurn
	}
	if _, _, err := finalize(ctx, in.SessionID, in.TurnID); err != nil {
		return again(berth.CodeUnavailable, "the turn's node cannot be forgotten", 0, err)
	}
	return nil
}

// PublishTurn appends a turn's events to its session's stream, each once, however often it is called (A10).
func (t *Turns) PublishTurn(ctx context.Context, in workflows.TurnEvents) error {
	events := make([]string, len(in.Events))
	for i, ev := range in.Events {
		ev.TS = time.Now().UnixMilli()
		b, err := json.Marshal(ev)
		if err != nil {
			return final(berth.CodeInternal, "an event cannot be written", fmt.Errorf("%s event: %w", ev.Type, err))
		}
		events[i] = string(b)
	}
	ch := lua.SessionChannel(in.UserID, in.SessionID)
	res, err := t.Scripts.AppendTurnEvents(ctx, ch, in.TurnID, in.First, events, t.StreamTTL, t.StreamTrim)
	if err != nil {
		return again(berth.CodeUnavailable, "the session's stream cannot be written", 0, err)
	}
	if res.Code != lua.StreamOK { // trying again would not mend it, and the turn has to come to its end
		t.Logger.ErrorContext(ctx, "events of a turn have no stream", "turn", in.TurnID, "session", in.SessionID, "code", res.Code)
	}
	return nil
}
