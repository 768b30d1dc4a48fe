// Package workers binds workflows and activities to their task queues, and stops them without losing work.
package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/activities"
)

// ModelQueue is one task queue of model calls.
type ModelQueue struct {
	Queue berth.Queue
	Model string
}

// maxCalls bounds the calls of one task queue that run or wait for a slot in activities of one process. It does not depend on
// the model's cap, which operators change while processes run: the waiting room limits how many calls are due.
const maxCalls = 1000

// Options configures what a process polls.
type Options struct {
	// Queues selects the task queues to poll: "tasks", "turns", "executions", "conferences", "links", a queue such as
	// "q_paid_stream", or one model of a queue. Empty selects all of them.
	Queues []string
	Models []ModelQueue
	// Drain is how long a stopping worker waits for its activities.
	Drain  time.Duration
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
}

// Run starts a worker for each selected task queue, polls until ctx ends, and then stops all workers. Running activities
// get Drain to finish or to hand over their work.
func Run(ctx context.Context, c client.Client, acts Activities, opts Options) error {
	set, names, err := build(c, acts, opts)
	if err != nil {
		return err
	}
	started := 0
	defer func() {
		var stop errgroup.Group
		for _, w := range set[:started] {
			stop.Go(func() error { w.Stop(); return nil })
		}
		_ = stop.Wait() // Stop has no error
	}()
	for i, w := range set {
		if err := w.Start(); err != nil {
			return fmt.Errorf("start worker %s: %w", names[i], err)
		}
		started++
	}
	opts.Logger.Info("workers started", "queues", names)
	<-ctx.Done()
	opts.Logger.Info("workers stopping", "drain", opts.Drain)
	return nil
}

func build(c client.Client, acts Activities, opts Options) (set []worker.Worker, names []string, err error) {
	for _, q := range workflowQueues(acts, opts) {
		if wanted(opts.Queues, q.name, "") {
			set, names = append(set, q.worker(c)), append(names, q.name)
		}
	}
	for _, m := range opts.Models {
		if name := berth.TaskQueue(m.Queue, m.Model); opts.polls(m) {
			set, names = append(set, modelQueue(name, acts.Tasks, opts).worker(c)), append(names, name)
		}
	}
	if len(set) == 0 {
		return nil, nil, fmt.Errorf("none of the selected queues (%s) can be served by this process: check --queues and the providers' API keys",
			strings.Join(opts.Queues, ", "))
	}
	return set, names, nil
}

// ModelQueues returns the task queues of model calls that a process with these options polls.
func (o Options) ModelQueues() (names []string) {
	for _, m := range o.Models {
		if o.polls(m) {
			names = append(names, berth.TaskQueue(m.Queue, m.Model))
		}
	}
	return names
}

func (o Options) polls(m ModelQueue) bool {
	return wanted(o.Queues, string(m.Queue), berth.TaskQueue(m.Queue, m.Model))
}

func wanted(selected []string, names ...string) bool {
	return len(selected) == 0 || slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(selected, n) })
}
