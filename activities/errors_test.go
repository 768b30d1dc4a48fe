package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/internal/lease"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/stream"
)

func TestTranslate_Failure_BecomesApplicationError(t *testing.T) { // T21
	t.Parallel()
	over, end := context.WithCancelCause(t.Context())
	end(errEnded)
	stopping, stop := context.WithCancelCause(t.Context())
	stop(errStopping)
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		code  berth.Code
		final bool
		after time.Duration
	}{
		"a key error": {err: &llm.CallError{Code: berth.CodeProviderKey, Message: "no key"}, code: berth.CodeProviderKey, final: true},
		"a provider that asks for time": {
			err:  &llm.CallError{Code: berth.CodeProviderUnavailable, Retryable: true, RetryAfter: 7 * time.Second},
			code: berth.CodeProviderUnavailable, after: 7 * time.Second,
		},
		"bad input":            {err: fmt.Errorf("wrapped: %w", berth.Invalid("x", "is wrong")), code: berth.CodeInvalid, final: true},
		"the database away":    {err: berth.Errorf(berth.CodeUnavailable, "away"), code: berth.CodeUnavailable},
		"an older attempt":     {err: berth.Errorf(berth.CodeConflict, "stale").With(ledger.ErrStale), code: berth.CodeConflict, final: true},
		"fenced by the stream": {err: fmt.Errorf("write: %w", stream.ErrFenced), code: berth.CodeConflict, final: true},
		"the stream has ended": {err: stream.ErrEnded, code: berth.CodeCancelled, final: true},
		"a lost slot":          {err: fmt.Errorf("call: %w", lease.ErrLost), code: berth.CodeUnavailable},
		"a slot held too long": {err: fmt.Errorf("call: %w", lease.ErrHeldTooLong), code: berth.CodeDeadlineExceeded, final: true},
		"the task has ended":   {ctx: over, err: context.Canceled, code: berth.CodeCancelled, final: true},
		"this worker is going": {ctx: stopping, err: context.Canceled, code: berth.CodeUnavailable, after: time.Millisecond},
		"an unknown error":     {err: errors.New("surprise"), code: berth.CodeInternal},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		var app *temporal.ApplicationError
		require.ErrorAs(t, translate(ctx, c.err), &app, name)
		require.Equal(t, string(c.code), app.Type(), name)
		require.Equal(t, c.final, app.NonRetryable(), name)
		require.Equal(t, c.after, app.NextRetryDelay(), name)
	}
	require.NoError(t, translate(t.Context(), nil))
}

// The delay after a fault is what the provider requested, however often it did, or else a backoff with jitter.
func TestStepFault_Retryable_DelayOfProviderOrBackoff(t *testing.T) { // B2, T21
	t.Parallel()
	run := func(err error, bought int) *temporal.ApplicationError {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(func(ctx context.Context) error { return stepFault(ctx, err, bought, 3) }, activity.RegisterOptions{Name: "fault"})
		_, failed := env.ExecuteActivity("fault")
		var app *temporal.ApplicationError
		require.ErrorAs(t, failed, &app)
		return app
	}
	for bought := range 3 { // an answer that could not be used does not hide what the provider asks for
		busy := &llm.CallError{Code: berth.CodeProviderUnavailable, Retryable: true, RetryAfter: 7 * time.Second}
		require.Equal(t, 7*time.Second, run(busy, bought).NextRetryDelay())
		require.False(t, run(busy, bought).NonRetryable())
		busy.RetryAfter = time.Millisecond
		require.Equal(t, firstRetryDelay, run(busy, bought).NextRetryDelay())
		busy.RetryAfter = 0
		require.GreaterOrEqual(t, run(busy, bought).NextRetryDelay(), firstRetryDelay)
		require.Less(t, run(busy, bought).NextRetryDelay(), 2*firstRetryDelay)
	}

	for attempt := 1; attempt < 100; attempt++ {
		low, high := retryDelay(attempt, 0), retryDelay(attempt, 0.999)
		require.LessOrEqual(t, low, maxRetryDelay)
		require.GreaterOrEqual(t, low, retryDelay(attempt-1, 0))
		require.Greater(t, high, low)
		require.Less(t, high, low+low/2)
	}
	require.Equal(t, maxRetryDelay, retryDelay(50, 0))

	// A step that has bought its maximum of answers fails, whatever the cause of its last call.
	empty := &llm.CallError{Code: berth.CodeInvalidOutput, Retryable: true, Unusable: true, Message: "empty"}
	require.False(t, run(empty, 2).NonRetryable())
	require.True(t, run(empty, 3).NonRetryable())
	require.Equal(t, "empty; berth tried three times", run(empty, 3).Message())
	cut := &llm.CallError{Code: berth.CodeProviderUnavailable, Retryable: true, Message: "cut"}
	require.True(t, run(cut, 4).NonRetryable())
	require.Equal(t, string(berth.CodeProviderUnavailable), run(cut, 4).Type())
	require.False(t, run(berth.Errorf(berth.CodeUnavailable, "no database"), 3).NonRetryable(), "the answer may be held")
	require.True(t, run(&llm.CallError{Code: berth.CodeProviderKey, Message: "no key"}, 1).NonRetryable(), "another call would not help")
}

func TestTranslate_LongCause_IsCut(t *testing.T) { // T26
	t.Parallel()
	long := errors.New(strings.Repeat("résumé ", 1000))
	var app *temporal.ApplicationError
	require.ErrorAs(t, translate(t.Context(), long), &app)
	require.Less(t, len(errors.Unwrap(app).Error()), 600)
	require.True(t, utf8.ValidString(errors.Unwrap(app).Error()), "protobuf carries nothing else")
	require.NotContains(t, app.Message(), "résumé", "what is shown is ours")
}

func TestWordsOfASummary(t *testing.T) { // T22
	t.Parallel()
	got := words(`{"title":"Engineer","skills":["Go","Redis"],"company":null,"n":3}`)
	for _, w := range []string{"Engineer", "Go", "Redis"} {
		require.Contains(t, got, w)
	}
	require.NotContains(t, got, "skills", "names of fields are not searched for")
	require.Equal(t, "plain text", words("plain text"))
	require.LessOrEqual(t, len(words(strings.Repeat("字", maxQuery))), maxQuery)
}

// Temporal knows the fault of the previous attempt, and states it when the deadline of the task ends this one.
func TestStepFault_DeadlineOfTask_LeftToTemporal(t *testing.T) { // B2
	t.Parallel()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	<-ctx.Done()
	require.ErrorIs(t, stepFault(ctx, berth.Errorf(berth.CodeDeadlineExceeded, "the model did not answer in time"), 1, 3), activity.ErrResultPending)
	require.NoError(t, stepFault(ctx, nil, 0, 3))
}
