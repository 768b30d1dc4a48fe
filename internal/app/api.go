package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/breaker"
	"berth/internal/config"
	"berth/internal/fleet"
	"berth/internal/gateway"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/payload"
	"berth/internal/redisconn"
	"berth/internal/sampler"
	"berth/internal/setting"
	"berth/internal/signalling"
	"berth/internal/starter"
	"berth/internal/stream"
	"berth/internal/waiting"
	"berth/workflows"
)

// stopGrace is how long a stopping API waits for open requests. Event streams are closed first: clients reconnect.
const stopGrace = 5 * time.Second

// RunAPI serves the HTTP API until ctx ends.
func RunAPI(ctx context.Context, cfg config.Config, logger *slog.Logger, probe *health.Probe) error {
	logger = probe.Quiet(logger)
	if err := cfg.NeedSecret(); err != nil {
		return err
	}
	if api, metrics := cfg.API.Addr, cfg.Telemetry.MetricsAddr; setting.Collide(api, metrics) {
		return setting.Wrong(fmt.Errorf("BERTH_HTTP_ADDR is %s and BERTH_METRICS_ADDR is %s, which one process cannot serve both; set another port for one of them", api, metrics))
	}
	keys, err := cfg.Temporal.Keys()
	if err != nil {
		return err
	}
	b, err := connect(ctx, cfg, logger, probe)
	if err != nil {
		return err
	}
	defer b.close(logger)
	hub := stream.NewHub(b.scripts, stream.HubOptions{Logger: logger})
	nodes := fleet.New(b.scripts, fleet.Options{Logger: logger})
	starter := &starter.Starter{
		Client: b.temporal, Tasks: b.ledger, Namespace: b.namespace, Converter: payload.NewDataConverter(keys),
		Deadline: cfg.API.TaskDeadline, StepTimeout: cfg.Worker.StepTimeout(),
	}
	room, positions := b.waitingRoom(cfg, starter, logger), waiting.NewBoard(b.scripts, logger)
	tokens, err := verifier(cfg.Identity, logger)
	if err != nil {
		return err
	}
	queues := func() []string {
		names := workflows.TaskQueues()
		for _, model := range b.routing.Current().Models() {
			if b.routing.Current().Served(model.Name) == nil {
				names = append(names, berth.ModelTaskQueue(model.Name))
			}
		}
		return names
	}
	limits := modelLimits(b.routing, cfg.Worker.UserSlots)
	samples := sampler.New(sampler.Options{
		ProcessID: processID(), Scripts: b.scripts, Queues: queues,
		DescribeQueue: func(ctx context.Context, queue string) (pollers int, backlog int64, err error) {
			q, err := starter.DescribeQueue(ctx, queue)
			return q.Pollers, q.Backlog, err
		},
		Budgets: b.ledger.FullestBudgets, Conferences: b.ledger.CountConferences, Overdue: b.ledger.CountOverdue,
		Models: b.models,
		Waiting: func(ctx context.Context, model string) (int, error) {
			room, err := b.scripts.ReadRoom(ctx, model, limits(model), 0)
			return room.Waiting, err
		},
		Teams: func(ctx context.Context) (map[string]sampler.TeamUse, error) {
			return teamUses(ctx, b.ledger, b.scripts, b.models(), limits)
		},
		Inspect: func(ctx context.Context) (redisconn.Server, error) {
			return b.redis.Inspect(ctx, b.scripts.Keys().Guard())
		},
		Fleet: nodes.Snapshot, Every: cfg.Telemetry.SampleEvery, Logger: logger,
	})
	secrets, err := signalling.NewKeys(cfg.Signalling.Keys, logger)
	if err != nil {
		return err
	}
	proxy := signalling.New(signalling.Options{
		Ledger: b.ledger, Nodes: b.scripts, Fleet: nodes, Infos: b.scripts, Redis: b.scripts, Channel: b.scripts.Keys().ConferenceUpdated(),
		Tokens: identity.Participants{Secrets: tokens.Secrets}, Keys: secrets, Hosts: cfg.Signalling.Hosts, Logger: logger,
	})
	process := processID()
	slots := lease.New(b.scripts, lease.Options{ProcessID: process, Limits: limits, Logger: logger})
	calls := gateway.New(gateway.Options{
		Process: process, Ledger: b.ledger, Scripts: b.scripts, Slots: slots, Models: llm.NewClient(b.routing.Of, nil, logger), Catalog: b.routing.Of,
		ModelLimits: limits, Breaker: breaker.New(b.scripts, logger), Logger: logger,
		Starter: starter, Streams: hub, Positions: positions, Tasks: b.ledger, Grace: cfg.API.CallGrace,
	})
	e, err := api.New(api.Deps{
		Starter: starter, Ledger: b.ledger, Hub: hub, Routing: b.routing, Templates: b.templates.Catalog,
		Scripts: b.scripts, Positions: positions, Fleet: nodes,
		Health: probe, Signalling: proxy, Gateway: calls, Keys: apikey.New(b.ledger),
		Config: api.Config{
			Secrets: tokens.Secrets, CORSOrigins: cfg.API.CORSOrigins, MaxUploadBytes: cfg.API.MaxUploadBytes,
			HeartbeatInterval: cfg.API.Heartbeat, TemporalUIURL: string(cfg.Temporal.UIURL),
			TemporalNamespace: cfg.Temporal.Namespace, PayloadKeys: keys, Production: cfg.Production, Version: probe.Version(),
			TurnTimeout: cfg.Turn.Timeout(), JobTimeout: cfg.Turn.JobTimeout,
			NumbersFrom: cfg.Conference.NumbersFrom, SignallingURL: string(cfg.Signalling.URL), SignallingDirect: cfg.Signalling.Direct,
			Admission: api.Admission{
				Queue: cfg.API.QueueMaxSize, Service: cfg.API.ServiceMaxSize, Executions: cfg.API.ExecutionsMax, PaidRate: cfg.API.PaidRate, FreeRate: cfg.API.FreeRate,
			},
			Conferences: conferenceRules(cfg.Conference), RecordWithin: cfg.Record.RetryFor(), PrivateWebhooks: cfg.Webhook.AllowPrivate, SignIn: signIn(cfg.Identity),
			TaskQueues: queues, ReconcileEvery: cfg.Reconcile.Every, CallWait: cfg.API.CallWait, CallHold: cfg.API.CallHold,
		},
		Logger: logger, Verifier: tokens,
	})
	if err != nil {
		return err
	}
	// Calls use their slots until the server has stopped.
	callCtx, stopCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCalls()
	making, callCtx := errgroup.WithContext(callCtx)
	making.Go(func() error { return slots.Run(callCtx) })
	making.Go(func() error { return calls.Run(callCtx) })
	g, ctx := errgroup.WithContext(ctx)
	checks := b.reported()
	if tokens.Provider != nil {
		checks[health.Identity] = tokens.Provider.Check
		g.Go(func() error { return tokens.Provider.Run(ctx) })
	}
	g.Go(func() error { return b.watchRedis(ctx) })
	g.Go(func() error { return hub.Run(ctx) })
	g.Go(func() error { return b.templates.run(ctx, func() {}) })
	g.Go(func() error { b.routing.Run(ctx, func() {}); return nil })
	g.Go(func() error { return proxy.Run(ctx) })
	g.Go(func() error { return nodes.Run(ctx) })
	g.Go(func() error { return positions.Run(ctx) })
	g.Go(func() error { return samples.Run(ctx) })
	g.Go(func() error { return room.Run(ctx) })
	g.Go(func() error { return calls.CancelAbandoned(ctx) })
	g.Go(func() error { return fleet.AnnounceAPI(ctx, b.scripts) })
	g.Go(func() error { probe.Watch(ctx, checks); return nil })
	g.Go(func() error {
		return Serve(ctx, "BERTH_HTTP_ADDR", api.NewServer(e, cfg.API.Addr, cfg.Telemetry.TrustTraceparent), stopGrace, logger)
	})
	err = g.Wait()
	stopCalls()
	return errors.Join(err, making.Wait())
}

// conferenceRules returns the rules of new conferences.
func conferenceRules(c config.Conference) workflows.ConferenceRules {
	return workflows.ConferenceRules{Retry: c.Retry, GiveUp: c.GiveUp, Command: c.Command, Connect: c.Connect, Empty: c.Empty, Zone: c.Zone}
}

// signIn returns the provider with which users of the page sign in.
func signIn(cfg config.Identity) api.SignIn {
	if cfg.ClientID == "" {
		return api.SignIn{}
	}
	return api.SignIn{Issuer: string(cfg.Issuer), ClientID: cfg.ClientID, Parameters: cfg.Parameters, Token: cfg.Token}
}

// verifier returns the verifier of bearer tokens. The identity provider may be unavailable: its keys are read later.
func verifier(cfg config.Identity, logger *slog.Logger) (*identity.Tokens, error) {
	secrets, err := cfg.Source(logger)
	if err != nil {
		return nil, err
	}
	tokens := &identity.Tokens{Secrets: secrets, Audiences: cfg.Audiences, Leeway: identity.DefaultLeeway}
	if options, ok := cfg.Provider(logger); ok {
		tokens.Provider, err = identity.NewProvider(options)
	}
	return tokens, err
}
