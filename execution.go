package berth

import (
	"encoding/json"
	"time"
)

// ExecutionStatus is where an execution stands.
type ExecutionStatus string

// The statuses of an execution.
const (
	ExecutionWaiting   ExecutionStatus = "waiting" // for a node with room
	ExecutionRunning   ExecutionStatus = "running"
	ExecutionCompleted ExecutionStatus = "completed"
	ExecutionFailed    ExecutionStatus = "failed"
	ExecutionCancelled ExecutionStatus = "cancelled"
)

// MaxExecutionBytes is how large the input, and the output, of an execution may be.
const MaxExecutionBytes = 256 << 10

// Execution is one durable run of a named executor (S8) as its workflow tells it.
type Execution struct {
	ID       string          `json:"executionId"`
	UserID   string          `json:"userId"`
	Executor string          `json:"executor"`
	Status   ExecutionStatus `json:"status"`
	NodeID   string          `json:"nodeId,omitempty"` // where it runs or ran last
	PoolID   string          `json:"poolId"`
	Strategy Strategy        `json:"strategy,omitempty"`
	// Attempts are the nodes it was given to, in order; the last one's Error is empty when it succeeded or still runs.
	Attempts  []ExecutionAttempt `json:"attempts"`
	Output    json.RawMessage    `json:"output,omitempty"`
	Code      Code               `json:"code,omitempty"`
	Message   string             `json:"message,omitempty"`
	StartedAt time.Time          `json:"startedAt"`
	EndedAt   time.Time          `json:"endedAt,omitzero"`
}

// ExecutionAttempt is one node's try.
type ExecutionAttempt struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
	Error      string `json:"error,omitempty"`
}

// ExecuteInput is what a node's executor gets.
type ExecuteInput struct {
	ExecutionID string          `json:"executionId"`
	Executor    string          `json:"executor"`
	Attempt     int             `json:"attempt"` // from 1
	Input       json.RawMessage `json:"input,omitempty"`
}

// ExecuteOutput is what it made.
type ExecuteOutput struct {
	Output json.RawMessage `json:"output,omitempty"`
}
