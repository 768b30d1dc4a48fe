package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

func runs(services ...string) func(*berth.NodeSpec) {
	return func(s *berth.NodeSpec) { s.Services = services }
}

// L9, L10, FA12: work that needs a service goes only to a node that declares it, with every strategy and on every way to a node; a
// service that only the request names is not demanded of nodes that declare none.
func TestAssign_ServiceNeeded_NodesWithoutItExcluded(t *testing.T) {
	t.Parallel()
	type reasons = map[berth.ExcludeReason]int
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		near := at("z1", "h")
		register(t, s, spec("none", slots(1000), near))
		register(t, s, spec("other", slots(1000), near, runs("nmt")))
		g := register(t, s, spec("whisper", slots(1000), near, runs("whisper", "nmt"))).Generation
		require.Equal(t, lua.NodeOK, beat(t, s, "whisper", g, berth.NodeLoad{CPUUsage: 100}), "the others are idle")
		listed := []string{"none", "other", "whisper"}
		for _, strategy := range append(berth.Strategies(), "") {
			for name, c := range map[string]lua.Choice{
				"needed":                   {Needed: []string{"whisper"}},
				"needed on another node":   {Needed: []string{"whisper"}, Own: "other"},
				"needed in a list":         {Needed: []string{"whisper"}, Listed: listed},
				"needed with a mark":       {Needed: []string{"whisper"}, Services: []string{"tts"}},
				"both":                     {Needed: []string{"nmt", "whisper"}},
				"named beside one needed":  {Needed: []string{"nmt"}, Named: []string{"whisper"}},
				"named without the others": {Named: []string{"whisper"}, Excluded: []string{"none"}},
			} {
				c.Strategy, c.OwnZone, c.OwnHost = strategy, "z1", "h"
				for i := range 5 { // round-robin and random nodes
					d := assign(t, s, fmt.Sprint(strategy, name, i), c)
					require.Equal(t, lua.AssignOK, d.Code, "%s, %s: %v", strategy, name, d.Reasons)
					require.Equal(t, "whisper", d.NodeID, "%s, %s", strategy, name)
				}
			}
			nodes := map[string]bool{}
			for i := range 20 {
				nodes[assign(t, s, fmt.Sprint(strategy, "any", i), lua.Choice{Strategy: strategy, Named: []string{"whisper"}}).NodeID] = true
			}
			require.NotContains(t, nodes, "other", "it declares services, and not this one")
		}
		d := assign(t, s, "l", lua.Choice{Needed: []string{"ocr"}})
		require.Equal(t, lua.AssignNone, d.Code)
		require.Equal(t, reasons{berth.ExcludeServiceMissing: 3}, d.Reasons)
		d = assign(t, s, "l", lua.Choice{Needed: []string{"whisper"}, Excluded: []string{"whisper"}})
		require.Equal(t, reasons{berth.ExcludeServiceMissing: 2, berth.ExcludeByCaller: 1}, d.Reasons)
		stats, err := s.ExcludeStats(t.Context())
		require.NoError(t, err)
		require.Positive(t, stats[pair][berth.ExcludeServiceMissing])
	})
}

// FA12: a turn's node that does not have a service which a job needs is a miss.
func TestDispatchJob_AffinityNodeLacksService_IsMiss(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1", slots(100)))
		require.Equal(t, "n1", dispatch(t, s, job("t1", 0)).NodeID)
		register(t, s, spec("n2", slots(100), runs("whisper")))
		d := dispatch(t, s, job("t1", 1, func(j *jobCall) { j.Needed = []string{"whisper"} }))
		require.Equal(t, "n2", d.NodeID)
		require.Equal(t, []any{berth.AffinityMiss, berth.ExcludeServiceMissing}, []any{d.Affinity, d.Missed})
		d = dispatch(t, s, job("t1", 2))
		require.Equal(t, []any{"n1", berth.AffinityHit}, []any{d.NodeID, d.Affinity})
		register(t, s, spec("n1", slots(100), runs("whisper")))
		d = dispatch(t, s, job("t1", 3, func(j *jobCall) { j.Needed = []string{"whisper"} }))
		require.Equal(t, []any{"n1", berth.AffinityHit}, []any{d.NodeID, d.Affinity})
	})
}

// FA12: what a node declares follows its registrations, also beside a mark, after a death and after a loss of all keys, and leaves
// nothing behind.
func TestRegisterNode_ServicesDeclared_FollowRegistration(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		need := lua.Choice{Needed: []string{"whisper"}}
		n := 0
		code := func() (string, map[berth.ExcludeReason]int) {
			n++
			d := assign(t, s, fmt.Sprint("l", n), need)
			return d.Code, d.Reasons
		}
		refused := func(why berth.ExcludeReason, step string) {
			t.Helper()
			code, reasons := code()
			require.Equal(t, lua.AssignNone, code, step)
			require.Equal(t, map[berth.ExcludeReason]int{why: 1}, reasons, step)
		}
		taken := func(step string) {
			t.Helper()
			code, reasons := code()
			require.Equal(t, lua.AssignOK, code, "%s: %v", step, reasons)
		}
		mark := func(ttl time.Duration) {
			t.Helper()
			code, err := s.MarkUnavailable(t.Context(), "n1", "whisper", ttl)
			require.NoError(t, err)
			require.Equal(t, lua.NodeOK, code)
		}
		register(t, s, spec("n1", slots(100)))
		refused(berth.ExcludeServiceMissing, "none declared")
		register(t, s, spec("n1", slots(100), runs("whisper", "nmt", "whisper")))
		require.Equal(t, []string{"nmt", "whisper"}, node(t, s, "n1").Services)
		taken("declared")
		mark(time.Hour)
		refused(berth.ExcludeServiceUnavailable, "marked")
		register(t, s, spec("n1", slots(100), runs("whisper"), again(2, started+1)))
		refused(berth.ExcludeServiceUnavailable, "marked before a restart")
		mark(0)
		taken("mark removed")
		register(t, s, spec("n1", slots(100), runs("nmt"), again(3, started+2)))
		refused(berth.ExcludeServiceMissing, "no longer declared")
		mark(time.Hour)
		mark(0)
		refused(berth.ExcludeServiceMissing, "marked and unmarked")
		g := register(t, s, spec("n1", slots(100), runs("whisper"), again(4, started+3))).Generation
		taken("declared again")
		_, err := s.DefinePool(t.Context(), berth.Pool{ID: "own", Capabilities: []string{pair}}, false)
		require.NoError(t, err)
		taken("moved to another pool")
		code2, err := s.WithdrawNode(t.Context(), "n1", g, berth.DepartureWithdrawn)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code2)
		refused(berth.ExcludeOffline, "withdrawn")
		register(t, s, spec("n1", slots(100), runs("whisper"), again(5, started+4)))
		taken("registered after its end")

		require.NoError(t, s.DeletePool(t.Context(), "own"))
		register(t, s, spec("n1", slots(100), again(6, started+5)))
		of := s.Keys().NodeServices()
		require.Zero(t, s.Redis().Exists(t.Context(), of, strings.TrimSuffix(of, "node:services")+"class:services").Val())
	})
}

// FA12: a node that an earlier release moved to a class without its services is in the right one after its next refresh.
func TestHeartbeatNode_ClassWithoutServices_Corrected(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		g := register(t, s, spec("n1", slots(100), runs("whisper"))).Generation
		right, err := s.Redis().HGet(t.Context(), s.Keys().NodeBriefs(), "n1").Result()
		require.NoError(t, err)
		declared, err := s.Redis().HGet(t.Context(), s.Keys().NodeServices(), "n1").Result()
		require.NoError(t, err)
		require.NoError(t, s.Redis().HDel(t.Context(), s.Keys().NodeServices(), "n1").Err())
		_, err = s.MarkUnavailable(t.Context(), "n1", "x", time.Hour)
		require.NoError(t, err)
		_, err = s.MarkUnavailable(t.Context(), "n1", "x", 0)
		require.NoError(t, err)
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().NodeServices(), "n1", declared).Err())
		require.Equal(t, lua.AssignNone, assign(t, s, "l", lua.Choice{Needed: []string{"whisper"}}).Code)
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Node("n1"), "refreshed_at_ms", 1).Err())
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, berth.NodeLoad{}))
		now, err := s.Redis().HGet(t.Context(), s.Keys().NodeBriefs(), "n1").Result()
		require.NoError(t, err)
		require.Equal(t, right[strings.LastIndex(right, "\n"):], now[strings.LastIndex(now, "\n"):])
		require.Equal(t, lua.AssignOK, assign(t, s, "l", lua.Choice{Needed: []string{"whisper"}}).Code)
	})
}

// FA12: the work of a decision does not grow with the nodes that do not have a service.
func TestAssign_MoreNodesWithoutService_CommandsStayTheSame(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Load(t.Context()))
	register(t, s, spec("n0000", slots(1000), runs("whisper")))
	added := 1
	add := func(to int) {
		for ; added < to; added++ {
			register(t, s, spec(fmt.Sprintf("n%04d", added), slots(1000)))
		}
	}
	commands := func(what string) map[berth.Strategy]int64 {
		out := map[berth.Strategy]int64{}
		for _, strategy := range berth.Strategies() {
			before := total(t, server)
			d := assign(t, s, what+string(strategy), lua.Choice{Strategy: strategy, Needed: []string{"whisper"}, OwnZone: "z1", OwnHost: "h"})
			require.Equal(t, "n0000", d.NodeID)
			out[strategy] = total(t, server) - before
		}
		return out
	}
	add(10)
	commands("first") // adds a row to the statistics
	few := commands("few")
	add(1500)
	require.Equal(t, few, commands("many"))
}
