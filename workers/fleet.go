package workers

import (
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/workflows"
)

func executionWorker(c client.Client, _ Stories, opts Options) worker.Worker {
	w := worker.New(c, workflows.TaskQueueExecutions, worker.Options{WorkerStopTimeout: opts.Drain, LocalActivityWorkerOnly: true})
	w.RegisterWorkflowWithOptions(workflows.Execution, workflow.RegisterOptions{Name: workflows.ExecutionWorkflow})
	return w
}

func linkWorker(c client.Client, _ Stories, opts Options) worker.Worker {
	w := worker.New(c, workflows.TaskQueueLinks, worker.Options{WorkerStopTimeout: opts.Drain})
	w.RegisterWorkflowWithOptions(workflows.Reassert, workflow.RegisterOptions{Name: workflows.ReassertWorkflow})
	return w
}
