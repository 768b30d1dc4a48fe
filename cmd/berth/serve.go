package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"berth/api"
	"berth/internal/app"
	"berth/internal/telemetry"
)

type apiCommand struct{ settings }

// Run serves until the context ends.
func (c *apiCommand) Run(ctx context.Context) error {
	logger, err := telemetry.Logger(os.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	// What an API holds for its open streams stays for hours, and it makes little garbage beside it: half of Go's usual
	// headroom saves a quarter of its memory (P12). An operator's GOGC wins.
	if usual := debug.SetGCPercent(50); usual != 100 {
		debug.SetGCPercent(usual)
	}
	return app.RunAPI(ctx, c.Config, logger, version)
}

type workerCommand struct{ settings }

// Run polls until the context ends.
func (c *workerCommand) Run(ctx context.Context) error {
	logger, err := telemetry.Logger(os.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	return app.RunWorker(ctx, c.Config, logger)
}

type tokenCommand struct {
	User       string        `help:"User the token speaks for." required:""`
	Scopes     []string      `help:"Scopes: ${enum}." enum:"user,node,operator" default:"user"`
	TTL        time.Duration `help:"How long it is valid." default:"24h"`
	AuthSecret string        `help:"HS256 secret, the API's." env:"BERTH_AUTH_SECRET"`
	DataDir    string        `help:"Data folder of a development server whose secret is used when none is given." env:"BERTH_DATA_DIR" default:".berth"`
}

// Run prints the bare token on standard output.
func (c *tokenCommand) Run() error {
	cfg := settings{}
	cfg.API.AuthSecret = c.AuthSecret
	if err := cfg.ReadSecretFile(app.SecretFile(c.DataDir)); err != nil {
		return err
	}
	if err := cfg.NeedSecret(); err != nil {
		return err
	}
	token, err := api.IssueToken(cfg.API.AuthSecret, c.User, c.Scopes, c.TTL)
	if err != nil {
		return err
	}
	fmt.Println(token)
	return nil
}

type configCommand struct{ settings }

// Run prints the settings.
func (c *configCommand) Run() error { return c.Print(os.Stdout) }

type simCommands struct {
	Model simModelCommand `cmd:"" help:"Serve the local stand-in model (OpenAI chat-completions protocol)."`
}

type simModelCommand struct {
	app.ModelServer `embed:""`
	LogLevel        string `help:"Least log level." env:"BERTH_LOG_LEVEL" default:"info"`
}

// Run serves until the context ends.
func (c *simModelCommand) Run(ctx context.Context) error {
	logger, err := telemetry.Logger(os.Stderr, c.LogLevel, "text")
	if err != nil {
		return err
	}
	return app.RunModelServer(ctx, c.ModelServer, logger)
}
