package placement

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"berth"
	"berth/internal/fleet"
	"berth/lua"
)

// sampled is how many free nodes the first decision of a request compares that no pool serves. More improve the choice little.
const sampled = 64

// catchUpTimeout bounds the wait for a current snapshot before work is refused.
const catchUpTimeout = time.Second

// ZonePool returns the pool of a zone's nodes of a kind that have the capability.
func ZonePool(kind berth.NodeKind, capability, zone string) berth.Pool {
	p := berth.Pool{ID: capability + ":zone:" + zone, Kind: kind, Capabilities: []string{capability}, Zone: zone}
	if berth.ValidPoolID("", p.ID) != nil { // a zone's name may hold characters that a pool's id may not
		h := fnv.New64a()
		_, _ = h.Write([]byte(zone)) // never fails
		p.ID = fmt.Sprintf("%s:zone:x%x", capability, h.Sum64())
	}
	return p
}

// isListed reports whether the script has to choose from listed nodes: those of a zone, or with several capabilities, have no
// indexes unless an operator defined their pool. Indexes for whatever a request asks for would cost every heartbeat and lease.
func isListed(now *fleet.Snapshot, pool berth.Pool) bool {
	_, defined := now.Pools[pool.ID]
	return !defined && (pool.Zone != "" || len(pool.Capabilities) > 1)
}

// lists returns the nodes that belong to a pool without indexes, in lists for one decision each, to be tried in order: with
// locality those on the caller's host, then in its zone; of them a random sample of those that were free when the fleet was last
// read, then more of these, then others. In a fleet of a few hundred such nodes that is all of them.
func lists(now *fleet.Snapshot, pool berth.Pool, c lua.Choice) [][]string {
	all := now.Matching(pool)
	if len(all) == 0 {
		return nil
	}
	var out [][]string
	add := func(match func(n berth.Node) bool) {
		var free, others []string
		start := rand.IntN(len(all))
		for i := range all {
			id := all[(start+i)%len(all)]
			n, known := now.Nodes[id]
			switch {
			case !known || n.State == berth.NodeDead || !match(n):
			case id == c.Own && len(free) > 0:
				free = append(free, free[0])
				free[0] = id
			case n.Excluded == "" || id == c.Own:
				free = append(free, id)
			case len(others) < lua.MaxListed:
				others = append(others, id)
			}
			if len(free) == sampled+lua.MaxListed {
				break
			}
		}
		first := min(len(free), sampled)
		for _, list := range [][]string{free[:first], free[first:], others} {
			if len(list) > 0 {
				out = append(out, list)
			}
		}
	}
	if c.Strategy == berth.StrategyLocality {
		if c.OwnHost != "" {
			add(func(n berth.Node) bool { return n.Hostname == c.OwnHost })
		}
		if c.OwnZone != "" {
			add(func(n berth.Node) bool { return n.Zone == c.OwnZone })
		}
	}
	add(func(berth.Node) bool { return true })
	return out
}

// registered returns the nodes of a pool without indexes that have registered since the snapshot, in lists for one decision each,
// and a current snapshot. Work that waits for a node is placed as soon as one registers, often before the snapshot has it.
func (p *Placer) registered(ctx context.Context, old *fleet.Snapshot, pool berth.Pool) ([][]string, *fleet.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	p.fleet.CatchUp(ctx)
	now := p.fleet.Snapshot()
	ids := slices.DeleteFunc(slices.Clone(now.Matching(pool)), func(id string) bool {
		before, known := old.Nodes[id]
		n := now.Nodes[id]
		return n.State == berth.NodeDead || known && before.State != berth.NodeDead && before.Generation == n.Generation
	})
	return slices.Collect(slices.Chunk(ids, lua.MaxListed)), now
}

// decideAmong runs the script for one list after the other until it decides. A refusal has the reasons of all lists.
func decideAmong(lists [][]string, c lua.Choice, run script) (d lua.Decision, err error) {
	reasons := map[berth.ExcludeReason]int{}
	seen := map[string]bool{}
	for _, list := range lists {
		list = slices.DeleteFunc(slices.Clone(list), func(id string) bool { return seen[id] })
		if len(list) == 0 {
			continue
		}
		for _, id := range list {
			seen[id] = true
		}
		c.Listed = list
		d, err = run(c)
		if err != nil || d.Code != lua.AssignFull && d.Code != lua.AssignNone {
			return d, err
		}
		for reason, n := range d.Reasons {
			reasons[reason] += n
		}
	}
	if reasons[berth.ExcludeFull] > 0 {
		d.Code = lua.AssignFull
	}
	d.Reasons = reasons
	return d, nil
}
