package lua_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// slotOp is one operation of a dispatching process on a node slot (P3). Nothing expires while a history is recorded.
type slotOp struct {
	kind        string // assign, confirm or release
	node, lease string
}

type slotOut struct {
	unknown bool // no reply: it may take effect at any later time, or never
	code    string
}

// slotStep applies one call atomically to the sorted leases of a node and returns the new leases and the code.
func slotStep(slots int, state string, in slotOp) (next, code string) {
	leases := strings.Fields(state)
	held := slices.Contains(leases, in.lease)
	switch {
	case in.kind == "assign" && held:
		code = lua.AssignExists
	case in.kind == "assign" && len(leases) >= slots:
		code = lua.AssignFull
	case in.kind == "assign":
		leases, code = append(leases, in.lease), lua.AssignOK
	case in.kind == "confirm" && held:
		code = lua.NodeSlotHeld
	case in.kind == "confirm":
		code = lua.NodeSlotLost
	default:
		leases, code = slices.DeleteFunc(leases, func(l string) bool { return l == in.lease }), fmt.Sprint(held)
	}
	slices.Sort(leases)
	return strings.Join(leases, " "), code
}

func slotModel(slots int) porcupine.Model {
	return porcupine.Model{
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			byNode := map[string][]porcupine.Operation{}
			for _, op := range ops {
				in, _ := op.Input.(slotOp)
				byNode[in.node] = append(byNode[in.node], op)
			}
			return slices.Collect(maps.Values(byNode))
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			leases, _ := state.(string)
			in, _ := input.(slotOp)
			got, _ := output.(slotOut)
			next, code := slotStep(slots, leases, in)
			return got.unknown || got.code == code, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %v", in, out) },
	}
}

type slotClient func(ctx context.Context, in slotOp) (code string, err error)

// atomicSlots calls the real scripts. Each node has its own pool.
func atomicSlots(s *lua.Scripts, generations map[string]int64) slotClient {
	return func(ctx context.Context, in slotOp) (string, error) {
		switch in.kind {
		case "assign":
			d, err := s.Assign(ctx, in.lease, lua.Choice{PoolID: in.node, Hold: time.Hour})
			return d.Code, err
		case "confirm":
			code, _, err := s.ConfirmNodeSlot(ctx, berth.Assignment{
				NodeRef: berth.NodeRef{NodeID: in.node, Generation: generations[in.node]}, LeaseID: in.lease,
			}, time.Hour)
			return code, err
		default:
			held, err := s.ReleaseNodeSlot(ctx, in.node, in.lease)
			return fmt.Sprint(held), err
		}
	}
}

// countedSlots is a broken client: it counts the held slots and takes one in separate calls.
func countedSlots(s *lua.Scripts, generations map[string]int64) slotClient {
	whole := atomicSlots(s, generations)
	return func(ctx context.Context, in slotOp) (string, error) {
		if in.kind != "assign" {
			return whole(ctx, in)
		}
		n, err := s.ReadNodes(ctx, in.node)
		if err != nil {
			return "", err
		}
		if n[in.node].Leases >= n[in.node].MaxConcurrentJobs {
			return lua.AssignFull, nil
		}
		until := float64(time.Now().Add(time.Hour).UnixMilli())
		added, err := s.Redis().ZAdd(ctx, s.Keys().NodeSlots(in.node), redis.Z{Score: until, Member: in.lease}).Result()
		if added == 0 {
			return lua.AssignExists, err
		}
		return lua.AssignOK, err
	}
}

type slotHistory struct {
	ops     []porcupine.Operation
	unknown int
	maxHeld int64 // maximum number of concurrent holders of a node
}

// dispatcherTask is the input of a dispatching process.
type dispatcherTask struct {
	Addr, Cell  string
	ID, Nodes   int
	Seed        uint64
	Counted     bool // use the broken client
	Generations map[string]int64
}

// slotRecord is one call of a process. Call and Return are in ns of the machine's clock.
type slotRecord struct {
	Kind, Node, Lease string
	Call, Return      int64
	Unknown           bool
	Code              string
}

// dispatcher, as the only argument, makes the test program run as a dispatching process.
const dispatcher = "dispatcher"

// TestMain also runs the dispatching process of TestNodeSlots_FourDispatchersOnFaultyLink_Linearizable.
func TestMain(m *testing.M) {
	if !slices.Equal(os.Args[1:], []string{dispatcher}) {
		code := m.Run()
		cluster.Close()
		os.Exit(code)
	}
	var task dispatcherTask
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(task.dispatch()); err != nil {
		panic(err)
	}
}

// dispatch assigns, confirms and releases slots, and retries calls without a reply.
func (d dispatcherTask) dispatch() (records []slotRecord) {
	rdb := redis.NewClient(&redis.Options{
		Addr: d.Addr, MaxRetries: -1, PoolSize: 2, ReadTimeout: 60 * time.Millisecond, DialTimeout: time.Second,
	})
	defer func() { _ = rdb.Close() }()
	s, dial := lua.New(rdb, lua.Keys{Cell: d.Cell}), atomicSlots
	if d.Counted {
		dial = countedSlots
	}
	call, rnd := dial(s, d.Generations), rand.New(rand.NewPCG(d.Seed, uint64(d.ID)))
	do := func(in slotOp) (replied bool) {
		r := slotRecord{Kind: in.kind, Node: in.node, Lease: in.lease, Call: time.Now().UnixNano()}
		var err error
		r.Code, err = call(context.Background(), in)
		r.Return, r.Unknown = time.Now().UnixNano(), err != nil
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
			return false // never sent
		}
		records = append(records, r)
		return err == nil
	}
	for round := range 12 {
		in := slotOp{"assign", fmt.Sprintf("n%d", (d.ID+round)%d.Nodes), fmt.Sprintf("p%d-%d", d.ID, round)}
		for range 1 + rnd.IntN(2) {
			do(in)
		}
		if rnd.IntN(2) == 0 {
			in.kind = "confirm"
			do(in)
		}
		in.kind = "release"
		for range 3 {
			if do(in) {
				break
			}
		}
	}
	return records
}

// run runs the task in a separate process.
func (d dispatcherTask) run(ctx context.Context) (records []slotRecord, err error) {
	in, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], dispatcher)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dispatching process: %w", err)
	}
	return records, json.Unmarshal(out, &records)
}

// operations converts the records for porcupine. unknown is the number of calls without a reply.
func operations(id int, records []slotRecord) (ops []porcupine.Operation, unknown int) {
	for _, r := range records {
		out := slotOut{code: r.Code}
		if r.Unknown {
			out, r.Return = slotOut{unknown: true}, math.MaxInt64
			unknown++
		}
		ops = append(ops, porcupine.Operation{
			ClientId: id, Input: slotOp{r.Kind, r.Node, r.Lease}, Call: r.Call, Output: out, Return: r.Return,
		})
	}
	return ops, unknown
}

// recordSlots runs four dispatching processes over a faulty link and returns their calls.
func recordSlots(t *testing.T, seed uint64, slots int, counted bool) slotHistory {
	t.Helper()
	const clients, nodes = 4, 2
	server := testredis.Start(t)
	keys := lua.Keys{Cell: testredis.Cell(t)}
	direct := lua.New(server.Client(), keys)
	_, err := direct.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, direct.Load(t.Context()))
	generations := map[string]int64{}
	for i := range nodes {
		id := fmt.Sprintf("n%d", i)
		r, err := direct.RegisterNode(t.Context(), berth.NodeSpec{
			ID: id, Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
			Capabilities: []string{id}, MaxConcurrentJobs: slots,
		}, lua.Registration{})
		require.NoError(t, err)
		generations[id] = r.Generation
	}
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "redis", "127.0.0.1:0", server.Addr())
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var disturbing sync.WaitGroup
	disturbing.Go(func() { disturbProxy(ctx, proxy, rand.New(rand.NewPCG(seed, 99))) })
	defer disturbing.Wait()
	defer stop()
	type result struct {
		id      int
		records []slotRecord
		err     error
	}
	results := make(chan result, clients)
	for id := range clients {
		go func() {
			task := dispatcherTask{
				Addr: proxy.Listen, Cell: keys.Cell, ID: id, Nodes: nodes, Seed: seed, Counted: counted, Generations: generations,
			}
			records, err := task.run(ctx)
			results <- result{id, records, err}
		}()
	}
	h := slotHistory{}
	for running := clients; running > 0; {
		select {
		case r := <-results:
			require.NoError(t, r.err)
			ops, unknown := operations(r.id, r.records)
			h.ops, h.unknown, running = append(h.ops, ops...), h.unknown+unknown, running-1
		default:
			for id := range generations {
				h.maxHeld = max(h.maxHeld, direct.Redis().ZCard(t.Context(), keys.NodeSlots(id)).Val())
			}
		}
	}
	return h
}

// disturbProxy delays, resets and cuts the link at random until ctx ends.
func disturbProxy(ctx context.Context, proxy *toxiproxy.Proxy, rnd *rand.Rand) {
	for {
		toxic := []string{
			`{"type":"latency","stream":"downstream","toxicity":0.7,"attributes":{"latency":4,"jitter":4}}`,
			`{"type":"latency","stream":"upstream","toxicity":0.7,"attributes":{"latency":4,"jitter":4}}`,
			`{"type":"reset_peer","stream":"downstream","toxicity":0.2,"attributes":{"timeout":0}}`,
			`{"type":"reset_peer","stream":"upstream","toxicity":0.2,"attributes":{"timeout":2}}`,
			fmt.Sprintf(`{"type":"limit_data","stream":"downstream","toxicity":0.2,"attributes":{"bytes":%d}}`, rnd.IntN(300)),
		}[rnd.IntN(5)]
		_, _ = proxy.Toxics.AddToxicJson(strings.NewReader(toxic)) // an error means one fault less
		pause := time.NewTimer(time.Duration(2+rnd.IntN(15)) * time.Millisecond)
		select {
		case <-pause.C:
			proxy.Toxics.ResetToxics(context.WithoutCancel(ctx))
		case <-ctx.Done():
			pause.Stop()
			proxy.Toxics.ResetToxics(context.WithoutCancel(ctx))
			return
		}
	}
}

// P3 for node slots: with any faults of the link, the calls of four dispatching processes are linearizable per node.
func TestNodeSlots_FourDispatchersOnFaultyLink_Linearizable(t *testing.T) {
	t.Parallel()
	const slots = 2
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var unknown, calls, decided int
	// On a busy machine more calls stay without a reply, and some histories have too many of them to try every order.
	for i := uint64(0); decided < 8; i++ {
		require.Less(t, i, uint64(32), "too few histories could be checked")
		h := recordSlots(t, seed+i, slots, false)
		require.LessOrEqual(t, h.maxHeld, int64(slots), "concurrent holders")
		result, info := porcupine.CheckOperationsVerbose(slotModel(slots), h.ops, 2*time.Second)
		if result == porcupine.Unknown {
			continue
		}
		decided++
		if result != porcupine.Ok {
			path := filepath.Join(t.ArtifactDir(), "history.html")
			require.NoError(t, porcupine.VisualizePath(slotModel(slots), info, path))
			require.Equal(t, porcupine.Ok, result, "see %s", path)
		}
		unknown, calls = unknown+h.unknown, calls+len(h.ops)
	}
	t.Logf("%d calls, %d without a reply", calls, unknown)
	require.Positive(t, unknown, "no call lost its reply, so the test proves nothing")
}

// This test checks the checker: counting and then taking a slot in two calls grants more slots than there are.
func TestNodeSlots_NonAtomicClient_CheckerDetectsIt(t *testing.T) {
	t.Parallel()
	caught := false
	for i := uint64(0); i < 20 && !caught; i++ {
		h := recordSlots(t, i, 1, true)
		caught = porcupine.CheckOperationsTimeout(slotModel(1), h.ops, 10*time.Second) == porcupine.Illegal
		t.Logf("maximum number of concurrent holders: %d, caught: %v", h.maxHeld, caught)
	}
	require.True(t, caught)
}
