package telemetry

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/go-logr/logr"
)

// otelLog logs what OpenTelemetry reports about its variables, without their values: an endpoint may have a password, and headers are
// credentials. It is a logr.LogSink.
type otelLog struct{ *slog.Logger }

// Init is part of logr.LogSink.
func (otelLog) Init(logr.RuntimeInfo) {}

// Enabled is part of logr.LogSink: errors only, which are always logged.
func (otelLog) Enabled(int) bool { return false }

// Info is part of logr.LogSink.
func (otelLog) Info(int, string, ...any) {}

// Error is part of logr.LogSink. The error may have a value as well, unless it is one of a file.
func (l otelLog) Error(err error, problem string, _ ...any) {
	attrs := []slog.Attr{slog.String("problem", problem)}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		attrs = append(attrs, slog.Any("error", file))
	}
	l.LogAttrs(context.Background(), slog.LevelWarn, "telemetry not configured as set; check the OTEL_ variables", attrs...)
}

// WithValues is part of logr.LogSink.
func (l otelLog) WithValues(...any) logr.LogSink { return l }

// WithName is part of logr.LogSink.
func (l otelLog) WithName(string) logr.LogSink { return l }
