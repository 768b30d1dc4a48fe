package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// C10, C17: an end that a unit does not acknowledge is told before it is done: that it is ending, who asked for it, and the order.
func TestC17EndingIsTold(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	h.at(time.Minute, func() { h.unit("u1").answer = silent; h.release() })
	h.at(time.Minute+2*time.Second, func() {
		require.False(t, h.released.answered)
		is := h.saves[len(h.saves)-1].Conference
		require.Equal(t, h.now(), is, "it is written as it is")
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
	h.at(2*time.Minute, func() { h.unit("u1").answer = nil })
	is := h.run()
	require.Equal(t, berth.EndReleased, is.End)
	require.Empty(t, is.Ending)
	require.Equal(t, "olga", is.EndedBy)
	require.Equal(t, "acknowledged", is.Orders[len(is.Orders)-1].Outcome)

	h = newHall(t, "u1")
	h.at(time.Minute, h.release)
	h.run()
	for _, s := range h.saves {
		require.Empty(t, s.Conference.Ending, "a unit that answers at once costs nothing more")
	}
}

// C10: whoever waits for a conference that is ended meanwhile hears of that at once, not when its unit has acknowledged.
func TestC10EndedBeforeItIsOpen(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	h.unit("u1").answer = silent
	h.slow(berth.ActivityCreateConference, 9*time.Second)
	h.at(time.Second, h.release)
	h.at(2*time.Second, func() {
		require.True(t, h.created.answered)
		requireAppError(t, h.created.err, berth.CodeEnded)
		require.False(t, h.released.answered)
	})
	h.at(time.Minute, func() { h.unit("u1").answer = nil })
	is := h.run()
	require.Equal(t, berth.ConferenceEnded, is.Status)
	require.Equal(t, berth.EndReleased, is.End)
}
