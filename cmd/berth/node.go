package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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

	node.DriverFlags `embed:""`

	Temporal  config.Temporal `embed:"" group:"Temporal"`
	LogLevel  string          `help:"Least log level: ${enum}." env:"BERTH_LOG_LEVEL" enum:"debug,info,warn,error" default:"info"`
	LogFormat string          `help:"Log format: ${enum}." env:"BERTH_LOG_FORMAT" enum:"text,json" default:"text"`
}

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
	default:
		driver, err = node.NewDriver(c.DriverFlags, spec, logger)
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
