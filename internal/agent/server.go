// Package agent has what programs share that call berth's API from outside: how they find the API, its token and Temporal, and the
// commands of nodes and media units without their drivers.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"berth/client"
	"berth/internal/app"
	"berth/internal/config"
	"berth/internal/devserver"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/secret"
	"berth/internal/setting"
	"berth/internal/telemetry"
)

const (
	// defaultURL is the address of an API with default settings. It is used when only a token is set.
	defaultURL = "http://127.0.0.1:8080"
	// devUser is the user of tokens for a development server, the same as on the page that it opens.
	devUser = "alice"
	// devTokenTTL is long because a node may run for months. The token is only held in memory.
	devTokenTTL = 365 * 24 * time.Hour
)

// Server is the API that a terminal command calls.
type Server struct {
	URL   secret.Address `help:"Call the API at this URL. Default: the development server that runs in --data-dir, or http://127.0.0.1:8080 if a token is set." name:"url" env:"BERTH_URL" placeholder:"URL"`
	Token secret.Text    `help:"Send this bearer token (see 'berth token'). Default: a token for the development server that runs in --data-dir." env:"BERTH_TOKEN"`

	TokenFile string `help:"File with the bearer token, read again for every call." name:"token-file" env:"BERTH_TOKEN_FILE"`

	DataDir string `help:"Look for a development server in this data directory." name:"data-dir" env:"BERTH_DATA_DIR" default:"./.berth"`
}

// ProvideClient returns a client of the API that is set, or of the development server that runs in DataDir. kong passes it
// to Run of the commands that embed s.
func (s Server) ProvideClient() (*client.Client, error) {
	t, err := s.target("--url")
	if err != nil {
		return nil, setting.Wrong(err)
	}
	return t.client(), nil
}

// target is an API with a token for it.
type target struct {
	url, token string
	// temporal is the Temporal frontend of a development server, and empty for any other API.
	temporal string
	// file is the token that is read again for each call, if there is one.
	file secret.Secret
}

func (t target) client() *client.Client {
	if t.file.IsSet() {
		return client.NewWithToken(t.url, t.file.Read)
	}
	return client.New(t.url, t.token)
}

// target returns what is set, completed by the development server that runs in DataDir. urlFlag is the name of the
// flag for URL in errors.
func (s Server) target(urlFlag string) (target, error) {
	token := secret.New("BERTH_TOKEN", string(s.Token), s.TokenFile)
	if err := token.Validate(); err != nil {
		return target{}, err
	}
	t := target{url: strings.TrimRight(string(s.URL), "/")}
	if token.FromFile() {
		t.file = token
	}
	t.token, _ = token.Read() // Validate has read it
	if t.url != "" && !ValidURL(t.url) {
		return target{}, fmt.Errorf("%s (BERTH_URL): invalid URL %s; it must start with http:// or https:// and have no user, password and parameters", urlFlag, s.URL)
	}
	if t.url != "" && t.token != "" {
		return t, nil
	}
	found, err := s.development()
	switch {
	case err != nil && t.url != "":
		return target{}, fmt.Errorf("no token: set BERTH_TOKEN (`berth token` issues one): %w", err)
	case err != nil && t.token != "":
		t.url = defaultURL
		return t, nil
	case err != nil:
		return target{}, fmt.Errorf("no server address: set BERTH_URL and BERTH_TOKEN, or start `make run` in this directory: %w", err)
	case t.url != "" && t.url != found.url:
		return target{}, fmt.Errorf("no token: set BERTH_TOKEN (`berth token` issues one): the development server in %s is at %s, not at %s",
			s.DataDir, found.url, t.url)
	case t.token != "":
		found.token, found.file = t.token, t.file
	}
	return found, nil
}

// development returns the development server that runs in DataDir, with a token of all scopes.
func (s Server) development() (target, error) {
	ready, err := devserver.Running(s.DataDir)
	switch {
	case errors.Is(err, devserver.ErrNone):
		return target{}, fmt.Errorf("no development server runs in %s", s.DataDir)
	case errors.Is(err, devserver.ErrStopped):
		return target{}, fmt.Errorf("the development server in %s (pid %d) has stopped", s.DataDir, ready.PID)
	case err != nil:
		return target{}, err
	case ready.HTTPAddr == "":
		return target{}, fmt.Errorf("the development server in %s runs without its API", s.DataDir)
	}
	text, err := os.ReadFile(devserver.SecretFile(s.DataDir))
	if err != nil {
		return target{}, fmt.Errorf("secret of the development server: %w", err)
	}
	token, err := identity.Issue(strings.TrimSpace(string(text)), identity.Grant{
		UserID: devUser, Scopes: identity.ScopeNames(), Nodes: []string{"*"}, TTL: devTokenTTL,
	})
	if err != nil {
		return target{}, err
	}
	return target{url: "http://" + ready.HTTPAddr, token: token, temporal: ready.TemporalAddr}, nil
}

// Connection is the API and the Temporal server of a node or media unit.
type Connection struct {
	URL       secret.Address  `help:"Register at the API with this URL. Default: the development server that runs in --data-dir, or http://127.0.0.1:8080 if a token is set." name:"api" aliases:"url" env:"BERTH_URL" placeholder:"URL"`
	Token     secret.Text     `help:"Send this bearer token of scope node (see 'berth token --scopes node --node ID'). Default: a token for the development server that runs in --data-dir." env:"BERTH_TOKEN"`
	TokenFile string          `help:"File with the bearer token, read again for every call." name:"token-file" env:"BERTH_TOKEN_FILE"`
	DataDir   string          `help:"Look for a development server in this data directory." name:"data-dir" env:"BERTH_DATA_DIR" default:"./.berth"`
	Temporal  config.Temporal `embed:"" group:"Temporal"`

	Telemetry config.Telemetry `embed:"" group:"Telemetry"`
}

// Log is the log of a node or media unit.
type Log struct {
	LogLevel  string `help:"Minimum log level: ${enum}." env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
	LogFormat string `help:"Log format: ${enum}." env:"BERTH_LOG_FORMAT" enum:"text,json" default:"text"`
}

// ProvideLogger returns the logger that kong passes to Run.
func (l Log) ProvideLogger() (*slog.Logger, error) {
	return telemetry.Logger(os.Stderr, l.LogLevel, l.LogFormat)
}

// client returns a client of the API. If that is a development server, Temporal is set to that server's frontend
// unless it was set already.
func (s *Connection) client() (*client.Client, error) {
	t, err := Server{s.URL, s.Token, s.TokenFile, s.DataDir}.target("--api")
	if err != nil {
		return nil, setting.Wrong(err)
	}
	if t.temporal != "" && s.Temporal.IsDefault() {
		s.Temporal.Addr = t.temporal
	}
	return t.client(), nil
}

// connect returns a client of Temporal, which need not be available. It starts the telemetry of an agent, and serves its health: whether
// the API and Temporal respond.
func (s *Connection) connect(
	ctx context.Context, role, version string, web *client.Client, logger *slog.Logger,
) (tc temporalclient.Client, stop func(), err error) {
	tc, check, err := app.OpenTemporal(s.Temporal, nil, logger)
	if err != nil {
		return nil, nil, err
	}
	probe, end, err := app.Observe(ctx, role, version, s.Telemetry, logger)
	if err != nil {
		tc.Close()
		return nil, nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		probe.Watch(watching, map[string]health.Check{
			"api":      web.Alive,
			"temporal": check,
		})
	})
	return tc, func() { cancel(); watch.Wait(); end(); tc.Close() }, nil
}

// ValidURL reports whether s is an absolute URL of HTTP without credentials and parameters.
func ValidURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}
