// Package breaker reports the outcomes of model calls, so that an upstream that fails or limits its calls is paused for the callers of all
// processes. Redis decides: see lua/report_call.lua.
package breaker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"berth"
	"berth/internal/llm"
	"berth/internal/metrics"
	"berth/lua"
)

const (
	// successEvery is the interval at which a process reports successes of an upstream that it did not see fail: they end the
	// failures that others have counted. Begun answers have an interval of the same length: they end a probe of others.
	successEvery = time.Second
	// reportTimeout bounds a report, for which the next call waits.
	reportTimeout = time.Second
)

// Breaker reports the calls of one process. It is safe for concurrent use.
type Breaker struct {
	scripts   *lua.Scripts
	upstreams sync.Map // *upstream by name
	logger    *slog.Logger
	began     time.Time
}

// name is that of an upstream of a model.
type name struct{ model, upstream string }

// upstream is what this process has reported about an upstream.
type upstream struct {
	failing atomic.Bool  // its last report was not a success
	success atomic.Int64 // time of the last reported success since began, 0 for none
	begun   atomic.Int64 // as success, of an answer that begins
}

// Call is a call of a model by a task.
type Call struct {
	Model    string
	Upstream llm.Upstream
	Task     berth.TaskRef
	Took     time.Duration // since it began
}

func (c Call) report(outcome lua.CallOutcome) lua.CallReport {
	return lua.CallReport{Model: c.Model, Upstream: c.Upstream.Name, Task: c.Task.String(), Outcome: outcome, Took: c.Took}
}

// New returns the breaker of a process.
func New(scripts *lua.Scripts, logger *slog.Logger) *Breaker {
	return &Breaker{scripts: scripts, logger: logger, began: time.Now()}
}

// Begin begins the metrics of models that this process may call, so that their first pause is seen as a change.
func (b *Breaker) Begin(models []llm.Model) {
	for _, m := range models {
		for _, u := range m.Upstreams {
			b.of(Call{Model: m.Name, Upstream: u})
		}
	}
}

// of returns the upstream of a call.
func (b *Breaker) of(c Call) *upstream {
	at := name{c.Model, c.Upstream.Name}
	if u, ok := b.upstreams.Load(at); ok {
		return u.(*upstream) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	u, known := b.upstreams.LoadOrStore(at, &upstream{})
	for _, kind := range []string{metrics.PauseRequested, metrics.PauseFailures} {
		if !known {
			metrics.Begin(metrics.ModelPauses, metrics.With(at.labels(kind)...))
		}
	}
	return u.(*upstream) //nolint:errcheck,forcetypeassert // as before
}

func (n name) labels(kind string) []attribute.KeyValue {
	return []attribute.KeyValue{metrics.Model.String(n.model), metrics.Upstream.String(n.upstream), metrics.Kind.String(kind)}
}

// Begun reports that the answer to a call begins to arrive. If the upstream is probed, the others need not wait for the end of the answer.
func (b *Breaker) Begun(ctx context.Context, c Call) {
	if u := b.of(c); b.elapsed(&u.begun, false) {
		b.send(ctx, u, c.report(lua.CallBegun))
	}
}

// Report reports a call with its error, nil for a success. It is called before the slot is released, so that the release grants what the
// report permits. Errors that show nothing about the upstream are ignored, such as a cancelled call's.
func (b *Breaker) Report(ctx context.Context, c Call, called error) {
	report, ok := reportOf(c, called)
	if u := b.of(c); ok && b.due(u, c, report.Outcome) {
		b.send(ctx, u, report)
	}
}

func (b *Breaker) send(ctx context.Context, u *upstream, report lua.CallReport) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	code, left, err := b.scripts.ReportCall(ctx, report)
	if err != nil {
		u.failing.Store(true) // or a success could be lost
		b.logger.WarnContext(ctx, "outcome of a model call not reported", "model", report.Model, "upstream", report.Upstream,
			"outcome", report.Outcome, "error", err)
		return
	}
	if report.Outcome != lua.CallBegun {
		u.failing.Store(report.Outcome != lua.CallOK)
	}
	switch code {
	case lua.CallPaused, lua.BreakerOpened:
		kind := metrics.PauseRequested
		if code == lua.BreakerOpened {
			kind = metrics.PauseFailures
		}
		metrics.ModelPauses.Add(ctx, 1, metrics.With(name{report.Model, report.Upstream}.labels(kind)...))
		b.logger.WarnContext(ctx, "upstream paused", "model", report.Model, "upstream", report.Upstream, "for", left, "kind", kind, "reason", report.Reason)
	case lua.BreakerClosed:
		b.logger.InfoContext(ctx, "upstream resumed: the probe is answered", "model", report.Model, "upstream", report.Upstream)
	}
}

// due reports whether a report is sent: every failure, and the successes that may change something. Where the cap is learned, each one does.
func (b *Breaker) due(u *upstream, c Call, outcome lua.CallOutcome) bool {
	return outcome != lua.CallOK || b.elapsed(&u.success, c.Upstream.Auto || u.failing.Load())
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

// reportOf returns what a call shows about its upstream; ok is false if nothing.
func reportOf(c Call, called error) (r lua.CallReport, ok bool) {
	r = c.report(lua.CallOK)
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
	}
	r.RetryAfter, r.Reason = call.RetryAfter, call.Message
	switch {
	case call.Cause == llm.CauseLimit, call.Cause == llm.CauseOverload:
		r.Outcome = lua.CallLimited
	case call.Scope == llm.ScopeOperator:
		r.Outcome = lua.CallBroken
	case call.Retryable:
		r.Outcome = lua.CallFailed
	default:
		return r, false
	}
	return r, true
}
