package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// ExecutionStarter starts, asks and cancels the workflows of executions. Errors carry a berth.Code, or are a
// *RefusedError where no node is capable.
type ExecutionStarter interface {
	// SubmitExecution starts an execution and returns once it is accepted or refused. replay says that it was accepted
	// before; CodeIdempotencyMismatch that the user's execution of this id is another one, CodeConflict that the id is
	// another user's. Asking again is safe.
	SubmitExecution(ctx context.Context, in workflows.ExecutionInput) (reply workflows.ExecuteReply, replay bool, err error)
	// GetExecution asks an execution for its state, whoever's it is; CodeNotFound when there is none.
	GetExecution(ctx context.Context, id string) (berth.Execution, error)
	// CancelExecution asks an execution to stop; CodeConflict when it is over.
	CancelExecution(ctx context.Context, id string) error
}

// SubmitExecution asks the execution's workflow, which it starts. The update's id is the request's hash, so that equal
// requests share one outcome. An execution that has ended is never run again under its id; one that was refused never
// was, and may be.
func (s *TemporalStarter) SubmitExecution(
	ctx context.Context, in workflows.ExecutionInput,
) (workflows.ExecuteReply, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	submission := uuid.NewString()
	reply, err := s.execute(ctx, in, submission, 0, enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE)
	if err == nil || !errors.Is(err, errNotRunning) && !oldRefusal(err, submission) {
		return reply, err == nil && reply.SubmissionID != submission, s.execConflict(ctx, in, err)
	}
	reply, free, err := s.executed(ctx, in)
	if err == nil || !errors.Is(err, errNotRunning) {
		return reply, err == nil, err
	}
	if _, err := s.GetExecution(ctx, in.ExecutionID); berth.CodeOf(err) != berth.CodeNotFound {
		if err == nil {
			err = berth.Errorf(berth.CodeIdempotencyMismatch, "another request has this id")
		}
		return reply, false, s.execConflict(ctx, in, err)
	}
	reply, err = s.execute(ctx, in, submission, free, enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY)
	if errors.Is(err, errNotRunning) {
		err = berth.Errorf(berth.CodeUnavailable, awayExecution).With(err)
	}
	return reply, err == nil && reply.SubmissionID != submission, s.execConflict(ctx, in, err)
}

func (s *TemporalStarter) execute(
	ctx context.Context, in workflows.ExecutionInput, submission string, n int, reuse enums.WorkflowIdReusePolicy,
) (reply workflows.ExecuteReply, err error) {
	start := s.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       workflows.ExecutionWorkflowID(in.ExecutionID),
		TaskQueue:                workflows.TaskQueueExecutions,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    reuse,
		WorkflowTaskTimeout:      5 * time.Second,
		StaticSummary:            fmt.Sprintf("%s for %s", in.Executor, in.UserID),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchUser).ValueSet(in.UserID),
		),
	}, workflows.ExecutionWorkflow, in)
	handle, err := s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: executeID(in.RequestHash, n), UpdateName: workflows.UpdateExecute,
			Args:         []any{workflows.ExecuteRequest{SubmissionID: submission, RequestHash: in.RequestHash}},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	return reply, asked(err, awayExecution)
}

// executeID is the update id of the n-th time that an execution is asked for after refusals.
func executeID(requestHash string, n int) string {
	if n == 0 {
		return requestHash
	}
	return requestHash + "~" + strconv.Itoa(n)
}

// executed looks for what the request got from the execution's last run. Where it got nothing but refusals the error is
// errNotRunning, and free the number of the first update id that the run has not seen. A run begins with the first id
// that the refused one before it has not seen, seldom beyond the second.
func (s *TemporalStarter) executed(
	ctx context.Context, in workflows.ExecutionInput,
) (reply workflows.ExecuteReply, free int, err error) {
	free = -1
	for n := range runIDsMost {
		err := asked(s.Client.GetWorkflowUpdateHandle(client.GetWorkflowUpdateHandleOptions{
			WorkflowID: workflows.ExecutionWorkflowID(in.ExecutionID), UpdateID: executeID(in.RequestHash, n),
		}).Get(ctx, &reply), awayExecution)
		var refusal *refusedUpdate
		switch {
		case errors.Is(err, errNotRunning):
			if free < 0 {
				free = n
			}
		case !errors.As(err, &refusal):
			return reply, n, err
		}
	}
	if free < 0 { // others ask for it at this moment
		return reply, 0, berth.Errorf(berth.CodeUnavailable, awayExecution)
	}
	return reply, free, errNotRunning
}

// execConflict words the refusal of an id that is taken: another user hears no more than that.
func (s *TemporalStarter) execConflict(ctx context.Context, in workflows.ExecutionInput, err error) error {
	if berth.CodeOf(err) != berth.CodeIdempotencyMismatch {
		return err
	}
	ex, gerr := s.GetExecution(ctx, in.ExecutionID)
	switch {
	case gerr != nil:
		return gerr
	case ex.UserID != in.UserID:
		return &berth.Error{Code: berth.CodeConflict, Field: "executionId", Message: "this id is taken", Err: err}
	default:
		return &berth.Error{
			Code: berth.CodeIdempotencyMismatch, Field: "executionId", Message: "was used for another request", Err: err,
		}
	}
}

// GetExecution queries the execution's workflow, which answers as long as Temporal keeps it.
func (s *TemporalStarter) GetExecution(ctx context.Context, id string) (berth.Execution, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	ex, closed, err := s.queryExecution(ctx, id, enums.QUERY_REJECT_CONDITION_NOT_COMPLETED_CLEANLY)
	if err != nil || closed == enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED {
		return ex, err
	}
	if ex, _, err = s.queryExecution(ctx, id, enums.QUERY_REJECT_CONDITION_NONE); err != nil || finalExecution(ex) {
		return ex, err
	}
	if closed == enums.WORKFLOW_EXECUTION_STATUS_FAILED { // refused: it never was
		return berth.Execution{}, noExecution()
	}
	ex.Status, ex.Code, ex.Message = berth.ExecutionFailed, berth.CodeInternal, "the execution was ended from outside"
	return ex, nil
}

// queryExecution also tells how the run ended, when that is why it was not asked.
func (s *TemporalStarter) queryExecution(
	ctx context.Context, id string, unless enums.QueryRejectCondition,
) (ex berth.Execution, closed enums.WorkflowExecutionStatus, err error) {
	answer, err := s.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: workflows.ExecutionWorkflowID(id), QueryType: workflows.QueryExecution, QueryRejectCondition: unless,
	})
	switch {
	case err != nil:
	case answer.QueryRejected != nil:
		return ex, answer.QueryRejected.GetStatus(), nil
	default:
		err = answer.QueryResult.Get(&ex)
	}
	if err = asked(err, awayExecution); errors.Is(err, errNotRunning) {
		err = noExecution()
	}
	return ex, closed, err
}

// CancelExecution asks the execution's workflow to stop.
func (s *TemporalStarter) CancelExecution(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	err := asked(s.Client.CancelWorkflow(ctx, workflows.ExecutionWorkflowID(id), ""), awayExecution)
	if errors.Is(err, errNotRunning) {
		return berth.Errorf(berth.CodeConflict, "the execution is over").With(err)
	}
	return err
}

// awayExecution is what is said when an execution cannot be reached.
const awayExecution = "the execution cannot be asked now; ask again with the same id"
