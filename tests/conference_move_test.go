package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// B10, S11: a conference moves on request and when its unit is drained. It stays open all the time, and its former room is
// deleted after the new one exists. Without capacity elsewhere a drain leaves it open. The rooms are read from LiveKit.
func TestLiveKit_PlannedMoves_NewRoomBeforeTheFormerEnds(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	operator := s.user("op", "operator")
	u1 := s.liveKitUnit("u1", 5)
	number := "8660100001"
	first := m.open(number)
	var refused *client.Problem
	_, err := operator.MoveConference(t.Context(), number, "")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status)
	require.Equal(t, first.Owner, m.await(number, "where it was", on("u1")).Owner)

	u2 := s.liveKitUnit("u2", 5)
	// The room on u2 exists before that on u1 ends.
	both, stop := make(chan bool, 1), make(chan struct{})
	go func() {
		seen := false
		for {
			select {
			case <-stop:
				both <- seen
				return
			default:
				_, there := u2.epochs()[number]
				_, here := u1.epochs()[number]
				seen = seen || there && here
			}
		}
	}()
	moved, err := operator.MoveConference(t.Context(), number, "u2")
	require.NoError(t, err)
	require.Equal(t, "u2", moved.Owner.NodeID)
	require.Equal(t, moved.Owner.Epoch, u2.epochs()[number])
	s.eventually("the former room to be deleted", func() bool { now := u1.epochs(); return now != nil && len(now) == 0 })
	close(stop)
	require.True(t, <-both)

	drain := func(id, what string, body map[string]any) {
		status, out := s.send(http.MethodPost, "/v1/nodes/"+id+"/"+what, s.token("op", "operator"), body)
		require.Equal(t, http.StatusOK, status, "%v", out)
	}
	drain("u2", "drain", map[string]any{"withinMs": 0})
	drained := m.await(number, "back on u1", on("u1"))
	require.Equal(t, berth.EndDrained, drained.Segments[1].Reason)
	require.Equal(t, berth.EndMoved, drained.Segments[0].Reason)
	s.eventually("the former room to be deleted", func() bool { now := u2.epochs(); return now != nil && len(now) == 0 })

	drain("u1", "drain", map[string]any{"withinMs": 0})
	waits := m.await(number, "waiting to be moved", func(c berth.Conference) bool { return c.Moving })
	require.Equal(t, berth.ConferenceOpen, waits.Status)
	require.Contains(t, waits.Waiting, "unit u1 is drained")
	require.Contains(t, u1.epochs(), number)
	drain("u2", "undrain", map[string]any{})
	m.await(number, "on u2 as soon as there is room", on("u2"))

	// The end time is in the room's mark.
	later := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
	_, err = m.ExtendConference(t.Context(), number, later)
	require.NoError(t, err)
	s.eventually("the room to have the later end", func() bool {
		_, copies, err := u2.rooms.List(t.Context())
		return err == nil && len(copies) == 1 && copies[0].EndAt.Equal(later)
	})
	m.end(number, "conference-planned-moves")
	require.Empty(t, u2.epochs())
	s.eventually("nothing to be left", func() bool { now := u1.epochs(); return now != nil && len(now) == 0 })
	s.noSlots("u1", "u2")
}

// C23: a killed LiveKit server is detected by its agent, without waiting for missed heartbeats. This prints the times.
func TestLiveKit_ServerKilled_NewRoomFollowsQuickly(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	m := s.conferences()
	u1, u2 := s.liveKitUnit("u1", 5), (*liveKitUnit)(nil)
	number := "8660200001"
	m.open(number)
	u2 = s.liveKitUnit("u2", 5)
	u1.Server.Kill()
	killed := time.Now()
	s.eventually("the room to be on u2", func() bool { _, there := u2.epochs()[number]; return there })
	t.Logf("kill -9 of a LiveKit server: the new room was seen after %s", time.Since(killed))
	current := m.await(number, "open on u2", on("u2"))
	require.Equal(t, berth.EndUnitLost, current.Segments[0].Reason)
	lost := current.Segments[0].EndedAt.Sub(killed)
	t.Logf("known to the controller after %s, acknowledged after %s", lost, current.Segments[1].StartedAt.Sub(killed))
	m.end(number, "conference-recovered")
}
