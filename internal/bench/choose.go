package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/fleet"
	"berth/internal/placement"
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

// benchmarked returns the strategies that are measured.
func benchmarked() []berth.Strategy {
	return []berth.Strategy{
		berth.StrategyPowerOfTwo, berth.StrategyLoadBalanced, berth.StrategyRoundRobin, berth.StrategyLocality,
	}
}

// choose measures the cost of choosing a node and reserving a slot as the product does it: through package placement,
// with the services that the pool's capability needs and one more, which is marked as unavailable on some nodes, on nodes with
// the pairs of eight languages in three zones. The baseline is a script that makes the Redis calls of such a decision and
// decides nothing. The same clients alternate between the two, so that other load affects both equally; the ratio is the median
// over all chunks.
func (r *Run) choose(ctx context.Context) (err error) {
	rdbs := make([]*redis.Client, dispatchers)
	for i := range rdbs {
		rdbs[i] = redisClient(r.Config)
		defer func() { err = errors.Join(err, rdbs[i].Close()) }()
	}
	smallest, least := map[berth.Strategy]float64{}, fmt.Sprintf("the same with %d nodes", fleetSizes()[0])
	for _, nodes := range fleetSizes() {
		r.step("choice of %d nodes", nodes)
		err := r.measureFleet(ctx, rdbs, nodes, allPairs(), func(strategy berth.Strategy, took, of float64) {
			if smallest[strategy] == 0 {
				smallest[strategy] = took
			}
			name := fmt.Sprintf("choose + reserve, %s, %d nodes", strategy, nodes)
			r.add(Figure{Name: name + ": throughput", Unit: "/s", Value: 1e6 / took}.
				beside("a script with only the Redis calls of the decision", 1e6/took/of).within(minRatio(0.8)))
			if nodes == slices.Max(fleetSizes()) {
				r.add(Figure{Name: name + ": time per call", Unit: "us", Value: took}.beside(least, smallest[strategy]).within(maxRatio(1.3)))
			}
		})
		if err != nil {
			return err
		}
	}
	const nodes = 1000
	single := map[berth.Strategy]float64{}
	for _, pairs := range [][]string{allPairs()[:1], allPairs()} {
		r.step("choice of %d nodes in %d pools each", nodes, len(pairs))
		err := r.measureFleet(ctx, rdbs, nodes, pairs, func(strategy berth.Strategy, took, _ float64) {
			if len(pairs) == 1 {
				single[strategy] = took
				return
			}
			r.add(Figure{Name: fmt.Sprintf("choose + reserve, %s, %d nodes in %d pools each: time per call", strategy, nodes, len(pairs)), Unit: "us", Value: took}.
				beside("the same in one pool", single[strategy]).within(maxRatio(1.5)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// allPairs returns the capabilities of nodes that translate between eight languages; benchPool is the first.
func allPairs() []string {
	out, _ := berth.TranslatePairs("languages", []string{"en"}, []string{"es"})
	languages := []string{"de", "en", "es", "fr", "it", "ja", "pt", "zh"}
	pairs, _ := berth.TranslatePairs("languages", languages, languages) // known languages
	return append(out, slices.DeleteFunc(pairs, func(c string) bool { return c == benchPool })...)
}

// markedService is the service that is unavailable on every tenth node.
const markedService = "glossary"

// measureFleet registers n nodes with the capabilities and measures each strategy in the pool of the first one.
func (r *Run) measureFleet(ctx context.Context, rdbs []*redis.Client, n int, capabilities []string, result func(strategy berth.Strategy, took, of float64)) error {
	clients := make([]*lua.Scripts, len(rdbs))
	for i, rdb := range rdbs {
		clients[i] = lua.New(rdb, lua.Keys{Cell: fmt.Sprintf("choose-%d-%d", n, len(capabilities))})
	}
	if err := registerFleet(ctx, clients[0], n, capabilities); err != nil {
		return err
	}
	for _, strategy := range benchmarked() {
		took, of, err := measureChoice(ctx, rdbs, clients, strategy, r.times(chunks))
		if err != nil {
			return err
		}
		result(strategy, took, of)
	}
	return nil
}

// registerFleet registers n nodes with the capabilities; a service is unavailable on every tenth.
func registerFleet(ctx context.Context, s *lua.Scripts, n int, capabilities []string) error {
	if _, err := s.MarkNew(ctx); err != nil {
		return err
	}
	for i := range n {
		spec := bareNode(i, berth.MaxNodeConcurrency)
		spec.Capabilities = capabilities
		if _, err := s.RegisterNode(ctx, spec, lua.Registration{}); err != nil {
			return err
		}
		if i%10 == 9 {
			if _, err := s.MarkUnavailable(ctx, spec.ID, markedService, time.Hour); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchRequest is the work of a measured decision.
func benchRequest(strategy berth.Strategy) placement.Request {
	return placement.Request{Requirements: berth.Requirements{
		PoolID: benchPool, Strategy: strategy, Services: []string{markedService}, OwnZone: benchZone, OwnHost: benchHost,
	}, Hold: time.Minute}
}

// measureChoice measures one strategy. It returns microseconds per call and the throughput as a share of the baseline's.
func measureChoice(ctx context.Context, rdbs []*redis.Client, clients []*lua.Scripts, strategy berth.Strategy, chunks int) (took, of float64, err error) {
	bare, err := newBareDecision(ctx, rdbs[0], clients[0], strategy)
	if err != nil {
		return 0, 0, err
	}
	placers := make([]*placement.Placer, len(clients))
	for i, s := range clients {
		placers[i] = placement.New(s, unchanging{})
	}
	request := benchRequest(strategy)
	assigned, bareNodes := make([]berth.Assignment, chunk), make([]string, chunk)
	var calls, ratios []float64
	for range chunks {
		baseline, err := timeCalls(ctx, rdbs, chunk, func(ctx context.Context, rdb *redis.Client, i int) (err error) {
			bareNodes[i], err = bare.run(ctx, rdb, i)
			return err
		})
		if err != nil {
			return 0, 0, fmt.Errorf("baseline: %w", err)
		}
		measured, err := timeCalls(ctx, placers, chunk, func(ctx context.Context, p *placement.Placer, i int) (err error) {
			assigned[i], err = p.Assign(ctx, decidedLease(i), request)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		calls, ratios = append(calls, float64(measured.Microseconds())/chunk), append(ratios, float64(baseline)/float64(measured))
		if _, err := timeCalls(ctx, clients, chunk, func(ctx context.Context, s *lua.Scripts, i int) error {
			_, err := s.ReleaseNodeSlot(ctx, assigned[i].NodeID, assigned[i].LeaseID)
			_, bareErr := s.ReleaseNodeSlot(ctx, bareNodes[i], bareLease(i))
			return errors.Join(err, bareErr)
		}); err != nil {
			return 0, 0, err
		}
	}
	slices.Sort(calls)
	slices.Sort(ratios)
	return calls[len(calls)/2], ratios[len(ratios)/2], nil
}

// unchanging is a fleet without defined pools, whose snapshot does not change during a measurement.
type unchanging struct{}

func (unchanging) Snapshot() *fleet.Snapshot {
	return &fleet.Snapshot{Config: berth.DefaultFleetConfig()}
}

func (unchanging) CatchUp(context.Context) {}

func (unchanging) Ready() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

// benchZone and benchHost are those of the caller of a decision.
const benchZone, benchHost = "z1", "h7"

// benchPool is the pool and the capability of all nodes of a benchmark.
const benchPool = "translate:en-es"

func bareNode(i, slots int) berth.NodeSpec {
	return berth.NodeSpec{
		ID: fmt.Sprintf("n%05d", i), Kind: berth.NodeTranslate, Hostname: fmt.Sprintf("h%d", i/4), Zone: fmt.Sprintf("z%d", i%3),
		Incarnation:  berth.Incarnation{Host: fmt.Sprintf("h%d", i/4), PID: i + 1, StartedAt: time.Now().UnixMilli()},
		Capabilities: []string{benchPool}, MaxConcurrentJobs: slots,
	}
}

func registerBare(ctx context.Context, s *lua.Scripts, i, slots int) error {
	_, err := s.RegisterNode(ctx, bareNode(i, slots), lua.Registration{})
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

// memory measures the Redis memory used per node, session and job (with its lease and request binding).
func (r *Run) memory(ctx context.Context) (err error) {
	n := r.times(10_000)
	r.step("Redis memory of %d nodes, sessions and jobs", n)
	rdb := redisClient(r.Config)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	s := lua.New(rdb, lua.Keys{Cell: "memory"})
	if _, err := s.MarkNew(ctx); err != nil {
		return err
	}
	last, err := usedMemory(ctx, rdb)
	if err != nil {
		return err
	}
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
			d, err := s.DispatchJob(ctx, berth.JobRequest{Job: berth.Job{
				SessionID: fmt.Sprintf("session-%05d", i), TurnID: fmt.Sprintf("turn-%05d", i), JobID: fmt.Sprintf("job-%05d", i),
				Dispatch: 1, SrcLang: "en", TgtLang: "es",
			}, UserID: "alice", RequestID: fmt.Sprintf("request-%05d", i), PoolID: benchPool},
				lua.Choice{PoolID: benchPool, Strategy: berth.StrategyPowerOfTwo, Hold: time.Hour})
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
		r.add(Figure{Name: "Redis memory of a " + what.name, Unit: "bytes", Value: float64(now-last) / float64(n)})
		last = now
	}
	return nil
}

func usedMemory(ctx context.Context, rdb *redis.Client) (int64, error) {
	info, err := rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("read Redis memory usage: %w", err)
	}
	return strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
}
