package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/pause"
	"berth/internal/testredis"
	"berth/lua"
)

// BenchmarkFleet_HeartbeatingNodes_Mirrors measures what the snapshots of 20 processes cost while 10,000 nodes send 2,000
// heartbeats per second: Redis's commands and CPU time, and the CPU time of this process, which also sends the heartbeats. With
// 0 processes it measures the heartbeats alone. Run it with -benchtime 1x: each run takes 20 s.
func BenchmarkFleet_HeartbeatingNodes_Mirrors(b *testing.B) {
	for _, processes := range []int{0, 20} {
		b.Run(fmt.Sprintf("%d processes", processes), func(b *testing.B) {
			const nodes, perSecond, lasts = 10_000, 2000, 20 * time.Second
			server := testredis.Start(b)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 8 * max(1, processes)})
			b.Cleanup(func() { _ = rdb.Close() })
			scripts := lua.New(rdb, lua.Keys{})
			generations := make([]int64, nodes)
			for i := range nodes {
				r, err := scripts.RegisterNode(b.Context(), spec(fmt.Sprintf("n%05d", i), "translate:en-es", fmt.Sprintf("zone:%d", i%50)), lua.Registration{})
				require.NoError(b, err)
				generations[i] = r.Generation
			}
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			for range processes {
				f := fleet.New(scripts, fleet.Options{Logger: slog.New(slog.DiscardHandler)})
				running.Go(func() { _ = f.Run(ctx) })
				select {
				case <-f.Ready():
				case <-time.After(time.Minute):
					b.Fatal("not ready")
				}
			}
			for b.Loop() {
				commands, redisCPU, ownCPU, began := usage(b, rdb)
				var sent atomic.Int64
				var sending sync.WaitGroup
				for range 8 {
					sending.Go(func() {
						for time.Since(began) < lasts {
							n := sent.Add(1)
							if due := began.Add(time.Duration(n) * time.Second / perSecond); !pause.For(ctx, time.Until(due)) {
								return
							}
							i := n % nodes
							load := berth.NodeLoad{CPUUsage: float64(n % 100)}
							if _, err := scripts.HeartbeatNode(ctx, fmt.Sprintf("n%05d", i), generations[i], load, lua.Weights{Memory: 0.5}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				sending.Wait()
				commandsNow, redisNow, ownNow, ended := usage(b, rdb)
				took := ended.Sub(began).Seconds()
				b.ReportMetric(float64(sent.Load())/took, "heartbeats/s")
				b.ReportMetric(float64(commandsNow-commands)/took, "commands/s")
				b.ReportMetric(100*(redisNow-redisCPU)/took, "%redis-cpu")
				b.ReportMetric(100*(ownNow-ownCPU)/took, "%own-cpu")
			}
			cancel()
			running.Wait()
		})
	}
}

// usage returns the commands that Redis has run, and the CPU seconds of Redis and of this process.
func usage(b *testing.B, rdb *redis.Client) (commands int64, redisCPU, ownCPU float64, at time.Time) {
	b.Helper()
	info, err := rdb.Info(b.Context(), "stats", "cpu").Result()
	require.NoError(b, err)
	var user, sys float64
	for line := range strings.Lines(info) {
		_, _ = fmt.Sscanf(line, "total_commands_processed:%d", &commands)
		_, _ = fmt.Sscanf(line, "used_cpu_user:%g", &user)
		_, _ = fmt.Sscanf(line, "used_cpu_sys:%g", &sys)
	}
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return commands, user + sys, time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds(), time.Now()
}
