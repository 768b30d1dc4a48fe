package lua_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// slotTimes are long enough that nothing expires during a table test.
var slotTimes = lua.SlotTimes{TTL: 50 * time.Second, Grant: 10 * time.Second}

// patience is for one call of a script, which is interpreted slowly by the embedded server on a busy machine.
const patience = time.Minute

const (
	ttlMs   = 50_000
	grantMs = 10_000

	interestMs = ttlMs - grantMs // of waiters
)

var cluster testredis.SharedCluster

// slotServers returns the servers on which the scripts must return the same results.
func slotServers(t *testing.T) map[string]redis.UniversalClient {
	t.Helper()
	embedded := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, ReadTimeout: patience})
	t.Cleanup(func() { _ = embedded.Close() })
	server := testredis.Start(t)
	server.Do(aclUser(t)...)
	limited := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "berth", Password: "PASSWORD", MaxRetries: -1, ReadTimeout: patience})
	t.Cleanup(func() { _ = limited.Close() })
	return map[string]redis.UniversalClient{"redis": limited, "embedded": embedded, "cluster": cluster.Client(t)}
}

// aclUser returns the command of docs/operations.md that creates a Redis user with the permissions that berth needs, for the
// cells of these tests.
func aclUser(t *testing.T) (command []any) {
	t.Helper()
	b, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER berth .*$`).FindString(string(b))
	require.Contains(t, line, "{prod}", "the command names a cell")
	for _, word := range strings.Fields(strings.ReplaceAll(line, "{prod}", "{test-*}")) {
		command = append(command, word)
	}
	return command
}

// onAll runs the test on each server with its own cell and a guard, so that slots are granted immediately.
func onAll(t *testing.T, servers map[string]redis.UniversalClient, test func(t *testing.T, s *lua.Scripts)) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		t.Run(name, func(t *testing.T) {
			s := lua.New(servers[name], lua.Keys{Cell: testredis.Cell(t)})
			_, err := s.MarkNew(t.Context())
			require.NoError(t, err)
			test(t, s)
		})
	}
}

// modelState is the state of a model's slots. In a state to seed, expiries are in ms from the seeding. In an expected state
// they are `keep` if the call leaves them, or `fresh` if the call sets them.
type modelState struct {
	holders, waiting map[string]expiry
	waiters          map[string]int64
}

type expiry struct {
	ms    int64
	fresh bool // in ms from the call instead of the seeding
}

func keep(ms int64) expiry  { return expiry{ms: ms} }
func fresh(ms int64) expiry { return expiry{ms: ms, fresh: true} }

type rows = map[string]expiry

func redisMs(t *testing.T, s *lua.Scripts) int64 {
	t.Helper()
	now, err := s.Redis().Time(t.Context()).Result()
	require.NoError(t, err)
	return now.UnixMilli()
}

// full returns the id of a lease that tests name {process}/{rest}: all of them belong to one flow.
func full(short string) string {
	process, rest, _ := strings.Cut(short, "/")
	return lua.Lease{Process: process, Path: lua.Path{Queue: slotQueue, UserID: slotUser}, Rest: rest}.ID()
}

func fulls(short []string) (out []string) {
	for _, s := range short {
		out = append(out, full(s))
	}
	return out
}

const (
	slotQueue = berth.Queue("q_paid_stream")
	slotUser  = "u"
)

// ticket returns the ticket of a lease with an order of arrival.
func ticket(order int64) string {
	if order == 0 {
		return ""
	}
	return fmt.Sprintf("%d/0/0", order)
}

func seed(t *testing.T, s *lua.Scripts, model string, r modelState) (at int64) {
	t.Helper()
	m := lua.ModelLeases{Model: model} // without slots, so that none is granted
	for lease, order := range r.waiters {
		m.Waiters = append(m.Waiters, lua.WaitingLease{Lease: full(lease), Ticket: ticket(order)})
	}
	_, _, err := s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{m})
	require.NoError(t, err)
	at = redisMs(t, s)
	ctx, k := t.Context(), s.Keys()
	for key, members := range map[string]rows{
		k.ModelHolders(model): r.holders, k.UpstreamHolders(model, "only"): r.holders, k.ModelWaiting(model): r.waiting,
	} {
		for lease, e := range members {
			require.NoError(t, s.Redis().ZAdd(ctx, key, redis.Z{Score: float64(at + e.ms), Member: full(lease)}).Err())
		}
	}
	return at
}

// requireModelState checks the whole state after a call between from and to; seeded is when the state was seeded. A negative
// order in want means that the order was assigned by arrival.
func requireModelState(t *testing.T, s *lua.Scripts, model string, want modelState, seeded, from, to int64) {
	t.Helper()
	k := s.Keys()
	for name, check := range map[string]struct {
		key  string
		want rows
	}{"holders": {k.ModelHolders(model), want.holders}, "holders of the upstream": {k.UpstreamHolders(model, "only"), want.holders}, "waiting": {k.ModelWaiting(model), want.waiting}} {
		got := scores(t, s, check.key)
		require.ElementsMatch(t, fulls(slices.Collect(maps.Keys(check.want))), slices.Collect(maps.Keys(got)), name)
		for lease, w := range check.want {
			lease = full(lease)
			low, high := seeded+w.ms, seeded+w.ms
			if w.fresh {
				low, high = from+w.ms, to+w.ms
			}
			require.GreaterOrEqual(t, got[lease], low, "%s: expiry of %s", name, lease)
			require.LessOrEqual(t, got[lease], high, "%s: expiry of %s", name, lease)
		}
	}
	got := scores(t, s, k.ModelFlow(model, slotQueue, slotUser))
	require.ElementsMatch(t, fulls(slices.Collect(maps.Keys(want.waiters))), slices.Collect(maps.Keys(got)), "waiters")
	for lease, order := range want.waiters {
		lease = full(lease)
		if order < 0 {
			require.GreaterOrEqual(t, got[lease], from*1000, "order of %s", lease)
		} else {
			require.Equal(t, order, got[lease], "order of %s", lease)
		}
	}
}

func scores(t *testing.T, s *lua.Scripts, key string) map[string]int64 {
	t.Helper()
	all, err := s.Redis().ZRangeWithScores(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	out := map[string]int64{}
	for _, z := range all {
		lease, _ := z.Member.(string)
		out[lease] = int64(z.Score)
	}
	return out
}

// wakes subscribes to the wake channels of the processes. The returned function returns the leases that were woken so far.
func wakes(t *testing.T, s *lua.Scripts, processes ...string) func() []string {
	t.Helper()
	var channels []string
	for _, p := range processes {
		channels = append(channels, s.Keys().Wake(p))
	}
	sub := s.Redis().Subscribe(t.Context(), channels...)
	t.Cleanup(func() { _ = sub.Close() })
	for range channels {
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
	}
	return func() []string {
		require.NoError(t, s.Redis().Publish(t.Context(), channels[0], "end").Err())
		leases := []string{}
		for {
			m, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			if m.Payload == "end" {
				return leases
			}
			w, err := lua.ParseGrant(m.Payload)
			require.NoError(t, err)
			require.Equal(t, "m", w.Model)
			require.Equal(t, s.Keys().Wake(processOf(w.Lease)), m.Channel)
			require.Greater(t, w.Expires, redisMs(t, s))
			leases = append(leases, w.Lease)
		}
	}
}

func processOf(lease string) string {
	for i, c := range lease {
		if c == '/' {
			return lease[:i]
		}
	}
	return ""
}

func acquire(t *testing.T, s *lua.Scripts, lease string, slots int, order int64) lua.SlotReply {
	t.Helper()
	r, err := s.AcquireSlot(t.Context(), lua.SlotCall{
		Model: "m", Limits: lua.OneUpstream(slots), Lease: full(lease), Ticket: ticket(order), Times: slotTimes,
	})
	require.NoError(t, err)
	return r
}

// O9: by which an attempt sees whether another one still makes its call, on whichever worker.
func TestHoldsSlot_LeaseHeldExpiredOrReleased_ByRedisClock(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		holds := func(lease string) bool {
			held, err := s.HoldsSlot(t.Context(), "m", full(lease))
			require.NoError(t, err)
			return held
		}
		acquire(t, s, "p/one", 2, 0)
		acquire(t, s, "p/two", 2, 0)
		acquire(t, s, "p/waits", 2, 0)
		require.True(t, holds("p/one"))
		require.True(t, holds("p/two"))
		require.False(t, holds("p/waits"))
		require.False(t, holds("p/unknown"))
		_, _, err := s.ReleaseSlot(t.Context(), "m", lua.OneUpstream(2), slotTimes, full("p/one"))
		require.NoError(t, err)
		require.False(t, holds("p/one"))
		require.NoError(t, s.Redis().ZAdd(t.Context(), s.Keys().ModelHolders("m"), redis.Z{Score: 1, Member: full("p/two")}).Err())
		require.False(t, holds("p/two"), "an expired lease that is still listed")
	})
}

func TestAcquireSlot_ModelState_DecidesGrantOrWait(t *testing.T) {
	t.Parallel()
	servers := slotServers(t)
	cases := map[string]struct {
		before   modelState
		slots    int
		order    int64
		code     string
		position int
		next     int64 // ms from the seeding; 0: no expiry to wait for
		after    modelState
		woken    []string
	}{
		"a model without leases grants": {
			slots: 1, code: lua.SlotGranted,
			after: modelState{holders: rows{"p/me": fresh(ttlMs)}},
		},
		"a holder is renewed, even over a lowered cap": {
			before: modelState{holders: rows{"p/me": keep(500), "q/x": keep(900)}}, slots: 1, code: lua.SlotHeld,
			after: modelState{holders: rows{"p/me": fresh(ttlMs), "q/x": keep(900)}},
		},
		"a granted slot is claimed": {
			before: modelState{holders: rows{"p/me": keep(grantMs)}}, slots: 1, code: lua.SlotHeld,
			after: modelState{holders: rows{"p/me": fresh(ttlMs)}},
		},
		"a full model queues the lease": {
			before: modelState{holders: rows{"q/x": keep(20000)}}, slots: 1, code: lua.SlotWaiting, next: 20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/me": -1}, waiting: rows{"p/me": fresh(interestMs)},
			},
		},
		"a new lease waits behind earlier ones": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			slots: 1, code: lua.SlotWaiting, position: 1, next: 20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7, "p/me": -1},
				waiting: rows{"q/y": keep(30000), "p/me": fresh(interestMs)},
			},
		},
		"a repeated call keeps the position": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/me": 5, "q/y": 7}, waiting: rows{"p/me": keep(200), "q/y": keep(30000)},
			},
			slots: 1, code: lua.SlotWaiting, next: 20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/me": 5, "q/y": 7},
				waiting: rows{"p/me": fresh(interestMs), "q/y": keep(30000)},
			},
		},
		"an expired holder's slot is free": {
			before: modelState{holders: rows{"q/x": keep(0)}}, slots: 1, code: lua.SlotGranted,
			after: modelState{holders: rows{"p/me": fresh(ttlMs)}},
		},
		"an expired holder's slot goes to the first waiter": {
			before: modelState{
				holders: rows{"q/x": keep(-1)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			slots: 1, code: lua.SlotWaiting, next: grantMs, woken: []string{"q/y"},
			after: modelState{
				holders: rows{"q/y": fresh(grantMs)},
				waiters: map[string]int64{"p/me": -1}, waiting: rows{"p/me": fresh(interestMs)},
			},
		},
		"waiters of an unresponsive process are skipped": {
			before: modelState{waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(0)}},
			slots:  1, code: lua.SlotGranted,
			after: modelState{holders: rows{"p/me": fresh(ttlMs)}},
		},
		"an expired grant: the lease keeps its position": {
			before: modelState{
				holders: rows{"p/me": keep(0), "q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7, "q/z": 9}, waiting: rows{"q/y": keep(30000), "q/z": keep(30000)},
			},
			slots: 1, order: 5, code: lua.SlotWaiting, next: 20000,
			after: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"p/me": 5, "q/y": 7, "q/z": 9},
				waiting: rows{"p/me": fresh(interestMs), "q/y": keep(30000), "q/z": keep(30000)},
			},
		},
		"an expired grant that no other lease got is granted again": {
			before: modelState{
				holders: rows{"p/me": keep(0)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			slots: 1, order: 5, code: lua.SlotGranted, next: ttlMs,
			after: modelState{
				holders: rows{"p/me": fresh(ttlMs)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
		},
		"a lowered cap revokes nothing and grants nothing": {
			before: modelState{holders: rows{"q/a": keep(0), "q/b": keep(20000), "q/c": keep(21000)}},
			slots:  2, code: lua.SlotWaiting, next: 20000,
			after: modelState{
				holders: rows{"q/b": keep(20000), "q/c": keep(21000)},
				waiters: map[string]int64{"p/me": -1}, waiting: rows{"p/me": fresh(interestMs)},
			},
		},
		"a raised cap grants to earlier waiters first": {
			before: modelState{
				holders: rows{"q/x": keep(20000)},
				waiters: map[string]int64{"q/y": 7}, waiting: rows{"q/y": keep(30000)},
			},
			slots: 3, code: lua.SlotGranted, woken: []string{"q/y"},
			after: modelState{holders: rows{"q/x": keep(20000), "q/y": fresh(grantMs), "p/me": fresh(ttlMs)}},
		},
		"cap 0 grants nothing": {
			slots: 0, code: lua.SlotWaiting, next: ttlMs,
			after: modelState{waiters: map[string]int64{"p/me": -1}, waiting: rows{"p/me": fresh(interestMs)}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, servers, func(t *testing.T, s *lua.Scripts) {
				woken := wakes(t, s, "p", "q")
				seeded := seed(t, s, "m", c.before)
				from := redisMs(t, s)
				r := acquire(t, s, "p/me", c.slots, c.order)
				to := redisMs(t, s)
				require.Equal(t, c.code, r.Code)
				require.Equal(t, c.position, r.Position)
				require.Equal(t, r.Code == lua.SlotWaiting, r.Ticket != "")
				require.InDelta(t, float64(c.next), float64(r.Next.Milliseconds()), float64(to-seeded))
				require.GreaterOrEqual(t, r.Now, from)
				require.LessOrEqual(t, r.Now, to)
				requireModelState(t, s, "m", c.after, seeded, from, to)
				require.Equal(t, append([]string{}, fulls(c.woken)...), woken())
			})
		})
	}
}
