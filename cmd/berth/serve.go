package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"berth"
	"berth/internal/app"
	"berth/internal/devserver"
	"berth/internal/identity"
	"berth/internal/secret"
	"berth/internal/setting"
)

type apiCommand struct{ settings }

// Run serves until the context ends.
func (c *apiCommand) Run(ctx context.Context, logger *slog.Logger) error {
	// Memory for open streams is kept for hours, with little garbage beside it: less than half of Go's default headroom saves a
	// quarter of it. GOGC overrides this.
	if usual := debug.SetGCPercent(40); usual != 100 {
		debug.SetGCPercent(usual)
	}
	probe, stop, err := app.Observe(ctx, "api", version, c.Telemetry, logger)
	if err != nil {
		return err
	}
	defer stop()
	return app.RunAPI(ctx, c.Config, logger, probe)
}

type workerCommand struct{ settings }

// Run polls until the context ends.
func (c *workerCommand) Run(ctx context.Context, logger *slog.Logger) error {
	probe, stop, err := app.Observe(ctx, "worker", version, c.Telemetry, logger)
	if err != nil {
		return err
	}
	defer stop()
	c.Rollout.BuildID = c.Rollout.Build(version)
	return app.RunWorker(ctx, c.Config, logger, probe)
}

type tokenCommand struct {
	User       string        `help:"Issue the token to this user." required:""`
	Scopes     []string      `help:"Grant these scopes: ${enum}." enum:"${scopes}" default:"user"`
	Tenant     string        `help:"Let the user work on behalf of this tenant."`
	Team       string        `help:"Count the user's requests for this team."`
	App        string        `help:"Count the user's requests for this application."`
	Nodes      []string      `help:"With scope node: the ids of the nodes that the token is for; * matches any characters, as in tokyo-*." name:"node"`
	TTL        time.Duration `help:"Let the token expire after this time." default:"24h"`
	Audiences  []string      `help:"Issue the token for the first of these audiences, those of the API." name:"audience" env:"BERTH_AUTH_AUDIENCE" default:"berth"`
	AuthSecret secret.Text   `help:"Sign with the first of these HS256 secrets, the API's." env:"BERTH_AUTH_SECRET"`
	SecretFile string        `help:"Sign with the first secret in this file." name:"auth-secret-file" env:"BERTH_AUTH_SECRET_FILE"`
	DataDir    string        `help:"Read the secret from this data directory of a development server if none is set." env:"BERTH_DATA_DIR" default:".berth"`
}

// Run prints the token on standard output.
func (c *tokenCommand) Run() error {
	cfg := settings{}
	cfg.Identity.Secrets, cfg.Identity.SecretsFile, cfg.Identity.Audiences = c.AuthSecret, c.SecretFile, c.Audiences
	if err := cfg.ReadSecretFile(devserver.SecretFile(c.DataDir)); err != nil {
		return err
	}
	if err := cfg.NeedSecret(); err != nil {
		return err
	}
	token, err := identity.Issue(cfg.Identity.Secret(), identity.Grant{
		UserID: c.User, Scopes: c.Scopes, TenantID: c.Tenant, TeamID: c.Team, AppID: c.App, Nodes: c.Nodes, TTL: c.TTL, Audience: cfg.Identity.Audience(),
	})
	if err != nil {
		return flagError(err)
	}
	fmt.Println(token)
	return nil
}

// flagError names the flag of an invalid value.
func flagError(err error) error {
	var e *berth.Error
	if errors.As(err, &e) && e.Field != "" {
		return setting.Wrong(fmt.Errorf("--%s: %s", e.Field, e.Message))
	}
	return err
}

type configCommand struct{ settings }

// Run prints the settings.
func (c *configCommand) Run() error { return c.Print(os.Stdout) }
