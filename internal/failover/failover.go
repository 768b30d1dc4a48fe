// Package failover keeps which upstreams of a model have failed a call, and decides what follows: the call is made on another one, or it fails.
package failover

import (
	"cmp"
	"context"
	"slices"
	"time"

	"berth/internal/llm"
	"berth/lua"
)

// Call is a call that several upstreams of a model may serve. One goroutine uses it.
type Call struct {
	Model string
	// Excluded are the upstreams that the call does not use, or not again.
	Excluded []string
	faults   []fault
}

// fault is a failed call of an upstream.
type fault struct {
	*llm.CallError
	at time.Time
}

// left returns the rest of the pause that the provider asked for.
func (f fault) left(now time.Time) time.Duration { return max(0, f.RetryAfter-now.Sub(f.at)) }

// Failed records that an upstream failed the call, which does not use it again. If its context is too small, it uses no smaller one either.
func (c *Call) Failed(models *llm.Catalog, upstream string, failed *llm.CallError) {
	c.faults = append(c.faults, fault{failed, time.Now()})
	c.Excluded = append(c.Excluded, upstream)
	if failed.Cause == llm.CauseContext {
		c.Excluded = append(c.Excluded, models.TooSmall(c.Model, upstream)...)
	}
}

// Untried reports whether the model has upstreams that the call may use.
func (c *Call) Untried(models *llm.Catalog) bool {
	m, _ := models.Model(c.Model)
	return slices.ContainsFunc(m.Upstreams, func(u llm.Upstream) bool { return !c.Excludes(u.Name) })
}

// Excludes reports whether the call does not use an upstream.
func (c *Call) Excludes(upstream string) bool { return slices.Contains(c.Excluded, upstream) }

// Decisive returns the fault that decides what follows when no upstream has served the call: the last one, unless another one may have passed
// later. Of those it is the one whose pause ends first.
func (c *Call) Decisive() *llm.CallError {
	last := *c.faults[len(c.faults)-1].CallError
	passing := slices.DeleteFunc(slices.Clone(c.faults), func(f fault) bool { return !f.Retryable })
	if len(passing) == 0 {
		return &last
	}
	slices.Reverse(passing)
	now := time.Now()
	first := slices.MinFunc(passing, func(a, b fault) int { return cmp.Compare(a.left(now), b.left(now)) })
	out := *first.CallError
	out.RetryAfter = first.left(now)
	return &out
}

// Paused returns the fault for a call whose other upstreams are all paused: it may be repeated, unless each of these is paused until an operator
// acts. scripts read which.
func (c *Call) Paused(ctx context.Context, scripts *lua.Scripts, limits lua.ModelLimits) *llm.CallError {
	out := *c.Decisive()
	out.Retryable = out.Retryable || !eachUpstream(ctx, scripts, limits, c.Model, c.Excluded, func(u lua.UpstreamUse) bool { return u.Broken })
	return &out
}

// patience is how long a forwarded call that has failed waits for an upstream that is paused after failures. The pause may be the call's own work, and its
// client gets the failure rather than silence.
const patience = 10 * time.Second

// AllPaused reports whether a forwarded call that has failed should not be made again: for longer than a client waits, each upstream that it may use is paused,
// and not for a time that its provider has asked for.
func AllPaused(ctx context.Context, scripts *lua.Scripts, limits lua.ModelLimits, failed *llm.CallError, model string, excluded []string) bool {
	return failed.RetryAfter == 0 && failed.Cause != llm.CauseLimit &&
		eachUpstream(ctx, scripts, limits, model, excluded, func(u lua.UpstreamUse) bool { return u.Stopped > patience })
}

// eachUpstream reports whether a condition is known to hold for each upstream of a model that a call may still use.
func eachUpstream(
	ctx context.Context, scripts *lua.Scripts, limits lua.ModelLimits, model string, excluded []string, holds func(lua.UpstreamUse) bool,
) bool {
	room, err := scripts.ReadRoom(ctx, model, limits, 0)
	return err == nil && !slices.ContainsFunc(room.Upstreams, func(u lua.UpstreamUse) bool { return !slices.Contains(excluded, u.Name) && !holds(u) })
}
