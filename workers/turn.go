package workers

import (
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/workflows"
)

func turnWorker(c client.Client, acts Activities, opts Options) worker.Worker {
	turns := acts.Turns
	w := worker.New(c, workflows.TaskQueueTurns, worker.Options{
		WorkerStopTimeout:                opts.Drain,
		MaxConcurrentWorkflowTaskPollers: 4,
		LocalActivityWorkerOnly:          true,
		// A turn whose worker died continues on another worker after this time; the user is waiting for its results.
		StickyScheduleToStartTimeout: time.Second,
	})
	w.RegisterWorkflowWithOptions(workflows.Turn, workflow.RegisterOptions{Name: workflows.TurnWorkflow})
	registerActivities(w, map[string]any{
		workflows.DispatchJobActivity:       turns.DispatchJob,
		workflows.ConfirmSlotsActivity:      turns.ConfirmSlots,
		workflows.ReleaseSlotsActivity:      turns.ReleaseSlots,
		workflows.CheckAvailabilityActivity: turns.CheckAvailability,
		workflows.FinalizeTurnActivity:      turns.FinalizeTurn,
		workflows.PublishTurnActivity:       turns.PublishTurn,
	})
	return w
}
