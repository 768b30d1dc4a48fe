package workers

import (
	"context"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/activities"
	"berth/internal/health"
	"berth/workflows"
)

// needs is what work needs, besides Temporal.
type needs string

const (
	needsRedis         needs = health.Redis
	needsDatabase      needs = health.Database
	needsRedisDatabase needs = health.Redis + " " + health.Database
	needsOfModels            = needsRedisDatabase
)

// dependencies returns the names of what the work needs.
func (n needs) dependencies() []string { return append(strings.Fields(string(n)), health.Temporal) }

// queue is a task queue with the workflows and activities that its worker registers, by their wire names.
type queue struct {
	name       string
	needs      needs
	options    worker.Options
	upgrades   workflow.VersioningBehavior // of the workflows, when workers have a version
	workflows  map[string]any
	activities map[string]any
}

// worker returns a worker for a time in which what the queue needs is available. stopping is closed when the process stops.
func (q queue) worker(available context.Context, c client.Client, stopping <-chan struct{}, opts Options) worker.Worker {
	options := q.options
	options.Interceptors = append(options.Interceptors, &availability{available: available, stopping: stopping, opts: opts})
	if opts.Deployment != "" {
		options.DeploymentOptions = worker.DeploymentOptions{
			UseVersioning: true, Version: worker.WorkerDeploymentVersion{DeploymentName: opts.Deployment, BuildID: opts.BuildID},
		}
	}
	w := worker.New(c, q.name, options)
	for name, fn := range q.workflows {
		registered := workflow.RegisterOptions{Name: name}
		if opts.Deployment != "" {
			registered.VersioningBehavior = q.upgrades
		}
		w.RegisterWorkflowWithOptions(fn, registered)
	}
	for name, fn := range q.activities {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	return w
}

// pollers lets a worker begin with n pollers for new runs and n for the runs that it has cached. With a fixed number of pollers for
// both, Temporal's SDK sends all of them to the cached runs at the end of a burst, and for seconds no new run begins.
func pollers(n int) worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: n, MinimumNumberOfPollers: 2, MaximumNumberOfPollers: 2 * n,
	})
}

// workflowQueues returns the task queues of the workflows.
func workflowQueues(acts Activities, opts Options) []queue {
	tasks, turns, executions, conferences, links := acts.Tasks, acts.Turns, acts.Executions, acts.Conferences, acts.Links
	return []queue{{
		name:  workflows.TaskQueueTasks,
		needs: needsRedisDatabase,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			WorkflowTaskPollerBehavior:              pollers(4),
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
		},
		upgrades:  workflow.VersioningBehaviorPinned,
		workflows: map[string]any{workflows.TaskWorkflow: workflows.Task},
		activities: map[string]any{
			workflows.AcceptTaskActivity:   tasks.AcceptTask,
			workflows.WithdrawTaskActivity: tasks.WithdrawTask,
			workflows.EnterTaskActivity:    tasks.EnterTask,
			workflows.FinishTaskActivity:   tasks.FinishTask,
			workflows.PublishEndActivity:   tasks.PublishEnd,
		},
	}, {
		name:  workflows.TaskQueueTurns,
		needs: needsRedis,
		options: worker.Options{
			WorkerStopTimeout:          opts.Drain,
			WorkflowTaskPollerBehavior: pollers(4),
			LocalActivityWorkerOnly:    true,
			// A turn whose worker died continues on another worker after this time; the user is waiting for its results.
			StickyScheduleToStartTimeout: time.Second,
		},
		upgrades:  workflow.VersioningBehaviorPinned,
		workflows: map[string]any{workflows.TurnWorkflow: workflows.Turn},
		activities: map[string]any{
			workflows.DispatchJobActivity:       turns.DispatchJob,
			workflows.ConfirmSlotsActivity:      turns.ConfirmSlots,
			workflows.ReleaseSlotsActivity:      turns.ReleaseSlots,
			workflows.LeaveWaitingActivity:      turns.LeaveWaiting,
			workflows.CheckAvailabilityActivity: turns.CheckAvailability,
			workflows.CheckTemporalActivity:     executions.CheckTemporal,
			workflows.FinalizeTurnActivity:      turns.FinalizeTurn,
			workflows.PublishTurnActivity:       turns.PublishTurn,
		},
	}, {
		name:  workflows.TaskQueueExecutions,
		needs: needsRedisDatabase,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			WorkflowTaskPollerBehavior:              pollers(4),
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
		},
		upgrades:  workflow.VersioningBehaviorPinned,
		workflows: map[string]any{workflows.ExecutionWorkflow: workflows.Execution},
		activities: map[string]any{
			workflows.AssignNodeActivity:    executions.AssignNode,
			workflows.ConfirmSlotsActivity:  executions.ConfirmSlots,
			workflows.ReleaseSlotsActivity:  executions.ReleaseSlots,
			workflows.LeaveWaitingActivity:  executions.LeaveWaiting,
			workflows.CheckTemporalActivity: executions.CheckTemporal,

			workflows.SaveExecutionActivity: executions.SaveExecution,
		},
	}, {
		name:  workflows.TaskQueueConferences,
		needs: needsRedisDatabase,
		options: worker.Options{
			WorkerStopTimeout:                       opts.Drain,
			WorkflowTaskPollerBehavior:              pollers(8), // all conferences of a lost unit are recovered at the same time
			MaxConcurrentLocalActivityExecutionSize: 200,
			LocalActivityWorkerOnly:                 true,
			StickyScheduleToStartTimeout:            time.Second,
		},
		upgrades:  workflow.VersioningBehaviorPinned,
		workflows: map[string]any{workflows.ConferenceWorkflow: workflows.Conference},
		activities: map[string]any{
			workflows.PlaceConferenceActivity: conferences.PlaceConference,
			workflows.PlaceMoveActivity:       conferences.PlaceMove,
			workflows.SaveConferenceActivity:  conferences.SaveConference,
			workflows.PrepareAdoptionActivity: conferences.PrepareAdoption,
			workflows.NotifyLinkActivity:      conferences.NotifyLink,
			workflows.ReadUnitStateActivity:   links.ReadUnitState,
		},
	}, {
		name:    workflows.TaskQueueLinks,
		needs:   needsRedisDatabase,
		options: worker.Options{WorkerStopTimeout: opts.Drain},
		// A link may last as long as its unit. These workflows change by workflow.GetVersion only.
		upgrades: workflow.VersioningBehaviorAutoUpgrade,
		workflows: map[string]any{
			workflows.ReportWorkflow:    workflows.Report,
			workflows.LinkWorkflow:      workflows.Link,
			workflows.ProbeWorkflow:     workflows.Probe,
			workflows.RetentionWorkflow: workflows.Retention,
			workflows.ReconcileWorkflow: workflows.Reconcile,
		},
		activities: map[string]any{
			workflows.LoseUnitActivity:      links.LoseUnit,
			workflows.ReadUnitActivity:      links.ReadUnit,
			workflows.ReconcileUnitActivity: links.ReconcileUnit,
			workflows.WakeWaitingActivity:   links.WakeWaiting,
			workflows.ReadUnitStateActivity: links.ReadUnitState,
			workflows.RemoveExpiredActivity: acts.Retention.RemoveExpired,

			workflows.RestoreStateActivity:      acts.Reconciler.RestoreState,
			workflows.FindDifferencesActivity:   acts.Reconciler.FindDifferences,
			workflows.RepairDifferencesActivity: acts.Reconciler.RepairDifferences,
		},
	}, {
		name:    workflows.TaskQueueWebhooks,
		needs:   needsDatabase,
		options: worker.Options{WorkerStopTimeout: opts.Drain},
		// A delivery may last for days.
		upgrades: workflow.VersioningBehaviorAutoUpgrade,
		workflows: map[string]any{
			workflows.RecordWorkflow:  workflows.Record,
			workflows.WebhookWorkflow: workflows.Webhook,
		},
		activities: map[string]any{
			workflows.SendRecordActivity:    acts.Records.SendRecord,
			workflows.AbandonRecordActivity: acts.Records.AbandonRecord,
			workflows.SendEventActivity:     acts.Webhooks.SendEvent,
			workflows.AbandonEventActivity:  acts.Webhooks.AbandonEvent,
		},
	}}
}

// longestStep exceeds the time that any step runs.
const longestStep = 24 * time.Hour

// modelQueue returns the task queue of one model's calls.
func modelQueue(name string, tasks *activities.Tasks) queue {
	return queue{
		name:  name,
		needs: needsOfModels,
		options: worker.Options{
			// Steps watch what ends them: the end of the process, or what is unavailable. Where only their worker stops, they
			// may continue.
			WorkerStopTimeout:                  longestStep,
			DisableWorkflowWorker:              true,
			MaxConcurrentActivityTaskPollers:   2,
			MaxConcurrentActivityExecutionSize: maxCalls,
		},
		activities: map[string]any{workflows.RunStepActivity: tasks.RunStep},
	}
}
