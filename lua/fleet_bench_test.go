package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

const benchClients = 8

// benchFleet is a Redis of its own with n nodes in the pool p, and 8 clients.
func benchFleet(b *testing.B, n int) []*lua.Scripts {
	b.Helper()
	server := testredis.Start(b)
	clients := make([]*lua.Scripts, benchClients)
	for i := range clients {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1})
		b.Cleanup(func() { _ = rdb.Close() })
		clients[i] = lua.New(rdb, lua.Keys{})
	}
	_, err := clients[0].MarkNew(b.Context())
	require.NoError(b, err)
	for i := range n {
		_, err := clients[0].RegisterNode(b.Context(), berth.NodeSpec{
			ID: fmt.Sprintf("n%05d", i), Kind: berth.NodeTranslate, Hostname: fmt.Sprintf("h%d", i/4), Zone: fmt.Sprintf("z%d", i%3),
			Incarnation:       berth.Incarnation{Host: "h", PID: i + 1, StartedAt: 1},
			Capabilities:      []string{"p"},
			MaxConcurrentJobs: berth.MaxNodeConcurrency,
		}, lua.Registration{})
		require.NoError(b, err)
	}
	return clients
}

// together lets all clients make n calls and tells how long that took.
func together(b *testing.B, clients []*lua.Scripts, n int, call func(ctx context.Context, s *lua.Scripts, i int) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var running sync.WaitGroup
	begin := time.Now()
	for _, s := range clients {
		running.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := call(b.Context(), s, i-1); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	return time.Since(begin)
}

// redisCPU is the processor time that Redis's main thread has used.
func redisCPU(b *testing.B, s *lua.Scripts) time.Duration {
	b.Helper()
	info, err := s.Redis().InfoMap(b.Context(), "cpu").Result()
	require.NoError(b, err)
	var sum float64
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		v, err := strconv.ParseFloat(info["CPU"][field], 64)
		require.NoError(b, err)
		sum += v
	}
	return time.Duration(sum * float64(time.Second))
}

// chunk is how many calls are timed at a time: their leases are given back before the next, untimed.
const chunk = 1000

// BenchmarkChoose is the row "choose + reserve" of the design's speed table: 8 clients choose a node and take its slot.
// In turn with each chunk the same clients run an empty script with as many keys and arguments; "of-empty" is the median
// of the throughputs' ratio, so that a busy machine disturbs both alike. Run it with -benchtime=20000x.
func BenchmarkChoose(b *testing.B) {
	empty := redis.NewScript("return {'OK','n00001','1790000000000','power-of-two'}")
	for _, nodes := range []int{10, 100, 1000, 10000} {
		for _, strategy := range []berth.Strategy{
			berth.StrategyPowerOfTwo, berth.StrategyLoadBalanced, berth.StrategyRoundRobin, berth.StrategyLocality,
		} {
			b.Run(fmt.Sprintf("%s/nodes=%d", strategy, nodes), func(b *testing.B) {
				clients := benchFleet(b, nodes)
				require.NoError(b, empty.Load(b.Context(), clients[0].Redis()).Err())
				var ratios, took []float64
				var idleCPU, chooseCPU time.Duration
				given := make([]berth.Assignment, chunk)
				for range max(1, b.N/chunk) {
					cpu0 := redisCPU(b, clients[0])
					idle := together(b, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
						return empty.EvalSha(ctx, s.Redis(), []string{"lease:guard", "scheduler:leases"}, "scheduler:",
							strconv.Itoa(i), 60000, "p", "power-of-two", i*7919, "").Err()
					})
					cpu1 := redisCPU(b, clients[0])
					chosen := together(b, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
						c := lua.Choice{PoolID: "p", Strategy: strategy, Hold: time.Minute}
						if strategy == berth.StrategyLocality {
							c.OwnZone, c.OwnHost = "z1", "h7"
						}
						d, err := s.Assign(ctx, strconv.Itoa(i), c)
						if err == nil && d.Code != lua.AssignOK {
							return fmt.Errorf("%s", d.Code)
						}
						given[i] = d.Assignment
						return err
					})
					idleCPU, chooseCPU = idleCPU+cpu1-cpu0, chooseCPU+redisCPU(b, clients[0])-cpu1
					ratios, took = append(ratios, float64(idle)/float64(chosen)), append(took, float64(chosen.Microseconds())/chunk)
					together(b, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
						_, err := s.ReleaseNodeSlot(ctx, given[i].NodeID, given[i].LeaseID)
						return err
					})
				}
				slices.Sort(ratios)
				slices.Sort(took)
				b.ReportMetric(ratios[len(ratios)/2], "of-empty")
				b.ReportMetric(took[len(took)/2], "us/call")
				b.ReportMetric(float64(idleCPU.Microseconds())/float64(len(took)*chunk), "empty-cpu-us")
				b.ReportMetric(float64(chooseCPU.Microseconds())/float64(len(took)*chunk), "cpu-us")
			})
		}
	}
}

// BenchmarkDispatch is jobs of turns of six: the first binds the turn's node, five follow it.
func BenchmarkDispatch(b *testing.B) {
	for _, nodes := range []int{10, 10000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			clients := benchFleet(b, nodes)
			b.ResetTimer()
			together(b, clients, b.N, func(ctx context.Context, s *lua.Scripts, i int) error {
				turn := strconv.Itoa(i / 6)
				d, err := s.DispatchJob(ctx, lua.JobCall{
					SessionID: "s" + turn, TurnID: "t" + turn, JobID: "j" + strconv.Itoa(i), RequestID: "r" + strconv.Itoa(i), Dispatch: 1,
					Choice: lua.Choice{PoolID: "p", Strategy: berth.StrategyPowerOfTwo, Hold: time.Minute},
				})
				if err == nil && d.Code != lua.AssignOK {
					return fmt.Errorf("%s", d.Code)
				}
				if err == nil {
					_, err = s.ReleaseNodeSlot(ctx, d.NodeID, d.LeaseID)
				}
				return err
			})
		})
	}
}

// BenchmarkHeartbeat is the cost of a heartbeat in a fleet of 10,000 nodes, by 8 clients, beside an empty script.
func BenchmarkHeartbeat(b *testing.B) {
	for _, nodes := range []int{10, 10000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			clients := benchFleet(b, nodes)
			known, err := clients[0].NodeIDs(b.Context())
			require.NoError(b, err)
			read, err := clients[0].ReadNodes(b.Context(), known...)
			require.NoError(b, err)
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			together(b, clients, b.N, func(ctx context.Context, s *lua.Scripts, i int) error {
				id := known[i*7919%len(known)]
				begin := time.Now()
				code, err := s.HeartbeatNode(ctx, id, read[id].Generation, berth.NodeLoad{CPUUsage: float64(i % 100)}, 0.5)
				took[i] = time.Since(begin)
				if err == nil && code != lua.NodeOK {
					return fmt.Errorf("%s", code)
				}
				return err
			})
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkMemory is what Redis needs for each node, job (with its lease and binding) and session.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	clients := benchFleet(b, 0)
	s := clients[0]
	used := func() float64 {
		info, err := s.Redis().InfoMap(b.Context(), "memory").Result()
		require.NoError(b, err)
		v, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
		require.NoError(b, err)
		return v
	}
	for range min(b.N, 1) {
		require.NoError(b, s.Redis().FlushAll(b.Context()).Err())
		_, err := s.MarkNew(b.Context())
		require.NoError(b, err)
		last := used()
		measure := func(what string, add func(i int)) {
			for i := range n {
				add(i)
			}
			b.ReportMetric((used()-last)/n, "B/"+what)
			last = used()
		}
		measure("node", func(i int) {
			_, err := s.RegisterNode(b.Context(), berth.NodeSpec{
				ID: fmt.Sprintf("node-%05d", i), Kind: berth.NodeTranslate, Hostname: fmt.Sprintf("host-%05d", i), Zone: "zone-1",
				Incarnation:  berth.Incarnation{Host: fmt.Sprintf("host-%05d", i), PID: i + 1, StartedAt: time.Now().UnixMilli()},
				Capabilities: []string{"translate:en-es"}, MaxConcurrentJobs: 4,
			}, lua.Registration{})
			require.NoError(b, err)
		})
		measure("session", func(i int) {
			_, _, err := s.DecideSessionPool(b.Context(), lua.PoolQuestion{
				SessionID: fmt.Sprintf("session-%05d", i), SrcLang: "en", TgtLang: "es", RoutingKey: "tenant-1",
				Eligible: []string{"translate:en-es"}, Affinity: true,
			})
			require.NoError(b, err)
		})
		measure("job", func(i int) {
			d, err := s.DispatchJob(b.Context(), lua.JobCall{
				SessionID: fmt.Sprintf("session-%05d", i), TurnID: fmt.Sprintf("turn-%05d", i), JobID: fmt.Sprintf("job-%05d", i),
				RequestID: fmt.Sprintf("request-%05d", i), Dispatch: 1,
				Choice: lua.Choice{PoolID: "translate:en-es", Strategy: berth.StrategyPowerOfTwo, Hold: time.Hour},
			})
			require.NoError(b, err)
			require.Equal(b, lua.AssignOK, d.Code)
		})
	}
}
