package lua_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// Each case is one decision over a fleet of the nodes a (busy), b (idle) and c (full).
func TestAssign_FleetState_ChoosesNode(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	type reasons = map[berth.ExcludeReason]int
	hold := func(id string, h lua.Cordon) func(t *testing.T, s *lua.Scripts) {
		return func(t *testing.T, s *lua.Scripts) {
			err := s.CordonNode(t.Context(), id, h)
			require.NoError(t, err)
		}
	}
	both := func(f ...func(t *testing.T, s *lua.Scripts)) func(t *testing.T, s *lua.Scripts) {
		return func(t *testing.T, s *lua.Scripts) {
			for _, g := range f {
				g(t, s)
			}
		}
	}
	unavailable := func(id string) func(t *testing.T, s *lua.Scripts) {
		return func(t *testing.T, s *lua.Scripts) {
			code, err := s.MarkUnavailable(t.Context(), id, "tts", time.Hour)
			require.NoError(t, err)
			require.Equal(t, lua.NodeOK, code)
		}
	}
	cases := map[string]struct {
		before  func(t *testing.T, s *lua.Scripts)
		choice  lua.Choice
		code    string
		node    string
		reasons reasons
		missing []string
		stats   map[berth.ExcludeReason]int64
	}{
		"load-balanced chooses the idle node":        {choice: lua.Choice{Strategy: berth.StrategyLoadBalanced}, code: lua.AssignOK, node: "b"},
		"default in a small pool compares all nodes": {code: lua.AssignOK, node: "b"},
		"capability is load-balanced":                {choice: lua.Choice{Strategy: berth.StrategyCapability}, code: lua.AssignOK, node: "b"},
		"power-of-two chooses the less loaded of two": {
			choice: lua.Choice{Strategy: berth.StrategyPowerOfTwo, Random: 1}, code: lua.AssignOK, node: "b",
		},
		"round-robin starts with the first node": {choice: lua.Choice{Strategy: berth.StrategyRoundRobin}, code: lua.AssignOK, node: "a"},
		"affinity chooses the caller's own node": {choice: lua.Choice{Strategy: berth.StrategyAffinity, Own: "a"}, code: lua.AssignOK, node: "a"},
		"affinity to a full node": {
			choice: lua.Choice{Strategy: berth.StrategyAffinity, Own: "c"}, code: lua.AssignOK, node: "b",
			stats: map[berth.ExcludeReason]int64{berth.ExcludeFull: 1},
		},
		"affinity to an unknown node": {
			choice: lua.Choice{Strategy: berth.StrategyAffinity, Own: "x"}, code: lua.AssignOK, node: "b",
			stats: map[berth.ExcludeReason]int64{berth.ExcludeOffline: 1},
		},
		"affinity to a node of another pool": {
			choice: lua.Choice{Strategy: berth.StrategyAffinity, Own: "other"}, code: lua.AssignOK, node: "b",
			stats: map[berth.ExcludeReason]int64{berth.ExcludeNotInPool: 1},
		},
		"locality: the caller's own node":       {choice: lua.Choice{Strategy: berth.StrategyLocality, Own: "a", OwnZone: "z2", OwnHost: "hb"}, code: lua.AssignOK, node: "a"},
		"locality: a node on the caller's host": {choice: lua.Choice{Strategy: berth.StrategyLocality, OwnZone: "z1", OwnHost: "ha"}, code: lua.AssignOK, node: "a"},
		"locality: a node in the caller's zone": {choice: lua.Choice{Strategy: berth.StrategyLocality, OwnZone: "z2", OwnHost: "nowhere"}, code: lua.AssignOK, node: "b"},
		"locality: a node on the caller's host in another zone": {
			choice: lua.Choice{Strategy: berth.StrategyLocality, OwnZone: "z2", OwnHost: "ha", HostZones: []string{"z0", "z1"}}, code: lua.AssignOK, node: "a",
		},
		"locality: no node nearby": {choice: lua.Choice{Strategy: berth.StrategyLocality, OwnZone: "z9", OwnHost: "nowhere"}, code: lua.AssignOK, node: "b"},
		"node excluded by the caller": {
			choice: lua.Choice{Excluded: []string{"b"}}, code: lua.AssignOK, node: "a",
			stats: map[berth.ExcludeReason]int64{berth.ExcludeByCaller: 1},
		},
		"service unavailable on the node": {
			before: unavailable("b"), choice: lua.Choice{Services: []string{"asr", "tts"}}, code: lua.AssignOK, node: "a",
			stats: map[berth.ExcludeReason]int64{berth.ExcludeServiceUnavailable: 1},
		},
		"another service of the node": {before: unavailable("b"), choice: lua.Choice{Services: []string{"asr"}}, code: lua.AssignOK, node: "b"},
		"cordoned node":               {before: hold("b", lua.Cordon{Cordoned: true}), code: lua.AssignOK, node: "a"},
		"draining node":               {before: hold("b", lua.Cordon{Drain: time.Hour}), code: lua.AssignOK, node: "a"},
		"no free node": {
			before: both(hold("a", lua.Cordon{Cordoned: true}), hold("b", lua.Cordon{Drain: time.Hour})), code: lua.AssignFull,
			reasons: reasons{berth.ExcludeFull: 1, berth.ExcludeCordoned: 1, berth.ExcludeDraining: 1},
			stats:   map[berth.ExcludeReason]int64{berth.ExcludeFull: 1, berth.ExcludeCordoned: 1, berth.ExcludeDraining: 1},
		},
		"no suitable node: missing capabilities are returned": {
			choice: lua.Choice{PoolID: "gpu+" + pair, Required: []string{pair, "gpu"}}, code: lua.AssignNone,
			reasons: reasons{berth.ExcludeCapabilityMissing: 1}, missing: []string{"gpu"},
		},
		"no node has all capabilities": {
			choice: lua.Choice{PoolID: "else+" + pair, Required: []string{pair, "else"}}, code: lua.AssignNone, reasons: reasons{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				a := register(t, s, spec("a", at("z1", "ha"))).Generation
				register(t, s, spec("b", at("z2", "hb")))
				register(t, s, spec("c", slots(1), at("z1", "ha")))
				register(t, s, spec("other", can("else")))
				require.Equal(t, "c", assign(t, s, "x", lua.Choice{Strategy: berth.StrategyAffinity, Own: "c"}).NodeID)
				require.Equal(t, lua.NodeOK, beat(t, s, "a", a, berth.NodeLoad{CPUUsage: 80}))
				if c.before != nil {
					c.before(t, s)
				}
				before := node(t, s, c.node).Leases
				d := assign(t, s, "l", c.choice)
				require.Equal(t, c.code, d.Code)
				require.Equal(t, c.node, d.NodeID)
				require.Equal(t, c.reasons, d.Reasons)
				require.ElementsMatch(t, c.missing, d.Missing)
				stats, err := s.ExcludeStats(t.Context())
				require.NoError(t, err)
				if c.stats != nil {
					require.Equal(t, c.stats, stats[pair])
				}
				found, ok, err := s.FindLease(t.Context(), "l")
				require.NoError(t, err)
				require.Equal(t, c.code == lua.AssignOK, ok)
				if !ok {
					return
				}
				require.Equal(t, d.Assignment, found)
				require.Equal(t, node(t, s, c.node).Generation, d.Generation)
				require.Equal(t, before+1, node(t, s, c.node).Leases)

				twice := assign(t, s, "l", c.choice)
				require.Equal(t, lua.AssignExists, twice.Code)
				found.Existed = true
				require.Equal(t, found, twice.Assignment)
				require.Equal(t, before+1, node(t, s, c.node).Leases, "the same lease takes no second slot")
				require.True(t, release(t, s, d.Assignment))
				require.False(t, release(t, s, d.Assignment), "idempotent")
				require.Equal(t, before, node(t, s, c.node).Leases)
			})
		})
	}
}

// L10: with hundreds of the idlest nodes unsuitable, for any reason, every strategy still finds the others, and an increase of
// their number does not increase the commands of a decision.
func TestAssign_HundredsOfIdlestNodesUnsuitable_FindsOthers(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	const idle = 300
	for name, c := range map[string]struct {
		capabilities func(i int) []string
		unsuitable   func(t *testing.T, s *lua.Scripts, id string)
		services     []string
	}{
		"service unavailable": {
			capabilities: func(int) []string { return []string{pair} },
			unsuitable: func(t *testing.T, s *lua.Scripts, id string) {
				code, err := s.MarkUnavailable(t.Context(), id, "tts", time.Hour)
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, code)
			},
			services: []string{pair, "tts"},
		},
		"service unavailable, all nodes different": {
			capabilities: func(i int) []string { return []string{pair, fmt.Sprint("only-", i)} },
			unsuitable: func(t *testing.T, s *lua.Scripts, id string) {
				for _, service := range []string{"tts", "other-" + id} {
					code, err := s.MarkUnavailable(t.Context(), id, service, time.Hour)
					require.NoError(t, err)
					require.Equal(t, lua.NodeOK, code)
				}
			},
			services: []string{"tts"},
		},
		"excluded by the request": {capabilities: func(int) []string { return []string{pair} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			choice := lua.Choice{Services: c.services, OwnZone: "z1", OwnHost: "h"}
			for i := range idle + 3 {
				id := fmt.Sprintf("n%03d", i)
				g := register(t, s, spec(id, slots(100), can(c.capabilities(i)...), at("z1", "h"))).Generation
				if i >= idle {
					require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{CPUUsage: 90}))
					continue
				}
				require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{}))
				if c.unsuitable != nil {
					c.unsuitable(t, s, id)
				} else {
					choice.Excluded = append(choice.Excluded, id)
				}
			}
			for _, strategy := range append(berth.Strategies(), "") {
				choice.Strategy = strategy
				for i := range 20 {
					d := assign(t, s, fmt.Sprint(strategy, i), choice)
					require.Equal(t, lua.AssignOK, d.Code, strategy)
					require.GreaterOrEqual(t, d.NodeID, fmt.Sprintf("n%03d", idle), strategy)
				}
			}
			if c.unsuitable == nil {
				return
			}
			for i := range 3 {
				c.unsuitable(t, s, fmt.Sprintf("n%03d", idle+i))
			}
			d := assign(t, s, "none", choice)
			require.Equal(t, lua.AssignNone, d.Code)
			require.Equal(t, berth.ExcludeServiceUnavailable, slices.Collect(maps.Keys(d.Reasons))[0])
			require.Len(t, d.Reasons, 1)
		})
	}
}

// L10: the work of a decision does not grow with the nodes whose service is unavailable.
func TestAssign_MoreNodesUnsuitable_CommandsStayTheSame(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	add := func(from, to int) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("n%04d", i)
			register(t, s, spec(id, slots(1000)))
			if i > 0 {
				_, err := s.MarkUnavailable(t.Context(), id, "tts", time.Hour)
				require.NoError(t, err)
			}
		}
	}
	commands := func(what string) map[berth.Strategy]int64 {
		out := map[berth.Strategy]int64{}
		for _, strategy := range berth.Strategies() {
			before := total(t, server)
			d := assign(t, s, what+string(strategy), lua.Choice{Strategy: strategy, Services: []string{"tts"}, OwnZone: "z1", OwnHost: "h"})
			require.Equal(t, "n0000", d.NodeID)
			out[strategy] = total(t, server) - before
		}
		return out
	}
	add(0, 10)
	commands("first") // adds a row to the statistics
	few := commands("few")
	add(10, 1500)
	require.Equal(t, few, commands("many"))
}

// L10: a mark that has expired keeps the node from no work, for work that names the node and for other work.
func TestAssign_MarkExpires_NodeChosenAgain(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1", slots(100)))
		mark := func() {
			for service, ttl := range map[string]time.Duration{"asr": time.Hour, "tts": time.Minute} {
				code, err := s.MarkUnavailable(t.Context(), "n1", service, ttl)
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, code)
			}
		}
		passes := func() { // the minute has passed
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().NodeUnavailable("n1"), "tts", 1).Err())
			require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().NodeMarks(), redis.Z{Score: 1, Member: "n1"}).Err())
		}
		for lease, c := range map[string]lua.Choice{
			"by its load": {Services: []string{"tts"}},
			"by its id":   {Services: []string{"tts"}, Strategy: berth.StrategyAffinity, Own: "n1"},
		} {
			mark()
			require.Equal(t, lua.AssignNone, assign(t, s, lease, c).Code)
			passes()
			require.Equal(t, lua.AssignOK, assign(t, s, lease, c).Code)
		}
		mark()
		free := s.Redis().Subscribe(t.Context(), s.Keys().NodeFree())
		t.Cleanup(func() { _ = free.Close() })
		_, err := free.Receive(t.Context())
		require.NoError(t, err)
		passes()
		sweep(t, s, berth.NodeTimes{Suspect: time.Hour, Death: time.Hour}, false)
		require.NotContains(t, s.Redis().HGet(t.Context(), s.Keys().NodeBriefs(), "n1").Val(), "tts")
		m, err := free.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "n1", m.Payload, "work that waits for the service is notified")
	})
}

// L10: the marks of a node outlast its registrations.
func TestRegisterNode_ServiceMarked_StaysMarked(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1", slots(100)))
		code, err := s.MarkUnavailable(t.Context(), "n1", "tts", time.Hour)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
		for _, n := range []berth.NodeSpec{spec("n1", slots(100)), spec("n1", slots(100), again(2, started+1)), spec("n1", slots(100), again(2, started+1), can(pair, "gpu"))} {
			register(t, s, n)
			require.Contains(t, node(t, s, "n1").Unavailable, "tts")
			require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceUnavailable: 1}, assign(t, s, "l", lua.Choice{Services: []string{"tts"}}).Reasons)
		}
		require.Equal(t, lua.AssignOK, assign(t, s, "l", lua.Choice{Services: []string{"asr"}}).Code)
	})
}

// L9: requests cannot add rows to the statistics: pools without nodes are counted together.
func TestExcludeStats_PoolsWithoutNodes_CountedTogether(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		_, err := s.DefinePool(t.Context(), berth.Pool{ID: "empty", Capabilities: []string{"none"}}, false)
		require.NoError(t, err)
		for i := range 20 {
			pool := fmt.Sprint("invented-", i)
			require.Equal(t, lua.AssignNone, assign(t, s, pool, lua.Choice{PoolID: pool, Required: []string{pool}}).Code)
		}
		require.Equal(t, lua.AssignNone, assign(t, s, "l", lua.Choice{PoolID: "empty", Required: []string{"none"}}).Code)
		stats, err := s.ExcludeStats(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]map[berth.ExcludeReason]int64{
			"*": {berth.ExcludeCapabilityMissing: 20}, "empty": {berth.ExcludeCapabilityMissing: 1},
		}, stats)

		// Names of capabilities that nodes no longer have stay; their number is limited, too.
		rows := map[string]any{}
		for i := range 10_000 {
			rows[fmt.Sprintf("p%d|full", i)] = 1
		}
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().ExcludeStats(), rows).Err())
		register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, assign(t, s, "a", lua.Choice{}).Code)
		require.Equal(t, lua.AssignFull, assign(t, s, "b", lua.Choice{}).Code)
		stats, err = s.ExcludeStats(t.Context())
		require.NoError(t, err)
		require.NotContains(t, stats, pair)
		require.Equal(t, int64(1), stats["*"][berth.ExcludeFull])
	})
}

// The row of an expired lease is deleted also when the call that finds it is refused.
func TestAssign_LeaseExpiredThenRefused_RowDeleted(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1", slots(1)))
		require.Equal(t, lua.AssignOK, assign(t, s, "a", lua.Choice{}).Code)
		require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().NodeSlots("n1"), redis.Z{Score: 1, Member: "a"}).Err())
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true}))
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().NodeLeases(), "a", pair+"\nn1\n1\n").Err(), "as if the purge had missed it")
		require.Equal(t, lua.AssignNone, assign(t, s, "a", lua.Choice{}).Code)
		_, found, err := s.FindLease(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, found)
	})
}

// endLease lets the time of a slot pass.
func endLease(t *testing.T, s *lua.Scripts, a berth.Assignment) {
	t.Helper()
	past := float64(redisMs(t, s) - 1)
	for key, member := range map[string]string{s.Keys().NodeSlots(a.NodeID): a.LeaseID, strings.TrimSuffix(s.Keys().NodesDead(), "dead") + "due": a.NodeID} {
		changed, err := s.Redis().ZAddArgs(t.Context(), key, redis.ZAddArgs{XX: true, Ch: true, Members: []redis.Z{{Score: past, Member: member}}}).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, changed, key)
	}
}

// L7: slots are leases. A full node has a free slot again when a lease is released or expires.
func TestNodeSlots_LeaseEnds_SlotIsFree(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		g := register(t, s, spec("n1")).Generation
		one := assign(t, s, "one", lua.Choice{Hold: time.Hour})
		two := assign(t, s, "two", lua.Choice{Hold: time.Hour})
		require.Equal(t, lua.AssignFull, assign(t, s, "three", lua.Choice{}).Code)
		confirm := func(a berth.Assignment, ttl time.Duration) string {
			code, _, err := s.ConfirmNodeSlot(t.Context(), a, ttl)
			require.NoError(t, err)
			return code
		}
		require.Equal(t, lua.NodeSlotHeld, confirm(one.Assignment, time.Hour))
		endLease(t, s, two.Assignment)
		require.Equal(t, lua.AssignOK, assign(t, s, "three", lua.Choice{}).Code)
		require.Equal(t, lua.NodeSlotLost, confirm(two.Assignment, time.Hour), "an expired lease cannot be renewed")
		require.Equal(t, 2, node(t, s, "n1").Leases)
		require.False(t, release(t, s, two.Assignment))
		require.True(t, release(t, s, one.Assignment))
		require.Equal(t, lua.AssignOK, assign(t, s, "four", lua.Choice{}).Code)
		require.Equal(t, lua.NodeSlotLost, confirm(one.Assignment, time.Hour))

		other := one.Assignment
		other.Generation = g - 1
		require.Equal(t, lua.NodeGone, confirm(other, time.Hour))
		_, err := s.WithdrawNode(t.Context(), "n1", g, berth.DepartureWithdrawn)
		require.NoError(t, err)
		require.Equal(t, lua.NodeGone, confirm(one.Assignment, time.Hour))
		require.False(t, release(t, s, one.Assignment))
		register(t, s, spec("n1"))
		require.Zero(t, node(t, s, "n1").Leases)
	})
}

// jobCall has the arguments of DispatchJob.
type jobCall struct {
	berth.JobRequest
	lua.Choice
}

func job(turn string, n int, set ...func(*jobCall)) jobCall {
	j := jobCall{
		JobRequest: berth.JobRequest{
			Job:    berth.Job{SessionID: "s1", TurnID: turn, JobID: fmt.Sprintf("%s-j%d", turn, n), Dispatch: 1},
			UserID: "alice", RequestID: fmt.Sprintf("%s-r%d", turn, n), PoolID: pair,
		},
		Choice: lua.Choice{PoolID: pair, Strategy: berth.StrategyRoundRobin, Hold: time.Minute},
	}
	for _, f := range set {
		f(&j)
	}
	return j
}

func dispatch(t *testing.T, s *lua.Scripts, j jobCall) lua.Decision {
	t.Helper()
	d, err := s.DispatchJob(t.Context(), j.JobRequest, j.Choice)
	require.NoError(t, err)
	return d
}

// A5, L7: a turn's node whose leases have all expired is not full.
func TestDispatchJob_AffinityNodeLeasesExpired_IsHit(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("a", slots(1)))
		register(t, s, spec("b"))
		first := dispatch(t, s, job("t1", 1))
		require.Equal(t, "a", first.NodeID)
		require.Equal(t, berth.ExcludeFull, node(t, s, "a").Excluded)
		endLease(t, s, first.Assignment)
		require.Equal(t, berth.AffinityHit, dispatch(t, s, job("t1", 2)).Affinity)
	})
}

func ending(j *jobCall) { j.EndsTurn = true }

func affinityOf(t *testing.T, s *lua.Scripts, turn string) map[string]string {
	t.Helper()
	f, err := s.Redis().HGetAll(t.Context(), s.Keys().Turn(turn)).Result()
	require.NoError(t, err)
	return f
}

// A1-A8: the fields that a turn writes, reads and deletes. Without affinity, round-robin would choose another node for each
// job.
func TestDispatchJob_TurnAffinity_FollowsFirstNode(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		for _, id := range []string{"a", "b", "c"} {
			register(t, s, spec(id, slots(4)))
		}
		first := dispatch(t, s, job("t1", 1))
		require.Equal(t, lua.AssignOK, first.Code)
		require.Equal(t, berth.AffinityFirst, first.Affinity)
		require.Equal(t, map[string]string{"affinity_node_id": first.NodeID}, affinityOf(t, s, "t1"), "A2, A3: written with the first job")
		ttl, err := s.Redis().TTL(t.Context(), s.Keys().Turn("t1")).Result()
		require.NoError(t, err)
		require.Equal(t, time.Duration(-1), ttl, "A1: no expiry")
		current, err := s.Redis().HGet(t.Context(), s.Keys().Session("alice", "s1"), "current_turn_id").Result()
		require.NoError(t, err)
		require.Equal(t, "t1", current)

		// A8: another speaker in the same session is another turn.
		other := dispatch(t, s, job("t2", 1))
		require.Equal(t, berth.AffinityFirst, other.Affinity)
		require.NotEqual(t, first.NodeID, other.NodeID)

		second := dispatch(t, s, job("t1", 2))
		require.Equal(t, berth.AffinityHit, second.Affinity, "A7")
		require.Equal(t, first.NodeID, second.NodeID)
		require.Empty(t, second.Strategy)

		// A5: a node that cannot take it is a miss, with no write-back.
		err = s.CordonNode(t.Context(), first.NodeID, lua.Cordon{Cordoned: true})
		require.NoError(t, err)
		missed := dispatch(t, s, job("t1", 3))
		require.Equal(t, berth.AffinityMiss, missed.Affinity)
		require.Equal(t, berth.ExcludeCordoned, missed.Missed)
		require.NotEqual(t, first.NodeID, missed.NodeID)
		require.Equal(t, map[string]string{"affinity_node_id": first.NodeID}, affinityOf(t, s, "t1"), "A4: written once")
		err = s.CordonNode(t.Context(), first.NodeID, lua.Cordon{})
		require.NoError(t, err)

		// A7: the segment that ends the turn uses its node. A6: the affinity is deleted afterwards.
		last := dispatch(t, s, job("t1", 4, ending))
		require.Equal(t, berth.AffinityHit, last.Affinity)
		code, bound, err := s.FinalizeTurn(t.Context(), "alice", "s1", "t1")
		require.NoError(t, err)
		require.Equal(t, lua.TurnFinalized, code)
		require.Equal(t, first.NodeID, bound)
		require.Empty(t, affinityOf(t, s, "t1"))
		code, _, err = s.FinalizeTurn(t.Context(), "alice", "s1", "t1")
		require.NoError(t, err)
		require.Equal(t, lua.TurnEnded, code, "finalized twice")
		require.Equal(t, lua.JobTurnEnded, dispatch(t, s, job("t1", 5)).Code, "a job for a finished turn")
		require.Empty(t, affinityOf(t, s, "t1"), "the rejected job stores nothing")
		require.Equal(t, berth.AffinityHit, dispatch(t, s, job("t2", 2)).Affinity, "the other turn keeps its node")

		// A3: a turn with a single job stores no affinity.
		require.Equal(t, lua.AssignOK, dispatch(t, s, job("t3", 1, ending)).Code)
		require.Empty(t, affinityOf(t, s, "t3"))
	})
}

// A5: each state of the turn's node that leads to a miss, with its reason.
func TestDispatchJob_AffinityNodeUnusable_IsMiss(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	hold := func(h lua.Cordon) func(t *testing.T, s *lua.Scripts, n berth.Node) {
		return func(t *testing.T, s *lua.Scripts, n berth.Node) {
			err := s.CordonNode(t.Context(), n.ID, h)
			require.NoError(t, err)
		}
	}
	cases := map[berth.ExcludeReason]func(t *testing.T, s *lua.Scripts, n berth.Node){
		berth.ExcludeCordoned: hold(lua.Cordon{Cordoned: true}),
		berth.ExcludeDraining: hold(lua.Cordon{Drain: time.Hour}),
		berth.ExcludeFull: func(t *testing.T, s *lua.Scripts, n berth.Node) {
			assign(t, s, "filler", lua.Choice{Strategy: berth.StrategyAffinity, Own: n.ID})
		},
		berth.ExcludeOffline: func(t *testing.T, s *lua.Scripts, n berth.Node) {
			_, err := s.WithdrawNode(t.Context(), n.ID, n.Generation, berth.DepartureWithdrawn)
			require.NoError(t, err)
		},
		berth.ExcludeSuspect: func(t *testing.T, s *lua.Scripts, n berth.Node) {
			sweep(t, s, berth.NodeTimes{Suspect: time.Minute, Death: time.Hour}, false)
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", redisMs(t, s)-600_000).Err())
			age(t, s, n.ID, 2*time.Minute)
			require.Equal(t, []string{n.ID}, sweep(t, s, berth.NodeTimes{Suspect: time.Minute, Death: time.Hour}, false).Suspects)
		},
		berth.ExcludeNotInPool: func(t *testing.T, s *lua.Scripts, n berth.Node) {
			n.Capabilities = []string{"translate:en-fr"}
			register(t, s, n.NodeSpec)
		},
		berth.ExcludeServiceUnavailable: func(t *testing.T, s *lua.Scripts, n berth.Node) {
			_, err := s.MarkUnavailable(t.Context(), n.ID, "tts", time.Hour)
			require.NoError(t, err)
		},
	}
	for reason, makeUnusable := range cases {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				register(t, s, spec("a"))
				register(t, s, spec("b"))
				first := dispatch(t, s, job("t1", 1))
				makeUnusable(t, s, node(t, s, first.NodeID))
				d := dispatch(t, s, job("t1", 2, func(j *jobCall) { j.Services = []string{"tts"} }))
				require.Equal(t, lua.AssignOK, d.Code)
				require.Equal(t, berth.AffinityMiss, d.Affinity)
				require.Equal(t, reason, d.Missed)
				require.NotEqual(t, first.NodeID, d.NodeID)
				require.Equal(t, first.NodeID, affinityOf(t, s, "t1")["affinity_node_id"])
				stats, err := s.ExcludeStats(t.Context())
				require.NoError(t, err)
				require.Equal(t, int64(1), stats[pair][reason])
			})
		})
	}
}

// L6: the same request and dispatch number is the same job on the same node; the next number is a new dispatch.
func TestDispatchJob_SameRequest_ReturnsSameAssignment(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("a"))
		register(t, s, spec("b"))
		created := s.Redis().Subscribe(t.Context(), s.Keys().JobCreated())
		t.Cleanup(func() { _ = created.Close() })
		_, err := created.Receive(t.Context())
		require.NoError(t, err)
		first := dispatch(t, s, job("t1", 1))
		m, err := created.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, first.JobID, m.Payload)

		again := dispatch(t, s, job("t1", 1))
		require.Equal(t, lua.AssignExists, again.Code)
		want := first.Assignment
		want.Existed = true
		require.Equal(t, want, again.Assignment)
		require.Equal(t, 1, node(t, s, first.NodeID).Leases)
		kept, err := s.Redis().PTTL(t.Context(), s.Keys().Request("alice", "s1", "t1-r1", 1)).Result()
		require.NoError(t, err)
		require.InDelta(t, 30, kept.Seconds(), 2)

		_, err = s.WithdrawNode(t.Context(), first.NodeID, first.Generation, berth.DepartureWithdrawn)
		require.NoError(t, err)
		require.Equal(t, lua.AssignExists, dispatch(t, s, job("t1", 1)).Code)
		second := job("t1", 1, func(j *jobCall) { j.Dispatch = 2 })
		redone := dispatch(t, s, second)
		require.Equal(t, lua.AssignOK, redone.Code)
		require.NotEqual(t, first.NodeID, redone.NodeID, "the dead node is not chosen again")
		require.NotEqual(t, first.LeaseID, redone.LeaseID)
		state, ok, err := s.FindJob(t.Context(), first.JobID)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, second.JobRequest, state.JobRequest)
		require.Equal(t, redone.Assignment, state.Assignment)
		ttl, err := s.Redis().TTL(t.Context(), s.Keys().Job(first.JobID)).Result()
		require.NoError(t, err)
		require.InDelta(t, 3600, ttl.Seconds(), 2)

		for i := range 3 {
			d := dispatch(t, s, job("t9", i))
			if i == 1 {
				require.Equal(t, lua.AssignFull, d.Code)
				require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1, berth.ExcludeOffline: 1}, d.Reasons)
				_, ok, err := s.FindJob(t.Context(), job("t9", i).JobID)
				require.NoError(t, err)
				require.False(t, ok, "a refused job is not stored")
			}
		}
	})
}

// L12: slots that Redis lost are not granted again until their holders have had time to restore them.
func TestNodeGrace_RedisLostLeases_DelaysAssignments(t *testing.T) {
	t.Parallel()
	lost := map[string]func(t *testing.T, r *testredis.Server, s *lua.Scripts){
		"flushed": func(t *testing.T, _ *testredis.Server, s *lua.Scripts) {
			require.NoError(t, s.Redis().FlushAll(t.Context()).Err())
		},
		"restarted": func(_ *testing.T, r *testredis.Server, _ *lua.Scripts) { r.Restart() },
		"restarted with older data": func(t *testing.T, r *testredis.Server, s *lua.Scripts) {
			rows, err := s.Redis().HGetAll(t.Context(), s.Keys().Guard()).Result()
			require.NoError(t, err)
			r.Restart()
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Guard(), rows).Err())
		},
	}
	for name, lose := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			n := spec("n1", slots(1))
			old := register(t, s, n)
			held := assign(t, s, "one", lua.Choice{})
			require.Equal(t, lua.AssignOK, held.Code)
			lose(t, server, s)

			require.Equal(t, lua.NodeReregister, beat(t, s, "n1", old.Generation, berth.NodeLoad{}))
			r, err := s.RegisterNode(t.Context(), n, lua.Registration{Previous: old.Generation})
			require.NoError(t, err)
			require.Greater(t, r.Generation, old.Generation)
			d := assign(t, s, "two", lua.Choice{})
			require.Equal(t, lua.GuardGrace, d.Code)
			require.Positive(t, d.Wait)
			require.LessOrEqual(t, d.Wait, lua.NodeGrace)
			stranger := held.Assignment
			stranger.Generation--
			code, _, err := s.ConfirmNodeSlot(t.Context(), stranger, time.Hour)
			require.NoError(t, err)
			require.Equal(t, lua.NodeGone, code)
			code, now, err := s.ConfirmNodeSlot(t.Context(), held.Assignment, time.Hour)
			require.NoError(t, err)
			require.Equal(t, lua.NodeSlotHeld, code)
			require.Equal(t, r.Generation, now)
			require.Equal(t, 1, node(t, s, "n1").Leases, "restored on the new generation")

			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Guard(), "grace", "0").Err()) // ends the grace
			require.Equal(t, lua.AssignFull, assign(t, s, "two", lua.Choice{}).Code)
		})
	}
}

// L12: while holders are still being notified, nothing is granted on nodes and lost slots are restored, up to a bound. Model slots,
// whose leases are renewed, are granted after the unextended grace. A grace that has ended stays ended.
func TestExtendGrace_HoldersNotNotifiedYet_DelaysAssignments(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		ctx := t.Context()
		n := spec("n1", slots(1))
		register(t, s, n)
		held := assign(t, s, "one", lua.Choice{})
		require.Equal(t, lua.AssignOK, held.Code)
		require.NoError(t, s.Redis().Del(ctx, s.Keys().Guard(), s.Keys().NodeSlots("n1"), s.Keys().NodeLeases()).Err())
		g, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		extend := func(until time.Time, by time.Duration) bool {
			t.Helper()
			extended, err := s.ExtendGrace(ctx, until, by)
			require.NoError(t, err)
			return extended
		}
		require.False(t, extend(g.Until.Add(-time.Second), time.Minute), "another grace")
		require.True(t, extend(g.Until, time.Millisecond))
		same, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.LessOrEqual(t, same.Left, g.Left, "not shortened, and not longer than asked for")
		require.True(t, extend(g.Until, time.Hour))
		long, err := s.CheckGuard(ctx)
		require.NoError(t, err)
		require.Equal(t, g.Until, long.Until, "the same grace")
		require.Greater(t, long.Left, lua.MaxNodeGrace-10*time.Second)
		require.LessOrEqual(t, long.Left, lua.MaxNodeGrace)

		end := func(field string) time.Time { // as if the time had passed
			at := redisMs(t, s) - 10
			require.NoError(t, s.Redis().HSet(ctx, s.Keys().Guard(), field, at).Err())
			return time.UnixMilli(at)
		}
		until := end("grace")
		d := assign(t, s, "two", lua.Choice{})
		require.Equal(t, lua.GuardGrace, d.Code)
		require.Greater(t, d.Wait, lua.NodeGrace)
		require.Equal(t, lua.GuardGrace, dispatch(t, s, job("t1", 1)).Code)
		require.Equal(t, lua.SlotGranted, acquire(t, s, "p/a", 1, 0).Code)
		code, _, err := s.ConfirmNodeSlot(ctx, held.Assignment, time.Hour)
		require.NoError(t, err)
		require.Equal(t, lua.NodeSlotHeld, code, "restored")
		require.True(t, extend(until, time.Second))

		end("nodes")
		require.Equal(t, lua.AssignFull, assign(t, s, "two", lua.Choice{}).Code)
		require.False(t, extend(until, time.Minute))
		require.Equal(t, lua.AssignFull, assign(t, s, "two", lua.Choice{}).Code)
	})
}

// L12: a node that registers after the grace gets no new leases until there was time to restore the lost ones. The same
// applies to a node of which Redis, after a failover, knows only an older generation.
func TestRegisterNode_AfterGrace_WaitsForLostLeases(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		for _, id := range []string{"forgotten", "failed-over", "restored"} {
			n := spec(id, slots(2), can(id))
			before := redisMs(t, s) + 1000 // its generation in the lost Redis
			if id == "failed-over" {
				old := register(t, s, n)
				require.Equal(t, lua.AssignOK, assign(t, s, id, lua.Choice{PoolID: id}).Code)
				require.Less(t, old.Generation, before)
			}
			r, err := s.RegisterNode(t.Context(), n, lua.Registration{Previous: before})
			require.NoError(t, err)
			require.Equal(t, lua.NodeOK, r.Code)
			until, err := s.Redis().HGet(t.Context(), s.Keys().Node(id), "unsure_until").Int64()
			require.NoError(t, err)
			require.LessOrEqual(t, until, redisMs(t, s)+lua.NodeUnsure.Milliseconds())
			require.Equal(t, lua.NodeExists, register(t, s, n).Code, "a repeated registration changes nothing")
			require.Equal(t, lua.NodeOK, beat(t, s, id, r.Generation, berth.NodeLoad{}))
			require.Equal(t, berth.ExcludeFull, node(t, s, id).Excluded)
			require.Equal(t, lua.AssignFull, assign(t, s, "new-"+id, lua.Choice{PoolID: id}).Code)
			other := job("t-"+id, 0)
			other.AffinityNodeID, other.Choice = id, lua.Choice{PoolID: id}
			job := dispatch(t, s, other)
			require.Equal(t, lua.AssignFull, job.Code, "not even for the turn's own node")
			held := berth.Assignment{NodeRef: berth.NodeRef{NodeID: id, Generation: before}, LeaseID: "held-" + id, PoolID: id}
			stranger := held
			stranger.Generation--
			code, _, err := s.ConfirmNodeSlot(t.Context(), stranger, time.Hour)
			require.NoError(t, err)
			require.Equal(t, lua.NodeGone, code)
			want := 0
			if id == "restored" {
				code, now, err := s.ConfirmNodeSlot(t.Context(), held, time.Hour)
				require.NoError(t, err)
				require.Equal(t, lua.NodeSlotHeld, code)
				require.Equal(t, r.Generation, now)
				want = 1
			}
			require.Eventually(t, func() bool {
				return assign(t, s, "new-"+id, lua.Choice{PoolID: id}).Code == lua.AssignOK
			}, 10*time.Second, 20*time.Millisecond)
			require.Equal(t, want+1, node(t, s, id).Leases)
			if code, _, err = s.ConfirmNodeSlot(t.Context(), held, time.Hour); want == 0 {
				require.NoError(t, err)
				require.NotEqual(t, lua.NodeSlotHeld, code, "too late")
			}
		}
	})
}

// P9: leases and deaths follow Redis's clock only. The clock of a node only distinguishes its incarnations.
func TestNodeClock_Skewed_DoesNotAffectDecisions(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		sweep(t, s, fast, false)
		now := time.Now().UnixMilli()
		for i, shift := range []int64{-5 * 60_000, 0, 5 * 60_000} {
			id := "n" + strconv.Itoa(i)
			from := redisMs(t, s)
			r := register(t, s, spec(id, again(1, now+shift), can("c"+id)))
			require.GreaterOrEqual(t, r.Generation, from)
			require.LessOrEqual(t, r.Generation, redisMs(t, s))
			d := assign(t, s, id, lua.Choice{PoolID: "c" + id, Hold: time.Hour})
			until, err := s.Redis().ZScore(t.Context(), s.Keys().NodeSlots(id), d.LeaseID).Result()
			require.NoError(t, err)
			require.InDelta(t, float64(from+3_600_000), until, float64(redisMs(t, s)-from))
		}
		kill(t, s, nil, "n0", "n1", "n2")
	})
}

// L5: how the pool of a session is decided.
func TestDecideSessionPool_SessionState_DecidesPool(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	en := map[string]string{"src_lang": "en", "tgt_lang": "es", "preferred_pool": "p2", "routing_key": "k", "updated_at_ms": "1"}
	hashed := []string{"p1", "p2", "p3"}[berth.RoutingHash("k", 0)%3]
	cases := map[string]struct {
		before map[string]string
		bound  string
		lost   bool
		q      lua.SessionPoolRequest
		code   string
		pool   string
	}{
		"new session: stable hash":                        {q: lua.SessionPoolRequest{Affinity: true, Eligible: []string{"p1", "p2", "p3"}}, code: lua.SessionNew, pool: hashed},
		"new session: first eligible pool":                {q: lua.SessionPoolRequest{Eligible: []string{"p3", "p2"}}, code: lua.SessionNew, pool: "p3"},
		"new session: tenant's pool":                      {bound: "p2", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p2"},
		"tenant's pool is not eligible":                   {bound: "p9", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p1"},
		"tenant's pool was just defined":                  {bound: "new", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "new"},
		"tenant's pool was just defined for a close pair": {bound: "new", q: lua.SessionPoolRequest{SrcLang: "en-GB", Capabilities: []string{"translate:en_GB-es", "translate:en-es"}, Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "new"},
		"tenant's pool was just defined for it":           {bound: "own", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "own"},
		"tenant's pool was just given to others":          {bound: "theirs", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p1"},
		"tenant is no longer bound":                       {q: lua.SessionPoolRequest{TenantPool: "p2", Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p1"},
		"binding may be lost":                             {lost: true, q: lua.SessionPoolRequest{TenantPool: "p2", Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p2"},
		"tenant's pool serves other languages":            {bound: "fr", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionNew, pool: "p1"},
		"kept pool was just defined":                      {before: map[string]string{"src_lang": "en", "tgt_lang": "es", "preferred_pool": "new"}, bound: "new", q: lua.SessionPoolRequest{Eligible: []string{"p1"}}, code: lua.SessionExists, pool: "new"},
		"pool is kept":                                    {before: en, q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionExists, pool: "p2"},
		"kept pool takes precedence over the tenant's":    {before: en, bound: "p1", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p2"}}, code: lua.SessionExists, pool: "p2"},
		"kept pool is no longer eligible":                 {before: en, bound: "p3", q: lua.SessionPoolRequest{Eligible: []string{"p1", "p3"}}, code: lua.SessionNew, pool: "p3"},
		"another language pair":                           {before: en, q: lua.SessionPoolRequest{TgtLang: "fr", Eligible: []string{"p1", "p2"}}, code: lua.SessionReset, pool: "p1"},
		"no eligible pool":                                {before: en, q: lua.SessionPoolRequest{}, code: lua.SessionNoPool},
		"turn was stored before the session":              {before: map[string]string{"current_turn_id": "t"}, q: lua.SessionPoolRequest{Eligible: []string{"p1"}}, code: lua.SessionNew, pool: "p1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				key := s.Keys().Session("alice", "s1")
				if c.before != nil {
					require.NoError(t, s.Redis().HSet(t.Context(), key, c.before).Err())
				}
				for id, capability := range map[string]string{"new": "translate:en-es", "fr": "translate:en-fr"} {
					_, err := s.DefinePool(t.Context(), berth.Pool{ID: id, Capabilities: []string{"gpu", capability}}, false)
					require.NoError(t, err)
				}
				for id, tenants := range map[string][]string{"own": {"others", "acme"}, "theirs": {"others"}} {
					_, err := s.DefinePool(t.Context(), berth.Pool{ID: id, Capabilities: []string{"translate:en-es"}, Tenants: tenants}, false)
					require.NoError(t, err)
				}
				require.NoError(t, s.BindTenant(t.Context(), "acme", c.bound))
				require.NoError(t, s.BindTenant(t.Context(), "others", "p2"))
				if c.lost {
					require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Guard()).Err())
				}
				q := c.q
				q.SessionID, q.Key, q.SrcLang, q.RoutingKey, q.UserID, q.TenantID = "s1", "alice:s1", cmp.Or(q.SrcLang, "en"), "k", "alice", "acme"
				if q.TgtLang == "" {
					q.TgtLang = "es"
				}
				code, pool, err := s.DecideSessionPool(t.Context(), q)
				require.NoError(t, err)
				require.Equal(t, c.code, code)
				require.Equal(t, c.pool, pool)
				after, err := s.Redis().HGetAll(t.Context(), key).Result()
				require.NoError(t, err)
				if code == lua.SessionExists || code == lua.SessionNoPool {
					delete(after, "version")
					require.Equal(t, c.before, after)
					return
				}
				require.InDelta(t, float64(redisMs(t, s)), float64(mustInt(t, after["updated_at_ms"])), 5000)
				found, ok, err := s.FindSession(t.Context(), "alice", "s1")
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, berth.Session{
					ID: "s1", Key: "alice:s1", UserID: "alice", TenantID: "acme", SrcLang: q.SrcLang, TgtLang: q.TgtLang, PreferredPool: pool, RoutingKey: "k",
					CurrentTurnID: c.before["current_turn_id"], UpdatedAt: found.UpdatedAt,
				}, found)
				ttl, err := s.Redis().TTL(t.Context(), key).Result()
				require.NoError(t, err)
				require.InDelta(t, 3600, ttl.Seconds(), 2)
			})
		})
	}
}

func mustInt(t *testing.T, v string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(v, 10, 64)
	require.NoError(t, err)
	return n
}

// L5: of two changes of a session that reach Redis in the other order, the later one stays.
func TestDecideSessionPool_OlderVersionLate_IsStale(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		decide := func(version int64, target string) string {
			code, _, err := s.DecideSessionPool(t.Context(), lua.SessionPoolRequest{
				SessionID: "s1", SrcLang: "en", TgtLang: target, RoutingKey: "k", UserID: "alice", Version: version, Eligible: []string{target},
			})
			require.NoError(t, err)
			return code
		}
		require.Equal(t, lua.SessionNew, decide(1, "es"))
		require.Equal(t, lua.SessionReset, decide(3, "fr"))
		require.Equal(t, lua.SessionStale, decide(2, "de"))
		found, _, err := s.FindSession(t.Context(), "alice", "s1")
		require.NoError(t, err)
		require.Equal(t, "fr", found.TgtLang)
		require.Equal(t, lua.SessionExists, decide(3, "fr"))
		require.Equal(t, lua.SessionExists, decide(4, "fr"))
		require.Equal(t, lua.SessionStale, decide(3, "fr"), "a kept pool also has the version")
	})
}

// L4: a definition selects nodes. A changed definition immediately moves nodes from their old pools to the new ones.
func TestDefinePool_Change_MovesNodes(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		in := func(pool string) []string { return members(t, s, s.Keys().PoolMembers(pool)) }
		define := func(p berth.Pool, keep bool) string {
			require.NoError(t, p.Normalize())
			code, err := s.DefinePool(t.Context(), p, keep)
			require.NoError(t, err)
			return code
		}
		register(t, s, spec("a", can(pair, "gpu")))
		register(t, s, spec("b", can(pair), at("z2", "h")))
		register(t, s, spec("e", can("run"), func(n *berth.NodeSpec) { n.Kind = berth.NodeEngine }))
		require.ElementsMatch(t, []string{"a", "b"}, in(pair))

		both := berth.CapabilityPool("gpu", pair, "gpu")
		require.Equal(t, "gpu+"+pair, both.ID)
		require.Equal(t, lua.PoolOK, define(both, true))
		require.Equal(t, lua.PoolExists, define(both, true))
		require.Equal(t, []string{"a"}, in(both.ID))
		require.Equal(t, "a", assign(t, s, "l", lua.Choice{PoolID: both.ID}).NodeID)

		require.Equal(t, lua.PoolOK, define(berth.Pool{ID: "engines", Kind: berth.NodeEngine}, false))
		require.Equal(t, []string{"e"}, in("engines"))
		require.Equal(t, lua.PoolOK, define(berth.Pool{ID: "east", Capabilities: []string{pair}, Zone: "z2"}, false))
		require.Equal(t, []string{"b"}, in("east"))
		require.Equal(t, lua.PoolOK, define(berth.Pool{ID: "east", Capabilities: []string{pair}, Zone: "z1"}, false))
		require.Equal(t, []string{"a"}, in("east"))

		// A definition named like a capability replaces the capability's pool until the definition is deleted.
		require.Equal(t, lua.PoolOK, define(berth.Pool{ID: pair, Capabilities: []string{pair}, Zone: "z2"}, false))
		require.Equal(t, []string{"b"}, in(pair))
		register(t, s, spec("c", can(pair), at("z2", "h")))
		require.ElementsMatch(t, []string{"b", "c"}, in(pair))
		require.NoError(t, s.DeletePool(t.Context(), pair))
		require.ElementsMatch(t, []string{"a", "b", "c"}, in(pair))
		require.Equal(t, 3, counts(t, s, pair).Free)

		pools, err := s.Pools(t.Context())
		require.NoError(t, err)
		require.Len(t, pools, 3)
		require.Equal(t, both, pools[both.ID])
		require.Equal(t, []string{"east", "gpu", both.ID, pair}, node(t, s, "a").Pools)
	})
}

// S7: hysteresis, a minimum time between switches, and a record of each switch.
func TestSwitchStrategy_LoadAndLatency_SwitchesWithHysteresis(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	rule := berth.DefaultFleetConfig().Dynamic
	steps := []struct {
		load, latency float64
		want          berth.Strategy
	}{
		{0.5, 50, berth.StrategyRoundRobin},
		{0.8, 100, berth.StrategyRoundRobin}, // exactly the upper limit: no switch
		{0.81, 200, berth.StrategyLoadBalanced},
		{0.75, 50, berth.StrategyLoadBalanced}, // not below the lower limit
		{0.69, 50, berth.StrategyRoundRobin},
		{0.1, 101, berth.StrategyLocality},
		{0.1, 90, berth.StrategyLocality},
		{0.9, 90, berth.StrategyLoadBalanced},
		{0.1, 90, berth.StrategyRoundRobin},
	}
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		rule.Dwell = 0
		current, switches := berth.StrategyRoundRobin, 0
		for i, step := range steps {
			got, before, err := s.SwitchStrategy(t.Context(), "p", berth.SystemState{Load: step.load, LatencyMs: step.latency}, rule)
			require.NoError(t, err)
			require.Equal(t, current, before)
			require.Equal(t, step.want, got.Strategy, "step %d", i)
			if current != step.want {
				switches++
			}
			current = step.want
		}
		rule.Dwell = time.Hour
		got, _, err := s.SwitchStrategy(t.Context(), "p", berth.SystemState{Load: 1}, rule)
		require.NoError(t, err)
		require.Equal(t, berth.StrategyRoundRobin, got.Strategy, "no switch within the dwell time")
		stored, err := s.CurrentStrategy(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, got, stored)
		for _, key := range []string{s.Keys().PoolStrategy("p"), s.Keys().PoolSwitches("p")} {
			ttl, err := s.Redis().TTL(t.Context(), key).Result()
			require.NoError(t, err)
			require.InDelta(t, 3600, ttl.Seconds(), 5, "a pool that is no longer dynamic leaves nothing")
		}
		trace, err := s.StrategySwitches(t.Context(), "p")
		require.NoError(t, err)
		require.Len(t, trace, switches)
		require.Equal(t, berth.StrategySwitch{
			PoolID: "p", From: berth.StrategyLoadBalanced, To: berth.StrategyRoundRobin,
			By: berth.SystemState{Load: 0.1, LatencyMs: 90}, At: stored.Since,
		}, trace[0])
	})
}

func TestFleetConfig_Written_IsReadBack(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		c, err := s.FleetConfig(t.Context())
		require.NoError(t, err)
		require.Equal(t, berth.DefaultFleetConfig(), c)
		c.MaxRetries, c.AssignmentStrategy = 5, berth.StrategyLocality
		c.Times = map[berth.NodeKind]berth.NodeTimes{berth.NodeMedia: fast}
		require.NoError(t, c.Validate())
		require.NoError(t, s.PutFleetConfig(t.Context(), c))
		got, err := s.FleetConfig(t.Context())
		require.NoError(t, err)
		require.Equal(t, c, got)
		require.NoError(t, s.BindTenant(t.Context(), "t1", "p"))
		require.NoError(t, s.BindTenant(t.Context(), "t2", "q"))
		require.NoError(t, s.BindTenant(t.Context(), "t1", ""))
		tenants, err := s.Tenants(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"t2": "q"}, tenants)
		none, err := s.Services(t.Context())
		require.NoError(t, err)
		require.Nil(t, none)
		require.NoError(t, s.PutServices(t.Context(), json.RawMessage(`{"asr":["whisper"],"tts":true}`)))
		doc, err := s.Services(t.Context())
		require.NoError(t, err)
		require.Equal(t, berth.RequiredServices{"asr": {"whisper"}}, doc, "an entry of an earlier release has no effect")
	})
}
