package temporal

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// logger writes the log of Temporal to slog.
type logger struct{ slog *slog.Logger }

func newLogger(l *slog.Logger) log.Logger { return logger{slog: l} }

func (l logger) write(level slog.Level, msg string, tags []tag.Tag) {
	ctx := context.Background()
	if !l.slog.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attrs[i] = slog.Any(t.Key(), t.Value())
	}
	l.slog.LogAttrs(ctx, level, msg, attrs...) //nolint:sloglint // the message is the server's
}

func (l logger) Debug(msg string, tags ...tag.Tag)  { l.write(slog.LevelDebug, msg, tags) }
func (l logger) Info(msg string, tags ...tag.Tag)   { l.write(slog.LevelInfo, msg, tags) }
func (l logger) Warn(msg string, tags ...tag.Tag)   { l.write(slog.LevelWarn, msg, tags) }
func (l logger) Error(msg string, tags ...tag.Tag)  { l.write(slog.LevelError, msg, tags) }
func (l logger) DPanic(msg string, tags ...tag.Tag) { l.write(slog.LevelError, msg, tags) }

func (l logger) Panic(msg string, tags ...tag.Tag) {
	l.write(slog.LevelError, msg, tags)
	panic(msg)
}

// Fatal exits the process, as the server expects. It also writes the reason to standard error, because the log is
// usually a file.
func (l logger) Fatal(msg string, tags ...tag.Tag) {
	l.write(slog.LevelError, msg, tags)
	fmt.Fprintf(os.Stderr, "temporal: %s:", msg)
	for _, t := range tags {
		fmt.Fprintf(os.Stderr, " %s=%v", t.Key(), t.Value())
	}
	fmt.Fprintln(os.Stderr)
	os.Exit(1)
}

// With returns a logger that adds tags to each line.
func (l logger) With(tags ...tag.Tag) log.Logger {
	attrs := make([]any, len(tags))
	for i, t := range tags {
		attrs[i] = slog.Any(t.Key(), t.Value())
	}
	return logger{slog: l.slog.With(attrs...)}
}
