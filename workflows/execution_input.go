package workflows

import (
	"encoding/json"
	"time"

	"berth"
)

// ExecutionInput starts an execution.
type ExecutionInput struct {
	ExecutionID string             `json:"executionId"`
	UserID      string             `json:"userId"`
	Executor    string             `json:"executor"`
	Input       json.RawMessage    `json:"input,omitempty"`
	RequestHash string             `json:"requestHash"`
	Where       berth.Requirements `json:"where"`
	// Timeout is how long one node may take. Deadline is how long the execution may take from acceptance, including the
	// time it waits for a node.
	Timeout  time.Duration `json:"timeout"`
	Deadline time.Duration `json:"deadline"`
	// Resumed is the state of the previous run, which continued as new while it waited for a node.
	Resumed *ExecutionProgress `json:"resumed,omitempty"`
}

// ExecutionProgress is the state that a run hands to the next one.
type ExecutionProgress struct {
	SubmissionID string                   `json:"submissionId"`
	StartedAt    time.Time                `json:"startedAt"`
	NodeID       string                   `json:"nodeId,omitempty"`
	Strategy     berth.Strategy           `json:"strategy,omitempty"`
	Attempts     []berth.ExecutionAttempt `json:"attempts,omitempty"`
	Failed       []berth.NodeRef          `json:"failed,omitempty"`
}

// ExecuteRequest is the argument of the execute update.
type ExecuteRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
}

// ExecuteReply is the result of the execute update. NodeID is empty while the execution waits for a node.
type ExecuteReply struct {
	SubmissionID string                `json:"submissionId"`
	Status       berth.ExecutionStatus `json:"status"`
	NodeID       string                `json:"nodeId,omitempty"`
}

// AssignInput is the argument of AssignNode.
type AssignInput struct {
	Where berth.Requirements `json:"where"`
	// Failed are generations that failed the work. Their nodes are excluded until they have registered again.
	Failed []berth.NodeRef `json:"failed,omitempty"`
	// Readmit makes them eligible where no other node could do the work.
	Readmit bool `json:"readmit,omitempty"`
	// Wait is how the attempt waits for a node if it gets none.
	Wait NodeWait `json:"wait"`
	// Accepted executions also wait while no node is eligible.
	Accepted bool `json:"accepted,omitempty"`
}

// AssignReply is the result of AssignNode: the slot, and the current failover settings.
type AssignReply struct {
	berth.Assignment
	MaxRetries     int  `json:"maxRetries"`
	EnableFailover bool `json:"enableFailover"`
}
