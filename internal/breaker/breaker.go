// Package breaker reports the outcomes of model calls, so that a provider that fails or limits its calls pauses a model for the
// callers of all processes. Redis decides: see lua/report_call.lua.
package breaker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/lua"
)

const (
	// successEvery is the interval at which a process reports successes of a model that it did not see fail: they end the
	// failures that others have counted. Begun answers have an interval of the same length: they end a probe of others.
	successEvery = time.Second
	// reportTimeout bounds a report, for which the next call waits.
	reportTimeout = time.Second
)

// Breaker reports the calls of one process. It is safe for concurrent use.
type Breaker struct {
	scripts *lua.Scripts
	models  sync.Map // *model by name
	logger  *slog.Logger
	began   time.Time
}

// model is what this process has reported about a model.
type model struct {
	failing atomic.Bool  // its last report was not a success
	success atomic.Int64 // time of the last reported success since began, 0 for none
	begun   atomic.Int64 // as success, of an answer that begins
}

// New returns the breaker of a process.
func New(scripts *lua.Scripts, logger *slog.Logger) *Breaker {
	return &Breaker{scripts: scripts, logger: logger, began: time.Now()}
}

// Begin begins the metrics of models that this process may call, so that their first pause is seen as a change.
func (b *Breaker) Begin(models []string) {
	for _, name := range models {
		b.of(name)
	}
}

// of returns what this process has reported about a model.
func (b *Breaker) of(name string) *model {
	if m, ok := b.models.Load(name); ok {
		return m.(*model) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	m, known := b.models.LoadOrStore(name, &model{})
	for _, kind := range []string{metrics.PauseRequested, metrics.PauseFailures} {
		if !known {
			metrics.Begin(metrics.ModelPauses, metrics.With(metrics.Model.String(name), metrics.Kind.String(kind)))
		}
	}
	return m.(*model) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// Begun reports that the answer to a task's call of a model begins to arrive. If the model is probed, the others need not wait for
// the end of the answer.
func (b *Breaker) Begun(ctx context.Context, name string, task berth.TaskRef) {
	if m := b.of(name); b.elapsed(&m.begun, false) {
		b.send(ctx, m, lua.CallReport{Model: name, Task: task.String(), Outcome: lua.CallBegun})
	}
}

// Report reports a task's call of a model with its error, nil for a success. It is called before the slot is released, so that the
// release grants what the report permits. Errors that show nothing about the provider are ignored, such as a cancelled call's.
func (b *Breaker) Report(ctx context.Context, name string, task berth.TaskRef, called error) {
	m := b.of(name)
	report, ok := reportOf(name, called)
	if !ok || !b.due(m, report) {
		return
	}
	report.Task = task.String()
	b.send(ctx, m, report)
}

func (b *Breaker) send(ctx context.Context, m *model, report lua.CallReport) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	code, left, err := b.scripts.ReportCall(ctx, report)
	if err != nil {
		m.failing.Store(true) // or a success could be lost
		b.logger.WarnContext(ctx, "outcome of a model call not reported", "model", report.Model, "outcome", report.Outcome, "error", err)
		return
	}
	if report.Outcome != lua.CallBegun {
		m.failing.Store(report.Outcome == lua.CallFailed)
	}
	switch code {
	case lua.CallPaused, lua.BreakerOpened:
		kind := metrics.PauseRequested
		if code == lua.BreakerOpened {
			kind = metrics.PauseFailures
		}
		metrics.ModelPauses.Add(ctx, 1, metrics.With(metrics.Model.String(report.Model), metrics.Kind.String(kind)))
		b.logger.WarnContext(ctx, "model paused", "model", report.Model, "for", left, "kind", kind, "reason", report.Reason)
	case lua.BreakerClosed:
		b.logger.InfoContext(ctx, "model resumed: the probe is answered", "model", report.Model)
	}
}

// due reports whether a report is sent: every failure, and the successes that may change something.
func (b *Breaker) due(m *model, r lua.CallReport) bool {
	return r.Outcome != lua.CallOK || b.elapsed(&m.success, m.failing.Load())
}

// elapsed reports whether the time since a report is long enough for the next one, or always if now is set, and stores its time.
func (b *Breaker) elapsed(last *atomic.Int64, now bool) bool {
	at, before := int64(time.Since(b.began)), last.Load()
	if !now && before > 0 && at-before < int64(successEvery) {
		return false
	}
	last.Store(at)
	return true
}

// ErrNoAnswer is the error of a call that ended by its own timeout without any answer.
var ErrNoAnswer = errors.New("the model did not answer in time")

// reportOf returns what a call shows about the provider; ok is false if nothing.
func reportOf(model string, called error) (r lua.CallReport, ok bool) {
	r = lua.CallReport{Model: model, Outcome: lua.CallOK}
	var call *llm.CallError
	switch {
	case called == nil:
		return r, true
	case errors.Is(called, ErrNoAnswer):
		r.Outcome, r.Reason = lua.CallFailed, ErrNoAnswer.Error()
		return r, true
	case !errors.As(called, &call):
		return r, false
	case call.Unusable:
		return r, true // it answered
	case !call.Retryable:
		return r, false
	}
	r.Outcome, r.RetryAfter, r.Reason = lua.CallFailed, call.RetryAfter, call.Message
	if call.Limited() && call.RetryAfter > 0 {
		r.Outcome = lua.CallLimited
	}
	return r, true
}
