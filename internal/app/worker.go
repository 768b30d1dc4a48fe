package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/activities"
	"berth/internal/config"
	"berth/internal/fleet"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/sim"
	"berth/internal/stream"
	"berth/workers"
)

// RunWorker works task queues until ctx ends; running steps finish or are handed over within the drain time.
func RunWorker(ctx context.Context, cfg config.Config, logger *slog.Logger) error {
	b, err := connect(ctx, cfg, logger)
	if err != nil {
		return err
	}
	defer b.close(logger)
	slots := lease.New(b.scripts, lease.Options{ProcessID: processID(), Caps: b.catalog.Cap, MaxHold: cfg.Worker.LockTimeout(), Logger: logger})
	running := activities.NewRunning(b.scripts, logger)
	tasks := &activities.Tasks{
		Ledger: b.ledger,
		Streams: stream.NewPublisher(b.scripts, stream.Options{
			FlushInterval: cfg.Stream.FlushInterval(), FlushSize: cfg.Stream.FlushSize,
			TTL: cfg.Stream.TTL(), TrimMaxLen: cfg.Stream.TrimMaxLen, Production: cfg.Production, Logger: logger,
		}),
		Slots: slots, Models: llm.NewClient(b.catalog, nil, logger), Catalog: b.catalog, Running: running,
		Options: activities.TaskOptions{
			CallTimeout: cfg.Worker.CallTimeout(), Drain: cfg.Worker.Drain, Debug: cfg.Model.Debug && !cfg.Production,
		},
		Logger: logger,
	}
	nodes := fleet.New(b.scripts, fleet.Options{Logger: logger})
	stories := workers.Stories{
		Tasks: tasks,
		Turns: &activities.Turns{
			Scripts: b.scripts, Fleet: nodes, Logger: logger,
			StreamTTL: time.Hour, StreamTrim: cfg.Stream.TrimMaxLen,
		},
		Executions: &activities.Executions{Scripts: b.scripts, Fleet: nodes, Logger: logger},
		Conferences: &activities.Conferences{
			Ledger: b.ledger, Scripts: b.scripts, Fleet: nodes, Temporal: b.temporal, Logger: logger,
			StreamTTL: time.Hour, StreamTrim: cfg.Stream.TrimMaxLen,
			Licences: cfg.Conference.Licences, WaitingKeepsLicence: cfg.Conference.WaitingKeepsLicence,
		},
		Links: &activities.Links{Temporal: b.temporal, Ledger: b.ledger, Scripts: b.scripts, Logger: logger},
	}
	sweeper := fleet.NewSweeper(nodes, fleet.SweeperOptions{
		Restore: func(ctx context.Context) error {
			written, err := b.ledger.RestoreFleet(ctx, b.scripts)
			if written > 0 {
				logger.InfoContext(ctx, "the operators' settings were written to Redis again", "settings", written)
			}
			return err
		},
		OnNotice: func(ctx context.Context, n berth.NodeNotice) error { return workers.StartLink(ctx, b.temporal, n) },
		Confirm: func(ctx context.Context, kind berth.NodeKind) (bool, error) {
			return workers.ConfirmLoss(ctx, b.temporal, nodes.Snapshot(), kind)
		},
		OnGrace: func(ctx context.Context, until time.Time) error { return workers.StartReassert(ctx, b.temporal, until) },
		OnRoom:  stories.Links.WakeFor,
		Logger:  logger,
	})
	// What steps stand on outlives them: it ends after the workers have stopped.
	standing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	below, standing := errgroup.WithContext(standing)
	below.Go(func() error { return slots.Run(standing) })
	below.Go(func() error { return running.Run(standing) })
	below.Go(func() error { return nodes.Run(standing) })
	below.Go(func() error { return sweeper.Run(standing) })
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(standing, cancel)
	err = workers.Run(working, b.temporal, stories, workers.Options{
		Queues: cfg.Worker.Queues, Models: modelQueues(b.catalog, logger), Drain: cfg.Worker.Drain, Logger: logger,
	})
	stop()
	if berr := below.Wait(); err == nil {
		err = berr
	}
	return err
}

// modelQueues are those of the models that this process can call. Tasks of the others wait for a worker that can: one
// without the key would fail them for good.
func modelQueues(c *llm.Catalog, logger *slog.Logger) []workers.ModelQueue {
	var out []workers.ModelQueue
	for _, name := range c.TaskQueues() {
		queue, model, _ := strings.Cut(name, ".")
		if err := c.Served(model); err != nil {
			logger.Warn("not polling: this process cannot call the model", "queue", name, "error", err)
			continue
		}
		out = append(out, workers.ModelQueue{Queue: berth.Queue(queue), Model: model, Cap: c.Cap(model)})
	}
	return out
}

// processID names this process in lease ids; it is new at every start.
func processID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s.%d.%d", strings.ReplaceAll(host, "/", "-"), os.Getpid(), time.Now().UnixMilli())
}

// ModelServer is the local stand-in model's settings.
type ModelServer struct {
	Addr            string        `help:"Address the model server listens on." name:"model-addr" env:"BERTH_MODEL_ADDR" default:"127.0.0.1:8090"`
	TokensPerSecond float64       `help:"Speed of the answers; 0 is as fast as possible." name:"model-tokens-per-second" env:"BERTH_MODEL_TOKENS_PER_SECOND" default:"120"`
	FirstTokenDelay time.Duration `help:"Pause before the first token." name:"model-first-token-delay" env:"BERTH_MODEL_FIRST_TOKEN_DELAY" default:"300ms"`
	Concurrency     int           `help:"Calls per model at once, above which it answers 429; 0 is no limit." name:"model-concurrency" env:"BERTH_MODEL_CONCURRENCY" default:"0"`
}

// RunModelServer serves the local stand-in model until ctx ends.
func RunModelServer(ctx context.Context, m ModelServer, logger *slog.Logger) error {
	srv := &http.Server{
		Addr: m.Addr, ReadHeaderTimeout: 5 * time.Second,
		Handler: sim.ModelServer(sim.Options{
			Logger: logger, TokensPerSecond: m.TokensPerSecond, FirstTokenDelay: m.FirstTokenDelay, Concurrency: m.Concurrency,
		}),
	}
	return serve(ctx, srv, time.Second, logger.With("part", "model server"))
}
