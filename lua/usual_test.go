package lua_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testredis"
	"berth/lua"
)

// S1, S2, S9: include usual decides plain cases without the full search. Its decisions and its data in Redis equal those of
// the full search, which the test forces by excluding a node that does not exist.
func TestAssign_FastPath_DecidesLikeFullSearch(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(berth.Strategies(), "") {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			onBoth(t, slotServers(t), func(t *testing.T, fast *lua.Scripts) {
				ctx := t.Context()
				full := lua.New(fast.Redis(), lua.Keys{Cell: testredis.Cell(t) + "-full"})
				_, err := full.MarkNew(ctx)
				require.NoError(t, err)
				seed := rand.Uint64()
				t.Log("seed", seed)
				rnd := rand.New(rand.NewPCG(seed, 1))
				nodes := 3 + rnd.IntN(60)
				for i := range nodes {
					n := spec(fmt.Sprintf("n%02d", i), slots(1+rnd.IntN(4)))
					if rnd.IntN(3) == 0 {
						n.Capabilities = append(n.Capabilities, "else")
					}
					register(t, fast, n)
					register(t, full, n)
				}
				var held []string
				given := map[string][2]berth.Assignment{}
				for i := range 300 {
					if len(held) > 0 && rnd.IntN(3) == 0 {
						at := rnd.IntN(len(held))
						require.True(t, release(t, fast, given[held[at]][0]))
						require.True(t, release(t, full, given[held[at]][1]))
						held = slices.Delete(held, at, at+1)
						continue
					}
					lease := strconv.Itoa(i)
					c := lua.Choice{Strategy: strategy, Random: 1 + rnd.Int64N(1<<52-1)}
					a := assign(t, fast, lease, c)
					c.Excluded = []string{"no-such-node"}
					b := assign(t, full, lease, c)
					require.Equal(t, []any{b.Code, b.NodeID, b.Strategy}, []any{a.Code, a.NodeID, a.Strategy}, "decision %d", i)
					if a.Code == lua.AssignOK {
						held, given[lease] = append(held, lease), [2]berth.Assignment{a.Assignment, b.Assignment}
					}
				}
				for _, key := range []func(lua.Keys) string{
					func(k lua.Keys) string { return k.PoolFree(pair) }, func(k lua.Keys) string { return k.PoolFree("else") },
					func(k lua.Keys) string { return k.PoolRing(pair) },
				} {
					left, err := fast.Redis().ZRangeWithScores(ctx, key(fast.Keys()), 0, -1).Result()
					require.NoError(t, err)
					same, err := full.Redis().ZRangeWithScores(ctx, key(full.Keys()), 0, -1).Result()
					require.NoError(t, err)
					require.Equal(t, same, left)
				}
			})
		})
	}
}
