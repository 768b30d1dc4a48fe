package main

import (
	"context"
	"os"

	"berth/internal/bench"
)

type benchCommands struct {
	Stream   benchStream   `cmd:"" help:"Provider chunk to SSE client, and submission to first token."`
	Chain    benchChain    `cmd:"" help:"Chains a second beside bare workflows."`
	Dispatch benchDispatch `cmd:"" help:"Choosing nodes, turns and nodes over HTTP, Redis memory."`
	Recovery benchRecovery `cmd:"" help:"kill -9 of a media unit with many conferences: detection, and first to last re-creation."`
}

type benchRecovery struct {
	settings
	Conferences int `help:"Conferences of the unit that is killed." default:"100"`
}

// Run measures against the Redis and Temporal of the settings.
func (c *benchRecovery) Run(ctx context.Context) error {
	return bench.Recovery(ctx, os.Stdout, c.Config, c.Conferences)
}

type benchDispatch struct {
	settings
	Turns int `help:"Turns of six jobs a measurement." default:"200"`
}

// Run measures against the Redis and Temporal of the settings.
func (c *benchDispatch) Run(ctx context.Context) error {
	return bench.Dispatch(ctx, os.Stdout, c.Config, c.Turns)
}

type benchStream struct {
	settings
	Samples int `help:"Tokens a measurement." default:"2000"`
}

// Run measures against the Redis and Temporal of the settings.
func (c *benchStream) Run(ctx context.Context) error {
	return bench.Stream(ctx, os.Stdout, c.Config, c.Samples)
}

type benchChain struct {
	settings
	Chains int `help:"Chains in all." default:"400"`
}

// Run measures against the Redis and Temporal of the settings.
func (c *benchChain) Run(ctx context.Context) error {
	return bench.Chain(ctx, os.Stdout, c.Config, c.Chains)
}
