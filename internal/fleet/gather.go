package fleet

import (
	"context"
	"slices"
	"time"

	"berth"
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
	if len(pool.Capabilities) < 2 || pool.ID != poolID || pool.Validate() != nil {
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
	var outside []string
	for id, n := range now.Nodes {
		if n.State != berth.NodeDead && !slices.Contains(n.Pools, poolID) && hasAll(n, pool.Capabilities) {
			outside = append(outside, id)
		}
	}
	if len(outside) == 0 {
		return false, nil
	}
	// What was begun is finished even when the caller does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatherTimeout)
	defer cancel()
	if _, defined := now.Pools[poolID]; !defined {
		if _, err := f.scripts.DefinePool(ctx, pool, true); err != nil {
			return false, err
		}
	}
	return true, f.scripts.MovePools(ctx, outside...)
}

func hasAll(n berth.Node, capabilities []string) bool {
	return !slices.ContainsFunc(capabilities, func(c string) bool { return !slices.Contains(n.Capabilities, c) })
}
