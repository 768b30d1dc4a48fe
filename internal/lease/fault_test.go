package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/lease"
	"berth/lua"
)

// L7, T4: a process that is killed keeps its slots until they expire, and no longer than 6 s.
func TestSlots_ProcessKilled_FreeWithinLeaseTime(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	l := c.link()
	victim, _ := c.slots(l.addr(), 2)
	other, _ := c.slots(c.server.Addr(), 2)
	for range 2 {
		begin(t, victim, "m").granted()
	}
	dead := begin(t, victim, "m")
	dead.waits(0)
	l.cut() // as after kill -9: no renewal, no release
	killed := time.Now()
	waiters := []*pending{begin(t, other, "m"), begin(t, other, "m")}
	expiries, err := c.redis.ZRangeWithScores(t.Context(), c.keys.ModelHolders("m"), 0, -1).Result()
	require.NoError(t, err)
	for i, w := range waiters {
		w.granted()
		now, err := c.redis.Time(t.Context()).Result()
		require.NoError(t, err)
		require.GreaterOrEqual(t, now.UnixMilli(), int64(expiries[i].Score), "not before the lease expired")
	}
	require.Less(t, time.Since(killed), 6*time.Second)
	dead.stillWaits()
}

// T4: a grant that is not claimed goes to the next waiter after GrantTTL, and the late waiter keeps its position.
func TestGrant_NotClaimed_ExpiresAndWaiterKeepsItsPosition(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	l := c.link()
	late, _ := c.slots(l.addr(), 1, short(20*time.Second, 200*time.Millisecond, time.Second))
	quick, _ := c.slots(c.server.Addr(), 1)
	slot := begin(t, quick, "m").granted()
	first := begin(t, late, "m")
	first.waits(0)
	second := begin(t, quick, "m")
	second.waits(1)
	third := begin(t, quick, "m")
	third.waits(2)

	l.cut()
	released := time.Now()
	slot.Release()
	slot = second.granted()
	require.GreaterOrEqual(t, time.Since(released), 900*time.Millisecond) // less GrantTTL's rounding and the call
	require.Less(t, time.Since(released), 3*time.Second)
	first.stillWaits()

	l.heal()
	require.Eventually(t, func() bool { // it waits again
		return c.count(c.keys.ModelWaiting("m")) == 2
	}, waitLimit, time.Millisecond)
	slot.Release()
	slot = first.granted()
	third.stillWaits()
	slot.Release()
	third.granted().Release()
}

// A wake-up that arrives after its grant has expired has no effect.
func TestWake_AfterExpiry_StartsNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	l := c.link()
	grant := 200 * time.Millisecond
	slow, _ := c.slots(l.addr(), 1, short(20*time.Second, 10*time.Second, grant))
	quick, _ := c.slots(c.server.Addr(), 1, short(20*time.Second, 10*time.Second, grant))
	var running, over atomic.Int64
	enter := func() {
		if running.Add(1) > 1 {
			over.Add(1)
		}
	}
	slot := begin(t, quick, "m").granted()
	enter()
	first := begin(t, slow, "m")
	first.waits(0)
	second := begin(t, quick, "m")
	second.waits(1)
	l.add(`{"type":"latency","stream":"downstream","attributes":{"latency":600}}`)
	running.Add(-1)
	slot.Release()
	slot = second.granted()
	enter()
	busy := time.NewTimer(1500 * time.Millisecond)
	select {
	case <-busy.C:
	case <-first.slot:
		require.Fail(t, "started on an expired grant")
	}
	running.Add(-1)
	slot.Release()
	slot = first.granted() // granted by the reply to a call, which is also late but in time
	enter()
	require.NoError(t, slot.Context().Err())
	require.Zero(t, over.Load())
	slot.Release()
}

// P4, L7: if a holder cannot renew for any reason, its context ends before the slot is granted again.
func TestHolder_CannotRenew_ContextEndsBeforeNextGrant(t *testing.T) {
	t.Parallel()
	type fault func(t *testing.T, c *cell, l *link)
	faults := map[string]fault{
		"silence": func(_ *testing.T, _ *cell, l *link) { l.cut() },
		"replies lost": func(_ *testing.T, _ *cell, l *link) {
			l.add(`{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
		},
		"requests lost": func(_ *testing.T, _ *cell, l *link) {
			l.add(`{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
		},
		"resets":          func(_ *testing.T, _ *cell, l *link) { l.add(`{"type":"reset_peer","attributes":{"timeout":0}}`) },
		"proxy gone":      func(_ *testing.T, _ *cell, l *link) { l.proxy.Stop() },
		"replies delayed": func(_ *testing.T, _ *cell, l *link) { l.add(`{"type":"latency","attributes":{"latency":6000}}`) },
		// The reply to the last renewal is late: the lease is measured from when the renewal was sent.
		"last reply late": func(t *testing.T, c *cell, l *link) {
			l.add(`{"type":"latency","stream":"downstream","attributes":{"latency":500}}`)
			before := c.expiry("m")
			require.Eventually(t, func() bool { return c.expiry("m") > before+250 }, waitLimit, time.Millisecond)
			l.add(`{"type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
		},
	}
	for name, disturb := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			l := c.link()
			times := short(3*time.Second, 600*time.Millisecond, time.Second)
			holder, _ := c.slots(l.addr(), 1, times)
			other, _ := c.slots(c.server.Addr(), 1, times)
			slot := begin(t, holder, "m").granted()
			next := begin(t, other, "m")
			next.waits(0)
			disturb(t, c, l)
			require.NoError(t, cancelledFirst(t, slot, next), "the holder's context ends after the slot was granted again")
		})
	}
}

// This verifies the check of the test above: it must detect a slot that Redis grants too early.
func TestHolder_GrantTooEarly_IsDetected(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	times := short(time.Minute, time.Hour, 10*time.Second) // the holder does not renew, which would tell it
	holder, _ := c.slots(c.server.Addr(), 1, times)
	other, _ := c.slots(c.server.Addr(), 1, times)
	slot := begin(t, holder, "m").granted()
	next := begin(t, other, "m")
	next.waits(0)
	settled(t, holder, other)
	require.NoError(t, c.redis.Del(t.Context(), c.keys.ModelHolders("m"), c.keys.UpstreamHolders("m", "only")).Err())
	_, _, err := c.scripts.ReleaseSlot(t.Context(), "m", lua.OneUpstream(1), lua.SlotTimes{TTL: time.Minute, Grant: 10 * time.Second},
		lua.Lease{Process: "other", Path: lua.Path{Queue: "q_paid_stream", UserID: "u"}}.ID())
	require.NoError(t, err)
	require.ErrorIs(t, cancelledFirst(t, slot, next), errEarly)
}

// expiry returns when the lease of the model's only holder expires by Redis's clock, in ms.
func (c *cell) expiry(model string) float64 {
	c.t.Helper()
	z, err := c.redis.ZRangeWithScores(context.Background(), c.keys.ModelHolders(model), 0, 0).Result()
	require.NoError(c.t, err)
	require.Len(c.t, z, 1)
	return z[0].Score
}

var errEarly = errors.New("granted while the holder did not know")

// cancelledFirst waits for the next grant and returns the cause if the holder's context had ended by then.
func cancelledFirst(t *testing.T, slot *lease.Slot, next *pending) error {
	t.Helper()
	next.granted()
	if slot.Context().Err() == nil {
		return errEarly
	}
	require.ErrorIs(t, context.Cause(slot.Context()), lease.ErrLost)
	return nil
}

// A holder whose process was paused and could not renew detects the loss with the next reply.
func TestHolder_LeaseExpiredInRedis_IsLost(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1, short(5*time.Second, 50*time.Millisecond, time.Second))
	slot := begin(t, s, "m").granted()
	settled(t, s)
	require.NoError(t, c.redis.Del(t.Context(), c.keys.ModelHolders("m"), c.keys.UpstreamHolders("m", "only")).Err())
	_, cause := ends(t, slot)
	require.ErrorIs(t, cause, lease.ErrLost)
	slot.Release()
	begin(t, s, "m").granted().Release()
}

// L11: while Redis is unavailable requests wait; soon after it is available again they are served.
func TestAcquire_RedisUnavailable_WaitsForItsReturn(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1, short(600*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond))
	c.server.Kill()
	p := begin(t, s, "m")
	gone := begin(t, s, "m")
	gone.cancel(context.DeadlineExceeded)
	require.ErrorIs(t, gone.failed(), context.DeadlineExceeded)
	p.stillWaits()
	restarted := time.Now()
	c.server.Restart()
	back := time.Now()
	slot := p.granted()
	require.Less(t, time.Since(back), 10*time.Second)
	grace, err := c.redis.HGet(t.Context(), c.keys.Guard(), "grace").Int64()
	require.NoError(t, err)
	require.GreaterOrEqual(t, grace, restarted.Add(600*time.Millisecond).UnixMilli(), "one lease time of grace (L12)")
	now, err := c.redis.Time(t.Context()).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, now.UnixMilli(), grace)
	slot.Release()
	next := begin(t, s, "m").granted()
	waiting := begin(t, s, "m")
	waiting.waits(0)
	next.Release()
	waiting.granted().Release() // granted by a wake-up of the restored subscription, at the latest by a renewal
}

// L12: Redis restarts without its data. Holders continue, no other request gets their slots, and waiters keep their order.
func TestSlots_RedisLosesData_HoldersAndOrderRemain(t *testing.T) {
	t.Parallel()
	wipes := map[string]func(t *testing.T, c *cell){
		"restart without data": func(_ *testing.T, c *cell) { c.server.Restart() },
		"flush":                func(t *testing.T, c *cell) { require.NoError(t, c.redis.FlushAll(t.Context()).Err()) },
	}
	for name, wipe := range wipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			times := short(4*time.Second, 100*time.Millisecond, 2*time.Second)
			a, _ := c.slots(c.server.Addr(), 1, times)
			b, _ := c.slots(c.server.Addr(), 1, times)
			slot := begin(t, a, "m").granted()
			first := begin(t, b, "m")
			first.waits(0)
			second := begin(t, b, "m")
			second.waits(1)
			settled(t, a, b)
			wipe(t, c)
			wiped := time.Now()
			third := begin(t, b, "m")
			third.waits(2)
			require.Eventually(t, func() bool { return time.Since(wiped) > 5*time.Second }, waitLimit, 10*time.Millisecond)
			require.NoError(t, slot.Context().Err(), "the holder was reinstated")
			for _, p := range []*pending{first, second, third} {
				p.stillWaits()
			}
			for _, p := range []*pending{first, second, third} {
				slot.Release()
				slot = p.granted()
			}
			slot.Release()
		})
	}
}

// L12: a grant of a Redis whose guard is older than the one that this process knows starts nothing: a master that was replaced
// without noticing made it.
func TestWake_OlderEpoch_StartsNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1)
	slot := begin(t, s, "m").granted()
	p := begin(t, s, "m")
	p.waits(0)
	waiting, err := c.redis.ZRange(t.Context(), c.keys.ModelWaiting("m"), 0, 0).Result()
	require.NoError(t, err)
	process, _, _ := strings.Cut(waiting[0], "/")
	notify := func(epoch int64) {
		now, err := c.redis.Time(t.Context()).Result()
		require.NoError(t, err)
		message := fmt.Sprintf("1/1/1\n%d\n%d\nm\nonly\n%s", now.Add(waitLimit).UnixMilli(), epoch, waiting[0])
		require.NoError(t, c.redis.Publish(t.Context(), c.keys.Wake(process), message).Err())
	}
	current, err := c.redis.HGet(t.Context(), c.keys.Guard(), "epoch").Int64()
	require.NoError(t, err)
	require.NoError(t, c.redis.HSet(t.Context(), c.keys.Guard(), "epoch", current+1).Err())
	require.NoError(t, s.CheckGuard(t.Context()))
	notify(current)
	// The process renews because of the message, and receives the next one after it.
	renewed := begin(t, s, "other").granted()
	p.stillWaits()
	renewed.Release()
	notify(current + 1)
	p.granted().Release()
	slot.Release()
}
