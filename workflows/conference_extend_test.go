package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

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

// extendTo requests an end time beside another extension.
func (h *conferenceTest) extendTo(endAt time.Time, result *updateResult[workflows.ExtendReply]) {
	h.env.UpdateWorkflow(workflows.UpdateExtend, "extend-to-"+endAt.String(), result, workflows.ExtendRequest{EndAt: endAt})
}

// The latest end time counts, in whatever order extensions arrive, also while another one is written.
func TestConference_ExtensionsOverlap_LatestEndCounts(t *testing.T) {
	t.Parallel()
	for name, later := range map[string][2]time.Duration{
		"the later one last": {time.Hour, 2 * time.Hour}, "the later one first": {2 * time.Hour, time.Hour},
	} {
		h := newConferenceTest(t, "u1")
		var latest time.Time
		var second updateResult[workflows.ExtendReply]
		h.at(time.Hour, func() {
			end := h.conference().EndAt
			latest = end.Add(2 * time.Hour)
			h.extend(end.Add(later[0]))
			h.extendTo(end.Add(later[1]), &second)
		})
		is := h.run()
		require.NoError(t, h.extended.err, name)
		require.True(t, h.extended.returned, name)
		require.NoError(t, second.err, name)
		require.Equal(t, latest, is.EndedAt, name)
		require.Equal(t, latest, h.commands[1].in.EndAt, "%s: its unit is sent the latest", name)
	}
}

// A unit that was not connected during the extension is sent the end time when it is.
func TestConference_ExtendedWhileItsUnitIsAway_UnitIsSentTheEnd(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	var later time.Time
	h.at(time.Minute, func() { h.unit("u1").generation = 7; h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(time.Minute+time.Second, func() { later = h.conference().EndAt.Add(time.Hour); h.extend(later) })
	h.at(time.Minute+2*time.Second, func() {
		require.NoError(t, h.extended.err)
		require.Equal(t, []string{"Create u1.1 1"}, h.commandNames())
		h.lists("u1", 7, 1, h.conference().CopyStartedAt)
	})
	h.at(2*time.Minute, func() { h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(2*time.Minute+time.Second, func() { h.lists("u1", 7, 1, h.conference().CopyStartedAt) })
	h.at(3*time.Minute, func() {
		require.Equal(t, []string{"Create u1.1 1", "Adopt u1.7 1"}, h.commandNames(), "once")
		require.Equal(t, later, h.commands[1].in.EndAt)
		h.release()
	})
	h.run()
}

// A run that continues as new before the unit has acknowledged the end time sends it again in the next one.
func TestConference_ContinuesAsNewAfterExtension_UnitIsSentTheEnd(t *testing.T) {
	t.Parallel()
	for _, acknowledged := range []bool{false, true} {
		h := newConferenceTest(t, "u1")
		unit := h.unit("u1")
		h.at(time.Minute, func() {
			if !acknowledged {
				unit.reply = noReply
			}
			h.extend(h.conference().EndAt.Add(time.Hour))
		})
		h.at(2*time.Minute, func() {
			h.env.SetContinueAsNewSuggested(true)
			h.notify(workflows.UnitNotice{NodeID: "u9", Generation: 1, Gone: berth.DepartureUnresponsive})
		})
		h.env.ExecuteWorkflow(workflows.ConferenceWorkflow, h.input())
		var next *workflow.ContinueAsNewError
		require.ErrorAs(t, h.env.GetWorkflowError(), &next)
		var in workflows.ConferenceInput
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))

		later := newConferenceTest(t, "u1")
		later.events, later.statuses = in.Resumed.Events, []berth.ConferenceStatus{berth.ConferenceCreating, berth.ConferenceOpen}
		later.held[in.Resumed.Slot.LeaseID] = "u1"
		later.at(time.Minute, later.release)
		later.run(func(c *workflows.ConferenceInput) { c.Resumed = in.Resumed })
		if acknowledged {
			require.Equal(t, []string{"Release u1.1 1"}, later.commandNames())
			continue
		}
		require.Equal(t, []string{"Adopt u1.1 1", "Release u1.1 1"}, later.commandNames())
		require.Equal(t, in.Resumed.Conference.EndAt, later.commands[0].in.EndAt)
	}
}

// What was due only after the former end time is done when the conference continues beyond it.
func TestConference_ExtendedWhileItWaits_RecoveryIsRetried(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u2").capacity = 0
	h.at(4*time.Hour-2*time.Minute, func() { h.dies("u1") })
	h.at(4*time.Hour-time.Minute, func() {
		require.Equal(t, berth.ConferenceAwaitingRecovery, h.conference().Status)
		h.unit("u2").capacity = 10
		h.extend(h.conference().EndAt.Add(time.Hour))
	})
	h.at(4*time.Hour+4*time.Minute, func() {
		require.Equal(t, "u2", h.conference().Owner.NodeID)
		h.release()
	})
	require.Equal(t, berth.EndReleased, h.run().End)
}
