package starter

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"

	"berth"
	"berth/workflows"
)

// turnTimeout bounds calls that a speaker waits for.
const turnTimeout = 5 * time.Second

// JobCall is a request for one job of a turn.
type JobCall struct {
	// Turn is started where it is not running, unless Running requires that it is.
	Turn    workflows.TurnInput
	Running bool
	// Request is complete but for its SubmissionID.
	Request workflows.DispatchRequest
}

// Dispatch submits a job and returns where it runs; a *berth.Refusal when no node takes it. replay reports that this is
// the outcome of an earlier call with the same request id; CodeIdempotencyMismatch that the id was used for another
// request. CodeNotFound when the turn does not exist or is another user's, CodeTurnFinalized when it accepts no more jobs.
func (s *Starter) Dispatch(ctx context.Context, job JobCall) (reply workflows.DispatchReply, replay bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	job.Request.SubmissionID = berth.NewID("")
	u := update{
		workflowID: workflows.TurnWorkflowID(job.Turn.TurnID), name: workflows.UpdateDispatch, id: job.Request.RequestID,
		submission: job.Request.SubmissionID, arg: job.Request,
	}
	if !job.Running {
		u.start = startTurn(job.Turn)
	}
	reply, err = submit[workflows.DispatchReply](ctx, s, u)
	switch {
	case isNotRunning(err):
		err = s.turnEnded(ctx, job.Turn.TurnID, job.Turn.UserID)
		if !job.Running && berth.CodeOf(err) == berth.CodeNotFound { // the run that is ending never began: the next can
			err = unavailable(err)
		}
		return workflows.DispatchReply{}, false, err
	case err != nil:
		return reply, false, err
	case reply.RequestHash == job.Request.RequestHash:
		return reply, reply.SubmissionID != job.Request.SubmissionID, nil
	}
	// The id of a turn can be guessed: only its user learns that the request id was used.
	if t, err := s.GetTurn(ctx, job.Turn.TurnID); err != nil || t.UserID != job.Turn.UserID {
		return workflows.DispatchReply{}, false, noTurn(err)
	}
	return workflows.DispatchReply{}, false, mismatch("requestId")
}

func startTurn(in workflows.TurnInput) *start {
	return &start{
		id: workflows.TurnWorkflowID(in.TurnID), queue: workflows.TaskQueueTurns, name: workflows.TurnWorkflow, input: in,
		summary: fmt.Sprintf("%s to %s, session %s of %s", in.SrcLang, in.TgtLang, in.SessionID, in.UserID),
		// A turn fails only when its first job was refused: then it never existed.
		reuse:       enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		taskTimeout: 2 * time.Second,
		search:      map[string]string{workflows.SearchUser: in.UserID, workflows.SearchSession: in.SessionID},
	}
}

// FinalizeTurn ends a turn. CodeNotFound when there is none or it is another user's, CodeTurnFinalized when it has ended
// before.
func (s *Starter) FinalizeTurn(
	ctx context.Context, turnID string, req workflows.FinalizeRequest,
) (workflows.FinalizeReply, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	reply, err := send[workflows.FinalizeReply](ctx, s, update{
		workflowID: workflows.TurnWorkflowID(turnID), name: workflows.UpdateFinalize, id: berth.NewID(""), arg: req,
	}, 0)
	if isNotRunning(err) {
		err = s.turnEnded(ctx, turnID, req.UserID)
	}
	return reply, err
}

// turnEnded is CodeTurnFinalized for the user's own turn, else CodeNotFound.
func (s *Starter) turnEnded(ctx context.Context, turnID, userID string) error {
	t, err := s.GetTurn(ctx, turnID)
	if err != nil || t.UserID != userID {
		return noTurn(err)
	}
	if t.Lost {
		return berth.Errorf(berth.CodeTurnFinalized, "%s; start another turn", berth.TurnLost)
	}
	return berth.Errorf(berth.CodeTurnFinalized, "the turn is finalized (%s) and accepts no more jobs", t.Reason)
}

// GetTurn returns any user's turn, for as long as Temporal keeps its workflow; CodeNotFound when there is none. One whose run was ended
// from outside of its workflow is lost.
func (s *Starter) GetTurn(ctx context.Context, turnID string) (berth.Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	id := workflows.TurnWorkflowID(turnID)
	t, closed, err := query[berth.Turn](ctx, s, id, workflows.QueryTurn, enums.QUERY_REJECT_CONDITION_NOT_OPEN)
	switch closed {
	case enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, enums.WORKFLOW_EXECUTION_STATUS_FAILED:
	case enums.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		t, err = resultOf[berth.Turn](ctx, s, id)
	default: // it was ended from outside of its workflow
		if t, _, err = query[berth.Turn](ctx, s, id, workflows.QueryTurn, enums.QUERY_REJECT_CONDITION_NONE); t.Status == berth.TurnOpen {
			t.Lose()
		}
	}
	if err != nil || len(t.Jobs) == 0 { // without a job its first was refused, or is not decided yet
		return berth.Turn{}, noTurn(err)
	}
	return t, nil
}

// noTurn is CodeNotFound, unless err reports that the turn could not be read.
func noTurn(err error) error {
	if err != nil && !isNotRunning(err) && berth.CodeOf(err) != berth.CodeNotFound {
		return err
	}
	return berth.Errorf(berth.CodeNotFound, workflows.TurnNotFound)
}
