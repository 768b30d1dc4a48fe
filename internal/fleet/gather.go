package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"berth"
	"berth/lua"
)

// MaxGathered is how many defined pools there may be for further ones to be made on request: each pool that a node is in
// makes its leases and heartbeats dearer.
const MaxGathered = 1000

const gatherTimeout = 30 * time.Second

// Gather has the pool of several capabilities defined when it is first asked for, and filled with the nodes that it
// should have and has not, as when whoever defined it did not finish (S4). It answers whether anything changed, so that
// choosing again may succeed. Pools that somebody defined otherwise, and those that no node would be in, are left alone.
func (f *Fleet) Gather(ctx context.Context, poolID string, capabilities []string) (changed bool, err error) {
	pool := berth.CapabilityPool(capabilities...)
	valid := pool.Validate() == nil
	if len(pool.Capabilities) < 2 || pool.ID != poolID || !valid {
		return false, nil
	}
	now := f.Snapshot()
	if p, defined := now.Pools[poolID]; defined && !slices.Equal(p.Capabilities, pool.Capabilities) {
		return false, nil
	} else if !defined && len(now.Pools) >= MaxGathered {
		return false, berth.Errorf(berth.CodeNoNode, "there are %d pools already: an operator has to define %s", len(now.Pools), poolID)
	} else if defined && (p.Kind != "" || p.Zone != "") {
		return false, nil
	}
	return f.fill(ctx, pool, func(n berth.Node) bool { return hasAll(n, pool.Capabilities) })
}

// ZonePool is the pool of a zone's nodes of a kind that have the capability.
func ZonePool(kind berth.NodeKind, capability, zone string) berth.Pool {
	p := berth.Pool{ID: capability + ":zone:" + zone, Kind: kind, Capabilities: []string{capability}, Zone: zone}
	if p.Validate() != nil { // zones may have any name
		h := fnv.New64a()
		_, _ = h.Write([]byte(zone)) // never fails
		p.ID = fmt.Sprintf("%s:zone:x%x", capability, h.Sum64())
	}
	return p
}

// GatherZone is Gather for a ZonePool.
func (f *Fleet) GatherZone(ctx context.Context, pool berth.Pool) (changed bool, err error) {
	now := f.Snapshot()
	if p, defined := now.Pools[pool.ID]; defined && (p.Kind != pool.Kind || p.Zone != pool.Zone || !slices.Equal(p.Capabilities, pool.Capabilities)) {
		return false, nil
	} else if !defined && len(now.Pools) >= MaxGathered {
		return false, berth.Errorf(berth.CodeNoNode, "there are %d pools already: an operator has to define %s", len(now.Pools), pool.ID)
	}
	return f.fill(ctx, pool, func(n berth.Node) bool {
		return n.Kind == pool.Kind && n.Zone == pool.Zone && hasAll(n, pool.Capabilities)
	})
}

// fill defines a pool unless it is, and puts into it the nodes that should be in it and are not. Whether it is defined is
// asked of Redis: the copy may be from before Redis lost its data, and then the pool would stay away.
func (f *Fleet) fill(ctx context.Context, pool berth.Pool, belongs func(berth.Node) bool) (changed bool, err error) {
	served, outside := false, []string(nil)
	for id, n := range f.Snapshot().Nodes {
		if n.State != berth.NodeDead && belongs(n) {
			served = true
			if !slices.Contains(n.Pools, pool.ID) {
				outside = append(outside, id)
			}
		}
	}
	if !served {
		return false, nil
	}
	// What was begun is finished even when the caller does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatherTimeout)
	defer cancel()
	code, err := f.scripts.DefinePool(ctx, pool, true)
	if err != nil || code == lua.PoolOK {
		return err == nil, err // all nodes were moved
	}
	return len(outside) > 0, f.scripts.MovePools(ctx, outside...)
}

func hasAll(n berth.Node, capabilities []string) bool {
	return !slices.ContainsFunc(capabilities, func(c string) bool { return !slices.Contains(n.Capabilities, c) })
}
