package berth

import (
	"encoding/json"
	"time"
)

// ExecutionStatus is the state of an execution.
type ExecutionStatus string

// The statuses of an execution.
const (
	ExecutionWaiting   ExecutionStatus = "waiting" // for a node with a free slot
	ExecutionRunning   ExecutionStatus = "running"
	ExecutionCompleted ExecutionStatus = "completed"
	ExecutionFailed    ExecutionStatus = "failed"
	ExecutionCancelled ExecutionStatus = "cancelled"
)

var executionTransitions = transitions[ExecutionStatus]{
	"":               {ExecutionWaiting},
	ExecutionWaiting: {ExecutionRunning, ExecutionFailed, ExecutionCancelled},
	ExecutionRunning: {ExecutionWaiting, ExecutionCompleted, ExecutionFailed, ExecutionCancelled},
}

// CanBecome reports whether an execution with this status can change to next.
func (s ExecutionStatus) CanBecome(next ExecutionStatus) bool {
	return executionTransitions.allow(s, next)
}

// Final reports whether the execution has ended.
func (s ExecutionStatus) Final() bool {
	return s == ExecutionCompleted || s == ExecutionFailed || s == ExecutionCancelled
}

// ExecutionLost is the message of an execution that failed with CodeLost.
const ExecutionLost = "the run of the execution was ended or lost outside of berth; submit it again with another id"

// MaxExecutionBytes limits the input and the output of an execution.
const MaxExecutionBytes = 256 << 10

// Execution is the state of one durable run of a named executor.
type Execution struct {
	ID       string          `json:"executionId"`
	UserID   string          `json:"userId"`
	Executor string          `json:"executor"`
	Status   ExecutionStatus `json:"status"`
	NodeID   string          `json:"nodeId,omitempty"` // of the last attempt
	PoolID   string          `json:"poolId"`
	Strategy Strategy        `json:"strategy,omitempty"`
	// Attempts are in order; the last one's Error is empty while it runs and when it succeeded.
	Attempts   []ExecutionAttempt `json:"attempts"`
	Output     json.RawMessage    `json:"output,omitempty"`
	Code       Code               `json:"code,omitempty"`
	Message    string             `json:"message,omitempty"`
	StartedAt  time.Time          `json:"startedAt"`
	DeadlineAt time.Time          `json:"deadlineAt"`
	EndedAt    time.Time          `json:"endedAt,omitzero"`
}

// ExecutionAttempt is one attempt of an execution on one generation of a node.
type ExecutionAttempt struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
	Error      string `json:"error,omitempty"`
}

// ExecuteInput is the input of a node's executor.
type ExecuteInput struct {
	ExecutionID string          `json:"executionId"`
	Executor    string          `json:"executor"`
	Attempt     int             `json:"attempt"` // from 1
	Input       json.RawMessage `json:"input,omitempty"`
}

// ExecuteOutput is the result of a node's executor.
type ExecuteOutput struct {
	Output json.RawMessage `json:"output,omitempty"`
}
