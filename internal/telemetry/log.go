package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Names of a log record's trace and span.
const (
	traceIDKey = "trace_id"
	spanIDKey  = "span_id"
)

// Logger returns a logger that writes records of at least the named level to w, as JSON if format is "json" and as text
// otherwise. Records that are logged with a context have the ids of its trace and span.
func Logger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: %w", level, err)
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(traceHandler{slog.NewJSONHandler(w, opts)}), nil
	}
	return slog.New(traceHandler{slog.NewTextHandler(w, opts)}), nil
}

// traceHandler adds the ids of the context's span to records.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String(traceIDKey, s.TraceID().String()), slog.String(spanIDKey, s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
