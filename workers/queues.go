package workers

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/activities"
	"berth/workflows"
)

// queue is a task queue with the workflows and activities that its worker registers, by their wire names.
type queue struct {
	name       string
	options    worker.Options
	workflows  map[string]any
	activities map[string]any
}

func (q queue) worker(c client.Client) worker.Worker {
	w := worker.New(c, q.name, q.options)
	for name, fn := range q.workflows {
		w.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	}
	for name, fn := range q.activities {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return w
}

// workflowQueues returns the task queues of the workflows.
func workflowQueues(acts Activities, opts Options) []queue {
	tasks, turns, executions, conferences, links := acts.Tasks, acts.Turns, acts.Executions, acts.Conferences, acts.Links
	return []queue{{
		name: workflows.TaskQueueTasks,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			MaxConcurrentWorkflowTaskPollers:        4,
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
		},
		workflows: map[string]any{workflows.TaskWorkflow: workflows.Task},
		activities: map[string]any{
			workflows.AcceptTaskActivity:   tasks.AcceptTask,
			workflows.WithdrawTaskActivity: tasks.WithdrawTask,
			workflows.EnterTaskActivity:    tasks.EnterTask,
			workflows.FinishTaskActivity:   tasks.FinishTask,
			workflows.PublishEndActivity:   tasks.PublishEnd,
		},
	}, {
		name: workflows.TaskQueueTurns,
		options: worker.Options{
			WorkerStopTimeout:                opts.Drain,
			MaxConcurrentWorkflowTaskPollers: 4,
			LocalActivityWorkerOnly:          true,
			// A turn whose worker died continues on another worker after this time; the user is waiting for its results.
			StickyScheduleToStartTimeout: time.Second,
		},
		workflows: map[string]any{workflows.TurnWorkflow: workflows.Turn},
		activities: map[string]any{
			workflows.DispatchJobActivity:       turns.DispatchJob,
			workflows.ConfirmSlotsActivity:      turns.ConfirmSlots,
			workflows.ReleaseSlotsActivity:      turns.ReleaseSlots,
			workflows.CheckAvailabilityActivity: turns.CheckAvailability,
			workflows.FinalizeTurnActivity:      turns.FinalizeTurn,
			workflows.PublishTurnActivity:       turns.PublishTurn,
		},
	}, {
		name: workflows.TaskQueueExecutions,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			MaxConcurrentWorkflowTaskPollers:        4,
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
		},
		workflows: map[string]any{workflows.ExecutionWorkflow: workflows.Execution},
		activities: map[string]any{
			workflows.AssignNodeActivity:  executions.AssignNode,
			workflows.ConfirmNodeActivity: executions.ConfirmNode,
			workflows.ReleaseNodeActivity: executions.ReleaseNode,
		},
	}, {
		name: workflows.TaskQueueConferences,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			MaxConcurrentWorkflowTaskPollers:        8, // all conferences of a lost unit are recovered at the same time
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
			StickyScheduleToStartTimeout:            time.Second,
		},
		workflows: map[string]any{workflows.ConferenceWorkflow: workflows.Conference},
		activities: map[string]any{
			workflows.PlaceConferenceActivity: conferences.PlaceConference,
			workflows.SaveConferenceActivity:  conferences.SaveConference,
			workflows.PrepareAdoptionActivity: conferences.PrepareAdoption,
			workflows.NotifyLinkActivity:      conferences.NotifyLink,
			workflows.ReadUnitStateActivity:   links.ReadUnitState,
		},
	}, {
		name:    workflows.TaskQueueLinks,
		options: worker.Options{WorkerStopTimeout: opts.Drain},
		workflows: map[string]any{
			workflows.ReassertWorkflow: workflows.Reassert,
			workflows.ReportWorkflow:   workflows.Report,
			workflows.LinkWorkflow:     workflows.Link,
			workflows.ProbeWorkflow:    workflows.Probe,

			workflows.RetentionWorkflow: workflows.Retention,
		},
		activities: map[string]any{
			workflows.SignalOpenActivity:    links.SignalOpen,
			workflows.LoseUnitActivity:      links.LoseUnit,
			workflows.ReadUnitActivity:      links.ReadUnit,
			workflows.ReconcileUnitActivity: links.ReconcileUnit,
			workflows.WakeWaitingActivity:   links.WakeWaiting,
			workflows.ReadUnitStateActivity: links.ReadUnitState,
			workflows.RemoveExpiredActivity: acts.Retention.RemoveExpired,
		},
	}}
}

// modelQueue returns the task queue of one model's calls.
func modelQueue(name string, tasks *activities.Tasks, opts Options) queue {
	return queue{
		name: name,
		options: worker.Options{
			// Longer than a step's own drain, so that the step can hand over before its context is cancelled.
			WorkerStopTimeout:                  opts.Drain + 5*time.Second,
			DisableWorkflowWorker:              true,
			MaxConcurrentActivityTaskPollers:   2,
			MaxConcurrentActivityExecutionSize: maxCalls,
		},
		activities: map[string]any{workflows.RunStepActivity: tasks.RunStep},
	}
}
