package app

import (
	"context"
	"log/slog"
	"sync"

	"berth/internal/config"
	"berth/internal/health"
	"berth/internal/telemetry"
)

// Observe starts telemetry for the process, and serves its metrics and its health until stop is called. It is called once.
func Observe(ctx context.Context, role, version string, cfg config.Telemetry, logger *slog.Logger) (probe *health.Probe, stop func(), err error) {
	t, err := telemetry.Start(ctx, telemetry.Options{Role: role, Version: version, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	probe = health.New(version, logger)
	// The health of a process that stops is served to the end.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var server sync.WaitGroup
	server.Go(func() { t.Serve(serving, cfg.MetricsAddr, probe, logger) })
	return probe, func() {
		cancel()
		server.Wait()
		if err := t.Shutdown(ctx); err != nil {
			logger.WarnContext(ctx, "telemetry not exported completely", "error", err)
		}
	}, nil
}
