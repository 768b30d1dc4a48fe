package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// C1, C6: a lost conference is recovered on another unit, by the command for recoveries, with its original end time.
func TestConference_UnitDies_RecoveredOnAnotherUnit(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.dies("u1") })
	var other updateResult[any]
	h.at(2*time.Minute, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, "u2", is.Owner.NodeID)
		require.Equal(t, int64(2), is.Owner.Epoch)
		require.Zero(t, is.LostAt)
		h.env.UpdateWorkflow(workflows.UpdateRelease, "other", &other, workflows.ReleaseRequest{ConferenceID: "another"})
		h.release()
	})
	is := h.run()
	require.Equal(t, recovered, h.statuses)
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Release u2.1 2"}, h.commandNames())
	require.Equal(t, h.commands[0].in.EndAt, h.commands[1].in.EndAt, "C6")
	require.NoError(t, h.created.err)
	require.Equal(t, berth.ConferenceOpen, h.created.reply.Conference.Status)
	require.True(t, h.released.returned)
	require.ErrorContains(t, other.rejected, "has ended", "the number's conference before")
	require.Len(t, is.Segments, 2)
	require.Equal(t, berth.EndUnitLost, is.Segments[0].Reason)
	require.Equal(t, berth.EndReleased, is.Segments[1].Reason)
	require.Empty(t, h.withdrawn(), "no copy is left")
	require.Len(t, h.saves, 3, "open, open again, ended: a loss is written with what follows it")
}

// C2: without capacity it waits, and is tried immediately when capacity is signalled.
func TestConference_NoCapacity_WaitsForTheCapacitySignal(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u2").capacity = 0
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(time.Minute+time.Second, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceAwaitingRecovery, is.Status)
		require.Equal(t, "no capacity", is.Waiting)
		require.Zero(t, is.Owner)
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(time.Minute+2*time.Second, func() {
		require.Len(t, h.places, 3, "tried, and waits again")
		h.unit("u2").capacity = 1
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(time.Minute+3*time.Second, func() {
		require.Equal(t, "u2", h.conference().Owner.NodeID)
		h.release()
	})
	h.run()
	require.Equal(t, recovered, h.statuses)
	require.Len(t, h.places, 4)
}

// C4: after Redis lost data, an open conference awaits its unit's list, and is open again when that includes it, also under
// another generation of the same process.
func TestConference_RedisLosesRow_OpenAgainWhenListed(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u1").generation = 7; h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(time.Minute+time.Second, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceAwaitingConnection, is.Status)
		require.Equal(t, "u1", is.Owner.NodeID, "its reports are still accepted")
		h.lists("u1", 7, 1, is.CopyStartedAt)
	})
	h.at(time.Minute+2*time.Second, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, int64(7), is.Owner.Generation)
		require.Equal(t, int64(1), is.Owner.Epoch)
		hold := h.saves[len(h.saves)-1].Hold
		require.Equal(t, int64(7), hold.Generation, "the slot is restored")
		require.Equal(t, "conference:c1:1", hold.LeaseID)
		h.release()
	})
	is := h.run()
	require.Equal(t, []string{"node.u1.7 " + number + " 1"}, h.reports)
	require.Equal(t, []string{"Create u1.1 1", "Release u1.7 1"}, h.commandNames())
	require.Len(t, is.Segments, 1)
}

// C4: a unit that Redis lost and that does not register again is never declared dead; its conference is recovered all the same.
func TestConference_UnitDoesNotRegisterAgain_IsRecovered(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.units = h.units[1:]; h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(2*time.Minute, func() { require.Equal(t, "u2", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingConnection, berth.ConferenceAwaitingRecovery,
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceEnded,
	}, h.statuses)
}

// C4: a unit that Redis kept need not register again: it is asked for its list.
func TestConference_UnitStaysRegistered_IsAskedForItsList(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.env.SignalWorkflow(workflows.SignalRestore, nil) })
	h.at(time.Minute+11*time.Second, func() {
		require.Len(t, h.linkRequests, 1)
		require.Equal(t, workflows.LinkRequest{Unit: berth.NodeRef{NodeID: "u1", Generation: 1}}, h.linkRequests[0])
		h.lists("u1", 1, 1, h.conference().CopyStartedAt)
	})
	h.at(time.Minute+12*time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.conference().Status) })
	h.run()
}

// C5: after its end time it is not recovered. C22: the record ends when the unit was lost, and keeps the planned end.
func TestConference_EndTime_EndsAndIsNotRecovered(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	is := h.run()
	require.Equal(t, untilTheEnd, h.statuses)
	require.Equal(t, berth.EndTime, is.End)
	require.Equal(t, is.EndAt.Unix(), is.EndedAt.Unix())
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.commandNames())

	h = newConferenceTest(t, "u1")
	var lost time.Time
	h.at(time.Hour, func() { lost = h.env.Now(); h.dies("u1") })
	is = h.run()
	require.Equal(t, berth.EndNotRecovered, is.End)
	require.Equal(t, lost.Unix(), is.EndedAt.Unix())
	require.Equal(t, 3*time.Hour, is.EndAt.Sub(is.EndedAt).Round(time.Second))
	require.Equal(t, []string{"Create u1.1 1"}, h.commandNames())
	require.Len(t, h.places, 1+36, "tried every five minutes")
}

// C7: the copy that started earlier is kept, under a new epoch that is sent to its unit; the later one is released.
func TestConference_EarlierCopyReturns_IsAdopted(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	var started time.Time
	h.at(time.Minute, func() { started = h.conference().CopyStartedAt; h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &fakeUnit{id: "u1", generation: 2, capacity: 10})
		h.lists("u1", 2, 1, started)
	})
	h.at(3*time.Minute, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, berth.ConferenceOwner{NodeID: "u1", Generation: 2, Incarnation: incarnation("u1", 1), Epoch: 3}, is.Owner)
		require.True(t, started.Equal(is.CopyStartedAt))
		require.Equal(t, map[string]string{"conference:c1:3": "u1"}, h.held, "the other's slot is free")
		h.release()
	})
	is := h.run()
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Adopt u1.2 3", "Release u1.2 3"}, h.commandNames())
	require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
	require.Equal(t, []string{"node.u1.2 " + number + " 3"}, h.reports, "what it reported before it was the owner was dropped")
	require.Len(t, is.Segments, 3)
	require.Equal(t, berth.EndReplaced, is.Segments[1].Reason)
}

// C7: the later copy is released; so are copies of another conference of the number, and those with a fenced epoch.
func TestConference_LaterCopyListed_IsReleased(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.lists("u2", 1, 0, h.env.Now()) })
	h.at(2*time.Minute, func() {
		require.Equal(t, "u1", h.conference().Owner.NodeID)
		h.notify(workflows.UnitNotice{NodeID: "u2", Generation: 1, Copy: &berth.UnitCopy{
			E164: number, ConferenceID: "c0", Epoch: 0, StartedAt: h.env.Now().Add(-time.Hour),
		}})
		h.lists("u2", 1, 0, h.env.Now().Add(-time.Hour))   // fenced by now
		h.lists("u1", 1, 1, h.conference().CopyStartedAt)  // the owner's
		h.lists("u1", 1, -1, h.conference().CopyStartedAt) // listed before the owner received its epoch
	})
	h.run()
	require.Equal(t, []string{"u2.1 0", "u2.1 0", "u2.1 0"}, h.withdrawn())
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.commandNames())
	require.Len(t, h.saves, 2)
}

// C7: the earlier copy returns while the later one is still being created: its late acknowledgement is followed by a release.
func TestConference_EarlierCopyReturnsDuringRecovery_IsAdopted(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.slow(berth.ActivityRecoverConference, 5*time.Second)
	var started time.Time
	h.at(time.Minute, func() {
		started = h.conference().CopyStartedAt
		h.dies("u1")
	})
	h.at(time.Minute+time.Second, func() {
		require.Equal(t, berth.ConferenceCreating, h.conference().Status)
		h.units = append(h.units, &fakeUnit{id: "u1", generation: 2, capacity: 10})
		h.lists("u1", 2, 1, started)
	})
	h.at(time.Minute+2*time.Second, func() { require.Equal(t, "u1", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
}

// C7: without another copy the one that returns is adopted, even when no unit has capacity.
func TestConference_CopyReturnsWhileWaiting_IsAdopted(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &fakeUnit{id: "u1", generation: 2})
		h.lists("u1", 2, 1, h.env.Now().Add(-2*time.Minute))
	})
	h.at(3*time.Minute, func() { require.Equal(t, "u1", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingRecovery, berth.ConferenceOpen, berth.ConferenceEnded,
	}, h.statuses)
}

// C7: a failed adoption changes nothing, and the copy is released; a waiting conference is recovered.
func TestConference_AdoptionFails_CopyIsReleased(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(string) error{"refused": nack, "lost": noReply} {
		h := newConferenceTest(t, "u1", "u2")
		var started time.Time
		h.at(time.Minute, func() { started = h.conference().CopyStartedAt; h.dies("u1") })
		h.at(2*time.Minute, func() {
			h.units = append(h.units, &fakeUnit{id: "u1", generation: 2, capacity: 10, reply: answer})
			h.lists("u1", 2, 1, started)
			h.lists("u1", 2, 1, started)
		})
		h.at(3*time.Minute, func() {
			require.Equal(t, "u2", h.conference().Owner.NodeID, name)
			require.Equal(t, map[string]string{"conference:c1:2": "u2", "conference:c1:3": "u1"}, h.held)
			h.release()
		})
		h.run()
		require.Equal(t, []string{"u1.2 3", "u1.2 1"}, h.withdrawn(), name)
		require.Len(t, h.adoptions, 1)
	}
}

// C7, FC6: a failed adoption of the only copy does not release it before another copy runs.
func TestConference_AdoptionOfOnlyCopyFails_CopyIsKept(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(string) error{"refused": nack, "lost": noReply} {
		h := newConferenceTest(t, "u1", "u2")
		h.unit("u2").capacity = 0
		var started time.Time
		h.at(time.Minute, func() { started = h.conference().CopyStartedAt; h.dies("u1") })
		h.at(2*time.Minute, func() {
			h.units = append(h.units, &fakeUnit{id: "u1", generation: 2, reply: answer})
			h.lists("u1", 2, 1, started)
		})
		h.at(3*time.Minute, func() {
			require.Equal(t, berth.ConferenceAwaitingRecovery, h.conference().Status, name)
			require.Empty(t, h.withdrawn(), name)
			h.lists("u1", 2, 1, started) // as after another registration: it is tried again
		})
		h.at(4*time.Minute, func() {
			require.Len(t, h.adoptions, 2, name)
			require.Empty(t, h.withdrawn(), name)
			h.unit("u2").capacity = 1
			h.env.SignalWorkflow(workflows.SignalCapacity, nil)
		})
		h.at(5*time.Minute, func() {
			require.Equal(t, "u2", h.conference().Owner.NodeID, name)
			require.Equal(t, []string{"u1.2 2", "u1.2 3"}, h.withdrawn(), name)
			h.release()
		})
		h.run()
	}
}

// C7: the unit dies again during the adoption.
func TestConference_UnitDiesDuringAdoption_IsRecovered(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.slow(berth.ActivityAdoptConference, 5*time.Second)
	h.unit("u2").capacity = 0
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &fakeUnit{id: "u1", generation: 2})
		h.lists("u1", 2, 1, h.env.Now().Add(-2*time.Minute))
	})
	h.at(2*time.Minute+time.Second, func() { h.unit("u2").capacity = 1; h.dies("u1") })
	h.at(3*time.Minute, func() { require.Equal(t, "u2", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// C8: a conference that is not recoverable ends with its unit.
func TestConference_NotRecoverable_EndsWithItsUnit(t *testing.T) {
	t.Parallel()
	legacy := func(in *workflows.ConferenceInput) { in.Spec.Recoverable = false }
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() {
		h.notify(workflows.UnitNotice{NodeID: "u1", Generation: 1, Gone: berth.DepartureDrained})
	})
	h.at(2*time.Minute, func() {
		require.Equal(t, berth.ConferenceOpen, h.conference().Status, "a drain does not move a conference that is not recoverable")
		h.dies("u1")
	})
	is := h.run(legacy)
	require.Equal(t, untilTheEnd, h.statuses)
	require.Equal(t, berth.EndNotRecoverable, is.End)
	require.Len(t, h.places, 1)

	h = newConferenceTest(t, "u1")
	h.unit("u1").reply = noReply
	is = h.run(legacy)
	require.Equal(t, berth.ConferenceDeleted, is.Status)
	requireAppError(t, h.created.err, berth.CodeNodeFailed)
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn(), "it may run there")
}

// C9: a refused recovery is retried every five minutes, for thirty minutes from the first refusal.
func TestConference_RecoveryRefused_GivenUpAfterTheLimit(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	var lost time.Time
	h.at(time.Minute, func() { lost = h.env.Now(); h.unit("u2").reply = nack; h.dies("u1") })
	is := h.run()
	require.Equal(t, berth.EndNotRecovered, is.End)
	require.Equal(t, lost.Unix(), is.EndedAt.Unix(), "C22")
	last := h.saves[len(h.saves)-1]
	require.Equal(t, is.RefusedAt.Add(30*time.Minute).Unix(), h.env.Now().Unix())
	require.Equal(t, berth.EventDone, last.Events[len(last.Events)-1].Type)
	recoveries := 0
	for _, c := range h.commands {
		if c.command == berth.ActivityRecoverConference {
			recoveries++
		}
	}
	require.Equal(t, 6, recoveries, "immediately and every five minutes")
}

// C9: the thirty minutes start again with the next loss.
func TestConference_RecoverySucceeds_RefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u2").reply = nack; h.dies("u1") })
	h.at(3*time.Minute, func() {
		require.False(t, h.conference().RefusedAt.IsZero())
		h.unit("u2").reply = nil
	})
	h.at(7*time.Minute, func() {
		is := h.conference()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Zero(t, is.RefusedAt)
		h.release()
	})
	h.run()
}

// C10: an administrator can end it in any status.
func TestConference_Release_EndsInEveryStatus(t *testing.T) {
	t.Parallel()
	for status, prepare := range map[berth.ConferenceStatus]func(h *conferenceTest){
		berth.ConferenceCreating: func(h *conferenceTest) { h.slow(berth.ActivityCreateConference, 2*time.Second) },
		berth.ConferenceOpen:     func(*conferenceTest) {},
		berth.ConferenceAwaitingRecovery: func(h *conferenceTest) {
			h.at(500*time.Millisecond, func() { h.dies("u1") })
		},
		berth.ConferenceAwaitingConnection: func(h *conferenceTest) {
			h.at(500*time.Millisecond, func() { h.env.SignalWorkflow(workflows.SignalRestore, nil) })
		},
	} {
		h := newConferenceTest(t, "u1")
		prepare(h)
		h.at(time.Second, func() { require.Equal(t, status, h.conference().Status); h.release() })
		is := h.run()
		require.Equal(t, berth.ConferenceEnded, is.Status, status)
		require.Equal(t, berth.EndReleased, is.End, status)
		require.True(t, h.released.returned)
		require.NoError(t, h.released.err)
		require.True(t, h.created.returned)
	}
}

// C11: when a unit refuses a recovery, or does not reply, the next one is tried immediately.
func TestConference_UnitRefusesRecovery_NextUnitIsTried(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2", "u3", "u4")
	h.unit("u2").reply, h.unit("u3").reply = nack, noReply
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() { require.Equal(t, "u4", h.conference().Owner.NodeID); h.release() })
	is := h.run()
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Recover u3.1 3", "Recover u4.1 4", "Release u4.1 4"}, h.commandNames())
	require.Equal(t, []string{"u3.1 3"}, h.withdrawn(), "the copy may exist on the unit that did not reply")
	var outcomes []string
	for _, o := range is.Orders {
		outcomes = append(outcomes, o.NodeID+": "+o.Outcome)
	}
	require.Equal(t, []string{
		"u1: acknowledged", "u2: refused: no licence", "u3: lost: the node did not finish in time", "u3: sent through the unit's link",
		"u4: acknowledged", "u4: acknowledged",
	}, outcomes)
}

// C9, C11, FC4: a unit that refused a recovery is not tried again before the retry time, also when the slot that its refusal freed
// is reported as capacity. Another unit is.
func TestConference_UnitRefusedRecovery_CapacityDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	recoveries := func() (n int) {
		for _, c := range h.commands {
			if c.command == berth.ActivityRecoverConference {
				n++
			}
		}
		return n
	}
	h.at(time.Minute, func() { h.unit("u2").reply = nack; h.dies("u1") })
	for i := range 20 {
		h.at(time.Minute+time.Duration(i+1)*10*time.Second, func() { h.env.SignalWorkflow(workflows.SignalCapacity, nil) })
	}
	h.at(5*time.Minute, func() { require.Equal(t, 1, recoveries()) })
	h.at(7*time.Minute, func() {
		require.Equal(t, 2, recoveries(), "at the retry time")
		h.units = append(h.units, &fakeUnit{id: "u3", generation: 1, capacity: 1})
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(8*time.Minute, func() { require.Equal(t, "u3", h.conference().Owner.NodeID); h.release() })
	h.run()
}

// C14: the same process ended it intentionally; another one lost it.
func TestConference_MissingFromList_IncarnationDecidesBetweenEndAndRecovery(t *testing.T) {
	t.Parallel()
	missing := func(n int64) workflows.UnitNotice {
		return workflows.UnitNotice{NodeID: "u1", Generation: 2, Incarnation: incarnation("u1", n), Missing: true, Epoch: 1}
	}
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.notify(missing(1)) })
	is := h.run()
	require.Equal(t, berth.EndByUnit, is.End)
	require.Equal(t, []string{"Create u1.1 1"}, h.commandNames(), "there is nothing to release")

	h = newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.units = h.units[1:]; h.notify(missing(2)) })
	h.at(2*time.Minute, func() { require.Equal(t, "u2", h.conference().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// C16: a creation returns when the conference is open; equal requests share the reply; for others the number is in use.
func TestConference_Create_EqualRequestsShareTheReply(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	var same, other updateResult[workflows.CreateReply]
	h.at(time.Second, func() { h.submit("h1", "r2", &same); h.submit("h2", "r3", &other) })
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, "r1", h.created.reply.SubmissionID)
	require.Equal(t, "r1", same.reply.SubmissionID)
	requireAppError(t, other.rejected, berth.CodeConflict)
	require.False(t, h.places[0].Conference.Status.Final())
	require.True(t, h.places[0].First)
}

// C16: when it is refused, or without capacity, everything is rolled back and the caller receives the error.
func TestConference_CreationRefused_IsRolledBack(t *testing.T) {
	t.Parallel()
	deleted := []berth.ConferenceStatus{berth.ConferenceCreating, berth.ConferenceDeleted}
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u1").reply = nack
	is := h.run()
	require.Equal(t, berth.EndRefused, is.End)
	require.Equal(t, deleted, h.statuses)
	requireAppError(t, h.created.err, berth.CodeUnitRefused)
	require.ErrorContains(t, h.created.err, "no licence")
	require.Equal(t, []string{"Create u1.1 1"}, h.commandNames(), "it is not tried elsewhere")

	h = newConferenceTest(t)
	is = h.run()
	require.Equal(t, berth.EndNoCapacity, is.End)
	require.Equal(t, berth.ConferenceDeleted, is.Status)
	requireAppError(t, h.created.err, berth.CodeNodeFull)
	require.Empty(t, h.commandNames())
}

// C16: a creation without a reply is a lost unit: it is placed again, or waits, and the caller is notified.
func TestConference_UnitDiesDuringCreation_IsRecovered(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.unit("u1").reply = noReply
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, "u2", h.created.reply.Conference.Owner.NodeID)
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Release u2.1 2"}, h.commandNames())
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn())

	h = newConferenceTest(t, "u1")
	h.unit("u1").reply = noReply
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, berth.ConferenceAwaitingRecovery, h.created.reply.Conference.Status)
}

// C17: a release is retried until the unit has acknowledged it; notices of other units end nothing.
func TestConference_Release_RetriedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() {
		tries := 0
		h.unit("u1").reply = func(string) error {
			if tries++; tries < 4 {
				return temporal.NewApplicationError("not now", "busy")
			}
			return nil
		}
		h.notify(workflows.UnitNotice{NodeID: "u2", Generation: 1, Incarnation: incarnation("u2", 1), Missing: true, Epoch: 1})
		h.notify(workflows.UnitNotice{NodeID: "u1", Generation: 1, Incarnation: incarnation("u1", 1), Missing: true, Epoch: 9})
		h.notify(workflows.UnitNotice{NodeID: "u2", Generation: 1, Gone: berth.DepartureUnresponsive})
		h.notify(workflows.UnitNotice{NodeID: "u1", Generation: 0, Gone: berth.DepartureUnresponsive})
	})
	h.at(time.Minute+time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.conference().Status); h.release() })
	h.at(time.Minute+2*time.Second, func() { require.False(t, h.released.returned, "not before it is acknowledged") })
	is := h.run()
	require.Len(t, h.commands, 5)
	require.Equal(t, "acknowledged", is.Orders[1].Outcome)
	require.Equal(t, berth.EndReleased, is.End)
}

// C17: a unit that dies during the release has released.
func TestConference_UnitDiesDuringRelease_Ends(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() {
		h.unit("u1").reply = func(string) error { return temporal.NewApplicationError("not now", "busy") }
		h.release()
	})
	h.at(2*time.Minute, func() { require.False(t, h.released.returned); h.dies("u1") })
	h.at(2*time.Minute+time.Second, func() { require.True(t, h.released.returned) })
	require.Equal(t, berth.EndReleased, h.run().End)

	h = newConferenceTest(t, "u1") // and one that is not registered any more
	h.at(time.Minute, func() { h.unit("u1").reply = noReply; h.units[0].generation = 5; h.release() })
	require.Equal(t, berth.EndReleased, h.run().End)
}

// A cancelled run ends its conference.
func TestConference_RunCancelled_IsReleased(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1")
	h.at(time.Minute, h.env.CancelWorkflow)
	require.Equal(t, berth.EndReleased, h.run().End)
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.commandNames())
}

// L11: a recovery that could not be decided is retried soon.
func TestConference_RedisUnavailableDuringRecovery_RetriedSoon(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u2").capacity, h.unit("u2").full = 0, berth.CodeUnavailable; h.dies("u1") })
	h.at(2*time.Minute, func() {
		require.Len(t, h.places, 1+4+5, "after 1, 2, 4 and 8 s, and every 10 s")
		h.unit("u2").capacity = 1
	})
	h.at(3*time.Minute, h.release)
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// P2: a recovery was published and its reply was lost. What follows is published, too.
func TestConference_PlacementReplyLost_EndIsPublishedOnce(t *testing.T) {
	t.Parallel()
	h := newConferenceTest(t, "u1", "u2")
	h.at(time.Minute, func() { h.replyLost = true; h.dies("u1") })
	h.at(time.Minute+500*time.Millisecond, h.release)
	is := h.run()
	require.Len(t, h.places, 2)
	require.Equal(t, berth.EndReleased, is.End)
	require.Equal(t, append(slices.Clone(recovered[:4]), berth.ConferenceAwaitingRecovery, berth.ConferenceEnded), h.statuses)
}

func requireAppError(t *testing.T, err error, code berth.Code) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(code), app.Type())
}
