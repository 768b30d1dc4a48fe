package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestLevelOf_DeliberateRefusal_IsDebug(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		level slog.Level
	}{
		"grace":                {&berth.Refusal{Code: berth.CodeUnavailable, RetryAfter: time.Second}, slog.LevelDebug},
		"decided here":         {&RetryError{Err: berth.Errorf(berth.CodeUnavailable, "Redis lost data"), After: time.Second}, slog.LevelDebug},
		"dependency failed":    {berth.Errorf(berth.CodeUnavailable, "Redis is unavailable").With(errors.New("EOF")), slog.LevelWarn},
		"full":                 {&berth.Refusal{Code: berth.CodeNodeFull}, slog.LevelDebug},
		"invalid request":      {berth.Invalid("id", "must be short"), slog.LevelDebug},
		"internal":             {berth.Errorf(berth.CodeInternal, "what now"), slog.LevelError},
		"any other error":      {errors.New("boom"), slog.LevelError},
		"client disconnected":  {fmt.Errorf("read: %w", context.Canceled), slog.LevelDebug},
		"wrapped node failure": {fmt.Errorf("run: %w", berth.Errorf(berth.CodeNodeFailed, "all failed")), slog.LevelDebug},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.level, levelOf(describe(c.err).Code, c.err))
		})
	}
}
