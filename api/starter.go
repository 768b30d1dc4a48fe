package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// TaskReader finds a task whose workflow is over.
type TaskReader interface {
	GetTask(ctx context.Context, id string) (berth.Task, error)
}

// TemporalStarter starts, asks and cancels task workflows.
type TemporalStarter struct {
	Client client.Client
	Tasks  TaskReader
	// Deadline counts from acceptance, StepTimeout from a step's start (T20).
	Deadline    time.Duration
	StepTimeout time.Duration
}

// submitTimeout is how long a person waits for a task to be accepted before they are told to ask again.
const submitTimeout = 10 * time.Second

// SubmitTask starts the task's workflow and waits until it has accepted the submission: one call, safe to
// repeat (T7). A workflow that is over answers from the task's row.
func (s *TemporalStarter) SubmitTask(ctx context.Context, sub Submission) (Acceptance, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	acc := Acceptance{
		TaskID: sub.TaskID, UserID: sub.UserID, RequestHash: sub.RequestHash,
		Queue: sub.Steps[0].Queue, Model: sub.Steps[0].Model, Tier: sub.Tier,
	}
	submission := uuid.NewString()
	start := s.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID:                       workflows.TaskWorkflowID(sub.TaskID),
		TaskQueue:                workflows.TaskQueueTasks,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		// A run that failed before it accepted may be tried again; one that accepted has a row, which decides.
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		WorkflowTaskTimeout:   5 * time.Second,
		StaticSummary:         fmt.Sprintf("%s for %s", sub.Template, sub.UserID),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchUser).ValueSet(sub.UserID),
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchService).ValueSet(sub.ServiceID),
			temporal.NewSearchAttributeKeyKeyword(workflows.SearchTemplate).ValueSet(string(sub.Template)),
		),
	}, workflows.TaskWorkflow, workflows.TaskInput{
		TaskID: sub.TaskID, UserID: sub.UserID, ServiceID: sub.ServiceID, Template: sub.Template,
		Locale: sub.Locale, Tier: sub.Tier, Steps: sub.Steps, Variables: sub.Variables,
		RequestHash: sub.RequestHash, RequestID: sub.RequestID, TraceID: sub.TraceID,
		Deadline: s.Deadline, StepTimeout: s.StepTimeout,
	})
	handle, err := s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID:   sub.RequestHash,
			UpdateName: workflows.UpdateSubmit,
			Args: []any{workflows.SubmitRequest{
				SubmissionID: submission, RequestHash: sub.RequestHash,
			}},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	var reply workflows.SubmitReply
	if err == nil {
		err = handle.Get(ctx, &reply)
	}
	if err != nil {
		return s.refused(ctx, sub, acc, err)
	}
	acc.Status = reply.Status
	acc.Replay = reply.Replay || reply.SubmissionID != submission
	return acc, nil
}

// refused tells why a submission was not accepted by a running workflow.
func (s *TemporalStarter) refused(ctx context.Context, sub Submission, acc Acceptance, err error) (Acceptance, error) {
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	var app *temporal.ApplicationError
	switch {
	case errors.As(err, &started):
		return s.replay(ctx, sub, err)
	case errors.As(err, &app):
		code := berth.Code(app.Type())
		if code == berth.CodeIdempotencyMismatch {
			return s.replay(ctx, sub, err)
		}
		return acc, berth.Errorf(code, "%s", app.Message()).With(app.Unwrap())
	default:
		return acc, unreachable(err)
	}
}

// replay answers from the row of the task that holds the id; the caller compares user and request.
func (s *TemporalStarter) replay(ctx context.Context, sub Submission, why error) (Acceptance, error) {
	row, err := s.Tasks.GetTask(ctx, sub.TaskID)
	if err != nil {
		if berth.CodeOf(err) == berth.CodeNotFound {
			return Acceptance{}, berth.Errorf(berth.CodeConflict, "the task id is taken").With(why)
		}
		return Acceptance{}, err
	}
	return Acceptance{
		TaskID: row.ID, UserID: row.UserID, RequestHash: row.RequestHash, Status: row.Status,
		Queue: row.Steps[row.StepIndex].Queue, Model: row.Steps[row.StepIndex].Model, Tier: row.Tier, Replay: true,
	}, nil
}

// CancelTask asks the task's workflow to stop (T25).
func (s *TemporalStarter) CancelTask(ctx context.Context, taskID string) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	err := s.Client.CancelWorkflow(ctx, workflows.TaskWorkflowID(taskID), "")
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return berth.Errorf(berth.CodeConflict, "the task is over").With(err)
	}
	if err != nil {
		return unavailable("Temporal", err)
	}
	return nil
}

func unreachable(err error) error {
	return berth.Errorf(berth.CodeUnavailable, "the task could not be handed in; ask again with the same id").With(err)
}

// Ping tells whether Temporal answers.
func (s *TemporalStarter) Ping(ctx context.Context) error {
	if _, err := s.Client.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return fmt.Errorf("temporal: %w", err)
	}
	return nil
}
