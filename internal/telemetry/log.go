// Package telemetry builds the loggers of berth's processes.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// Logger returns a logger that writes records of at least the named level to w, as JSON if format is "json" and as text
// otherwise.
func Logger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log level %q: %w", level, err)
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}
