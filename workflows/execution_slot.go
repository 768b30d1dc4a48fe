package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// excludeFailedFor is how long a node that failed the execution is excluded at least. Then it is eligible again unless
	// another node could do the work.
	excludeFailedFor = 10 * time.Second
)

// place reserves a slot, and waits for one until the deadline. The first reply decides whether the execution is accepted:
// it is when a node has capacity, or may have it later. An execution without a node waits in the room of its pool; a signal announces
// that one is reserved for it.
func (e *execution) place(ctx workflow.Context) (AssignReply, error) {
	since, pause := workflow.Now(ctx), minAssignPause
	for {
		excluded := excludeFailedFor - workflow.Now(ctx).Sub(since)
		e.readmit = excluded <= 0
		reply, err := e.assign(ctx)
		code, accepted := refusalCode(err), e.isAccepted()
		waits := e.waiting.ended(err, accepted)
		if !accepted && e.submission.refusal == nil {
			e.settle(ctx, reply, err)
		}
		if err == nil || e.submission.refusal != nil {
			return reply, err
		}
		if temporal.IsCanceledError(err) || ctx.Err() != nil {
			return reply, temporal.NewCanceledError()
		}
		all := code == berth.CodeNoNode && len(e.failed) > 0 && workflow.Now(ctx).Sub(since) >= excludeFailedFor
		if all {
			e.failed = nil // they may be the only ones
		}
		left := e.left(ctx)
		if left <= 0 {
			return reply, refuse(berth.CodeDeadlineExceeded, "no node was available before the deadline: "+refusalMessage(err))
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return reply, e.continueAsNew(ctx)
		}
		if waits && !all {
			err, pause = e.wait(ctx, left, excluded), minAssignPause
		} else {
			err, pause = workflow.Sleep(ctx, min(pause, left)), min(2*pause, maxAssignPause)
		}
		if err != nil {
			return reply, err
		}
	}
}

// wait returns when a node may be reserved for the execution, at the latest after left. Where nodes are excluded that failed it, it
// returns when that may end: after excluded, and then regularly, because another node that could do the work may have been lost.
func (e *execution) wait(ctx workflow.Context, left, excluded time.Duration) error {
	if busy := e.busy.left(ctx); busy > 0 {
		left = min(left, busy)
	}
	if len(e.failed) > 0 {
		if excluded <= 0 {
			excluded = excludeFailedFor
		}
		left = min(left, excluded)
	}
	return e.waiting.wait(ctx, left)
}

// leave removes the execution from the room of its pool.
func (e *execution) leave(ctx workflow.Context) {
	if e.isAccepted() {
		e.waiting.leave(ctx, leaveFor)
	} else {
		e.waiting.leave(ctx, leaveRefusedFor)
	}
}

// isAccepted reports whether the execution was accepted, even if that is not recorded yet.
func (e *execution) isAccepted() bool {
	return e.accepted != nil || e.submission.settled && e.submission.refusal == nil
}

// settle accepts or refuses the execution. A refused one keeps its initial state and has no row.
func (e *execution) settle(ctx workflow.Context, reply AssignReply, err error) {
	switch code := refusalCode(err); {
	case code == "":
		e.changeStatus(ctx, berth.ExecutionRunning)
		e.state.NodeID = reply.NodeID
	case temporal.IsCanceledError(err):
		e.submission.refusal = refuse(berth.CodeCancelled, "the execution was cancelled")
	case code != berth.CodeNodeFull:
		e.submission.refusal = err
	}
	e.decision = ExecuteReply{Status: e.state.Status, NodeID: e.state.NodeID}
	if e.submission.settled = e.submission.refusal != nil; !e.submission.settled {
		e.accept(ctx)
	}
}

// assign makes one attempt to reserve a slot, and holds it for as long as the work may take.
func (e *execution) assign(ctx workflow.Context) (AssignReply, error) {
	reply, err := local[AssignReply](once(ctx, time.Second, ""), AssignNodeActivity, e.assignInput(ctx))
	var app *temporal.ApplicationError
	switch {
	case err == nil:
	case errors.As(err, &app) || temporal.IsCanceledError(err):
		return AssignReply{}, err
	default: // the reply was lost: the slot expires unless the next attempt finds it
		return AssignReply{}, refuse(berth.CodeUnavailable, "node assignment is unavailable; retry in a few seconds")
	}
	slot, held := e.slots.holdConfirmed(ctx, reply.Assignment, e.timeout(ctx))
	if !held {
		if ctx.Err() != nil {
			return AssignReply{}, temporal.NewCanceledError()
		}
		return AssignReply{}, refuse(berth.CodeUnavailable, "the slot was lost before the work began; retry in a few seconds")
	}
	e.slot = slot
	return reply, nil
}

func (e *execution) assignInput(ctx workflow.Context) AssignInput {
	attempt := len(e.state.Attempts) + 1
	e.waiting.begin(NodeWait{
		PoolID: e.in.Where.PoolID, UserID: e.in.UserID, WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID,
		LeaseID: ExecutionLease(executionKey(ctx), attempt), Since: e.state.StartedAt, Again: attempt > 1, Left: e.left(ctx),
	})
	return AssignInput{
		Where: e.in.Where, Failed: slices.Concat(e.failed, e.busy.now(ctx)), Readmit: e.readmit,
		Wait: e.waiting.NodeWait, Accepted: e.isAccepted(),
	}
}

// release releases the slot if there is one, also of an execution that is cancelled, and waits until the next one can be taken.
func (e *execution) release(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	e.slots.release(e.slot)
	if err := e.slots.free(ctx); err != nil {
		workflow.GetLogger(ctx).Error("slot not released", "error", err) // unreachable: the context is never cancelled
	}
}

// continueAsNew returns the error that starts the next run of an execution that waits.
func (e *execution) continueAsNew(ctx workflow.Context) error {
	in := e.in
	in.Resumed = &ExecutionProgress{
		SubmissionID: e.submission.id, StartedAt: e.state.StartedAt, NodeID: e.state.NodeID, Strategy: e.state.Strategy,
		Attempts: e.state.Attempts, Failed: e.failed,
	}
	return workflow.NewContinueAsNewError(ctx, ExecutionWorkflow, in)
}
