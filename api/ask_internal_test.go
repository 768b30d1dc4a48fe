package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
)

// What a workflow refused is said once, and is no fault of ours unless something broke.
func TestRefusalsInTheLog(t *testing.T) {
	t.Parallel()
	refused := func(code berth.Code, message string, cause error) error {
		return asked(fmt.Errorf("update: %w", temporal.NewApplicationErrorWithOptions(message, string(code), temporal.ApplicationErrorOptions{
			NonRetryable: true, Cause: cause, Details: []any{berth.Refusal{SubmissionID: "s"}},
		})), "away")
	}
	for name, c := range map[string]struct {
		err   error
		said  string
		level slog.Level
	}{
		"a grace":        {refused(berth.CodeUnavailable, "Redis may have lost data", nil), "unavailable: Redis may have lost data", slog.LevelDebug},
		"our own":        {&RetryError{Err: berth.Errorf(berth.CodeUnavailable, "Redis lost data"), After: time.Second}, "unavailable: Redis lost data", slog.LevelDebug},
		"Redis away":     {refused(berth.CodeUnavailable, "the fleet cannot be reached", errors.New("EOF")), "unavailable: the fleet cannot be reached: EOF", slog.LevelWarn},
		"Temporal away":  {asked(errors.New("refused"), "the turn cannot be asked"), "unavailable: the turn cannot be asked: refused", slog.LevelWarn},
		"a full fleet":   {refused(berth.CodeNodeFull, "every node is full", nil), "every node is full", slog.LevelDebug},
		"another's turn": {refused(berth.CodeNotFound, "there is no such turn", nil), "not_found: there is no such turn", slog.LevelError},
		"what we do not know": {
			refused("surprise", "what now", nil), "internal: what now: update: what now (type: surprise, retryable: false)", slog.LevelError,
		},
		"a client that left": {fmt.Errorf("read: %w", context.Canceled), "read: context canceled", slog.LevelDebug},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.said, c.err.Error())
			require.Equal(t, c.level, levelOf(describe(c.err).Code, c.err))
		})
	}
}
