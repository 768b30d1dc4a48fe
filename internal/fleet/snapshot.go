// Package fleet keeps a read-only copy of what Redis has of nodes, pools, tenants and configuration, so that reading
// costs no round trip and answers while Redis is away (L1, L8, L11). Nothing is decided by it: decisions are scripts.
package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"berth"
	"berth/lua"
)

// Snapshot is the fleet at one time. It never changes: whoever has it may read it without asking anybody.
type Snapshot struct {
	Nodes      map[string]berth.Node
	Pools      map[string]berth.Pool     // the defined ones
	Strategies map[string]berth.Strategy // that the dynamic pools have now
	Tenants    map[string]string         // tenant -> pool
	Config     berth.FleetConfig
	Services   json.RawMessage
	// At is this process's time of the last reading, zero before the first; for people, never for a decision.
	At time.Time
	// Stale tells that Redis cannot be reached, or was not read yet: the copy may be old, and writes are to be refused.
	Stale bool
	// capable counts the nodes that have each capability, manned those of each pool that work: heartbeats change them seldom,
	// and jobs ask for them often.
	capable, manned map[string]int
	// zones are those that the living nodes of each host are in, sorted; more than one are a mistake of who runs them.
	zones map[string][]string
}

// works tells that the node lives and may be given work, now or as soon as it has room.
func works(n berth.Node) bool {
	return n.State != berth.NodeDead && !n.Cordoned && n.DrainUntil.IsZero()
}

// countsAlike tells that count makes the same of both.
func countsAlike(a, b berth.Node) bool {
	return slices.Equal(a.Capabilities, b.Capabilities) && slices.Equal(a.Pools, b.Pools) && works(a) == works(b) &&
		a.Hostname == b.Hostname && a.Zone == b.Zone
}

func (s *Snapshot) count() {
	s.capable, s.manned, s.zones = map[string]int{}, map[string]int{}, map[string][]string{}
	for _, n := range s.Nodes {
		for _, c := range n.Capabilities {
			s.capable[c]++
		}
		for _, pool := range n.Pools {
			if works(n) {
				s.manned[pool]++
			}
		}
		if i, known := slices.BinarySearch(s.zones[n.Hostname], n.Zone); !known && n.State != berth.NodeDead {
			s.zones[n.Hostname] = slices.Insert(s.zones[n.Hostname], i, n.Zone)
		}
	}
}

// Pool is the definition of a pool: the one an operator wrote, or that of the capability of its name.
func (s *Snapshot) Pool(id string) berth.Pool {
	if p, ok := s.Pools[id]; ok {
		return p
	}
	return berth.Pool{ID: id, Capabilities: []string{id}}
}

// Eligible are the pools that serve a language pair, sorted: the pair's own and every defined one that asks for it (L5). One
// without a node that works is none of them while others have some.
func (s *Snapshot) Eligible(src, tgt string) []string {
	capability := berth.TranslateCapability(src, tgt)
	var out []string
	if _, defined := s.Pools[capability]; !defined && s.capable[capability] > 0 {
		out = append(out, capability)
	}
	for id, p := range s.Pools {
		if p.Serves(capability) {
			out = append(out, id)
		}
	}
	if slices.ContainsFunc(out, s.isManned) {
		out = slices.DeleteFunc(out, func(id string) bool { return !s.isManned(id) })
	}
	slices.Sort(out)
	return out
}

func (s *Snapshot) isManned(poolID string) bool { return s.manned[poolID] > 0 }

// Serves tells whether the pool is one of the Eligible, in most cases without looking at the others.
func (s *Snapshot) Serves(poolID, src, tgt string) bool {
	if !s.isManned(poolID) {
		return slices.Contains(s.Eligible(src, tgt), poolID)
	}
	capability := berth.TranslateCapability(src, tgt)
	if p, defined := s.Pools[poolID]; defined {
		return p.Serves(capability)
	}
	return poolID == capability && s.capable[capability] > 0
}

// Strategy is how a pool's node is chosen now: its own strategy, else that of the fleet; where that is dynamic, what it
// has been switched to (S6, S7). Empty leaves it to the size of the pool.
func (s *Snapshot) Strategy(poolID string) berth.Strategy {
	strategy := s.Pool(poolID).Strategy
	if strategy == "" {
		strategy = s.Config.AssignmentStrategy
	}
	return s.ResolveStrategy(poolID, strategy)
}

// ResolveStrategy is the strategy itself, and for dynamic what the pool is switched to: round-robin where it is not.
func (s *Snapshot) ResolveStrategy(poolID string, strategy berth.Strategy) berth.Strategy {
	if strategy != berth.StrategyDynamic {
		return strategy
	}
	if now, ok := s.Strategies[poolID]; ok {
		return now
	}
	return berth.StrategyRoundRobin
}

// Locate fills in what is known of where the caller of a choice is (S5): their own node tells its host and zone, and the host
// in which zones it is, whatever was said of that. What the caller said of host and zone themselves counts first.
func (s *Snapshot) Locate(c lua.Choice) lua.Choice {
	if own, known := s.Nodes[c.Own]; known && c.OwnHost == "" {
		c.OwnHost = own.Hostname
		if c.OwnZone == "" {
			c.OwnZone = own.Zone
		}
	}
	if c.OwnHost == "" {
		return c
	}
	c.HostZones = s.zones[c.OwnHost]
	if c.OwnZone == "" && len(c.HostZones) > 0 {
		c.OwnZone = c.HostZones[0]
	}
	return c
}

// Closest returns the registered node that lacks the fewest of the capabilities, and which ones it lacks. It returns nothing
// where a node has all of them, or no node has any.
func (s *Snapshot) Closest(capabilities []string) (nodeID string, lacks []string) {
	for id, n := range s.Nodes {
		if n.State == berth.NodeDead {
			continue
		}
		var without []string
		for _, c := range capabilities {
			if !slices.Contains(n.Capabilities, c) {
				without = append(without, c)
			}
		}
		if nodeID == "" || len(without) < len(lacks) || len(without) == len(lacks) && id < nodeID {
			nodeID, lacks = id, without
		}
	}
	if len(lacks) == 0 || len(lacks) == len(capabilities) {
		return "", nil
	}
	return nodeID, lacks
}

// State is what the strategy of a dynamic pool is decided by: the mean load and latency of its living nodes (S7).
func (s *Snapshot) State(poolID string) berth.SystemState { return s.States(poolID)[poolID] }

// States are the states of several pools, found in one pass over the nodes.
func (s *Snapshot) States(poolIDs ...string) map[string]berth.SystemState {
	sums, members := make(map[string]berth.SystemState, len(poolIDs)), make(map[string]float64, len(poolIDs))
	for _, id := range poolIDs {
		sums[id] = berth.SystemState{}
	}
	if len(poolIDs) == 0 {
		return sums
	}
	for _, node := range s.Nodes {
		if node.State != berth.NodeReady {
			continue
		}
		used := float64(max(node.Leases, node.Load.CurrentJobs)) / float64(max(1, node.MaxConcurrentJobs))
		for _, id := range node.Pools {
			if sum, asked := sums[id]; asked {
				sum.Load += max(node.Load.CPUUsage/100, min(1, used))
				sum.LatencyMs += node.Load.LatencyMs
				sums[id] = sum
				members[id]++
			}
		}
	}
	for id, n := range members {
		sums[id] = berth.SystemState{Load: sums[id].Load / n, LatencyMs: sums[id].LatencyMs / n}
	}
	return sums
}

// PoolIDs are all pools: the defined ones and those that nodes are in, sorted.
func (s *Snapshot) PoolIDs() []string {
	ids := map[string]bool{}
	for id := range s.Pools {
		ids[id] = true
	}
	for _, n := range s.Nodes {
		for _, id := range n.Pools {
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}

// DynamicPools are the pools whose strategy has to be decided from time to time, sorted (S7).
func (s *Snapshot) DynamicPools() []string {
	return slices.DeleteFunc(s.PoolIDs(), func(id string) bool {
		strategy := s.Pool(id).Strategy
		return strategy != berth.StrategyDynamic && (strategy != "" || s.Config.AssignmentStrategy != berth.StrategyDynamic)
	})
}
