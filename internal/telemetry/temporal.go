package telemetry

import (
	"context"
	"log/slog"
	"slices"

	sdklog "go.temporal.io/sdk/log"

	"berth/internal/health"
)

// Temporal returns the logger for a Temporal client. It lowers the SDK's info messages to debug level, and also the
// message for an activity that returned an error: activities fail as part of normal operation (cancelled, retried), and
// the workflow that started the activity handles the error.
func Temporal(logger *slog.Logger) sdklog.Logger {
	return sdklog.NewStructuredLogger(slog.New(sdkHandler{logger.With("part", "temporal").Handler()}))
}

// sdkHandler lowers the levels of the SDK's messages.
type sdkHandler struct{ slog.Handler }

func (h sdkHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, lowered(level, ""))
}

func (h sdkHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = lowered(r.Level, r.Message)
	if slices.Contains(consequences, r.Message) {
		r.AddAttrs(slog.String("dependency", health.Temporal))
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h sdkHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sdkHandler{h.Handler.WithAttrs(attrs)}
}

func (h sdkHandler) WithGroup(name string) slog.Handler { return sdkHandler{h.Handler.WithGroup(name)} }

// consequences are what the SDK logs of each worker while Temporal is unavailable.
var consequences = []string{
	"Failed to poll for task.", "ShutdownWorker rpc errored during worker shutdown.", "Failed to send heartbeat",
	"Failed polling worker command task", "RecordActivityHeartbeat with error",
}

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
