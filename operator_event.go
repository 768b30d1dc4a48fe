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
// details. Type and TS are always set; the other fields as in Event.
type OperatorEvent struct {
	Type EventType `json:"type"`
	TS   int64     `json:"ts" doc:"The publisher's clock in Unix milliseconds; for display only"`

	NodeID       string `json:"nodeId,omitempty" on:"node turn execution conference" doc:"Of a turn, the node of its job; of a conference, its unit"`
	PoolID       string `json:"poolId,omitempty" on:"strategy config execution"`
	Model        string `json:"model,omitempty" on:"model task" doc:"Of a task, that of the step"`
	Upstream     string `json:"upstream,omitempty" on:"model" doc:"The upstream of the model that changed; empty for the whole model"`
	UserID       string `json:"userId,omitempty" on:"task turn execution conference"`
	TaskID       string `json:"taskId,omitempty" on:"task"`
	SessionID    string `json:"sessionId,omitempty" on:"turn"`
	TurnID       string `json:"turnId,omitempty" on:"turn"`
	JobID        string `json:"jobId,omitempty" on:"turn"`
	ExecutionID  string `json:"executionId,omitempty" on:"execution"`
	E164         string `json:"e164,omitempty" on:"conference"`
	ConferenceID string `json:"conferenceId,omitempty" on:"conference"`
	PassID       string `json:"passId,omitempty" on:"reconciliation"`

	// Status is the new status of the subject: of a node its state, cordoned, draining, unavailable, available or removed; of a
	// strategy the strategy, of the configuration the part that changed, of a model paused or running, of a turn open or finalized,
	// of a turn's job done or failed.
	Status string `json:"status,omitempty" on:"node strategy config model task turn execution conference reconciliation"`
	Before string `json:"before,omitempty" on:"strategy" doc:"The strategy before"`
	Reason string `json:"reason,omitempty" on:"node model task turn execution conference reconciliation" doc:"Of the death of a node, of a pause, of a wait, of an end"`
	Found  int    `json:"found,omitempty" on:"reconciliation" doc:"Number of differences"`
	Left   int    `json:"left,omitempty" on:"reconciliation" doc:"Number of differences that remain"`
}

// OperatorEventTypes returns the event types of the operator stream.
func OperatorEventTypes() []EventType {
	return []EventType{
		EventNode, EventStrategy, EventConfig, EventModel, EventTask, EventTurn, EventExecution, EventConference, EventReconciliation, EventReset,
	}
}
