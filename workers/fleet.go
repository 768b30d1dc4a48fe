package workers

import (
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/workflows"
)

func executionWorker(c client.Client, acts Activities, opts Options) worker.Worker {
	executions := acts.Executions
	w := worker.New(c, workflows.TaskQueueExecutions, worker.Options{
		WorkerStopTimeout:                       opts.Drain,
		MaxConcurrentWorkflowTaskPollers:        4,
		MaxConcurrentLocalActivityExecutionSize: 200,
		LocalActivityWorkerOnly:                 true,
	})
	w.RegisterWorkflowWithOptions(workflows.Execution, workflow.RegisterOptions{Name: workflows.ExecutionWorkflow})
	registerActivities(w, map[string]any{
		workflows.AssignNodeActivity:  executions.AssignNode,
		workflows.ConfirmNodeActivity: executions.ConfirmNode,
		workflows.ReleaseNodeActivity: executions.ReleaseNode,
	})
	return w
}

func linkWorker(c client.Client, acts Activities, opts Options) worker.Worker {
	w := worker.New(c, workflows.TaskQueueLinks, worker.Options{WorkerStopTimeout: opts.Drain})
	w.RegisterWorkflowWithOptions(workflows.Reassert, workflow.RegisterOptions{Name: workflows.ReassertWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Report, workflow.RegisterOptions{Name: workflows.ReportWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Link, workflow.RegisterOptions{Name: workflows.LinkWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Probe, workflow.RegisterOptions{Name: workflows.ProbeWorkflow})
	links := acts.Links
	registerActivities(w, map[string]any{
		workflows.SignalOpenActivity:    links.SignalOpen,
		workflows.LoseUnitActivity:      links.LoseUnit,
		workflows.ReadUnitActivity:      links.ReadUnit,
		workflows.ReconcileUnitActivity: links.ReconcileUnit,
		workflows.WakeWaitingActivity:   links.WakeWaiting,
		workflows.ReadUnitStateActivity: links.ReadUnitState,
	})
	return w
}
