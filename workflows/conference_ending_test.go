package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// C10, C17: while a unit does not acknowledge the release, the record and the stream show the reason, the requester and the
// command.
func TestConference_UnitDelaysRelease_EndIsAnnounced(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.unit("u1").reply = noReply; h.release() })
	h.at(time.Minute+2*time.Second, func() {
		require.False(t, h.released.returned)
		is := h.saves[len(h.saves)-1].Conference
		require.Equal(t, h.conference(), is, "it is written as it is")
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, berth.EndReleased, is.Ending)
		require.Equal(t, "olga", is.EndedBy)
		require.Equal(t, "u1", is.Owner.NodeID)
		last := is.Orders[len(is.Orders)-1]
		require.Equal(t, berth.ActivityReleaseConference, last.Command)
		require.Empty(t, last.Outcome)
		events := h.saves[len(h.saves)-1].Events
		require.Equal(t, berth.EndReleased, events[len(events)-1].Ending)
	})
	h.at(2*time.Minute, func() { h.unit("u1").reply = nil })
	is := h.run()
	require.Equal(t, berth.EndReleased, is.End)
	require.Empty(t, is.Ending)
	require.Equal(t, "olga", is.EndedBy)
	require.Equal(t, "acknowledged", is.Orders[len(is.Orders)-1].Outcome)

	h = newConferenceTest(t, "u1")
	h.at(time.Minute, h.release)
	h.run()
	for _, s := range h.saves {
		require.Empty(t, s.Conference.Ending, "nothing is announced when the unit replies immediately")
	}
}

// C10: a caller that waits for the creation is notified of the end immediately, not when the unit has acknowledged.
func TestConference_ReleasedBeforeOpen_CreateFailsImmediately(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.unit("u1").reply = noReply
	h.slow(berth.ActivityCreateConference, 9*time.Second)
	h.at(time.Second, h.release)
	h.at(2*time.Second, func() {
		require.True(t, h.created.returned)
		requireAppError(t, h.created.err, berth.CodeEnded)
		require.False(t, h.released.returned)
	})
	h.at(time.Minute, func() { h.unit("u1").reply = nil })
	is := h.run()
	require.Equal(t, berth.ConferenceEnded, is.Status)
	require.Equal(t, berth.EndReleased, is.End)
}
