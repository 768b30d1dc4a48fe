package starter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// ScheduleReconcile creates the schedule of the reconciliation, or changes that of an earlier start.
func (s *Starter) ScheduleReconcile(ctx context.Context, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	// Without arguments: those of a schedule are encrypted for its id, and each run has its own, with which it cannot decrypt them.
	action := &client.ScheduleWorkflowAction{
		ID: workflows.ReconcileID, Workflow: workflows.ReconcileWorkflow,
		TaskQueue: workflows.TaskQueueLinks, WorkflowRunTimeout: workflows.ReconcileTimeout,
	}
	_, err := s.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: workflows.ReconcileID, Spec: spec, Action: action,
		Overlap:       enums.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: time.Minute, // a pass that was missed is made up for by the next
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		err = s.Client.ScheduleClient().GetHandle(ctx, workflows.ReconcileID).Update(ctx, client.ScheduleUpdateOptions{
			DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				schedule := in.Description.Schedule
				schedule.Spec, schedule.Action = &spec, action
				return &client.ScheduleUpdate{Schedule: &schedule}, nil
			},
		})
	}
	if err != nil {
		return fmt.Errorf("create the schedule of the reconciliation: %w", outcome(err))
	}
	return nil
}

// Reconcile starts a full pass for an operator and returns its id; CodeConflict while another one runs. Scheduled passes may run at
// the same time: repairs are idempotent.
func (s *Starter) Reconcile(ctx context.Context, dryRun bool) (passID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ReconcileRequestID, TaskQueue: workflows.TaskQueueLinks, WorkflowRunTimeout: workflows.ReconcileTimeout,
		WorkflowIDConflictPolicy:                 enums.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, workflows.ReconcileWorkflow, workflows.PassInput{Requested: true, DryRun: dryRun})
	if _, started := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); started {
		return "", berth.Errorf(berth.CodeConflict, "a requested pass is running; retry when it has ended").With(err)
	}
	if err != nil {
		return "", outcome(err)
	}
	return run.GetRunID(), nil
}

// Run is a run of a workflow.
type Run struct {
	WorkflowID string
	RunID      string
	Type       string
	Running    bool
	// Completed indicates that the workflow has returned its result.
	Completed bool
	// Ended indicates that the run was ended from outside of its workflow: it was terminated or has timed out.
	Ended     bool
	StartedAt time.Time
}

// runsPage is how many runs one call lists.
const runsPage = 1000

// RunsClosedSince passes the runs of these types that have closed since a time, without order. A run that continued as new is one of
// them: CurrentRun returns the state of its workflow.
func (s *Starter) RunsClosedSince(ctx context.Context, since time.Time, types []string, each func(Run) error) error {
	return s.listRuns(ctx, fmt.Sprintf(`ExecutionStatus != "Running" AND CloseTime >= "%s" AND WorkflowType IN ("%s")`,
		since.UTC().Format(time.RFC3339Nano), strings.Join(types, `", "`)), each)
}

// OpenRuns passes the running workflows of a type, without order.
func (s *Starter) OpenRuns(ctx context.Context, workflowType string, each func(Run) error) error {
	return s.listRuns(ctx, fmt.Sprintf(`ExecutionStatus = "Running" AND WorkflowType = "%s"`, workflowType), each)
}

func (s *Starter) listRuns(ctx context.Context, query string, each func(Run) error) error {
	var token []byte
	for {
		page, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			PageSize: runsPage, NextPageToken: token, Query: query,
		})
		if err != nil {
			return fmt.Errorf("list runs: %w", outcome(err))
		}
		for _, e := range page.GetExecutions() {
			if err := each(runOf(e)); err != nil {
				return err
			}
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return nil
		}
	}
}

// CurrentRun returns the last run of the workflow with a name or id, which follows continue-as-new; ok is false when Temporal has none.
func (s *Starter) CurrentRun(ctx context.Context, name string) (run Run, ok bool, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, workflows.WorkflowID(name), "")
	if err = outcome(err); isNotRunning(err) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("describe %s: %w", name, err)
	}
	return runOf(d.GetWorkflowExecutionInfo()), true, nil
}

func runOf(e *workflow.WorkflowExecutionInfo) Run {
	status := e.GetStatus()
	return Run{
		WorkflowID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId(), Type: e.GetType().GetName(),
		Running: status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, StartedAt: e.GetStartTime().AsTime(),
		Completed: status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED,
		Ended:     status == enums.WORKFLOW_EXECUTION_STATUS_TERMINATED || status == enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
	}
}

// Begun reports whether a worker has completed the first step of a run.
func (s *Starter) Begun(ctx context.Context, run Run) (bool, error) {
	events, err := s.firstEvents(ctx, run, 100)
	return slices.ContainsFunc(events, func(e *history.HistoryEvent) bool {
		return e.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
	}), err
}

// TerminateRun ends a run without its workflow. One that has ended is not an error.
func (s *Starter) TerminateRun(ctx context.Context, run Run, reason string) error {
	err := outcome(s.Client.TerminateWorkflow(ctx, run.WorkflowID, run.RunID, reason))
	if err == nil || isNotRunning(err) {
		return nil
	}
	return fmt.Errorf("terminate %s: %w", run.WorkflowID, err)
}

// EndedConference returns the result of a conference's last run; the zero value where that has not completed.
func (s *Starter) EndedConference(ctx context.Context, workflowID string) (berth.Conference, error) {
	run, ok, err := s.CurrentRun(ctx, workflowID)
	if err != nil || !ok || !run.Completed {
		return berth.Conference{}, err
	}
	return resultOf[berth.Conference](ctx, s, workflowID)
}

// RestartConference starts a run that continues with the progress of a lost one, unless the number has a run.
func (s *Starter) RestartConference(ctx context.Context, in workflows.ConferenceInput) error {
	w := startConference(in)
	_, err := s.Client.ExecuteWorkflow(ctx, s.options(w), w.name, w.input)
	if err != nil {
		return fmt.Errorf("restart %s: %w", w.id, outcome(err))
	}
	return nil
}

// firstEvents returns at most limit events of a run's history.
func (s *Starter) firstEvents(ctx context.Context, run Run, limit int32) ([]*history.HistoryEvent, error) {
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: s.Namespace, Execution: &common.WorkflowExecution{WorkflowId: run.WorkflowID, RunId: run.RunID}, MaximumPageSize: limit,
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of %s: %w", run.WorkflowID, outcome(err))
	}
	return page.GetHistory().GetEvents(), nil
}

// converterOf returns the converter of a workflow's payloads.
func (s *Starter) converterOf(workflowID string) converter.DataConverter {
	if c, ok := s.Converter.(converter.DataConverterWithSerializationContext); ok {
		return c.WithSerializationContext(converter.WorkflowSerializationContext{Namespace: s.Namespace, WorkflowID: workflowID})
	}
	return s.Converter
}

// Input returns the input of a run, such as a workflows.TaskInput, from its history.
func Input[T any](ctx context.Context, s *Starter, run Run) (in T, err error) {
	events, err := s.firstEvents(ctx, run, 1)
	if err != nil {
		return in, err
	}
	if len(events) == 0 || events[0].GetWorkflowExecutionStartedEventAttributes() == nil {
		return in, fmt.Errorf("read the input of %s: its history does not begin with its start", run.WorkflowID)
	}
	if err := s.converterOf(run.WorkflowID).FromPayloads(events[0].GetWorkflowExecutionStartedEventAttributes().GetInput(), &in); err != nil {
		return in, fmt.Errorf("read the input of %s: %w", run.WorkflowID, err)
	}
	return in, nil
}
