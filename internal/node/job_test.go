package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
)

// does is a driver that calls a function of the test.
type does func(ctx context.Context, in berth.JobInput) (string, error)

func (d does) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	text, err := d(ctx, in)
	return berth.JobOutput{Text: text}, err
}

func (d does) Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	text, err := d(ctx, berth.JobInput{Text: in.Executor})
	return berth.ExecuteOutput{Output: []byte(`"` + text + `"`)}, err
}

// environment runs activities like a worker.
func environment(t *testing.T, slots int, d does) (*testsuite.TestActivityEnvironment, *jobs, context.CancelCauseFunc) {
	t.Helper()
	hard, cut := context.WithCancelCause(context.Background())
	t.Cleanup(func() { cut(nil) })
	j := newJobs(NewGate(hard, slots, slog.New(slog.DiscardHandler)), Options{Driver: d})
	return environmentOf(j), j, cut
}

// environmentOf returns an environment that runs one activity at a time.
func environmentOf(j *jobs) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.DiscardHandler))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(j.translate, activity.RegisterOptions{Name: berth.ActivityTranslate})
	env.RegisterActivityWithOptions(j.execute, activity.RegisterOptions{Name: berth.ActivityExecute})
	return env
}

func TestJob_EachFailure_IsConverted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		err     error
		kind    string
		final   bool
		message string
	}{
		"done":              {text: "hola"},
		"text at the limit": {text: strings.Repeat("x", berth.MaxTranslationBytes)},
		"text too long":     {text: strings.Repeat("x", berth.MaxTranslationBytes+1), kind: "too_large", final: true, message: "the output of 262145 bytes exceeds the limit of 262144 bytes"},
		"an invalid input":  {err: berth.Invalid("text", "is not text"), kind: "invalid", final: true, message: "is not text"},
		"a failure":         {err: berth.Errorf(berth.CodeNodeFailed, "out of words").With(errors.New("secret")), kind: "node_failed", message: "out of words"},
		"a model's failure": {err: berth.Errorf(berth.CodeProviderUnavailable, "no model"), kind: "node_failed", message: "no model"},
		"any other error":   {err: errors.New("boom"), kind: "node_failed", message: "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, j, _ := environment(t, 1, func(context.Context, berth.JobInput) (string, error) { return c.text, c.err })
			value, err := env.ExecuteActivity(berth.ActivityTranslate, segment)
			require.Zero(t, j.gate.running.Load())
			if c.kind == "" {
				require.NoError(t, err)
				var out berth.JobOutput
				require.NoError(t, value.Get(&out))
				require.Equal(t, c.text, out.Text)
				return
			}
			var failed *temporal.ApplicationError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.kind, failed.Type())
			require.Equal(t, c.final, failed.NonRetryable())
			require.Equal(t, c.message, failed.Message())
		})
	}
}

func TestExecute_Executor_ReturnsOutputWithinTheLimit(t *testing.T) {
	t.Parallel()
	env, j, _ := environment(t, 1, func(_ context.Context, in berth.JobInput) (string, error) {
		if in.Text == "big" {
			return strings.Repeat("x", berth.MaxExecutionBytes), nil
		}
		return in.Text, nil
	})
	value, err := env.ExecuteActivity(berth.ActivityExecute, berth.ExecuteInput{Executor: "report"})
	require.NoError(t, err)
	var out berth.ExecuteOutput
	require.NoError(t, value.Get(&out))
	require.JSONEq(t, `"report"`, string(out.Output))
	_, err = env.ExecuteActivity(berth.ActivityExecute, berth.ExecuteInput{Executor: "big"})
	require.ErrorContains(t, err, "limit of 262144")
	require.Zero(t, j.executing.Load())
}

func TestJob_OutlastsDrain_FailsRetryably(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	env, _, cut := environment(t, 1, func(ctx context.Context, _ berth.JobInput) (string, error) {
		close(began)
		<-ctx.Done()
		return "", ctx.Err()
	})
	go func() {
		<-began
		cut(errDrained)
	}()
	_, err := env.ExecuteActivity(berth.ActivityTranslate, segment)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "node_failed", failed.Type())
	require.False(t, failed.NonRetryable())
	require.Equal(t, errDrained.Error(), failed.Message())
}

func TestJob_Running_SendsHeartbeats(t *testing.T) {
	t.Parallel()
	received := make(chan struct{}, 10)
	env, _, _ := environment(t, 1, func(ctx context.Context, _ berth.JobInput) (string, error) {
		select {
		case <-received:
			return "received", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { received <- struct{}{} })
	value, err := env.ExecuteActivity(berth.ActivityTranslate, segment)
	require.NoError(t, err)
	var out berth.JobOutput
	require.NoError(t, value.Get(&out))
	require.Equal(t, "received", out.Text)
}

func TestGate_MoreJobsThanSlots_Wait(t *testing.T) {
	t.Parallel()
	const slots, all = 3, 30
	var now, most atomic.Int64
	release := make(chan struct{})
	_, j, _ := environment(t, slots, func(context.Context, berth.JobInput) (string, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release
		return "", nil
	})
	errs := make(chan error, all)
	for range all {
		env := environmentOf(j)
		go func() {
			_, err := env.ExecuteActivity(berth.ActivityTranslate, segment)
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return now.Load() == slots }, 20*time.Second, time.Millisecond)
	require.Equal(t, int64(slots), j.gate.running.Load())
	close(release)
	for range all {
		require.NoError(t, <-errs)
	}
	require.Equal(t, int64(slots), most.Load())
}

func TestGate_AwaitQuiet_EndsAfterTheLastArrival(t *testing.T) {
	t.Parallel()
	env, j, _ := environment(t, 1, func(context.Context, berth.JobInput) (string, error) { return "", nil })
	_, err := env.ExecuteActivity(berth.ActivityTranslate, segment)
	require.NoError(t, err)
	begun := time.Now()
	j.gate.awaitQuiet(30 * time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 30*time.Millisecond)
}

// FA10: an activity whose heartbeats Temporal does not take continues; one that Temporal has cancelled, or does not have any more, ends. The
// reason for the workflow is never that of a Go context.
func TestJob_ActivityEnds_ClassifiedByCause(t *testing.T) { // A11, P2
	t.Parallel()
	for name, c := range map[string]struct {
		cause     error
		goesOn    bool
		interrupt error // of the agent
		kind      string
		message   string
	}{
		"Temporal is unavailable":       {cause: serviceerror.NewUnavailable("connection refused"), goesOn: true},
		"Temporal is slow":              {cause: serviceerror.NewDeadlineExceeded("context deadline exceeded"), goesOn: true},
		"Temporal is overloaded":        {cause: serviceerror.NewResourceExhausted(0, "limit"), goesOn: true},
		"a call has timed out":          {cause: context.DeadlineExceeded, goesOn: true},
		"the workflow has cancelled it": {cause: temporal.NewCanceledError()},
		"it has timed out there":        {cause: serviceerror.NewNotFound("activity not found")},
		"the namespace is gone":         {cause: serviceerror.NewNamespaceNotFound("default")},
		"the agent stops":               {interrupt: errors.New("stopped"), kind: "interrupted", message: "the node stopped before the job finished"},
		"the agent has drained":         {interrupt: errDrained, kind: "node_failed", message: "the node stopped before the job finished"},
		"the agent stops in an outage":  {cause: serviceerror.NewUnavailable("x"), interrupt: errDrained, kind: "node_failed", message: "the node stopped before the job finished"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called, end := context.WithCancelCause(context.Background())
			defer end(nil)
			ctx, cancel := independent(called)
			defer cancel(nil)
			if c.cause != nil {
				end(c.cause)
			}
			if c.goesOn {
				require.False(t, ends(c.cause))
				require.NoError(t, ctx.Err())
				return
			}
			if c.interrupt != nil {
				cancel(c.interrupt)
			}
			<-ctx.Done()
			err := outcome(ctx, called, fmt.Errorf("run command: %w", ctx.Err()))
			if c.kind == "" {
				require.ErrorIs(t, err, context.Canceled, "Temporal ignores it, or records the cancellation")
				return
			}
			var failed *temporal.ApplicationError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, c.kind, failed.Type())
			require.Equal(t, c.message, failed.Message())
		})
	}
}

// An activity ends at its deadline, also in an outage.
func TestJob_DeadlineInOutage_Ends(t *testing.T) { // A11
	t.Parallel()
	limited, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	called, end := context.WithCancelCause(limited)
	end(serviceerror.NewUnavailable("connection refused"))
	ctx, cancel := independent(called)
	defer cancel(nil)
	<-ctx.Done()
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.ErrorIs(t, outcome(ctx, called, ctx.Err()), context.DeadlineExceeded)
}
