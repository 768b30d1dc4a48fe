package workers

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/activities"
	"berth/internal/health"
	"berth/workflows"
)

// availability ends the activities of a worker as soon as something that they need is unavailable. A workflow task that waits
// for a local activity then completes before the worker stops; otherwise it would be repeated elsewhere only after its timeout.
type availability struct {
	interceptor.WorkerInterceptorBase
	available context.Context
	stopping  <-chan struct{} // closed when the process stops
	opts      Options
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (a *availability) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &guarded{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, availability: a}
}

// guarded is one activity.
type guarded struct {
	interceptor.ActivityInboundInterceptorBase
	*availability
}

// Init implements interceptor.ActivityInboundInterceptor.
func (g *guarded) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	return g.Next.Init(&stopSignal{ActivityOutboundInterceptorBase: interceptor.ActivityOutboundInterceptorBase{Next: outbound}, stopping: g.stopping})
}

// stopSignal makes activities stop with the process, and not with their worker.
type stopSignal struct {
	interceptor.ActivityOutboundInterceptorBase
	stopping <-chan struct{}
}

// GetWorkerStopChannel implements interceptor.ActivityOutboundInterceptor.
func (s *stopSignal) GetWorkerStopChannel(context.Context) <-chan struct{} { return s.stopping }

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (g *guarded) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	if err := g.lost(); err != nil && info.ActivityType.Name != workflows.RunStepActivity {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.available, func() { g.end(info, cancel) })()
	if info.IsLocalActivity {
		return g.local(ctx, in)
	}
	out, err := g.Next.ExecuteActivity(ctx, in)
	if lost := g.lost(); lost != nil && err != nil && info.ActivityType.Name != workflows.RunStepActivity {
		err = lost
	}
	return out, err
}

// end cancels an activity that lost something that it needs. A model call needs Redis for its slot and its readers. Without the
// database it gets the drain time: its answer is kept in Redis, where another worker finds it. Without Temporal it continues,
// because its result is stored without it.
func (g *guarded) end(info activity.Info, cancel context.CancelCauseFunc) {
	u, ok := errors.AsType[*health.UnavailableError](context.Cause(g.available))
	switch {
	case !ok: // the process stops
	case info.ActivityType.Name != workflows.RunStepActivity:
		cancel(u)
	case u.Dependency == health.Redis:
		cancel(activities.ErrDisconnected)
	case u.Dependency == health.Database:
		time.AfterFunc(g.opts.Drain, func() {
			if len(g.opts.Gate.Missing(health.Database)) > 0 {
				cancel(activities.ErrDisconnected)
			}
		})
	}
}

// lost returns an error if something that the activity needs is unavailable. When the process stops, nothing is.
func (g *guarded) lost() error {
	u, ok := errors.AsType[*health.UnavailableError](context.Cause(g.available))
	if !ok {
		return nil
	}
	return temporal.NewApplicationError(u.Error()+" to this worker", string(berth.CodeUnavailable))
}

// local runs a local activity and returns when it does, or as soon as something that it needs is unavailable: a call that waits
// for a reply of Redis does not end with its context.
func (g *guarded) local(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	type outcome struct {
		out      any
		err      error
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover()
			done <- o
		}()
		o.out, o.err = g.Next.ExecuteActivity(ctx, in)
	}()
	var o outcome
	select {
	case o = <-done:
	case <-g.available.Done():
		if lost := g.lost(); lost != nil {
			return nil, lost
		}
		o = <-done // the process stops
	}
	if o.panicked != nil {
		panic(o.panicked) // the SDK reports it
	}
	return o.out, o.err
}
