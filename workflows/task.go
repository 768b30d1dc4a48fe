package workflows

import (
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// TaskInput is the argument of Task: a checked and routed request.
type TaskInput struct {
	berth.TaskPlan
	// Deadline counts from acceptance, StepTimeout from a step's start.
	Deadline    time.Duration `json:"deadline"`
	StepTimeout time.Duration `json:"stepTimeout"`
	// AcceptWithin is the time after the workflow's start in which the task can be accepted. Later the caller has received
	// an error, and the task is refused. It is a duration because only Temporal's own clock measures it. 0 for a response that replaces
	// another one: its row exists.
	AcceptWithin time.Duration `json:"acceptWithin,omitempty"`
}

// TaskResult is the outcome of a task.
type TaskResult struct {
	Status        berth.TaskStatus `json:"status"`
	ResultAssetID string           `json:"resultAssetId,omitempty"`
	Code          berth.Code       `json:"code,omitempty"`
	// ReplacedBy is the response that replaces a failed one; empty for none.
	ReplacedBy string `json:"replacedBy,omitempty"`
}

// SubmitRequest is the argument of the submit update.
type SubmitRequest struct {
	// SubmissionID is unique per HTTP request: a reply with another id marks a replay.
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
}

// SubmitReply is the outcome of the submit update.
type SubmitReply struct {
	SubmissionID string           `json:"submissionId"`
	Status       berth.TaskStatus `json:"status"`
	// Replay: the row existed before this run; the task had already ended.
	Replay bool       `json:"replay,omitempty"`
	Tier   berth.Tier `json:"tier,omitempty"`
}

// AcceptReply is the result of AcceptTask.
type AcceptReply struct {
	Status     berth.TaskStatus `json:"status"`
	Created    bool             `json:"created"`
	DeadlineAt time.Time        `json:"deadlineAt"`
	// Tier is what the charge decided; Free of the input's plan when it failed.
	Tier berth.Tier `json:"tier,omitempty"`
	// Entered is whether the first step waits.
	Entered Entered `json:"entered,omitempty"`
}

// Entered is whether the call of a step may be made, after the task has entered the waiting room of the step's model. It is empty
// in the histories of runs that did not wait.
type Entered string

// The values of Entered.
const (
	EnteredPromoted Entered = "promoted" // the call may be made
	EnteredWaiting  Entered = "waiting"  // SignalPromoted announces that it may be made
	EnteredUnknown  Entered = "unknown"  // Redis was unavailable: EnterTask has to be repeated
)

// StepInput is the argument of RunStep.
type StepInput struct {
	berth.TaskRequest
	UserID string `json:"userId"`
	// Forwarded is that of the plan.
	Forwarded *berth.Forwarded `json:"forwarded,omitempty"`
	Index     int              `json:"index"`
	Step      berth.Step       `json:"step"`
	// Outputs maps finished steps to the assets they stored.
	Outputs map[berth.StepName]string `json:"outputs,omitempty"`
	// NextStatus is the task's status once this step is recorded; empty after the last one.
	NextStatus berth.TaskStatus `json:"nextStatus,omitempty"`
	// Next is the step after this one, nil after the last one.
	Next       *berth.Step   `json:"next,omitempty"`
	Timeout    time.Duration `json:"timeout"`
	DeadlineAt time.Time     `json:"deadlineAt"`
}

// StepOutput is the result of RunStep: a reference to the stored text.
type StepOutput struct {
	AssetID string `json:"assetId"`
	// Next is whether the next step waits.
	Next Entered `json:"next,omitempty"`
	// Ended: the last step has recorded and published the end of the task.
	Ended bool `json:"ended,omitempty"`
}

// Ref returns the task of the step.
func (in StepInput) Ref() berth.TaskRef { return berth.TaskRef{UserID: in.UserID, TaskID: in.ID} }

// EnterInput is the argument of EnterTask.
type EnterInput struct {
	berth.TaskRef
	berth.Group
	Index      int        `json:"index"`
	Step       berth.Step `json:"step"`
	DeadlineAt time.Time  `json:"deadlineAt"`
}

// EndInput is the argument of FinishTask.
type EndInput struct {
	berth.TaskRef
	Status        berth.TaskStatus `json:"status"`
	ResultAssetID string           `json:"resultAssetId,omitempty"`
	Code          berth.Code       `json:"code,omitempty"`
	Message       string           `json:"message,omitempty"`
	// Detail is of a forwarded request, see berth.Task.
	Detail json.RawMessage `json:"detail,omitempty"`
	// Replacement is that of a response that broke off.
	Replacement *berth.TaskPlan `json:"replacement,omitempty"`
}

// ForwardedFailure is the detail of the failure of a forwarded request.
type ForwardedFailure struct {
	Error json.RawMessage `json:"error"` // as a client of OpenAI's protocol reads it
	// BrokeOff: the answer would have been made again if no client could have read a part of it.
	BrokeOff bool `json:"brokeOff,omitempty"`
}

// WithdrawInput is the argument of WithdrawTask.
type WithdrawInput struct {
	berth.TaskRef
	RequestHash string `json:"requestHash"`
	// ServiceID, Group and Queues are those to which the submission was admitted.
	ServiceID string `json:"serviceId,omitempty"`
	berth.Group
	Queues []berth.Queue `json:"queues,omitempty"`
}

// Task runs one LLM request: it accepts the task, runs its steps in order and ends it exactly once. The run of a failed or
// cancelled task ends the same way, so that the Temporal UI shows it; the ledger's row is authoritative.
func Task(ctx workflow.Context, in TaskInput) (TaskResult, error) {
	t := &task{in: in}
	if err := t.setup(ctx); err != nil {
		return TaskResult{}, err
	}
	return t.run(ctx)
}

type task struct {
	in       TaskInput
	accepted AcceptReply
	// submission is the reply to the submit update.
	submission submission
	outputs    map[berth.StepName]string
	resultRef  string
	// promoted is the last step whose call may be made.
	promoted int
	// ended is set once the last step has ended the task.
	ended bool
}

func (t *task) setup(ctx workflow.Context) error {
	if t.in.ID == "" || len(t.in.Steps) == 0 {
		return refuse(berth.CodeInternal, "task input has no id or no steps")
	}
	t.outputs, t.promoted = map[berth.StepName]string{}, -1
	workflow.Go(ctx, func(ctx workflow.Context) {
		for promotions := workflow.GetSignalChannel(ctx, SignalPromoted); ; {
			var step int
			if more := promotions.Receive(ctx, &step); !more {
				return
			}
			t.promoted = max(t.promoted, step)
		}
	})
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateSubmit, t.submit, workflow.UpdateHandlerOptions{
		Validator: func(_ workflow.Context, req SubmitRequest) error {
			if req.RequestHash != t.in.RequestHash {
				return refuse(berth.CodeIdempotencyMismatch, "the id is already used for a different request")
			}
			return nil
		},
	})
}

// submit returns once the task is accepted or refused.
func (t *task) submit(ctx workflow.Context, req SubmitRequest) (SubmitReply, error) {
	if err := t.submission.wait(ctx, req.SubmissionID); err != nil {
		return SubmitReply{}, err
	}
	return SubmitReply{SubmissionID: t.submission.id, Status: t.accepted.Status, Replay: !t.accepted.Created && t.accepted.Status.Final(), Tier: t.accepted.Tier}, nil
}

func (t *task) run(ctx workflow.Context) (TaskResult, error) {
	left, limited := t.acceptTime(ctx)
	if limited && left <= 0 {
		return TaskResult{}, t.expire(ctx)
	}
	var err error
	if limited {
		t.accepted, err = t.accept(ctx, left)
	} else { // its row exists, and no caller waits
		t.accepted, err = untilDone[AcceptReply](ctx, AcceptTaskActivity, t.in)
	}
	t.submission.refusal = err
	if err != nil && limited {
		return TaskResult{}, t.withdraw(ctx)
	}
	t.submission.settled = true
	if t.accepted.Status.Final() {
		// The id was used before and its run is no longer retained: the row has the outcome.
		return TaskResult{Status: t.accepted.Status}, t.await(ctx)
	}
	if t.accepted.Tier == berth.TierFree {
		t.in.TaskPlan = t.in.Free()
	}
	if err == nil {
		err = t.steps(ctx)
	}
	return t.finish(ctx, t.end(ctx, err))
}

// maxAcceptTime bounds how long the acceptance of a task may take.
const maxAcceptTime = 4 * time.Second

// acceptTime returns how long the acceptance may take from now on, and whether the caller stops waiting after some time.
func (t *task) acceptTime(ctx workflow.Context) (left time.Duration, limited bool) {
	if t.in.AcceptWithin <= 0 {
		return maxAcceptTime, false
	}
	until := workflow.GetInfo(ctx).WorkflowStartTime.Add(t.in.AcceptWithin)
	return min(maxAcceptTime, until.Sub(workflow.Now(ctx))), true
}

// expire refuses a task that no worker accepted in time. The refusal is the last action of the run, so that a caller that
// receives it in place of an earlier caller can start the next run.
func (t *task) expire(ctx workflow.Context) error {
	t.submission.refusal = refuse(berth.CodeUnavailable, "the request was not accepted in time; retry")
	return t.withdraw(ctx)
}

func (t *task) accept(ctx workflow.Context, within time.Duration) (AcceptReply, error) {
	return local[AcceptReply](workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: within,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 50 * time.Millisecond, BackoffCoefficient: 2, MaximumAttempts: 4},
	}), AcceptTaskActivity, t.in)
}

// withdraw removes what a failed acceptance may have left, and then fails the run with the refusal: while its row exists, the task
// looks accepted.
func (t *task) withdraw(ctx workflow.Context) error {
	if err := t.remove(ctx); err != nil {
		return err
	}
	t.submission.settled = true
	if err := t.await(ctx); err != nil {
		return err
	}
	return t.submission.refusal
}

// remove deletes the row of a task that was not accepted. It runs even when the workflow is cancelled.
func (t *task) remove(ctx workflow.Context) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	_, err := untilDone[noResult](ctx, WithdrawTaskActivity, WithdrawInput{
		TaskRef: t.in.Ref(), RequestHash: t.in.RequestHash, ServiceID: t.in.ServiceID, Group: t.in.Group, Queues: t.in.Queues(),
	})
	return err
}

// steps runs the chain. A finished step is recorded in the ledger and never repeated.
func (t *task) steps(ctx workflow.Context) error {
	entered := t.accepted.Entered
	for i, step := range t.in.Steps {
		if err := t.waitForSlot(ctx, i, entered); err != nil {
			return err
		}
		in := StepInput{
			TaskRequest: t.in.TaskRequest, UserID: t.in.UserID, Forwarded: t.in.Forwarded, Index: i, Step: step, Outputs: t.outputs,
			Timeout: t.in.StepTimeout, DeadlineAt: t.accepted.DeadlineAt,
		}
		if step.Timeout > 0 {
			in.Timeout = min(in.Timeout, step.Timeout)
		}
		if i+1 < len(t.in.Steps) {
			in.Next = &t.in.Steps[i+1]
			in.NextStatus = in.Next.Status
		}
		out, err := t.step(ctx, in)
		if err != nil {
			return err
		}
		t.outputs[step.Name] = out.AssetID
		t.resultRef, entered, t.ended = out.AssetID, out.Next, out.Ended
	}
	return nil
}

// waitForSlot waits until the call of a step may be made. A task that waits costs no worker: it waits in Redis.
func (t *task) waitForSlot(ctx workflow.Context, step int, entered Entered) (err error) {
	if entered == EnteredUnknown {
		entered, err = untilDone[Entered](ctx, EnterTaskActivity, EnterInput{
			TaskRef: t.in.Ref(), Group: t.in.Group, Index: step, Step: t.in.Steps[step], DeadlineAt: t.accepted.DeadlineAt,
		})
		if err != nil {
			return err
		}
	}
	if entered != EnteredWaiting {
		return nil
	}
	promoted := func() bool { return t.promoted >= step }
	left := t.accepted.DeadlineAt.Sub(workflow.Now(ctx))
	if err := waitAtMost(ctx, left, "deadline of the task", promoted); err != nil {
		return err
	}
	if !promoted() {
		return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil)
	}
	return nil
}

// step runs one step until it is recorded. Temporal retries its faults until the task's deadline, without an event in the history.
func (t *task) step(ctx workflow.Context, in StepInput) (out StepOutput, err error) {
	left := t.accepted.DeadlineAt.Sub(workflow.Now(ctx))
	if left <= 0 {
		return out, temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil)
	}
	err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              berth.ModelTaskQueue(in.Step.Model),
		ScheduleToCloseTimeout: left,
		HeartbeatTimeout:       10 * time.Second,
		// RunStep sets the delay after a fault itself; the policy's intervals apply to lost workers.
		RetryPolicy: backoff(time.Second, 10*time.Second),
		Summary:     string(in.Step.Name),
	}), RunStepActivity, in).Get(ctx, &out)
	return out, err
}

// untilDeadline follows the message of a fault that the deadline of the task ended.
const untilDeadline = "; this lasted until the deadline"

// end translates the error of the chain, if any, into the task's outcome.
func (t *task) end(ctx workflow.Context, err error) EndInput {
	end := EndInput{TaskRef: t.in.Ref(), Status: berth.TaskFailed}
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case err == nil:
		end.Status, end.ResultAssetID = berth.TaskCompleted, t.resultRef
	case temporal.IsCanceledError(err) || ctx.Err() != nil:
		end.Status, end.Code, end.Message = berth.TaskCancelled, berth.CodeCancelled, "the task was cancelled"
	case errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_HEARTBEAT:
		end.Code, end.Message = berth.CodeUnavailable, "workers of this model stopped repeatedly"
	case errors.As(err, &timeout):
		end.Code, end.Message = berth.CodeDeadlineExceeded, "there was no complete answer before the deadline"
		if errors.As(timeout, &app) && app.Type() == string(berth.CodeProviderUnavailable) { // as between two calls
			end.Code, end.Message = berth.CodeProviderUnavailable, app.Message()+untilDeadline
		} else if app != nil {
			end.Message += "; the last fault: " + app.Message()
		}
	case errors.As(err, &app):
		end.Code, end.Message = berth.Code(app.Type()), app.Message()
		if t.in.Forwarded != nil && app.HasDetails() {
			t.forwardedFailed(ctx, app, &end)
		}
		if !app.NonRetryable() { // the next attempt would have begun after the deadline
			end.Message += untilDeadline
		}
	default:
		end.Code, end.Message = berth.CodeInternal, "the run failed unexpectedly"
	}
	return end
}

// forwardedFailed adds to the end of a forwarded request what its client reads, and the plan of the response that replaces it.
func (t *task) forwardedFailed(ctx workflow.Context, app *temporal.ApplicationError, end *EndInput) {
	var failed ForwardedFailure
	if err := app.Details(&failed); err != nil {
		workflow.GetLogger(ctx).Warn("detail of an error not read", "error", err)
		return
	}
	if end.Detail = failed.Error; failed.BrokeOff {
		end.Replacement = t.in.Replacement(workflow.Now(ctx))
	}
}

// finish records the outcome in the ledger and publishes it, unless the last step has. It runs even when the workflow is
// cancelled.
func (t *task) finish(ctx workflow.Context, end EndInput) (res TaskResult, err error) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	if t.ended {
		res = TaskResult{Status: berth.TaskCompleted, ResultAssetID: t.resultRef}
	} else if res, err = t.record(ctx, end); err != nil {
		return TaskResult{}, err
	}
	if err := t.await(ctx); err != nil {
		return TaskResult{}, err
	}
	switch res.Status {
	case berth.TaskCancelled:
		return res, temporal.NewCanceledError(end.Message)
	case berth.TaskFailed:
		return res, refuse(res.Code, end.Message)
	default:
		return res, nil
	}
}

// record records the outcome, then publishes what the ledger decided: of done, cancelled and timed out only one can be recorded.
func (t *task) record(ctx workflow.Context, end EndInput) (TaskResult, error) {
	res, err := untilDone[TaskResult](ctx, FinishTaskActivity, end)
	if err != nil {
		return TaskResult{}, err
	}
	if res.ReplacedBy != "" && end.Replacement != nil { // before the end is published, which names it
		if err := t.replace(ctx, *end.Replacement); err != nil {
			return TaskResult{}, err
		}
	}
	_, err = untilDone[noResult](ctx, PublishEndActivity, t.in.Ref())
	return res, err
}

// replace starts the run of the response that replaces this one, whose row exists.
func (t *task) replace(ctx workflow.Context, plan berth.TaskPlan) error {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: TaskWorkflowID(plan.Ref()), TaskQueue: TaskQueueTasks, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, TypedSearchAttributes: workflow.GetTypedSearchAttributes(ctx),
		StaticSummary: "replaces " + t.in.ID,
	})
	child := workflow.ExecuteChildWorkflow(ctx, TaskWorkflow, TaskInput{TaskPlan: plan, Deadline: t.in.Deadline, StepTimeout: t.in.StepTimeout})
	err := child.GetChildWorkflowExecution().Get(ctx, nil)
	if temporal.IsWorkflowExecutionAlreadyStartedError(err) { // such as after a reset of this run
		return nil
	}
	return err
}

// await waits until open updates have replied, so that the run can end.
func (t *task) await(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) })
}
