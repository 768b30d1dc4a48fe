// Package workflows tells berth's stories as deterministic Temporal workflows. It does no I/O: side effects
// are activities, named here and bound in package workers.
package workflows

// Wire names. They are in histories, so they never change their meaning.
const (
	// TaskWorkflow is the workflow type of an LLM task.
	TaskWorkflow = "Task"
	// TaskQueueTasks is the task queue of task workflows.
	TaskQueueTasks = "tasks"
	// UpdateSubmit is the update that answers a submission once the task is accepted. Its id is the request
	// hash, so that equal submissions share one outcome.
	UpdateSubmit = "submit"

	// AcceptTaskActivity writes the task's row and opens its stream; local, a few tries.
	AcceptTaskActivity = "AcceptTask"
	// WithdrawTaskActivity takes back what a failed acceptance may have left; local, tried until it succeeds.
	WithdrawTaskActivity = "WithdrawTask"
	// RunStepActivity makes one model call on the step's own task queue.
	RunStepActivity = "RunStep"
	// FinishTaskActivity is the compare-and-set that decides how a task ended (T13); local, tried until it succeeds.
	FinishTaskActivity = "FinishTask"
	// PublishEndActivity copies the decision into the stream's terminal event; local, tried until it succeeds.
	PublishEndActivity = "PublishEnd"
)

// Search attributes set on every task workflow, so that the Temporal UI can find a person's runs.
const (
	SearchUser     = "berthUser"
	SearchService  = "berthService"
	SearchTemplate = "berthTemplate"
	SearchStatus   = "berthStatus"
)

// TaskWorkflowID is the workflow id of a task.
func TaskWorkflowID(taskID string) string { return "task:" + taskID }
