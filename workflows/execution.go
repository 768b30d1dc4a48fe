package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// ExecutionInput starts an execution (S8).
type ExecutionInput struct {
	ExecutionID string          `json:"executionId"`
	UserID      string          `json:"userId"`
	Executor    string          `json:"executor"`
	Input       json.RawMessage `json:"input,omitempty"`
	RequestHash string          `json:"requestHash"`
	Where       Where           `json:"where"`
	// Timeout is how long one node may take, Deadline how long all of it may from acceptance, waiting included.
	Timeout  time.Duration `json:"timeout"`
	Deadline time.Duration `json:"deadline"`
}

// Where says which node work may go to.
type Where struct {
	PoolID string `json:"poolId"`
	// Capabilities are what the pool stands for: what is missing is named (S4). A pool of several is defined when it is
	// first asked for.
	Capabilities []string `json:"capabilities,omitempty"`
	// Strategy overrules the pool's.
	Strategy berth.Strategy `json:"strategy,omitempty"`
	Services []string       `json:"services,omitempty"`
	Excluded []string       `json:"excluded,omitempty"`
	// Own is the caller's own node, OwnZone and OwnHost are where the caller is (S3, S5).
	Own     string `json:"own,omitempty"`
	OwnZone string `json:"ownZone,omitempty"`
	OwnHost string `json:"ownHost,omitempty"`
}

// ExecuteRequest is the argument of the execute update.
type ExecuteRequest struct {
	SubmissionID string `json:"submissionId"`
	RequestHash  string `json:"requestHash"`
}

// ExecuteReply is the outcome of the execute update: accepted, perhaps on a node already.
type ExecuteReply struct {
	SubmissionID string                `json:"submissionId"`
	Status       berth.ExecutionStatus `json:"status"`
	NodeID       string                `json:"nodeId,omitempty"`
}

// AssignInput is the argument of AssignNode.
type AssignInput struct {
	LeaseID string        `json:"leaseId"`
	Where   Where         `json:"where"`
	Hold    time.Duration `json:"hold"`
}

// Refusal is the detail of an application error that tells why no node was chosen: its type is node_full, no_node or
// unavailable.
type Refusal struct {
	// SubmissionID is that of the DispatchRequest or ExecuteRequest that was refused; the workflow sets it. A refused
	// request may be asked again: the API sees by it that a refusal is an old one, and takes the next update id.
	SubmissionID string `json:"submissionId,omitempty"`
	// Reasons are why nodes were passed over, with how many (L9).
	Reasons map[berth.ExcludeReason]int `json:"reasons,omitempty"`
	// Missing are the required capabilities that no living node has (S4).
	Missing []string `json:"missing,omitempty"`
}

// Execution runs a named executor on a node, and on another when that one fails or dies.
func Execution(_ workflow.Context, _ ExecutionInput) (berth.Execution, error) {
	return berth.Execution{}, nil
}
