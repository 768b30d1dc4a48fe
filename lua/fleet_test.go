package lua_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

const pair = "translate:en-es"

// started is when the incarnations in these tests started, in ms by their hosts' clock.
const started = 1_700_000_000_000

func spec(id string, set ...func(*berth.NodeSpec)) berth.NodeSpec {
	n := berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Hostname: "host-" + id, Zone: "z1",
		Incarnation:  berth.Incarnation{Host: "host-" + id, PID: 1, StartedAt: started},
		Capabilities: []string{pair}, MaxConcurrentJobs: 2,
	}
	for _, f := range set {
		f(&n)
	}
	return n
}

func slots(n int) func(*berth.NodeSpec) { return func(s *berth.NodeSpec) { s.MaxConcurrentJobs = n } }

func can(c ...string) func(*berth.NodeSpec) { return func(s *berth.NodeSpec) { s.Capabilities = c } }

func at(zone, host string) func(*berth.NodeSpec) {
	return func(s *berth.NodeSpec) { s.Zone, s.Hostname = zone, host }
}

func again(pid int, startedAt int64) func(*berth.NodeSpec) {
	return func(s *berth.NodeSpec) { s.Incarnation.PID, s.Incarnation.StartedAt = pid, startedAt }
}

func register(t *testing.T, s *lua.Scripts, n berth.NodeSpec) lua.RegisterReply {
	t.Helper()
	require.NoError(t, n.Normalize())
	r, err := s.RegisterNode(t.Context(), n, lua.Registration{})
	require.NoError(t, err)
	return r
}

func beat(t *testing.T, s *lua.Scripts, id string, generation int64, l berth.NodeLoad) string {
	t.Helper()
	r, err := s.HeartbeatNode(t.Context(), id, generation, l, lua.Weights{Memory: 0.5})
	require.NoError(t, err)
	return r.Code
}

func node(t *testing.T, s *lua.Scripts, id string) berth.Node {
	t.Helper()
	n, err := s.ReadNodes(t.Context(), id)
	require.NoError(t, err)
	return n[id]
}

func assign(t *testing.T, s *lua.Scripts, lease string, c lua.Choice) lua.Decision {
	t.Helper()
	if c.PoolID == "" {
		c.PoolID = pair
	}
	if c.Hold == 0 {
		c.Hold = time.Minute
	}
	d, err := s.Assign(t.Context(), lease, c)
	require.NoError(t, err)
	return d
}

func release(t *testing.T, s *lua.Scripts, a berth.Assignment) bool {
	t.Helper()
	held, err := s.ReleaseNodeSlot(t.Context(), a.NodeID, a.LeaseID)
	require.NoError(t, err)
	return held
}

// loadOf returns the load by which a free node is compared.
func loadOf(t *testing.T, s *lua.Scripts, id string) float64 {
	t.Helper()
	row, err := s.Redis().HGet(t.Context(), s.Keys().NodeBriefs(), id).Result()
	require.NoError(t, err)
	score, err := s.Redis().ZScore(t.Context(), s.Keys().ClassFree(strings.Split(row, "\n")[7]), id).Result()
	require.NoError(t, err)
	return score
}

func counts(t *testing.T, s *lua.Scripts, pool string) berth.PoolCounts {
	t.Helper()
	c, err := s.CountPool(t.Context(), pool)
	require.NoError(t, err)
	return c
}

func members(t *testing.T, s *lua.Scripts, key string) []string {
	t.Helper()
	m, err := s.Redis().SMembers(t.Context(), key).Result()
	require.NoError(t, err)
	return m
}

// fast has times short enough that a test can wait until a node is declared dead.
var fast = berth.NodeTimes{Heartbeat: 20 * time.Millisecond, Suspect: 60 * time.Millisecond, Death: 120 * time.Millisecond}

func sweep(t *testing.T, s *lua.Scripts, times berth.NodeTimes, confirmed bool) lua.Sweep {
	t.Helper()
	out, err := s.SweepNodes(t.Context(), lua.SweepLimits{MassLossDelay: time.Hour},
		lua.SweepRule{Kind: berth.NodeTranslate, Times: times, Confirmed: confirmed})
	require.NoError(t, err)
	return out
}

// kill waits until the nodes are declared dead, while the living ones send heartbeats.
func kill(t *testing.T, s *lua.Scripts, living map[string]int64, dead ...string) {
	t.Helper()
	left := map[string]bool{}
	for _, id := range dead {
		left[id] = true
	}
	require.Eventually(t, func() bool {
		for id, g := range living {
			if beat(t, s, id, g, berth.NodeLoad{}) != lua.NodeOK {
				t.Errorf("%s was declared dead", id)
			}
		}
		for _, d := range sweep(t, s, fast, true).Deaths {
			delete(left, d.NodeID)
		}
		return len(left) == 0
	}, 10*time.Second, 5*time.Millisecond)
}

func TestRegisterNode_Incarnation_DecidesGeneration(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	type state struct {
		generation int64
		leases     int
		notices    []berth.Departure
	}
	cases := map[string]struct {
		before func(t *testing.T, s *lua.Scripts) // called when n1 has one lease
		spec   berth.NodeSpec
		code   string
		higher bool // whether the generation is higher than before
		leases int
		out    []berth.Departure
		pools  []string
		free   int
	}{
		"the same incarnation again": {
			spec: spec("n1"), code: lua.NodeExists, leases: 1, pools: []string{pair}, free: 1,
		},
		"the same incarnation with other capabilities": {
			spec: spec("n1", can("translate:en-fr", "gpu")), code: lua.NodeExists, leases: 1,
			pools: []string{"gpu", "translate:en-fr"},
		},
		"the same incarnation with fewer slots": {
			spec: spec("n1", slots(1)), code: lua.NodeExists, leases: 1, pools: []string{pair},
		},
		"the same incarnation on another host": {
			spec: spec("n1", at("z2", "other")), code: lua.NodeExists, leases: 1, pools: []string{pair}, free: 1,
		},
		"another process supersedes the node": {
			spec: spec("n1", again(2, started+1)), code: lua.NodeOK, higher: true,
			out: []berth.Departure{berth.DepartureSuperseded}, pools: []string{pair}, free: 1,
		},
		"an earlier process of the same host registers late": {
			spec: spec("n1", again(2, started-1)), code: lua.NodeStale, leases: 1, pools: []string{pair}, free: 1,
		},
		"a dead generation stays dead": {
			before: func(t *testing.T, s *lua.Scripts) {
				code, err := s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, code)
				require.Empty(t, counts(t, s, pair).Free)
			},
			spec: spec("n1"), code: lua.NodeOK, higher: true,
			out: []berth.Departure{berth.DepartureWithdrawn}, pools: []string{pair}, free: 1,
		},
		"a cordoned node stays cordoned after a restart": {
			before: func(t *testing.T, s *lua.Scripts) {
				err := s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true})
				require.NoError(t, err)
			},
			spec: spec("n1", again(2, started+1)), code: lua.NodeOK, higher: true,
			out: []berth.Departure{berth.DepartureSuperseded}, pools: []string{pair},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				first := register(t, s, spec("n1"))
				require.Equal(t, lua.NodeOK, first.Code)
				require.InDelta(t, float64(redisMs(t, s)), float64(first.Generation), 5000, "at least the server's milliseconds")
				require.Equal(t, lua.AssignOK, assign(t, s, "a", lua.Choice{}).Code)
				if c.before != nil {
					c.before(t, s)
				}
				updates := s.Redis().Subscribe(t.Context(), s.Keys().NodeUpdated())
				t.Cleanup(func() { _ = updates.Close() })
				_, err := updates.Receive(t.Context())
				require.NoError(t, err)

				r := register(t, s, c.spec)
				require.Equal(t, c.code, r.Code)
				require.Equal(t, c.higher, r.Generation > first.Generation)
				if !c.higher {
					require.Equal(t, first.Generation, r.Generation)
				}
				n := node(t, s, "n1")
				got := state{n.Generation, n.Leases, nil}
				notices, _, err := s.TakeOutbox(t.Context(), 10, 0)
				require.NoError(t, err)
				for _, notice := range notices {
					require.Equal(t, first.Generation, notice.Generation)
					require.Equal(t, spec("n1").Incarnation, notice.Incarnation)
					got.notices = append(got.notices, notice.Reason)
				}
				require.Equal(t, state{r.Generation, c.leases, c.out}, got)
				require.Equal(t, c.pools, n.Pools)
				require.ElementsMatch(t, c.pools, members(t, s, s.Keys().NodePools("n1")))
				require.Equal(t, c.free, counts(t, s, pair).Free)
				if c.code == lua.NodeStale {
					return
				}
				require.Equal(t, berth.NodeReady, n.State)
				require.Equal(t, c.spec.MaxConcurrentJobs, n.MaxConcurrentJobs)
				require.Equal(t, c.spec.Incarnation, n.Incarnation)
				m, err := updates.ReceiveMessage(t.Context())
				require.NoError(t, err)
				require.Equal(t, "n1", m.Payload)
				for _, key := range []string{s.Keys().Node("n1"), s.Keys().NodePools("n1"), s.Keys().PoolMembers(c.pools[0])} {
					ttl, err := s.Redis().TTL(t.Context(), key).Result()
					require.NoError(t, err)
					require.InDelta(t, 3600, ttl.Seconds(), 5, key)
				}
				have, err := s.Redis().HGetAll(t.Context(), s.Keys().Capabilities()).Result()
				require.NoError(t, err)
				want := map[string]string{}
				for _, capability := range c.spec.Capabilities {
					want[capability] = "1"
				}
				require.Equal(t, want, have)
			})
		})
	}
}

func TestHeartbeatNode_Generation_AcceptsOnlyCurrent(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		g := register(t, s, spec("n1")).Generation
		before := node(t, s, "n1")
		require.Equal(t, lua.NodeReregister, beat(t, s, "stranger", 1, berth.NodeLoad{CPUUsage: 9}))
		require.Equal(t, lua.NodeReregister, beat(t, s, "n1", g-1, berth.NodeLoad{CPUUsage: 9}))
		require.Equal(t, before, node(t, s, "n1"), "nothing changed")
		exists, err := s.Redis().Exists(t.Context(), s.Keys().Node("stranger")).Result()
		require.NoError(t, err)
		require.Zero(t, exists)

		l := berth.NodeLoad{CPUUsage: 12.5, GPUUsage: new(3.0), MemoryUsage: 40, CurrentJobs: 1, ActiveWorkflows: 2, LatencyMs: 7.5}
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, l))
		require.Equal(t, l, node(t, s, "n1").Load)
		const exact = 1000 * (2 + 12.5 + 0.5*40)
		score := func() float64 { return loadOf(t, s, "n1") }
		require.InDelta(t, exact+2500, score(), 2500, "jittered by up to five points")

		// A lease adds its share of the capacity to the load immediately, whatever the load reports contain. Until the next report
		// it also adds what one of the two workflows takes, and the distrust of an old report.
		base := score() - 2000
		assign(t, s, "a", lua.Choice{})
		require.InDelta(t, base+2000+50000+base/2+800, score(), 1)
		for range 3 {
			require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, l))
			require.InDelta(t, exact+50000+2500, score(), 2500)
		}

		code, err := s.WithdrawNode(t.Context(), "n1", g, berth.DepartureWithdrawn)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
		require.Equal(t, lua.NodeReregister, beat(t, s, "n1", g, l), "dead is final")
		require.Equal(t, berth.NodeDead, node(t, s, "n1").State)
	})
}

// C21, L11: a node that misses heartbeats becomes suspect and is then declared dead, with one notice. A heartbeat before that
// makes it ready again.
func TestSweepNodes_HeartbeatsMissed_SuspectsThenDeclaresDead(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		sweep(t, s, fast, false)
		g := register(t, s, spec("n1")).Generation
		assign(t, s, "a", lua.Choice{})
		require.Eventually(t, func() bool {
			return len(sweep(t, s, berth.NodeTimes{Suspect: fast.Suspect, Death: time.Hour}, false).Suspects) == 1
		},
			10*time.Second, time.Millisecond)
		require.Equal(t, berth.ExcludeSuspect, node(t, s, "n1").Excluded)
		d := assign(t, s, "b", lua.Choice{})
		require.Equal(t, lua.AssignNone, d.Code)
		require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeSuspect: 1}, d.Reasons)
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, berth.NodeLoad{}))
		require.Equal(t, berth.NodeReady, node(t, s, "n1").State)
		require.Equal(t, 1, counts(t, s, pair).Free)
		require.Equal(t, 1, node(t, s, "n1").Leases, "a suspect keeps its leases")

		kill(t, s, nil, "n1")
		n := node(t, s, "n1")
		require.Equal(t, berth.NodeDead, n.State)
		require.Equal(t, berth.ExcludeOffline, n.Excluded)
		require.Zero(t, n.Leases, "leases are deleted with the generation")
		require.Equal(t, berth.PoolCounts{Excluded: map[berth.ExcludeReason]int{berth.ExcludeOffline: 1}}, counts(t, s, pair))
		require.Empty(t, sweep(t, s, fast, true).Deaths)
		notices, left, err := s.TakeOutbox(t.Context(), 10, 0)
		require.NoError(t, err)
		require.Equal(t, 1, left)
		require.Equal(t, berth.NodeNotice{
			NodeID: "n1", Generation: g, Kind: berth.NodeTranslate, Incarnation: spec("n1").Incarnation,
			Reason: berth.DepartureUnresponsive, At: notices[0].At, Receipt: notices[0].Receipt,
		}, notices[0])
		same, _, err := s.TakeOutbox(t.Context(), 10, 0)
		require.NoError(t, err)
		require.Equal(t, notices, same, "a notice stays until it is acknowledged")
		same, _, err = s.TakeOutbox(t.Context(), 10, 20*time.Millisecond)
		require.NoError(t, err)
		require.Equal(t, notices, same)
		require.Eventually(t, func() bool {
			same, _, err = s.TakeOutbox(t.Context(), 10, time.Hour)
			return err == nil && len(same) == 1
		}, 10*time.Second, time.Millisecond, "the process that took the notice may have died")
		others, left, err := s.TakeOutbox(t.Context(), 10, 0)
		require.NoError(t, err)
		require.Empty(t, others, "the notice is reserved for another caller")
		require.Equal(t, 1, left)
		none, left, err := s.TakeOutbox(t.Context(), 10, 0, notices[0].Receipt)
		require.NoError(t, err)
		require.Empty(t, none)
		require.Zero(t, left)
	})
}

// L11: heartbeats missed during a gap without sweeps do not make a node suspect.
func TestSweepNodes_GapInSweeps_RestartsTimeouts(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1"))
		sweep(t, s, fast, false)
		past := redisMs(t, s) - 600_000
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "last_ms", past, "seen_from_ms", past).Err())
		age(t, s, "n1", 500*time.Millisecond)
		require.Empty(t, sweep(t, s, fast, false).Suspects, "heartbeats were missed during the gap")
		require.NotEqual(t, berth.NodeSuspect, node(t, s, "n1").State)
		kill(t, s, nil, "n1")
	})
}

// L11: a node reported as unresponsive becomes suspect immediately if its heartbeat is also overdue. The next heartbeat makes
// it ready again.
func TestReportUnresponsive_HeartbeatOverdue_NodeBecomesSuspect(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		report := func(id string, generation int64) string {
			code, err := s.ReportUnresponsive(t.Context(), id, generation, berth.DefaultNodeTimes)
			require.NoError(t, err)
			return code
		}
		g := register(t, s, spec("n1")).Generation
		require.Equal(t, lua.NodeGone, report("n0", 1))
		require.Equal(t, lua.NodeGone, report("n1", g-1), "another generation was reported")
		age(t, s, "n1", 6100*time.Millisecond)
		require.Equal(t, lua.NodeResponsive, report("n1", g), "without sweeps, heartbeats could not be observed")
		sweep(t, s, berth.DefaultNodeTimes(berth.NodeTranslate), false)
		require.Equal(t, lua.NodeResponsive, report("n1", g), "missed heartbeats count from the first sweep")
		long := redisMs(t, s) - 600_000
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", long).Err())
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, berth.NodeLoad{}))
		age(t, s, "n1", 5*time.Second)
		require.Equal(t, lua.NodeResponsive, report("n1", g), "its heartbeat may still arrive")
		require.Equal(t, berth.NodeReady, node(t, s, "n1").State)
		a := assign(t, s, "a", lua.Choice{})
		require.Equal(t, lua.AssignOK, a.Code)

		age(t, s, "n1", 1100*time.Millisecond)
		n2 := register(t, s, spec("n2")).Generation
		for range 2 { // a repeated report changes nothing
			require.Equal(t, lua.NodeOK, report("n1", g))
			require.Equal(t, lua.NodeResponsive, report("n2", n2))
			require.Equal(t, berth.NodeSuspect, node(t, s, "n1").State)
			require.Equal(t, berth.PoolCounts{Free: 1, Excluded: map[berth.ExcludeReason]int{berth.ExcludeSuspect: 1}}, counts(t, s, pair))
		}
		require.Equal(t, 1, node(t, s, "n1").Leases, "a suspect keeps its leases")
		require.Empty(t, sweep(t, s, berth.DefaultNodeTimes(berth.NodeTranslate), false).Deaths, "the report does not shorten the time until death")

		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, berth.NodeLoad{}))
		require.Equal(t, berth.NodeReady, node(t, s, "n1").State)
		require.Equal(t, 2, counts(t, s, pair).Free)
		age(t, s, "n1", 7*time.Second)
		require.Equal(t, lua.NodeOK, report("n1", g))
		age := redisMs(t, s) - 20_001
		require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().NodeSuspects("translate"), redis.Z{Score: float64(age), Member: "n1"}).Err())
		require.Equal(t, []lua.Death{{NodeID: "n1", Generation: g}}, sweep(t, s, berth.DefaultNodeTimes(berth.NodeTranslate), false).Deaths)
		require.Equal(t, lua.NodeGone, report("n1", g))
	})
}

// age moves a node's last heartbeat into the past, as if that time had passed on Redis's clock.
func age(t *testing.T, s *lua.Scripts, id string, by time.Duration) {
	t.Helper()
	key := s.Keys().NodeBeats(string(berth.NodeTranslate))
	require.NoError(t, s.Redis().ZIncrBy(t.Context(), key, -float64(by.Milliseconds()), id).Err())
}

// L11: heartbeats missed while no API process accepts them do not count. The timeouts then start again.
func TestSweepNodes_NoAPIListening_RestartsTimeouts(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1"))
		require.NoError(t, s.MarkListening(t.Context()))
		setListening := func(ago time.Duration) {
			t.Helper()
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "listened_ms", redisMs(t, s)-ago.Milliseconds()).Err())
		}
		setSeenFrom := func(ago time.Duration) {
			t.Helper()
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", redisMs(t, s)-ago.Milliseconds()).Err())
		}
		times := berth.DefaultNodeTimes(berth.NodeTranslate)
		require.Empty(t, sweep(t, s, times, false).Suspects)
		age(t, s, "n1", time.Minute)
		setSeenFrom(time.Hour)
		setListening(4 * time.Second)
		require.Empty(t, sweep(t, s, times, false).Suspects, "no API process accepted heartbeats")
		requireObserved := func(minimum, maximum time.Duration, why string) {
			t.Helper()
			observed, err := s.ObservedFor(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, minimum, observed, why)
			require.GreaterOrEqual(t, maximum, observed, why)
		}
		requireObserved(0, 0, "no API process accepts heartbeats")
		setListening(0)
		require.Empty(t, sweep(t, s, times, false).Suspects, "its timeout has not passed since then")
		setSeenFrom(times.Suspect + time.Second)
		requireObserved(times.Suspect, times.Suspect+30*time.Second, "observed since then")
		require.Equal(t, []string{"n1"}, sweep(t, s, times, false).Suspects)
		setListening(4 * time.Second)
		setSeenFrom(time.Hour)
		require.Empty(t, sweep(t, s, times, false).Deaths)
		setListening(0)
		setSeenFrom(times.Death + time.Second)
		require.Len(t, sweep(t, s, times, false).Deaths, 1)
	})
}

// C21: the deaths of more than half of ten or more nodes are held back until the loss is confirmed or has lasted for some
// time.
func TestSweepNodes_MassLoss_DelaysDeaths(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		nodes, lost int
		confirmed   bool
		delay       time.Duration
		held        bool
	}{
		"half of ten":                      {nodes: 10, lost: 5, delay: time.Hour},
		"more than half of ten":            {nodes: 10, lost: 6, delay: time.Hour, held: true},
		"all of ten":                       {nodes: 10, lost: 10, delay: time.Hour, held: true},
		"all of nine, a small fleet":       {nodes: 9, lost: 9, delay: time.Hour},
		"more than half, confirmed":        {nodes: 10, lost: 6, delay: time.Hour, confirmed: true},
		"more than half, delay has passed": {nodes: 10, lost: 6, delay: 50 * time.Millisecond},
	}
	servers := slotServers(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				times := berth.NodeTimes{Suspect: time.Minute, Death: 2 * time.Minute}
				call := func() lua.Sweep {
					out, err := s.SweepNodes(t.Context(), lua.SweepLimits{MassLossDelay: c.delay, MaxGap: time.Hour},
						lua.SweepRule{Kind: berth.NodeTranslate, Times: times, Confirmed: c.confirmed})
					require.NoError(t, err)
					return out
				}
				call()
				require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", redisMs(t, s)-600_000).Err())
				for i := range c.nodes {
					register(t, s, spec(fmt.Sprintf("n%d", i)))
				}
				for i := range c.lost {
					age(t, s, fmt.Sprintf("n%d", i), 3*time.Minute)
				}
				first := call()
				require.Len(t, first.Suspects, c.lost, "suspects get no new work, whatever the reason")
				if c.held {
					require.Equal(t, []berth.NodeKind{berth.NodeTranslate}, first.Held)
					require.Empty(t, first.Deaths)
					require.Empty(t, call().Deaths)
					return
				}
				deaths := len(first.Deaths)
				require.Eventually(t, func() bool { deaths += len(call().Deaths); return deaths >= c.lost }, 20*time.Second, time.Millisecond)
				require.Equal(t, c.lost, deaths)
			})
		})
	}
}

// S11: operator settings are separate from the node's health and can be undone.
func TestCordonNode_CordonAndDrain_ExcludeNode(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		hold := func(h lua.Cordon) berth.Node {
			require.NoError(t, s.CordonNode(t.Context(), "n1", h))
			return node(t, s, "n1")
		}
		require.NoError(t, s.CordonNode(t.Context(), "n1", lua.Cordon{Cordoned: true}), "the node need not be registered")
		nodes, err := s.ReadNodes(t.Context(), "n1")
		require.NoError(t, err)
		require.Empty(t, nodes, "the node is not registered yet")

		g := register(t, s, spec("n1")).Generation
		require.Equal(t, lua.NodeOK, beat(t, s, "n1", g, berth.NodeLoad{}), "the settings do not affect its health")
		n := node(t, s, "n1")
		require.True(t, n.Cordoned)
		require.Equal(t, berth.NodeReady, n.State)
		require.Equal(t, berth.ExcludeCordoned, n.Excluded)
		require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeCordoned: 1}, assign(t, s, "a", lua.Choice{}).Reasons)

		n = hold(lua.Cordon{Cordoned: true, Drain: time.Hour})
		require.InDelta(t, 3600, time.UnixMilli(redisMs(t, s)).Sub(n.DrainUntil).Abs().Seconds(), 5)
		require.Equal(t, berth.ExcludeDraining, n.Excluded)
		n = hold(lua.Cordon{Cordoned: true})
		require.Zero(t, n.DrainUntil)
		require.Equal(t, berth.ExcludeCordoned, n.Excluded, "the node is still cordoned")
		hold(lua.Cordon{})
		require.Equal(t, lua.AssignOK, assign(t, s, "a", lua.Choice{}).Code)

		hold(lua.Cordon{Drain: time.Millisecond})
		var notices []berth.NodeNotice
		require.Eventually(t, func() bool {
			sweep(t, s, berth.NodeTimes{Suspect: time.Hour, Death: time.Hour}, false)
			notices, _, err = s.TakeOutbox(t.Context(), 10, 0)
			require.NoError(t, err)
			return len(notices) == 1
		}, 20*time.Second, time.Millisecond)
		require.Equal(t, berth.DepartureDrained, notices[0].Reason)
		require.Equal(t, 1, node(t, s, "n1").Leases, "remaining leases are kept until their work is moved")
	})
}

// L10: a node is excluded for work that needs a service marked as unavailable, until the mark expires.
func TestMarkUnavailable_Service_IsExcludedUntilExpiry(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		mark := func(id, service string, ttl time.Duration) string {
			code, err := s.MarkUnavailable(t.Context(), id, service, ttl)
			require.NoError(t, err)
			return code
		}
		require.Equal(t, lua.NodeGone, mark("n1", "asr", time.Hour))
		register(t, s, spec("n1", slots(100)))
		require.Equal(t, lua.NodeOK, mark("n1", "asr", time.Hour))
		require.Equal(t, lua.NodeOK, mark("n1", "tts", 30*time.Millisecond))
		need := func(service string) lua.Decision { return assign(t, s, "l", lua.Choice{Services: []string{service}}) }
		require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceUnavailable: 1}, need("asr").Reasons)
		require.Eventually(t, func() bool { return need("tts").Code == lua.AssignOK }, 20*time.Second, time.Millisecond)
		require.Equal(t, lua.AssignExists, need("asr").Code)
		require.Equal(t, lua.NodeOK, mark("n1", "asr", 0))
		require.Equal(t, lua.AssignOK, assign(t, s, "l2", lua.Choice{Services: []string{"asr"}}).Code)
	})
}

// A node that has been dead for an hour is deleted with all its keys.
func TestSweepNodes_NodeDeadForAnHour_DeletesIt(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		g := register(t, s, spec("n1", runs("whisper"))).Generation
		_, err := s.WithdrawNode(t.Context(), "n1", g, berth.DepartureWithdrawn)
		require.NoError(t, err)
		sweep(t, s, fast, false)
		require.Equal(t, berth.NodeDead, node(t, s, "n1").State, "dead for less than an hour")
		code, err := s.MarkUnavailable(t.Context(), "n1", "asr", time.Minute)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
		expire(t, s, "n1")
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().NodeUnavailable("n1")).Err())
		require.NoError(t, s.Redis().ZIncrBy(t.Context(), s.Keys().NodesDead(), -3_600_001, "n1").Err())
		sweep(t, s, fast, false)
		ids, err := s.NodeIDs(t.Context())
		require.NoError(t, err)
		require.Empty(t, ids)
		require.Equal(t, berth.PoolCounts{Excluded: map[berth.ExcludeReason]int{}}, counts(t, s, pair))
		left, err := s.Redis().Eval(t.Context(), "return redis.call('SCAN', '0', 'MATCH', ARGV[1], 'COUNT', 100000)[2]", []string{s.Keys().Guard()}, "{"+s.Keys().Cell+"}:*").StringSlice()
		require.NoError(t, err)
		ch := lua.OperatorChannel()
		require.ElementsMatch(t, []string{
			s.Keys().Guard(), s.Keys().Sweep(), s.Keys().Outbox(), s.Keys().Capabilities() + ":known",
			s.Keys().Stream(ch.UserID, ch.ServiceID, ch.TaskID), s.Keys().StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID),
		}, left)
	})
}

// expire deletes the keys of a node and of its pools that expire an hour after its last heartbeat.
func expire(t *testing.T, s *lua.Scripts, id string) {
	t.Helper()
	for _, pool := range members(t, s, s.Keys().NodePools(id)) {
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().PoolMembers(pool)).Err())
	}
	require.NoError(t, s.Redis().Del(t.Context(), s.Keys().Node(id), s.Keys().NodePools(id)).Err())
}

// C21, L4: the death of a node is detected after an outage of any length, also when its keys have expired. It is reported as that
// of any other node, and after an hour the node has left its pools.
func TestSweepNodes_KeysExpired_DeclaresDeadAndLeavesPools(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]struct {
		end    func(t *testing.T, s *lua.Scripts)
		reason berth.Departure
	}{
		"no heartbeats": {func(t *testing.T, s *lua.Scripts) { kill(t, s, nil, "n1") }, berth.DepartureUnresponsive},
		"withdrawn": {func(t *testing.T, s *lua.Scripts) {
			code, err := s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
			require.NoError(t, err)
			require.Equal(t, lua.NodeOK, code)
		}, berth.DepartureWithdrawn},
		"service lost": {func(t *testing.T, s *lua.Scripts) {
			_, err := s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureServiceLost)
			require.NoError(t, err)
			lost := node(t, s, "n1")
			require.Equal(t, berth.DepartureServiceLost, lost.Departure)
			register(t, s, spec("n1"))
			require.Equal(t, lost.LostAt, node(t, s, "n1").LostAt, "operators see it after the next registration")
			require.Empty(t, node(t, s, "n1").Departure)
			_, err = s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
			require.NoError(t, err)
		}, berth.DepartureServiceLost},
		"superseded": {func(t *testing.T, s *lua.Scripts) {
			require.Equal(t, lua.NodeOK, register(t, s, spec("n1", again(2, started+1))).Code)
			require.Equal(t, 2, counts(t, s, pair).Free, "the new generation is in the pool")
			code, err := s.WithdrawNode(t.Context(), "n1", 0, berth.DepartureWithdrawn)
			require.NoError(t, err)
			require.Equal(t, lua.NodeOK, code)
		}, berth.DepartureSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				sweep(t, s, fast, false)
				n1 := register(t, s, spec("n1")).Generation
				register(t, s, spec("n2", again(7, started)))
				require.Equal(t, "n1", assign(t, s, "a", lua.Choice{Strategy: berth.StrategyAffinity, Own: "n1"}).NodeID)
				_, err := s.DefinePool(t.Context(), berth.Pool{ID: "all"}, false)
				require.NoError(t, err)
				expire(t, s, "n1")
				if name == "no heartbeats" {
					code, err := s.WithdrawNode(t.Context(), "n2", 0, berth.DepartureWithdrawn)
					require.NoError(t, err)
					require.Equal(t, lua.NodeOK, code)
				}
				ended.end(t, s)

				notices, _, err := s.TakeOutbox(t.Context(), 10, 0)
				require.NoError(t, err)
				var got []berth.NodeNotice
				for _, n := range notices {
					if n.NodeID == "n1" && n.Generation == n1 {
						n.At, n.Receipt = time.Time{}, ""
						got = append(got, n)
					}
				}
				require.Equal(t, []berth.NodeNotice{{
					NodeID: "n1", Generation: n1, Kind: berth.NodeTranslate, Incarnation: spec("n1").Incarnation, Reason: ended.reason,
				}}, got)
				n := node(t, s, "n1")
				require.Equal(t, berth.NodeDead, n.State, "it is shown again")
				require.Zero(t, n.Leases)
				for _, pool := range []string{pair, "all"} {
					require.Equal(t, 1, counts(t, s, pool).Excluded[berth.ExcludeOffline]-map[bool]int{true: 1}[name == "no heartbeats"], pool)
				}

				expire(t, s, "n1")
				for _, id := range []string{"n1", "n2"} {
					if s.Redis().ZScore(t.Context(), s.Keys().NodesDead(), id).Err() == nil {
						require.NoError(t, s.Redis().ZIncrBy(t.Context(), s.Keys().NodesDead(), -3_600_001, id).Err())
					}
				}
				sweep(t, s, berth.NodeTimes{Suspect: time.Hour, Death: 2 * time.Hour}, true)
				for _, pool := range []string{pair, "all"} {
					require.Zero(t, counts(t, s, pool).Excluded[berth.ExcludeOffline], pool)
					require.NotContains(t, members(t, s, s.Keys().PoolMembers(pool)), "n1")
				}
				again := register(t, s, spec("n1"))
				require.Equal(t, lua.NodeOK, again.Code)
				require.Greater(t, again.Generation, n1)
				require.Contains(t, members(t, s, s.Keys().PoolMembers("all")), "n1")
				require.Empty(t, counts(t, s, pair).Excluded, "nothing is left of the earlier generations")
			})
		})
	}
}

// L4: pools that had no heartbeats for so long that their keys expired are complete again with the next heartbeats or
// registrations of their nodes. Nothing that the nodes hold is lost.
func TestPools_KeysExpired_CompleteAfterNextHeartbeats(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		generations := map[string]int64{}
		for _, id := range []string{"n1", "n2"} {
			generations[id] = register(t, s, spec(id)).Generation
		}
		require.Equal(t, "n1", assign(t, s, "a", lua.Choice{Strategy: berth.StrategyAffinity, Own: "n1"}).NodeID)
		in := func() []string { return members(t, s, s.Keys().PoolMembers(pair)) }

		// The keys of the pools expired, those of the nodes did not.
		for id := range generations {
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Node(id), "refreshed_at_ms", redisMs(t, s)-1_000_000).Err())
			require.NoError(t, s.Redis().Del(t.Context(), s.Keys().NodePools(id)).Err())
		}
		require.NoError(t, s.Redis().Del(t.Context(), s.Keys().PoolMembers(pair)).Err())
		require.Equal(t, lua.AssignOK, assign(t, s, "b", lua.Choice{}).Code, "nodes are assigned meanwhile")
		for id, g := range generations {
			require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{}))
			require.Equal(t, []string{pair}, members(t, s, s.Keys().NodePools(id)))
		}
		require.ElementsMatch(t, []string{"n1", "n2"}, in())

		// All keys expired: the same process keeps its generation and its leases.
		for id := range generations {
			expire(t, s, id)
		}
		for id, g := range generations {
			require.Equal(t, lua.NodeReregister, beat(t, s, id, g, berth.NodeLoad{}))
			r := register(t, s, spec(id))
			require.Equal(t, lua.NodeExists, r.Code)
			require.Equal(t, g, r.Generation)
			require.Equal(t, lua.NodeOK, beat(t, s, id, g, berth.NodeLoad{}))
		}
		require.ElementsMatch(t, []string{"n1", "n2"}, in())
		require.Equal(t, 2, counts(t, s, pair).Free)
		require.Equal(t, 2, node(t, s, "n1").Leases+node(t, s, "n2").Leases)
		require.False(t, node(t, s, "n1").RegisteredAt.IsZero())
	})
}

// A registration adds a notice to the outbox only if it requests reconciliation.
func TestRegisterNode_Announce_AddsNotice(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("unannounced"))
		n := spec("unit")
		registerUnit := func() (reasons []berth.Departure) {
			_, err := s.RegisterNode(t.Context(), n, lua.Registration{Announce: true})
			require.NoError(t, err)
			notices, _, err := s.TakeOutbox(t.Context(), 10, 0)
			require.NoError(t, err)
			var receipts []string
			for _, notice := range notices {
				require.Equal(t, "unit", notice.NodeID)
				reasons, receipts = append(reasons, notice.Reason), append(receipts, notice.Receipt)
			}
			_, _, err = s.TakeOutbox(t.Context(), 10, 0, receipts...)
			require.NoError(t, err)
			return reasons
		}
		require.Equal(t, []berth.Departure{berth.ArrivalRegistered}, registerUnit())
		require.Equal(t, []berth.Departure{berth.ArrivalRegistered}, registerUnit(), "C15: conferences that ended meanwhile have not been reported")
		n.Incarnation.PID = 2
		require.ElementsMatch(t, []berth.Departure{berth.DepartureSuperseded, berth.ArrivalRegistered}, registerUnit())
	})
}

// L2: all keys of the fleet's scripts are in their cell, so that a Redis Cluster keeps them in one slot.
func TestFleetKeys_AllScripts_StayInCell(t *testing.T) {
	t.Parallel()
	s := lua.New(testredis.Start(t).Client(), lua.Keys{Cell: "c1"})
	_, err := s.MarkNew(t.Context())
	require.NoError(t, err)
	g := register(t, s, spec("n1")).Generation
	beat(t, s, "n1", g, berth.NodeLoad{})
	_, err = s.DefinePool(t.Context(), berth.Pool{ID: "all"}, false)
	require.NoError(t, err)
	_, err = s.MarkUnavailable(t.Context(), "n1", "x", time.Hour)
	require.NoError(t, err)
	for i := range 3 {
		dispatch(t, s, job("t1", i))
		assign(t, s, fmt.Sprint(i), lua.Choice{Strategy: berth.StrategyRoundRobin})
	}
	err = s.CordonNode(t.Context(), "n1", lua.Cordon{Drain: time.Hour})
	require.NoError(t, err)
	sweep(t, s, fast, false)
	require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", 1).Err())
	age(t, s, "n1", time.Hour)
	reported, err := s.ReportUnresponsive(t.Context(), "n1", g, berth.DefaultNodeTimes)
	require.NoError(t, err)
	require.Equal(t, lua.NodeOK, reported)
	_, _, err = s.SwitchStrategy(t.Context(), "all", berth.SystemState{Load: 1}, berth.DefaultFleetConfig().Dynamic)
	require.NoError(t, err)
	_, err = s.WithdrawNode(t.Context(), "n1", g, berth.DepartureWithdrawn)
	require.NoError(t, err)
	keys, err := s.Redis().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Greater(t, len(keys), 15)
	for _, k := range keys {
		require.Regexp(t, `^\{c1\}:`, k)
	}
}

// L12: heartbeats that were missed before a grace prove nothing: another server may have been the master.
func TestSweepNodes_GraceOpens_HeartbeatsCountFromThen(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	times := berth.NodeTimes{Heartbeat: time.Second, Suspect: 20 * time.Second, Death: 20 * time.Second}
	onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
		register(t, s, spec("n1"))
		sweep(t, s, times, true)
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", 1).Err())
		age(t, s, "n1", time.Hour)
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Guard(), "server", "other").Err())
		_, err := s.CheckGuard(t.Context())
		require.NoError(t, err)
		require.Empty(t, sweep(t, s, times, true).Suspects)

		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Guard(), "grace", redisMs(t, s)-60_000).Err())
		require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Sweep(), "seen_from_ms", 1).Err())
		require.Equal(t, []string{"n1"}, sweep(t, s, times, true).Suspects)
	})
}
