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

// FC8: the unit dies after its acknowledgement and before that is saved: no notice of its death reaches the conference.
func TestConference_UnitDiesBeforeItIsSaved_IsRecovered(t *testing.T) { // C1
	t.Parallel()
	for name, c := range map[string]struct {
		reply    workflows.SaveReply
		statuses []berth.ConferenceStatus
	}{
		"declared dead": {workflows.SaveReply{Gone: true, Dead: true}, recovered},
		"unknown to Redis": {workflows.SaveReply{Gone: true}, []berth.ConferenceStatus{
			berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingConnection, berth.ConferenceAwaitingRecovery,
			berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceEnded,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newConferenceTest(t, "u1", "u2")
			h.saved = func(in workflows.SaveInput) workflows.SaveReply {
				if in.Conference.Owner.NodeID != "u1" {
					return workflows.SaveReply{}
				}
				if h.unit("u1") != nil {
					h.units = h.units[1:]
				}
				return c.reply
			}
			h.at(time.Minute, h.release)
			require.Equal(t, berth.EndReleased, h.run().End)
			require.Equal(t, c.statuses, h.statuses)
		})
	}
}

// FC8: Redis does not know the unit for a moment: it registers again as another generation, whose list is requested because it
// may have been handled before the conference was saved as its own.
func TestConference_UnitRegistersAgainBeforeItIsSaved_StaysOnIt(t *testing.T) { // C4
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.saved = func(workflows.SaveInput) (reply workflows.SaveReply) {
		if h.unit("u1").generation == 1 {
			h.unit("u1").generation, reply.Gone = 2, true
		}
		return reply
	}
	h.at(12*time.Second, func() {
		require.Equal(t, workflows.LinkRequest{Unit: berth.NodeRef{NodeID: "u1", Generation: 2}}, h.linkRequests[len(h.linkRequests)-1])
		h.lists("u1", 2, 1, h.env.Now())
	})
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingConnection, berth.ConferenceOpen, berth.ConferenceEnded,
	}, h.statuses)
}

// FC12: a conference that continues as new publishes its events, releases its slots and marks its units as it would have
// without.
func TestConference_ContinuesAsNewWhileItWaits_NothingIsDropped(t *testing.T) { // C2
	t.Parallel()
	h := newConferenceTest(t, "u1")
	at := h.env.Now().Add(-time.Minute)
	slot := berth.Assignment{LeaseID: "conference:c1:1", NodeRef: berth.NodeRef{NodeID: "u1", Generation: 1}, PoolID: "conference"}
	silent := berth.NodeRef{NodeID: "u1", Generation: 1}
	waiting := berth.Conference{
		ConferenceSpec: h.input().Spec, ID: "c1", UserID: "alice", Status: berth.ConferenceAwaitingRecovery, Waiting: "no capacity",
		Segments: []berth.ConferenceSegment{}, Orders: []berth.ConferenceOrder{}, CreatedAt: at, LostAt: at, Epoch: 1, Revision: 9,
	}
	progress := workflows.ConferenceProgress{
		SubmissionID: "r1", Conference: waiting, Events: 3, RetryAt: h.env.Now().Add(time.Hour),
		Outbox: []berth.ConferenceEvent{waiting.Event(at)}, Release: []workflows.HeldSlot{{Assignment: slot}}, Unresponsive: []berth.NodeRef{silent},
		SkippedUnits: true,
	}
	h.env.SetContinueAsNewSuggested(true)
	h.env.ExecuteWorkflow(workflows.ConferenceWorkflow, h.input(func(in *workflows.ConferenceInput) { in.Resumed = &progress }))
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, h.env.GetWorkflowError(), &next)
	var in workflows.ConferenceInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(t, progress.Outbox[0].Status, in.Resumed.Outbox[0].Status)
	require.Equal(t, progress.Release, in.Resumed.Release)
	require.Equal(t, progress.Unresponsive, in.Resumed.Unresponsive)
	require.True(t, in.Resumed.SkippedUnits)

	later := newConferenceTest(t, "u1")
	later.events, later.statuses = 3, []berth.ConferenceStatus{berth.ConferenceCreating, berth.ConferenceOpen}
	later.at(time.Second, func() { later.env.SignalWorkflow(workflows.SignalCapacity, nil) })
	later.at(time.Minute, later.release)
	later.run(func(c *workflows.ConferenceInput) { c.Resumed = in.Resumed })
	require.Equal(t, in.Resumed.Release, later.places[0].Release)
	require.Equal(t, []berth.NodeRef{silent}, later.places[0].Unresponsive)
	require.Equal(t, recovered, later.statuses, "the event of the wait is published")
}

// B6: an idle conference whose version of the workers is not current any more continues as new on the current one when it is woken;
// one whose unit has not acknowledged yet does so afterwards. Without a change of the version the signal does nothing.
func TestConference_VersionChanges_ContinuesAsNewOnCurrentVersion(t *testing.T) {
	t.Parallel()
	upgraded := func(h *conferenceTest) (in workflows.ConferenceInput) {
		var next *workflow.ContinueAsNewError
		h.env.ExecuteWorkflow(workflows.ConferenceWorkflow, h.input())
		require.ErrorAs(t, h.env.GetWorkflowError(), &next)
		require.EqualValues(t, workflow.ContinueAsNewVersioningBehaviorAutoUpgrade, next.InitialVersioningBehavior)
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
		require.Equal(t, berth.ConferenceOpen, in.Resumed.Conference.Status)
		require.NotNil(t, in.Resumed.Slot, "its slot is kept")
		require.True(t, h.created.returned)
		require.NoError(t, h.created.err)
		return in
	}
	wake := func(h *conferenceTest) { h.env.SignalWorkflow(workflows.SignalUpgrade, nil) }

	idle := newConferenceTest(t, "u1")
	idle.at(time.Minute, func() { wake(idle) })
	idle.at(time.Hour, func() {
		require.Len(t, idle.statuses, 2)
		idle.env.SetTargetWorkerDeploymentVersionChanged(true)
		wake(idle)
	})
	in := upgraded(idle)
	require.Equal(t, "u1", in.Resumed.Conference.Owner.NodeID)

	creating := newConferenceTest(t, "u1")
	creating.slow(berth.ActivityCreateConference, 5*time.Second)
	creating.at(time.Second, func() {
		creating.env.SetTargetWorkerDeploymentVersionChanged(true)
		wake(creating)
	})
	upgraded(creating)
	require.Len(t, creating.commands, 1)

	later := newConferenceTest(t, "u1")
	later.events, later.statuses, later.held = idle.events, idle.statuses, idle.held
	later.at(time.Minute, later.release)
	later.run(func(c *workflows.ConferenceInput) { c.Resumed = in.Resumed })
	require.Equal(t, untilTheEnd, later.statuses)
}

// FC13: a conference that had many owners keeps the start of its record.
func TestConference_ManyOwners_RecordKeepsFirstAndLast(t *testing.T) { // C22
	t.Parallel()
	h := newConferenceTest(t, "u1")
	const owners = 260
	for i := range owners - 1 {
		h.at(time.Duration(i+1)*time.Second, func() {
			u := h.unit("u1")
			h.notify(workflows.UnitNotice{NodeID: "u1", Generation: u.generation, Incarnation: incarnation("u1", u.generation), Gone: berth.DepartureUnresponsive})
			u.generation++
		})
	}
	h.at(time.Hour, h.release)
	is := h.run()
	require.Len(t, is.Segments, 200)
	count := 0
	for i, s := range is.Segments {
		count += 1 + s.Merged
		require.Equal(t, i == 100, s.Merged > 0, "segment %d", i)
		if i > 0 {
			require.False(t, s.StartedAt.Before(is.Segments[i-1].EndedAt))
		}
	}
	require.Equal(t, owners, count)
	require.Equal(t, int64(1), is.Segments[0].Epoch)
	require.Equal(t, int64(owners), is.Segments[199].Epoch)
}

// C7, C20: an adoption that its unit refuses leaves the owner's epoch: reports of another one, even that the copy has ended, would be
// rejected as stale. conferenceTest.save requires it of every write.
func TestConference_AdoptionRefused_RowKeepsTheOwnersEpoch(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u2").reply = refuseExceptReleases
	h.at(time.Minute, func() { h.lists("u2", 1, -1, h.env.Now().Add(-time.Hour)) })
	h.at(2*time.Minute, func() { h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(3*time.Minute, func() {
		require.Len(t, h.adoptions, 1)
		require.Equal(t, "u1", h.conference().Owner.NodeID)
		require.Equal(t, int64(1), h.conference().Epoch)
		h.release()
	})
	require.Equal(t, berth.EndReleased, h.run().End)
}
