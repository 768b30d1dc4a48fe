package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"berth"
	"berth/internal/agent"
	"berth/internal/node"
	"berth/internal/unit"
)

// nodeCommand is `berth node run` with a simulated driver.
type nodeCommand struct {
	agent.Node `embed:""`
	Delay      time.Duration `help:"Work on each job for this time."`
	FailEvery  int           `help:"Fail every n-th job; 0 for none."`
}

// Run runs the agent until the context ends and its jobs have drained.
func (c *nodeCommand) Run(ctx context.Context, logger *slog.Logger) error {
	return c.Node.Run(ctx, version, logger, func(spec berth.NodeSpec) (node.Driver, error) {
		if c.Delay < 0 || c.FailEvery < 0 {
			return nil, errors.New("--delay and --fail-every must not be negative")
		}
		return node.NewSim(spec.ID, node.SimOptions{Delay: c.Delay, FailEvery: c.FailEvery}), nil
	})
}

// nodeKinds returns the values of --kind.
func nodeKinds() string {
	var kinds []string
	for _, k := range agent.NodeKinds() {
		kinds = append(kinds, string(k))
	}
	return strings.Join(kinds, ",")
}

// mediaCommand is `berth media` with a simulated media server.
type mediaCommand struct {
	agent.Media `embed:""`
	Fault       unit.Fault    `help:"Start with this fault: unresponsive, half-dead, refuse or slow." enum:",unresponsive,half-dead,refuse,slow" default:""`
	Delay       time.Duration `help:"Run each command for this time."`
	Control     string        `help:"Serve an HTTP API for faults on this address." placeholder:"HOST:PORT"`
}

// Run runs the agent until the context ends.
func (c *mediaCommand) Run(ctx context.Context, logger *slog.Logger) error {
	return c.Media.Run(ctx, version, logger, func(own berth.Incarnation) (agent.MediaServer, error) { return c.open(ctx, logger, own) })
}

func (c *mediaCommand) open(ctx context.Context, logger *slog.Logger, own berth.Incarnation) (agent.MediaServer, error) {
	if c.Delay < 0 {
		return agent.MediaServer{}, errors.New("--delay must not be negative")
	}
	d := unit.NewSim(unit.SimOptions{Incarnation: own, Delay: c.Delay})
	d.Fail(c.Fault)
	s := agent.MediaServer{Driver: d, Close: func() {}}
	if c.Control == "" {
		return s, nil
	}
	addr, stop, err := agent.Serve(ctx, c.Control, d.Control())
	if err != nil {
		return agent.MediaServer{}, fmt.Errorf("--control: %w", err)
	}
	logger.Info("simulated media server accepts faults", "addr", addr)
	s.Close = stop
	return s, nil
}
