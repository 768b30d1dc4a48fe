package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
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
		workflows.ReadUnitStateActivity:    links.ReadUnitState,
	})
	return w
}

// StartReassert starts the reassertion after the grace that ends at until, by Redis's clock (L12). Whoever comes second
// finds it started, which is as good.
func StartReassert(ctx context.Context, c client.Client, until time.Time) error {
	grace := until.UnixMilli()
	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ReassertWorkflowID(grace), TaskQueue: workflows.TaskQueueLinks,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflows.ReassertWorkflow, workflows.ReassertInput{GraceUntil: grace})
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && !errors.As(err, &started) {
		return fmt.Errorf("start reassertion: %w", err)
	}
	return nil
}
