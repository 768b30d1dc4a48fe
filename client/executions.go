package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"

	"berth"
)

// ExecutionSpec is the body of POST /v1/executions.
type ExecutionSpec struct {
	ExecutionID          string          `json:"executionId,omitempty" doc:"Your own id for the execution, unique among your executions; retries with the same id are idempotent. Without it one is generated"`
	Executor             string          `json:"executor" doc:"The executor to run: a capability of the node"`
	Input                json.RawMessage `json:"input,omitempty" doc:"Input of the executor: any JSON, at most 256 KiB"`
	PoolID               string          `json:"poolId,omitempty" doc:"The pool; by default all nodes with the executor and the required capabilities. Nodes of the pool are not checked for the executor"`
	RequiredCapabilities []string        `json:"requiredCapabilities,omitempty" maxItems:"64" doc:"Capabilities that the node needs besides the executor"`
	Strategy             berth.Strategy  `json:"strategy,omitempty" doc:"Default: the pool's"`
	TimeoutMs            int64           `json:"timeoutMs,omitempty" minimum:"1" maximum:"86400000" default:"300000" doc:"Limit of one attempt"`
	DeadlineMs           int64           `json:"deadlineMs,omitempty" minimum:"1" maximum:"86400000" default:"900000" doc:"Limit of all attempts, including the wait for a node"`
	InstanceID           string          `json:"instanceId,omitempty" doc:"The caller's own node, for affinity and locality"`
	Host                 string          `json:"host,omitempty" doc:"The caller's location, for locality"`
	Zone                 string          `json:"zone,omitempty" doc:"The caller's location, for locality"`
}

// AcceptedExecution is the response to a submitted execution.
type AcceptedExecution struct {
	ExecutionID string                `json:"executionId"`
	Status      berth.ExecutionStatus `json:"status" enum:"waiting,running,completed,failed,cancelled" doc:"Status at acceptance; in a replay the current one"`
	NodeID      string                `json:"nodeId,omitempty" doc:"The node; absent while the execution waits for one"`
	Replay      bool                  `json:"replay" doc:"The execution was accepted before; nothing was started"`
}

// Execute starts the execution of a named executor on a node. Retries with the same execution id are idempotent.
func (c *Client) Execute(ctx context.Context, e ExecutionSpec) (AcceptedExecution, error) {
	return fetch[AcceptedExecution](ctx, c, http.MethodPost, "/v1/executions", e)
}

// Execution returns an execution's status, attempts and output.
func (c *Client) Execution(ctx context.Context, id string) (berth.Execution, error) {
	return fetch[berth.Execution](ctx, c, http.MethodGet, c.executionPath(id), nil)
}

// Executions yields the executions of all users, newest first and without outputs, for operators. Empty arguments match all.
func (c *Client) Executions(ctx context.Context, userID string, status berth.ExecutionStatus) iter.Seq2[berth.Execution, error] {
	return pages[berth.Execution](ctx, c, "/v1/executions", url.Values{"userId": {userID}, "status": {string(status)}}, "executions")
}

// CancelExecution requests the cancellation of an execution. The error has HTTP status 409 if it has already ended.
func (c *Client) CancelExecution(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, c.executionPath(id), nil, nil, nil)
}

func (c *Client) executionPath(id string) string {
	return c.ownedPath("/v1/executions/" + url.PathEscape(id))
}
