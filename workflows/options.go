package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

const (
	// attemptTimeout bounds the first attempt of a local activity that calls Redis or the database a few times. Each further
	// attempt may take that much longer, up to maxAttemptTimeout, because a server may be slow and not unavailable.
	attemptTimeout    = time.Second
	maxAttemptTimeout = 5 * time.Second
	// fanOutTimeout bounds one attempt of a local activity that signals many workflows.
	fanOutTimeout = time.Minute
	// minAttemptPause and maxAttemptPause bound the pause between two attempts, which doubles. Each attempt adds six events to
	// the history, so that a week of attempts fits.
	minAttemptPause = 100 * time.Millisecond
	maxAttemptPause = 30 * time.Second
)

// untilDone runs a local activity until it succeeds, whatever is unavailable. Its only errors are an error that a retry would
// not change and the cancellation of ctx. Each attempt is an activity of its own, and the workflow sleeps in between: a worker
// that cannot reach what the activity needs stops in that time, and another one makes the next attempt. Attempts that the SDK
// repeats would keep the workflow on its worker.
func untilDone[T any](ctx workflow.Context, name string, args ...any) (result T, err error) {
	return untilDoneWithin[T](ctx, attemptTimeout, name, args...)
}

// untilDoneWithin is untilDone with another timeout of the first attempt.
func untilDoneWithin[T any](ctx workflow.Context, timeout time.Duration, name string, args ...any) (result T, err error) {
	return untilTime[T](ctx, time.Time{}, timeout, name, args...)
}

// untilTime is untilDoneWithin for an activity that is not tried again after a time, if that is set. The error is then that of
// the last attempt.
func untilTime[T any](ctx workflow.Context, end time.Time, timeout time.Duration, name string, args ...any) (result T, err error) {
	limit := max(timeout, maxAttemptTimeout)
	for attempt, pause := 1, minAttemptPause; ; attempt, pause = attempt+1, min(2*pause, maxAttemptPause) {
		result, err = local[T](once(ctx, min(time.Duration(attempt)*timeout, limit), ""), name, args...)
		app, ok := errors.AsType[*temporal.ApplicationError](err)
		if err == nil || ctx.Err() != nil || ok && app.NonRetryable() {
			return result, err
		}
		wait := pause
		if ok {
			wait = max(wait, app.NextRetryDelay())
		}
		if !end.IsZero() && workflow.Now(ctx).Add(wait).After(end) {
			return result, err
		}
		if err := workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "retry " + name}).Get(ctx, nil); err != nil {
			return result, err
		}
	}
}

// recordDecisions ends the workflow task, also where ctx is cancelled, so that what was decided in it is in the history. Until then
// only this worker knows what its local activities replied and which updates it has accepted: if it dies, the next worker decides
// again, by other replies and at another time. So this precedes what a local activity publishes for good, which then follows from the
// history: the next worker publishes the same.
func recordDecisions(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	// A timer is the cheapest command that another workflow task follows.
	_ = workflow.NewTimerWithOptions(ctx, time.Millisecond, workflow.TimerOptions{Summary: "record decisions"}).Get(ctx, nil)
}

// noResult is the result of an activity that has none.
type noResult struct{}

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
