package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

const (
	// noDeadline is the schedule-to-close timeout of a local activity that is retried until it succeeds. The SDK requires
	// one: without it, the timeout of one attempt bounds all attempts together.
	noDeadline = 10 * 365 * 24 * time.Hour
	// attemptTimeout bounds one attempt of a local activity that calls Redis or the database a few times.
	attemptTimeout = 5 * time.Second
	// fanOutTimeout bounds one attempt of a local activity that signals many workflows.
	fanOutTimeout = time.Minute
)

// untilDone returns a context whose local activities are retried until they succeed, whatever is unavailable.
func untilDone(ctx workflow.Context) workflow.Context { return untilDoneWithin(ctx, attemptTimeout) }

// untilDoneWithin is untilDone with another timeout of one attempt.
func untilDoneWithin(ctx workflow.Context, attempt time.Duration) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: attempt, ScheduleToCloseTimeout: noDeadline,
		RetryPolicy: backoff(100*time.Millisecond, 5*time.Second),
	})
}

// once returns a context whose local activities are attempted once.
func once(ctx workflow.Context, timeout time.Duration, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: timeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: summary,
	})
}

// local runs a local activity and returns its result.
func local[T any](ctx workflow.Context, name string, args ...any) (result T, err error) {
	err = workflow.ExecuteLocalActivity(ctx, name, args...).Get(ctx, &result)
	return result, err
}

// backoff returns a retry policy without a limit of attempts. The interval doubles with each one.
func backoff(initial, maximum time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: initial, BackoffCoefficient: 2, MaximumInterval: maximum}
}

// waitAtMost waits until done returns true, for d at most. It cancels its timer, which would otherwise wake the workflow
// later. Its only error is the context's cancellation.
func waitAtMost(ctx workflow.Context, d time.Duration, summary string, done func() bool) error {
	timed, cancel := workflow.WithCancel(ctx)
	defer cancel()
	timer := workflow.NewTimerWithOptions(timed, d, workflow.TimerOptions{Summary: summary})
	return workflow.Await(ctx, func() bool { return done() || timer.IsReady() })
}
