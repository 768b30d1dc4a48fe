package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/placement"
	"berth/lua"
	"berth/workflows"
)

// Turns are the activities of turns.
type Turns struct {
	NodeSlots
	Placer *placement.Placer
	// StreamTTL is how long a session's stream is kept after its last event, StreamTrim its approximate number of events.
	StreamTTL  time.Duration
	StreamTrim int64
}

// DispatchJob chooses a job's node and reserves its slot. It is idempotent by dispatch number: another call returns the same
// decision, or fails with workflows.ErrorExpired if its slot has expired. A refusal is an application error with a
// berth.Refusal as its detail, and leaves nothing.
func (t *Turns) DispatchJob(ctx context.Context, in workflows.DispatchInput) (berth.Assignment, error) {
	var wait *placement.Wait
	if in.Wait != nil {
		wait = waitOf(*in.Wait, true)
	}
	a, err := t.Placer.Dispatch(ctx, in.JobRequest, placement.Request{
		Requirements: berth.Requirements{PoolID: in.PoolID}, Failed: in.Excluded, Avoided: in.Avoided, Wait: wait,
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

// CheckAvailability returns for how long segments could be submitted without interruption: Redis had its data, and API and
// worker processes were running. It fails while Redis may have lost data.
func (t *Turns) CheckAvailability(ctx context.Context) (workflows.Availability, error) {
	g, err := t.Scripts.CheckGuard(ctx)
	switch {
	case err != nil:
		return workflows.Availability{}, unavailable("data loss guard not read", err)
	case g.Left > 0:
		return workflows.Availability{}, again(berth.CodeUnavailable, "Redis may have lost data", g.Left, nil)
	}
	running, err := t.Scripts.ObservedFor(ctx)
	if err != nil {
		return workflows.Availability{}, unavailable("running processes not read", err)
	}
	return workflows.Availability{For: min(-g.Left, running)}, nil
}

// FinalizeTurn deletes the turn's affinity. Idempotent.
func (t *Turns) FinalizeTurn(ctx context.Context, in workflows.TurnRef) error {
	finalize := t.Scripts.FinalizeTurn
	if in.Withdraw {
		finalize = t.Scripts.WithdrawTurn
	}
	if _, _, err := finalize(ctx, in.UserID, in.SessionID, in.TurnID); err != nil {
		return unavailable("affinity of the turn not deleted", err)
	}
	return nil
}

// encode returns events in the form of a stream.
func encode[E any](events []E) ([]string, error) {
	lines := make([]string, len(events))
	for i, ev := range events {
		b, err := json.Marshal(ev)
		if err != nil {
			return nil, fmt.Errorf("encode event: %w", err)
		}
		lines[i] = string(b)
	}
	return lines, nil
}

// PublishTurn appends a turn's events to its session's stream, after all earlier ones. Idempotent: each event is appended once.
func (t *Turns) PublishTurn(ctx context.Context, in workflows.TurnEvents) error {
	return t.publish(ctx, in, in.First-1)
}

// publish appends a turn's events, of whose earlier ones the given number was confirmed.
func (t *Turns) publish(ctx context.Context, in workflows.TurnEvents, confirmed int) error {
	events := slices.Clone(in.Events) // the input of a local activity is the workflow's
	for i := range events {
		events[i].TS = time.Now().UnixMilli()
	}
	lines, err := encode(events)
	if err != nil {
		return final(berth.CodeInternal, "event not encodable", err)
	}
	res, err := t.Scripts.AppendEvents(ctx, lua.SessionChannel(in.UserID, in.SessionID), lua.Append{
		Producer: in.TurnID, First: in.First, Confirmed: confirmed, TTL: t.StreamTTL, Trim: t.StreamTrim, Events: lua.StreamEntries(lines...),
	})
	if err != nil {
		return unavailable("stream of the session not written", err)
	}
	if res.Code != lua.StreamOK { // a retry would not fix it, and the turn must end
		t.Logger.ErrorContext(ctx, "turn events not published: no stream", "turn", in.TurnID, "session", in.SessionID, "code", res.Code)
	}
	return nil
}
