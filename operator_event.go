package berth

// The types of events of the operator stream, besides EventTurn, EventConference, and EventReset: a reader that gets a reset has
// missed events and reads the state again.
const (
	EventNode           EventType = "node"
	EventStrategy       EventType = "strategy" // a dynamic pool was switched
	EventConfig         EventType = "config"   // the definition of a pool, or another part of the configuration
	EventModel          EventType = "model"    // paused, resumed, or its limits were changed
	EventTask           EventType = "task"
	EventExecution      EventType = "execution"
	EventReconciliation EventType = "reconciliation" // a pass that is a change: it found something, was requested, or ended differently than the one before
)

// OperatorEvent is a change of a state that operators watch. It names what changed and its new status; the other routes have the
// details. Type and TS are always set, and fields that do not belong to the type are absent.
type OperatorEvent struct {
	Type EventType `json:"type"`
	TS   int64     `json:"ts"` // the publisher's clock in Unix milliseconds; informational

	NodeID       string `json:"nodeId,omitempty"` // node; the last node of a turn's job or an execution; the owner of a conference
	PoolID       string `json:"poolId,omitempty"` // strategy; config of a pool
	Model        string `json:"model,omitempty"`  // model; the model of a task's step
	UserID       string `json:"userId,omitempty"`
	TaskID       string `json:"taskId,omitempty"`
	SessionID    string `json:"sessionId,omitempty"`
	TurnID       string `json:"turnId,omitempty"`
	JobID        string `json:"jobId,omitempty"`
	ExecutionID  string `json:"executionId,omitempty"`
	E164         string `json:"e164,omitempty"`
	ConferenceID string `json:"conferenceId,omitempty"`
	PassID       string `json:"passId,omitempty"`

	// Status is the new status of the subject: of a node its state, cordoned, draining, unavailable, available or removed; of a
	// strategy the strategy, of the configuration the part that changed, of a model paused or running, of a turn open or finalized,
	// of a turn's job done or failed.
	Status string `json:"status,omitempty"`
	Before string `json:"before,omitempty"` // strategy: the one before
	// Reason is why, where there is a reason: of the death of a node, of a pause, of a wait, of an end.
	Reason string `json:"reason,omitempty"`
	// Found and Left are the numbers of differences of a pass of the reconciliation.
	Found int `json:"found,omitempty"`
	Left  int `json:"left,omitempty"`
}

// OperatorEventTypes returns the event types of the operator stream.
func OperatorEventTypes() []EventType {
	return []EventType{
		EventNode, EventStrategy, EventConfig, EventModel, EventTask, EventTurn, EventExecution, EventConference, EventReconciliation, EventReset,
	}
}
