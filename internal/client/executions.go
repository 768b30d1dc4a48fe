package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"berth"
)

// ExecutionSpec is the body of POST /v1/executions.
type ExecutionSpec struct {
	ExecutionID          string          `json:"executionId,omitempty"`
	Executor             string          `json:"executor"`
	Input                json.RawMessage `json:"input,omitempty"`
	PoolID               string          `json:"poolId,omitempty"`
	RequiredCapabilities []string        `json:"requiredCapabilities,omitempty"`
	Strategy             berth.Strategy  `json:"strategy,omitempty"`
	TimeoutMs            int64           `json:"timeoutMs,omitempty"`
	DeadlineMs           int64           `json:"deadlineMs,omitempty"`
}

// AcceptedExecution is the response to a submitted execution.
type AcceptedExecution struct {
	ExecutionID string                `json:"executionId"`
	Status      berth.ExecutionStatus `json:"status"`
	NodeID      string                `json:"nodeId"`
	Replay      bool                  `json:"replay"`
}

// Execute starts the execution of a named executor on a node. Retries with the same execution id are idempotent.
func (c *Client) Execute(ctx context.Context, e ExecutionSpec) (AcceptedExecution, error) {
	return fetch[AcceptedExecution](ctx, c, http.MethodPost, "/v1/executions", e)
}

// Execution returns an execution's status, attempts and output.
func (c *Client) Execution(ctx context.Context, id string) (berth.Execution, error) {
	return fetch[berth.Execution](ctx, c, http.MethodGet, executionPath(id), nil)
}

// CancelExecution requests the cancellation of an execution. The error has HTTP status 409 if it has already ended.
func (c *Client) CancelExecution(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, executionPath(id), nil, nil, nil)
}

func executionPath(id string) string { return "/v1/executions/" + url.PathEscape(id) }
