// Package workers binds workflows and activities to their task queues, and stops them without losing work.
package workers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/activities"
	"berth/workflows"
)

// ModelQueue is one task queue of model calls and how many concurrent calls the model accepts.
type ModelQueue struct {
	Queue berth.Queue
	Model string
	Cap   int
}

// window bounds the calls of one model that run or wait for a slot in activities of one process, as a multiple of the
// model's cap. All further calls wait in Temporal's task queue.
const window = 4

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
	for _, q := range []struct {
		name string
		make func(client.Client, Activities, Options) worker.Worker
	}{
		{workflows.TaskQueueTasks, taskWorker},
		{workflows.TaskQueueTurns, turnWorker},
		{workflows.TaskQueueExecutions, executionWorker},
		{workflows.TaskQueueConferences, conferenceWorker},
		{workflows.TaskQueueLinks, linkWorker},
	} {
		if wanted(opts.Queues, q.name, "") {
			set, names = append(set, q.make(c, acts, opts)), append(names, q.name)
		}
	}
	for _, m := range opts.Models {
		name := berth.TaskQueue(m.Queue, m.Model)
		if !wanted(opts.Queues, string(m.Queue), name) {
			continue
		}
		set = append(set, modelWorker(c, acts.Tasks, m, opts))
		names = append(names, name)
	}
	if len(set) == 0 {
		return nil, nil, fmt.Errorf("none of the selected queues (%s) can be served by this process: check --queues and the providers' API keys",
			strings.Join(opts.Queues, ", "))
	}
	return set, names, nil
}

func wanted(selected []string, names ...string) bool {
	return len(selected) == 0 || slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(selected, n) })
}

func taskWorker(c client.Client, acts Activities, opts Options) worker.Worker {
	tasks := acts.Tasks
	w := worker.New(c, workflows.TaskQueueTasks, worker.Options{
		WorkerStopTimeout:                       opts.Drain,
		MaxConcurrentWorkflowTaskPollers:        4,
		MaxConcurrentLocalActivityExecutionSize: 200,
		LocalActivityWorkerOnly:                 true,
	})
	w.RegisterWorkflowWithOptions(workflows.Task, workflow.RegisterOptions{Name: workflows.TaskWorkflow})
	registerActivities(w, map[string]any{
		workflows.AcceptTaskActivity:   tasks.AcceptTask,
		workflows.WithdrawTaskActivity: tasks.WithdrawTask,
		workflows.FinishTaskActivity:   tasks.FinishTask,
		workflows.PublishEndActivity:   tasks.PublishEnd,
	})
	return w
}

// registerActivities registers activities under their wire names.
func registerActivities(w worker.Worker, byName map[string]any) {
	for name, fn := range byName {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

func modelWorker(c client.Client, tasks *activities.Tasks, m ModelQueue, opts Options) worker.Worker {
	w := worker.New(c, berth.TaskQueue(m.Queue, m.Model), worker.Options{
		// Longer than a step's own drain, so that the step can hand over before its context is cancelled.
		WorkerStopTimeout:                  opts.Drain + 5*time.Second,
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityTaskPollers:   2,
		MaxConcurrentActivityExecutionSize: window * max(m.Cap, 1),
	})
	w.RegisterActivityWithOptions(tasks.RunStep, activity.RegisterOptions{Name: workflows.RunStepActivity})
	return w
}
