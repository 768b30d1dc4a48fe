package lua_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// wire simulates a network that stores every message of the nodes and delivers it any number of times, at any time (P10).
type wire struct {
	t       *rapid.T
	s       *lua.Scripts
	pids    map[string]int // process id of the node's current process
	sent    []func() string
	current map[string]berth.Node // state in Redis after the last step
	dead    map[string]berth.Departure
	leases  int
}

var wireTimes = berth.NodeTimes{Heartbeat: time.Minute, Suspect: 2 * time.Minute, Death: 4 * time.Minute}

func generationOf(id string, g int64) string { return fmt.Sprintf("%s.%d", id, g) }

func (w *wire) registration(id string) func() string {
	pid := w.pids[id]
	n := berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: pid, StartedAt: int64(pid)},
		Capabilities: []string{"p"}, MaxConcurrentJobs: 3,
	}
	return func() string {
		r, err := w.s.RegisterNode(w.t.Context(), n, lua.Registration{})
		require.NoError(w.t, err)
		before, known := w.current[id]
		living := known && before.State != berth.NodeDead
		switch {
		case living && before.Incarnation.PID == pid:
			require.Equal(w.t, lua.NodeExists, r.Code)
			require.Equal(w.t, before.Generation, r.Generation)
		case living && before.Incarnation.PID > pid:
			require.Equal(w.t, lua.NodeStale, r.Code)
		default:
			require.Equal(w.t, lua.NodeOK, r.Code)
			require.Greater(w.t, r.Generation, before.Generation)
		}
		return id
	}
}

func (w *wire) heartbeat(id string) func() string {
	g := w.current[id].Generation
	return func() string {
		before, known := w.current[id]
		r, err := w.s.HeartbeatNode(w.t.Context(), id, g, berth.NodeLoad{CPUUsage: float64(g % 100)}, lua.Weights{Memory: 0.5})
		require.NoError(w.t, err)
		if known && before.Generation == g && before.State != berth.NodeDead {
			require.Equal(w.t, lua.NodeOK, r.Code)
			return id
		}
		require.Equal(w.t, lua.NodeReregister, r.Code)
		now, err := w.s.ReadNodes(w.t.Context(), id)
		require.NoError(w.t, err)
		require.Equal(w.t, before, now[id], "a heartbeat of an old generation changed the node")
		return id
	}
}

// check reads all nodes and notices and verifies what must hold after every step.
func (w *wire) check() {
	ids := slices.Sorted(maps.Keys(w.pids))
	nodes, err := w.s.ReadNodes(w.t.Context(), ids...)
	require.NoError(w.t, err)
	notices, left, err := w.s.TakeOutbox(w.t.Context(), 100, 0)
	require.NoError(w.t, err)
	require.LessOrEqual(w.t, left, 100)
	var receipts []string
	for _, n := range notices {
		g := generationOf(n.NodeID, n.Generation)
		require.NotContains(w.t, w.dead, g, "a second notice would start recovery twice")
		w.dead[g] = n.Reason
		receipts = append(receipts, n.Receipt)
	}
	_, _, err = w.s.TakeOutbox(w.t.Context(), 0, 0, receipts...)
	require.NoError(w.t, err)
	for id, n := range nodes {
		before, known := w.current[id]
		require.False(w.t, known && n.Generation < before.Generation, "%s: the generation decreased", id)
		if known && n.Generation > before.Generation {
			require.Contains(w.t, w.dead, generationOf(id, before.Generation), "%s was replaced without a notice", id)
		}
		_, dead := w.dead[generationOf(id, n.Generation)]
		require.Equal(w.t, dead, n.State == berth.NodeDead, "%s: a generation is dead exactly if there is a notice", id)
		free := n.State == berth.NodeReady && n.Leases < 3
		require.Equal(w.t, free, n.Excluded == "", "%s", id)
	}
	w.current = nodes
}

// P10: with messages repeated, delayed and reordered, no dead generation becomes ready again or gets work, and each death has
// one notice.
func TestNodeGeneration_MessagesRepeatedOrLate_DiesOnce(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client()
	cell := 0
	rapid.Check(t, func(rt *rapid.T) {
		cell++
		w := &wire{
			t: rt, s: lua.New(rdb, lua.Keys{Cell: fmt.Sprintf("wire-%d", cell)}),
			pids: map[string]int{"a": 1, "b": 1, "c": 1}, current: map[string]berth.Node{}, dead: map[string]berth.Departure{},
		}
		_, err := w.s.MarkNew(rt.Context())
		require.NoError(rt, err)
		sweep := func() lua.Sweep {
			out, err := w.s.SweepNodes(rt.Context(), lua.SweepLimits{}, lua.SweepRule{Kind: berth.NodeTranslate, Times: wireTimes})
			require.NoError(rt, err)
			return out
		}
		sweep()
		now, err := rdb.Time(rt.Context()).Result()
		require.NoError(rt, err)
		require.NoError(rt, rdb.HSet(rt.Context(), w.s.Keys().Sweep(), "seen_from_ms", now.UnixMilli()-3_600_000).Err())
		id := rapid.SampledFrom([]string{"a", "b", "c"})
		send := func(m func() string) {
			w.sent = append(w.sent, m)
			if rapid.Bool().Draw(rt, "arrives") {
				m()
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":          func(*rapid.T) { w.check() },
			"register":  func(rt *rapid.T) { send(w.registration(id.Draw(rt, "id"))) },
			"restart":   func(rt *rapid.T) { w.pids[id.Draw(rt, "id")]++ },
			"heartbeat": func(rt *rapid.T) { send(w.heartbeat(id.Draw(rt, "id"))) },
			"again": func(rt *rapid.T) {
				if len(w.sent) > 0 {
					rapid.SampledFrom(w.sent).Draw(rt, "message")()
				}
			},
			"time goes by": func(rt *rapid.T) {
				by := rapid.SampledFrom([]time.Duration{30 * time.Second, 150 * time.Second, 5 * time.Minute}).Draw(rt, "by")
				unresponsive := id.Draw(rt, "id")
				for _, key := range []string{w.s.Keys().NodeBeats("translate"), w.s.Keys().NodeSuspects("translate")} {
					err := rdb.ZAddArgsIncr(rt.Context(), key, redis.ZAddArgs{
						XX: true, Members: []redis.Z{{Score: -float64(by.Milliseconds()), Member: unresponsive}},
					}).Err()
					if !errors.Is(err, redis.Nil) {
						require.NoError(rt, err)
					}
				}
			},
			"sweep": func(*rapid.T) {
				for _, d := range sweep().Deaths {
					require.NotContains(rt, w.dead, generationOf(d.NodeID, d.Generation))
				}
			},
			"report": func(rt *rapid.T) {
				n := w.current[id.Draw(rt, "id")]
				g := n.Generation - rapid.Int64Range(0, 1).Draw(rt, "earlier")
				code, err := w.s.ReportUnresponsive(rt.Context(), n.ID, g, func(berth.NodeKind) berth.NodeTimes { return wireTimes })
				require.NoError(rt, err)
				now, err := w.s.ReadNodes(rt.Context(), n.ID)
				require.NoError(rt, err)
				switch code {
				case lua.NodeOK:
					require.Equal(rt, berth.NodeSuspect, now[n.ID].State)
					require.Equal(rt, g, now[n.ID].Generation)
				default:
					require.Equal(rt, n, now[n.ID], "nothing changed")
				}
			},
			"withdraw": func(rt *rapid.T) {
				n := id.Draw(rt, "id")
				code, err := w.s.WithdrawNode(rt.Context(), n, w.current[n].Generation, berth.DepartureWithdrawn)
				require.NoError(rt, err)
				require.Equal(rt, w.current[n].State == berth.NodeReady || w.current[n].State == berth.NodeSuspect, code == lua.NodeOK)
			},
			"assign": func(rt *rapid.T) {
				w.leases++
				d, err := w.s.Assign(rt.Context(), fmt.Sprintf("l%d", w.leases), lua.Choice{PoolID: "p", Hold: time.Hour})
				require.NoError(rt, err)
				if d.Code == lua.AssignOK {
					n := w.current[d.NodeID]
					require.Equal(rt, n.Generation, d.Generation)
					require.Equal(rt, berth.NodeReady, n.State)
					return
				}
				for _, n := range w.current {
					require.NotEmpty(rt, n.Excluded, "%s can take the job", n.ID)
				}
			},
		})
	})
}

// S2: nodes with nearly equal loads share jobs that end before the next one starts. A clearly less loaded node gets all jobs.
func TestLoadBalanced_NearlyEqualLoads_SharesWork(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		const nodes, rounds = 3, 100
		generations := map[string]int64{}
		for i := range nodes {
			id := fmt.Sprintf("n%d", i)
			generations[id] = register(t, s, spec(id)).Generation
		}
		share := func(cpu map[string]float64) map[string]int {
			got := map[string]int{}
			for i := range rounds {
				for id, g := range generations {
					require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{CPUUsage: cpu[id], MemoryUsage: 41}))
				}
				d := assign(t, s, fmt.Sprintf("l%d", i), lua.Choice{Strategy: berth.StrategyLoadBalanced})
				got[d.NodeID]++
				require.True(t, release(t, s, d.Assignment))
			}
			return got
		}
		equal := share(map[string]float64{"n0": 1.2, "n1": 0.3, "n2": 1.0})
		t.Log(equal)
		for id := range generations { // the expected shares are about 26, 44 and 30 percent
			require.Greater(t, equal[id], rounds/20)
		}
		require.Equal(t, map[string]int{"n1": rounds}, share(map[string]float64{"n0": 30, "n1": 20, "n2": 25}))
	})
}

// S2: a lease adds more load than the difference between two samples: the next job goes to the node without a lease.
func TestLoadBalanced_ReportedLease_OutweighsCPUDifference(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		generations := map[string]int64{}
		for _, id := range []string{"n0", "n1"} {
			generations[id] = register(t, s, spec(id, slots(4))).Generation
		}
		holds := assign(t, s, "long", lua.Choice{}).NodeID
		for i := range 100 {
			for id, g := range generations {
				l := berth.NodeLoad{CPUUsage: float64(i % 7), MemoryUsage: 40}
				if id == holds {
					l.CPUUsage, l.CurrentJobs = float64(i%3), 1
				}
				require.Equal(t, lua.NodeOK, beat(t, s, id, g, l))
			}
			d := assign(t, s, fmt.Sprintf("l%d", i), lua.Choice{Strategy: berth.StrategyLoadBalanced})
			require.NotEqual(t, holds, d.NodeID)
			require.True(t, release(t, s, d.Assignment))
		}
	})
}

// P19, S2: the conferences of a lost unit are recovered between two reports. A unit whose last sample happened to be low gets more
// of them than the others, but not all.
func TestLoadBalanced_OneLowSample_DoesNotAttractEverything(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		const units, each, orphans = 3, 13, 11
		generations, held := map[string]int64{}, map[string]int{}
		for i := range units {
			id := fmt.Sprintf("u%d", i)
			generations[id] = register(t, s, spec(id, slots(50))).Generation
		}
		report := func(cpu map[string]float64) {
			for id, g := range generations {
				require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{CPUUsage: cpu[id], MemoryUsage: 40, CurrentJobs: held[id]}))
			}
		}
		for i := range units * each {
			held[assign(t, s, fmt.Sprint("c", i), lua.Choice{Strategy: berth.StrategyRoundRobin, Hold: time.Hour}).NodeID]++
		}
		for range 4 {
			report(map[string]float64{"u0": 50, "u1": 50, "u2": 50})
		}
		low := map[string]float64{"u0": 5, "u1": 95, "u2": 90}
		report(low)
		for i := range orphans {
			held[assign(t, s, fmt.Sprint("r", i), lua.Choice{Strategy: berth.StrategyLoadBalanced, Hold: time.Hour}).NodeID]++
		}
		t.Log(held)
		busiest, mean := slices.Max(slices.Collect(maps.Values(held))), float64(units*each+orphans)/units
		require.LessOrEqual(t, float64(busiest), 1.3*mean)
		require.Greater(t, held["u0"], held["u1"], "the report still decides who gets more")
		// By the rule before, a conference weighed 3 points here: the unit got all of them.
		require.Less(t, low["u0"]+3*orphans, low["u2"])
	})
}

// P19: a node that has not reported its load is treated as having the median load of its pool, not as idle.
func TestLoadBalanced_LoadNotReported_UsesPoolMedian(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		loads := map[string]float64{"busy": 90, "middle": 50, "idle": 10}
		for _, id := range slices.Sorted(maps.Keys(loads)) {
			g := register(t, s, spec(id)).Generation
			require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{CPUUsage: loads[id]}))
		}
		register(t, s, spec("new", slots(50)))
		score := func(id string) float64 {
			return loadOf(t, s, id)
		}
		require.InDelta(t, score("middle"), score("new"), 0)
		require.Zero(t, node(t, s, "new").Load.CPUUsage, "it has reported nothing")
		require.Equal(t, "idle", assign(t, s, "l", lua.Choice{Strategy: berth.StrategyLoadBalanced}).NodeID)
	})
}

// P19: units with more slots get more conferences, and no unit is much fuller than the average.
func TestLoadBalanced_NodeSizesDiffer_FillsInProportion(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	s := lua.New(server.Client(), lua.Keys{Cell: testredis.Cell(t)})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	sizes, generations, got := map[string]int{"small": 40, "middle": 60, "big": 120}, map[string]int64{}, map[string]int{}
	for id, n := range sizes {
		generations[id] = register(t, s, spec(id, slots(n))).Generation
	}
	const joins = 100
	for i := range joins {
		for id, g := range generations { // every report includes all earlier conferences
			require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{CurrentJobs: got[id]}))
		}
		got[assign(t, s, fmt.Sprintf("c%d", i), lua.Choice{Strategy: berth.StrategyLoadBalanced, Hold: time.Hour}).NodeID]++
	}
	fullest := 0.0
	for id, n := range got {
		fullest = max(fullest, float64(n)/float64(sizes[id]))
	}
	t.Logf("%v of %v: the fullest is %.2f times as full as the average", got, sizes, fullest/(joins/220.0))
	require.Less(t, got["small"], got["middle"])
	require.Less(t, got["middle"], got["big"])
	require.Less(t, fullest, 1.5*joins/220)
}
