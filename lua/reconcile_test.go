package lua_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
)

// B4: what the reconciliation lists is complete, on every kind of Redis, and contains no other keys.
func TestReconcile_Lists_EverythingOnce(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		collect := func(into *[]string) func([]string) error {
			return func(ids []string) error { *into = append(*into, ids...); return nil }
		}
		sorted := func(ids []string) []string { slices.Sort(ids); return slices.Compact(ids) }

		g := newGate(t, s, lua.AdmissionLimits{})
		var tasks, turns, numbers []string
		for i := range 3 {
			id := fmt.Sprintf("t%d", i)
			g.keep(id)
			tasks = append(tasks, berth.TaskRef{UserID: g.user, TaskID: id}.String())
			turns, numbers = append(turns, "u_"+id), append(numbers, fmt.Sprintf("869000000%d", i))
			require.NoError(t, s.Redis().HSet(t.Context(), s.Keys().Turn("u_"+id), "affinity_node_id", "n1").Err())
			require.NoError(t, s.Redis().SAdd(t.Context(), s.Keys().Licences(), numbers[i]).Err())
		}
		var placed []string
		require.NoError(t, s.QueuePlaces(t.Context(), paidBatch, func(page []lua.Place) error {
			for _, p := range page {
				placed = append(placed, p.Task)
				require.WithinDuration(t, time.Now().Add(time.Hour), p.Until, time.Minute)
			}
			return nil
		}))
		require.Equal(t, tasks, sorted(placed))
		until, err := s.PlaceOf(t.Context(), berth.TaskRef{UserID: g.user, TaskID: "t1"}, []berth.Queue{paidStream, paidBatch})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), until, time.Minute)
		until, err = s.PlaceOf(t.Context(), berth.TaskRef{UserID: g.user, TaskID: "none"}, []berth.Queue{paidStream, paidBatch})
		require.NoError(t, err)
		require.Zero(t, until)

		var found []string
		require.NoError(t, s.Turns(t.Context(), collect(&found)))
		require.Equal(t, turns, sorted(found))
		has, err := s.HasTurn(t.Context(), "u_t0")
		require.NoError(t, err)
		require.True(t, has)
		require.NoError(t, s.DropTurn(t.Context(), "u_t0"))
		has, err = s.HasTurn(t.Context(), "u_t0")
		require.NoError(t, err)
		require.False(t, has)

		var licensed []string
		require.NoError(t, s.LicensedNumbers(t.Context(), collect(&licensed)))
		require.Equal(t, numbers, sorted(licensed))

		register(t, s, spec("a"))
		held := assign(t, s, "execution:x1:1", lua.Choice{PoolID: pair, Strategy: berth.StrategyRoundRobin, Hold: time.Minute}).Assignment
		var leases []string
		require.NoError(t, s.Leases(t.Context(), collect(&leases)))
		require.Equal(t, []string{held.LeaseID}, sorted(leases))
		until, err = s.HeldUntil(t.Context(), held.NodeID, held.LeaseID)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Minute), until, time.Minute)
		release(t, s, held)
		until, err = s.HeldUntil(t.Context(), held.NodeID, held.LeaseID)
		require.NoError(t, err)
		require.Zero(t, until)
	})
}
