package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/workflows"
)

// extend requests an end time.
func (h *conferenceTest) extend(endAt time.Time) {
	h.env.UpdateWorkflow(workflows.UpdateExtend, "extend-"+endAt.String(), &h.extended, workflows.ExtendRequest{EndAt: endAt})
}

// A conference continues until its later end time, which its unit is sent. An earlier one is refused.
func TestConference_Extended_EndsLater(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	var first, later time.Time
	h.at(time.Hour, func() {
		first = h.conference().EndAt
		later = first.Add(time.Hour)
		h.extend(later)
	})
	h.at(2*time.Hour, func() {
		require.NoError(t, h.extended.err)
		require.Equal(t, later, h.extended.reply.Conference.EndAt)
		last := h.commands[len(h.commands)-1]
		require.Equal(t, berth.ActivityAdoptConference, last.command)
		require.Equal(t, later, last.in.EndAt)
		require.Equal(t, int64(1), last.in.Epoch, "the unit keeps its epoch")
		require.Equal(t, 4*time.Hour+time.Minute, h.saves[len(h.saves)-1].Hold.Left, "from the extension on")
		h.extend(first)
	})
	h.at(3*time.Hour, func() {
		require.ErrorContains(t, h.extended.rejected, "can only be extended")
		h.dies("u1")
	})
	h.at(4*time.Hour+30*time.Minute, func() {
		require.Equal(t, "u2", h.conference().Owner.NodeID, "it runs beyond its first end, also after a recovery")
	})
	is := h.run()
	require.Equal(t, berth.EndTime, is.End)
	require.Equal(t, later, is.EndedAt)
}

// A copy whose command was sent before the extension is sent the end time once it runs.
func TestConference_ExtendedDuringCreation_UnitIsSentTheEnd(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.slow(berth.ActivityCreateConference, 2*time.Second)
	var later time.Time
	h.at(time.Second, func() { later = h.conference().EndAt.Add(time.Hour); h.extend(later) })
	h.at(time.Minute, func() {
		require.Equal(t, later, h.commands[len(h.commands)-1].in.EndAt)
		h.release()
	})
	h.run()
}

// A conference that allows it is placed in another zone: immediately at its creation, after a time at a recovery.
func TestConference_ZoneFallback_AllowsAnyZoneAfterTheTime(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(time.Minute+10*time.Second, func() { h.env.SignalWorkflow(workflows.SignalCapacity, nil) })
	h.at(2*time.Minute, h.release)
	h.run(func(in *workflows.ConferenceInput) {
		in.Spec.Zone, in.Spec.ZoneFallback, in.Rules.Zone = "a", true, 30*time.Second
	})
	var allowed []bool
	for _, p := range h.places {
		allowed = append(allowed, p.AnyZone)
	}
	require.Equal(t, []bool{true, false, false, true}, allowed)
}
