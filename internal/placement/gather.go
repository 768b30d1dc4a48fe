package placement

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"berth"
	"berth/lua"
)

// MaxPools is the number of defined pools from which on no further ones are created on demand: each pool of a node adds to
// the cost of its leases and heartbeats.
const MaxPools = 1000

const gatherTimeout = 30 * time.Second

// ZonePool returns the pool of a zone's nodes of a kind that have the capability.
func ZonePool(kind berth.NodeKind, capability, zone string) berth.Pool {
	p := berth.Pool{ID: capability + ":zone:" + zone, Kind: kind, Capabilities: []string{capability}, Zone: zone}
	if p.Validate() != nil { // a zone's name may hold characters that a pool's id may not
		h := fnv.New64a()
		_, _ = h.Write([]byte(zone)) // never fails
		p.ID = fmt.Sprintf("%s:zone:x%x", capability, h.Sum64())
	}
	return p
}

// Gather creates a pool that is defined on demand, a ZonePool or one of several capabilities, and moves nodes into it that
// belong to it and are not members, such as after an earlier call that failed. It reports whether anything changed, so that
// a second choice may succeed. Pools that are defined otherwise, and those that no node would belong to, are not changed.
func (p *Placer) Gather(ctx context.Context, pool berth.Pool) (changed bool, err error) {
	wanted := onDemand(pool)
	if wanted.ID != pool.ID {
		return false, nil
	}
	if invalid := wanted.Validate(); invalid != nil {
		return false, nil //nolint:nilerr // no node can be in a pool of that name: nothing changes
	}
	pools := p.fleet.Snapshot().Pools
	if is, defined := pools[pool.ID]; defined {
		if is.Kind != wanted.Kind || is.Zone != wanted.Zone || !slices.Equal(is.Capabilities, wanted.Capabilities) {
			return false, nil
		}
	} else if len(pools) >= MaxPools {
		return false, berth.Errorf(berth.CodeNoNode, "%d pools are defined, which is the limit for pools on demand; define pool %s",
			len(pools), pool.ID)
	}
	return p.fill(ctx, wanted)
}

// onDemand returns the pool that is created for the capabilities and the zone of a pool; none for a single capability, whose
// pool needs no definition.
func onDemand(pool berth.Pool) berth.Pool {
	switch {
	case pool.Zone != "" && len(pool.Capabilities) == 1:
		return ZonePool(pool.Kind, pool.Capabilities[0], pool.Zone)
	case pool.Zone == "" && len(pool.Capabilities) > 1:
		return berth.CapabilityPool(pool.Capabilities...)
	}
	return berth.Pool{}
}

// fill defines a pool unless it is defined, and moves nodes into it. It checks in Redis whether the pool is defined: a snapshot
// from before Redis lost its data would keep the pool from being defined again.
func (p *Placer) fill(ctx context.Context, pool berth.Pool) (changed bool, err error) {
	served, outside := false, []string(nil)
	for id, n := range p.fleet.Snapshot().Nodes {
		if n.State != berth.NodeDead && pool.Matches(n.NodeSpec) {
			served = true
			if !slices.Contains(n.Pools, pool.ID) {
				outside = append(outside, id)
			}
		}
	}
	if !served {
		return false, nil
	}
	// A move that has begun is finished even when the caller stops waiting.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatherTimeout)
	defer cancel()
	code, err := p.scripts.DefinePool(ctx, pool, true)
	if err != nil || code == lua.PoolOK {
		return err == nil, err // DefinePool has moved the nodes
	}
	return len(outside) > 0, p.scripts.MovePools(ctx, outside...)
}
