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

// ExecutionRef identifies an execution. Its id is unique among the executions of its user, who may have chosen it.
type ExecutionRef struct {
	UserID      string
	ExecutionID string
}

// String returns both ids as one that no other execution has.
func (r ExecutionRef) String() string { return EscapeID(r.UserID) + ":" + r.ExecutionID }

// ExecutionRow is an execution with its key, by which its workflow, its row and its slots are found.
type ExecutionRow struct {
	Key string `json:"key"`
	Execution
}

// Execution is the state of one durable run of a named executor.
type Execution struct {
	ID       string          `json:"executionId" doc:"Unique among the executions of the user"`
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
	NodeRef
	Error string `json:"error,omitempty"`
	// Lost indicates that the attempt ended because Temporal was unavailable. It is not counted.
	Lost bool `json:"lost,omitempty" doc:"The attempt ended because of an outage and not because of the node; it is not counted"`
	// Busy indicates that the node returned the work. It is not counted.
	Busy bool `json:"busy,omitempty" doc:"The node returned the work because it was busy; it is not counted"`
}

// Failures returns the number of attempts that have failed, without those that were lost in an outage or returned by a busy node.
func (e Execution) Failures() (n int) {
	for _, a := range e.Attempts {
		if a.Error != "" && !a.Lost && !a.Busy {
			n++
		}
	}
	return n
}

// Ref returns the identity of the execution.
func (e Execution) Ref() ExecutionRef { return ExecutionRef{UserID: e.UserID, ExecutionID: e.ID} }

// ExecuteInput is the input of a node's executor. The execution is identified by UserID and ExecutionID.
type ExecuteInput struct {
	UserID      string          `json:"userId"`
	ExecutionID string          `json:"executionId"`
	Executor    string          `json:"executor"`
	Attempt     int             `json:"attempt"` // from 1
	Input       json.RawMessage `json:"input,omitempty"`
}

// ExecuteOutput is the result of a node's executor.
type ExecuteOutput struct {
	Output json.RawMessage `json:"output,omitempty"`
}
