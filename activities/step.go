package activities

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"berth"
	"berth/internal/failover"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/internal/responses"
	"berth/internal/stream"
	"berth/internal/template"
	"berth/workflows"
)

// RunStep makes one model call: it waits for a slot of the model, streams the answer to readers and stores it.
// It is idempotent by (task, step): a step that is already recorded returns what it stored, and writes of an older
// attempt are rejected by both stream and ledger.
func (a *Tasks) RunStep(ctx context.Context, in workflows.StepInput) (workflows.StepOutput, error) {
	if err := a.awaitEarlier(ctx, in); err != nil {
		return workflows.StepOutput{}, stepFault(ctx, err, 0, a.Options.MaxAnswers)
	}
	attempt, err := a.Ledger.BeginAttempt(ctx, in.Ref(), in.Index, in.Step.Status)
	switch {
	case err != nil:
		return workflows.StepOutput{}, stepFault(ctx, err, 0, a.Options.MaxAnswers)
	case attempt.Done:
		out := workflows.StepOutput{AssetID: attempt.OutputAssetID}
		if in.Next != nil { // the recorded attempt may have stopped before it entered
			out.Next = workflows.EnteredUnknown
		}
		return out, nil
	case attempt.Final:
		return workflows.StepOutput{}, translate(ctx, errEnded)
	}
	ctx, at, stop := a.attend(ctx, in.Ref(), attempt.Fence)
	defer stop()
	if in.Team != "" || in.App != "" {
		trace.SpanFromContext(ctx).SetAttributes(metrics.Team.String(in.Team), metrics.App.String(in.App))
	}
	s := &step{Tasks: a, in: in, attempt: attempt, attempting: at, bought: attempt.Bought}
	if err := s.readTemplate(ctx); err != nil {
		return workflows.StepOutput{}, s.fault(ctx, err)
	}
	began := time.Now()
	out, err := s.run(ctx)
	outcome := metrics.OK
	if err != nil {
		outcome = string(berth.CodeOf(err))
		s.releaseReservation(ctx)
	}
	queue, model := metrics.Queue.String(string(in.Step.Queue)), metrics.Model.String(in.Step.Model)
	metrics.Steps.Add(ctx, 1, metrics.With(queue, model, metrics.Outcome.String(outcome)))
	metrics.StepDuration.Record(ctx, time.Since(began).Seconds(), metrics.With(queue, model))
	return out, s.fault(ctx, err)
}

// step is one attempt at one model call.
type step struct {
	*Tasks
	in      workflows.StepInput
	attempt ledger.Attempt
	*attempting
	// template is the version of the task, and spec its description of the step.
	template *template.Template
	spec     template.Step
	// upstream is that of the step's slot, and provider its provider. tried has those that this attempt does not use again.
	upstream, provider string
	tried              failover.Call
	writer             *stream.Writer
	stage              berth.Stage
	answer             berth.Answer
	// shown is set once readers have a part of the answer, or may have one.
	shown bool
	// brokeOff: the answer of a forwarded request would be made again if its client could not have read a part of it.
	brokeOff bool
	// reasoned is set once readers know that the model is reasoning.
	reasoned bool
	// announced is set once readers know that the step is next, or that it starts again. waitedAgain is set if they know that it has waited for
	// another upstream after the last call.
	announced   atomic.Bool
	waitedAgain bool
	// response is the request of a response.
	response *responses.Request
	// texts are the variables that the prompt reads, and fits is the last catalog by which they fit an upstream.
	texts map[string]string
	fits  *llm.Catalog
	// last is the result of the newest provider call, why the cause of its failure, calls the number of calls.
	last  llm.Result
	why   llm.Cause
	calls int
	// started is closed once the start is recorded, or could not be because of startErr.
	started  chan struct{}
	startErr error
	// bought is the number of answers that this step has bought, in all attempts.
	bought int
}

// version returns the version of the template to which a task is pinned.
func (a *Tasks) version(ctx context.Context, t berth.TaskRequest, forwarded *berth.Forwarded) (*template.Template, error) {
	if forwarded != nil {
		return forwarding, nil
	}
	version, err := a.Templates.Version(ctx, t.Template, t.TemplateVersion)
	if mistakes, ok := errors.AsType[template.Mistakes](err); ok {
		return nil, berth.Errorf(berth.CodeUnavailable, "this worker cannot read the template, which was stored by another release").With(mistakes)
	}
	return version, err
}

// readTemplate reads the version of the template to which the task is pinned.
func (s *step) readTemplate(ctx context.Context) (err error) {
	if s.template, err = s.version(ctx, s.in.TaskRequest, s.in.Forwarded); err != nil {
		return err
	}
	spec, ok := s.template.Step(string(s.in.Step.Name))
	if !ok {
		return berth.Errorf(berth.CodeInternal, "template %s has no step %s", s.in.Template, s.in.Step.Name)
	}
	s.spec, s.stage = spec, s.firstStage()
	return nil
}

// run is the attempt from the prompt to the stored result.
func (s *step) run(ctx context.Context) (out workflows.StepOutput, err error) {
	defer s.openWriter(ctx)(&err)
	h, err := s.held(ctx)
	switch {
	case h != nil:
		return s.adopt(ctx, h)
	case s.attempt.Begun && err == nil:
		return out, s.interrupted(ctx)
	case s.mayBuy(): // without Redis there is no slot either
	case err != nil:
		return out, err
	default: // the worker of the last call was lost
		return out, berth.Errorf(berth.CodeInterrupted, "the answers of the model were interrupted, and berth tried %s: retry", times(s.bought))
	}
	call, err := s.prepare(ctx)
	if err != nil {
		return out, err
	}
	slot, err := s.acquire(ctx, call, "")
	if err != nil {
		return out, err
	}
	// Again, because the process that has the answer may have been without Redis until now, as this one was.
	if h, err := s.held(ctx); err != nil || h != nil {
		slot.Release()
		if err != nil {
			return out, err
		}
		return s.adopt(ctx, h)
	}
	output, err := s.callUpstreams(ctx, slot, call)
	if err != nil {
		return out, err
	}
	return s.finish(ctx, output)
}

// openWriter opens the writer of the task's stream. The function that it returns closes the writer: after a success
// everything is flushed already, after a failure the rest gets one short try.
func (s *step) openWriter(ctx context.Context) (closeWriter func(failed *error)) {
	ch := channel(s.in.UserID, s.in.ServiceID, s.in.ID)
	streams := s.Streams
	if s.in.Forwarded != nil {
		streams = s.Chunks
	}
	s.writer = streams.Writer(ctx, ch, s.attempt.Fence, berth.Event{
		TaskID: s.in.ID, ServiceID: s.in.ServiceID, Stage: s.stage,
	}, func(ctx context.Context) (bool, error) { return s.Ledger.OwnsTask(ctx, s.in.Ref(), s.attempt.Fence) })
	return func(failed *error) {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := s.writer.Close(closing); err != nil && *failed == nil {
			s.Logger.Warn("stream writer not closed", "task", s.in.ID, "error", err)
		}
	}
}

// mayBuy reports whether the step may buy another answer.
func (s *step) mayBuy() bool { return s.bought < s.Options.MaxAnswers }

// releaseReservation removes the usage log row of an attempt that made no call.
func (s *step) releaseReservation(ctx context.Context) {
	if s.calls > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := s.Ledger.ReleaseAttempt(ctx, s.in.Ref(), s.in.Index, s.attempt.Fence); err != nil {
		s.Logger.Warn("reservation of a model call not released", "task", s.in.ID, "error", err)
	}
}

// logCall writes the usage log row of the newest call, whose answer is not used.
func (s *step) logCall(ctx context.Context, code berth.Code) {
	if s.calls > 0 {
		s.logUnused(ctx, s.modelCall(), code)
	}
}

// logUnused writes the usage log row of a call whose answer is not used.
func (s *step) logUnused(ctx context.Context, call ledger.ModelCall, code berth.Code) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	call.Code, call.Cause = code, string(s.why)
	if s.in.Forwarded != nil && !s.shown { // the client has nothing of it
		call.Credits = 0
	}
	if err := s.Ledger.FailedCall(ctx, call); err != nil {
		s.Logger.Warn("failed model call not logged", "task", s.in.ID, "error", err)
	}
}

// modelCall describes the newest provider call for the usage log.
func (s *step) modelCall() ledger.ModelCall {
	return ledger.ModelCall{
		UserID: s.in.UserID, TaskID: s.in.ID, Step: s.in.Index, Name: s.in.Step.Name, Fence: s.attempt.Fence, Call: s.calls - 1,
		Queue: s.in.Step.Queue, Model: s.in.Step.Model, Provider: s.last.Provider, Upstream: s.last.Upstream, Usage: s.last.Usage,
		FinishReason: s.last.FinishReason, PromptTruncated: s.last.PromptTruncated, Simulated: s.last.Provider == llm.LocalProvider,
		LatencyMs: s.last.Took.Milliseconds(), FirstTokenMs: s.last.FirstToken.Milliseconds(), CostMicros: s.cost(), Credits: s.credits(),
	}
}

// credits returns what a metered task is charged for the newest call.
func (s *step) credits() berth.Credits {
	m, _ := s.Catalog(s.in.Step.Model).Model(s.in.Step.Model) // one that was removed from the catalog has no price
	return m.Credits.Of(s.last.Usage)
}

func (s *step) cost() int64 {
	if s.last.Provider == llm.LocalProvider {
		return 0
	}
	m, _ := s.Catalog(s.in.Step.Model).Model(s.in.Step.Model)
	u, _ := m.Upstream(s.last.Upstream) // one that was removed from the catalog has no price
	return u.CostMicros(s.last.Usage)
}

// cause prefers the reason why the context ended to the error that this caused in a call.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		if errors.Is(c, context.DeadlineExceeded) || errors.Is(c, lease.ErrHeldTooLong) {
			return berth.Errorf(berth.CodeDeadlineExceeded, "the model did not answer in time").With(err)
		}
		return fmt.Errorf("%w: %w", c, err)
	}
	return err
}
