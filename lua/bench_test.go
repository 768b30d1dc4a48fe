package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"

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
	perCall := regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`)
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
