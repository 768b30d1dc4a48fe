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

// ModelQueue is one task queue of model calls and how many calls the model takes at once.
type ModelQueue struct {
	Queue berth.Queue
	Model string
	Cap   int
}

// window is how many times a model's cap may wait inside activities of one process, in the model's Redis
// waiting room; the long tail waits in Temporal's task queue.
const window = 4

// Options say what a process polls.
type Options struct {
	// Queues selects: "tasks", "turns", "executions", "conferences", "links", a queue, or one queue and model. Empty means everything.
	Queues []string
	Models []ModelQueue
	// Drain is how long a stopping worker waits for its activities.
	Drain  time.Duration
	Logger *slog.Logger
}

// Stories are the side effects of every workflow.
type Stories struct {
	Tasks       *activities.Tasks
	Turns       *activities.Turns
	Executions  *activities.Executions
	Conferences *activities.Conferences
	Links       *activities.Links
}

// Run polls until ctx ends or a worker fails for good, then stops all of them, letting running steps finish or
// hand over within Drain (X7).
func Run(ctx context.Context, c client.Client, stories Stories, opts Options) error {
	set, names, err := build(c, stories, opts)
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
	opts.Logger.Info("workers are polling", "queues", names)
	<-ctx.Done()
	opts.Logger.Info("workers are stopping", "drain", opts.Drain)
	return nil
}

func build(c client.Client, stories Stories, opts Options) (set []worker.Worker, names []string, err error) {
	for _, q := range []struct {
		name string
		make func(client.Client, Stories, Options) worker.Worker
	}{
		{workflows.TaskQueueTasks, taskWorker},
		{workflows.TaskQueueTurns, turnWorker},
		{workflows.TaskQueueExecutions, executionWorker},
		{workflows.TaskQueueConferences, conferenceWorker},
		{workflows.TaskQueueLinks, linkWorker},
	} {
		if wanted(opts.Queues, q.name, "") {
			set, names = append(set, q.make(c, stories, opts)), append(names, q.name)
		}
	}
	for _, m := range opts.Models {
		name := berth.TaskQueue(m.Queue, m.Model)
		if !wanted(opts.Queues, string(m.Queue), name) {
			continue
		}
		set = append(set, modelWorker(c, stories.Tasks, m, opts))
		names = append(names, name)
	}
	if len(set) == 0 {
		return nil, nil, fmt.Errorf("no task queue that this process can serve matches %s", strings.Join(opts.Queues, ", "))
	}
	return set, names, nil
}

func wanted(selected []string, names ...string) bool {
	return len(selected) == 0 || slices.ContainsFunc(names, func(n string) bool { return n != "" && slices.Contains(selected, n) })
}

func taskWorker(c client.Client, stories Stories, opts Options) worker.Worker {
	tasks := stories.Tasks
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

// registerActivities binds activities to their wire names.
func registerActivities(w worker.Worker, byName map[string]any) {
	for name, fn := range byName {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

func modelWorker(c client.Client, tasks *activities.Tasks, m ModelQueue, opts Options) worker.Worker {
	w := worker.New(c, berth.TaskQueue(m.Queue, m.Model), worker.Options{
		// A step's own drain ends first, so that it hands over instead of being cut.
		WorkerStopTimeout:                  opts.Drain + 5*time.Second,
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityTaskPollers:   2,
		MaxConcurrentActivityExecutionSize: window * max(m.Cap, 1),
	})
	w.RegisterActivityWithOptions(tasks.RunStep, activity.RegisterOptions{Name: workflows.RunStepActivity})
	return w
}
