package main

import (
	"context"
	"log/slog"
	"os"

	"berth/internal/app"
	"berth/internal/bench"
)

type benchCommands struct {
	Stream   benchStream   `cmd:"" help:"Measure provider chunk to SSE client, and submission to first token."`
	Chain    benchChain    `cmd:"" help:"Measure chains per second beside bare workflows."`
	Dispatch benchDispatch `cmd:"" help:"Measure node selection, turns, node calls over HTTP, and Redis memory."`
	Slots    benchSlots    `cmd:"" help:"Measure how the calls of a model share its slots, with one and two worker processes."`
	Recovery benchRecovery `cmd:"" help:"Measure detection and re-creation after kill -9 of a media unit with many conferences."`
}

type benchSlots struct {
	settings
	Runs int `help:"Pool this many runs of each measurement." default:"10"`
}

// Run measures on the Redis and Temporal of the settings.
func (c *benchSlots) Run(ctx context.Context, logger *slog.Logger) error {
	return c.observed(ctx, logger, func() error { return bench.Slots(ctx, os.Stdout, c.Config, c.Runs) })
}

type benchRecovery struct {
	settings
	Conferences int `help:"Run this many conferences on the unit that is killed." default:"100"`
}

// Run measures on the Redis and Temporal of the settings.
func (c *benchRecovery) Run(ctx context.Context, logger *slog.Logger) error {
	return c.observed(ctx, logger, func() error { return bench.Recovery(ctx, os.Stdout, c.Config, c.Conferences) })
}

type benchDispatch struct {
	settings
	Turns int `help:"Run this many turns of six jobs per measurement." default:"200"`
}

// Run measures on the Redis and Temporal of the settings.
func (c *benchDispatch) Run(ctx context.Context, logger *slog.Logger) error {
	return c.observed(ctx, logger, func() error { return bench.Dispatch(ctx, os.Stdout, c.Config, c.Turns) })
}

type benchStream struct {
	settings
	Samples int `help:"Send this many tokens per measurement." default:"2000"`
}

// Run measures on the Redis and Temporal of the settings.
func (c *benchStream) Run(ctx context.Context, logger *slog.Logger) error {
	return c.observed(ctx, logger, func() error { return bench.Stream(ctx, os.Stdout, c.Config, c.Samples) })
}

type benchChain struct {
	settings
	Chains int `help:"Run this many chains." default:"400"`
}

// Run measures on the Redis and Temporal of the settings.
func (c *benchChain) Run(ctx context.Context, logger *slog.Logger) error {
	return c.observed(ctx, logger, func() error { return bench.Chain(ctx, os.Stdout, c.Config, c.Chains) })
}

// observed runs a benchmark with the telemetry that the environment asks for, so that its cost can be measured.
func (s settings) observed(ctx context.Context, logger *slog.Logger, run func() error) error {
	_, stop, err := app.Observe(ctx, "bench", version, s.Telemetry, logger)
	if err != nil {
		return err
	}
	defer stop()
	return run()
}
