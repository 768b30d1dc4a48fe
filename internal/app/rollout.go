package app

import (
	"log/slog"

	"berth/internal/config"
	"berth/internal/starter"
)

// Rollout calls f with access to the worker deployments of Temporal.
func Rollout(cfg config.Temporal, logger *slog.Logger, f func(*starter.Starter) error) error {
	c, _, err := OpenTemporal(cfg, nil, logger)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(&starter.Starter{Client: c, Namespace: cfg.Namespace})
}
