package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"berth"
)

// Pool is a pool and its state. Its first fields are its definition, which PutPool takes.
type Pool struct {
	PoolID       string         `json:"poolId,omitempty"`
	Kind         berth.NodeKind `json:"kind,omitempty"`
	Capabilities []string       `json:"capabilities,omitempty"`
	Zone         string         `json:"zone,omitempty"`
	Strategy     berth.Strategy `json:"strategy,omitempty"`
	Tenants      []string       `json:"tenants,omitempty"`

	// Defined is false for the implicit pool of a capability.
	Defined     bool              `json:"defined"`
	Members     int               `json:"members"`
	Counts      *berth.PoolCounts `json:"counts,omitempty"`
	Missing     []string          `json:"missing,omitempty"`
	StrategyNow berth.Strategy    `json:"strategyNow,omitempty"`
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
	return fetch[Pool](ctx, c, http.MethodPut, poolPath(p.ID), Pool{
		Kind: p.Kind, Capabilities: p.Capabilities, Zone: p.Zone, Strategy: p.Strategy, Tenants: p.Tenants,
	}.definition())
}

// DeletePool deletes the definition of a pool.
func (c *Client) DeletePool(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, poolPath(id), nil, nil, nil)
}

// definition returns the fields that a request may have.
func (p Pool) definition() map[string]any {
	d := map[string]any{"capabilities": append([]string{}, p.Capabilities...)}
	if p.Kind != "" {
		d["kind"] = p.Kind
	}
	if p.Zone != "" {
		d["zone"] = p.Zone
	}
	if p.Strategy != "" {
		d["strategy"] = p.Strategy
	}
	if len(p.Tenants) > 0 {
		d["tenants"] = p.Tenants
	}
	return d
}

func poolPath(id string) string { return "/v1/pools/" + url.PathEscape(id) }
