package starter

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"

	"berth"
	"berth/workflows"
)

// TaskReader reads the row of a task whose workflow has ended.
type TaskReader interface {
	GetTask(ctx context.Context, id string) (berth.Task, error)
}

// Submission is one checked request for a task. Its variables are assets of the user already.
type Submission struct {
	TaskID      string            `json:"taskId"`
	UserID      string            `json:"userId"`
	ServiceID   string            `json:"serviceId"`
	Template    berth.Template    `json:"template"`
	Locale      berth.Locale      `json:"locale"`
	Tier        berth.Tier        `json:"tier"`
	Steps       []berth.Step      `json:"steps"`
	Variables   map[string]string `json:"variables"`
	RequestHash string            `json:"requestHash"`
	IdemKey     string            `json:"idemKey,omitempty"`
	RequestID   string            `json:"requestId"`
	TraceID     string            `json:"traceId"`
}

// Acceptance is the accepted task. UserID and RequestHash are those of the task that holds the id: the caller compares
// them with the submission.
type Acceptance struct {
	TaskID      string           `json:"taskId"`
	UserID      string           `json:"userId"`
	RequestHash string           `json:"requestHash"`
	Status      berth.TaskStatus `json:"status"`
	Queue       berth.Queue      `json:"queue"`
	Model       string           `json:"model"`
	Tier        berth.Tier       `json:"tier"`
	Position    int              `json:"position"`
	EtaSeconds  int              `json:"etaSeconds"`
	// Replay reports that the id was accepted before this call.
	Replay bool `json:"replay"`
}

// SubmitTask starts the task's workflow and waits until it has accepted the submission. Calls with the same submission
// are idempotent: a task that has ended is read from its row. CodeConflict when the id is taken by no known task.
func (s *Starter) SubmitTask(ctx context.Context, sub Submission) (Acceptance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	submission := berth.NewID("")
	reply, err := send[workflows.SubmitReply](ctx, s, update{
		workflowID: workflows.TaskWorkflowID(sub.TaskID), name: workflows.UpdateSubmit, id: sub.RequestHash,
		arg:   workflows.SubmitRequest{SubmissionID: submission, RequestHash: sub.RequestHash},
		start: s.startTask(sub),
	}, 0)
	switch {
	case isNotRunning(err), berth.CodeOf(err) == berth.CodeIdempotencyMismatch:
		return s.acceptedTask(ctx, sub.TaskID, err)
	case err != nil:
		return Acceptance{}, err
	}
	return Acceptance{
		TaskID: sub.TaskID, UserID: sub.UserID, RequestHash: sub.RequestHash, Status: reply.Status,
		Queue: sub.Steps[0].Queue, Model: sub.Steps[0].Model, Tier: sub.Tier,
		Replay: reply.Replay || reply.SubmissionID != submission,
	}, nil
}

func (s *Starter) startTask(sub Submission) *start {
	return &start{
		id: workflows.TaskWorkflowID(sub.TaskID), queue: workflows.TaskQueueTasks, name: workflows.TaskWorkflow,
		input: workflows.TaskInput{
			TaskID: sub.TaskID, UserID: sub.UserID, ServiceID: sub.ServiceID, Template: sub.Template,
			Locale: sub.Locale, Tier: sub.Tier, Steps: sub.Steps, Variables: sub.Variables,
			RequestHash: sub.RequestHash, RequestID: sub.RequestID, TraceID: sub.TraceID,
			Deadline: s.Deadline, StepTimeout: s.StepTimeout,
		},
		summary: fmt.Sprintf("%s for %s", sub.Template, sub.UserID),
		// A run that failed before it accepted can be repeated; one that accepted has a row, which decides.
		reuse:       enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY,
		taskTimeout: 5 * time.Second,
		search: map[string]string{
			workflows.SearchUser: sub.UserID, workflows.SearchService: sub.ServiceID, workflows.SearchTemplate: string(sub.Template),
		},
	}
}

// acceptedTask reads the task that holds the id.
func (s *Starter) acceptedTask(ctx context.Context, id string, cause error) (Acceptance, error) {
	row, err := s.Tasks.GetTask(ctx, id)
	switch {
	case berth.CodeOf(err) == berth.CodeNotFound:
		return Acceptance{}, berth.Errorf(berth.CodeConflict, "the task id is taken").With(cause)
	case err != nil:
		return Acceptance{}, err
	}
	step := row.Steps[row.StepIndex]
	return Acceptance{
		TaskID: row.ID, UserID: row.UserID, RequestHash: row.RequestHash, Status: row.Status,
		Queue: step.Queue, Model: step.Model, Tier: row.Tier, Replay: true,
	}, nil
}

// CancelTask requests cancellation without waiting for the task's end; CodeConflict when the task has ended.
func (s *Starter) CancelTask(ctx context.Context, taskID string) error {
	err := s.cancel(ctx, workflows.TaskWorkflowID(taskID))
	if isNotRunning(err) {
		return berth.Errorf(berth.CodeConflict, "the task has already ended").With(err)
	}
	return err
}
