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

// The node slots of P3 as dispatching processes see them. Nothing expires while a history is recorded.
type slotOp struct {
	kind        string // assign, confirm or release
	node, lease string
}

type slotOut struct {
	unknown bool // no answer came: it may take effect at any later time, or never
	code    string
}

// slotStep is what one call does, all at once, to the sorted leases of a node, and what it answers.
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
			was, _ := state.(string)
			in, _ := input.(slotOp)
			got, _ := output.(slotOut)
			next, code := slotStep(slots, was, in)
			return got.unknown || got.code == code, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %v", in, out) },
	}
}

type slotClient func(ctx context.Context, in slotOp) (code string, err error)

// atomicSlots is the real thing: each node is a pool of its own.
func atomicSlots(s *lua.Scripts, generations map[string]int64) slotClient {
	return func(ctx context.Context, in slotOp) (string, error) {
		switch in.kind {
		case "assign":
			d, err := s.Assign(ctx, in.lease, lua.Choice{PoolID: in.node, Hold: time.Hour})
			return d.Code, err
		case "confirm":
			code, _, err := s.ConfirmNodeSlot(ctx, berth.Assignment{
				NodeID: in.node, Generation: generations[in.node], LeaseID: in.lease,
			}, time.Hour)
			return code, err
		default:
			held, err := s.ReleaseNodeSlot(ctx, in.node, in.lease)
			return fmt.Sprint(held), err
		}
	}
}

// countedSlots is the broken thing: it reads how many slots are taken and then takes one, in calls of its own.
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
	most    int64
}

// dispatcherTask is what a dispatching process is told: who it is, and where the slots are.
type dispatcherTask struct {
	Addr, Cell  string
	ID, Nodes   int
	Seed        uint64
	Counted     bool // it uses the broken client
	Generations map[string]int64
}

// slotRecord is one call of a process, at times of the machine's clock in ns.
type slotRecord struct {
	Kind, Node, Lease string
	Call, Return      int64
	Unknown           bool
	Code              string
}

// dispatcher as the only argument makes the test program a dispatching process.
const dispatcher = "dispatcher"

// TestMain also is the dispatching process of TestNodeSlotsAreLinearizable.
func TestMain(m *testing.M) {
	if !slices.Equal(os.Args[1:], []string{dispatcher}) {
		os.Exit(m.Run())
	}
	var task dispatcherTask
	if err := json.NewDecoder(os.Stdin).Decode(&task); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(task.dispatch()); err != nil {
		panic(err)
	}
}

// dispatch takes, confirms and gives back slots, and asks again where no answer came.
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
	do := func(in slotOp) (answered bool) {
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

// run has a process of its own do the task.
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

// operations are the records as porcupine takes them.
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

// recordSlots lets four dispatching processes work through a link that is disturbed all the while.
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
				h.most = max(h.most, direct.Redis().ZCard(t.Context(), keys.NodeSlots(id)).Val())
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
		_, _ = proxy.Toxics.AddToxicJson(strings.NewReader(toxic)) // one less disturbance
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

// P3 over node slots: whatever the link does, four dispatching processes saw one semaphore per node.
func TestNodeSlotsAreLinearizable(t *testing.T) {
	t.Parallel()
	const slots, histories = 2, 10
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var unknown, calls, undecided int
	for i := range uint64(histories) {
		h := recordSlots(t, seed+i, slots, false)
		require.LessOrEqual(t, h.most, int64(slots), "holders at once")
		result, info := porcupine.CheckOperationsVerbose(slotModel(slots), h.ops, 10*time.Second)
		if result == porcupine.Unknown {
			undecided++
			continue
		}
		if result != porcupine.Ok {
			path := filepath.Join(t.ArtifactDir(), "history.html")
			require.NoError(t, porcupine.VisualizePath(slotModel(slots), info, path))
			require.Equal(t, porcupine.Ok, result, "see %s", path)
		}
		unknown, calls = unknown+h.unknown, calls+len(h.ops)
	}
	t.Logf("%d calls, %d without an answer; %d histories undecided", calls, unknown, undecided)
	require.LessOrEqual(t, undecided, histories/4)
	require.Positive(t, unknown, "no call was disturbed: the test shows nothing")
}

// The test of the test: counting and then taking in two calls lets more in than there are slots.
func TestNonAtomicNodeSlotsAreCaught(t *testing.T) {
	t.Parallel()
	caught := false
	for i := uint64(0); i < 20 && !caught; i++ {
		h := recordSlots(t, i, 1, true)
		caught = porcupine.CheckOperationsTimeout(slotModel(1), h.ops, 10*time.Second) == porcupine.Illegal
		t.Logf("most holders at once: %d, caught: %v", h.most, caught)
	}
	require.True(t, caught)
}
