package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	temporal "go.temporal.io/sdk/client"

	"berth"
	"berth/client"
	"berth/internal/config"
	"berth/internal/identity"
	"berth/internal/pause"
	"berth/internal/secret"
	"berth/internal/temporalconn"
	"berth/workflows"
)

const (
	benchSecret = "a-secret-of-one-benchmark-run-only-0123456789"
	// benchUser has enough credits for every run.
	benchUser = "bench"
	// opened bounds the wait until a process or a stack is ready.
	opened = 30 * time.Second
)

// stack is an API and workers, each a process of berth. They use the Redis and Temporal of the settings, and their own
// database and model provider.
type stack struct {
	berth  string // path of the program
	sim    string // of berth-sim
	cfg    config.Config
	client *client.Client
	url    string
	token  string
	tag    string // makes ids of this stack unique
	api    child
	worker child // of open
	env    []string
	dir    string
	model  *http.Server
	// modelURL is the address of model.
	modelURL string
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

// requireNoOtherWorkers returns an error if a process polls the task queues, because tasks would run there and use its database.
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
		if age := time.Since(p.GetLastAccessTime().AsTime()); age < time.Minute && !ownChild(p.GetIdentity()) {
			return fmt.Errorf("worker %s polls the task queues at %s: run the benchmark on separate servers (make bench)", p.GetIdentity(), cfg.Temporal.Addr)
		}
	}
	return nil
}

// open starts a stack with a worker and with p as its model provider, and returns when it has run a task. The settings are
// environment variables of its processes.
func (r *Run) open(ctx context.Context, p http.Handler, settings ...string) (h *stack, err error) {
	h, err = r.start(ctx, p, settings...)
	if err != nil {
		return nil, err
	}
	if h.worker, err = h.startWorker(ctx); err == nil {
		err = h.wait(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// start starts an API and the model provider p.
func (r *Run) start(ctx context.Context, p http.Handler, settings ...string) (h *stack, err error) {
	if err := requireNoOtherWorkers(ctx, r.Config); err != nil {
		return nil, err
	}
	h = &stack{berth: r.Berth.path, sim: r.Berth.sim, cfg: r.Config, tag: berth.NewID("")}
	if h.dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
		return nil, fmt.Errorf("create temporary directory: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start provider: %w", err)
	}
	h.model = &http.Server{Handler: p, ReadHeaderTimeout: time.Second}
	go func() { _ = h.model.Serve(l) }() // returns when closed
	h.modelURL = "http://" + l.Addr().String() + "/v1"
	if err := h.startAPI(ctx, settings); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// startAPI starts the API.
func (h *stack) startAPI(ctx context.Context, settings []string) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	h.cfg.Database = config.Database{URL: secret.Address("sqlite:" + filepath.Join(h.dir, "berth.db"))}
	h.env = append(append(h.cfg.Temporal.Environ(), "BERTH_REDIS_ADDR="+string(h.cfg.Redis.Addr), "BERTH_DATABASE="+string(h.cfg.Database.URL),
		"BERTH_HTTP_ADDR="+addr, "BERTH_AUTH_SECRET="+benchSecret, "BERTH_METRICS_ADDR=off",
		"BERTH_LOCAL_MODEL_URL="+h.modelURL, "DEEPSEEK_API_KEY=", "ZHIPUAI_API_KEY=", "BERTH_PROVIDER_KEYS=",
		"BERTH_DATABASE_FILE=", "BERTH_DATABASE_PASSWORD_FILE=", "BERTH_AUTH_SECRET_FILE=", // of the environment
		"DEEPSEEK_API_KEY_FILE=", "ZHIPUAI_API_KEY_FILE=", "BERTH_PROVIDER_KEYS_FILE=",
		"BERTH_USER_CONCURRENCY=0", "BERTH_SERVICE_MAX_SIZE=0", "BERTH_PAID_RATE=0", "BERTH_FREE_RATE=0", // all tasks belong to one user
	), settings...)
	if h.api, err = h.startProcess(ctx, "api"); err != nil {
		return err
	}
	h.token, err = identity.Issue(benchSecret, identity.Grant{
		UserID: benchUser, Scopes: identity.ScopeNames(), Nodes: []string{"*"}, TTL: time.Hour,
	})
	if err != nil {
		return err
	}
	h.url = "http://" + addr
	h.client = client.New(h.url, h.token)
	// Real users each have their own connection. Here they share a transport, which by default keeps only two idle ones.
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = parallel //nolint:errcheck // the standard library's own
	return h.putTemplates(ctx)
}

// stop ends all processes of the stack and removes its files.
func (h *stack) stop() error {
	h.worker.end()
	h.api.end()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:errcheck // the standard library's own
	return errors.Join(h.model.Close(), os.RemoveAll(h.dir))
}

// startWorker starts a worker process and returns when it is ready.
func (h *stack) startWorker(ctx context.Context) (child, error) { return h.startProcess(ctx, "worker") }

// startProcess starts a process of the stack and returns when it is ready.
func (h *stack) startProcess(ctx context.Context, command string) (child, error) {
	metrics, err := freeAddr()
	if err != nil {
		return child{}, err
	}
	c, err := startChild(ctx, h.berth, append(h.env, "BERTH_METRICS_ADDR="+metrics, "BERTH_LOG_LEVEL=error"), command)
	if err != nil {
		return child{}, err
	}
	err = pause.Until(ctx, opened, 50*time.Millisecond, func(ctx context.Context) error { return ready(ctx, "http://"+metrics+"/readyz") })
	if err != nil {
		c.kill()
		return child{}, fmt.Errorf("%s not ready: %w", command, err)
	}
	return c, nil
}

func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%s responds %s", url, res.Status))
	}
	return nil
}

// wait returns when a task has run through every step: pollers have started, connections are open, caches are warm.
func (h *stack) wait(ctx context.Context) error {
	return pause.Until(ctx, opened, 20*time.Millisecond, func(ctx context.Context) error {
		if _, err := h.client.AddCredits(ctx, benchUser, 1_000_000*berth.Credit, "bench", "bench"); err != nil {
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
		ServiceID: "bench", Template: streamTemplate, Locale: berth.LocaleEN,
		Variables: map[string]any{"text": "I write Go."},
	}
}

// ownChild reports whether the identity of a poller is that of this process or of one that it started.
func ownChild(identity string) bool {
	pid, _, _ := strings.Cut(identity, "@")
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	if n == os.Getpid() {
		return true
	}
	_, ok := started.Load(n)
	return ok
}
