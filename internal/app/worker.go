package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/activities"
	"berth/internal/breaker"
	"berth/internal/config"
	"berth/internal/fleet"
	"berth/internal/health"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/pause"
	"berth/internal/payload"
	"berth/internal/placement"
	"berth/internal/routing"
	"berth/internal/starter"
	"berth/internal/stream"
	"berth/internal/waiting"
	"berth/internal/webhook"
	"berth/lua"
	"berth/workers"
	"berth/workflows"
)

// The bounds of chunks of OpenAI's protocol that are published together.
const (
	chunkInterval = 30 * time.Millisecond
	chunkBatch    = 64
)

// RunWorker polls task queues until ctx ends. Running steps then finish or are handed over within the drain time.
func RunWorker(ctx context.Context, cfg config.Config, logger *slog.Logger, probe *health.Probe) error {
	logger = probe.Quiet(logger)
	b, err := connect(ctx, cfg, logger, probe)
	if err != nil {
		return err
	}
	defer b.close(logger)
	slots := lease.New(b.scripts, lease.Options{
		ProcessID: processID(), Limits: modelLimits(b.routing, cfg.Worker.UserSlots), MaxHold: cfg.Worker.CallTimeout() + activities.HoldMargin, Logger: logger,
	})
	keys, err := cfg.Temporal.Keys()
	if err != nil {
		return err
	}
	calls := &starter.Starter{Client: b.temporal, Namespace: b.namespace, Converter: payload.NewDataConverter(keys)}
	onDeliveries, added := activities.AddedDeliveries()
	b.ledger.OnDeliveries(onDeliveries)
	room := b.waitingRoom(cfg, calls, logger)
	running := activities.NewRunning(b.scripts, logger)
	published := stream.Options{
		FlushInterval: cfg.Stream.FlushInterval(), FlushSize: cfg.Stream.FlushSize,
		TTL: cfg.Stream.TTL(), TrimMaxLen: cfg.Stream.TrimMaxLen, Production: cfg.Production, Logger: logger,
	}
	chunks := published
	chunks.FlushInterval, chunks.FlushSize, chunks.TrimMaxLen = chunkInterval, chunkBatch, 0
	tasks := &activities.Tasks{
		Ledger:  b.ledger,
		Streams: stream.NewPublisher(b.scripts, published),
		Chunks:  stream.NewPublisher(b.scripts, chunks),
		Slots:   slots, Models: llm.NewClient(b.routing.Of, nil, logger), Catalog: b.routing.Of, Templates: b.templates.Catalog, Running: running,
		Scripts: b.scripts, Waiting: room, Breaker: breaker.New(b.scripts, logger),
		Options: activities.TaskOptions{
			CallTimeout: cfg.Worker.CallTimeout(), MaxAnswers: cfg.Worker.StepAnswers, Drain: cfg.Worker.Drain, Debug: cfg.Model.Debug && !cfg.Production,
			KeepStreamed: cfg.Worker.KeepStreamed,
		},
		Logger: logger,
	}
	var records *webhook.Sender
	if cfg.Record.URL != "" {
		if records, err = webhook.New(cfg.Record.Options()); err != nil {
			return err
		}
	}
	nodes := fleet.New(b.scripts, fleet.Options{Logger: logger})
	placer := placement.New(b.scripts, nodes)
	gate := health.NewGate(b.checks())
	nodeSlots := activities.NodeSlots{Scripts: b.scripts, Fleet: nodes, Logger: logger}
	acts := workers.Activities{
		Tasks: tasks,
		Turns: &activities.Turns{
			NodeSlots: nodeSlots, Placer: placer,
			StreamTTL: time.Hour, StreamTrim: cfg.Stream.TrimMaxLen,
		},
		Executions: &activities.Executions{NodeSlots: nodeSlots, Ledger: b.ledger, Placer: placer, Gate: gate},
		Conferences: &activities.Conferences{
			NodeSlots: nodeSlots, Ledger: b.ledger, Placer: placer, Starter: calls,
			StreamTTL: time.Hour, StreamTrim: cfg.Stream.TrimMaxLen,
			Licences: cfg.Conference.Licences, WaitingKeepsLicence: cfg.Conference.WaitingKeepsLicence,
			RecordWithin: cfg.Record.RetryFor(),
		},
		Records: &activities.Records{Ledger: b.ledger, Webhook: records, Logger: logger},
		Webhooks: &activities.Webhooks{
			Ledger: b.ledger, Starter: calls, AllowPrivate: cfg.Webhook.AllowPrivate, Logger: logger,
		},
		Links: &activities.Links{Starter: calls, Ledger: b.ledger, Scripts: b.scripts, Logger: logger},
		Retention: &activities.Retention{
			Ledger: b.ledger, Texts: cfg.Retention.Texts, Rows: cfg.Retention.Rows, Logger: logger,
		},
	}
	acts.Reconciler = &activities.Reconciler{
		Ledger: b.ledger, Scripts: b.scripts, Starter: calls, Tasks: tasks, Turns: acts.Turns, Executions: acts.Executions,
		Conferences: acts.Conferences, Health: probe.Report, Logger: logger,
		Options: activities.ReconcileOptions{
			FullEvery: cfg.Reconcile.FullEvery, Pause: cfg.Reconcile.Pause, MaxRepairs: maxRepairs,
			MaxFindings: cfg.Reconcile.MaxFindings, Queues: func() []berth.Queue { return b.routing.Current().Queues() }, Disabled: cfg.Reconcile.Disabled(), Conferences: conferenceRules(cfg.Conference),
		},
	}
	sweeper := fleet.NewSweeper(nodes, fleet.SweeperOptions{
		Restore: func(ctx context.Context) error {
			written, err := fleet.RestoreSettings(ctx, b.ledger, b.scripts)
			if written > 0 {
				logger.InfoContext(ctx, "operator settings restored to Redis", "settings", written)
			}
			return err
		},
		OnNotice: calls.NotifyLink,
		Confirm: func(ctx context.Context, kind berth.NodeKind) (bool, error) {
			return calls.ConfirmLoss(ctx, nodes.Snapshot().Nodes, kind)
		},
		OnGrace:    calls.RestoreState,
		OnCapacity: acts.Links.WakeFor,
		Logger:     logger,
	})
	// Steps use these services until they finish, so the services stop after the workers.
	serviceCtx, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServices()
	services, serviceCtx := errgroup.WithContext(serviceCtx)
	services.Go(func() error { return b.watchRedis(serviceCtx) })
	workerCtx, stopWorkers := context.WithCancel(ctx)
	defer stopWorkers()
	polled, check := newPolled(b, logger), newRoutingCheck(b, logger)
	options := workers.Options{
		Queues: cfg.Worker.Queues, Models: polled.models, Changed: polled.changed, Polled: polled.set, Drain: cfg.Worker.Drain,
		Gate: gate, Logger: logger, Deployment: cfg.Rollout.Deployment, BuildID: cfg.Rollout.BuildID,
	}
	tasks.Breaker.Begin(b.routing.Current().Models())
	services.Go(func() error { options.Gate.Run(serviceCtx); return nil })
	services.Go(func() error { return slots.Run(serviceCtx) })
	services.Go(func() error { return room.Run(serviceCtx) })
	services.Go(func() error { return running.Run(serviceCtx) })
	services.Go(func() error { return nodes.Run(serviceCtx) })
	services.Go(func() error { return acts.Webhooks.StartDeliveries(serviceCtx, added) })
	services.Go(func() error { polled.mark(workerCtx); return nil })
	services.Go(func() error { polled.watch(workerCtx); return nil })
	services.Go(func() error {
		b.routing.Run(serviceCtx, func() { tasks.Breaker.Begin(b.routing.Current().Models()); polled.change(); check.request() })
		return nil
	})
	services.Go(func() error { return b.templates.run(serviceCtx, func() { polled.change(); check.request() }) })
	services.Go(func() error { check.run(serviceCtx); return nil })
	services.Go(func() error { return sweeper.Run(serviceCtx) })
	services.Go(func() error { probe.Watch(ctx, b.reported()); return nil })
	if len(cfg.Worker.Queues) == 0 || slices.Contains(cfg.Worker.Queues, workflows.TaskQueueLinks) {
		acts.Reconciler.BeginCounters(ctx)
		services.Go(func() error { schedule(serviceCtx, "retention", calls.ScheduleRetention, logger); return nil })
		services.Go(func() error {
			schedule(serviceCtx, "reconciliation", func(ctx context.Context) error {
				return calls.ScheduleReconcile(ctx, cfg.Reconcile.Every)
			}, logger)
			return nil
		})
	}
	context.AfterFunc(serviceCtx, stopWorkers)
	err = workers.Run(workerCtx, b.temporal, acts, options)
	stopServices()
	if serviceErr := services.Wait(); err == nil {
		err = serviceErr
	}
	return err
}

// maxRepairs is how many differences one pass of the reconciliation repairs; the next one continues.
const maxRepairs = 200

// schedule creates a Temporal Schedule, and retries while Temporal is unavailable.
func schedule(ctx context.Context, name string, create func(context.Context) error, logger *slog.Logger) {
	for backoff := pause.NewBackoff(time.Second, time.Minute); ; {
		err := create(ctx)
		if err == nil {
			return
		}
		logger.WarnContext(ctx, "schedule not created; retrying", "dependency", health.Temporal, "schedule", name, "error", err)
		if !backoff.Wait(ctx) {
			return
		}
	}
}

// waitingRoom returns the access of this process to the tasks that wait for models.
func (b *base) waitingRoom(cfg config.Config, calls *starter.Starter, logger *slog.Logger) *waiting.Room {
	return waiting.New(b.scripts, waiting.Options{
		Models: b.models, Limits: modelLimits(b.routing, cfg.Worker.UserSlots), Signal: calls.SignalPromoted, SignalHandover: calls.SignalHandover,
		Logger: logger,
	})
}

// models returns the names of the models whose calls may wait.
func (b *base) models() []string { return b.routing.Current().Names() }

// modelLimits returns the configured limits of a model at the moment of the call.
func modelLimits(r *routing.Routing, userSlots int) func(model string) lua.ModelLimits {
	type known struct {
		of     *routing.Snapshot
		limits func(model string) lua.ModelLimits
	}
	var last atomic.Pointer[known]
	return func(model string) lua.ModelLimits {
		now, k := r.Current(), last.Load()
		if k == nil || k.of != now {
			k = &known{now, limitsOf(now, userSlots)}
			last.Store(k)
		}
		return k.limits(model)
	}
}

// limitsOf returns the limits of a model in a snapshot.
func limitsOf(c *routing.Snapshot, userSlots int) func(model string) lua.ModelLimits {
	all := map[string]lua.ModelLimits{}
	for _, name := range c.Names() {
		all[name] = c.LimitsOf(name, userSlots)
	}
	return func(model string) lua.ModelLimits {
		if l, ok := all[model]; ok {
			return l
		}
		return c.LimitsOf(model, userSlots)
	}
}

// processID returns the id of this process in lease ids. It is different at every start.
func processID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s.%d.%d", strings.ReplaceAll(host, "/", "-"), os.Getpid(), time.Now().UnixMilli())
}
