package placement_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
	"berth/internal/testredis"
	"berth/lua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = 10 * time.Second

// fixture is a Placer on a real Redis, with a fleet that follows it.
type fixture struct {
	*placement.Placer
	t       *testing.T
	redis   *redis.Client
	scripts *lua.Scripts
	fleet   *fleet.Fleet
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := testredis.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	s := lua.New(rdb, lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	f := fleet.New(s, fleet.Options{Settle: 5 * time.Millisecond, Tick: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = rdb.Close() })
	return &fixture{Placer: placement.New(s, f), t: t, redis: rdb, scripts: s, fleet: f}
}

// register registers a node of zone z1, and waits until the snapshot has it.
func (x *fixture) register(id string, slots int, capabilities ...string) int64 {
	x.t.Helper()
	r, err := x.scripts.RegisterNode(x.t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Zone: "z1", MaxConcurrentJobs: slots, Capabilities: capabilities,
		Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixNano()},
	}, lua.Registration{})
	require.NoError(x.t, err)
	x.until("node "+id+" registered", func(s *fleet.Snapshot) bool { return s.Nodes[id].Generation == r.Generation })
	return r.Generation
}

// declare registers a node that declares services, and waits until the snapshot has it.
func (x *fixture) declare(id string, services []string, capabilities ...string) {
	x.t.Helper()
	_, err := x.scripts.RegisterNode(x.t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Zone: "z1", MaxConcurrentJobs: 100, Capabilities: capabilities, Services: services,
		Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixNano()},
	}, lua.Registration{})
	require.NoError(x.t, err)
	x.until("services of node "+id, func(s *fleet.Snapshot) bool { return len(s.Nodes[id].Services) == len(services) })
}

func (x *fixture) until(what string, is func(s *fleet.Snapshot) bool) {
	x.t.Helper()
	require.Eventually(x.t, func() bool { return is(x.fleet.Snapshot()) }, timeout, time.Millisecond, what)
}

// define defines a pool, and waits until the snapshot has it.
func (x *fixture) define(p berth.Pool) {
	x.t.Helper()
	_, err := x.scripts.DefinePool(x.t.Context(), p, false)
	require.NoError(x.t, err)
	x.until("pool "+p.ID+" defined", func(s *fleet.Snapshot) bool { return s.Pools[p.ID].ID == p.ID })
}

func (x *fixture) markUnavailable(node, service string) {
	x.t.Helper()
	code, err := x.scripts.MarkUnavailable(x.t.Context(), node, service, time.Minute)
	require.NoError(x.t, err)
	require.Equal(x.t, lua.NodeOK, code)
}

func inPool(id string) placement.Request {
	return placement.Request{Requirements: berth.Requirements{PoolID: id}}
}

func capable(capabilities ...string) placement.Request {
	p := berth.CapabilityPool(capabilities...)
	return placement.Request{Requirements: berth.Requirements{PoolID: p.ID, Capabilities: p.Capabilities}}
}

func requireRefused(t *testing.T, err error, code berth.Code) *berth.Refusal {
	t.Helper()
	var r *berth.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, code, r.Code, r.Error())
	return r
}

// L10: a service that a capability of the pool depends on must be available, for every way to request the pool and also if the
// request names other services. Assignments by the API ignored such services before.
func TestAssign_ServiceOfPoolsCapabilityUnavailable_NodeExcluded(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"ocr:zh", "ocr"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			x.register("n1", 100, "ocr:zh", "gpu")
			x.register("n2", 100, "ocr:zh", "gpu")
			x.define(berth.Pool{ID: "defined", Capabilities: []string{"ocr:zh"}})
			x.markUnavailable("n1", service)
			both := inPool("ocr:zh")
			both.Services = []string{"other"}
			for name, r := range map[string]placement.Request{
				"pool of a capability": inPool("ocr:zh"), "defined pool": inPool("defined"), "required capability": capable("ocr:zh"),
				"required capabilities": capable("gpu", "ocr:zh"), "own services too": both,
			} {
				for i := range 4 {
					a, err := x.Assign(t.Context(), fmt.Sprint(name, i), r)
					require.NoError(t, err, name)
					require.Equal(t, "n2", a.NodeID, name)
				}
			}
			a, err := x.Assign(t.Context(), "other capability", capable("gpu"))
			require.NoError(t, err)
			require.Equal(t, "n1", a.NodeID, "its capability does not depend on the service")
			x.markUnavailable("n2", "other")
			_, err = x.Assign(t.Context(), "none left", both)
			require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceUnavailable: 2}, requireRefused(t, err, berth.CodeNoNode).Reasons)
		})
	}
}

// FA12: a service that a capability requires must be declared, for every way to request the pool; the session's pools and the refusal
// take it into account, and the last known requirements apply while Redis has lost them.
func TestAssign_CapabilityRequiresService_NodeMustDeclareIt(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 100, "ocr:zh", "gpu", "translate:en-es")
	x.define(berth.Pool{ID: "defined", Capabilities: []string{"ocr:zh"}})
	require.NoError(t, x.scripts.PutServices(t.Context(), []byte(`{"ocr": ["tesseract"], "gpu": ["cuda"], "translate": ["nmt"], "old": {"url": "x"}}`)))
	x.until("the requirements", func(s *fleet.Snapshot) bool { return len(s.Services) == 3 })
	requests := map[string]placement.Request{
		"pool of a capability": inPool("ocr:zh"), "defined pool": inPool("defined"), "required capability": capable("ocr:zh"),
	}
	for name, r := range requests {
		_, err := x.Assign(t.Context(), name, r)
		refused := requireRefused(t, err, berth.CodeNoNode)
		require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceMissing: 1}, refused.Reasons, name)
		require.Contains(t, refused.Error(), "1 service missing (needs tesseract)", name)
	}
	_, err := x.Assign(t.Context(), "several", capable("ocr:zh", "gpu"))
	require.Contains(t, requireRefused(t, err, berth.CodeNoNode).Error(), "cuda, tesseract")

	x.declare("n2", []string{"tesseract", "cuda"}, "ocr:zh", "gpu")
	requests["several"] = capable("ocr:zh", "gpu")
	requests["of the zone"] = placement.Request{
		Requirements: berth.Requirements{PoolID: "ocr:zh", Capabilities: []string{"ocr:zh"}}, Kind: berth.NodeTranslate, Zone: "z1",
	}
	taken := func(step string) {
		t.Helper()
		for name, r := range requests {
			a, err := x.Assign(t.Context(), step+name, r)
			require.NoError(t, err, name)
			require.Equal(t, "n2", a.NodeID, name)
		}
	}
	taken("declared")
	require.NoError(t, x.redis.Del(t.Context(), x.scripts.Keys().ConfigServices()).Err())
	x.fleet.CatchUp(t.Context())
	taken("lost")
}

// FA12: sessions do not get a pool whose nodes do not have the required services while another one has.
func TestEligible_PoolsNodesWithoutRequiredService_AnotherPool(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 100, "translate:en-es", "plain")
	x.declare("n2", []string{"nmt"}, "translate:en-es", "fast")
	x.define(berth.Pool{ID: "a", Capabilities: []string{"translate:en-es", "plain"}})
	x.define(berth.Pool{ID: "b", Capabilities: []string{"translate:en-es", "fast"}})
	eligible := func(want string) {
		t.Helper()
		x.until(want, func(s *fleet.Snapshot) bool { return fmt.Sprint(s.Eligible("", "en", "es")) == want })
	}
	eligible("[a b translate:en-es]")
	require.NoError(t, x.scripts.PutServices(t.Context(), []byte(`{"translate": ["nmt"]}`)))
	eligible("[b translate:en-es]")
	x.declare("n1", []string{"nmt"}, "translate:en-es", "plain")
	eligible("[a b translate:en-es]")
	require.NoError(t, x.scripts.PutServices(t.Context(), []byte(`{"translate": ["other"]}`)))
	eligible("[a b translate:en-es]") // no pool has such a node: the refusal of the work states it
}

// S3, S7: the requested strategy has precedence over the pool's, then the default for several capabilities, then the fleet's.
func TestAssign_StrategyOfRequestPoolOrFleet_FirstOneDecides(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 100, "a", "b")
	config := berth.DefaultFleetConfig()
	config.AssignmentStrategy = berth.StrategyRoundRobin
	require.NoError(t, x.scripts.PutFleetConfig(t.Context(), config))
	x.define(berth.Pool{ID: "own", Capabilities: []string{"a"}, Strategy: berth.StrategyPowerOfTwo})
	x.define(berth.Pool{ID: "dynamic", Capabilities: []string{"a"}, Strategy: berth.StrategyDynamic})
	_, _, err := x.scripts.SwitchStrategy(t.Context(), "dynamic", berth.SystemState{LatencyMs: 1000}, config.Dynamic)
	require.NoError(t, err)
	x.fleet.CatchUp(t.Context())
	asked := inPool("own")
	asked.Strategy = berth.StrategyLocality
	for name, tc := range map[string]struct {
		request placement.Request
		want    berth.Strategy
	}{
		"requested":             {asked, berth.StrategyLocality},
		"the pool's":            {inPool("own"), berth.StrategyPowerOfTwo},
		"a dynamic pool's":      {inPool("dynamic"), berth.StrategyLocality},
		"required capabilities": {capable("a", "b"), berth.StrategyLoadBalanced},
		"the fleet's":           {inPool("a"), berth.StrategyRoundRobin},
	} {
		a, err := x.Assign(t.Context(), name, tc.request)
		require.NoError(t, err, name)
		require.Equal(t, tc.want, a.Strategy, name)
	}
}

// A refusal uses the pool's definition in Redis, even if this process has not read it yet: the pool's name is not reported
// as a missing capability.
func TestAssign_PoolUnknownToSnapshot_RefusedByDefinitionInRedis(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 100, "a")
	behind := placement.New(x.scripts, stopped{x.fleet.Snapshot()})
	x.define(berth.Pool{ID: "new", Capabilities: []string{"a"}})
	r := inPool("new")
	r.Excluded = []string{"n1"}
	_, err := behind.Assign(t.Context(), "l1", r)
	refused := requireRefused(t, err, berth.CodeNoNode)
	require.Empty(t, refused.Missing)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeByCaller: 1}, refused.Reasons)
	_, err = behind.Assign(t.Context(), "l2", inPool("never defined"))
	require.Equal(t, []string{"never defined"}, requireRefused(t, err, berth.CodeNoNode).Missing)
}

// stopped is a fleet whose snapshot is never updated.
type stopped struct{ snapshot *fleet.Snapshot }

func (s stopped) Snapshot() *fleet.Snapshot { return s.snapshot }

func (s stopped) CatchUp(context.Context) {}

func (s stopped) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

// S4, L4: work with several required capabilities, or for a zone, goes only to nodes that have them, or are there. Requests define
// no pools and move no nodes.
func TestAssign_SeveralCapabilitiesOrZone_NoPoolDefined(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 1, "a", "b")
	x.register("n2", 1, "a")
	before := x.redis.Keys(t.Context(), "*").Val()
	a, err := x.Assign(t.Context(), "l1", capable("b", "a"))
	require.NoError(t, err)
	require.Equal(t, []string{"n1", "a+b"}, []string{a.NodeID, a.PoolID})
	same, err := x.Assign(t.Context(), "l1", capable("b", "a"))
	require.NoError(t, err)
	require.True(t, same.Existed)
	require.Equal(t, a.NodeID, same.NodeID)
	_, err = x.Assign(t.Context(), "l2", capable("a", "b"))
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1}, requireRefused(t, err, berth.CodeNodeFull).Reasons)

	zone := capable("a")
	zone.Kind, zone.Zone = berth.NodeTranslate, "z1"
	a, err = x.Assign(t.Context(), "l3", zone)
	require.NoError(t, err)
	require.Equal(t, []string{"n2", "a:zone:z1"}, []string{a.NodeID, a.PoolID})
	zone.Zone = "z2"
	_, err = x.Assign(t.Context(), "l4", zone)
	require.Empty(t, requireRefused(t, err, berth.CodeNoNode).Reasons)

	require.NoError(t, x.redis.Del(t.Context(), x.scripts.Keys().NodeSlots("n1"), x.scripts.Keys().NodeSlots("n2"),
		x.scripts.Keys().NodeLeases(), x.scripts.Keys().ExcludeStats()).Err())
	for _, key := range x.redis.Keys(t.Context(), "*").Val() {
		require.NotRegexp(t, `\+|:zone:`, key)
		if !strings.Contains(key, "due") && !strings.Contains(key, ":free") && !strings.Contains(key, ":locations") {
			require.Contains(t, before, key, "a request leaves only its lease")
		}
	}
	nodes, err := x.scripts.ReadNodes(t.Context(), "n1", "n2")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, nodes["n1"].Pools)
	require.Equal(t, []string{"a"}, nodes["n2"].Pools)
}

// S4: a pool of several capabilities that an operator defined is used as it is defined.
func TestAssign_SeveralCapabilitiesDefinedAsPool_PoolUsed(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 100, "a", "b")
	x.register("n2", 100, "a", "b", "c")
	x.define(berth.Pool{ID: "a+b", Capabilities: []string{"a", "b", "c"}, Strategy: berth.StrategyRoundRobin})
	for i := range 4 {
		a, err := x.Assign(t.Context(), fmt.Sprint(i), capable("a", "b"))
		require.NoError(t, err)
		require.Equal(t, "n2", a.NodeID)
		require.Equal(t, berth.StrategyRoundRobin, a.Strategy)
	}
}

// S4: what a node has and can take is decided in Redis, not by what this process read last.
func TestAssign_SeveralCapabilitiesSnapshotOld_CurrentNodesChosen(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	for _, id := range []string{"full", "lost", "marked", "gone", "good"} {
		x.register(id, 2, "a", "b")
	}
	behind := placement.New(x.scripts, stopped{x.fleet.Snapshot()})
	x.register("lost", 2, "a")
	x.markUnavailable("marked", "b")
	_, err := x.scripts.WithdrawNode(t.Context(), "gone", 0, berth.DepartureWithdrawn)
	require.NoError(t, err)
	own := inPool("a")
	own.Strategy, own.Own = berth.StrategyAffinity, "full"
	for i := range 2 {
		a, err := x.Assign(t.Context(), fmt.Sprint("own", i), own)
		require.NoError(t, err)
		require.Equal(t, "full", a.NodeID)
	}
	for i := range 2 {
		a, err := behind.Assign(t.Context(), fmt.Sprint(i), capable("a", "b"))
		require.NoError(t, err)
		require.Equal(t, "good", a.NodeID)
	}
	_, err = behind.Assign(t.Context(), "none", capable("a", "b"))
	require.Equal(t, map[berth.ExcludeReason]int{
		berth.ExcludeFull: 2, berth.ExcludeOffline: 1, berth.ExcludeServiceUnavailable: 1, berth.ExcludeCapabilityMissing: 1,
	}, requireRefused(t, err, berth.CodeNodeFull).Reasons)
}

// S1-S5, S9: the strategies choose among the nodes with several capabilities as among those of a pool, also in a large fleet in
// which most of them are full.
// behind has a snapshot from before a change until it is asked to catch up.
type behind struct {
	*fleet.Fleet
	old    *fleet.Snapshot
	caught bool
}

func (b *behind) Snapshot() *fleet.Snapshot {
	if b.caught {
		return b.Fleet.Snapshot()
	}
	return b.old
}

func (b *behind) CatchUp(ctx context.Context) {
	b.Fleet.CatchUp(ctx)
	b.caught = true
}

// L4: work that waits for a zone is placed on a node that has just registered, or registered again, before the snapshot has it.
func TestAssign_ZoneNodeJustRegistered_IsFound(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	inZone := capable("work")
	inZone.Kind, inZone.Zone = berth.NodeTranslate, "z1"
	x.register("other", 1, "rest")
	none := &behind{Fleet: x.fleet, old: x.fleet.Snapshot()}
	first := x.register("n1", 1, "work")
	a, err := placement.New(x.scripts, none).Assign(t.Context(), "l1", inZone)
	require.NoError(t, err)
	require.Equal(t, "n1", a.NodeID)

	_, err = x.scripts.WithdrawNode(t.Context(), "n1", first, berth.DepartureWithdrawn)
	require.NoError(t, err)
	x.until("n1 is dead", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].State == berth.NodeDead })
	dead := &behind{Fleet: x.fleet, old: x.fleet.Snapshot()}
	again := x.register("n1", 1, "work")
	inZone.Failed = []berth.NodeRef{{NodeID: "n1", Generation: first}}
	a, err = placement.New(x.scripts, dead).Assign(t.Context(), "l2", inZone)
	require.NoError(t, err)
	require.Equal(t, again, a.Generation)

	_, err = x.Assign(t.Context(), "l3", inZone)
	requireRefused(t, err, berth.CodeNodeFull)
}

func TestAssign_SeveralCapabilitiesLargeFleet_StrategyDecides(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	const nodes, free = 400, 3
	for i := range nodes {
		id := fmt.Sprintf("n%03d", i)
		_, err := x.scripts.RegisterNode(t.Context(), berth.NodeSpec{
			ID: id, Kind: berth.NodeTranslate, Zone: fmt.Sprintf("z%d", i%2), Hostname: "h" + id, MaxConcurrentJobs: 100,
			Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: 1}, Capabilities: []string{"a", "b"},
		}, lua.Registration{})
		require.NoError(t, err)
		if i >= free {
			require.NoError(t, x.scripts.CordonNode(t.Context(), id, lua.Cordon{Cordoned: true}))
		}
	}
	x.until("registered", func(s *fleet.Snapshot) bool {
		excluded := 0
		for _, n := range s.Nodes {
			if n.Excluded != "" {
				excluded++
			}
		}
		return len(s.Nodes) == nodes && excluded == nodes-free
	})
	for strategy, want := range map[berth.Strategy]map[string]int{
		berth.StrategyLoadBalanced: {"n000": 3, "n001": 3, "n002": 3}, berth.StrategyRoundRobin: {"n000": 3, "n001": 3, "n002": 3},
		berth.StrategyAffinity: {"n001": 9}, berth.StrategyLocality: {"n001": 9}, berth.StrategyPowerOfTwo: {"n000": 3, "n001": 3, "n002": 3},
	} {
		got, leases := map[string]int{}, []berth.Assignment{}
		for i := range 9 {
			r := capable("a", "b")
			r.Strategy, r.Hold = strategy, time.Hour
			if strategy == berth.StrategyAffinity {
				r.Own = "n001"
			}
			if strategy == berth.StrategyLocality {
				r.OwnZone = "z1"
			}
			a, err := x.Assign(t.Context(), fmt.Sprint(strategy, i), r)
			require.NoError(t, err)
			got[a.NodeID]++
			leases = append(leases, a)
		}
		require.Equal(t, want, got, strategy)
		for _, a := range leases {
			_, err := x.scripts.ReleaseNodeSlot(t.Context(), a.NodeID, a.LeaseID)
			require.NoError(t, err)
		}
	}
}

// S4: where each capability is on some node and no node has all, the refusal names the closest node.
func TestAssign_CapabilitiesOnDifferentNodes_RefusalNamesClosest(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 1, "a", "b")
	x.register("n2", 1, "c")
	_, err := x.Assign(t.Context(), "l1", capable("a", "b", "c"))
	refused := requireRefused(t, err, berth.CodeNoNode)
	require.Equal(t, []string{"c"}, refused.Missing)
	require.Equal(t, "no eligible node of pool a+b+c: no node has all of a, b, c; the closest node n1 lacks c", refused.Error())
	require.Empty(t, x.fleet.Snapshot().Pools)
}

// A11: failed generations are excluded, avoided ones only while another node is eligible.
func TestAssign_GenerationFailedOrAvoided_OtherNodePreferred(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	n1 := berth.NodeRef{NodeID: "n1", Generation: x.register("n1", 1, "a")}
	n2 := berth.NodeRef{NodeID: "n2", Generation: x.register("n2", 1, "a")}
	r := inPool("a")
	r.Failed, r.Avoided = []berth.NodeRef{n1, n1}, []berth.NodeRef{n2}
	a, err := x.Assign(t.Context(), "l1", r)
	require.NoError(t, err)
	require.Equal(t, "n2", a.NodeID, "avoided, but the only node left")
	_, err = x.Assign(t.Context(), "l2", r)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeByCaller: 1, berth.ExcludeFull: 1}, requireRefused(t, err, berth.CodeNodeFull).Reasons)
	x.register("n1", 1, "a")
	a, err = x.Assign(t.Context(), "l2", r)
	require.NoError(t, err)
	require.Equal(t, "n1", a.NodeID, "it has registered again")
}

// L12: nothing is assigned while Redis may have lost data.
func TestAssign_GraceAfterDataLoss_RefusedForItsRest(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	x.register("n1", 1, "a")
	require.NoError(t, x.redis.HSet(t.Context(), x.scripts.Keys().Guard(), "grace", time.Now().Add(time.Hour).UnixMilli()).Err())
	_, err := x.Assign(t.Context(), "l1", inPool("a"))
	require.InDelta(t, time.Hour, requireRefused(t, err, berth.CodeUnavailable).RetryAfter, float64(time.Minute))
}

func TestAssign_FleetNeverRead_ReturnsWhenContextEnds(t *testing.T) {
	t.Parallel()
	s := lua.New(nil, lua.Keys{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := placement.New(s, fleet.New(s, fleet.Options{})).Assign(ctx, "l1", inPool("a"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestZonePool_ZoneWithSpecialCharacters_IDIsValid(t *testing.T) {
	t.Parallel()
	require.Equal(t, "conference:zone:eu-1", placement.ZonePool(berth.NodeMedia, "conference", "eu-1").ID)
	p := placement.ZonePool(berth.NodeMedia, "conference", "Zürich & more")
	require.NoError(t, p.Normalize())
	require.Equal(t, "Zürich & more", p.Zone)
	require.NotEqual(t, p.ID, placement.ZonePool(berth.NodeMedia, "conference", "Zürich").ID)
}
