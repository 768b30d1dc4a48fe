package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// C1, C6, C7, C14, C23 with real LiveKit servers, from which the test reads the rooms.
func TestLiveKit_ConferenceLifeCycle_RoomsFollow(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1 := s.liveKitUnit("u1", 5)
	numbers := []string{"8620000001", "8620000002"}
	for _, n := range numbers {
		m.open(n)
	}
	require.Len(t, u1.listed(), 2)
	u2 := s.liveKitUnit("u2", 5)

	u1.Pause()
	for _, n := range numbers {
		current := m.await(n, "on u2", on("u2"))
		require.Equal(t, current.Owner.Epoch, u2.listed()[n])
	}
	u1.Resume()
	kept := map[string]int64{}
	for _, n := range numbers {
		kept[n] = m.await(n, "the earlier copy again", on("u1")).Owner.Epoch
	}
	s.eventually("one room per conference to be left", func() bool { return len(u2.listed()) == 0 })
	require.Equal(t, kept, u1.listed(), "under their new epochs")

	u1.Server.Kill()
	for _, n := range numbers {
		current := m.await(n, "on u2", on("u2"))
		require.Greater(t, current.Owner.Epoch, kept[n])
		require.Equal(t, current.Owner.Epoch, u2.listed()[n])
		require.Len(t, current.Segments, 4)
	}
	u1.Restart()
	s.awaitNode("u1")
	for _, n := range numbers {
		m.await(n, "on u2 still", on("u2"))
		m.end(n, "conference-livekit")
	}
	s.eventually("no room to be left", func() bool { return len(u1.listed())+len(u2.listed()) == 0 })
	s.noSlots("u1", "u2")
}
