package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// A unit that does not answer is told of, so that others are not sent to it, and is asked again soon where there is no other.
func TestUnitsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.unit("u1").answer = silent
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, []workflows.NodeRef{{NodeID: "u1", Generation: 1}}, h.places[1].Unresponsive)
	require.Empty(t, h.places[0].Unresponsive)
	require.True(t, h.saves[0].Answered)
	require.Empty(t, h.saves[0].Unresponsive, "it was told already")
	require.False(t, h.saves[len(h.saves)-1].Answered)

	h = newHall(t, "u1")
	h.unit("u1").answer = silent
	h.at(10*time.Second, func() {
		require.Equal(t, berth.ConferenceAwaitingRecovery, h.now().Status)
		h.unit("u1").answer = nil
	})
	h.at(workflows.SkipUnresponsiveFor+11*time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.now().Status); h.release() })
	h.run()

	h = newHall(t, "u1") // a refusal is an answer: C9
	h.at(time.Second, func() {
		h.unit("u1").answer = nack
		h.dies("u1")
		h.units = append(h.units, &cmu{id: "u2", generation: 1, room: 1, answer: nack})
	})
	h.at(2*time.Minute, func() {
		require.Equal(t, berth.ConferenceAwaitingRecovery, h.now().Status)
		require.Len(t, h.places, 3, "not before the retry")
		require.Empty(t, h.places[2].Unresponsive)
		h.release()
	})
	h.run()
}
