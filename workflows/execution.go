package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// nodeAcceptTimeout is how long a node may take to accept its work, nodeHeartbeatTimeout how long its heartbeats may be
	// missing while it runs the work.
	nodeAcceptTimeout    = 5 * time.Second
	nodeHeartbeatTimeout = 10 * time.Second
	// stopTimeout is how long a node may take to report that it has stopped cancelled work.
	stopTimeout = 10 * time.Second
)

// Execution runs a named executor on a node, and on another one when that fails or dies. A failed or cancelled execution
// fails or cancels its run, with the berth.Execution as the failure's detail.
func Execution(ctx workflow.Context, in ExecutionInput) (berth.Execution, error) {
	e := &execution{in: in}
	if err := e.setup(ctx); err != nil {
		return berth.Execution{}, err
	}
	return e.run(ctx)
}

type execution struct {
	in      ExecutionInput
	state   berth.Execution
	failed  []berth.NodeRef // nodes that failed it and are excluded
	busy    busyNodes       // that have returned it
	slots   heldSlots
	slot    *heldSlot // of the last attempt
	waiting nodeWait
	// readmit: nodes that failed it are eligible where no other node could do the work.
	readmit bool

	submission submission      // reply to the execute update
	decision   ExecuteReply    // that the update returns
	accepted   workflow.Future // set once it is accepted; ready when it has a row
}

func (e *execution) setup(ctx workflow.Context) error {
	in := e.in
	if in.ExecutionID == "" || in.Executor == "" || in.Where.PoolID == "" || in.Timeout <= 0 || in.Deadline <= 0 {
		return refuse(berth.CodeInternal, "execution input lacks an id, executor, pool, timeout or deadline")
	}
	e.state = berth.Execution{
		ID: in.ExecutionID, UserID: in.UserID, Executor: in.Executor, PoolID: in.Where.PoolID,
		Status: berth.ExecutionWaiting, Attempts: []berth.ExecutionAttempt{}, StartedAt: workflow.Now(ctx),
	}
	if r := in.Resumed; r != nil {
		accepted, hasRow := workflow.NewFuture(ctx)
		hasRow.SetValue(nil)
		e.submission, e.accepted, e.failed = submission{id: r.SubmissionID, settled: true}, accepted, r.Failed
		e.state.StartedAt, e.state.NodeID, e.state.Strategy = r.StartedAt, r.NodeID, r.Strategy
		e.decision = ExecuteReply{Status: e.state.Status, NodeID: r.NodeID}
		e.state.Attempts = append(e.state.Attempts, r.Attempts...)
		for _, a := range r.Attempts {
			if a.Busy {
				e.busy.times++
			}
		}
	}
	e.state.DeadlineAt = e.state.StartedAt.Add(in.Deadline)
	e.slots.ctx, _ = workflow.NewDisconnectedContext(ctx)
	if err := workflow.SetQueryHandler(ctx, QueryExecution, func() (berth.Execution, error) { return e.state, nil }); err != nil {
		return err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalRestore).Receive(ctx, nil) {
			e.waiting.woken = true // Redis may have lost that it waits
			e.slots.restore()
		}
	})
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalPromoted).Receive(ctx, nil) {
			e.waiting.woken = true
		}
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateExecute, e.submit, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, req ExecuteRequest) error {
			if req.RequestHash != in.RequestHash {
				return refuse(berth.CodeIdempotencyMismatch, "another request has this id")
			}
			return nil
		},
	})
}

// submit is the execute update. It returns once the execution is accepted or refused.
func (e *execution) submit(ctx workflow.Context, req ExecuteRequest) (ExecuteReply, error) {
	if err := e.submission.wait(ctx, req.SubmissionID); err != nil {
		return ExecuteReply{}, err
	}
	reply := e.decision
	reply.SubmissionID = e.submission.id
	return reply, nil
}

func (e *execution) run(ctx workflow.Context) (berth.Execution, error) {
	out, err := e.tryNodes(ctx)
	if refused := e.submission.refusal != nil && !temporal.IsCanceledError(err); !refused && !workflow.IsContinueAsNewError(err) {
		err = e.end(ctx, out, err)
	}
	if !workflow.IsContinueAsNewError(err) {
		e.leave(ctx)
	}
	e.release(ctx) // after the end is decided, because Redis may be unavailable
	return e.finish(ctx, err)
}

// tryNodes tries one node after another until one succeeds or the execution fails.
func (e *execution) tryNodes(ctx workflow.Context) (json.RawMessage, error) {
	for {
		reply, err := e.place(ctx)
		if err != nil {
			return nil, err
		}
		out, err := e.try(ctx, reply)
		if err == nil {
			return out, nil
		}
		if err := e.failover(ctx, reply, err); err != nil {
			return nil, err
		}
	}
}

// try runs the executor on one node.
func (e *execution) try(ctx workflow.Context, reply AssignReply) (json.RawMessage, error) {
	e.changeStatus(ctx, berth.ExecutionRunning)
	e.state.NodeID, e.state.Strategy = reply.NodeID, reply.Strategy
	e.state.Attempts = append(e.state.Attempts, berth.ExecutionAttempt{NodeRef: reply.NodeRef})
	act := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              reply.TaskQueue(),
		ScheduleToStartTimeout: nodeAcceptTimeout,
		StartToCloseTimeout:    e.timeout(ctx),
		HeartbeatTimeout:       nodeHeartbeatTimeout,
		// A retry on this queue would go to the same node, which may be dead.
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		WaitForCancellation: true,
		Summary:             e.in.Executor,
	}), berth.ActivityExecute, berth.ExecuteInput{
		UserID: e.in.UserID, ExecutionID: e.in.ExecutionID, Executor: e.in.Executor, Attempt: len(e.state.Attempts), Input: e.in.Input,
	})
	e.await(ctx, act)
	if !act.IsReady() {
		return nil, temporal.NewCanceledError()
	}
	var out berth.ExecuteOutput
	if err := act.Get(ctx, &out); err != nil {
		attempt := &e.state.Attempts[len(e.state.Attempts)-1]
		attempt.Error = attemptError(err)
		if attempt.Busy = ctx.Err() == nil && e.busy.returned(ctx, reply.NodeRef, err); attempt.Busy {
			return nil, err
		}
		if attempt.Lost = ctx.Err() == nil && e.outages() < maxOutages && inOutage(ctx, err, nodeHeartbeatTimeout); attempt.Lost {
			attempt.Error = outageError
		}
		e.slot.unresponsive = unresponsive(err)
		return nil, err
	}
	return out.Output, nil
}

// changeStatus sets the status. A transition that executions do not have is an internal error and is not made.
func (e *execution) changeStatus(ctx workflow.Context, status berth.ExecutionStatus) {
	if e.state.Status != status && !e.state.Status.CanBecome(status) {
		workflow.GetLogger(ctx).Error("invalid execution transition", "status", e.state.Status, "next", status)
		return
	}
	e.state.Status = status
}

// await waits for the node. After a cancellation it waits up to stopTimeout for the node to stop, so that the slot is not
// assigned while the node is still busy.
func (e *execution) await(ctx workflow.Context, act workflow.Future) {
	done := func(workflow.Future) {}
	workflow.NewSelector(ctx).AddFuture(act, done).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).Select(ctx)
	if act.IsReady() {
		return
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	workflow.NewSelector(ctx).AddFuture(act, done).AddFuture(workflow.NewTimer(ctx, stopTimeout), done).Select(ctx)
}

// timeout returns how long a node may take from now on.
func (e *execution) timeout(ctx workflow.Context) time.Duration {
	return max(min(e.in.Timeout, e.left(ctx)), time.Millisecond)
}

// left returns the time until the deadline.
func (e *execution) left(ctx workflow.Context) time.Duration {
	return e.state.DeadlineAt.Sub(workflow.Now(ctx))
}

// failover handles a node's failure. It returns nil if another node is to be tried, and otherwise the execution's error.
func (e *execution) failover(ctx workflow.Context, reply AssignReply, err error) error {
	last := e.state.Attempts[len(e.state.Attempts)-1]
	switch {
	case ctx.Err() != nil:
		return temporal.NewCanceledError()
	case permanentCode(err) != "":
		return refuse(permanentCode(err), attemptError(err))
	case e.left(ctx) <= 0:
		return refuse(berth.CodeDeadlineExceeded, "the execution did not finish before its deadline")
	case last.Busy && e.busy.times > maxBusy:
		return refuse(berth.CodeNodeFull,
			fmt.Sprintf("every node was busy; after %d requests the last one was returned on %s: %s", e.busy.times, reply.NodeID, last.Error))
	case last.Busy:
	case !reply.EnableFailover || !last.Lost && e.state.Failures() > reply.MaxRetries:
		return refuse(berth.CodeNodeFailed,
			fmt.Sprintf("attempt %d failed, on %s: %s", max(e.state.Failures(), 1), reply.NodeID, last.Error))
	}
	e.release(ctx)
	e.changeStatus(ctx, berth.ExecutionWaiting)
	if !last.Lost && !last.Busy {
		e.failed = append(e.failed, reply.NodeRef)
	}
	return nil
}

// outages returns the number of attempts that were lost in outages.
func (e *execution) outages() (n int) {
	for _, a := range e.state.Attempts {
		if a.Lost {
			n++
		}
	}
	return n
}

// accept writes the row of an execution that has been accepted. Its work begins meanwhile; the update returns when there is a row.
func (e *execution) accept(ctx workflow.Context) {
	accepted, hasRow := workflow.NewFuture(ctx)
	e.accepted = accepted
	workflow.Go(ctx, func(ctx workflow.Context) {
		e.save(ctx)
		e.submission.settled = true
		hasRow.SetValue(nil)
	})
}

// executionKey returns the key of this execution.
func executionKey(ctx workflow.Context) string {
	return strings.TrimPrefix(workflow.GetInfo(ctx).WorkflowExecution.ID, ExecutionPrefix)
}

// save writes the row of the execution, even when it is cancelled.
func (e *execution) save(ctx workflow.Context) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	row := berth.ExecutionRow{Key: executionKey(ctx), Execution: e.state}
	row.Output = nil
	if _, err := untilDone[noResult](ctx, SaveExecutionActivity, row); err != nil { // unreachable: retried until it succeeds
		workflow.GetLogger(ctx).Error("execution not written", "error", err)
	}
}

// end decides how the execution ended, and returns the error of its run.
func (e *execution) end(ctx workflow.Context, out json.RawMessage, err error) error {
	var app *temporal.ApplicationError
	if err == nil && len(out) > berth.MaxExecutionBytes {
		err = refuse(berth.CodeTooLarge, fmt.Sprintf("the output exceeds the limit of %d bytes", berth.MaxExecutionBytes))
	}
	e.state.EndedAt = workflow.Now(ctx)
	switch {
	case err == nil:
		e.changeStatus(ctx, berth.ExecutionCompleted)
		e.state.Output = out
		return nil
	case temporal.IsCanceledError(err):
		e.changeStatus(ctx, berth.ExecutionCancelled)
		e.state.Code, e.state.Message = berth.CodeCancelled, "the execution was cancelled"
		return temporal.NewCanceledError(e.state)
	case errors.As(err, &app):
		e.state.Code, e.state.Message = berth.Code(app.Type()), app.Message()
	default:
		e.state.Code, e.state.Message = berth.CodeInternal, "the execution failed unexpectedly"
	}
	e.changeStatus(ctx, berth.ExecutionFailed)
	return temporal.NewApplicationErrorWithOptions(e.state.Message, string(e.state.Code), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: err, Details: []any{e.state},
	})
}

// finish writes the end of an accepted execution, and waits for open updates to return before the run ends.
func (e *execution) finish(ctx workflow.Context, err error) (berth.Execution, error) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if e.accepted != nil {
		if werr := e.accepted.Get(ctx, nil); werr != nil {
			return berth.Execution{}, werr
		}
		if e.state.Status.Final() {
			if err != nil { // the output is in the history, but not what failed or cancelled it
				recordDecisions(ctx)
			}
			e.save(ctx)
		}
	}
	if werr := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); werr != nil {
		return berth.Execution{}, werr
	}
	return e.state, err
}
