package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth"
)

// Registration is the body of POST /v1/nodes.
type Registration struct {
	berth.NodeSpec
	// PreviousGeneration is the generation that the same process had before, 0 for none. After Redis lost its data, the
	// leases of work that the node still runs are restored under it.
	PreviousGeneration int64 `json:"previousGeneration,omitempty"`
}

// Registered is the response to a registration.
type Registered struct {
	NodeID              string   `json:"nodeId"`
	Generation          int64    `json:"generation" doc:"Must be sent with each heartbeat"`
	TaskQueue           string   `json:"taskQueue" doc:"Temporal task queue to poll for work"`
	HeartbeatIntervalMs int64    `json:"heartbeatIntervalMs"`
	Pools               []string `json:"pools"`
	Existing            bool     `json:"existing" doc:"True if the same incarnation was registered already; it keeps its generation"`
}

// Heartbeat is the body of POST /v1/nodes/{id}/heartbeat.
type Heartbeat struct {
	Generation int64 `json:"generation"`
	berth.NodeLoad
}

// HeartbeatReply is the response to a heartbeat.
type HeartbeatReply struct {
	HeartbeatIntervalMs int64     `json:"heartbeatIntervalMs" doc:"Interval of the following heartbeats; an operator may change it"`
	Cordoned            bool      `json:"cordoned"`
	DrainUntil          time.Time `json:"drainUntil,omitzero" doc:"Deadline of the drain; absent unless the node is draining"`
}

// RegisterNode registers an incarnation of a node. Retries are idempotent. The error has HTTP status 409 if a later
// incarnation on the same host has the id.
func (c *Client) RegisterNode(ctx context.Context, r Registration) (Registered, error) {
	return fetch[Registered](ctx, c, http.MethodPost, "/v1/nodes", r)
}

// HeartbeatNode sends a heartbeat with the load of a generation. The error has HTTP status 409 if the node must register
// again.
func (c *Client) HeartbeatNode(ctx context.Context, nodeID string, h Heartbeat) (HeartbeatReply, error) {
	return fetch[HeartbeatReply](ctx, c, http.MethodPost, nodePath(nodeID)+"/heartbeat", h)
}

// WithdrawNode ends a generation of a node, the current one if generation is 0. The error has HTTP status 404 if the node
// or generation does not exist.
func (c *Client) WithdrawNode(ctx context.Context, nodeID string, generation int64) error {
	return c.withdrawNode(ctx, nodeID, generation, berth.DepartureWithdrawn)
}

// WithdrawLostNode is like WithdrawNode, and reports that the server that the node represents does not respond or has restarted.
func (c *Client) WithdrawLostNode(ctx context.Context, nodeID string, generation int64) error {
	return c.withdrawNode(ctx, nodeID, generation, berth.DepartureServiceLost)
}

func (c *Client) withdrawNode(ctx context.Context, nodeID string, generation int64, why berth.Departure) error {
	query := url.Values{}
	if generation != 0 {
		query.Set("generation", strconv.FormatInt(generation, 10))
	}
	if why != berth.DepartureWithdrawn {
		query.Set("reason", string(why))
	}
	path := nodePath(nodeID)
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// Node returns a node's state as the server reports it.
func (c *Client) Node(ctx context.Context, nodeID string) (berth.Node, error) {
	return fetch[berth.Node](ctx, c, http.MethodGet, nodePath(nodeID), nil)
}

// Nodes yields the nodes that the token is for, by id; all of an operator. Empty arguments match all.
func (c *Client) Nodes(ctx context.Context, kind berth.NodeKind, state berth.NodeState, poolID string) iter.Seq2[berth.Node, error] {
	return pages[berth.Node](ctx, c, "/v1/nodes", url.Values{"kind": {string(kind)}, "state": {string(state)}, "pool": {poolID}}, "nodes")
}

// CordonNode assigns no new work to a node, and UncordonNode does again; it also cancels a drain.
func (c *Client) CordonNode(ctx context.Context, nodeID string) (berth.NodeSettings, error) {
	return c.orderNode(ctx, nodeID, "cordon", nil)
}

// UncordonNode is the reverse of CordonNode and DrainNode.
func (c *Client) UncordonNode(ctx context.Context, nodeID string) (berth.NodeSettings, error) {
	return c.orderNode(ctx, nodeID, "uncordon", nil)
}

// DrainNode assigns no new work to a node, and moves its conferences after the given time.
func (c *Client) DrainNode(ctx context.Context, nodeID string, within time.Duration) (berth.NodeSettings, error) {
	return c.orderNode(ctx, nodeID, "drain", map[string]int64{"withinMs": within.Milliseconds()})
}

// UndrainNode cancels the drain of a node.
func (c *Client) UndrainNode(ctx context.Context, nodeID string) (berth.NodeSettings, error) {
	return c.orderNode(ctx, nodeID, "undrain", nil)
}

func (c *Client) orderNode(ctx context.Context, nodeID, order string, body any) (berth.NodeSettings, error) {
	return fetch[berth.NodeSettings](ctx, c, http.MethodPost, nodePath(nodeID)+"/"+order, body)
}

func nodePath(nodeID string) string { return "/v1/nodes/" + url.PathEscape(nodeID) }
