package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/config"
	"berth/lua"
)

const (
	dispatchers = 8
	// chunk is the number of calls timed together. Their leases are released, untimed, before the next chunk.
	chunk = 1000
	// chunks is the number of chunks for each strategy and pool size.
	chunks = 20
)

// fleetSizes returns the pool sizes that are measured.
func fleetSizes() []int { return []int{10, 100, 1000, 10_000} }

// choose measures and prints the cost of choosing a node and reserving a slot, compared with an empty script that has as
// many keys and arguments. The same clients alternate between the two, so that other load affects both equally; the ratio
// is the median over all chunks.
func choose(ctx context.Context, w io.Writer, cfg config.Config) (err error) {
	rdbs := make([]*redis.Client, dispatchers)
	for i := range rdbs {
		rdbs[i] = redis.NewClient(&redis.Options{Addr: cfg.Redis.Addr, PoolSize: 1})
		defer func() { err = errors.Join(err, rdbs[i].Close()) }()
	}
	_, _ = fmt.Fprintf(w, "choose + reserve, %d dispatchers, us per call; baseline an empty EVALSHA with as many keys and arguments; goal >= 0.60 of its throughput, 10 to 10,000 nodes <= 1.3x\n", dispatchers)
	for _, strategy := range []berth.Strategy{
		berth.StrategyPowerOfTwo, berth.StrategyLoadBalanced, berth.StrategyRoundRobin, berth.StrategyLocality,
	} {
		var smallest float64
		for _, nodes := range fleetSizes() {
			took, of, err := chooseIn(ctx, rdbs, nodes, strategy)
			if err != nil {
				return err
			}
			if smallest == 0 {
				smallest = took
			}
			_, _ = fmt.Fprintf(w, "  %-14s %6d nodes  berth %6.1f  baseline %6.1f  ratio %.2f  relative to the smallest pool %.2fx\n",
				strategy, nodes, took, took*of, of, took/smallest)
		}
	}
	_, _ = fmt.Fprintln(w)
	return nil
}

// chooseIn measures one strategy in a pool of n nodes. It returns microseconds per call and the throughput as a share of
// the empty script's.
func chooseIn(ctx context.Context, rdbs []*redis.Client, n int, strategy berth.Strategy) (took, of float64, err error) {
	clients := make([]*lua.Scripts, len(rdbs))
	for i, rdb := range rdbs {
		clients[i] = lua.New(rdb, lua.Keys{Cell: fmt.Sprintf("choose-%s-%d", strategy, n)})
	}
	if _, err := clients[0].MarkNew(ctx); err != nil {
		return 0, 0, err
	}
	for i := range n {
		if err := registerBare(ctx, clients[0], i, berth.MaxNodeConcurrency); err != nil {
			return 0, 0, err
		}
	}
	empty := redis.NewScript("return {'OK','n00001','1790000000000','power-of-two'}")
	if err := empty.Load(ctx, rdbs[0]).Err(); err != nil {
		return 0, 0, fmt.Errorf("load empty script: %w", err)
	}
	assigned := make([]berth.Assignment, chunk)
	var calls, ratios []float64
	for range chunks {
		baseline, err := timeCalls(ctx, rdbs, chunk, func(ctx context.Context, rdb *redis.Client, i int) error {
			return empty.EvalSha(ctx, rdb, []string{"lease:guard", "scheduler:leases"}, "scheduler:",
				strconv.Itoa(i), 60000, benchPool, "power-of-two", i*7919, "").Err()
		})
		if err != nil {
			return 0, 0, fmt.Errorf("empty script: %w", err)
		}
		measured, err := timeCalls(ctx, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
			c := lua.Choice{PoolID: benchPool, Strategy: strategy, Hold: time.Minute}
			if strategy == berth.StrategyLocality {
				c.OwnZone, c.OwnHost = "z1", "h7"
			}
			d, err := s.Assign(ctx, strconv.Itoa(i), c)
			if err == nil && d.Code != lua.AssignOK {
				return fmt.Errorf("assign: %s", d.Code)
			}
			assigned[i] = d.Assignment
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		calls, ratios = append(calls, float64(measured.Microseconds())/chunk), append(ratios, float64(baseline)/float64(measured))
		if _, err := timeCalls(ctx, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
			_, err := s.ReleaseNodeSlot(ctx, assigned[i].NodeID, assigned[i].LeaseID)
			return err
		}); err != nil {
			return 0, 0, err
		}
	}
	slices.Sort(calls)
	slices.Sort(ratios)
	return calls[len(calls)/2], ratios[len(ratios)/2], nil
}

// benchPool is the pool and the capability of all nodes of a benchmark.
const benchPool = "translate:en-es"

func registerBare(ctx context.Context, s *lua.Scripts, i, slots int) error {
	_, err := s.RegisterNode(ctx, berth.NodeSpec{
		ID: fmt.Sprintf("n%05d", i), Kind: berth.NodeTranslate, Hostname: fmt.Sprintf("h%d", i/4), Zone: fmt.Sprintf("z%d", i%3),
		Incarnation:  berth.Incarnation{Host: fmt.Sprintf("h%d", i/4), PID: i + 1, StartedAt: time.Now().UnixMilli()},
		Capabilities: []string{benchPool}, MaxConcurrentJobs: slots,
	}, lua.Registration{})
	return err
}

// timeCalls distributes n calls over the clients and returns the total time.
func timeCalls[C any](ctx context.Context, clients []C, n int, call func(ctx context.Context, client C, i int) error) (time.Duration, error) {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for _, s := range clients {
		g.Go(func() error {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := call(ctx, s, i-1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(begin), err
}

// memory measures and prints the Redis memory used per node, session and job (with its lease and request binding).
func memory(ctx context.Context, w io.Writer, cfg config.Config) (err error) {
	const n = 10_000
	rdb := redis.NewClient(&redis.Options{Addr: cfg.Redis.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	s := lua.New(rdb, lua.Keys{Cell: "memory"})
	if _, err := s.MarkNew(ctx); err != nil {
		return err
	}
	last, err := usedMemory(ctx, rdb)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "Redis memory, %d of each\n", n)
	for _, what := range []struct {
		name string
		add  func(i int) error
	}{
		{"node", func(i int) error { return registerBare(ctx, s, i, berth.DefaultMaxConcurrentJobs) }},
		{"session", func(i int) error {
			_, _, err := s.DecideSessionPool(ctx, lua.SessionPoolRequest{
				SessionID: fmt.Sprintf("session-%05d", i), SrcLang: "en", TgtLang: "es", RoutingKey: "tenant-1", UserID: "alice",
				Eligible: []string{benchPool}, Affinity: true,
			})
			return err
		}},
		{"job", func(i int) error {
			d, err := s.DispatchJob(ctx, lua.JobCall{
				SessionID: fmt.Sprintf("session-%05d", i), TurnID: fmt.Sprintf("turn-%05d", i), JobID: fmt.Sprintf("job-%05d", i),
				RequestID: fmt.Sprintf("request-%05d", i), Dispatch: 1,
				Choice: lua.Choice{PoolID: benchPool, Strategy: berth.StrategyPowerOfTwo, Hold: time.Hour},
			})
			if err == nil && d.Code != lua.AssignOK {
				return fmt.Errorf("dispatch: %s", d.Code)
			}
			return err
		}},
	} {
		for i := range n {
			if err := what.add(i); err != nil {
				return err
			}
		}
		now, err := usedMemory(ctx, rdb)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "  per %-8s %5d bytes\n", what.name, (now-last)/n)
		last = now
	}
	_, _ = fmt.Fprintln(w)
	return nil
}

func usedMemory(ctx context.Context, rdb *redis.Client) (int64, error) {
	info, err := rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("read Redis memory usage: %w", err)
	}
	return strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
}
