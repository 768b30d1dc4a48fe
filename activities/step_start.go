package activities

import (
	"context"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/pause"
)

// start moves a stream task to STREAMING and publishes the routing decision, once per task. It fails if the task has ended or
// a later attempt owns it.
func (s *step) start(ctx context.Context) error {
	status := s.in.Step.PendingStatus()
	if s.in.Step.Mode == berth.ModeStream {
		status = berth.TaskStreaming
	}
	if err := s.claim(ctx, status); err != nil {
		return err
	}
	return s.writer.Event(append(s.announcement(), berth.Event{
		Type: berth.EventStart, Queue: s.in.Step.Queue, Model: s.in.Step.Model, Tier: s.in.Tier,
		TimeoutSec: int(s.in.Timeout / time.Second), RequestID: s.in.RequestID, TraceID: s.in.TraceID,
		StandIn: s.standIn(),
	}, berth.Event{
		Type: berth.EventStageProgress, Status: status, Message: text(s.in.Locale, msgStage(s.firstStage())),
		Queue: s.in.Step.Queue, Model: s.in.Step.Model, StandIn: s.standIn(),
	})...)
}

// claim checks that the task is open and this attempt its newest, and sets the status of a stream task. The provider has been
// called, so a database that fails is retried: its answer waits.
func (s *step) claim(ctx context.Context, status berth.TaskStatus) error {
	for {
		err := s.check(ctx, status)
		if err == nil || !temporary(err) {
			return err
		}
		s.Logger.WarnContext(ctx, "start of a step not recorded; retrying", "task", s.in.ID, "step", s.in.Step.Name, "error", err)
		if !pause.For(ctx, recordEvery) {
			return err
		}
	}
}

func (s *step) check(ctx context.Context, status berth.TaskStatus) error {
	if status == berth.TaskStreaming {
		return s.Ledger.SetStatus(ctx, s.in.Ref(), s.attempt.Fence, status)
	}
	owned, err := s.Ledger.OwnsTask(ctx, s.in.Ref(), s.attempt.Fence)
	if err == nil && !owned {
		return berth.Errorf(berth.CodeConflict, "the task has ended, or a later attempt owns it").With(ledger.ErrStale)
	}
	return err
}

// standIn reports whether the local simulator serves the step's model.
func (s *step) standIn() bool {
	m, ok := s.Catalog.Model(s.in.Step.Model)
	return ok && m.ServedBy == llm.LocalProvider
}
