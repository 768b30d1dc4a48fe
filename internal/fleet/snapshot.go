// Package fleet keeps a read-only snapshot of the nodes, pools, tenants and configuration in Redis, so that reads need no
// round trip and are served while Redis is unavailable. It also sweeps the fleet for nodes that missed heartbeats, and
// writes the operators' settings to Redis. The snapshot decides nothing: decisions are scripts.
package fleet

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/lua"
)

// Snapshot is the fleet at one time. It is immutable.
type Snapshot struct {
	Nodes      map[string]berth.Node
	Pools      map[string]berth.Pool     // the defined pools
	Strategies map[string]berth.Strategy // current strategies of the dynamic pools
	Tenants    map[string]string         // tenant -> pool
	Config     berth.FleetConfig
	Services   berth.RequiredServices
	// At is this process's time of the last reading, for display only; zero before the first.
	At time.Time
	// Stale is true while Redis is unavailable, and before the first reading: the snapshot may be old, and writes are refused.
	Stale bool
	// capable counts the nodes with each capability, usable the nodes of each pool that take work. Heartbeats rarely change
	// them, and every session reads them.
	capable, usable map[string]int
	// matching has the nodes that Matching found, until one of these counts changes.
	matching *matches
	// declares reports whether any node declares services.
	declares bool
	// languages has the pairs that nodes and pools declare. It is made by the first request for a pair that is not declared as such.
	languages *atomic.Pointer[berth.LanguageIndex]
	// zones lists the zones of each host's registered nodes, sorted. More than one is a configuration error.
	zones map[string][]string
}

// takesWork reports whether the node accepts work, now or when it has a free slot.
func takesWork(n berth.Node) bool {
	return n.State != berth.NodeDead && !n.Cordoned && n.DrainUntil.IsZero()
}

// sameCounts reports whether count treats both nodes the same way.
func sameCounts(a, b berth.Node) bool {
	return slices.Equal(a.Capabilities, b.Capabilities) && slices.Equal(a.Services, b.Services) && slices.Equal(a.Pools, b.Pools) && takesWork(a) == takesWork(b) &&
		a.Hostname == b.Hostname && a.Zone == b.Zone && a.Kind == b.Kind
}

func (s *Snapshot) count() {
	s.matching, s.languages = &matches{}, &atomic.Pointer[berth.LanguageIndex]{}
	s.capable, s.usable, s.zones = map[string]int{}, map[string]int{}, map[string][]string{}
	s.declares = false
	needed := map[string][]string{} // by pool
	for _, id := range s.PoolIDs() {
		needed[id] = s.Services.Of(s.Pool(id).Capabilities)
	}
	for _, n := range s.Nodes {
		s.declares = s.declares || len(n.Services) > 0
		for _, c := range n.Capabilities {
			s.capable[c]++
		}
		for _, pool := range n.Pools {
			if takesWork(n) && !slices.ContainsFunc(needed[pool], func(service string) bool { return !slices.Contains(n.Services, service) }) {
				s.usable[pool]++
			}
		}
		if i, known := slices.BinarySearch(s.zones[n.Hostname], n.Zone); !known && n.State != berth.NodeDead {
			s.zones[n.Hostname] = slices.Insert(s.zones[n.Hostname], i, n.Zone)
		}
	}
}

// matches keeps the nodes that belong to a pool: looking at every node for every request would take milliseconds in a large
// fleet. A snapshot is read concurrently, so the first request for a pool adds it.
type matches struct {
	byPool sync.Map // kind and pool id -> []string
	n      atomic.Int64
}

// maxMatches is the number of pools whose nodes are kept: requests name the pools.
const maxMatches = 1000

// Matching returns the ids of the registered nodes that belong to a pool, also where it is not defined, sorted. The result is not
// to be changed.
func (s *Snapshot) Matching(p berth.Pool) []string {
	key := string(p.Kind) + "\n" + p.ID
	if s.matching != nil {
		if found, ok := s.matching.byPool.Load(key); ok {
			ids, _ := found.([]string) // nothing else is stored
			return ids
		}
	}
	var ids []string
	for id, n := range s.Nodes {
		if p.Matches(n.NodeSpec) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if s.matching != nil && s.matching.n.Add(1) <= maxMatches {
		s.matching.byPool.Store(key, ids)
	}
	return ids
}

// GPUWeight returns the weight of GPU usage in the load of a node: the largest of its pools' own, otherwise the fleet's.
func (s *Snapshot) GPUWeight(n berth.Node) float64 {
	weight := -1.0
	for _, id := range n.Pools {
		if own := s.Pools[id].GPUWeight; own != nil {
			weight = max(weight, *own)
		}
	}
	if weight < 0 {
		return s.Config.GPUWeight
	}
	return weight
}

// Pool returns the definition of a pool, or the implicit one of the capability of that name.
func (s *Snapshot) Pool(id string) berth.Pool {
	if p, ok := s.Pools[id]; ok {
		return p
	}
	return berth.Pool{ID: id, Capabilities: []string{id}}
}

// Eligible returns the pools that serve a language pair and that the tenant may use, sorted: of each capability that Capabilities returns,
// the implicit pool and every defined pool that requires it. It returns those of the closest pair only, if one of them has a node that
// takes work. Pools without one are omitted unless no pool has one.
func (s *Snapshot) Eligible(tenantID, src, tgt string) []string {
	var found []string
	for group := range s.capabilities(src, tgt) {
		var out []string
		for _, capability := range group {
			out = append(out, s.poolsOf(tenantID, capability)...)
		}
		slices.Sort(out)
		out = slices.Compact(out)
		if slices.ContainsFunc(out, s.isUsable) {
			return slices.DeleteFunc(out, func(id string) bool { return !s.isUsable(id) })
		}
		if len(found) == 0 {
			found = out
		}
	}
	return found
}

// poolsOf returns the pools of a capability that the tenant may use.
func (s *Snapshot) poolsOf(tenantID, capability string) (out []string) {
	if _, defined := s.Pools[capability]; !defined && s.capable[capability] > 0 {
		out = append(out, capability)
	}
	for id, p := range s.Pools {
		if p.Serves(capability) && p.Allows(tenantID) {
			out = append(out, id)
		}
	}
	return out
}

// capabilities yields the declared capabilities that serve a language pair, in groups, the closest ones first. The first group has the
// capability of the very pair, whether or not it is declared.
func (s *Snapshot) capabilities(src, tgt string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		exact := berth.TranslateCapability(src, tgt)
		if !yield([]string{exact}) {
			return
		}
		for _, group := range s.languageIndex().Find(berth.LanguagePair{Src: src, Tgt: tgt}) {
			var names []string
			for _, p := range group {
				if c := berth.TranslateCapability(p.Src, p.Tgt); c != exact {
					names = append(names, c)
				}
			}
			if len(names) > 0 && !yield(names) {
				return
			}
		}
	}
}

// Capabilities returns the capabilities that serve a language pair, the closest ones first.
func (s *Snapshot) Capabilities(src, tgt string) (all []string) {
	for group := range s.capabilities(src, tgt) {
		all = append(all, group...)
	}
	return all
}

// languageIndex returns the pairs that nodes and pools declare.
func (s *Snapshot) languageIndex() berth.LanguageIndex {
	if s.languages == nil {
		return nil // before the first reading
	}
	if index := s.languages.Load(); index != nil {
		return *index
	}
	declared := slices.Collect(maps.Keys(s.capable))
	for id, p := range s.Pools {
		declared = append(append(declared, id), p.Capabilities...)
	}
	slices.Sort(declared)
	index := berth.NewLanguageIndex(slices.Compact(declared))
	s.languages.Store(&index)
	return index
}

// Pair returns the languages of work in a pool as the pool's nodes have declared them: of the pairs that serve the wanted one, the closest
// that all of its nodes have.
func (s *Snapshot) Pair(poolID, src, tgt string) (nodeSrc, nodeTgt string) {
	p := s.Pool(poolID)
	for group := range s.capabilities(src, tgt) {
		for _, capability := range group {
			if pair, ok := berth.PairOf(capability); ok && p.Serves(capability) {
				return pair.Src, pair.Tgt
			}
		}
	}
	return src, tgt
}

func (s *Snapshot) isUsable(poolID string) bool { return s.usable[poolID] > 0 }

// Serves reports whether Eligible has the pool, in most cases without computing the others.
func (s *Snapshot) Serves(poolID, tenantID, src, tgt string) bool {
	capability := berth.TranslateCapability(src, tgt)
	p, defined := s.Pools[poolID]
	switch {
	case !s.isUsable(poolID):
	case defined && p.Serves(capability):
		return p.Allows(tenantID)
	case !defined && poolID == capability:
		return s.capable[capability] > 0
	}
	return slices.Contains(s.Eligible(tenantID, src, tgt), poolID)
}

// Declares reports whether any node declares services.
func (s *Snapshot) Declares() bool { return s.declares }

// Strategy returns the current strategy of a pool: its own, otherwise the fleet's, resolved. Empty if the size of
// the pool determines it.
func (s *Snapshot) Strategy(poolID string) berth.Strategy {
	return s.ResolveStrategy(poolID, cmp.Or(s.Pool(poolID).Strategy, s.Config.AssignmentStrategy))
}

// ResolveStrategy returns the strategy itself or, for dynamic, the one that the pool is switched to: round-robin at first.
func (s *Snapshot) ResolveStrategy(poolID string, strategy berth.Strategy) berth.Strategy {
	if strategy != berth.StrategyDynamic {
		return strategy
	}
	if current, ok := s.Strategies[poolID]; ok {
		return current
	}
	return strategy.Script()
}

// Locate completes the location of the caller of a choice: the host and zone default to those of the caller's own node, and
// the zone to that of the host.
func (s *Snapshot) Locate(c lua.Choice) lua.Choice {
	if own, known := s.Nodes[c.Own]; known && c.OwnHost == "" {
		c.OwnHost = own.Hostname
		c.OwnZone = cmp.Or(c.OwnZone, own.Zone)
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

// States returns the mean load of the ready nodes of pools and their mean latency to the API, by which a dynamic strategy switches. No
// process measures how far the callers are.
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
		gpu := 0.0
		if node.Load.GPUUsage != nil && s.GPUWeight(node) > 0 {
			gpu = *node.Load.GPUUsage / 100
		}
		for _, id := range node.Pools {
			if sum, asked := sums[id]; asked {
				sum.Load += max(node.Load.CPUUsage/100, gpu, min(1, used))
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

// PoolIDs returns all pools, sorted: the defined ones and those that have nodes.
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

// DynamicPools returns the pools whose strategy is dynamic, sorted.
func (s *Snapshot) DynamicPools() []string {
	return slices.DeleteFunc(s.PoolIDs(), func(id string) bool {
		return cmp.Or(s.Pool(id).Strategy, s.Config.AssignmentStrategy) != berth.StrategyDynamic
	})
}
