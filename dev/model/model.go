// Package model serves the model simulator.
package model

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"berth/internal/app"
	"berth/internal/sim"
)

// Server holds the settings of the model simulator.
type Server struct {
	Addr            string        `help:"Address the model simulator listens on, host:port." name:"model-addr" env:"BERTH_MODEL_ADDR" default:"127.0.0.1:8090"`
	TokensPerSecond float64       `help:"Output speed in tokens per second; 0 for no limit." name:"model-tokens-per-second" env:"BERTH_MODEL_TOKENS_PER_SECOND" default:"120"`
	FirstTokenDelay time.Duration `help:"Delay before the first token." name:"model-first-token-delay" env:"BERTH_MODEL_FIRST_TOKEN_DELAY" default:"300ms"`
}

// Run serves until ctx ends.
func (s Server) Run(ctx context.Context, logger *slog.Logger) error {
	srv := &http.Server{
		Addr: s.Addr, ReadHeaderTimeout: 5 * time.Second,
		Handler: sim.ModelServer(sim.Options{
			Logger: logger, TokensPerSecond: s.TokensPerSecond, FirstTokenDelay: s.FirstTokenDelay,
		}),
	}
	return app.Serve(ctx, "BERTH_MODEL_ADDR", srv, time.Second, logger.With("part", "model server"))
}
