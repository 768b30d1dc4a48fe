package lease_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/lease"
	"berth/lua"
)

// upstreams are those of a model whose provider counts its calls.
type upstreams struct {
	t       *testing.T
	c       *cell
	running map[string]*atomic.Int64
	over    atomic.Pointer[string] // the first upstream above its cap
	caps    map[string]int64
	served  atomic.Int64
	lost    atomic.Int64 // calls whose slot was lost
}

func newUpstreams(t *testing.T, limits lua.ModelLimits) *upstreams {
	t.Helper()
	u := &upstreams{t: t, c: newCell(t), running: map[string]*atomic.Int64{}, caps: map[string]int64{}}
	for _, l := range limits.Upstreams {
		u.running[l.Name], u.caps[l.Name] = &atomic.Int64{}, int64(l.Cap)
	}
	return u
}

// process runs callers with limits until it is killed: its connection is cut, and its calls end with it.
func (u *upstreams) process(limits lua.ModelLimits, callers int, call time.Duration) (kill func()) {
	u.t.Helper()
	l := u.c.link()
	ttl := short(6*time.Second, 300*time.Millisecond, 2*time.Second)
	s, stop := u.c.slots(l.addr(), 1, ttl, func(o *lease.Options) { o.Limits = func(string) lua.ModelLimits { return limits } })
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for i := range callers {
		working.Go(func() {
			for ctx.Err() == nil {
				slot, err := s.Acquire(ctx, lease.Request{Model: "m", Queue: "q", UserID: strconv.Itoa(i)})
				if err != nil {
					return
				}
				u.call(ctx, slot, call)
				if ctx.Err() == nil {
					slot.Release()
				}
			}
		})
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			l.cut()
			cancel()
			working.Wait()
		})
	}
	u.t.Cleanup(func() {
		cancel()
		working.Wait()
		stop()
	})
	return kill
}

// call calls the provider until it has answered, or the process is killed.
func (u *upstreams) call(process context.Context, slot *lease.Slot, length time.Duration) {
	running := u.running[slot.Upstream()]
	if running.Add(1) > u.caps[slot.Upstream()] {
		u.over.CompareAndSwap(nil, new(slot.Upstream()))
	}
	defer running.Add(-1)
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		u.served.Add(1)
	case <-process.Done():
	case <-slot.Context().Done():
		if process.Err() == nil {
			u.lost.Add(1)
		}
	}
}

func (u *upstreams) requireWithinCaps() {
	u.t.Helper()
	if over := u.over.Load(); over != nil {
		u.t.Fatalf("the upstream %s had more calls than slots", *over)
	}
}

// full waits until each upstream has as many calls as slots at the same time.
func (u *upstreams) full(names ...string) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		for _, name := range names {
			if u.running[name].Load() < u.caps[name] {
				return false
			}
		}
		return true
	}, waitLimit, time.Millisecond, "all slots are used")
	u.requireWithinCaps()
}

// G12: four processes, two of which die, and two with an older configuration never exceed the cap of an upstream, and use all slots.
func TestUpstreams_ProcessesDieAndDiffer_CapsHoldAndAllIsUsed(t *testing.T) {
	t.Parallel()
	auto := lua.UpstreamLimits{Name: "c", Rank: 1, Auto: true, Min: 2, Cap: 4}
	limits := lua.ModelLimits{Revision: 2, Upstreams: []lua.UpstreamLimits{{Name: "a", Rank: 1, Cap: 5}, {Name: "b", Rank: 1, Cap: 3}, auto}}
	older := lua.ModelLimits{Revision: 1, Upstreams: []lua.UpstreamLimits{{Name: "a", Rank: 1, Cap: 9}, {Name: "b", Rank: 1, Cap: 9}, {Name: "c", Rank: 1, Cap: 9}}}
	u := newUpstreams(t, limits)
	u.caps["c"] = 2 // nothing reports its successes
	kill := u.process(limits, 10, 20*time.Millisecond)
	u.full("a", "b", "c")
	u.process(older, 10, 20*time.Millisecond)
	killOlder := u.process(older, 10, 20*time.Millisecond)
	u.process(limits, 10, 20*time.Millisecond)
	u.full("a", "b", "c")
	kill()
	killOlder()
	served := u.served.Load()
	u.full("a", "b", "c") // once the leases of the dead have expired
	require.Eventually(t, func() bool { return u.served.Load() > served+500 }, waitLimit, time.Millisecond)
	u.requireWithinCaps()
	require.Zero(t, u.lost.Load(), "calls of processes that live")
}

// P5, G12: Redis loses its data while fifty calls run: nothing is granted beyond a cap, no call is lost, and then the slots are used again.
func TestUpstreams_RedisLosesData_NoCallLostNoCapExceeded(t *testing.T) {
	t.Parallel()
	auto := lua.UpstreamLimits{Name: "c", Rank: 2, Auto: true, Min: 5, Cap: 8}
	limits := lua.ModelLimits{Upstreams: []lua.UpstreamLimits{{Name: "a", Rank: 1, Cap: 30}, {Name: "b", Rank: 1, Cap: 15}, auto}}
	u := newUpstreams(t, limits)
	u.caps["c"] = 5 // of 50 slots: nothing reports its successes
	for range 2 {
		u.process(limits, 40, 300*time.Millisecond)
	}
	u.full("a", "b", "c")
	for range 2 {
		require.NoError(t, u.c.redis.Eval(t.Context(), `for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end return 1`, nil,
			"{"+u.c.keys.Cell+"}*").Err())
		served := u.served.Load()
		u.full("a", "b", "c")
		require.Eventually(t, func() bool { return u.served.Load() > served+150 }, waitLimit, time.Millisecond)
		u.requireWithinCaps()
	}
	require.Zero(t, u.lost.Load())
}
