package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/api"
	apiclient "berth/internal/client"
	"berth/internal/config"
	"berth/internal/node"
	"berth/internal/telemetry"
)

// demoDrain is short: the whole development server stops in ten seconds.
const demoDrain = 2 * time.Second

// demoFleet are the simulated nodes that a development server starts with (X1).
func demoFleet() []berth.NodeSpec {
	pairs := []string{"translate:en-es", "translate:es-en", "translate:en-zh", "translate:zh-en", "translate:en-fr", "translate:en-de"}
	return []berth.NodeSpec{
		{ID: "demo-1", Kind: berth.NodeTranslate, Zone: "demo-a", Capabilities: pairs, MaxConcurrentJobs: 4},
		{ID: "demo-2", Kind: berth.NodeTranslate, Zone: "demo-b", Capabilities: pairs, MaxConcurrentJobs: 4},
		{ID: "demo-engine", Kind: berth.NodeEngine, Zone: "demo-a", Capabilities: []string{"echo"}, MaxConcurrentJobs: 4},
	}
}

// RunDemoFleet is a few simulated nodes, registered over HTTP like any others, until ctx ends.
func RunDemoFleet(ctx context.Context, cfg config.Config, logger *slog.Logger) error {
	token, err := api.IssueToken(cfg.API.AuthSecret, "demo-fleet", []string{api.ScopeNode}, 365*24*time.Hour)
	if err != nil {
		return err
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: cfg.Temporal.Addr, Namespace: cfg.Temporal.Namespace,
		Logger: telemetry.Temporal(logger),
	})
	if err != nil {
		return fmt.Errorf("temporal client: %w", err)
	}
	defer c.Close()
	g, ctx := errgroup.WithContext(ctx)
	for _, spec := range demoFleet() {
		if spec.Incarnation, err = node.NewIncarnation(); err != nil {
			return err
		}
		spec.Hostname = spec.Incarnation.Host
		g.Go(func() error {
			return node.Run(ctx, node.Options{
				Spec: spec, API: apiclient.New("http://"+cfg.API.Addr, token), Temporal: c,
				Driver: node.NewSim(spec.ID, node.SimOptions{Delay: 150 * time.Millisecond}), Drain: demoDrain,
				Logger: logger,
			})
		})
	}
	return g.Wait()
}
