package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"berth"
	"berth/internal/node"
)

// Node is the command of a node without the flags of its driver. It implements the contract in docs/nodes.md. NodeKinds are the values
// of its flag --kind.
type Node struct {
	Connection `embed:""`

	ID           string         `help:"Register with this id. A process that registers with it later replaces this one." name:"id" env:"BERTH_NODE_ID" required:""`
	Kind         berth.NodeKind `help:"Kind of the node: ${enum}." enum:"${node_kinds}" default:"translate"`
	Capabilities []string       `help:"Capabilities: language pairs such as translate:en-es, or names of executors. At least one, or --sources and --targets."`
	Sources      []string       `help:"Source languages: with --targets, adds the capability of every pair of a source and a different target language."`
	Targets      []string       `help:"Target languages: see --sources."`
	Services     []string       `help:"Services that run on the node, such as whisper, for capabilities that require them (PUT /v1/config/services)." env:"BERTH_NODE_SERVICES"`
	Slots        int            `help:"Run at most this many jobs at the same time." default:"4"`
	Zone         string         `help:"Zone of the node, for locality."`
	Hostname     string         `help:"Host of the node, for locality. Default: the machine's name."`
	Drain        time.Duration  `help:"On stop, let running jobs finish for at most this time." default:"20s"`

	Log `embed:""`
}

// NodeKinds returns the kinds of a Node; a media unit has a command of its own.
func NodeKinds() []berth.NodeKind {
	return slices.DeleteFunc(berth.NodeKinds(), func(k berth.NodeKind) bool { return k == berth.NodeMedia })
}

// Run runs the agent with the driver that open returns for it, until the context ends and its jobs have drained.
func (c *Node) Run(ctx context.Context, version string, logger *slog.Logger, open func(berth.NodeSpec) (node.Driver, error)) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	if len(c.Sources)+len(c.Targets) > 0 {
		pairs, err := berth.TranslatePairs("-", c.Sources, c.Targets)
		if err != nil {
			return fmt.Errorf("--sources and --targets: %w", err)
		}
		c.Capabilities = append(c.Capabilities, pairs...)
	}
	spec := berth.NodeSpec{
		ID: c.ID, Kind: c.Kind, Hostname: c.Hostname, Zone: c.Zone, Capabilities: c.Capabilities, Services: c.Services, MaxConcurrentJobs: c.Slots,
	}
	if spec.Incarnation, err = node.NewIncarnation(); err != nil {
		return err
	}
	spec.Hostname = cmp.Or(spec.Hostname, spec.Incarnation.Host)
	var driver node.Driver
	switch {
	case c.Slots < 1:
		err = errors.New("--slots must be 1 or more")
	case c.Drain <= 0:
		err = errors.New("--drain must be above 0")
	default:
		driver, err = open(spec)
	}
	if err == nil && len(c.Capabilities) == 0 {
		err = errors.New("--capabilities: at least one is required, for instance translate:en-es, or --sources and --targets; a node without capabilities receives no jobs")
	}
	if err != nil {
		return err
	}
	tc, stop, err := c.connect(ctx, "node", version, api, logger)
	if err != nil {
		return err
	}
	defer stop()
	return node.Run(ctx, node.Options{
		Spec: spec, API: api, Temporal: tc, Driver: driver, Drain: c.Drain, Logger: logger,
	})
}
