package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	apiclient "berth/client"
	"berth/internal/app"
	"berth/internal/identity"
	"berth/internal/node"
	"berth/internal/unit"
)

// fleetDrain is short because the whole development server stops within stopTimeout.
const fleetDrain = 2 * time.Second

// demoNodes returns the simulated nodes of the demo fleet.
func demoNodes() []berth.NodeSpec {
	pairs := []string{"translate:en-es", "translate:es-en", "translate:en-zh", "translate:zh-en", "translate:en-fr", "translate:en-de"}
	return []berth.NodeSpec{
		{ID: "demo-1", Kind: berth.NodeTranslate, Zone: "demo-a", Capabilities: pairs, MaxConcurrentJobs: 4},
		{ID: "demo-2", Kind: berth.NodeTranslate, Zone: "demo-b", Capabilities: pairs, MaxConcurrentJobs: 4},
		{ID: "demo-engine", Kind: berth.NodeEngine, Zone: "demo-a", Capabilities: []string{"echo"}, MaxConcurrentJobs: 4},
	}
}

// demoUnits returns the media units of the demo fleet.
func demoUnits() []berth.NodeSpec {
	conferences := []string{berth.CapabilityConference}
	return []berth.NodeSpec{
		{ID: "demo-unit-1", Zone: "demo-a", Capabilities: conferences, MaxConcurrentJobs: 10},
		{ID: "demo-unit-2", Zone: "demo-b", Capabilities: conferences, MaxConcurrentJobs: 10},
	}
}

// runDemoFleet runs simulated nodes, and media units beside LiveKit servers or simulated ones, until ctx ends. They are registered over
// HTTP like those of other machines.
func runDemoFleet(ctx context.Context, o *options, logger *slog.Logger) error {
	cfg := o.Config
	token, err := identity.Issue(cfg.Identity.Secret(), identity.Grant{
		UserID: "demo-fleet", Scopes: []string{identity.ScopeNode}, Nodes: []string{"demo-*"}, TTL: 365 * 24 * time.Hour,
		Audience: cfg.Identity.Audience(),
	})
	if err != nil {
		return err
	}
	c, _, err := app.OpenTemporal(cfg.Temporal, nil, logger)
	if err != nil {
		return err
	}
	defer c.Close()
	g, ctx := errgroup.WithContext(ctx)
	web := apiclient.New("http://"+cfg.API.Addr, token)
	for _, spec := range demoNodes() {
		if spec.Incarnation, err = node.NewIncarnation(); err != nil {
			return err
		}
		spec.Hostname = spec.Incarnation.Host
		g.Go(func() error {
			return node.Run(ctx, node.Options{
				Spec: spec, API: web, Temporal: c,
				Driver: node.NewSim(spec.ID, node.SimOptions{Delay: 150 * time.Millisecond}), Drain: fleetDrain,
				Logger: logger,
			})
		})
	}
	drivers, err := startLiveKit(ctx, g, o, o.servers, logger)
	if err != nil {
		return errors.Join(err, g.Wait())
	}
	for _, spec := range demoUnits() {
		own, err := node.NewIncarnation()
		if err != nil {
			return err
		}
		spec.Hostname = own.Host
		var driver unit.Driver = unit.NewSim(unit.SimOptions{Incarnation: own})
		if d, ok := drivers[spec.ID]; ok {
			defer d.Close()
			driver, spec.ClientURL, spec.KeyID = d, d.ClientURL(), "key-"+spec.ID
		}
		g.Go(func() error {
			return unit.Run(ctx, unit.Options{Spec: spec, API: web, Temporal: c, Driver: driver, Logger: logger})
		})
	}
	return g.Wait()
}
