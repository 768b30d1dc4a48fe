package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// BenchmarkAssign_Server measures the time for which a decision occupies Redis, by Redis's own statistics, in microseconds: the
// median and the minimum over chunks of 500 decisions about a pool of 1,000 nodes. Run it with -benchtime 1x.
func BenchmarkAssign_Server(b *testing.B) {
	server := testredis.Start(b)
	s := lua.New(server.Client(), lua.Keys{})
	_, err := s.MarkNew(b.Context())
	require.NoError(b, err)
	for i := range 1000 {
		_, err := s.RegisterNode(b.Context(), spec(fmt.Sprintf("n%04d", i), slots(berth.MaxNodeConcurrency)), lua.Registration{})
		require.NoError(b, err)
	}
	for b.Loop() {
		var chunks []float64
		for range 40 {
			var taken []berth.Assignment
			server.Do("CONFIG", "RESETSTAT")
			for i := range 500 {
				d, err := s.Assign(b.Context(), strconv.Itoa(i), lua.Choice{PoolID: pair, Strategy: berth.StrategyPowerOfTwo})
				require.NoError(b, err)
				require.Equal(b, lua.AssignOK, d.Code)
				taken = append(taken, d.Assignment)
			}
			m := perCall.FindStringSubmatch(server.Do("INFO", "commandstats"))
			require.NotNil(b, m)
			us, err := strconv.ParseFloat(m[1], 64)
			require.NoError(b, err)
			chunks = append(chunks, us)
			for _, a := range taken {
				_, err := s.ReleaseNodeSlot(b.Context(), a.NodeID, a.LeaseID)
				require.NoError(b, err)
			}
		}
		slices.Sort(chunks)
		b.ReportMetric(chunks[len(chunks)/2], "median-us")
		b.ReportMetric(chunks[0], "min-us")
	}
}

// BenchmarkSlots_Waiters measures the time for which a pair of acquire and release occupies Redis while others wait, by Redis's
// own statistics, in microseconds per call. Run it with -benchtime 1x: the time with 100,000 waiters has to be at most 1.5 times
// that with 1,000.
func BenchmarkSlots_Waiters(b *testing.B) {
	for _, waiters := range []int{0, 1_000, 100_000} {
		b.Run(strconv.Itoa(waiters), func(b *testing.B) {
			server := testredis.Start(b)
			s := lua.New(server.Client(), lua.Keys{})
			_, err := s.MarkNew(b.Context())
			require.NoError(b, err)
			limits := lua.ModelLimits{Cap: 5, UserCap: 5}
			held := []string{}
			for i := range 5 {
				held = append(held, lease("q_paid_batch", fmt.Sprintf("user%d", i), i))
				_, err := s.AcquireSlot(b.Context(), lua.SlotCall{Model: "m", Limits: limits, Lease: held[i], Times: longTimes})
				require.NoError(b, err)
			}
			fill(b, s, limits, waiters)
			for b.Loop() {
				var chunks []float64
				for range 20 {
					server.Do("CONFIG", "RESETSTAT")
					for i := range 200 {
						l := lease("q_paid_stream", fmt.Sprintf("user%d", i), b.N*1_000_000+i)
						_, err := s.AcquireSlot(b.Context(), lua.SlotCall{Model: "m", Limits: limits, Lease: l, Times: longTimes})
						require.NoError(b, err)
						holders, err := s.Redis().ZRange(b.Context(), s.Keys().ModelHolders("m"), 0, 0).Result()
						require.NoError(b, err)
						_, _, err = s.ReleaseSlot(b.Context(), "m", limits, longTimes, holders[0])
						require.NoError(b, err)
					}
					m := perCall.FindStringSubmatch(server.Do("INFO", "commandstats"))
					require.NotNil(b, m)
					us, err := strconv.ParseFloat(m[1], 64)
					require.NoError(b, err)
					chunks = append(chunks, us)
				}
				slices.Sort(chunks)
				b.ReportMetric(chunks[len(chunks)/2], "median-us")
				b.ReportMetric(chunks[0], "min-us")
			}
		})
	}
}

// longTimes let nothing expire while a benchmark runs.
var longTimes = lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}

var perCall = regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`)
