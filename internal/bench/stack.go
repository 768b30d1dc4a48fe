package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	temporal "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/app"
	"berth/internal/client"
	"berth/internal/config"
	"berth/internal/freeport"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/pause"
	"berth/internal/temporalconn"
	"berth/workflows"
)

const benchSecret = "a-secret-of-one-benchmark-run-only-0123456789"

// runner runs a kind of process until ctx ends.
type runner func(ctx context.Context, cfg config.Config, logger *slog.Logger, probe *health.Probe) error

// stack is an API and a worker in this process. They use the given Redis and Temporal and their own database and model
// provider.
type stack struct {
	cfg    config.Config
	client *client.Client
	url    string
	token  string
	stop   func() error
}

// dial connects to Temporal and discards the SDK's log messages.
func dial(ctx context.Context, cfg config.Config) (temporal.Client, error) {
	options, err := cfg.Temporal.Options(nil)
	if err != nil {
		return nil, err
	}
	c, err := temporalconn.Open(options)
	if err != nil {
		return nil, err
	}
	if _, err := c.CheckHealth(ctx, nil); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to Temporal: %w", err)
	}
	return c, nil
}

// requireNoOtherWorkers returns an error if another process polls the task queues, because tasks would run there and use
// its database.
func requireNoOtherWorkers(ctx context.Context, cfg config.Config) error {
	c, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	queue, err := c.DescribeTaskQueue(ctx, workflows.TaskQueueTasks, enums.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return fmt.Errorf("describe task queue: %w", err)
	}
	for _, p := range queue.GetPollers() {
		if age := time.Since(p.GetLastAccessTime().AsTime()); age < time.Minute && !strings.HasPrefix(p.GetIdentity(), strconv.Itoa(os.Getpid())+"@") {
			return fmt.Errorf("worker %s polls the task queues at %s: run the benchmark on separate servers (make bench)", p.GetIdentity(), cfg.Temporal.Addr)
		}
	}
	return nil
}

// open starts a stack with p as its model provider, and returns when it has run a task.
func open(ctx context.Context, cfg config.Config, p http.Handler) (h *stack, err error) {
	h, err = start(ctx, cfg, p, app.RunWorker)
	if err != nil {
		return nil, err
	}
	if err := h.wait(ctx); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// start starts an API, the given other processes, and the model provider p.
func start(ctx context.Context, cfg config.Config, p http.Handler, others ...runner) (h *stack, err error) {
	if err := requireNoOtherWorkers(ctx, cfg); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return nil, fmt.Errorf("create temporary directory: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start provider: %w", err)
	}
	srv := &http.Server{Handler: p, ReadHeaderTimeout: time.Second}
	ports, err := freeport.Find(1)
	if err != nil {
		return nil, err
	}
	cfg.API.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	cfg.Identity.Secrets = benchSecret
	cfg.Database = "sqlite:" + filepath.Join(dir, "berth.db")
	cfg.Model.LocalURL = "http://" + l.Addr().String() + "/v1"
	cfg.Model.DeepSeekKey, cfg.Model.ZhipuKey = "", ""
	cfg.Worker.UserSlots = 0 // all tasks belong to one user
	cfg.API.ServiceMaxSize, cfg.API.PaidRate, cfg.API.FreeRate = 0, 0, 0

	running, cancel := context.WithCancel(ctx)
	g, running := errgroup.WithContext(running)
	quiet := slog.New(slog.DiscardHandler)
	probe := health.New("bench", quiet)
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	for _, run := range append(others, app.RunAPI) {
		g.Go(func() error { return run(running, cfg, quiet, probe) })
	}
	h = &stack{cfg: cfg, stop: func() error {
		cancel()
		return errors.Join(srv.Close(), g.Wait(), os.RemoveAll(dir))
	}}
	token, err := identity.Issue(benchSecret, identity.Grant{
		UserID: benchUser, Scopes: identity.ScopeNames(), Nodes: []string{"*"}, TTL: time.Hour,
	})
	if err != nil {
		return nil, errors.Join(err, h.stop())
	}
	h.url, h.token = "http://"+cfg.API.Addr, token
	h.client = client.New(h.url, token)
	// Real users each have their own connection. Here they share a transport, which by default keeps only two idle ones.
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = parallel //nolint:errcheck // the standard library's own
	return h, nil
}

// benchUser has enough credits for every run.
const benchUser = "bench"

// wait returns when a task has run through every step: pollers have started, connections are open, caches are warm.
func (h *stack) wait(ctx context.Context) error {
	return pause.Until(ctx, 30*time.Second, 20*time.Millisecond, func(ctx context.Context) error {
		if _, err := h.client.AddCredits(ctx, benchUser, 1_000_000_000, "bench", "bench"); err != nil {
			return err
		}
		return h.run(ctx, streamTask(), func(berth.Event) {})
	})
}

// run submits a task and passes its events to on until it has completed.
func (h *stack) run(ctx context.Context, sub client.Submission, on func(berth.Event)) error {
	acc, err := h.client.Submit(ctx, sub, berth.NewID("")) // every run is a task of its own
	if err != nil {
		return err
	}
	var last berth.Event
	for ev, err := range h.client.Follow(ctx, acc.TaskID, "") {
		if err != nil {
			return err
		}
		last = ev.Event
		on(last)
	}
	if last.Type != berth.EventDone {
		return fmt.Errorf("task %s ended with %s: %s", acc.TaskID, last.Type, last.Message)
	}
	return nil
}

// streamTask returns the submission of a task with one streamed step.
func streamTask() client.Submission {
	return client.Submission{
		ServiceID: "bench", Template: "interview_prep", Locale: "en",
		Variables: map[string]any{"resume": "I write Go.", "jobText": "We look for an engineer who writes Go."},
	}
}
