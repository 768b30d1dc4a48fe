package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"

	"berth"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/stream"
	"berth/workflows"
)

// heartbeatEvery is how often a running step shows that it is alive. The SDK passes on what the heartbeat
// timeout needs.
const heartbeatEvery = 2 * time.Second

// RunStep makes one model call: it waits for the model's slot, streams the answer to the person who waits, and
// stores it. Idempotent by (task, step): a step that is recorded answers with what it stored; an older attempt is
// fenced out of stream and ledger alike (T13).
func (a *Tasks) RunStep(ctx context.Context, in workflows.StepInput) (workflows.StepOutput, error) {
	attempt, err := a.Ledger.BeginAttempt(ctx, in.ID, in.Index, in.Step.PendingStatus())
	switch {
	case err != nil:
		return workflows.StepOutput{}, translate(ctx, err)
	case attempt.Done:
		return workflows.StepOutput{AssetID: attempt.OutputAssetID}, nil
	case attempt.Final:
		return workflows.StepOutput{}, translate(ctx, errEnded)
	}
	ctx, stop := a.attend(ctx, in.ID, attempt.Fence)
	defer stop()
	s := &step{Tasks: a, in: in, attempt: attempt}
	s.stage = s.firstStage()
	out, err := s.run(ctx)
	return out, translate(ctx, err)
}

// attend heartbeats for the step and ends its context when the task is over or this worker has drained.
func (a *Tasks) attend(ctx context.Context, taskID string, fence int64) (attended context.Context, stop func()) {
	stopping := activity.GetWorkerStopChannel(ctx)
	beat := ctx
	ctx, leave := a.Running.Watch(ctx, taskID, uint64(fence)) //nolint:gosec // a fence is never negative
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		var drained <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				activity.RecordHeartbeat(beat)
			case <-stopping:
				stopping, drained = nil, time.After(a.Options.Drain)
			case <-drained:
				cancel(errStopping)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); leave() }
}

// step is one attempt at one model call.
type step struct {
	*Tasks
	in      workflows.StepInput
	attempt ledger.Attempt
	writer  *stream.Writer
	answer  berth.Answer
	thought bool
	// announced is set once readers are told that the step is next, or that it starts again.
	announced atomic.Bool
	stage     berth.Stage
	// last is what came of the newest provider call, calls how many there were.
	last  llm.Result
	calls int
}

func (s *step) run(ctx context.Context) (out workflows.StepOutput, err error) {
	ch := channel(s.in.UserID, s.in.ServiceID, s.in.ID)
	s.writer = s.Streams.Writer(ctx, ch, s.attempt.Fence, berth.Event{
		TaskID: s.in.ID, ServiceID: s.in.ServiceID, Stage: s.firstStage(),
	}, func(ctx context.Context) (bool, error) { return s.Ledger.StillOurs(ctx, s.in.ID, s.attempt.Fence) })
	defer func() {
		// After a success everything is flushed already; after a failure the rest is worth one short try.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if cerr := s.writer.Close(closing); cerr != nil && err == nil {
			s.Logger.Warn("close stream writer", "task", s.in.ID, "error", cerr)
		}
	}()
	messages, err := s.prompt(ctx)
	if err != nil {
		return out, err
	}
	slot, err := s.acquire(ctx)
	if err != nil {
		return out, err
	}
	defer slot.Release()
	callCtx, cancel := context.WithTimeout(slot.Context(), min(s.in.Timeout, s.Options.CallTimeout))
	defer cancel()
	if err := s.start(callCtx); err != nil {
		return out, cause(callCtx, err)
	}
	output, err := s.call(callCtx, messages)
	if err != nil {
		return out, s.failed(callCtx, cause(callCtx, err))
	}
	slot.Release()
	return s.finish(ctx, output)
}

// standIn tells whether berth's local stand-in answers in the model's place (T27).
func (s *step) standIn() bool {
	m, ok := s.Catalog.Model(s.in.Step.Model)
	return ok && m.ServedBy == llm.LocalProvider
}

// cause prefers why the context ended over what that did to a call.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		if errors.Is(c, context.DeadlineExceeded) {
			return berth.Errorf(berth.CodeDeadlineExceeded, "the model did not answer in time").With(err)
		}
		return fmt.Errorf("%w: %w", c, err)
	}
	return err
}

func (s *step) firstStage() berth.Stage { return s.in.Step.Template.Spec().FirstStage() }

// announcement tells readers that this step is next, or that it starts again; nothing when they know it. Who need not wait
// for the model is told with the start: one call to Redis for both.
func (s *step) announcement() []berth.Event {
	switch {
	case s.announced.Swap(true):
		return nil
	case !s.attempt.First:
		return []berth.Event{{
			Type: berth.EventReset, Attempt: s.attempt.Fence, Message: text(s.in.Locale, msgReset), Status: s.in.Step.PendingStatus(),
		}}
	default:
		return []berth.Event{{
			Type: berth.EventStageProgress, Status: s.in.Step.PendingStatus(), Message: text(s.in.Locale, msgWaiting),
			Queue: s.in.Step.Queue, Model: s.in.Step.Model,
		}}
	}
}

// announce is for who has to wait.
func (s *step) announce() {
	if err := s.writer.Event(s.announcement()...); err != nil {
		s.Logger.Debug("publish that a step is next", "task", s.in.ID, "error", err)
	}
}

// showPositionEvery is how often somebody who waits for the model is told how many wait before them; who waits
// shorter is not told at all.
const showPositionEvery = 500 * time.Millisecond

// acquire waits for the model's slot and meanwhile shows the person their position.
func (s *step) acquire(ctx context.Context) (*lease.Slot, error) {
	var newest atomic.Int64
	newest.Store(-1)
	waiting, granted := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() {
		tick := time.NewTicker(showPositionEvery)
		defer tick.Stop()
		for last := int64(-1); ; {
			select {
			case <-waiting.Done():
				return
			case <-tick.C:
				s.announce()
				if n := newest.Load(); n != last {
					last = n
					s.position(int(n))
				}
			}
		}
	})
	defer func() { granted(); shown.Wait() }() // no position after the start
	return s.Slots.Acquire(ctx, lease.Request{
		Model:   s.in.Step.Model,
		LeaseID: fmt.Sprintf("%s:%d:%d", s.in.ID, s.in.Index, s.attempt.Fence),
		OnPosition: func(n int) {
			s.announce()
			newest.Store(int64(n))
		},
	})
}

func (s *step) position(n int) {
	err := s.writer.Event(berth.Event{
		Type: berth.EventQueued, Stage: berth.StageQueue, Position: &n, Queue: s.in.Step.Queue, Model: s.in.Step.Model,
	})
	if err != nil {
		s.Logger.Debug("publish position", "task", s.in.ID, "error", err)
	}
}

// start publishes the routing decision, once per task, and moves a stream task to STREAMING.
func (s *step) start(ctx context.Context) error {
	status := s.in.Step.PendingStatus()
	if s.in.Step.Mode == berth.ModeStream {
		status = berth.TaskStreaming
		if err := s.Ledger.SetStatus(ctx, s.in.ID, s.attempt.Fence, status); err != nil {
			return err
		}
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

// call asks the model and returns what is to be stored.
func (s *step) call(ctx context.Context, messages []llm.Message) (berth.Asset, error) {
	if s.Options.Debug {
		if err := s.writer.Event(berth.Event{Type: berth.EventDebug, Message: fmt.Sprintf("%d messages to %s", len(messages), s.in.Step.Model)}); err != nil {
			return berth.Asset{}, err
		}
	}
	switch s.in.Step.Mode {
	case berth.ModeStream:
		return s.stream(ctx, messages)
	case berth.ModeVision:
		return s.read(ctx, messages)
	default:
		return s.structured(ctx, messages)
	}
}

// ask makes one provider call within the step's slot. onText gets the answer as it comes.
func (s *step) ask(ctx context.Context, messages []llm.Message, onText func(string) error) (string, error) {
	res, err := s.Models.Stream(ctx, llm.Call{
		Model: s.in.Step.Model, Messages: messages, JSON: s.in.Step.Mode == berth.ModeBatch,
	}, func(d llm.Delta) error {
		if d.Reasoning != "" && !s.thought {
			s.thought = true
			return s.writer.Event(berth.Event{Type: berth.EventStageProgress, Message: text(s.in.Locale, msgThinking)})
		}
		if d.Content == "" || onText == nil {
			return s.writer.Err()
		}
		return onText(d.Content)
	})
	s.last = res
	s.calls++
	return res.Text, err
}

// stream passes the answer on token by token, with the stages and points the model marks (T10).
func (s *step) stream(ctx context.Context, messages []llm.Message) (berth.Asset, error) {
	parser := llm.NewStageParser(s.in.Step.Template.Spec())
	var all strings.Builder
	handle := func(parts []llm.Piece) error {
		for _, p := range parts {
			if err := s.part(p, &all); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := s.ask(ctx, messages, func(delta string) error { return handle(parser.Feed(delta)) })
	if err == nil {
		err = handle(parser.Close())
	}
	if err != nil {
		return berth.Asset{}, err
	}
	s.answer.Text = strings.TrimSpace(all.String())
	if s.answer.Text == "" {
		return berth.Asset{}, &llm.CallError{Code: berth.CodeInvalidOutput, Retryable: true, Message: "the model answered nothing"}
	}
	b, err := json.Marshal(s.answer)
	if err != nil {
		return berth.Asset{}, fmt.Errorf("encode answer: %w", err)
	}
	return s.result(berth.AnswerMediaType, b), nil
}

func (s *step) part(p llm.Piece, all *strings.Builder) error {
	switch {
	case p.Stage == s.stage:
		return nil // announced already
	case p.Stage != "":
		s.stage = p.Stage
		s.writer.SetStage(p.Stage)
		return s.writer.Event(berth.Event{Type: berth.EventStageProgress, Stage: p.Stage, Message: text(s.in.Locale, msgStage(p.Stage))})
	case p.Point != nil:
		if slices.ContainsFunc(s.answer.Points, func(q berth.MatchPoint) bool { return q.Requirement == p.Point.Requirement }) {
			return nil // a model that repeats itself
		}
		s.answer.Points = append(s.answer.Points, *p.Point)
		return s.writer.Event(berth.Event{Type: berth.EventStageProgress, Points: []berth.MatchPoint{*p.Point}})
	default:
		all.WriteString(p.Text)
		return s.writer.Token(p.Text)
	}
}

// read has the model read the picture.
func (s *step) read(ctx context.Context, messages []llm.Message) (berth.Asset, error) {
	answer, err := s.ask(ctx, messages, nil)
	if err != nil {
		return berth.Asset{}, err
	}
	if llm.NoText(answer) {
		return berth.Asset{}, berth.Errorf(berth.CodeUnreadableImage, "no text could be read from the image")
	}
	return s.result(berth.TextMediaType, []byte(answer)), nil
}

// structured validates a batch answer against its template's schema, with one repair attempt (T9).
func (s *step) structured(ctx context.Context, messages []llm.Message) (berth.Asset, error) {
	answer, err := s.ask(ctx, messages, nil)
	if err != nil {
		return berth.Asset{}, err
	}
	data, err := llm.ValidateOutput(s.in.Step.Template, []byte(answer))
	if err == nil {
		return s.result(berth.JSONMediaType, data), nil
	}
	s.logCall(ctx, berth.CodeInvalidOutput)
	if err := s.writer.Event(berth.Event{Type: berth.EventStageProgress, Message: text(s.in.Locale, msgRepair)}); err != nil {
		return berth.Asset{}, err
	}
	repair := llm.RepairPrompt(s.in.Step.Template, s.in.Locale, answer, err.Error())
	if answer, err = s.ask(ctx, append(messages, repair), nil); err != nil {
		return berth.Asset{}, err
	}
	if data, err = llm.ValidateOutput(s.in.Step.Template, []byte(answer)); err != nil {
		return berth.Asset{}, berth.Errorf(berth.CodeInvalidOutput, "the model's answer does not have the asked shape").With(err)
	}
	return s.result(berth.JSONMediaType, data), nil
}

func (s *step) result(mediaType string, content []byte) berth.Asset {
	return berth.Asset{
		UserID: s.in.UserID, Kind: berth.AssetResult, MediaType: mediaType, Content: content, Size: int64(len(content)),
	}
}

// failed logs the call that did not succeed and tells the person when it will be tried again.
func (s *step) failed(ctx context.Context, err error) error {
	s.logCall(ctx, berth.CodeOf(err))
	var call *llm.CallError
	if errors.As(err, &call) && call.Retryable {
		if werr := s.writer.Event(berth.Event{Type: berth.EventStageProgress, Code: call.Code, Message: text(s.in.Locale, msgRetry)}); werr != nil {
			s.Logger.Debug("publish retry", "task", s.in.ID, "error", werr)
		}
	}
	return err
}

// logCall writes the usage log row of a call whose answer is not used (T19).
func (s *step) logCall(ctx context.Context, code berth.Code) {
	if s.calls == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	call := s.modelCall()
	call.Code = code
	err := s.Ledger.FailedCall(ctx, call)
	if err != nil {
		s.Logger.Warn("log failed call", "task", s.in.ID, "error", err)
	}
}

// modelCall describes the newest provider call for the usage log.
func (s *step) modelCall() ledger.ModelCall {
	return ledger.ModelCall{
		TaskID: s.in.ID, Step: s.in.Index, Name: s.in.Step.Name, Fence: s.attempt.Fence, Call: s.calls - 1,
		Queue: s.in.Step.Queue, Model: s.in.Step.Model, Provider: s.last.Provider, Usage: s.last.Usage,
		LatencyMs: s.last.Took.Milliseconds(), FirstTokenMs: s.last.FirstToken.Milliseconds(), CostMicros: s.cost(),
	}
}

func (s *step) cost() int64 {
	m, _ := s.Catalog.Model(s.in.Step.Model) // a model that is gone from the catalog costs nothing any more
	return m.CostMicros(s.last.Usage)
}

// finish flushes the stream, then records the step. The stored answer does not wait for a Redis that is away:
// the terminal event carries all of it.
func (s *step) finish(ctx context.Context, output berth.Asset) (workflows.StepOutput, error) {
	flushing, cancel := context.WithTimeout(ctx, 2*time.Second)
	err := s.writer.Flush(flushing)
	cancel()
	if errors.Is(err, stream.ErrFenced) || errors.Is(err, stream.ErrEnded) {
		return workflows.StepOutput{}, err
	}
	id, err := s.Ledger.FinishStep(ctx, ledger.StepResult{
		ModelCall: s.modelCall(), Output: output, NextStatus: s.in.NextStatus,
	})
	if err != nil {
		return workflows.StepOutput{}, err
	}
	return workflows.StepOutput{AssetID: id}, nil
}
