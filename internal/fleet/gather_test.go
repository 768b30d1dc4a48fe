package fleet_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
)

// L12: a Redis that lost its data tells nobody. The pool of a zone is there again for the first who asks for it, however old
// the copy is that says that it is defined.
func TestGatherZoneThatRedisForgot(t *testing.T) {
	t.Parallel()
	f, s, _ := follow(t)
	require.NoError(t, waitReady(t, f))
	register(t, s, "n1", "a")
	until(t, f, "registered", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 1 })
	pool := fleet.ZonePool(berth.NodeTranslate, "a", "")
	gather := func() bool {
		changed, err := f.GatherZone(t.Context(), pool)
		require.NoError(t, err)
		return changed
	}
	gathered := func(s *fleet.Snapshot) bool {
		return slices.Contains(s.Nodes["n1"].Pools, pool.ID) && len(s.Pools) == 1
	}
	require.True(t, gather())
	until(t, f, "gathered", gathered)
	require.False(t, gather(), "all are in it")

	require.NoError(t, s.Redis().FlushAll(t.Context()).Err())
	register(t, s, "n1", "a")
	now := until(t, f, "registered again", func(s *fleet.Snapshot) bool { return !slices.Contains(s.Nodes["n1"].Pools, pool.ID) })
	require.Contains(t, now.Pools, pool.ID, "nobody has told that it is gone")
	require.True(t, gather())
	until(t, f, "gathered again", gathered)

	// The copy may even be older than the node's return.
	require.NoError(t, s.Redis().FlushAll(t.Context()).Err())
	require.True(t, gather())
	register(t, s, "n1", "a")
	in, err := s.ReadNodes(t.Context(), "n1")
	require.NoError(t, err)
	require.Contains(t, in["n1"].Pools, pool.ID)
}
