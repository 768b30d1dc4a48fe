package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"berth/internal/health"
)

// Off is the address that turns the server of Serve off.
const Off = "off"

// Serve serves /metrics, /healthz and /readyz on addr until ctx ends. A process works without it: an address that is in use,
// perhaps by another process of berth on the same host, is logged.
func (t *Telemetry) Serve(ctx context.Context, addr string, probe *health.Probe, logger *slog.Logger) {
	if addr == Off {
		return
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		logger.WarnContext(ctx, "metrics not served; set BERTH_METRICS_ADDR to a free address or to off", "addr", addr, "error", err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Metrics())
	mux.Handle("/", probe.Handler())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	logger.InfoContext(ctx, "serving metrics", "addr", l.Addr().String())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		logger.WarnContext(ctx, "metrics no longer served", "error", err)
	}
}
