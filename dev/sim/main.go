// Command berth-sim simulates what berth dispatches to, for demonstrations, tests and deployments that have no key of a provider yet.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"berth/dev/model"
	"berth/internal/config"
	"berth/internal/telemetry"
)

// version is set by the linker at release.
var version = "dev"

type commands struct {
	Model   modelCommand     `cmd:"" help:"Serve the simulated model (OpenAI chat-completions protocol)."`
	Node    nodeCommand      `cmd:"" help:"Run a node that translates a few words, or returns the input of its executors."`
	Media   mediaCommand     `cmd:"" help:"Run a media unit whose media server is in memory, with faults on demand."`
	Version kong.VersionFlag `help:"Print the version."`
}

type modelCommand struct {
	model.Server `embed:""`
	LogLevel     string `help:"Minimum log level: ${enum}." env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
}

// Run serves until the context ends.
func (c *modelCommand) Run(ctx context.Context) error {
	logger, err := telemetry.Logger(os.Stderr, c.LogLevel, "text")
	if err != nil {
		return err
	}
	return c.Server.Run(ctx, logger)
}

func main() {
	// The first signal starts a graceful stop, the second ends the process immediately.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	k, err := kong.New(&commands{},
		kong.Name("berth-sim"),
		kong.Description("Simulate what berth dispatches to, for demonstrations and tests."),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": version, "node_kinds": nodeKinds()}, config.Clean(),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		panic(err) // a flag of this program is declared wrongly
	}
	command, err := k.Parse(os.Args[1:])
	k.FatalIfErrorf(config.Explain(err, os.Args[1:]))
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "berth-sim:", err)
		os.Exit(1)
	}
}
