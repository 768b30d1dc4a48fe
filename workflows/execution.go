package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// ExecutionInput starts an execution (S8).
type ExecutionInput struct {
	ExecutionID string             `json:"executionId"`
	UserID      string             `json:"userId"`
	Executor    string             `json:"executor"`
	Input       json.RawMessage    `json:"input,omitempty"`
	RequestHash string             `json:"requestHash"`
	Where       berth.Requirements `json:"where"`
	// Timeout is how long one node may take, Deadline how long all of it may from acceptance, waiting included.
	Timeout  time.Duration `json:"timeout"`
	Deadline time.Duration `json:"deadline"`
	// Resumed is where the run before this one stood: a long wait for room is told in several histories.
	Resumed *ExecutionProgress `json:"resumed,omitempty"`
}

// ExecutionProgress is what an accepted execution that waits hands to its next run.
type ExecutionProgress struct {
	SubmissionID string                   `json:"submissionId"`
	StartedAt    time.Time                `json:"startedAt"`
	NodeID       string                   `json:"nodeId,omitempty"`
	Strategy     berth.Strategy           `json:"strategy,omitempty"`
	Attempts     []berth.ExecutionAttempt `json:"attempts,omitempty"`
	Failed       []NodeRef                `json:"failed,omitempty"`
}

// ExecuteRequest is the argument of the execute update.
type ExecuteRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
}

// ExecuteReply is the outcome of the execute update: accepted, perhaps on a node already.
type ExecuteReply struct {
	SubmissionID string                `json:"submissionId"`
	Status       berth.ExecutionStatus `json:"status"`
	NodeID       string                `json:"nodeId,omitempty"`
}

// AssignInput is the argument of AssignNode.
type AssignInput struct {
	LeaseID string             `json:"leaseId"`
	Where   berth.Requirements `json:"where"`
	// Failed are generations that failed the work: those nodes are passed over until they have registered anew.
	Failed []NodeRef     `json:"failed,omitempty"`
	Hold   time.Duration `json:"hold,omitempty"` // unless it is confirmed; 0 is lua.Unconfirmed
}

// AssignReply is the result of AssignNode: the slot, and what the operator wants of failures now (S6).
type AssignReply struct {
	berth.Assignment
	MaxRetries     int  `json:"maxRetries"`
	EnableFailover bool `json:"enableFailover"`
}

const (
	// nodeStart is how long a node may take to fetch its work, nodeBeat how long it may be silent meanwhile.
	nodeStart = 5 * time.Second
	nodeBeat  = 10 * time.Second
	// slotSlack is how much longer than its work a slot is held: the work has to be fetched, and its end told.
	slotSlack = 10 * time.Second
	// stopPatience is how long a cancelled node is given to say that it has stopped.
	stopPatience = 10 * time.Second
)

// Execution runs a named executor on a node, and on another when that one fails or dies. One that failed or was
// cancelled ends its run the same way, with the berth.Execution as the failure's detail.
func Execution(ctx workflow.Context, in ExecutionInput) (berth.Execution, error) {
	e := &execution{in: in}
	if err := e.setup(ctx); err != nil {
		return berth.Execution{}, err
	}
	return e.run(ctx)
}

type execution struct {
	in      ExecutionInput
	is      berth.Execution
	firstID string
	// settled is true once the execution was accepted or refused.
	settled bool
	refusal error
	failed  []NodeRef // nodes that are passed over, for they failed it
	slot    nodeSlot
}

func (e *execution) setup(ctx workflow.Context) error {
	in := e.in
	if in.ExecutionID == "" || in.Executor == "" || in.Where.PoolID == "" || in.Timeout <= 0 || in.Deadline <= 0 {
		return executionError(berth.CodeInternal, "execution input lacks an id, executor, pool, timeout or deadline")
	}
	e.is = berth.Execution{
		ID: in.ExecutionID, UserID: in.UserID, Executor: in.Executor, PoolID: in.Where.PoolID,
		Status: berth.ExecutionWaiting, Attempts: []berth.ExecutionAttempt{}, StartedAt: workflow.Now(ctx),
	}
	if r := in.Resumed; r != nil {
		e.settled, e.firstID, e.failed = true, r.SubmissionID, r.Failed
		e.is.StartedAt, e.is.NodeID, e.is.Strategy = r.StartedAt, r.NodeID, r.Strategy
		e.is.Attempts = append(e.is.Attempts, r.Attempts...)
	}
	e.slot.change = workflow.NewMutex(ctx)
	if err := workflow.SetQueryHandler(ctx, QueryExecution, func() (berth.Execution, error) { return e.is, nil }); err != nil {
		return err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		for workflow.GetSignalChannel(ctx, SignalReassert).Receive(ctx, nil) {
			e.reassert(ctx)
		}
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateExecute, e.submit, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, req ExecuteRequest) error {
			if req.RequestHash != in.RequestHash {
				return executionError(berth.CodeIdempotencyMismatch, "another request has this id")
			}
			return nil
		},
	})
}

// submit answers once the execution is accepted or refused. Equal submissions share the update, and so the reply.
func (e *execution) submit(ctx workflow.Context, req ExecuteRequest) (ExecuteReply, error) {
	if e.firstID == "" {
		e.firstID = req.SubmissionID
	}
	if err := workflow.Await(ctx, func() bool { return e.settled }); err != nil {
		return ExecuteReply{}, err
	}
	if e.refusal != nil {
		return ExecuteReply{}, e.turnedAway()
	}
	return ExecuteReply{SubmissionID: e.firstID, Status: e.is.Status, NodeID: e.is.NodeID}, nil
}

func (e *execution) run(ctx workflow.Context) (berth.Execution, error) {
	out, err := e.work(ctx)
	if refused := e.refusal != nil && !temporal.IsCanceledError(err); !refused && !workflow.IsContinueAsNewError(err) {
		err = e.end(ctx, out, err)
	}
	e.release(ctx) // after the end is told: Redis may be away
	return e.finish(ctx, err)
}

// work tries one node after the other.
func (e *execution) work(ctx workflow.Context) (json.RawMessage, error) {
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

// try has one node do the work.
func (e *execution) try(ctx workflow.Context, reply AssignReply) (json.RawMessage, error) {
	e.is.Status, e.is.NodeID, e.is.Strategy = berth.ExecutionRunning, reply.NodeID, reply.Strategy
	e.is.Attempts = append(e.is.Attempts, berth.ExecutionAttempt{NodeID: reply.NodeID, Generation: reply.Generation})
	act := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              reply.TaskQueue(),
		ScheduleToStartTimeout: nodeStart,
		StartToCloseTimeout:    e.timeout(ctx),
		HeartbeatTimeout:       nodeBeat,
		// Another try on this queue would go to the same node, perhaps a dead one: the next one is elsewhere.
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		WaitForCancellation: true,
		Summary:             e.in.Executor,
	}), berth.ActivityExecute, berth.ExecuteInput{
		ExecutionID: e.in.ExecutionID, Executor: e.in.Executor, Attempt: len(e.is.Attempts), Input: e.in.Input,
	})
	e.await(ctx, act)
	if !act.IsReady() {
		return nil, temporal.NewCanceledError()
	}
	var out berth.ExecuteOutput
	if err := act.Get(ctx, &out); err != nil {
		e.is.Attempts[len(e.is.Attempts)-1].Error = attemptError(err)
		e.slot.silent = missedHeartbeats(err)
		return nil, err
	}
	return out.Output, nil
}

// await waits for the node, and after a cancellation for a while until it has stopped: its slot is not to be given to
// another while it is at work.
func (e *execution) await(ctx workflow.Context, act workflow.Future) {
	done := func(workflow.Future) {}
	workflow.NewSelector(ctx).AddFuture(act, done).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).Select(ctx)
	if act.IsReady() {
		return
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	workflow.NewSelector(ctx).AddFuture(act, done).AddFuture(workflow.NewTimer(ctx, stopPatience), done).Select(ctx)
}

// timeout is how long a node may take from now on.
func (e *execution) timeout(ctx workflow.Context) time.Duration {
	return max(min(e.in.Timeout, e.left(ctx)), time.Millisecond)
}

// left is the time until the deadline, which counts from acceptance.
func (e *execution) left(ctx workflow.Context) time.Duration {
	return e.is.StartedAt.Add(e.in.Deadline).Sub(workflow.Now(ctx))
}

// failover decides what follows a node's failure: nil has another one try.
func (e *execution) failover(ctx workflow.Context, reply AssignReply, err error) error {
	var app *temporal.ApplicationError
	switch {
	case ctx.Err() != nil:
		return temporal.NewCanceledError()
	case errors.As(err, &app) && app.NonRetryable() && app.Type() == string(berth.CodeInvalid):
		return executionError(berth.CodeInvalid, attemptError(err)) // it would be as wrong elsewhere
	case e.left(ctx) <= 0:
		return executionError(berth.CodeDeadlineExceeded, "the execution did not finish before its deadline")
	case !reply.EnableFailover || len(e.is.Attempts) > reply.MaxRetries:
		return executionError(berth.CodeNodeFailed,
			fmt.Sprintf("attempt %d failed, on %s: %s", len(e.is.Attempts), reply.NodeID, attemptError(err)))
	}
	e.release(ctx)
	e.is.Status = berth.ExecutionWaiting
	e.failed = append(e.failed, NodeRef{NodeID: reply.NodeID, Generation: reply.Generation})
	return nil
}

// end writes how it ended into the execution, and answers what its run ends with.
func (e *execution) end(ctx workflow.Context, out json.RawMessage, err error) error {
	var app *temporal.ApplicationError
	if err == nil && len(out) > berth.MaxExecutionBytes {
		err = executionError(berth.CodeTooLarge, fmt.Sprintf("the output is over %d bytes", berth.MaxExecutionBytes))
	}
	e.is.EndedAt = workflow.Now(ctx)
	switch {
	case err == nil:
		e.is.Status, e.is.Output = berth.ExecutionCompleted, out
		return nil
	case temporal.IsCanceledError(err):
		e.is.Status, e.is.Code, e.is.Message = berth.ExecutionCancelled, berth.CodeCancelled, "the execution was cancelled"
		return temporal.NewCanceledError(e.is)
	case errors.As(err, &app):
		e.is.Code, e.is.Message = berth.Code(app.Type()), app.Message()
	default:
		e.is.Code, e.is.Message = berth.CodeInternal, "the execution failed unexpectedly"
	}
	e.is.Status = berth.ExecutionFailed
	return temporal.NewApplicationErrorWithOptions(e.is.Message, string(e.is.Code), temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: err, Details: []any{e.is},
	})
}

// finish lets open updates answer before the run ends.
func (e *execution) finish(ctx workflow.Context, err error) (berth.Execution, error) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if werr := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); werr != nil {
		return berth.Execution{}, werr
	}
	return e.is, err
}

// executionError is an end that trying again would not mend.
func executionError(code berth.Code, message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(code), nil)
}

// attemptError tells people why a node failed, in one short line.
func attemptError(err error) string {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &app):
		return clipText(plain(app.Message()), 500)
	case temporal.IsCanceledError(err):
		return "the node gave the work back"
	case !errors.As(err, &timeout):
		return "the node's answer could not be read"
	case timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return "the node did not take the work"
	case timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		return "the node fell silent"
	default:
		return "the node did not finish in time"
	}
}
