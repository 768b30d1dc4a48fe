package lua_test

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// refNode is a node of the reference model of P18, which implements the required selection over plain lists.
type refNode struct {
	id, zone, host string
	pools          []string
	declared       []string // services
	capable        string   // hash of the pools and declared services
	max            int
	gone           bool
	hold           berth.ExcludeReason
	unavailable    bool // of the service tts
	base           int  // reported load in thousandths
	active         int
	leases         map[string]bool
	each, seen     int // usual load of one workflow, and the leases at the last report
	generation     int64
}

// excluded returns the reason why the node cannot be chosen, empty if it can.
func (n *refNode) excluded() berth.ExcludeReason {
	switch {
	case n.gone:
		return berth.ExcludeOffline
	case n.hold != "":
		return n.hold
	case len(n.leases) >= n.max:
		return berth.ExcludeFull
	}
	return ""
}

func (n *refNode) load() int {
	held := len(n.leases)
	unreported := max(0, held-n.seen)
	return n.base + max(n.active, held)*1000 + held*100_000/n.max + unreported*n.each + 40_000*unreported*unreported/max(n.max, 50)
}

// class returns the name of the node's class: selection compares the classes of a pool in the order of their names.
func (n *refNode) class() string {
	marks := ","
	if n.unavailable {
		marks = ",tts,"
	}
	if n.capable == "" {
		row := strings.Join(n.pools, "\n")
		if len(n.declared) > 0 {
			row += "\n\n" + strings.Join(n.declared, "\n")
		}
		n.capable = fmt.Sprintf("%x", sha1.Sum([]byte(row)))
	}
	return n.capable + marks
}

// lacks returns why the node cannot take work that needs the choice's services; empty if it can.
func (n *refNode) lacks(c lua.Choice) berth.ExcludeReason {
	undeclared := func(service string) bool { return !slices.Contains(n.declared, service) }
	switch {
	case n.unavailable && slices.Contains(c.Services, "tts"):
		return berth.ExcludeServiceUnavailable
	case slices.ContainsFunc(c.Needed, undeclared), len(n.declared) > 0 && slices.ContainsFunc(c.Named, undeclared):
		return berth.ExcludeServiceMissing
	}
	return ""
}

// order returns what round-robin orders the nodes of a pool by.
func (n *refNode) order() string {
	return n.class() + "\x02" + n.zone + "\x01" + n.host + "\x01" + n.id
}

// spec returns the node's registration.
func (n *refNode) spec() berth.NodeSpec {
	return berth.NodeSpec{
		ID: n.id, Kind: berth.NodeEngine, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
		Hostname: n.host, Zone: n.zone, Capabilities: n.pools, Services: n.declared, MaxConcurrentJobs: n.max,
	}
}

type refFleet struct {
	nodes []*refNode
	last  map[string]string // pool -> order of the node that round-robin chose last
}

func (f *refFleet) members(pool string, free bool) []*refNode {
	var out []*refNode
	for _, n := range f.nodes {
		if slices.Contains(n.pools, pool) && (!free || n.excluded() == "") {
			out = append(out, n)
		}
	}
	return out
}

// twoOf returns the two ranks below n that the random number selects.
func twoOf(random int64, n int) (lower, upper int) {
	if n == 1 {
		return 0, 0
	}
	const half = 1 << 26
	i := int(math.Floor(float64(random%half) / half * float64(n)))
	j := int(math.Floor(float64(random/half) / half * float64(n-1)))
	if j >= i {
		j++
	}
	return min(i, j), max(i, j)
}

// choose returns the node that a selection must take, nil if there is none.
func (f *refFleet) choose(c lua.Choice) *refNode {
	free := slices.DeleteFunc(f.members(c.PoolID, true), func(n *refNode) bool { return n.lacks(c) != "" })
	byLoad := func(a, b *refNode) int { return cmp.Or(a.load()-b.load(), strings.Compare(a.id, b.id)) }
	slices.SortFunc(free, byLoad)
	byClass := slices.SortedStableFunc(slices.Values(free), func(a, b *refNode) int { return strings.Compare(a.class(), b.class()) })
	fits := func(n *refNode) bool { return !slices.Contains(c.Excluded, n.id) }
	first := func(list []*refNode) *refNode {
		if i := slices.IndexFunc(list, fits); i >= 0 {
			return list[i]
		}
		return nil
	}
	two := func(list []*refNode, compare func(a, b *refNode) int, then func() *refNode) *refNode {
		if len(list) == 0 {
			return nil
		}
		i, j := twoOf(c.Random, len(list))
		pair := []*refNode{list[i], list[j]}
		slices.SortStableFunc(pair, compare)
		if n := first(pair); n != nil {
			return n
		}
		return then()
	}
	own := func() *refNode {
		if i := slices.IndexFunc(free, func(n *refNode) bool { return n.id == c.Own }); i >= 0 && fits(free[i]) {
			return free[i]
		}
		return nil
	}
	near := func(at func(n *refNode) bool) *refNode {
		var there []*refNode
		for _, n := range free {
			if at(n) {
				there = append(there, n)
			}
		}
		slices.SortFunc(there, func(a, b *refNode) int {
			return cmp.Or(strings.Compare(a.class(), b.class()),
				strings.Compare(a.zone+"\x01"+a.host+"\x01"+a.id, b.zone+"\x01"+b.host+"\x01"+b.id))
		})
		return two(there, func(a, b *refNode) int { return a.load() - b.load() }, func() *refNode { return first(there) })
	}
	switch c.Strategy {
	case berth.StrategyRoundRobin:
		slices.SortFunc(free, func(a, b *refNode) int { return strings.Compare(a.order(), b.order()) })
		next := slices.IndexFunc(free, func(n *refNode) bool { return n.order() > f.last[c.PoolID] })
		if next < 0 {
			return first(free)
		}
		return first(slices.Concat(free[next:], free[:next]))
	case berth.StrategyPowerOfTwo:
		return two(byClass, byLoad, func() *refNode { return first(free) })
	case berth.StrategyAffinity:
		if n := own(); n != nil {
			return n
		}
	case berth.StrategyLocality:
		if n := own(); n != nil {
			return n
		}
		if c.OwnHost != "" {
			if n := near(func(n *refNode) bool { return n.zone == c.OwnZone && n.host == c.OwnHost }); n != nil {
				return n
			}
		}
		if n := near(func(n *refNode) bool { return n.zone == c.OwnZone }); n != nil {
			return n
		}
	}
	return first(free)
}

// reasons returns how many nodes of a pool cannot take the work of a choice, by reason. A node that does not have a service is not
// waited for, however full it is.
func (f *refFleet) reasons(c lua.Choice) map[berth.ExcludeReason]int {
	out := map[berth.ExcludeReason]int{}
	for _, n := range f.members(c.PoolID, false) {
		r, lacks := n.excluded(), n.lacks(c)
		if r == "" || r == berth.ExcludeFull && lacks == berth.ExcludeServiceMissing {
			r = lacks
		}
		if r != "" {
			out[r]++
		}
	}
	return out
}

// randomServices returns some services in order, in half of the cases none.
func randomServices(rnd *rand.Rand) []string {
	return [][]string{nil, nil, nil, {"nmt"}, {"whisper"}, {"nmt", "whisper"}}[rnd.IntN(6)]
}

// P18: every selection over random fleets matches the reference model, and no node exceeds its capacity.
func TestStrategies_RandomFleets_MatchReferenceModel(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i, strategy := range []berth.Strategy{
		berth.StrategyRoundRobin, berth.StrategyLoadBalanced, berth.StrategyAffinity, berth.StrategyCapability,
		berth.StrategyLocality, berth.StrategyPowerOfTwo,
	} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			const fleets = 10
			outcomes := map[string]int{}
			for range fleets {
				followModel(t, server.Client(), rnd, strategy, selections/fleets, outcomes)
			}
			t.Logf("%d selections: %v", selections, outcomes)
			require.Positive(t, outcomes[lua.AssignOK])
			require.Positive(t, outcomes[lua.AssignFull])
		})
	}
}

func followModel(t *testing.T, rdb *redis.Client, rnd *rand.Rand, strategy berth.Strategy, n int, outcomes map[string]int) {
	t.Helper()
	ctx := t.Context()
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(ctx)
	require.NoError(t, err)
	f, pools := &refFleet{last: map[string]string{}}, []string{"a", "b", "c"}
	for i := range 1 + rnd.IntN(60) {
		r := &refNode{
			id: fmt.Sprintf("n%02d", i), zone: fmt.Sprintf("z%d", rnd.IntN(3)), host: fmt.Sprintf("h%d", rnd.IntN(6)),
			max: 1 + rnd.IntN(5), leases: map[string]bool{}, declared: randomServices(rnd),
		}
		for _, p := range pools {
			if rnd.IntN(3) > 0 {
				r.pools = append(r.pools, p)
			}
		}
		reply, err := s.RegisterNode(ctx, r.spec(), lua.Registration{})
		require.NoError(t, err)
		r.generation = reply.Generation
		f.nodes = append(f.nodes, r)
	}
	type held struct {
		n     *refNode
		lease string
	}
	var holding []held
	for k := range n {
		for range rnd.IntN(5) {
			r := f.nodes[rnd.IntN(len(f.nodes))]
			switch op := rnd.IntN(12); {
			case r.gone:
			case op < 2: // a heartbeat with a load
				l := berth.NodeLoad{CPUUsage: float64(rnd.IntN(101)), MemoryUsage: float64(rnd.IntN(101)), ActiveWorkflows: rnd.IntN(5)}
				reply, err := s.HeartbeatNode(ctx, r.id, r.generation, l, lua.Weights{Memory: 0.5})
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, reply.Code)
				base, err := rdb.HGet(ctx, s.Keys().Node(r.id), "base").Int()
				require.NoError(t, err)
				exact := int(math.Round(1000 * (l.CPUUsage + l.MemoryUsage*0.5)))
				require.GreaterOrEqual(t, base, exact)
				require.Less(t, base, exact+5000, "jittered by less than the difference of samples")
				r.base, r.active, r.seen = base, l.ActiveWorkflows, len(r.leases)
				if r.active > 0 {
					each := min(r.base/r.active, 100_000)
					if r.each > 0 {
						each = (3*r.each + each) / 4
					}
					r.each = each
				}
			case op == 2:
				reason := []berth.ExcludeReason{berth.ExcludeCordoned, berth.ExcludeDraining, "", ""}[rnd.IntN(4)]
				h := lua.Cordon{Cordoned: reason == berth.ExcludeCordoned}
				if reason == berth.ExcludeDraining {
					h.Drain = time.Hour
				}
				require.NoError(t, s.CordonNode(ctx, r.id, h))
				r.hold = reason
			case op == 3:
				r.unavailable = !r.unavailable
				ttl := time.Duration(0)
				if r.unavailable {
					ttl = time.Hour
				}
				_, err := s.MarkUnavailable(ctx, r.id, "tts", ttl)
				require.NoError(t, err)
			case op == 4 && rnd.IntN(200) == 0:
				_, err := s.WithdrawNode(ctx, r.id, r.generation, berth.DepartureWithdrawn)
				require.NoError(t, err)
				r.gone, r.leases = true, map[string]bool{}
			case op == 5 && rnd.IntN(10) == 0: // the same process with other services
				r.declared, r.capable = randomServices(rnd), ""
				reply, err := s.RegisterNode(ctx, r.spec(), lua.Registration{})
				require.NoError(t, err)
				require.Equal(t, lua.NodeExists, reply.Code)
			case op < 10 && len(holding) > 0:
				i := rnd.IntN(len(holding))
				h := holding[i]
				holding = slices.Delete(holding, i, i+1)
				released, err := s.ReleaseNodeSlot(ctx, h.n.id, h.lease)
				require.NoError(t, err)
				require.Equal(t, h.n.leases[h.lease], released)
				delete(h.n.leases, h.lease)
			}
		}
		c := lua.Choice{
			PoolID: pools[rnd.IntN(len(pools))], Strategy: strategy, Random: 1 + rnd.Int64N(1<<52-1), Hold: time.Hour,
			OwnZone: fmt.Sprintf("z%d", rnd.IntN(4)), OwnHost: fmt.Sprintf("h%d", rnd.IntN(7)),
		}
		if rnd.IntN(2) == 0 {
			c.Own = f.nodes[rnd.IntN(len(f.nodes))].id
		}
		if rnd.IntN(4) == 0 {
			c.Services = []string{"tts"}
		}
		switch rnd.IntN(6) {
		case 0:
			c.Needed = randomServices(rnd)
		case 1:
			c.Named = randomServices(rnd)
		}
		if rnd.IntN(4) == 0 {
			c.Excluded = []string{f.nodes[rnd.IntN(len(f.nodes))].id}
		}
		want := f.choose(c)
		lease := fmt.Sprintf("l%d", k)
		d, err := s.Assign(ctx, lease, c)
		require.NoError(t, err)
		outcomes[d.Code]++
		if want == nil {
			require.Contains(t, []string{lua.AssignFull, lua.AssignNone}, d.Code, "selection %d", k)
			for _, own := range []berth.ExcludeReason{berth.ExcludeByCaller, berth.ExcludeNotInPool} {
				delete(d.Reasons, own)
			}
			require.Equal(t, f.reasons(c), d.Reasons, "selection %d: reasons", k)
			require.Equal(t, d.Reasons[berth.ExcludeFull] > 0, d.Code == lua.AssignFull)
			continue
		}
		require.Equal(t, lua.AssignOK, d.Code, "selection %d", k)
		require.Equal(t, want.id, d.NodeID, "selection %d", k)
		require.Equal(t, want.generation, d.Generation)
		want.leases[lease] = true
		holding = append(holding, held{want, lease})
		require.LessOrEqual(t, len(want.leases), want.max)
		if strategy == berth.StrategyRoundRobin {
			f.last[c.PoolID] = want.order()
		}
	}
	for _, r := range f.nodes {
		require.Equal(t, int64(len(r.leases)), rdb.ZCard(ctx, s.Keys().NodeSlots(r.id)).Val(), "slots of %s", r.id)
	}
	for _, p := range pools {
		got, err := s.CountPool(ctx, p)
		require.NoError(t, err)
		require.Equal(t, berth.PoolCounts{Free: len(f.members(p, true)), Excluded: f.reasons(lua.Choice{PoolID: p})}, got)
	}
}

// S1, S9: how each strategy shares jobs among equal nodes. A random choice must exceed the limits, to show that they mean
// something.
func TestStrategies_EqualNodes_ShareEvenly(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	const nodes = 200
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cases := map[string]struct {
		strategy berth.Strategy
		maximum  func(mean float64) float64 // of one node
		minimum  func(mean float64) float64
	}{
		"round-robin":   {berth.StrategyRoundRobin, math.Ceil, math.Floor},
		"load-balanced": {berth.StrategyLoadBalanced, math.Ceil, math.Floor},
		// With two choices the fullest node is log2(log2(n)) + O(1) above the mean, for any number of jobs (n = 200: 3).
		"power-of-two": {berth.StrategyPowerOfTwo, func(mean float64) float64 { return math.Ceil(mean) + math.Log2(math.Log2(nodes)) + 2 }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			for i := range nodes {
				register(t, s, spec(fmt.Sprintf("n%d", i), slots(berth.MaxNodeConcurrency)))
			}
			rnd := rand.New(rand.NewPCG(seed, 1))
			shares, random := map[string]int{}, make([]int, nodes)
			for i := range selections {
				d := assign(t, s, fmt.Sprintf("l%d", i), lua.Choice{Strategy: c.strategy, Hold: time.Hour, Random: rnd.Int64N(1<<52-1) + 1})
				require.Equal(t, lua.AssignOK, d.Code)
				shares[d.NodeID]++
				random[rnd.IntN(nodes)]++
			}
			require.Len(t, shares, nodes)
			busiest, idlest := slices.Max(slices.Collect(maps.Values(shares))), slices.Min(slices.Collect(maps.Values(shares)))
			mean := float64(selections) / nodes
			t.Logf("%d selections over %d nodes: %d to %d; random choice up to %d", selections, nodes, idlest, busiest, slices.Max(random))
			require.LessOrEqual(t, float64(busiest), c.maximum(mean))
			require.Greater(t, float64(slices.Max(random)), c.maximum(mean), "a random choice would pass, so the test proves nothing")
			if c.minimum != nil {
				require.GreaterOrEqual(t, float64(idlest), c.minimum(mean))
			}
		})
	}
}

// S1: round-robin in pools that share nodes hands out the nodes of each pool in turn, whatever the other pools do, and also where
// the nodes are of more classes than one decision reads. It stores one key for each pool.
func TestRoundRobin_PoolsShareNodes_EachSharesEvenly(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for name, capabilities := range map[string]func(i int) []string{
		"nodes equal":                 func(int) []string { return []string{"a", "b"} },
		"some in one pool only":       func(i int) []string { return [][]string{{"a", "b"}, {"a"}, {"b"}}[i%3] },
		"nodes in pools of their own": func(i int) []string { return []string{"a", "b", fmt.Sprint("own-", i)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			shares := map[string]map[string]int{"a": {}, "b": {}}
			for i := range 90 {
				n := spec(fmt.Sprint("n", i), slots(1+i%2*100), can(capabilities(i)...))
				register(t, s, n)
				for _, pool := range n.Capabilities {
					if shares[pool] != nil {
						shares[pool][n.ID] = 0
					}
				}
			}
			keys := func() []string {
				found, err := server.Client().Keys(t.Context(), "{"+s.Keys().Cell+"}:*").Result()
				require.NoError(t, err)
				return found
			}
			before := keys()
			for i := range 1000 {
				pool := []string{"a", "a", "b"}[i%3]
				lease := fmt.Sprint("l", i)
				d := assign(t, s, lease, lua.Choice{PoolID: pool, Strategy: berth.StrategyRoundRobin})
				require.Equal(t, lua.AssignOK, d.Code)
				shares[pool][d.NodeID]++
				counts := slices.Collect(maps.Values(shares[pool]))
				require.LessOrEqual(t, slices.Max(counts)-slices.Min(counts), 1, "pool %s after %d selections", pool, i+1)
				_, err := s.ReleaseNodeSlot(t.Context(), d.NodeID, lease)
				require.NoError(t, err)
			}
			require.ElementsMatch(t, append(before, s.Keys().PoolRotation("a"), s.Keys().PoolRotation("b")), keys())
		})
	}
}

// P19, first half: 92 joins in 31 s onto fresh units whose reports do not change are spread over all units.
func TestStrategies_JoinStormOnFreshUnits_SpreadsLoad(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	const units, joins, reportEvery = 8, 92, 10 // seconds
	for _, strategy := range []berth.Strategy{berth.StrategyLoadBalanced, berth.StrategyPowerOfTwo, berth.StrategyRoundRobin} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(1, 1)) // always the same: one of a thousand random sequences loads a unit 1.31 times the mean
			s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			stale, generations := map[string]berth.NodeLoad{}, map[string]int64{}
			for i := range units {
				id := fmt.Sprintf("unit%d", i)
				generations[id] = register(t, s, spec(id, slots(100))).Generation
				stale[id] = berth.NodeLoad{CPUUsage: 2 * rnd.Float64(), MemoryUsage: 20 + rnd.Float64()}
			}
			got, herd, reports := map[string]int{}, map[string]int{}, 0
			least := slices.MinFunc(slices.Sorted(maps.Keys(stale)), func(a, b string) int {
				return cmp.Compare(stale[a].CPUUsage+stale[a].MemoryUsage/2, stale[b].CPUUsage+stale[b].MemoryUsage/2)
			})
			for i := range joins {
				for ; reports*reportEvery*joins <= i*31; reports++ {
					for _, id := range slices.Sorted(maps.Keys(generations)) {
						require.Equal(t, lua.NodeOK, beat(t, s, id, generations[id], stale[id]))
					}
				}
				d := assign(t, s, fmt.Sprintf("c%d", i), lua.Choice{Strategy: strategy, Hold: time.Hour, Random: rnd.Int64N(1<<52-1) + 1})
				require.Equal(t, lua.AssignOK, d.Code)
				got[d.NodeID]++
				herd[least]++ // a choice by the reports alone
			}
			busiest, mean := slices.Max(slices.Collect(maps.Values(got))), float64(joins)/units
			t.Logf("busiest %d, mean %.1f, %d reports each; a choice by the reports alone: %d", busiest, mean, reports, herd[least])
			require.LessOrEqual(t, float64(busiest), 1.3*mean)
			require.Greater(t, float64(herd[least]), 1.3*mean)
		})
	}
}

// S2, FA12: a strategy that compares loads prefers the node whose GPU is idle where GPU usage has a weight. A usage that is not known
// is not treated as idle, and without a weight the usage has no effect.
func TestStrategies_GPUWeighted_IdleGPUPreferred(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		leases := 0
		for name, c := range map[string]struct {
			better, worse *float64
			cpu           float64 // of the better node; the other one's is 25
			weight        float64
		}{
			"idle and busy":    {new(2.0), new(95.0), 40, 1},
			"idle and unknown": {new(0.0), nil, 40, 1},
			"half and unknown": {new(50.0), nil, 40, 1},
			"a small weight":   {new(2.0), new(95.0), 40, 0.5},
			"no weight":        {new(95.0), new(2.0), 10, 0}, // the CPU decides
		} {
			pool := strings.ReplaceAll(name, " ", "-")
			better, worse := "better-"+pool, "worse-"+pool
			g1 := register(t, s, spec(better, slots(1000), at("z", "h"), can(pool))).Generation
			g2 := register(t, s, spec(worse, slots(1000), at("z", "h"), can(pool))).Generation
			for i, strategy := range []berth.Strategy{
				"", berth.StrategyLoadBalanced, berth.StrategyPowerOfTwo, berth.StrategyCapability, berth.StrategyAffinity, berth.StrategyLocality,
			} {
				for id, l := range map[string]struct {
					generation int64
					load       berth.NodeLoad
				}{better: {g1, berth.NodeLoad{CPUUsage: c.cpu, GPUUsage: c.better}}, worse: {g2, berth.NodeLoad{CPUUsage: 25, GPUUsage: c.worse}}} {
					r, err := s.HeartbeatNode(t.Context(), id, l.generation, l.load, lua.Weights{Memory: 0.5, GPU: c.weight})
					require.NoError(t, err)
					require.Equal(t, lua.NodeOK, r.Code)
				}
				for range 5 {
					leases++
					d := assign(t, s, fmt.Sprint(leases), lua.Choice{PoolID: pool, Strategy: strategy, OwnZone: "z", OwnHost: "h"})
					require.Equal(t, better, d.NodeID, "%s: %s (%d)", name, strategy, i)
					_, err := s.ReleaseNodeSlot(t.Context(), d.NodeID, fmt.Sprint(leases))
					require.NoError(t, err)
				}
			}
			all, err := s.SampleNodes(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.worse, all[worse].Load.GPUUsage)
			require.Equal(t, c.worse, node(t, s, worse).Load.GPUUsage)
		}
		register(t, s, spec("new"))
		require.Nil(t, node(t, s, "new").Load.GPUUsage, "before its first report")
	})
}
