package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/fleet"
	"berth/internal/testredis"
	"berth/lua"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every refused connection
	goleak.VerifyTestMain(m)
}

const waitLimit = 20 * time.Second // for conditions that normally hold much sooner

func follow(t *testing.T, args ...string) (*fleet.Fleet, *lua.Scripts, *testredis.Server) {
	t.Helper()
	server := testredis.Start(t, args...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	f := fleet.New(s, fleet.Options{
		Settle: 5 * time.Millisecond, Tick: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = rdb.Close() })
	return f, s, server
}

func until(t *testing.T, f *fleet.Fleet, what string, is func(s *fleet.Snapshot) bool) *fleet.Snapshot {
	t.Helper()
	var s *fleet.Snapshot
	require.Eventually(t, func() bool { s = f.Snapshot(); return is(s) }, waitLimit, time.Millisecond, what)
	return s
}

func spec(id string, capabilities ...string) berth.NodeSpec {
	return berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
		Capabilities: capabilities, MaxConcurrentJobs: 4,
	}
}

// L8: after CatchUp the snapshot has what was written before, even while it is being read concurrently.
func TestCatchUp_ConfigurationWritten_SnapshotHasIt(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	f := fleet.New(s, fleet.Options{Settle: time.Hour, Tick: time.Second}) // reads only once without a request
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = rdb.Close() })
	require.NoError(t, waitReady(t, f))
	var others sync.WaitGroup
	for range 50 {
		others.Go(func() { f.CatchUp(t.Context()) })
		for _, strategy := range []berth.Strategy{berth.StrategyRoundRobin, berth.StrategyLocality} {
			_, err := s.DefinePool(t.Context(), berth.Pool{ID: "p", Strategy: strategy}, false)
			require.NoError(t, err)
			f.CatchUp(t.Context())
			require.Equal(t, strategy, f.Snapshot().Strategy("p"))
		}
	}
	others.Wait()
	server.Kill()
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	f.CatchUp(short) // must return
}

// S5: one part of a location determines the others.
func TestLocate_PartOfLocationGiven_RestCompleted(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	for id, place := range map[string][2]string{"a": {"z2", "h1"}, "b": {"z1", "h1"}, "c": {"z2", "h2"}} {
		node := spec(id, "x")
		node.Zone, node.Hostname = place[0], place[1]
		_, err := s.RegisterNode(t.Context(), node, lua.Registration{})
		require.NoError(t, err)
	}
	now := until(t, f, "all", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 3 })
	for name, c := range map[string]struct{ given, want lua.Choice }{
		"nothing":       {},
		"caller's node": {lua.Choice{Own: "a"}, lua.Choice{Own: "a", OwnHost: "h1", OwnZone: "z2", HostZones: []string{"z1", "z2"}}},
		"unknown node":  {lua.Choice{Own: "x", OwnZone: "z2"}, lua.Choice{Own: "x", OwnZone: "z2"}},
		"caller's host": {lua.Choice{OwnHost: "h2"}, lua.Choice{OwnHost: "h2", OwnZone: "z2", HostZones: []string{"z2"}}},
		"another zone":  {lua.Choice{OwnHost: "h2", OwnZone: "z9"}, lua.Choice{OwnHost: "h2", OwnZone: "z9", HostZones: []string{"z2"}}},
		"another host":  {lua.Choice{Own: "a", OwnHost: "h9"}, lua.Choice{Own: "a", OwnHost: "h9"}},
		"caller's zone": {lua.Choice{OwnZone: "z1"}, lua.Choice{OwnZone: "z1"}},
	} {
		require.Equal(t, c.want, now.Locate(c.given), name)
	}
	_, err := s.WithdrawNode(t.Context(), "b", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	now = until(t, f, "gone", func(s *fleet.Snapshot) bool { return s.Nodes["b"].State == berth.NodeDead })
	require.Equal(t, []string{"z2"}, now.Locate(lua.Choice{OwnHost: "h1"}).HostZones)
}

// S4, S7: the closest node for several capabilities, and the current strategy of a dynamic pool.
func TestSnapshot_CapabilitiesOrDynamicStrategy_ClosestNodeAndStrategyResolved(t *testing.T) {
	t.Parallel()
	s := &fleet.Snapshot{
		Nodes: map[string]berth.Node{
			"a": {NodeSpec: berth.NodeSpec{Capabilities: []string{"x"}}},
			"b": {NodeSpec: berth.NodeSpec{Capabilities: []string{"x", "y"}}},
			"c": {NodeSpec: berth.NodeSpec{Capabilities: []string{"y", "z"}}},
			"d": {NodeSpec: berth.NodeSpec{Capabilities: []string{"x", "y", "z"}}, State: berth.NodeDead},
		},
		Strategies: map[string]berth.Strategy{"p": berth.StrategyLocality},
	}
	closest, lacks := s.Closest([]string{"x", "y", "z"})
	require.Equal(t, []string{"z"}, lacks)
	require.Equal(t, "b", closest)
	for _, all := range [][]string{{"x", "y"}, {"x"}, {"none"}, {}} {
		closest, lacks = s.Closest(all)
		require.Empty(t, lacks)
		require.Empty(t, closest)
	}
	require.Equal(t, berth.StrategyLocality, s.ResolveStrategy("p", berth.StrategyDynamic))
	require.Equal(t, berth.StrategyRoundRobin, s.ResolveStrategy("q", berth.StrategyDynamic))
	require.Equal(t, berth.StrategyAffinity, s.ResolveStrategy("p", berth.StrategyAffinity))
}

// L8: changes of every part reach the snapshot automatically.
func TestSnapshot_RedisChanges_Follows(t *testing.T) {
	t.Parallel()
	f, s, server := follow(t)
	rdb := server.Client()
	require.NoError(t, waitReady(t, f))
	require.NoError(t, f.Writable())
	r, err := s.RegisterNode(t.Context(), spec("n1", "translate:en-es", "gpu"), lua.Registration{})
	require.NoError(t, err)
	seen := until(t, f, "registered", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Generation == r.Generation })
	_, err = s.HeartbeatNode(t.Context(), "n1", r.Generation, berth.NodeLoad{CPUUsage: 90, LatencyMs: 30}, lua.Weights{Memory: 0.5})
	require.NoError(t, err)
	now := until(t, f, "heartbeat", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Load.CPUUsage == 90 })
	require.Zero(t, seen.Nodes["n1"].Load.CPUUsage, "a snapshot that was returned does not change")
	require.Equal(t, berth.SystemState{Load: 0.9, LatencyMs: 30}, now.States("gpu")["gpu"])
	require.Equal(t, []string{"gpu", "translate:en-es"}, now.PoolIDs())
	require.Equal(t, []string{"translate:en-es"}, now.Eligible("", "en", "es"))
	require.Empty(t, now.Eligible("", "en", "fr"))
	require.True(t, now.Serves("translate:en-es", "", "en", "es"))
	require.False(t, now.Serves("translate:en-es", "", "en", "fr"))
	require.False(t, now.Serves("gpu", "", "en", "es"))

	_, err = s.DefinePool(t.Context(), berth.Pool{ID: "fast", Capabilities: []string{"translate:en-es", "gpu"}, Strategy: berth.StrategyDynamic}, false)
	require.NoError(t, err)
	require.NoError(t, s.BindTenant(t.Context(), "acme", "fast"))
	require.NoError(t, s.PutServices(t.Context(), json.RawMessage(`{"asr":["whisper"]}`)))
	c := berth.DefaultFleetConfig()
	c.AssignmentStrategy = berth.StrategyPowerOfTwo
	require.NoError(t, s.PutFleetConfig(t.Context(), c))
	now = until(t, f, "configuration", func(s *fleet.Snapshot) bool {
		return s.Tenants["acme"] == "fast" && len(s.Services) > 0 && s.Config.AssignmentStrategy != "" && len(s.Nodes["n1"].Pools) == 3
	})
	require.Equal(t, []string{"fast", "translate:en-es"}, now.Eligible("", "en", "es"))
	require.True(t, now.Serves("fast", "", "en", "es"))

	_, err = s.DefinePool(t.Context(), berth.Pool{ID: "own", Capabilities: []string{"translate:en-es"}, Tenants: []string{"acme"}}, false)
	require.NoError(t, err)
	now = until(t, f, "a pool of one tenant", func(s *fleet.Snapshot) bool { return slices.Contains(s.Nodes["n1"].Pools, "own") })
	for _, tenant := range []string{"", "umbrella"} {
		require.Equal(t, []string{"fast", "translate:en-es"}, now.Eligible(tenant, "en", "es"))
		require.False(t, now.Serves("own", tenant, "en", "es"))
	}
	require.Equal(t, []string{"fast", "own", "translate:en-es"}, now.Eligible("acme", "en", "es"))
	require.True(t, now.Serves("own", "acme", "en", "es"))
	require.NoError(t, s.DeletePool(t.Context(), "own"))
	until(t, f, "deleted", func(s *fleet.Snapshot) bool { return s.Pools["own"].ID == "" && len(s.Nodes["n1"].Pools) == 3 })

	_, err = s.DefinePool(t.Context(), berth.Pool{ID: "legal", Capabilities: []string{"translate:en-es", "glossary:legal"}}, false)
	require.NoError(t, err)
	now = until(t, f, "a pool without nodes", func(s *fleet.Snapshot) bool { return s.Pools["legal"].ID != "" })
	require.Equal(t, []string{"fast", "translate:en-es"}, now.Eligible("", "en", "es"), "a pool without nodes is not eligible while others have nodes")
	require.False(t, now.Serves("legal", "", "en", "es"))
	_, err = s.RegisterNode(t.Context(), spec("n2", "translate:en-es", "glossary:legal"), lua.Registration{})
	require.NoError(t, err)
	now = until(t, f, "its first node", func(s *fleet.Snapshot) bool { return slices.Contains(s.Nodes["n2"].Pools, "legal") })
	require.Equal(t, []string{"fast", "legal", "translate:en-es"}, now.Eligible("", "en", "es"))
	require.NoError(t, s.CordonNode(t.Context(), "n2", lua.Cordon{Cordoned: true}))
	now = until(t, f, "cordoned", func(s *fleet.Snapshot) bool { return s.Nodes["n2"].Cordoned })
	require.Equal(t, []string{"fast", "translate:en-es"}, now.Eligible("", "en", "es"))
	_, err = s.WithdrawNode(t.Context(), "n2", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	_, err = s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	now = until(t, f, "gone", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].State == berth.NodeDead })
	require.Equal(t, []string{"fast", "legal", "translate:en-es"}, now.Eligible("", "en", "es"), "no eligible pool has a node")
	require.True(t, now.Serves("legal", "", "en", "es"))
	_, err = s.RegisterNode(t.Context(), spec("n1", "translate:en-es", "gpu"), lua.Registration{})
	require.NoError(t, err)
	until(t, f, "back", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].State == berth.NodeReady })

	require.Equal(t, []string{"fast"}, now.DynamicPools())
	require.Equal(t, berth.StrategyRoundRobin, now.Strategy("fast"))
	require.Equal(t, berth.StrategyPowerOfTwo, now.Strategy("gpu"))
	_, _, err = s.SwitchStrategy(t.Context(), "fast", berth.SystemState{Load: 0.9}, c.Dynamic)
	require.NoError(t, err)
	until(t, f, "switched", func(s *fleet.Snapshot) bool { return s.Strategy("fast") == berth.StrategyLoadBalanced })

	for _, id := range []string{"n1", "n2"} {
		require.NoError(t, rdb.Del(t.Context(), s.Keys().Node(id)).Err())
		require.NoError(t, rdb.Publish(t.Context(), s.Keys().NodeChanged(), id).Err())
	}
	now = until(t, f, "gone", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 0 })
	require.False(t, now.Serves("translate:en-es", "", "en", "es"), "no node has the capability any more")
	require.True(t, now.Serves("fast", "", "en", "es"), "a defined pool stays")
}

// A heartbeat that changes nothing but the load does not cause a reading of the node: loads are sampled together. A change that was not
// published is found with them.
func TestSnapshot_Heartbeats_AreSampled(t *testing.T) {
	t.Parallel()
	f, s, server := follow(t)
	require.NoError(t, waitReady(t, f))
	r, err := s.RegisterNode(t.Context(), spec("n1", "c"), lua.Registration{})
	require.NoError(t, err)
	until(t, f, "registered", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Generation == r.Generation })
	read := server.Do("CONFIG", "RESETSTAT")
	require.Equal(t, "OK", read)
	for i := range 200 {
		_, err := s.HeartbeatNode(t.Context(), "n1", r.Generation, berth.NodeLoad{CPUUsage: float64(i), CurrentJobs: 3}, lua.Weights{Memory: 0.5})
		require.NoError(t, err)
	}
	until(t, f, "the last load", func(s *fleet.Snapshot) bool {
		return s.Nodes["n1"].Load == berth.NodeLoad{CPUUsage: 199, CurrentJobs: 3}
	})
	reads := 0
	if found := regexp.MustCompile(`cmdstat_hgetall:calls=(\d+)`).FindStringSubmatch(server.Do("INFO", "commandstats")); found != nil {
		reads, err = strconv.Atoi(found[1])
		require.NoError(t, err)
	}
	require.Less(t, reads, 20, "nodes are read again only after a lost subscription")

	next, err := s.RegisterNode(t.Context(), spec("n2", "c"), lua.Registration{})
	require.NoError(t, err)
	until(t, f, "registered", func(s *fleet.Snapshot) bool { return s.Nodes["n2"].Generation == next.Generation })
	rdb := server.Client()
	require.NoError(t, rdb.HSet(t.Context(), s.Keys().Node("n1"), "hostname", "other").Err())
	require.NoError(t, rdb.HDel(t.Context(), s.Keys().NodeLoads(), "n1").Err())
	until(t, f, "read again", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Hostname == "other" })
	require.NoError(t, rdb.Del(t.Context(), s.Keys().Node("n2")).Err())
	require.NoError(t, rdb.HDel(t.Context(), s.Keys().NodeLoads(), "n2").Err())
	until(t, f, "gone", func(s *fleet.Snapshot) bool { return s.Nodes["n2"].ID == "" })
}

func waitReady(t *testing.T, f *fleet.Fleet) error {
	t.Helper()
	select {
	case <-f.Ready():
		return nil
	case <-time.After(waitLimit):
		return fmt.Errorf("not ready")
	}
}

// L11: while Redis is unavailable the last snapshot is served, marked stale, and writes are refused; afterwards it is current again.
func TestSnapshot_RedisUnavailable_StaleUntilRestored(t *testing.T) {
	t.Parallel()
	f, s, server := follow(t)
	require.NoError(t, waitReady(t, f))
	_, err := s.RegisterNode(t.Context(), spec("n1", "c"), lua.Registration{})
	require.NoError(t, err)
	until(t, f, "registered", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 1 })
	server.Kill()
	until(t, f, "stale", func(s *fleet.Snapshot) bool { return s.Stale })
	require.Len(t, f.Snapshot().Nodes, 1, "the last snapshot is served")
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(f.Writable()))
	server.Restart()
	back := time.Now()
	now := until(t, f, "back", func(s *fleet.Snapshot) bool { return !s.Stale })
	t.Logf("current %v after Redis was restarted", time.Since(back).Round(time.Millisecond))
	require.Empty(t, now.Nodes, "Redis restarted empty")
	require.NoError(t, f.Writable())
	_, err = s.RegisterNode(t.Context(), spec("n2", "c"), lua.Registration{})
	require.NoError(t, err)
	until(t, f, "registered again", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 1 })
}

// L11: a Redis that accepts connections and does not reply is unavailable.
func TestSnapshot_RedisUnresponsive_Stale(t *testing.T) {
	t.Parallel()
	f, _, server := follow(t)
	require.NoError(t, waitReady(t, f))
	require.NoError(t, server.Client().Do(t.Context(), "CLIENT", "PAUSE", "1500", "ALL").Err())
	until(t, f, "stale", func(s *fleet.Snapshot) bool { return s.Stale })
	until(t, f, "back", func(s *fleet.Snapshot) bool { return !s.Stale })
}

// A fleet that has not been read yet is stale.
func TestSnapshot_BeforeFirstReading_StaleWithDefaults(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = rdb.Close() })
	f := fleet.New(lua.New(rdb, lua.Keys{}), fleet.Options{})
	require.True(t, f.Snapshot().Stale)
	require.Error(t, f.Writable())
	require.Empty(t, f.Snapshot().PoolIDs())
	require.Equal(t, berth.DefaultFleetConfig(), f.Snapshot().Config)
}

// S2, S7, FA12: the weight of a node's GPU is the largest of its pools', otherwise the fleet's; with one, a busy GPU is load for dynamic.
func TestSnapshot_GPUWeight_OfPoolsOrFleet(t *testing.T) {
	t.Parallel()
	s := fleet.Snapshot{
		Config: berth.FleetConfig{GPUWeight: 0.5},
		Pools: map[string]berth.Pool{
			"own": {ID: "own", GPUWeight: new(2.0)}, "more": {ID: "more", GPUWeight: new(3.0)}, "none": {ID: "none", GPUWeight: new(0.0)}, "plain": {ID: "plain"},
		},
		Nodes: map[string]berth.Node{},
	}
	for i, c := range []struct {
		pools []string
		want  float64
	}{
		{nil, 0.5},
		{[]string{"asr", "plain"}, 0.5},
		{[]string{"asr", "own"}, 2},
		{[]string{"own", "more", "none"}, 3},
		{[]string{"asr", "none"}, 0},
	} {
		n := berth.Node{NodeSpec: berth.NodeSpec{ID: strconv.Itoa(i), MaxConcurrentJobs: 1}, Pools: c.pools, State: berth.NodeReady}
		n.Load = berth.NodeLoad{CPUUsage: 10, GPUUsage: new(90.0)}
		require.InDelta(t, c.want, s.GPUWeight(n), 0, "%v", c.pools)
		s.Nodes = map[string]berth.Node{n.ID: n}
		load := 0.9
		if c.want == 0 {
			load = 0.1
		}
		for _, pool := range c.pools {
			require.InDelta(t, load, s.States(pool)[pool].Load, 1e-9, "%v", c.pools)
		}
		n.Load.GPUUsage = nil
		s.Nodes[n.ID] = n
		for _, pool := range c.pools {
			require.InDelta(t, 0.1, s.States(pool)[pool].Load, 1e-9, "a usage that is not known is not counted")
		}
	}
}
