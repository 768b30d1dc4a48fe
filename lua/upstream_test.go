package lua_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/lua"
)

// servedBy is a model with several upstreams.
type servedBy struct {
	*hall
	calls map[string]string // upstreams of the leases that have a slot
}

func newServedBy(t *testing.T, s *lua.Scripts, upstreams ...lua.UpstreamLimits) *servedBy {
	t.Helper()
	return &servedBy{hall: &hall{t: t, s: s, limits: lua.ModelLimits{Queues: sixQueues, Upstreams: upstreams}}, calls: map[string]string{}}
}

// up returns the limits of an upstream; a name such as a2 is of rank 2.
func up(name string, slots int) lua.UpstreamLimits {
	rank, _ := strconv.Atoi(strings.TrimLeft(name, "abc"))
	return lua.UpstreamLimits{Name: name, Rank: max(1, rank), Cap: slots}
}

// with returns the id of a call of a user with needs.
func (b *servedBy) lease(user string, needs lua.Needs) string {
	b.number++
	return lua.Lease{Process: "p", Path: lua.Path{Queue: paidStream, UserID: user}, Needs: needs, Rest: strconv.Itoa(b.number)}.ID()
}

// call requests a slot, and returns the upstream that it got, empty while it waits.
func (b *servedBy) call(user string, needs lua.Needs) string {
	b.t.Helper()
	l := b.lease(user, needs)
	r := b.acquire("m", l)
	b.calls[l] = r.Upstream
	return r.Upstream
}

func (b *servedBy) callMany(n int) (got []string) {
	b.t.Helper()
	for range n {
		got = append(got, b.call("u", lua.Needs{}))
	}
	return got
}

// end releases one call of an upstream, and returns the upstreams of those that got a slot by it.
func (b *servedBy) end(upstream string) (got []string) {
	b.t.Helper()
	for l, u := range b.calls {
		if u != upstream {
			continue
		}
		delete(b.calls, l)
		for _, granted := range b.next("m", l) {
			r := b.acquire("m", granted)
			b.calls[granted] = r.Upstream
			got = append(got, r.Upstream)
		}
		return got
	}
	b.t.Fatalf("no call of %s", upstream)
	return nil
}

func (b *servedBy) report(upstream string, outcome lua.CallOutcome, retryAfter, took time.Duration) string {
	b.t.Helper()
	b.number++
	code, _, err := b.s.ReportCall(b.t.Context(), lua.CallReport{
		Model: "m", Upstream: upstream, Task: strconv.Itoa(b.number), Outcome: outcome, RetryAfter: retryAfter, Took: took, Reason: string(outcome),
	})
	require.NoError(b.t, err)
	return code
}

func (b *servedBy) upstream(name string) lua.UpstreamUse {
	b.t.Helper()
	room, err := b.s.ReadRoom(b.t.Context(), "m", b.limits, 0)
	require.NoError(b.t, err)
	for _, u := range room.Upstreams {
		if u.Name == name {
			return u
		}
	}
	b.t.Fatalf("no upstream %s", name)
	return lua.UpstreamUse{}
}

// G12: the lowest rank with a free slot is used, of a rank the upstream with the smallest part of its slots in use.
func TestUpstreams_FreeSlots_LowestRankThenLeastUsed(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		b := newServedBy(t, s, up("a", 4), up("b", 2), up("c2", 2))
		require.Equal(t, []string{"a", "b", "a", "a", "b", "a", "c2", "c2", ""}, b.callMany(9))
		require.Equal(t, []string{"b"}, b.end("b"), "the waiting call gets the slot that became free")
		require.Empty(t, b.end("c2"))
		require.Empty(t, b.end("a"))
		require.Equal(t, "a", b.call("u", lua.Needs{}), "the first rank is used again")
	})
}

// G14: calls of a conversation prefer one upstream of the rank while it has a free slot, whatever others there are.
func TestUpstreams_Conversation_PrefersOneUpstream(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		used := map[string]int{}
		for i := range 12 {
			needs := lua.Needs{Conversation: "conversation " + strconv.Itoa(i)}
			b := newServedBy(t, s, up("a", 2), up("b", 2), up("c", 2), up("c2", 9))
			first := b.call("u", needs)
			require.Equal(t, first, b.call("v", needs))
			require.NotEqual(t, first, b.call("u", needs), "it is full")
			used[first]++
			for l := range b.calls {
				b.release("m", l)
			}
			require.NotContains(t, []string{"c2"}, first)
			fewer := newServedBy(t, s, up(first, 2), up("c2", 9)) // another one is removed: the preferred one remains
			require.Equal(t, first, fewer.call("u", needs))
			for l := range fewer.calls {
				fewer.release("m", l)
			}
		}
		require.Len(t, used, 3, "conversations are spread: %v", used)
	})
}

// G13: what a call excludes, or is too small for its texts, is not used while another upstream works.
func TestUpstreams_CallNeedsOthers_OneOfThemOrAnyIfNoneWorks(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		small := up("a", 3)
		small.Context = 1000
		b := newServedBy(t, s, small, up("b2", 1))
		excluded, long := lua.Needs{Excluded: []string{"a"}}, lua.Needs{Tokens: 1001}
		require.Equal(t, "a", b.call("u", lua.Needs{Tokens: 1000}))
		require.Equal(t, "b2", b.call("u", excluded))
		require.Empty(t, b.call("u", excluded), "the other is full, and works")
		require.Empty(t, b.call("v", long))
		require.Equal(t, []string{"b2"}, b.end("b2"))
		require.Equal(t, []string{"b2"}, b.end("b2"))
		require.Empty(t, b.call("w", excluded))
		require.Empty(t, b.call("x", long))
		b.report("b2", lua.CallLimited, time.Minute, 0)
		require.Equal(t, "a", b.call("y", excluded), "the other is paused")
		require.Equal(t, 3, b.upstream("a").InUse, "so is the one that waited")
		require.Equal(t, 1, b.waiting("m"), "the long one waits for the only upstream that can read it")
	})
}

// G13: calls that no free upstream can take do not hide those behind them, neither of their user nor of others, and keep their place.
func TestUpstreams_FirstCannotUseFreeOne_OthersDo(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		b := newServedBy(t, s, up("a", 1), up("b", 1))
		require.Equal(t, []string{"a", "b"}, b.callMany(2))
		needs := lua.Needs{Excluded: []string{"a"}}
		first := b.lease("u", needs)
		require.Equal(t, lua.SlotWaiting, b.acquire("m", first).Code)
		require.Empty(t, b.call("u", lua.Needs{}))
		require.Empty(t, b.call("v", needs))
		require.Empty(t, b.call("v", lua.Needs{}))
		require.Equal(t, []string{"a"}, b.end("a"))
		require.Equal(t, []string{"a"}, b.end("a"))
		require.Equal(t, 2, b.waiting("m"))
		r := b.acquire("m", first)
		require.Zero(t, r.Position, "it is still the first")
		require.Equal(t, []string{"b"}, b.end("b"))
		require.Equal(t, lua.SlotHeld, b.acquire("m", first).Code)
	})
}

// G12: limits of an older revision change nothing, so that two configurations never alternate. After a loss of data any is used until a newer one is
// there.
func TestUpstreams_TwoRevisions_NewestDecides(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		old, fresh := newServedBy(t, s, up("a", 9)), newServedBy(t, s, up("a", 1), up("b", 1))
		fresh.limits.Revision, fresh.number = 2, 100
		require.Equal(t, "a", old.call("u", lua.Needs{}))
		require.Equal(t, "b", fresh.call("u", lua.Needs{}))
		for range 3 {
			require.Empty(t, old.call("u", lua.Needs{}), "its cap of 9 is that of an older revision")
		}
		require.Equal(t, []string{"b"}, fresh.end("b"), "a process learns of an upstream that it does not know by a grant")
		old.limits.Revision = 3
		require.Equal(t, "a", old.call("u", lua.Needs{}))
	})
}

// G13, T21: an upstream that fails while another works is paused immediately, one that is broken for long, and the last one only as a model
// with one upstream is.
func TestUpstreams_Fails_PausedWhileAnotherWorks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome lua.CallOutcome
		pause   time.Duration
		last    string // what follows at the last one
	}{
		"failed":  {lua.CallFailed, lua.BreakerPause, lua.CallCounted},
		"limited": {lua.CallLimited, lua.BreakerPause, lua.CallCounted},
		"broken":  {lua.CallBroken, lua.MaxPause, lua.CallCounted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
				b := newServedBy(t, s, up("a", 2), up("b", 2))
				require.Equal(t, []string{"a", "b"}, b.callMany(2))
				require.Equal(t, lua.BreakerOpened, b.report("a", c.outcome, 0, 0))
				within(t, c.pause, time.Until(b.upstream("a").PausedUntil))
				require.True(t, b.upstream("a").Probing)
				require.Equal(t, []string{"b", ""}, b.callMany(2), "the other has one slot left")
				require.Equal(t, c.last, b.report("b", c.outcome, 0, 0), "nothing else works")
				require.True(t, b.upstream("b").PausedUntil.IsZero())
			})
		})
	}
}

// G13: when a pause ends, the slots of an upstream double from one, so that the waiting calls do not all begin together.
func TestUpstreams_PauseEnds_SlotsDouble(t *testing.T) {
	t.Parallel()
	o := newOwnTime(t)
	o.now = time.Unix(2_000_000_000, 0)
	o.flush(t)
	_, err := o.s.MarkNew(t.Context())
	require.NoError(t, err)
	b := newServedBy(t, o.s, up("a", 20))
	b.report("a", lua.CallLimited, time.Second, 0)
	for range 30 {
		require.Empty(t, b.call("u", lua.Needs{}))
	}
	slots := lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}
	for i, want := range []int{0, 0, 0, 1, 2, 4, 8, 16, 20, 20} { // after so many quarters of a second
		o.pass(t, 250*time.Millisecond)
		_, next, err := o.s.ReleaseSlot(t.Context(), "m", b.limits, slots, b.lease("none", lua.Needs{}))
		require.NoError(t, err)
		require.Len(t, b.holders("m"), want, "%d ms", 250*(i+1))
		if want > 0 && want < 20 {
			require.LessOrEqual(t, next, 250*time.Millisecond, "waiters return when there are more")
		}
	}
}

// G14: an automatic cap is lowered once for the calls that were running, and rises by one after as many successes, if it is in use.
func TestUpstreams_AutomaticCap_FollowsTheProvider(t *testing.T) {
	t.Parallel()
	o := newOwnTime(t)
	o.now = time.Unix(2_000_000_000, 0)
	o.flush(t)
	_, err := o.s.MarkNew(t.Context())
	require.NoError(t, err)
	a := up("a", 12)
	a.Auto, a.Min = true, 2
	b := newServedBy(t, o.s, a)
	learned := func() int { return b.upstream("a").Cap }
	succeed := func(n int) {
		for range n {
			b.report("a", lua.CallOK, 0, time.Second)
		}
	}
	require.Equal(t, 2, learned())
	succeed(5)
	require.Equal(t, 2, learned(), "it is not in use")
	require.Equal(t, []string{"a", "a", ""}, b.callMany(3))
	for want := 3; want <= 12; want++ {
		succeed(want - 2)
		require.Equal(t, want-1, learned())
		succeed(1)
		require.Equal(t, want, learned())
		for len(b.holders("m")) < want {
			b.call("u", lua.Needs{})
			b.release("m", b.lease("none", lua.Needs{}))
		}
	}
	succeed(30)
	require.Equal(t, 12, learned(), "the maximum")
	o.pass(t, 10*time.Second)
	for range 5 {
		require.Equal(t, lua.CallCounted, b.report("a", lua.CallLimited, 0, 9*time.Second))
	}
	require.Equal(t, 8, learned(), "once for calls that began together")
	for _, want := range []int{5, 3, 2, 2} {
		o.pass(t, time.Second)
		b.report("a", lua.CallLimited, 0, time.Millisecond)
		require.Equal(t, want, learned())
	}
	succeed(15)
	require.Equal(t, 2, learned(), "a call was refused with three")
	succeed(1)
	require.Equal(t, 3, learned())
	succeed(3)
	require.Equal(t, 4, learned(), "none was refused since")
	_, err = o.s.SetModelLimits(t.Context(), "m", "a", slotTimes, lua.OperatorLimits{Cap: new(7)})
	require.NoError(t, err)
	require.Equal(t, []any{7, false}, []any{learned(), b.upstream("a").Learned}, "an operator's cap is fixed")
	_, err = o.s.SetModelLimits(t.Context(), "m", "a", slotTimes, lua.OperatorLimits{})
	require.NoError(t, err)
	o.flush(t)
	require.Equal(t, 2, learned(), "after a loss of data it begins at the minimum")
}

// P5, G12: after a loss of data, holders restore the slots of their upstreams, also of one that the limits no longer have.
func TestUpstreams_RedisLosesData_HoldersRestoreTheirUpstreams(t *testing.T) {
	t.Parallel()
	o := newOwnTime(t)
	o.now = time.Unix(2_000_000_000, 0)
	o.flush(t)
	_, err := o.s.MarkNew(t.Context())
	require.NoError(t, err)
	b := newServedBy(t, o.s, up("a", 1), up("b", 2))
	require.ElementsMatch(t, []string{"a", "b", "b"}, b.callMany(3))
	require.Empty(t, b.call("u", lua.Needs{}))
	mine := lua.ModelLeases{Model: "m", Limits: b.limits}
	for l, u := range b.calls {
		if u != "" {
			mine.Holders = append(mine.Holders, lua.HeldLease{Lease: l, Upstream: u})
		}
	}
	o.flush(t)
	mine.Limits.Upstreams = mine.Limits.Upstreams[:1] // b is removed
	_, out, err := o.s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{mine})
	require.NoError(t, err)
	require.Equal(t, []string{lua.SlotHeld, lua.SlotHeld, lua.SlotHeld}, out[0].Holders)
	require.Len(t, b.holders("m"), 3)
	n, err := o.s.Redis().ZCard(t.Context(), o.s.Keys().UpstreamHolders("m", "b")).Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	b.limits.Revision = 1 // and is there again
	o.pass(t, slotTimes.TTL/2)
	_, _, err = o.s.RenewSlots(t.Context(), slotTimes, []lua.ModelLeases{{Model: "m", Limits: b.limits, Holders: mine.Holders}})
	require.NoError(t, err)
	o.pass(t, slotTimes.TTL/2+time.Second) // the grace has ended
	require.Empty(t, b.call("u", lua.Needs{}), "no upstream has more calls than slots")
}

// G14: calls that prefer the upstream of their conversation find more of their prompts in its cache.
func TestUpstreams_PromptCache_PreferenceFindsMore(t *testing.T) {
	t.Parallel()
	s := newScripts(t)
	const conversations, rounds = 30, 10
	found := func(preferred bool) (share float64) {
		b := newServedBy(t, s, up("a", 4), up("b", 4), up("c", 4))
		random := rand.New(rand.NewPCG(1, 2))
		cached, hits, calls := map[string]bool{}, 0, 0
		for range conversations * rounds {
			n := strconv.Itoa(random.IntN(conversations))
			needs := lua.Needs{}
			if preferred {
				needs.Conversation = n
			}
			for len(b.holders("m")) > 6 { // half of the slots are in use
				b.release("m", b.holders("m")[0])
			}
			u := b.call("u"+n, needs)
			require.NotEmpty(t, u)
			if cached[u+n] {
				hits++
			}
			cached[u+n] = true
			calls++
		}
		b.release("m", b.holders("m")...)
		return float64(hits) / float64(calls)
	}
	without, with := found(false), found(true)
	t.Logf("%.0f %% of the calls found their prompt in the cache with the preference, %.0f %% without; at most %.0f %%",
		100*with, 100*without, 100*(1-1.0/rounds))
	require.Greater(t, with, without+0.05)
}
