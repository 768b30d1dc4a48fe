package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/internal/config"
	"berth/internal/node"
	"berth/internal/telemetry"
)

// nodeCommand keeps the contract of docs/nodes.md.
type nodeCommand struct {
	URL   string `help:"The API." name:"api" aliases:"url" env:"BERTH_URL" default:"http://127.0.0.1:8080"`
	Token string `help:"Bearer token with the scope node, see 'berth token --scopes node'." env:"BERTH_TOKEN" required:""`

	ID           string         `help:"Id of the node; a process that registers under it later takes it over." name:"id" env:"BERTH_NODE_ID" required:""`
	Kind         berth.NodeKind `help:"What its capacity is good for: ${enum}." enum:"translate,engine" default:"translate"`
	Capabilities []string       `help:"What it can do: language pairs such as translate:en-es, names of executors. At least one."`
	Slots        int            `help:"Jobs it does at once." default:"4"`
	Zone         string         `help:"Zone it is in, for locality."`
	Hostname     string         `help:"Host it is on, for locality. Default: the machine's name."`
	Drain        time.Duration  `help:"Time that running jobs get to finish when it is stopped." default:"20s"`

	Driver string `help:"Who does the work: ${enum}." enum:"exec,http,sim" required:""`

	Exec string `help:"exec: command per job, run by sh -c: text on standard input, translation on standard output." placeholder:"COMMAND"`

	HTTPURL        string `help:"http: endpoint that a job is posted to; with --http-openai the server's base URL." name:"http-url"`
	HTTPKey        string `help:"http: bearer token or API key for it." name:"http-key" env:"BERTH_NODE_HTTP_KEY"`
	HTTPOpenAI     bool   `help:"http: the endpoint speaks the OpenAI chat-completions protocol." name:"http-openai"`
	Model          string `help:"http: the model that translates, with --http-openai."`
	MaxTokensField string `help:"http: how the server names the bound of an answer: ${enum}." enum:"max_tokens,max_completion_tokens" default:"max_tokens"`

	SimDelay     time.Duration `help:"sim: time a job takes." name:"sim-delay"`
	SimFailEvery int           `help:"sim: each n-th job fails." name:"sim-fail-every"`

	Temporal  config.Temporal `embed:"" group:"Temporal"`
	LogLevel  string          `help:"Least log level: ${enum}." env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
	LogFormat string          `help:"Log format: ${enum}." env:"BERTH_LOG_FORMAT" enum:"text,json" default:"text"`
}

// secretSettings are not for the commands of the exec driver.
var secretSettings = []string{"BERTH_TOKEN=", "BERTH_NODE_HTTP_KEY=", "BERTH_AUTH_SECRET="}

// Run is the node until the context ends and it has drained.
func (c *nodeCommand) Run(ctx context.Context) error {
	logger, err := telemetry.Logger(os.Stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	api := server{c.URL, c.Token}
	if err := api.check("--api"); err != nil {
		return err
	}
	spec := berth.NodeSpec{
		ID: c.ID, Kind: c.Kind, Hostname: c.Hostname, Zone: c.Zone, Capabilities: c.Capabilities, MaxConcurrentJobs: c.Slots,
	}
	if spec.Incarnation, err = node.NewIncarnation(); err != nil {
		return err
	}
	if spec.Hostname == "" {
		spec.Hostname = spec.Incarnation.Host
	}
	var driver node.Driver
	switch {
	case c.Slots < 1:
		err = errors.New("--slots must be 1 or more")
	case c.Drain <= 0:
		err = errors.New("--drain must be above 0")
	case c.Driver == "exec":
		driver, err = c.exec()
	case c.Driver == "http" && c.HTTPOpenAI:
		driver, err = c.openAI(logger)
	case c.Driver == "http":
		driver, err = c.http()
	default:
		driver, err = c.sim()
	}
	if err == nil && len(c.Capabilities) == 0 {
		err = errors.New("--capabilities: must name what the node can do, such as translate:en-es; without, nothing would ever come to it")
	}
	if err != nil {
		return err
	}
	tc, err := temporalclient.NewLazyClient(temporalclient.Options{
		HostPort: c.Temporal.Addr, Namespace: c.Temporal.Namespace,
		Logger: telemetry.Temporal(logger),
	})
	if err != nil {
		return fmt.Errorf("temporal client: %w", err)
	}
	defer tc.Close()
	return node.Run(ctx, node.Options{
		Spec: spec, API: api.client(), Temporal: tc, Driver: driver, Drain: c.Drain, Logger: logger,
	})
}

func (c *nodeCommand) exec() (node.Driver, error) {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(secretSettings, func(s string) bool { return strings.HasPrefix(v, s) })
	})
	d, err := node.NewExec(c.Exec, append(env, "BERTH_NODE_ID="+c.ID))
	if err != nil {
		return nil, fmt.Errorf("--exec: %w", err)
	}
	return d, nil
}

func (c *nodeCommand) http() (node.Driver, error) {
	d, err := node.NewHTTP(c.HTTPURL, c.HTTPKey, c.Slots)
	if err != nil {
		return nil, fmt.Errorf("--http-url: %w", err)
	}
	return d, nil
}

func (c *nodeCommand) openAI(logger *slog.Logger) (node.Driver, error) {
	switch {
	case c.Model == "":
		return nil, errors.New("--model: must name the model with --http-openai")
	case c.Kind == berth.NodeEngine:
		return nil, errors.New("--http-openai: a chat model translates; it runs no executors")
	}
	d, err := node.NewOpenAI(node.OpenAIOptions{
		BaseURL: c.HTTPURL, Model: c.Model, Key: c.HTTPKey, KeySetting: "BERTH_NODE_HTTP_KEY",
		MaxTokensField: c.MaxTokensField, Slots: c.Slots, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("--http-url: %w", err)
	}
	return d, nil
}

func (c *nodeCommand) sim() (node.Driver, error) {
	if c.SimDelay < 0 || c.SimFailEvery < 0 {
		return nil, errors.New("--sim-delay and --sim-fail-every must not be negative")
	}
	return node.NewSim(c.ID, node.SimOptions{Delay: c.SimDelay, FailEvery: c.SimFailEvery}), nil
}
