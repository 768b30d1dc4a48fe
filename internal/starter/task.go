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

// TaskReader reads the row of a task whose workflow has ended.
type TaskReader interface {
	GetTask(ctx context.Context, task berth.TaskRef) (berth.Task, error)
}

// acceptWithin is how long a workflow may take from its start to accept a task. It is shorter than callTimeout by the time
// that the start may take, so that a task is not accepted after its caller has received CodeUnavailable.
const acceptWithin = callTimeout - 2*time.Second

// SubmitTask starts the task's workflow and waits until it has accepted the request. It returns the user's task that holds
// the id, which may be of another request: the caller compares RequestHash. replay reports that the id was accepted before
// this call. Calls with the same plan are idempotent: a task that has ended is read from its row. CodeConflict when the
// id is in use but has no row.
func (s *Starter) SubmitTask(ctx context.Context, plan berth.TaskPlan) (task berth.Task, replay bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	submission := berth.NewID("")
	u := update{
		workflowID: workflows.TaskWorkflowID(plan.Ref()), name: workflows.UpdateSubmit, id: plan.RequestHash,
		arg:   workflows.SubmitRequest{SubmissionID: submission, RequestHash: plan.RequestHash},
		start: s.startTask(plan), submission: submission,
	}
	reply, err := submit[workflows.SubmitReply](ctx, s, u)
	switch {
	case isNotRunning(err), berth.CodeOf(err) == berth.CodeIdempotencyMismatch:
		task, err = s.acceptedTask(ctx, plan.Ref(), err)
		return task, true, err
	case err != nil:
		return berth.Task{}, false, err
	}
	if reply.Tier == berth.TierFree {
		plan = plan.Free()
	}
	return berth.Task{TaskPlan: plan, Status: reply.Status}, reply.Replay || reply.SubmissionID != submission, nil
}

func (s *Starter) startTask(plan berth.TaskPlan) *start {
	return &start{
		id: workflows.TaskWorkflowID(plan.Ref()), queue: workflows.TaskQueueTasks, name: workflows.TaskWorkflow,
		input:   workflows.TaskInput{TaskPlan: plan, Deadline: s.Deadline, StepTimeout: s.StepTimeout, AcceptWithin: acceptWithin},
		summary: fmt.Sprintf("%s for %s", plan.Template, plan.UserID),
		// A run that failed before it accepted can be repeated; one that accepted has a row, which decides.
		reuse:       enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		taskTimeout: 5 * time.Second,
		search: map[string]string{
			workflows.SearchUser: plan.UserID, workflows.SearchService: plan.ServiceID, workflows.SearchTemplate: string(plan.Template),
		},
	}
}

// acceptedTask reads the task that holds the id.
func (s *Starter) acceptedTask(ctx context.Context, task berth.TaskRef, cause error) (berth.Task, error) {
	row, ok, err := berth.Found(s.Tasks.GetTask(ctx, task))
	if err == nil && !ok {
		err = berth.Errorf(berth.CodeConflict, "the id is taken").With(cause)
	}
	return row, err
}

// SignalPromoted tells the workflow of a task that the call of a step may be made. It returns false if the task has ended.
func (s *Starter) SignalPromoted(ctx context.Context, e lua.ModelWaiter) (running bool, err error) {
	return s.signal(ctx, workflows.TaskWorkflowID(e.Task), workflows.SignalPromoted, e.Step)
}

// CancelTask requests cancellation without waiting for the task's end; CodeConflict when the task has ended.
func (s *Starter) CancelTask(ctx context.Context, task berth.TaskRef) error {
	return s.cancel(ctx, workflows.TaskWorkflowID(task), "task")
}
