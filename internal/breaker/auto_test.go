package breaker

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/testredis"
	"berth/lua"
)

// provider permits a number of concurrent calls, which changes, and refuses others.
type provider struct {
	limit, running  atomic.Int64
	served, refused atomic.Int64
}

const providerCall = 10 * time.Millisecond

func (p *provider) call(ctx context.Context) error {
	n := p.running.Add(1)
	defer p.running.Add(-1)
	if n > p.limit.Load() {
		p.refused.Add(1)
		return &llm.CallError{Code: berth.CodeProviderUnavailable, Retryable: true, Cause: llm.CauseLimit, Message: "limited"}
	}
	timer := time.NewTimer(providerCall)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.served.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// load lets processes call the provider, more than it permits, and returns what reads the present cap.
func (p *provider) load(t *testing.T, u lua.UpstreamLimits) (learned func() int) {
	t.Helper()
	limits := lua.ModelLimits{Upstreams: []lua.UpstreamLimits{u}}
	server, keys := testredis.Start(t), lua.Keys{Cell: testredis.Cell(t)}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var working, running sync.WaitGroup
	t.Cleanup(func() { stop(); working.Wait(); running.Wait() })
	var reader *lua.Scripts
	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		scripts := lua.New(rdb, keys)
		reader = scripts
		_, err := scripts.MarkNew(ctx)
		require.NoError(t, err)
		slots := lease.New(scripts, lease.Options{Limits: func(string) lua.ModelLimits { return limits }})
		running.Go(func() { _ = slots.Run(ctx) })
		b := New(scripts, slog.New(slog.DiscardHandler))
		for i := range 10 {
			working.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					slot, err := slots.Acquire(ctx, lease.Request{Model: "m", Queue: "q", UserID: strconv.Itoa(i)})
					if err != nil {
						return
					}
					began := time.Now()
					err = p.call(slot.Context())
					b.Report(ctx, Call{
						Model: "m", Upstream: llm.Upstream{Name: u.Name, Auto: u.Auto}, Task: task(100*i + n%100), Took: time.Since(began),
					}, err)
					slot.Release()
				}
			})
		}
	}
	return func() int {
		room, err := reader.ReadRoom(t.Context(), "m", limits, 0)
		require.NoError(t, err)
		return room.Upstreams[0].Cap
	}
}

// G14: an automatic cap follows the limit of a provider, and buys fewer refusals than a fixed one. The figures are logged.
func TestReport_ProvidersLimitMoves_AutomaticCapFollows(t *testing.T) {
	for _, u := range []lua.UpstreamLimits{{Name: "only", Rank: 1, Auto: true, Min: 1, Cap: 20}, {Name: "only", Rank: 1, Cap: 12}} {
		p := &provider{}
		p.limit.Store(4)
		learned, calls := p.load(t, u), int64(300)
		if !u.Auto {
			calls = 60 // it is paused for most of the time
		}
		for _, limit := range []int64{4, 12, 2} {
			p.limit.Store(limit)
			served, refused, began := p.served.Load(), p.refused.Load(), time.Now()
			if u.Auto {
				require.Eventually(t, func() bool {
					n := int64(learned())
					return n >= limit/2 && n <= limit+2
				}, time.Minute, 10*time.Millisecond, "limit %d: %d slots", limit, learned())
			}
			reached := time.Since(began)
			require.Eventually(t, func() bool { return p.served.Load() >= served+calls }, 2*time.Minute, providerCall)
			took := time.Since(began)
			t.Logf("cap %s: limit %d: near it after %d ms, then %d slots; %d calls, %d refused, use %.0f %%",
				map[bool]string{true: "auto", false: strconv.Itoa(u.Cap)}[u.Auto], limit, reached.Milliseconds(), learned(),
				p.served.Load()-served, p.refused.Load()-refused,
				100*float64(p.served.Load()-served)*providerCall.Seconds()/took.Seconds()/float64(limit))
			if share := float64(p.refused.Load()-refused) / float64(p.served.Load()-served); u.Auto {
				require.Less(t, share, 0.5, "refused for each call")
			}
		}
	}
}
