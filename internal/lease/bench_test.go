package lease_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth/internal/lease"
	"berth/internal/testredis"
	"berth/lua"
)

// BenchmarkHandOver measures the row "model slots" of the design's speed table: cap 5, 1,000 waiters of 50 ms in 1 and in 4
// processes. Run it with -benchtime=1x. A hand-over is the time from a holder's call of Release to the start of the next
// holder; use is the time slots were held, relative to cap x elapsed. Compare it with BenchmarkBarePublish of the same run.
func BenchmarkHandOver(b *testing.B) {
	for _, processes := range []int{1, 4} {
		b.Run(fmt.Sprintf("processes=%d", processes), func(b *testing.B) {
			for range b.N {
				handOver(b, processes, 1000, 5, 50*time.Millisecond)
			}
		})
	}
}

func handOver(b *testing.B, processes, waiters, slots int, work time.Duration) {
	server := testredis.Start(b)
	ctx := b.Context()
	var running sync.WaitGroup
	run, stop := context.WithCancel(ctx)
	pool := make([]*lease.Slots, processes)
	for i := range pool {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		b.Cleanup(func() { _ = rdb.Close() })
		scripts := lua.New(rdb, lua.Keys{Cell: "bench"})
		require.NoError(b, scripts.Load(ctx))
		_, err := scripts.MarkNew(ctx)
		require.NoError(b, err)
		pool[i] = lease.New(scripts, lease.Options{Limits: func(string) lua.ModelLimits { return lua.OneUpstream(slots) }})
		running.Go(func() { _ = pool[i].Run(run) })
		<-pool[i].Ready()
	}
	type span struct{ start, release time.Time }
	spans := make(chan span, waiters)
	errs := make(chan error, waiters)
	begin := time.Now()
	for i := range waiters {
		go func() {
			slot, err := pool[i%processes].Acquire(ctx, lease.Request{Model: "m", Queue: "q_paid_stream", UserID: "u"})
			if err != nil {
				errs <- err
				return
			}
			s := span{start: time.Now()}
			busy := time.NewTimer(work)
			<-busy.C
			s.release = time.Now()
			slot.Release()
			spans <- s
		}()
	}
	var starts, releases []time.Time
	for range waiters {
		select {
		case s := <-spans:
			starts, releases = append(starts, s.start), append(releases, s.release)
		case err := <-errs:
			require.NoError(b, err)
		}
	}
	stop()
	running.Wait()
	slices.SortFunc(starts, time.Time.Compare)
	slices.SortFunc(releases, time.Time.Compare)
	elapsed := releases[len(releases)-1].Sub(begin)
	var held time.Duration // measured, because timers are late on a busy machine
	for i := range starts {
		held += releases[i].Sub(starts[i])
	}
	var gaps []time.Duration
	var over int
	for i := slots; i < waiters; i++ {
		gap := starts[i].Sub(releases[i-slots])
		if gap < 0 {
			over++
		}
		gaps = append(gaps, gap)
	}
	b.ReportMetric(float64(over), "over")
	b.ReportMetric(100*float64(held)/float64(time.Duration(slots)*elapsed), "%use")
	report(b, gaps)
}

// BenchmarkBarePublish measures a Redis publish to a go-redis subscriber, at the rate of the hand-overs above.
func BenchmarkBarePublish(b *testing.B) {
	server := testredis.Start(b)
	rdb := server.Client()
	sub := rdb.Subscribe(b.Context(), "bare")
	defer func() { _ = sub.Close() }()
	messages := sub.ChannelWithSubscriptions()
	<-messages
	for range b.N {
		var took []time.Duration
		tick := time.NewTicker(10 * time.Millisecond)
		for range 1000 {
			<-tick.C
			begin := time.Now()
			go rdb.Publish(b.Context(), "bare", "x")
			<-messages
			took = append(took, time.Since(begin))
		}
		tick.Stop()
		report(b, took)
	}
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for name, d := range map[string]time.Duration{
		"p50-ms": took[len(took)/2], "p99-ms": took[len(took)*99/100], "max-ms": took[len(took)-1],
	} {
		b.ReportMetric(float64(d)/float64(time.Millisecond), name)
	}
}
