// Package workflows holds berth's Temporal workflows. They are deterministic and do no I/O: side effects are activities,
// which are named here, implemented in package activities and bound in package workers.
package workflows

import (
	"strconv"
	"strings"

	"berth"
)

// This file has every name by which workflows and their activities are known to Temporal. They are part of histories: from
// the first release on, a name is never changed, and never given another meaning. The activities of nodes and media units, on
// their own task queues, are named in package berth, for programs that implement them.

// Workflow types.
const (
	TaskWorkflow       = "Task"       // one LLM request
	TurnWorkflow       = "Turn"       // one utterance of a live translation
	ExecutionWorkflow  = "Execution"  // one durable run of a named executor
	ConferenceWorkflow = "Conference" // one conference
	LinkWorkflow       = "Link"       // what concerns one generation of a media unit
	ReportWorkflow     = "Report"     // asks media units to report all their conferences to the data proxy
	ProbeWorkflow      = "Probe"      // counts the media units that respond to a command
	RetentionWorkflow  = "Retention"  // removes expired data
	ReconcileWorkflow  = "Reconcile"  // repairs what was lost outside of berth
	RecordWorkflow     = "Record"     // sends the detail record of one conference
	WebhookWorkflow    = "Webhook"    // sends one event to one webhook
)

// metricRecovery is the metric of the time from the loss of a conference's unit until the conference is open again.
const metricRecovery = "berth_recovery_duration"

// metricBusy is the metric of jobs and executions that nodes have returned because they were busy.
const metricBusy = "berth_busy_returns"

// Task queues of workflows. Those of model calls and nodes are built by berth.TaskQueue and berth.NodeTaskQueue.
const (
	TaskQueueTasks       = "tasks"
	TaskQueueTurns       = "turns"
	TaskQueueExecutions  = "executions"
	TaskQueueConferences = "conferences"
	TaskQueueLinks       = "links"    // Link, Report, Probe, Retention and Reconcile
	TaskQueueWebhooks    = "webhooks" // Record and Webhook
)

// TaskQueues returns the task queues of workflows.
func TaskQueues() []string {
	return []string{TaskQueueTasks, TaskQueueTurns, TaskQueueExecutions, TaskQueueConferences, TaskQueueLinks, TaskQueueWebhooks}
}

// Workflow ids. Each is made by WorkflowID.

// Prefixes of workflow ids.
const (
	TaskPrefix       = "task:"
	TurnPrefix       = "turn:"
	ExecutionPrefix  = "execution:"
	ConferencePrefix = "conference:"
	WebhookPrefix    = "webhook:"
)

// TaskWorkflowID is the workflow id of a task.
func TaskWorkflowID(task berth.TaskRef) string { return WorkflowID(TaskName(task)) }

// TurnWorkflowID is the workflow id of a turn.
func TurnWorkflowID(turnID string) string { return WorkflowID(TurnPrefix + turnID) }

// ExecutionKey returns the key of an execution that begins now. It is bounded so that it names the workflow, too.
func ExecutionKey(ref berth.ExecutionRef) string {
	return strings.TrimPrefix(WorkflowID(ExecutionPrefix+ref.String()), ExecutionPrefix)
}

// ExecutionLease is the lease of an execution's attempt, counted from 1.
func ExecutionLease(key string, attempt int) string {
	return ExecutionPrefix + key + ":" + strconv.Itoa(attempt)
}

// ExecutionWorkflowID is the workflow id of the execution with a key.
func ExecutionWorkflowID(key string) string { return ExecutionPrefix + key }

// ConferenceWorkflowID is the workflow id of the current conference of a number.
func ConferenceWorkflowID(e164 string) string { return WorkflowID(ConferencePrefix + e164) }

// LinkWorkflowID is the workflow id of the link to one generation of a media unit.
func LinkWorkflowID(nodeID string, generation int64) string {
	return WorkflowID("link:" + berth.NodeTaskQueue(nodeID, generation)[len("node."):])
}

// RestoreWorkflowID is the workflow id of Reconcile for the grace period that ends at graceUntil, in Unix ms of Redis's clock.
func RestoreWorkflowID(graceUntil int64) string {
	return WorkflowID("restore:" + strconv.FormatInt(graceUntil, 10))
}

// ReportWorkflowID is the workflow id of a report; id is unique.
func ReportWorkflowID(id string) string { return WorkflowID("report:" + id) }

// ProbeWorkflowID is the workflow id of a probe; id is unique.
func ProbeWorkflowID(id string) string { return WorkflowID("probe:" + id) }

// RecordWorkflowID is the workflow id of sending the detail record of a conference.
func RecordWorkflowID(conferenceID string) string { return WorkflowID("record:" + conferenceID) }

// WebhookWorkflowID is the workflow id of a delivery to a webhook.
func WebhookWorkflowID(deliveryID string) string { return WorkflowID(WebhookPrefix + deliveryID) }

// RetentionID is the id of the schedule of Retention, and the prefix of the workflow ids of its runs.
const RetentionID = "retention"

// ReconcileID is the id of the schedule of Reconcile, and the prefix of the workflow ids of its runs. ReconcileRequestID is the
// workflow id of the passes that operators start.
const (
	ReconcileID        = "reconcile"
	ReconcileRequestID = "reconcile:requested"
)

// Updates.
const (
	// UpdateSubmit returns once the task is accepted or refused. Its id is the request hash, so that equal submissions
	// share one outcome.
	UpdateSubmit = "submit"
	// UpdateDispatch submits a segment and returns once its node is chosen. Its id is the request id.
	UpdateDispatch = "dispatch"
	// UpdateFinalize ends the turn and returns immediately; running jobs are completed.
	UpdateFinalize = "finalize"
	// UpdateExecute returns once the execution is accepted or refused. Its id is the request hash.
	UpdateExecute = "execute"
	// UpdateCreate returns once the conference is open or refused. Its id is the request hash.
	UpdateCreate = "create"
	// UpdateExtend sets a later end time and returns once it is written.
	UpdateExtend = "extend"
	// UpdateMove moves an open conference to another unit and returns once it runs there.
	UpdateMove = "move"
	// UpdateRelease ends the conference in any state and returns once it has ended.
	UpdateRelease = "release"
)

// Queries.
const (
	QueryTurn       = "turn"       // returns a berth.Turn
	QueryExecution  = "execution"  // returns a berth.Execution
	QueryConference = "conference" // returns a berth.Conference
)

// Signals.
const (
	// SignalPromoted tells a task that the call of a step may be made; its argument is the index of the step. To work that waits for a
	// node it announces that one is reserved; its argument is the lease.
	SignalPromoted = "promoted"
	// SignalRestore makes a workflow restore in Redis what it holds there. It has no argument.
	SignalRestore = "restore"
	// SignalUnit sends a conference a UnitNotice.
	SignalUnit = "unit"
	// SignalUpgrade wakes an idle conference, which continues as new where its worker deployment has another current version. It
	// has no argument.
	SignalUpgrade = "upgrade"
	// SignalCapacity makes a conference that waits for recovery try immediately. It has no argument.
	SignalCapacity = "capacity"
	// SignalNotice sends a link a berth.NodeNotice.
	SignalNotice = "notice"
	// SignalWithdraw makes a link release a copy on its unit: a berth.UnitRelease.
	SignalWithdraw = "withdraw"
)

// Activities of tasks. RunStep runs on the task queue of its step, the others are local.
const (
	// AcceptTaskActivity writes the task's row and opens its stream; a few attempts.
	AcceptTaskActivity = "AcceptTask"
	// WithdrawTaskActivity removes what a failed acceptance may have left; retried until it succeeds.
	WithdrawTaskActivity = "WithdrawTask"
	// EnterTaskActivity enters the waiting room of a step's model; retried until it succeeds.
	EnterTaskActivity = "EnterTask"
	// RunStepActivity makes one model call.
	RunStepActivity = "RunStep"
	// FinishTaskActivity decides by compare-and-set how the task ended; retried until it succeeds.
	FinishTaskActivity = "FinishTask"
	// PublishEndActivity copies that decision into the stream's terminal event; retried until it succeeds.
	PublishEndActivity = "PublishEnd"
)

// Activities of turns; all are local.
const (
	// DispatchJobActivity chooses a job's node and reserves its slot in one script; one attempt.
	DispatchJobActivity = "DispatchJob"
	// CheckAvailabilityActivity returns for how long segments could be submitted; retried until it succeeds.
	CheckAvailabilityActivity = "CheckAvailability"
	// FinalizeTurnActivity deletes the turn's affinity; retried until it succeeds.
	FinalizeTurnActivity = "FinalizeTurn"
	// PublishTurnActivity appends the turn's next events to its session's stream, each once; retried until it succeeds.
	PublishTurnActivity = "PublishTurn"
)

// Activities of executions; all are local.
const (
	// AssignNodeActivity chooses a node and reserves a slot in one script; one attempt.
	AssignNodeActivity = "AssignNode"
	// SaveExecutionActivity writes the row of an accepted execution; retried until it succeeds.
	SaveExecutionActivity = "SaveExecution"
)

// Activities of slots that turns and executions hold or wait for; all are local, and retried until they succeed or the slots have
// expired.
const (
	// ConfirmSlotsActivity holds slots for as long as their work may take.
	ConfirmSlotsActivity = "ConfirmSlots"
	// ReleaseSlotsActivity releases slots.
	ReleaseSlotsActivity = "ReleaseSlots"
	// LeaveWaitingActivity removes work that no longer waits for a node.
	LeaveWaitingActivity = "LeaveWaiting"
)

// CheckTemporalActivity returns for how long this worker has reached Temporal; retried for seconds. It is local, of turns and executions.
const CheckTemporalActivity = "CheckTemporal"

// Activities of conferences; all are local.
const (
	// PlaceConferenceActivity takes an epoch and a slot, and writes the new owner; one attempt.
	PlaceConferenceActivity = "PlaceConference"
	// PlaceMoveActivity takes an epoch and a slot on another unit for a planned move; one attempt.
	PlaceMoveActivity = "PlaceMove"
	// SaveConferenceActivity writes a conference to the ledger, to Redis and to its stream; retried until it succeeds.
	SaveConferenceActivity = "SaveConference"
	// PrepareAdoptionActivity takes an epoch, and a slot for an existing copy; retried until it succeeds.
	PrepareAdoptionActivity = "PrepareAdoption"
	// NotifyLinkActivity makes a unit's link release a copy or request the unit's list; retried until it succeeds.
	NotifyLinkActivity = "NotifyLink"
	// ReadUnitStateActivity reads the registered generation of a unit; retried until it succeeds. Links use it, too.
	ReadUnitStateActivity = "ReadUnitState"
)

// Activities of links; all are local and retried until they succeed.
const (
	// LoseUnitActivity notifies the conferences of a generation that it has ended.
	LoseUnitActivity = "LoseUnit"
	// ReadUnitActivity reads which conferences a unit should run.
	ReadUnitActivity = "ReadUnit"
	// ReconcileUnitActivity notifies conferences of what a unit's list states about them.
	ReconcileUnitActivity = "ReconcileUnit"
	// WakeWaitingActivity notifies waiting conferences that a unit has capacity.
	WakeWaitingActivity = "WakeWaiting"
)

// RemoveExpiredActivity removes expired data for Retention; it heartbeats and is retried until the next run is due.
const RemoveExpiredActivity = "RemoveExpired"

// Activities of the reconciliation; all heartbeat.
const (
	// RestoreStateActivity restores what Redis has lost; retried until it succeeds.
	RestoreStateActivity = "RestoreState"
	// FindDifferencesActivity makes the first check of a pass; it only reads.
	FindDifferencesActivity = "FindDifferences"
	// RepairDifferencesActivity makes the second check of what the first has found, and repairs what still differs.
	RepairDifferencesActivity = "RepairDifferences"
)

// Activities of detail records.
const (
	// SendRecordActivity makes one attempt to send a record.
	SendRecordActivity = "SendRecord"
	// AbandonRecordActivity stores that a record is not sent again; retried until it succeeds.
	AbandonRecordActivity = "AbandonRecord"
)

// Activities of webhooks.
const (
	// SendEventActivity makes one attempt to send an event.
	SendEventActivity = "SendEvent"
	// AbandonEventActivity stores that an event is not sent again; retried until it succeeds.
	AbandonEventActivity = "AbandonEvent"
)

// ErrorExpired is the type of DispatchJob's error when the same dispatch was decided by an earlier call whose reply was
// lost, and its slot has expired since: the workflow decides again under the next dispatch number.
const ErrorExpired = "expired"

// Search attributes, by which the Temporal UI finds the runs of a user.
const (
	SearchUser     = "berthUser"
	SearchService  = "berthService"
	SearchTemplate = "berthTemplate"
	SearchSession  = "berthSession"
	// SearchConference is the id of a conference, because numbers are reused.
	SearchConference = "berthConference"
)

// SearchAttributes returns all search attributes, which the namespace must have as keywords.
func SearchAttributes() []string {
	return []string{SearchUser, SearchService, SearchTemplate, SearchSession, SearchConference}
}
