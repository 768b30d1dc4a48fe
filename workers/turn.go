package workers

import (
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/workflows"
)

func turnWorker(c client.Client, _ Stories, opts Options) worker.Worker {
	w := worker.New(c, workflows.TaskQueueTurns, worker.Options{WorkerStopTimeout: opts.Drain, LocalActivityWorkerOnly: true})
	w.RegisterWorkflowWithOptions(workflows.Turn, workflow.RegisterOptions{Name: workflows.TurnWorkflow})
	return w
}
