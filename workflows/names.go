// Package workflows tells berth's stories as deterministic Temporal workflows. It does no I/O: side effects
// are activities, named here and bound in package workers.
package workflows

import "strconv"

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

// Wire names of turns.
const (
	// TurnWorkflow is the workflow type of a turn (A1).
	TurnWorkflow = "Turn"
	// TaskQueueTurns is the task queue of turn workflows.
	TaskQueueTurns = "turns"
	// UpdateDispatch hands a job in and answers once its node is decided. Its id is the request id.
	UpdateDispatch = "dispatch"
	// UpdateFinalize ends the turn and answers at once; the jobs it still has come to their end.
	UpdateFinalize = "finalize"
	// QueryTurn answers a berth.Turn.
	QueryTurn = "turn"
	// SignalReassert has a workflow put back into Redis what it holds there (L12).
	SignalReassert = "reassert"

	// DispatchJobActivity decides a job's node and takes its slot, in one script; local, one try.
	DispatchJobActivity = "DispatchJob"
	// ConfirmSlotsActivity holds the slots of running jobs until their timeout (L7); local, tried until it succeeds.
	ConfirmSlotsActivity = "ConfirmSlots"
	// ReleaseSlotsActivity gives slots back; local, tried until it succeeds.
	ReleaseSlotsActivity = "ReleaseSlots"
	// CheckHearingActivity tells since when jobs could be taken (L11); local, tried until it succeeds.
	CheckHearingActivity = "CheckHearing"
	// FinalizeTurnActivity deletes the turn's affinity (A6); local, tried until it succeeds.
	FinalizeTurnActivity = "FinalizeTurn"
	// PublishTurnActivity appends the turn's next events to its session's stream, each once; local, tried until it
	// succeeds.
	PublishTurnActivity = "PublishTurn"

	// ErrorLapsed is the type of DispatchJob's error when the same dispatch was decided earlier, in a call whose answer
	// was lost, and its slot has lapsed since: the next dispatch number decides anew.
	ErrorLapsed = "lapsed"
)

// Wire names of executions and of what looks after the fleet.
const (
	// ExecutionWorkflow is the workflow type of a named executor's durable run (S8).
	ExecutionWorkflow = "Execution"
	// TaskQueueExecutions is the task queue of execution workflows.
	TaskQueueExecutions = "executions"
	// UpdateExecute answers once the execution is accepted or refused. Its id is the request hash.
	UpdateExecute = "execute"
	// QueryExecution answers a berth.Execution.
	QueryExecution = "execution"
	// AssignNodeActivity chooses a node and takes a slot, in one script; local, one try.
	AssignNodeActivity = "AssignNode"
	// ConfirmNodeActivity holds a taken slot for as long as its work may take; local, tried for seconds.
	ConfirmNodeActivity = "ConfirmNode"
	// ReleaseNodeActivity gives a slot back; local, tried until it succeeds or the slot has lapsed.
	ReleaseNodeActivity = "ReleaseNode"

	// ReassertWorkflow is the workflow type that signals every open workflow after Redis lost data (L12).
	ReassertWorkflow = "Reassert"
	// TaskQueueLinks is the task queue of what looks after the fleet.
	TaskQueueLinks = "links"
	// SignalOpenActivity signals the open workflows; tried until it succeeds.
	SignalOpenActivity = "SignalOpen"
)

// Search attributes, so that the Temporal UI can find a person's runs.
const (
	SearchUser     = "berthUser"
	SearchService  = "berthService"
	SearchTemplate = "berthTemplate"
	SearchSession  = "berthSession"
	// SearchConference is the id of a conference: numbers are used again.
	SearchConference = "berthConference"
)

// TaskWorkflowID is the workflow id of a task.
func TaskWorkflowID(taskID string) string { return "task:" + taskID }

// TurnWorkflowID is the workflow id of a turn.
func TurnWorkflowID(turnID string) string { return "turn:" + turnID }

// ExecutionWorkflowID is the workflow id of an execution.
func ExecutionWorkflowID(executionID string) string { return "execution:" + executionID }

// ReassertWorkflowID is the workflow id of the reassertion after the grace that ends at graceUntil, in Unix ms of
// Redis's clock.
func ReassertWorkflowID(graceUntil int64) string {
	return "reassert:" + strconv.FormatInt(graceUntil, 10)
}
