package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/lease"
	"berth/lua"
)

func TestSlots_ManyWaiters_ServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	times := short(30*time.Second, time.Second, 10*time.Second) // no grant expires
	a, _ := c.slots(c.server.Addr(), 1, times)
	b, _ := c.slots(c.server.Addr(), 1, times)
	slot := begin(t, a, "m").granted()
	var queue []*pending
	for i, s := range []*lease.Slots{b, a, b, b, a} {
		p := begin(t, s, "m")
		p.waits(i)
		queue = append(queue, p)
	}
	for i, p := range queue {
		for _, later := range queue[i:] {
			later.stillWaits()
		}
		slot.Release()
		slot.Release() // further calls have no effect
		require.ErrorIs(t, slot.Context().Err(), context.Canceled)
		slot = p.granted()
		require.NoError(t, slot.Context().Err())
	}
	slot.Release()
	require.Zero(t, c.count(c.keys.ModelHolders("m")))
	require.Zero(t, c.count(c.keys.ModelWaiting("m")))
}

func (c *cell) count(key string) int64 {
	c.t.Helper()
	n, err := c.redis.ZCard(context.Background(), key).Result()
	require.NoError(c.t, err)
	return n
}

func TestPosition_Changes_IsReported(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1, short(30*time.Second, 20*time.Millisecond, 10*time.Second))
	slot := begin(t, s, "m").granted()
	first := begin(t, s, "m")
	first.waits(0)
	second := begin(t, s, "m")
	second.waits(1)
	third := begin(t, s, "m")
	third.waits(2)
	slot.Release()
	first.granted().Release()
	third.waits(0)
	second.granted().Release()
	third.granted().Release()
}

func TestSlots_TwoModels_AreIndependent(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1)
	one := begin(t, s, "one").granted()
	begin(t, s, "two").granted().Release()
	begin(t, s, "one").waits(0)
	one.Release()
}

func TestAcquire_ContextEnds_LeavesWaitingRoom(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1)
	slot := begin(t, s, "m").granted()
	p := begin(t, s, "m")
	p.waits(0)
	gone := errors.New("the task was cancelled")
	p.cancel(gone)
	require.ErrorIs(t, p.failed(), gone)
	require.Eventually(t, func() bool {
		return c.count(c.keys.ModelWaiting("m")) == 0
	}, waitLimit, time.Millisecond)
	slot.Release()
	begin(t, s, "m").granted().Release()
}

func TestAcquire_UnknownModel_ReturnsError(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1, func(o *lease.Options) { o.Limits = func(string) lua.ModelLimits { return lua.ModelLimits{} } })
	_, err := s.Acquire(t.Context(), lease.Request{Model: "m"})
	require.ErrorContains(t, err, `unknown model "m"`)
	_, err = s.Acquire(t.Context(), lease.Request{})
	require.Error(t, err)
}

func TestRun_ContextEnds_ReleasesEverything(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	a, stop := c.slots(c.server.Addr(), 1)
	b, _ := c.slots(c.server.Addr(), 1)
	held, waiting := begin(t, a, "m").granted(), begin(t, a, "m")
	waiting.waits(0)
	next := begin(t, b, "m")
	next.waits(1)
	began := time.Now()
	stop()
	_, cause := ends(t, held)
	require.ErrorIs(t, cause, lease.ErrClosed)
	require.ErrorIs(t, waiting.failed(), lease.ErrClosed)
	next.granted().Release()
	require.Less(t, time.Since(began), 4*time.Second, "released, not expired")
	_, err := a.Acquire(t.Context(), lease.Request{Model: "m", Queue: "q_paid_batch", UserID: "u"})
	require.ErrorIs(t, err, lease.ErrClosed)
	held.Release()
}

// L7: MaxHold bounds how long one call holds a slot.
func TestSlot_HeldTooLong_ContextEnds(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	s, _ := c.slots(c.server.Addr(), 1, short(3*time.Second, 100*time.Millisecond, 500*time.Millisecond),
		func(o *lease.Options) { o.MaxHold = 600 * time.Millisecond })
	began := time.Now()
	slot := begin(t, s, "m").granted()
	next := begin(t, s, "m")
	next.waits(0)
	at, cause := ends(t, slot)
	require.ErrorIs(t, cause, lease.ErrHeldTooLong)
	require.GreaterOrEqual(t, at.Sub(began), 600*time.Millisecond)
	next.granted().Release() // granted even if the holder does not release
}

func TestSlots_ManyProcesses_NeverExceedCap(t *testing.T) {
	t.Parallel()
	const slots, processes, workers, rounds = 3, 4, 12, 8
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := newCell(t)
	var running, maxRunning, granted atomic.Int64
	var all sync.WaitGroup
	for p := range processes {
		s, _ := c.slots(c.server.Addr(), slots)
		for w := range workers {
			rnd := rand.New(rand.NewPCG(seed, uint64(p*workers+w)))
			all.Go(func() {
				for range rounds {
					ctx, cancel := context.WithCancel(t.Context())
					if rnd.IntN(4) == 0 { // gives up, sometimes just when it is granted
						time.AfterFunc(time.Duration(rnd.IntN(40))*time.Millisecond, cancel)
					}
					slot, err := s.Acquire(ctx, lease.Request{Model: "m", Queue: "q_paid_batch", UserID: "u"})
					if err == nil {
						maxRunning.Store(max(maxRunning.Load(), running.Add(1)))
						granted.Add(1)
						busy := time.NewTimer(time.Duration(rnd.IntN(4)) * time.Millisecond)
						<-busy.C
						running.Add(-1)
						slot.Release()
					}
					cancel()
				}
			})
		}
	}
	all.Wait()
	require.LessOrEqual(t, maxRunning.Load(), int64(slots))
	require.GreaterOrEqual(t, granted.Load(), int64(processes*workers))
	require.Eventually(t, func() bool {
		return c.count(c.keys.ModelHolders("m"))+c.count(c.keys.ModelWaiting("m")) == 0
	}, waitLimit, time.Millisecond, "counters end at zero (T29)")
}
