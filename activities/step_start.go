package activities

import (
	"context"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/pause"
)

// start records a call, moves a stream task to STREAMING with the first of the attempt (a forwarded request later, see forward), and publishes the routing decision. It fails if the
// task has ended or a later attempt owns it.
func (s *step) start(ctx context.Context, call ledger.CallStart) error {
	status := s.in.Step.Status
	if s.in.Step.Mode == berth.ModeStream && s.in.Forwarded == nil {
		status = berth.TaskStreaming
	}
	call.Status = status
	begins := berth.Event{
		Type: berth.EventStageProgress, Status: status, Message: s.stageText(s.firstStage()),
		Queue: s.in.Step.Queue, Model: s.in.Step.Model, Simulated: s.simulated(),
	}
	switch err := s.claim(ctx, call); {
	case err != nil:
		return err
	case call.Call > 0 && s.waitedAgain:
		return s.writer.Event(begins)
	case call.Call > 0:
		return nil
	}
	return s.writer.Event(append(s.announcement(true), berth.Event{
		Type: berth.EventStart, Queue: s.in.Step.Queue, Model: s.in.Step.Model, Tier: s.in.Tier,
		TimeoutSec: int(s.in.Timeout / time.Second), RequestID: s.in.RequestID, TraceID: s.in.TraceID,
		Simulated: s.simulated(),
	}, begins)...)
}

// claim checks that the task is open and this attempt its newest, and records the call with the status of the task. The provider has
// been called, so a database that fails is retried: its answer waits.
func (s *step) claim(ctx context.Context, call ledger.CallStart) error {
	call.TaskRef, call.Step, call.Fence = s.in.Ref(), s.in.Index, s.attempt.Fence
	for {
		err := s.Ledger.StartCall(ctx, call)
		if err == nil || !temporary(err) || ctx.Err() != nil {
			return err
		}
		s.Logger.WarnContext(ctx, "start of a step not recorded; retrying", "task", s.in.ID, "step", s.in.Step.Name, "error", err)
		if !pause.For(ctx, recordEvery) {
			return err
		}
	}
}

// simulated reports whether the local simulator serves the step's model.
func (s *step) simulated() bool { return s.provider == llm.LocalProvider }
