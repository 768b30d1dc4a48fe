package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/lua"
)

// The semaphore of P3 from the view of its clients. Nothing expires while a history is recorded, so the model needs no time.
type opKind int

const (
	opAcquire opKind = iota
	opRenew
	opRelease
)

type opInput struct {
	kind  opKind
	model string
	lease string
}

// opOutput is a reply. It is unknown if none was received: the call may take effect at any later time, or never.
type opOutput struct {
	unknown  bool
	code     string
	position int
	order    int64 // of a waiter; a release returns the number of held slots in position
}

// semaphore is the model's state: the holders (sorted), the waiters as lease:order in the order of service, and the last
// order assigned. It is a value, so it can be compared. An order that was not returned yet is 0.
type semaphore struct {
	holders, waiters string
	last             int64
}

type waiter struct {
	lease string
	order int64
}

// step returns the state after one atomic call, and whether got can be its reply.
func (s semaphore) step(slots int, in opInput, got opOutput) (semaphore, bool) {
	holders, waiters := strings.Fields(s.holders), parseWaiters(s.waiters)
	is := func(l string) bool { return l == in.lease }
	waits := func(w waiter) bool { return w.lease == in.lease }
	held := slices.ContainsFunc(holders, is)
	want := opOutput{}
	switch {
	case held && in.kind != opRelease:
		want.code = lua.SlotHeld
	case in.kind == opRenew:
		want.code = lua.SlotLost
	case in.kind == opAcquire:
		if !slices.ContainsFunc(waiters, waits) {
			waiters = append(waiters, waiter{lease: in.lease})
		}
	default:
		holders, waiters = slices.DeleteFunc(holders, is), slices.DeleteFunc(waiters, waits)
		want.code = lua.SlotReleased
		if held {
			want.position = 1
		}
	}
	for len(holders) < slots && len(waiters) > 0 {
		holders, waiters = append(holders, waiters[0].lease), waiters[1:]
	}
	if want.code == "" {
		want.code = lua.SlotGranted
		if i := slices.IndexFunc(waiters, waits); i >= 0 {
			w := &waiters[i]
			if w.order == 0 && !got.unknown && orderFits(waiters, i, got.order) && (i < len(waiters)-1 || got.order > s.last) {
				w.order = got.order // known from now on
				s.last = max(s.last, got.order)
			}
			want = opOutput{code: lua.SlotWaiting, position: i, order: w.order}
		}
	}
	slices.Sort(holders)
	s.holders, s.waiters = strings.Join(holders, " "), formatWaiters(waiters)
	return s, got.unknown || got == want
}

// orderFits reports whether the i-th waiter can have the order, by its neighbours.
func orderFits(waiters []waiter, i int, order int64) bool {
	for j, w := range waiters {
		if w.order != 0 && (j < i && w.order >= order || j > i && w.order <= order) {
			return false
		}
	}
	return order > 0
}

func parseWaiters(s string) (out []waiter) {
	for _, f := range strings.Fields(s) {
		at := strings.LastIndexByte(f, ':')
		n, _ := strconv.ParseInt(f[at+1:], 10, 64)
		out = append(out, waiter{f[:at], n})
	}
	return out
}

func formatWaiters(waiters []waiter) string {
	var f []string
	for _, w := range waiters {
		f = append(f, w.lease+":"+strconv.FormatInt(w.order, 10))
	}
	return strings.Join(f, " ")
}

func semaphoreModel(slots int) porcupine.Model {
	return porcupine.Model{
		// Models are independent, so each is checked as its own semaphore; that keeps the search small.
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			byModel := map[string][]porcupine.Operation{}
			for _, op := range ops {
				in, _ := op.Input.(opInput)
				byModel[in.model] = append(byModel[in.model], op)
			}
			return slices.Collect(maps.Values(byModel))
		},
		Init: func() any { return semaphore{} },
		Step: func(state, input, output any) (bool, any) {
			s, _ := state.(semaphore)
			in, _ := input.(opInput)
			got, _ := output.(opOutput)
			next, ok := s.step(slots, in, got)
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %v", in, out) },
	}
}

// client makes one call and returns the reply.
type client func(ctx context.Context, in opInput) (opOutput, error)

// long times: nothing expires during a history.
var calm = lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}

// twoUpstreams returns the limits of a model whose slots are those of two upstreams.
func twoUpstreams(slots int) lua.ModelLimits {
	return lua.ModelLimits{Upstreams: []lua.UpstreamLimits{{Name: "u0", Rank: 1, Cap: 1}, {Name: "u1", Rank: 1, Cap: slots - 1}}}
}

// scripted is the implementation with the real scripts.
func scripted(_ *redis.Client, s *lua.Scripts, slots int) client {
	limits := twoUpstreams(slots)
	return func(ctx context.Context, in opInput) (opOutput, error) {
		switch in.kind {
		case opAcquire:
			r, err := s.AcquireSlot(ctx, lua.SlotCall{Model: in.model, Limits: limits, Lease: in.lease, Times: calm})
			order, _, _ := strings.Cut(r.Ticket, "/")
			n, _ := strconv.ParseInt(order, 10, 64)
			return opOutput{code: r.Code, position: r.Position, order: n}, err
		case opRenew:
			_, out, err := s.RenewSlots(ctx, calm, []lua.ModelLeases{{Model: in.model, Limits: limits, Holders: []lua.HeldLease{{Lease: in.lease, Upstream: "u0"}}}})
			if err != nil {
				return opOutput{}, err
			}
			return opOutput{code: out[0].Holders[0]}, nil
		default:
			held, _, err := s.ReleaseSlot(ctx, in.model, limits, calm, in.lease)
			return opOutput{code: lua.SlotReleased, position: held}, err
		}
	}
}

// counted is the broken variant: it counts and then adds in separate calls, like a lock in a plain set. No client adds for
// the first time before all clients have counted, or continues before all have added, so that the race occurs on any machine.
func counted(clients int) func(*redis.Client, *lua.Scripts, int) client {
	var counting, adding sync.WaitGroup
	counting.Add(clients)
	adding.Add(clients)
	return func(rdb *redis.Client, s *lua.Scripts, slots int) client {
		whole := scripted(rdb, s, slots)
		first := true // the calls of one client follow each other
		return func(ctx context.Context, in opInput) (opOutput, error) {
			if in.kind != opAcquire {
				return whole(ctx, in)
			}
			together := func(all *sync.WaitGroup) {
				if first {
					all.Done()
					all.Wait()
				}
			}
			holders := s.Keys().ModelHolders(in.model)
			n, err := rdb.ZCard(ctx, holders).Result()
			together(&counting)
			if err != nil {
				together(&adding)
				return opOutput{}, err
			}
			if n >= int64(slots) {
				return whole(ctx, in)
			}
			until := float64(time.Now().Add(time.Hour).UnixMilli())
			added, err := rdb.ZAdd(ctx, holders, redis.Z{Score: until, Member: in.lease}).Result()
			together(&adding)
			first = false
			if added == 0 {
				return opOutput{code: lua.SlotHeld}, err
			}
			return opOutput{code: lua.SlotGranted}, err
		}
	}
}

// history has the calls and replies of the clients in the form that porcupine needs.
type history struct {
	ops     []porcupine.Operation
	unknown int
	holders int64 // maximum of concurrent holders, by Redis
	above   int64 // maximum of holders of an upstream above its cap, by Redis
}

// clients work concurrently in a history.
const clients = 12

// record runs the clients over a link that is disturbed all the time, or never.
func record(t *testing.T, seed uint64, slots int, disturbed bool, dial func(*redis.Client, *lua.Scripts, int) client) history {
	t.Helper()
	const rounds, models = 4, 3
	c := newCell(t)
	require.NoError(t, c.scripts.Load(t.Context()))
	l := c.link()
	ctx, stop := context.WithCancel(t.Context())
	var disturbing, working sync.WaitGroup
	timeout := waitLimit
	if disturbed {
		timeout = 60 * time.Millisecond
		disturbing.Go(func() { disturb(ctx, l, rand.New(rand.NewPCG(seed, 99))) })
	}
	began := time.Now()
	results := make([][]porcupine.Operation, clients)
	for id := range clients {
		rdb := redis.NewClient(&redis.Options{
			Addr: l.addr(), MaxRetries: -1, PoolSize: 2, ReadTimeout: timeout, DialTimeout: max(time.Second, timeout),
		})
		t.Cleanup(func() { _ = rdb.Close() })
		call := dial(rdb, lua.New(rdb, c.keys), slots)
		rnd := rand.New(rand.NewPCG(seed, uint64(id)))
		do := func(in opInput) opOutput {
			op := porcupine.Operation{ClientId: id, Input: in, Call: int64(time.Since(began))}
			out, err := call(ctx, in)
			op.Return = int64(time.Since(began))
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				return opOutput{unknown: true} // the call was never sent
			}
			if err != nil {
				out = opOutput{unknown: true}
				op.Return = math.MaxInt64
			}
			op.Output = out
			results[id] = append(results[id], op)
			return out
		}
		working.Go(func() {
			for round := range rounds {
				model := "m" + strconv.Itoa(id%models)
				lease := lua.Lease{
					Process: "p" + strconv.Itoa(id), Path: lua.Path{Queue: "q_paid_stream", UserID: "u"}, Rest: strconv.Itoa(round),
				}.ID()
				for range 1 + rnd.IntN(3) { // retried: still waiting, or claimed, or sent again without a reply
					do(opInput{opAcquire, model, lease})
				}
				if rnd.IntN(2) == 0 {
					do(opInput{opRenew, model, lease})
				}
				for range 3 {
					if !do(opInput{opRelease, model, lease}).unknown {
						break
					}
				}
			}
		})
	}
	h := history{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		working.Wait()
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			for i := range models {
				model := "m" + strconv.Itoa(i)
				h.holders = max(h.holders, c.count(c.keys.ModelHolders(model)))
				for _, u := range twoUpstreams(slots).Upstreams {
					h.above = max(h.above, c.count(c.keys.UpstreamHolders(model, u.Name))-int64(u.Cap))
				}
			}
		}
	}
	stop()
	disturbing.Wait()
	for _, ops := range results {
		for _, op := range ops {
			if out, _ := op.Output.(opOutput); out.unknown {
				h.unknown++
			}
		}
		h.ops = append(h.ops, ops...)
	}
	return h
}

// disturb delays, resets and cuts the link at random until ctx ends.
func disturb(ctx context.Context, l *link, rnd *rand.Rand) {
	for {
		toxic := []string{
			`{"type":"latency","stream":"downstream","toxicity":0.7,"attributes":{"latency":4,"jitter":4}}`,
			`{"type":"latency","stream":"upstream","toxicity":0.7,"attributes":{"latency":4,"jitter":4}}`,
			`{"type":"reset_peer","stream":"downstream","toxicity":0.2,"attributes":{"timeout":0}}`,
			`{"type":"reset_peer","stream":"upstream","toxicity":0.2,"attributes":{"timeout":2}}`,
			`{"type":"limit_data","stream":"downstream","toxicity":0.2,"attributes":{"bytes":` + strconv.Itoa(rnd.IntN(300)) + `}}`,
		}[rnd.IntN(5)]
		l.add(toxic)
		pause := time.NewTimer(time.Duration(2+rnd.IntN(15)) * time.Millisecond)
		select {
		case <-pause.C:
			l.heal()
		case <-ctx.Done():
			pause.Stop()
			l.heal()
			return
		}
	}
}

// P3: over a disturbed link, the replies to all clients are those of one semaphore.
func TestSemaphore_FaultyNetwork_IsLinearizable(t *testing.T) {
	t.Parallel()
	const slots = 2
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var unknown, calls, decided int
	// On a busy machine more calls stay without an answer, and some histories have too many of them to try every order.
	for i := uint64(0); decided < 16; i++ {
		require.Less(t, i, uint64(64), "too few histories could be checked")
		h := record(t, seed+i, slots, true, scripted)
		require.LessOrEqual(t, h.holders, int64(slots), "concurrent holders")
		require.Zero(t, h.above, "concurrent holders of an upstream above its cap")
		result, info := porcupine.CheckOperationsVerbose(semaphoreModel(slots), h.ops, 2*time.Second)
		if result == porcupine.Unknown {
			continue
		}
		decided++
		if result != porcupine.Ok {
			path := filepath.Join(t.ArtifactDir(), "history.html")
			require.NoError(t, porcupine.VisualizePath(semaphoreModel(slots), info, path))
			require.Equal(t, porcupine.Ok, result, "see %s", path)
		}
		unknown, calls = unknown+h.unknown, calls+len(h.ops)
	}
	t.Logf("%d calls, %d without an answer", calls, unknown)
	require.Positive(t, unknown, "no call was disturbed: the test proves nothing")
}

// This verifies the check: an implementation that counts and then adds in two calls must be found to exceed the slots.
func TestSemaphore_NonAtomicVariant_IsCaught(t *testing.T) {
	t.Parallel()
	const slots = 2
	h := record(t, 1, slots, false, counted(clients))
	require.Zero(t, h.unknown)
	require.False(t, porcupine.CheckOperations(semaphoreModel(slots), h.ops), "maximum of concurrent holders: %d", h.holders)
}
