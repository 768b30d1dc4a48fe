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

// TurnStarter starts, asks and ends the workflows of turns. Errors carry a berth.Code, or are a *RefusedError where no
// node takes the work. Asking again after CodeUnavailable or a refusal is safe.
type TurnStarter interface {
	// Dispatch hands a job in and returns where it goes. replay says that this is the outcome of an earlier call with
	// the same request id; with another body under it the error is CodeIdempotencyMismatch. A turn that does not exist is
	// CodeNotFound, one that takes no more jobs CodeTurnFinalized.
	Dispatch(ctx context.Context, job JobCall) (reply workflows.DispatchReply, replay bool, err error)
	// FinalizeTurn ends a turn. CodeNotFound when there is none or it is another user's, CodeTurnFinalized when it has
	// been ended before.
	FinalizeTurn(ctx context.Context, turnID string, req workflows.FinalizeRequest) (workflows.FinalizeReply, error)
	// GetTurn asks a turn for its state, whoever's it is; CodeNotFound when there is none.
	GetTurn(ctx context.Context, turnID string) (berth.Turn, error)
}

// JobCall is one checked request for a job of a turn.
type JobCall struct {
	// Turn is begun where it does not run, unless Running says that it has to.
	Turn    workflows.TurnInput
	Running bool
	// Request is complete but for its SubmissionID.
	Request workflows.DispatchRequest
}

const (
	// turnTimeout is how long the one who speaks waits before they are told to ask again.
	turnTimeout = 5 * time.Second
	// askAgainMost bounds how often one request can be refused and asked again in a turn. askPause times the number of
	// its refusals, at most askPauseMost, is what it is held up before it is asked once more.
	askAgainMost = 200
	askPause     = 50 * time.Millisecond
	askPauseMost = 500 * time.Millisecond
	// runIDsMost is by how many of its update ids a request can have been refused in an earlier run.
	runIDsMost = 4
)

// Dispatch asks the turn's workflow, which it starts when the job may begin a turn. The update's id comes from the
// request, so that asking again meets the first outcome; where that is an old refusal, the request is asked for anew under
// the next id.
func (s *TemporalStarter) Dispatch(ctx context.Context, job JobCall) (workflows.DispatchReply, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	job.Request.SubmissionID = uuid.NewString()
	reply, err := s.dispatch(ctx, job, 0)
	for n := 0; oldRefusal(err, job.Request.SubmissionID); {
		if reply, n, err = s.outcome(ctx, job, n+1, 1); errors.Is(err, errNotRunning) {
			// Whoever asks too often is held up, for each refusal is kept by the turn.
			if err = hold(ctx, min(time.Duration(n)*askPause, askPauseMost)); err == nil {
				reply, err = s.dispatch(ctx, job, n)
			}
		}
	}
	switch {
	case errors.Is(err, errNotRunning):
		return s.dispatched(ctx, job)
	case err != nil:
		return reply, false, err
	default:
		return s.answered(ctx, job, reply)
	}
}

// dispatchID is the update id of the n-th time that a request is asked for after refusals. Request ids have no ~.
func dispatchID(requestID string, n int) string {
	if n == 0 {
		return requestID
	}
	return requestID + "~" + strconv.Itoa(n)
}

func (s *TemporalStarter) dispatch(ctx context.Context, job JobCall, n int) (reply workflows.DispatchReply, err error) {
	update := client.UpdateWorkflowOptions{
		WorkflowID: workflows.TurnWorkflowID(job.Turn.TurnID), UpdateID: dispatchID(job.Request.RequestID, n),
		UpdateName: workflows.UpdateDispatch,
		Args:       []any{job.Request}, WaitForStage: client.WorkflowUpdateStageCompleted,
	}
	var handle client.WorkflowUpdateHandle
	if job.Running {
		handle, err = s.Client.UpdateWorkflow(ctx, update)
	} else {
		handle, err = s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: s.newTurn(job.Turn), UpdateOptions: update,
		})
	}
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	return reply, asked(err, awayTurn)
}

func (s *TemporalStarter) newTurn(in workflows.TurnInput) client.WithStartWorkflowOperation {
	return s.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       workflows.TurnWorkflowID(in.TurnID),
		TaskQueue:                workflows.TaskQueueTurns,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		// A turn fails only when its first job was refused: then it never was.
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowTaskTimeout:   2 * time.Second,
		StaticSummary:         fmt.Sprintf("%s to %s, session %s of %s", in.SrcLang, in.TgtLang, in.SessionID, in.UserID),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchUser).ValueSet(in.UserID),
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchSession).ValueSet(in.SessionID),
		),
	}, workflows.TurnWorkflow, in)
}

// answered compares the outcome with what was asked.
func (s *TemporalStarter) answered(
	ctx context.Context, job JobCall, reply workflows.DispatchReply,
) (workflows.DispatchReply, bool, error) {
	if reply.RequestHash == job.Request.RequestHash {
		return reply, reply.SubmissionID != job.Request.SubmissionID, nil
	}
	// Before anything is said of a turn, it has to be the caller's: its id may be a guess.
	if t, err := s.GetTurn(ctx, job.Turn.TurnID); err != nil || t.UserID != job.Turn.UserID {
		return workflows.DispatchReply{}, false, noTurn(err)
	}
	return workflows.DispatchReply{}, false, &berth.Error{
		Code: berth.CodeIdempotencyMismatch, Field: "requestId", Message: "was used for another request",
	}
}

// outcome looks for what a request got, from its n-th update on, passing over refusals. Behind so many ids that the
// turn's last run has not seen, the error is errNotRunning, and free the first of these.
func (s *TemporalStarter) outcome(
	ctx context.Context, job JobCall, n, unseen int,
) (reply workflows.DispatchReply, free int, err error) {
	for missing := 0; n < askAgainMost; n++ {
		err := asked(s.Client.GetWorkflowUpdateHandle(client.GetWorkflowUpdateHandleOptions{
			WorkflowID: workflows.TurnWorkflowID(job.Turn.TurnID), UpdateID: dispatchID(job.Request.RequestID, n),
		}).Get(ctx, &reply), awayTurn)
		var refusal *refusedUpdate
		switch {
		case errors.Is(err, errNotRunning):
			if missing++; missing == unseen {
				return reply, n + 1 - unseen, err
			}
		case errors.As(err, &refusal):
			missing = 0
		default:
			return reply, n, err
		}
	}
	return reply, n, berth.Errorf(berth.CodeUnavailable, "this request was refused too often; use another request id")
}

// dispatched answers for a turn that is over: with what the request got while it ran, else that it is over. The ids that
// the request had in the last run need not begin with the first: that one's refusal was an earlier run's, which failed by
// it.
func (s *TemporalStarter) dispatched(ctx context.Context, job JobCall) (workflows.DispatchReply, bool, error) {
	reply, _, err := s.outcome(ctx, job, 0, runIDsMost)
	switch {
	case err == nil:
		return s.answered(ctx, job, reply)
	case errors.Is(err, errNotRunning):
		err = s.over(ctx, job.Turn.TurnID, job.Turn.UserID)
		if !job.Running && berth.CodeOf(err) == berth.CodeNotFound { // a run that never began was ending: the next one can
			err = berth.Errorf(berth.CodeUnavailable, awayTurn)
		}
	}
	return workflows.DispatchReply{}, false, err
}

// FinalizeTurn asks the turn's workflow to end the turn. Each call is an update of its own: the second is told that it
// came too late.
func (s *TemporalStarter) FinalizeTurn(
	ctx context.Context, turnID string, req workflows.FinalizeRequest,
) (reply workflows.FinalizeReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	handle, err := s.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflows.TurnWorkflowID(turnID), UpdateID: uuid.NewString(), UpdateName: workflows.UpdateFinalize,
		Args: []any{req}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	if err = asked(err, awayTurn); errors.Is(err, errNotRunning) {
		return reply, s.over(ctx, turnID, req.UserID)
	}
	return reply, err
}

// over tells a turn that was finalised from one that never was, or is another user's.
func (s *TemporalStarter) over(ctx context.Context, turnID, userID string) error {
	t, err := s.GetTurn(ctx, turnID)
	if err != nil || t.UserID != userID {
		return noTurn(err)
	}
	return berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized (%s) and takes no more jobs", t.Reason)
}

// GetTurn queries the turn's workflow, which answers as long as Temporal keeps it.
func (s *TemporalStarter) GetTurn(ctx context.Context, turnID string) (t berth.Turn, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	value, err := s.Client.QueryWorkflow(ctx, workflows.TurnWorkflowID(turnID), "", workflows.QueryTurn)
	if err == nil {
		err = value.Get(&t)
	}
	if err = asked(err, awayTurn); err != nil {
		return berth.Turn{}, noTurn(err)
	}
	if len(t.Jobs) == 0 { // its first job was refused, or is being decided: nobody was told of the turn
		return berth.Turn{}, noTurn(nil)
	}
	return t, nil
}

// awayTurn is what is said when a turn cannot be reached.
const awayTurn = "the turn cannot be asked now; ask again with the same request id"

// noTurn is CodeNotFound, unless the turn could not be asked.
func noTurn(err error) error {
	if err != nil && !errors.Is(err, errNotRunning) && berth.CodeOf(err) != berth.CodeNotFound {
		return err
	}
	return berth.Errorf(berth.CodeNotFound, "there is no such turn")
}
