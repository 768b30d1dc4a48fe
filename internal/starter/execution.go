package starter

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// SubmitExecution starts an execution and returns once it is accepted or refused; a *berth.Refusal when no node is
// capable. replay reports that it was accepted before; CodeIdempotencyMismatch that the execution with this key is another one. Calls
// with the same request are idempotent.
func (s *Starter) SubmitExecution(
	ctx context.Context, key string, in workflows.ExecutionInput,
) (reply workflows.ExecuteReply, replay bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	submission := berth.NewID("")
	u := update{
		workflowID: workflows.ExecutionWorkflowID(key), name: workflows.UpdateExecute, id: in.RequestHash,
		submission: submission, arg: workflows.ExecuteRequest{SubmissionID: submission, RequestHash: in.RequestHash},
		start: &start{
			id: workflows.ExecutionWorkflowID(key), queue: workflows.TaskQueueExecutions,
			name: workflows.ExecutionWorkflow, input: in, summary: fmt.Sprintf("%s for %s", in.Executor, in.UserID),
			reuse:       enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
			taskTimeout: 5 * time.Second,
			search:      map[string]string{workflows.SearchUser: in.UserID},
		},
	}
	reply, err = submit[workflows.ExecuteReply](ctx, s, u)
	if isNotRunning(err) { // an execution that was accepted never runs again under its id; a refused one never existed
		switch _, err = s.GetExecution(ctx, key); {
		case err == nil:
			err = mismatch("executionId")
		case berth.CodeOf(err) == berth.CodeNotFound:
			u.start.reuse = enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
			if reply, err = submit[workflows.ExecuteReply](ctx, s, u); isNotRunning(err) {
				err = unavailable(err)
			}
		}
	}
	if berth.CodeOf(err) == berth.CodeIdempotencyMismatch {
		err = mismatch("executionId")
	}
	return reply, err == nil && reply.SubmissionID != submission, err
}

// SignalHandover tells the workflow of work that waited that a node is reserved for it. It returns false if the workflow has ended.
func (s *Starter) SignalHandover(ctx context.Context, w lua.NodeWaiter) (running bool, err error) {
	return s.signal(ctx, w.WorkflowID, workflows.SignalPromoted, w.LeaseID)
}

// GetExecution returns the execution with a key, for as long as Temporal keeps its workflow; CodeNotFound when there is none. One whose
// run was ended from outside of its workflow has failed with CodeLost.
func (s *Starter) GetExecution(ctx context.Context, key string) (berth.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	workflowID := workflows.ExecutionWorkflowID(key)
	ex, closed, err := query[berth.Execution](ctx, s, workflowID, workflows.QueryExecution, enums.QUERY_REJECT_CONDITION_NOT_OPEN)
	switch closed {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, enums.WORKFLOW_EXECUTION_STATUS_FAILED, enums.WORKFLOW_EXECUTION_STATUS_CANCELED:
		if ex, err = resultOf[berth.Execution](ctx, s, workflowID); err == nil && !ex.Status.Final() { // it was refused
			return berth.Execution{}, noExecution()
		}
	default:
		ex, _, err = query[berth.Execution](ctx, s, workflowID, workflows.QueryExecution, enums.QUERY_REJECT_CONDITION_NONE)
		if err == nil && !ex.Status.Final() {
			ex.Status, ex.Code, ex.Message = berth.ExecutionFailed, berth.CodeLost, berth.ExecutionLost
		}
	}
	if isNotRunning(err) {
		err = noExecution()
	}
	return ex, err
}

func noExecution() error { return berth.Errorf(berth.CodeNotFound, "execution not found") }

// CancelExecution requests cancellation; CodeConflict when the execution has ended.
func (s *Starter) CancelExecution(ctx context.Context, key string) error {
	return s.cancel(ctx, workflows.ExecutionWorkflowID(key), "execution")
}
