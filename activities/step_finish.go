package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/pause"
	"berth/internal/stream"
	"berth/lua"
	"berth/workflows"
)

const (
	// recordTimeout bounds one attempt to store an answer, and recordEvery is the interval between two attempts.
	recordTimeout = 5 * time.Second
	recordEvery   = 250 * time.Millisecond
	// holdEvery is the interval at which an answer that cannot be stored is written to Redis again, which may have lost it.
	holdEvery = 2 * time.Second
)

// heldAnswer is an answer that the database could not store yet. It is kept in Redis, so that a later attempt of the step does
// not request it from the provider again, on whichever worker it runs.
type heldAnswer struct {
	Call      ledger.ModelCall `json:"call"`
	MediaType string           `json:"mediaType"`
	Content   []byte           `json:"content"`
}

// finish flushes the stream, then records the step. When Redis is unavailable the answer is stored without it: the
// terminal event contains all of it.
func (s *step) finish(ctx context.Context, output berth.Asset) (workflows.StepOutput, error) {
	call := s.modelCall()
	s.Logger.InfoContext(ctx, "model answered", "task", s.in.ID, "step", s.in.Step.Name, "fence", call.Fence, "model", call.Model,
		"upstream", call.Upstream, "provider", call.Provider, "inputTokens", call.Usage.InputTokens, "outputTokens", call.Usage.OutputTokens)
	flushing, cancel := context.WithTimeout(ctx, 2*time.Second)
	err := s.writer.Flush(flushing)
	cancel()
	if errors.Is(err, stream.ErrFenced) || errors.Is(err, stream.ErrEnded) {
		s.logCall(ctx, callCode(ctx, err))
		return workflows.StepOutput{}, err
	}
	return s.record(ctx, call, output)
}

// record stores the answer. It was paid for, so a database that fails is retried for as long as the step may run, and
// meanwhile the answer is held in Redis, too.
func (s *step) record(ctx context.Context, call ledger.ModelCall, output berth.Asset) (workflows.StepOutput, error) {
	result := ledger.StepResult{
		ModelCall: call, RecordedBy: s.attempt.Fence, Output: output, NextStatus: s.in.NextStatus, Completes: s.in.Next == nil,
	}
	var heldAt time.Time
	for {
		id, err := s.store(ctx, result)
		if err == nil {
			s.drop(ctx, !heldAt.IsZero())
			return s.proceed(ctx, workflows.StepOutput{AssetID: id}), nil
		}
		if !temporary(err) {
			// A held answer may still be adopted, unless the task has ended.
			if heldAt.IsZero() && s.calls > 0 || errors.Is(err, ledger.ErrFinal) {
				s.logUnused(ctx, call, callCode(ctx, err))
			}
			return workflows.StepOutput{}, err
		}
		if heldAt.IsZero() {
			s.Logger.WarnContext(ctx, "answer not stored; retrying", "task", s.in.ID, "step", s.in.Step.Name, "error", err)
		}
		if time.Since(heldAt) >= holdEvery && s.hold(ctx, call, output) {
			heldAt = time.Now()
		}
		if !pause.For(ctx, recordEvery) {
			return workflows.StepOutput{}, cause(ctx, err)
		}
	}
}

// proceed does what follows a recorded step, and returns the step's output with the outcome. What fails is repeated by the workflow.
// After the last step it publishes the end of the task: its readers need not wait for the workflow.
func (s *step) proceed(ctx context.Context, out workflows.StepOutput) workflows.StepOutput {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.in.Next != nil {
		out.Next = s.advance(ctx)
		return out
	}
	err := s.PublishEnd(ctx, s.in.Ref())
	if err != nil {
		s.Logger.WarnContext(ctx, "end of the task not published; the workflow repeats it", "task", s.in.ID, "error", err)
	}
	out.Ended = err == nil
	return out
}

// advance moves the task's admission to the queue of its next step, and enters the waiting room of that step's model. Where the first
// fails, the admission stays until the task ends.
func (s *step) advance(ctx context.Context) workflows.Entered {
	p := lua.Admissions{Task: s.in.Ref(), ServiceID: s.in.ServiceID, Group: s.in.Group, Queues: []berth.Queue{s.in.Step.Queue}}
	if err := s.Scripts.MoveAdmissions(ctx, p, s.in.Next.Queue, time.Until(s.in.DeadlineAt)); err != nil {
		s.Logger.WarnContext(ctx, "admission not moved to the queue of the next step", "task", s.in.ID, "error", err)
	}
	entered, err := s.EnterTask(ctx, workflows.EnterInput{
		TaskRef: s.in.Ref(), Group: s.in.Group, Index: s.in.Index + 1, Step: *s.in.Next, DeadlineAt: s.in.DeadlineAt,
	})
	if err != nil {
		s.Logger.WarnContext(ctx, "waiting room of the next step not entered; the workflow repeats it", "task", s.in.ID, "error", err)
	}
	return entered
}

// store makes one attempt to record the step.
func (s *step) store(ctx context.Context, result ledger.StepResult) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return s.Ledger.FinishStep(ctx, result)
}

// temporary reports whether the ledger may accept the same write later.
func temporary(err error) bool {
	code := berth.CodeOf(err)
	return code == berth.CodeUnavailable || code == berth.CodeInternal
}

// hold keeps the answer in Redis until the task's deadline.
func (s *step) hold(ctx context.Context, call ledger.ModelCall, output berth.Asset) bool {
	data, err := json.Marshal(heldAnswer{Call: call, MediaType: output.MediaType, Content: output.Content})
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = s.Scripts.HoldAnswer(ctx, s.in.Ref(), s.in.Index, data, time.Until(s.in.DeadlineAt))
	}
	if err != nil {
		s.Logger.WarnContext(ctx, "answer not held in Redis", "task", s.in.ID, "step", s.in.Step.Name, "error", err)
	}
	return err == nil
}

// drop removes the answer from Redis once it is stored. Where that fails, it expires.
func (s *step) drop(ctx context.Context, held bool) {
	if !held {
		return
	}
	if err := s.Scripts.DropAnswer(ctx, s.in.Ref(), s.in.Index); err != nil {
		s.Logger.WarnContext(ctx, "held answer not removed", "task", s.in.ID, "error", err)
	}
}

// held returns the answer that an earlier attempt received and could not store, nil without one.
func (s *step) held(ctx context.Context) (*heldAnswer, error) {
	if s.attempt.First {
		return nil, nil
	}
	data, ok, err := s.Scripts.HeldAnswer(ctx, s.in.Ref(), s.in.Index)
	if err != nil {
		return nil, berth.Errorf(berth.CodeUnavailable, "Redis unavailable; retry").With(err)
	}
	if !ok {
		return nil, nil
	}
	var h heldAnswer
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("held answer: %w", err)
	}
	return &h, nil
}

// adopt publishes and records an answer that an earlier attempt could not store.
func (s *step) adopt(ctx context.Context, h *heldAnswer) (workflows.StepOutput, error) {
	s.Logger.InfoContext(ctx, "answer of an earlier attempt used", "task", s.in.ID, "step", s.in.Step.Name,
		"fence", s.attempt.Fence, "earlier", h.Call.Fence)
	s.provider = h.Call.Provider
	if err := s.start(ctx, ledger.CallStart{}); err != nil {
		return workflows.StepOutput{}, err
	}
	output := s.result(h.MediaType, h.Content)
	text, _, err := berth.Result(output)
	if err != nil {
		return workflows.StepOutput{}, err
	}
	if s.in.Step.Mode == berth.ModeStream && s.in.Forwarded == nil {
		if err := s.republish(h.Content, text); err != nil {
			return workflows.StepOutput{}, err
		}
	}
	flushing, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.writer.Flush(flushing); errors.Is(err, stream.ErrFenced) || errors.Is(err, stream.ErrEnded) {
		return workflows.StepOutput{}, err
	}
	out, err := s.record(ctx, h.Call, output)
	if err == nil {
		s.drop(ctx, true)
	}
	return out, err
}

// republish sends readers, who lost the tokens by the reset, the whole answer.
func (s *step) republish(content []byte, text string) error {
	var answer berth.Answer
	if err := json.Unmarshal(content, &answer); err != nil {
		return fmt.Errorf("held answer: %w", err)
	}
	if len(answer.Items) > 0 {
		if err := s.writer.Event(berth.Event{Type: berth.EventStageProgress, Items: answer.Items}); err != nil {
			return err
		}
	}
	return s.writer.Token(text)
}
