package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"berth"
)

// PoolSpec is the definition of a pool.
type PoolSpec struct {
	Kind         berth.NodeKind `json:"kind,omitempty" doc:"Restricts the pool to nodes of this kind"`
	Capabilities []string       `json:"capabilities,omitempty" doc:"Capabilities that every node of the pool has"`
	Zone         string         `json:"zone,omitempty" doc:"Restricts the pool to nodes of this zone"`
	Strategy     berth.Strategy `json:"strategy,omitempty" doc:"How a node of the pool is chosen. Default: assignmentStrategy of the fleet configuration"`
	GPUWeight    *float64       `json:"gpuWeight,omitempty" doc:"Weight of GPU usage in the load of the pool's nodes, relative to CPU usage. Of a node in several pools with a weight the largest applies. Default: gpuWeight of the fleet configuration"`
	Tenants      []string       `json:"tenants,omitempty" maxItems:"1000" doc:"Tenants that may use the pool. Default: every caller. Nodes of the pool that also belong to another one can be used through that"`
}

// Pool is a pool: its definition, which is what PUT takes, and its state.
type Pool struct {
	PoolID string `json:"poolId,omitempty" readOnly:"true"`
	PoolSpec
	Defined     bool                   `json:"defined" readOnly:"true" doc:"False for the implicit pool of a capability"`
	Members     int                    `json:"members" readOnly:"true"`
	Counts      *berth.PoolCounts      `json:"counts,omitempty" readOnly:"true" doc:"Number of members that can be chosen, and of those that are excluded, by reason"`
	Missing     []string               `json:"missing,omitempty" readOnly:"true" doc:"Capabilities of the pool that no registered node has"`
	StrategyNow berth.Strategy         `json:"strategyNow,omitempty" readOnly:"true" doc:"The current strategy; for a dynamic pool the one it is switched to. Absent: load-balanced in small pools, power-of-two in large ones"`
	Switches    []berth.StrategySwitch `json:"switches,omitempty" readOnly:"true" doc:"Last strategy switches of a dynamic pool, newest first"`
	Stale       bool                   `json:"stale" readOnly:"true" doc:"Redis is unavailable: this is the last known state of the pool"`
}

// Pools yields the pools by id: the defined ones, and the implicit ones of capabilities.
func (c *Client) Pools(ctx context.Context) iter.Seq2[Pool, error] {
	return pages[Pool](ctx, c, "/v1/pools", url.Values{}, "pools")
}

// Pool returns a pool.
func (c *Client) Pool(ctx context.Context, id string) (Pool, error) {
	return fetch[Pool](ctx, c, http.MethodGet, poolPath(id), nil)
}

// PutPool defines a pool, or replaces its definition.
func (c *Client) PutPool(ctx context.Context, p berth.Pool) (Pool, error) {
	return fetch[Pool](ctx, c, http.MethodPut, poolPath(p.ID), PoolSpec{
		Kind: p.Kind, Capabilities: p.Capabilities, Zone: p.Zone, Strategy: p.Strategy, GPUWeight: p.GPUWeight, Tenants: p.Tenants,
	})
}

// DeletePool deletes the definition of a pool.
func (c *Client) DeletePool(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, poolPath(id), nil, nil, nil)
}

func poolPath(id string) string { return "/v1/pools/" + url.PathEscape(id) }
