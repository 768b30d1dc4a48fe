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
	"go.temporal.io/sdk/temporal"

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
