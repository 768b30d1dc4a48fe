package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// A unit that does not reply is marked, so that it receives no other conferences, and is tried again soon if it is the only
// one.
func TestConference_UnitDoesNotReply_IsSkippedAndRetriedSoon(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u1").reply = noReply
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, []berth.NodeRef{{NodeID: "u1", Generation: 1}}, h.places[1].Unresponsive)
	require.Empty(t, h.places[0].Unresponsive)
	require.True(t, h.saves[0].Acknowledged)
	require.Empty(t, h.saves[0].Unresponsive, "it was marked already")
	require.False(t, h.saves[len(h.saves)-1].Acknowledged)

	h = newConferenceTest(t, "u1")
	h.unit("u1").reply = noReply
	h.at(10*time.Second, func() {
		require.Equal(t, berth.ConferenceAwaitingRecovery, h.conference().Status)
		h.unit("u1").reply = nil
	})
	h.at(workflows.SkipUnresponsiveFor+11*time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.conference().Status); h.release() })
	h.run()

	h = newConferenceTest(t, "u1") // a refusal is a reply: C9
	h.at(time.Second, func() {
		h.unit("u1").reply = nack
		h.dies("u1")
		h.units = append(h.units, &fakeUnit{id: "u2", generation: 1, capacity: 1, reply: nack})
	})
	h.at(2*time.Minute, func() {
		require.Equal(t, berth.ConferenceAwaitingRecovery, h.conference().Status)
		require.Len(t, h.places, 3, "not before the retry")
		require.Empty(t, h.places[2].Unresponsive)
		h.release()
	})
	h.run()
}

// C3, FC5: a command that waited for its unit until it was too late was not started: there is no copy to release, and the unit,
// which may run other commands, is not treated as unresponsive here. The next unit is tried.
func TestConference_CommandNotStarted_UnitIsNotUnresponsive(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2", "u3")
	h.unit("u2").reply = func(string) error { return temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil) }
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() { require.Equal(t, "u3", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Empty(t, h.withdrawn())
	require.Empty(t, h.places[2].Unresponsive)
	require.Equal(t, []berth.NodeRef{{NodeID: "u2", Generation: 1}}, h.places[2].NotStarted)
	require.Empty(t, h.saves[1].NotStarted, "it was checked already")
}

// C15: a unit that takes long to acknowledge may have lost its link meanwhile, and its copy may have ended in a way that it did not
// report: it is asked for a report of the epoch.
func TestConference_LateAcknowledgement_ReportIsRequested(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration][]string{0: nil, 2 * time.Second: {"node.u1.1 " + number + " 1"}} {
		h := newConferenceTest(t, "u1")
		if delay > 0 {
			h.slow(berth.ActivityCreateConference, delay)
		}
		h.at(time.Minute, h.release)
		h.run()
		require.Equal(t, want, h.reports, delay)
	}
}
