// Package breaker reports the outcomes of model calls, so that a provider that fails or limits its calls pauses a model for the
// callers of all processes. Redis decides: see lua/report_call.lua.
package breaker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/lua"
)

const (
	// successEvery is the interval at which a process reports successes of a model that it did not see fail: they end the
	// failures that others have counted.
	successEvery = time.Second
	// reportTimeout bounds a report, for which the next call waits.
	reportTimeout = time.Second
)

// Breaker reports the calls of one process. It is safe for concurrent use.
type Breaker struct {
	scripts *lua.Scripts
	models  map[string]*model // never changes
	logger  *slog.Logger
	began   time.Time
}

// model is what this process has reported about a model.
type model struct {
	failing atomic.Bool  // its last report was not a success
	success atomic.Int64 // time of the last reported success since began, 0 for none
}

// New returns the breaker of the given models.
func New(scripts *lua.Scripts, models []llm.Model, logger *slog.Logger) *Breaker {
	b := &Breaker{scripts: scripts, models: map[string]*model{}, logger: logger, began: time.Now()}
	for _, m := range models {
		b.models[m.Name] = &model{}
		for _, kind := range []string{metrics.PauseRequested, metrics.PauseFailures} {
			metrics.Begin(metrics.ModelPauses, metrics.With(metrics.Model.String(m.Name), metrics.Kind.String(kind)))
		}
	}
	return b
}

// Report reports a call of a model with its error, nil for a success. It is called before the slot is released, so that the
// release grants what the report permits. Errors that show nothing about the provider are ignored, such as a cancelled call's.
func (b *Breaker) Report(ctx context.Context, name string, called error) {
	m := b.models[name]
	report, ok := reportOf(name, called)
	if m == nil || !ok || !b.due(m, report) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	code, left, err := b.scripts.ReportCall(ctx, report)
	if err != nil {
		m.failing.Store(true) // or a success could be lost
		b.logger.WarnContext(ctx, "outcome of a model call not reported", "model", name, "outcome", report.Outcome, "error", err)
		return
	}
	m.failing.Store(report.Outcome == lua.CallFailed)
	switch code {
	case lua.CallPaused, lua.BreakerOpened:
		kind := metrics.PauseRequested
		if code == lua.BreakerOpened {
			kind = metrics.PauseFailures
		}
		metrics.ModelPauses.Add(ctx, 1, metrics.With(metrics.Model.String(name), metrics.Kind.String(kind)))
		b.logger.WarnContext(ctx, "model paused", "model", name, "for", left, "kind", kind, "reason", report.Reason)
	case lua.BreakerClosed:
		b.logger.InfoContext(ctx, "model resumed: a probe succeeded", "model", name)
	}
}

// due reports whether a report is sent: every failure, and the successes that may change something.
func (b *Breaker) due(m *model, r lua.CallReport) bool {
	if r.Outcome != lua.CallOK {
		return true
	}
	now, last := int64(time.Since(b.began)), m.success.Load()
	if !m.failing.Load() && last > 0 && now-last < int64(successEvery) {
		return false
	}
	m.success.Store(now)
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
