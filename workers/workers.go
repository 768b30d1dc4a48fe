// Package workers binds workflows and activities to their task queues, and stops them without losing work.
package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/activities"
	"berth/internal/health"
)

// maxCalls bounds the calls of one task queue that run or wait for a slot in activities of one process. It does not depend on
// the model's cap, which operators change while processes run: the waiting room limits how many calls are due.
const maxCalls = 1000

// AllModels selects the task queues of all models.
const AllModels = "models"

// Options configures what a process polls.
type Options struct {
	// Queues selects the task queues to poll: "tasks", "turns", "executions", "conferences", "links", "webhooks", "models" for the calls of
	// all models, or one model, such as "model.deepseek-chat". Empty selects all of them.
	Queues []string
	// Models returns the models that the process serves now, and Changed receives when there may be others. A model that it does not return
	// any more is not polled any more, and its running calls continue. Polled gets the names of all queues that are selected, before new ones
	// are polled.
	Models  func(ctx context.Context) []string
	Changed <-chan struct{}
	Polled  func(names []string)
	// Drain is how long activities may continue after the process is stopped.
	Drain time.Duration
	// Deployment and BuildID are the name and the version of the worker deployment. Without a name, workers have no version.
	Deployment, BuildID string
	// Gate has the dependencies in package health.
	Gate   *health.Gate
	Logger *slog.Logger
}

// Activities holds the activities of every workflow.
type Activities struct {
	Tasks       *activities.Tasks
	Turns       *activities.Turns
	Executions  *activities.Executions
	Conferences *activities.Conferences
	Links       *activities.Links
	Retention   *activities.Retention
	Reconciler  *activities.Reconciler
	Records     *activities.Records
	Webhooks    *activities.Webhooks
}

// Run polls the selected task queues until ctx ends, and then stops. Queues of models are added and removed meanwhile. Running activities
// get Drain to finish or to hand over their work. While something is unavailable that the work of a queue needs, the queue is not polled, and the runs that are
// cached here continue on another worker. The SDK cannot pause a worker and cannot restart a stopped one, so each time in which
// everything is available has workers of its own.
func Run(ctx context.Context, c client.Client, acts Activities, opts Options) error {
	if opts.Deployment != "" && opts.BuildID == "" {
		return fmt.Errorf("the worker deployment %s has no version: set BERTH_BUILD_ID", opts.Deployment)
	}
	all := workflowQueues(acts, opts)
	models := &modelQueues{opts: opts, tasks: acts.Tasks}
	if opts.Deployment != "" {
		// All processes of the version count together, so the selection of this one does not matter.
		models.max = maxVersionQueues - len(all)
		opts.Logger.InfoContext(ctx, "workers have a version: new runs begin on it when it is current", "deployment", opts.Deployment, "version", opts.BuildID)
	}
	first := slices.DeleteFunc(all, func(q queue) bool { return !wanted(opts.Queues, q.name) })
	ofModels, _ := models.next(ctx)
	if len(first)+len(ofModels) == 0 && !opts.awaitsModels() {
		return fmt.Errorf("none of the selected queues (%s) can be served by this process: check --queues and the providers' API keys",
			strings.Join(opts.Queues, ", "))
	}
	var running errgroup.Group
	changed := make(chan []queue, 1)
	serving := groups(first)
	if len(ofModels) > 0 || opts.awaitsModels() {
		serving = append(serving, &group{needs: needsOfModels, queues: ofModels, changed: changed})
	}
	for _, g := range serving {
		g.client, g.opts = c, opts
		running.Go(func() error { g.run(ctx); return nil })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-opts.Changed:
			if queues, other := models.next(ctx); other {
				select {
				case <-changed: // the group has not seen it
				default:
				}
				changed <- queues
			}
		}
	}
	return running.Wait()
}

// group is the selected queues that need the same.
type group struct {
	needs   needs
	queues  []queue
	changed <-chan []queue // receives the queues that replace those of the group
	client  client.Client
	opts    Options
}

// groups returns the queues by what they need.
func groups(queues []queue) (groups []*group) {
	for _, q := range queues {
		i := slices.IndexFunc(groups, func(g *group) bool { return g.needs == q.needs })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{needs: q.needs})
		}
		groups[i].queues = append(groups[i].queues, q)
	}
	return groups
}

// awaitsModels reports whether queues are selected that templates may begin to use.
func (o Options) awaitsModels() bool {
	return len(o.Queues) == 0 || slices.ContainsFunc(o.Queues, func(name string) bool { return name == AllModels || strings.HasPrefix(name, berth.ModelTaskQueues) })
}

// run runs workers whenever everything that they need is available, until ctx ends.
func (g *group) run(ctx context.Context) {
	var stopping sync.WaitGroup
	for lost := false; ctx.Err() == nil; {
		if missing := g.opts.Gate.Missing(g.needs.dependencies()...); len(missing) > 0 && !lost && len(g.queues) > 0 { // else they have stopped with the reason
			g.opts.Logger.InfoContext(ctx, "workers wait", "queues", g.names(), "unavailable", missing)
		}
		available, release, err := g.opts.Gate.Await(ctx, g.needs.dependencies()...)
		if err != nil {
			break
		}
		running := map[string]worker.Worker{}
		g.serve(available, ctx.Done(), running, &stopping)
		if ctx.Err() == nil && len(running) > 0 {
			reason := []any{"queues", g.names(), "reason", context.Cause(available)}
			if u, ok := errors.AsType[*health.UnavailableError](context.Cause(available)); ok && u.Err != nil {
				reason = append(reason, "error", u.Err)
			}
			g.opts.Logger.InfoContext(ctx, "workers stopping", reason...) // the probe warns
			lost = true
		}
		release()
		for _, w := range running {
			stopping.Go(w.Stop)
		}
	}
	if len(g.queues) > 0 {
		g.opts.Logger.Info("workers stopping", "queues", g.names(), "drain", g.opts.Drain)
	}
	stopped := make(chan struct{})
	go func() { stopping.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(g.opts.Drain + handOverTime):
		g.opts.Logger.Warn("activities still running after the drain time", "queues", g.names())
	}
}

// handOverTime is how long activities may take after the drain time to hand over their work.
const handOverTime = 5 * time.Second

// serve keeps a worker running for each queue of the group, by its name, for as long as everything is available. Those of queues that leave the
// group stop once their activities have ended.
func (g *group) serve(available context.Context, ended <-chan struct{}, running map[string]worker.Worker, stopping *sync.WaitGroup) {
	for {
		var started, stopped []string
		var again <-chan time.Time
		for _, q := range g.queues {
			if running[q.name] != nil {
				continue
			}
			w := q.worker(available, g.client, ended, g.opts)
			if err := w.Start(); err != nil {
				g.opts.Logger.WarnContext(available, "worker not started; retrying", "queue", q.name, "error", err)
				again = time.After(time.Second)
				continue
			}
			running[q.name] = w
			started = append(started, q.name)
		}
		for name, w := range running {
			if !slices.ContainsFunc(g.queues, func(q queue) bool { return q.name == name }) {
				delete(running, name)
				stopping.Go(w.Stop)
				stopped = append(stopped, name)
			}
		}
		if len(started) > 0 {
			g.opts.Logger.InfoContext(available, "workers started", "queues", started)
		}
		if len(stopped) > 0 {
			g.opts.Logger.InfoContext(available, "queues not polled any more", "queues", stopped)
		}
		select {
		case <-available.Done():
			return
		case g.queues = <-g.changed:
		case <-again:
		}
	}
}

// maxVersionQueues is how many task queues Temporal accepts in a version of a deployment (matching.maxTaskQueuesInDeploymentVersion).
const maxVersionQueues = 100

func (g *group) names() (names []string) {
	for _, q := range g.queues {
		names = append(names, q.name)
	}
	return names
}

func wanted(selected []string, names ...string) bool {
	return len(selected) == 0 || slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(selected, n) })
}
