package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// requestMove requests a move to a unit, or to any other one.
func (h *conferenceTest) requestMove(unit string) {
	h.env.UpdateWorkflow(workflows.UpdateMove, "move-"+h.env.Now().String(), &h.moved, workflows.MoveRequest{Unit: unit})
}

// drained notifies the conference of the end of its unit's drain.
func (h *conferenceTest) drained(id string) {
	h.unit(id).capacity = 0
	h.notify(workflows.UnitNotice{NodeID: id, Generation: 1, Gone: berth.DepartureDrained})
}

// S11, B10: a conference of a drained unit moves: it stays open, its new copy runs before the former one is released.
func TestConference_UnitDrained_MovesWhileOpen(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.drained("u1") })
	h.at(time.Minute+2*time.Second, func() {
		require.Equal(t, "u2", h.conference().Owner.NodeID)
		require.Empty(t, h.withdrawn(), "its participants are leaving it")
		require.Equal(t, map[string]string{"conference:c1:2": "u2"}, h.held)
	})
	h.at(2*time.Minute, h.release)
	is := h.run()
	require.Equal(t, untilTheEnd, h.statuses)
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn())
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Release u2.1 2"}, h.commandNames())
	require.Equal(t, berth.EndDrained, is.Segments[0].Reason)
	require.Len(t, is.Segments, 2)
	require.Contains(t, h.reports, "node.u2.1 "+number+" 2")
}

// B10: a drain without capacity elsewhere keeps the conference open and states what it waits for.
func TestConference_UnitDrainedWithoutCapacity_StaysOpenUntilThereIsSome(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.drained("u1") })
	h.at(2*time.Minute, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, "u1", is.Owner.NodeID)
		require.Equal(t, "unit u1 is drained: no capacity", is.Waiting)
		require.True(t, is.Moving)
		require.Len(t, h.moves, 1, "not before there is capacity")
		h.units = append(h.units, &fakeUnit{id: "u2", generation: 1, capacity: 1})
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(3*time.Minute, func() {
		is := h.conference()
		require.Equal(t, "u2", is.Owner.NodeID)
		require.Empty(t, is.Waiting)
		require.False(t, is.Moving)
		h.release()
	})
	h.run()
	require.Equal(t, untilTheEnd, h.statuses)
}

// S11: a drain that is cancelled while the conference waits leaves it where it is.
func TestConference_DrainCancelledWhileWaiting_Stays(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.drained("u1") })
	h.at(2*time.Minute, func() { h.undrained = true; h.env.SignalWorkflow(workflows.SignalCapacity, nil) })
	h.at(10*time.Minute, func() {
		require.Empty(t, h.conference().Waiting)
		require.Len(t, h.moves, 2)
		h.release()
	})
	is := h.run()
	require.Len(t, is.Segments, 1)
}

// B10: a move on request goes to the requested unit and returns when the conference runs there.
func TestConference_MoveRequested_RunsOnTheUnit(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2", "u3")
	h.at(time.Minute, func() { h.requestMove("u3") })
	h.at(2*time.Minute, func() {
		require.NoError(t, h.moved.err)
		require.Equal(t, "u3", h.moved.reply.Conference.Owner.NodeID)
		// A list that the former unit sends meanwhile does not bring the conference back.
		h.lists("u1", 1, 1, h.env.Now().Add(-time.Hour))
	})
	h.at(3*time.Minute, func() { require.Equal(t, "u3", h.conference().Owner.NodeID); h.release() })
	is := h.run()
	require.Equal(t, berth.EndMoved, is.Segments[0].Reason)
	require.Empty(t, h.adoptions)
}

// A requested move that no unit takes is refused, and the conference stays.
func TestConference_MoveNotPossible_IsRefused(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u2").capacity = 0
	h.at(time.Minute, func() { h.requestMove("") })
	h.at(2*time.Minute, func() {
		requireAppError(t, h.moved.err, berth.CodeNodeFull)
		h.moved = updateResult[workflows.MoveReply]{}
		h.unit("u2").capacity, h.unit("u2").reply = 1, nack
		h.requestMove("u2")
	})
	h.at(3*time.Minute, func() {
		requireAppError(t, h.moved.err, berth.CodeUnitRefused)
		h.moved = updateResult[workflows.MoveReply]{}
		h.requestMove("u1")
	})
	h.at(4*time.Minute, func() {
		require.ErrorContains(t, h.moved.rejected, "is on unit u1")
		require.Equal(t, "u1", h.conference().Owner.NodeID)
		require.Equal(t, map[string]string{"conference:c1:1": "u1", "conference:c1:2": "u2"}, h.held)
		h.release()
	})
	is := h.run()
	require.Len(t, is.Segments, 1)
	require.Empty(t, h.withdrawn(), "a refused copy was not created")
}

// C1, B10: during a move the owner is lost, or the unit that it moves to, or the conference ends.
func TestConference_LossDuringMove_IsHandled(t *testing.T) {
	t.Parallel()
	slowMove := func(t *testing.T) *conferenceTest {
		t.Helper()
		h := newConferenceTest(t, "u1", "u2", "u3")
		h.slow(berth.ActivityRecoverConference, 5*time.Second)
		h.at(time.Minute, func() { h.requestMove("") })
		return h
	}
	t.Run("the owner", func(t *testing.T) {
		t.Parallel()
		h := slowMove(t)
		h.at(time.Minute+2*time.Second, func() { h.dies("u1") })
		h.at(2*time.Minute, func() {
			requireAppError(t, h.moved.err, berth.CodeUnavailable)
			require.Equal(t, "u2", h.conference().Owner.NodeID)
			h.release()
		})
		h.run()
		require.Equal(t, recovered, h.statuses)
		require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
	})
	t.Run("the unit that it moves to", func(t *testing.T) {
		t.Parallel()
		h := slowMove(t)
		h.at(time.Minute+2*time.Second, func() { h.dies("u2") })
		h.at(2*time.Minute, func() {
			require.NoError(t, h.moved.err)
			require.Equal(t, "u3", h.conference().Owner.NodeID)
			h.release()
		})
		h.run()
		require.Equal(t, untilTheEnd, h.statuses)
	})
	t.Run("it ends", func(t *testing.T) {
		t.Parallel()
		h := slowMove(t)
		h.at(time.Minute+2*time.Second, h.release)
		h.run()
		requireAppError(t, h.moved.err, berth.CodeUnavailable)
		require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
	})
}
