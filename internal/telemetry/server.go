package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"berth/internal/health"
)

// Off is the address that turns the server of Serve off.
const Off = "off"

// DefaultAddr is the address of a process without a setting.
const DefaultAddr = "127.0.0.1:9464"

// Serve serves /metrics, /healthz and /readyz on addr until ctx ends. Where another process of the host has the default address, such as
// a development server, a free port replaces it. A process works without: another address that is in use is logged.
func (t *Telemetry) Serve(ctx context.Context, addr string, probe *health.Probe, logger *slog.Logger) {
	if addr != Off {
		t.serve(ctx, addr, addr == DefaultAddr, probe, logger)
	}
}

// serve is Serve on an address that a free port may replace.
func (t *Telemetry) serve(ctx context.Context, addr string, replaceable bool, probe *health.Probe, logger *slog.Logger) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if replaceable && errors.Is(err, syscall.EADDRINUSE) {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		logger.WarnContext(ctx, "metrics not served; set BERTH_METRICS_ADDR to a free address or to off", "addr", addr, "error", err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Metrics())
	mux.Handle("/", probe.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	logger.InfoContext(ctx, "serving metrics", "addr", l.Addr().String())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		logger.WarnContext(ctx, "metrics no longer served", "error", err)
	}
}
