// Command berth is the one binary of the house: it serves the API, works task queues, and is the terminal client.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"berth/internal/config"
	"berth/internal/node"
)

// version is set by the linker at release.
var version = "dev"

type commands struct {
	API        apiCommand         `cmd:"" name:"api" help:"Serve the HTTP API and the console."`
	Worker     workerCommand      `cmd:"" help:"Work task queues."`
	Node       nodeCommand        `cmd:"" help:"Be a node: register, work jobs with a driver, drain when stopped."`
	Media      mediaCommand       `cmd:"" help:"Be a media unit: run conferences on the media server beside it."`
	Token      tokenCommand       `cmd:"" help:"Print a bearer token."`
	Task       taskCommands       `cmd:"" help:"Submit, watch, get and cancel tasks from the terminal."`
	Turn       turnCommand        `cmd:"" help:"Speak in a live-translation session from the terminal."`
	Conference conferenceCommands `cmd:"" help:"Open, watch, list and end conferences from the terminal."`
	Sim        simCommands        `cmd:"" help:"Stand-ins for what is not here."`
	Bench      benchCommands      `cmd:"" help:"Measure berth beside its baselines, on running servers."`
	Config     configCommand      `cmd:"" help:"Print the settings in force, secrets hidden."`
	Version    kong.VersionFlag   `help:"Print the version."`
}

// settings is embedded by every command that runs a part of the server.
type settings struct {
	config.Config `embed:""`
}

func main() {
	// The first signal asks for a graceful stop, the second ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	var cmd commands
	k := kong.Parse(&cmd,
		kong.Name("berth"),
		kong.Description("A durable dispatcher for scarce capacity. Every flag has an environment variable; `berth config` shows what is in force."),
		kong.ShortUsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": version, "drivers": strings.Join(node.DriverNames(), ",")},
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err := k.Run(); err != nil {
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "berth:", err)
		os.Exit(1)
	}
}
