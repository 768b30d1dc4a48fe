package main

import (
	"context"
	"log/slog"

	"berth"
	"berth/internal/agent"
	"berth/internal/node"
)

type nodeCommand struct {
	agent.Node       `embed:""`
	node.DriverFlags `embed:""`
}

// Run runs the agent until the context ends and its jobs have drained.
func (c *nodeCommand) Run(ctx context.Context, logger *slog.Logger) error {
	return c.Node.Run(ctx, version, logger, func(spec berth.NodeSpec) (node.Driver, error) {
		return node.NewDriver(c.DriverFlags, spec, logger)
	})
}
