package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth"
)

// Registration is the body of POST /v1/nodes.
type Registration struct {
	berth.NodeSpec
	// PreviousGeneration is what the same process had before, 0 for none: after Redis lost its data, what the node still
	// runs is put back under it (L12).
	PreviousGeneration int64 `json:"previousGeneration,omitempty"`
}

// Registered is the answer to a registration.
type Registered struct {
	NodeID     string   `json:"nodeId"`
	Generation int64    `json:"generation"`
	TaskQueue  string   `json:"taskQueue"`
	Pools      []string `json:"pools"`
	// Existing: the same incarnation was registered already and keeps its generation.
	Existing            bool  `json:"existing"`
	HeartbeatIntervalMs int64 `json:"heartbeatIntervalMs"`
}

// Heartbeat is the body of POST /v1/nodes/{id}/heartbeat.
type Heartbeat struct {
	Generation int64 `json:"generation"`
	berth.NodeLoad
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	HeartbeatIntervalMs int64 `json:"heartbeatIntervalMs"`
	// Cordoned and DrainUntil are the operator's orders; DrainUntil is zero when the node does not drain.
	Cordoned   bool      `json:"cordoned"`
	DrainUntil time.Time `json:"drainUntil,omitzero"`
}

// RegisterNode registers an incarnation of a node. Asking again is safe. HTTP 409: a later incarnation of the same host
// has the id.
func (c *Client) RegisterNode(ctx context.Context, r Registration) (Registered, error) {
	var out Registered
	err := c.call(ctx, http.MethodPost, "/v1/nodes", nil, r, &out)
	return out, err
}

// HeartbeatNode tells that a generation lives and how busy it is. HTTP 409: register again.
func (c *Client) HeartbeatNode(ctx context.Context, nodeID string, h Heartbeat) (HeartbeatReply, error) {
	var out HeartbeatReply
	err := c.call(ctx, http.MethodPost, nodePath(nodeID)+"/heartbeat", nil, h, &out)
	return out, err
}

// WithdrawNode ends a generation on purpose, whichever lives when it is 0. HTTP 404: there is no such one.
func (c *Client) WithdrawNode(ctx context.Context, nodeID string, generation int64) error {
	path := nodePath(nodeID)
	if generation != 0 {
		path += "?generation=" + strconv.FormatInt(generation, 10)
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// Node is a node as the server sees it.
func (c *Client) Node(ctx context.Context, nodeID string) (berth.Node, error) {
	var out berth.Node
	err := c.call(ctx, http.MethodGet, nodePath(nodeID), nil, nil, &out)
	return out, err
}

func nodePath(nodeID string) string { return "/v1/nodes/" + url.PathEscape(nodeID) }
