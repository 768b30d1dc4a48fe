package telemetry

import (
	"context"
	"log/slog"

	sdklog "go.temporal.io/sdk/log"
)

// Temporal is the logger of a Temporal client. What the SDK says of its own goings-on is for debugging, and an activity
// that returned an error, for it ended, was cancelled or will be tried again, is no error of ours: whoever asked for it
// tells what it means.
func Temporal(logger *slog.Logger) sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(quieter{logger.With("part", "temporal").Handler()}))
}

// quieter lowers what the SDK tells.
type quieter struct{ slog.Handler }

func (q quieter) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, lowered(level, ""))
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowered(r.Level, r.Message)
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}

func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }

func lowered(level slog.Level, message string) slog.Level {
	switch {
	case message == "Activity error.":
		return slog.LevelDebug
	case level == slog.LevelInfo:
		return slog.LevelDebug
	default:
		return level
	}
}
