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
		require.NoError(t, s.QueueAdmissions(t.Context(), paidBatch, func(page []lua.Admitted) error {
			for _, p := range page {
				placed = append(placed, p.Task)
				require.WithinDuration(t, time.Now().Add(time.Hour), p.Until, time.Minute)
			}
			return nil
		}))
		require.Equal(t, tasks, sorted(placed))
		until, err := s.AdmittedUntil(t.Context(), berth.TaskRef{UserID: g.user, TaskID: "t1"}, []berth.Queue{paidStream, paidBatch})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), until, time.Minute)
		until, err = s.AdmittedUntil(t.Context(), berth.TaskRef{UserID: g.user, TaskID: "none"}, []berth.Queue{paidStream, paidBatch})
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

// B4: entries of nodes that are not registered leave the indexes of pools, and the pools' counts agree with their nodes.
func TestReconcile_MemberWithoutNode_LeavesThePool(t *testing.T) {
	t.Parallel()
	onAll(t, slotServers(t), func(t *testing.T, s *lua.Scripts) {
		rdb, keys := s.Redis(), s.Keys()
		unregistered := func() (ids []string) {
			require.NoError(t, s.MembersWithoutNode(t.Context(), func(m lua.Member) error { ids = append(ids, m.NodeID); return nil }))
			slices.Sort(ids)
			return slices.Compact(ids)
		}
		for _, id := range []string{"free", "full", "kept", "lost"} {
			register(t, s, spec(id))
		}
		for _, lease := range []string{"l1", "l2"} {
			require.Equal(t, "full", assign(t, s, lease, lua.Choice{Strategy: berth.StrategyAffinity, Own: "full"}).NodeID)
		}
		require.Equal(t, berth.PoolCounts{Free: 3, Excluded: map[berth.ExcludeReason]int{berth.ExcludeFull: 1}}, counts(t, s, pair))
		classes, err := rdb.ZRange(t.Context(), keys.PoolClasses(pair), 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, classes, 1)
		require.Empty(t, unregistered())

		require.NoError(t, rdb.HDel(t.Context(), keys.NodeBriefs(), "free", "full", "lost").Err())
		require.NoError(t, rdb.SRem(t.Context(), keys.ClassNodes(classes[0]), "lost").Err())
		require.NoError(t, rdb.SAdd(t.Context(), keys.ClassNodes(classes[0]), "never").Err())
		require.Equal(t, []string{"free", "full", "lost", "never"}, unregistered())
		kept := lua.Member{NodeID: "kept", Class: classes[0]}
		is, err := s.IsMemberWithoutNode(t.Context(), kept)
		require.NoError(t, err)
		require.False(t, is)
		code, err := s.DropMember(t.Context(), kept)
		require.NoError(t, err)
		require.Equal(t, lua.NodeExists, code)
		for _, id := range []string{"free", "full", "lost", "never"} {
			m := lua.Member{NodeID: id, Class: classes[0]}
			is, err := s.IsMemberWithoutNode(t.Context(), m)
			require.NoError(t, err)
			require.True(t, is, id)
			for range 2 { // idempotent
				code, err = s.DropMember(t.Context(), m)
				require.NoError(t, err)
				require.Equal(t, lua.NodeOK, code)
			}
			is, err = s.IsMemberWithoutNode(t.Context(), m)
			require.NoError(t, err)
			require.False(t, is, id)
		}
		require.Empty(t, unregistered())
		require.Equal(t, berth.PoolCounts{Free: 1, Excluded: map[berth.ExcludeReason]int{}}, counts(t, s, pair))
		require.Equal(t, []string{"kept"}, rdb.ZRange(t.Context(), keys.ClassFree(classes[0]), 0, -1).Val())
		require.Len(t, rdb.ZRange(t.Context(), keys.ClassLocations(classes[0]), 0, -1).Val(), 1)
		require.Equal(t, "kept", assign(t, s, "l3", lua.Choice{Strategy: berth.StrategyRoundRobin}).NodeID)

		// The last entry of a class, which the pool leaves with it.
		require.NoError(t, rdb.HDel(t.Context(), keys.NodeBriefs(), "kept").Err())
		code, err = s.DropMember(t.Context(), kept)
		require.NoError(t, err)
		require.Equal(t, lua.NodeOK, code)
		require.Equal(t, berth.PoolCounts{Excluded: map[berth.ExcludeReason]int{}}, counts(t, s, pair))
		for _, key := range []string{keys.PoolClasses(pair), keys.ClassFree(classes[0]), keys.ClassLocations(classes[0]), keys.ClassNodes(classes[0])} {
			require.Zero(t, rdb.Exists(t.Context(), key).Val(), key)
		}
		require.False(t, rdb.HExists(t.Context(), keys.Classes(), classes[0]).Val())
	})
}
