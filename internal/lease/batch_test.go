package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/lease"
	"berth/lua"
)

// callSizes is a hook that knows the numbers of arguments of the scripts' calls.
type callSizes struct {
	largest, large atomic.Int64 // large: how many calls had more than those of one request
}

func (s *callSizes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *callSizes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *callSizes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := int64(len(cmd.Args()))
		for largest := s.largest.Load(); n > largest && !s.largest.CompareAndSwap(largest, n); largest = s.largest.Load() {
		}
		if n > 100 {
			s.large.Add(1)
		}
		return next(ctx, cmd)
	}
}

// Redis does nothing else while a script runs: with thousands of requests, one call that renews them all delays the claim of each grant.
func TestSlots_ManyRequests_RenewedInParts(t *testing.T) { // O9
	t.Parallel()
	const requests = 500
	c := newCell(t)
	sizes := &callSizes{}
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(sizes)
	s := lease.New(lua.New(rdb, c.keys), lease.Options{
		TTL: time.Second, RenewEvery: 200 * time.Millisecond, GrantTTL: 500 * time.Millisecond,
		Limits: func(string) lua.ModelLimits { return lua.OneUpstream(1) },
	})
	run, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(run) }()
	<-s.Ready()
	slot := begin(t, s, "m").granted()
	for range requests - 1 {
		begin(t, s, "m")
	}
	waiting := func() int64 { return c.redis.ZCard(t.Context(), c.keys.ModelWaiting("m")).Val() }
	require.Eventually(t, func() bool { return waiting() == requests-1 }, waitLimit, time.Millisecond)

	before, entered := sizes.large.Load(), time.Now()
	require.Eventually(t, func() bool { return sizes.large.Load() > before+20 && time.Since(entered) > 2*time.Second }, waitLimit, time.Millisecond)
	require.EqualValues(t, requests-1, waiting(), "all are renewed")
	require.NoError(t, slot.Context().Err())
	require.Less(t, sizes.largest.Load(), int64(300), "arguments of the largest call: those of 128 requests, two each")
	stop()
	require.NoError(t, <-ended)
}
