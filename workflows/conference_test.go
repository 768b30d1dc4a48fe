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

// C1, C6: a lost conference is recovered on another unit with room, by a command of its own, with its own end time.
func TestC1LostConferenceIsRecoveredElsewhere(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.dies("u1") })
	var other answersOf[any]
	h.at(2*time.Minute, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, "u2", is.Owner.NodeID)
		require.Equal(t, int64(2), is.Owner.Epoch)
		require.Zero(t, is.LostAt)
		h.env.UpdateWorkflow(workflows.UpdateRelease, "other", &other, workflows.ReleaseRequest{ConferenceID: "another"})
		h.release()
	})
	is := h.run()
	require.Equal(t, recovered, h.statuses)
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Release u2.1 2"}, h.names())
	require.Equal(t, h.commands[0].in.EndAt, h.commands[1].in.EndAt, "C6")
	require.NoError(t, h.created.err)
	require.Equal(t, berth.ConferenceOpen, h.created.reply.Conference.Status)
	require.True(t, h.released.answered)
	require.ErrorContains(t, other.rejected, "has ended", "the number's conference before")
	require.Len(t, is.Segments, 2)
	require.Equal(t, berth.EndUnitLost, is.Segments[0].Reason)
	require.Equal(t, berth.EndReleased, is.Segments[1].Reason)
	require.Empty(t, h.withdrawn(), "there is nobody to tell")
	require.Len(t, h.saves, 3, "open, open again, ended: a loss is written with what follows it")
}

// C2: without room it waits, and is tried at once when it is told that there is some.
func TestC2WaitsForRoom(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.unit("u2").room = 0
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(time.Minute+time.Second, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceAwaitingRecovery, is.Status)
		require.Equal(t, "no room", is.Waiting)
		require.Zero(t, is.Owner)
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(time.Minute+2*time.Second, func() {
		require.Len(t, h.places, 3, "tried, and waits again")
		h.unit("u2").room = 1
		h.env.SignalWorkflow(workflows.SignalCapacity, nil)
	})
	h.at(time.Minute+3*time.Second, func() {
		require.Equal(t, "u2", h.now().Owner.NodeID)
		h.release()
	})
	h.run()
	require.Equal(t, recovered, h.statuses)
	require.Len(t, h.places, 4)
}

// C4: when Redis has lost its data, what ran awaits its unit's list, and is open again when that names it, as another
// generation of the same process.
func TestC4AwaitsConnection(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u1").generation = 7; h.env.SignalWorkflow(workflows.SignalReassert, nil) })
	h.at(time.Minute+time.Second, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceAwaitingConnection, is.Status)
		require.Equal(t, "u1", is.Owner.NodeID, "and its owner may go on telling")
		h.lists("u1", 7, 1, is.CopyStartedAt)
	})
	h.at(time.Minute+2*time.Second, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, int64(7), is.Owner.Generation)
		require.Equal(t, int64(1), is.Owner.Epoch)
		hold := h.saves[len(h.saves)-1].Hold
		require.Equal(t, int64(7), hold.Generation, "the slot is put back")
		require.Equal(t, "conference:c1:1", hold.LeaseID)
		h.release()
	})
	is := h.run()
	require.Equal(t, []string{"node.u1.7 " + number}, h.reports)
	require.Equal(t, []string{"Create u1.1 1", "Release u1.7 1"}, h.names())
	require.Len(t, is.Segments, 1)
}

// C4: a unit that does not come back to a Redis that has forgotten it will never be declared dead: it is lost all the same.
func TestC4UnitThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.units = h.units[1:]; h.env.SignalWorkflow(workflows.SignalReassert, nil) })
	h.at(2*time.Minute, func() { require.Equal(t, "u2", h.now().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingConnection, berth.ConferenceAwaitingRecovery,
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceEnded,
	}, h.statuses)
}

// C4: a unit that Redis has not forgotten need not register again: it is asked for its list.
func TestC4UnitIsAskedForItsList(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	h.at(time.Minute, func() { h.env.SignalWorkflow(workflows.SignalReassert, nil) })
	h.at(time.Minute+11*time.Second, func() {
		require.Len(t, h.words, 1)
		require.Equal(t, workflows.LinkRequest{Unit: workflows.NodeRef{NodeID: "u1", Generation: 1}}, h.words[0])
		h.lists("u1", 1, 1, h.now().CopyStartedAt)
	})
	h.at(time.Minute+12*time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.now().Status) })
	h.run()
}

// C5: past its end time it is not recovered; C22: its record ends when it was lost, and keeps the planned end.
func TestC5EndsAtItsTime(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	is := h.run()
	require.Equal(t, untilTheEnd, h.statuses)
	require.Equal(t, berth.EndTime, is.End)
	require.Equal(t, is.EndAt.Unix(), is.EndedAt.Unix())
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.names())

	h = newHall(t, "u1")
	var lost time.Time
	h.at(time.Hour, func() { lost = h.env.Now(); h.dies("u1") })
	is = h.run()
	require.Equal(t, berth.EndNotRecovered, is.End)
	require.Equal(t, lost.Unix(), is.EndedAt.Unix())
	require.Equal(t, 3*time.Hour, is.EndAt.Sub(is.EndedAt).Round(time.Second))
	require.Equal(t, []string{"Create u1.1 1"}, h.names())
	require.Len(t, h.places, 1+36, "tried every five minutes")
}

// C7: the copy that started earlier stays, under a new epoch that its unit is told; the later one is released.
func TestC7EarlierCopyReturns(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	var started time.Time
	h.at(time.Minute, func() { started = h.now().CopyStartedAt; h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &cmu{id: "u1", generation: 2, room: 10})
		h.lists("u1", 2, 1, started)
	})
	h.at(3*time.Minute, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Equal(t, berth.ConferenceOwner{NodeID: "u1", Generation: 2, Incarnation: incarnation("u1", 1), Epoch: 3}, is.Owner)
		require.True(t, started.Equal(is.CopyStartedAt))
		require.Equal(t, map[string]string{"conference:c1:3": "u1"}, h.held, "the other's slot is free")
		h.release()
	})
	is := h.run()
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Adopt u1.2 3", "Release u1.2 3"}, h.names())
	require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
	require.Equal(t, []string{"node.u1.2 " + number}, h.reports, "what it told before it was the owner was dropped")
	require.Len(t, is.Segments, 3)
	require.Equal(t, berth.EndReplaced, is.Segments[1].Reason)
}

// C7: the later copy is released; so is what another conference of the number, or a doomed epoch, has left.
func TestC7LaterCopyIsReleased(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.lists("u2", 1, 0, h.env.Now()) })
	h.at(2*time.Minute, func() {
		require.Equal(t, "u1", h.now().Owner.NodeID)
		h.news(workflows.UnitNotice{NodeID: "u2", Generation: 1, Copy: &berth.UnitCopy{
			E164: number, ConferenceID: "c0", Epoch: 0, StartedAt: h.env.Now().Add(-time.Hour),
		}})
		h.lists("u2", 1, 0, h.env.Now().Add(-time.Hour)) // doomed by now
		h.lists("u1", 1, 1, h.now().CopyStartedAt)       // the owner's
		h.lists("u1", 1, -1, h.now().CopyStartedAt)      // listed before the owner was told its epoch
	})
	h.run()
	require.Equal(t, []string{"u2.1 0", "u2.1 0", "u2.1 0"}, h.withdrawn())
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.names())
	require.Len(t, h.saves, 2)
}

// C7: the earlier copy returns while the later one is still being created: its late acknowledgement is answered by a release.
func TestC7EarlierCopyReturnsDuringCreation(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.slow(berth.ActivityRecoverConference, 5*time.Second)
	var started time.Time
	h.at(time.Minute, func() {
		started = h.now().CopyStartedAt
		h.dies("u1")
	})
	h.at(time.Minute+time.Second, func() {
		require.Equal(t, berth.ConferenceCreating, h.now().Status)
		h.units = append(h.units, &cmu{id: "u1", generation: 2, room: 10})
		h.lists("u1", 2, 1, started)
	})
	h.at(time.Minute+2*time.Second, func() { require.Equal(t, "u1", h.now().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []string{"u2.1 2"}, h.withdrawn())
}

// C7: without another copy the one that returns is adopted, even when nobody else has room.
func TestC7WaitingConferenceIsAdopted(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &cmu{id: "u1", generation: 2})
		h.lists("u1", 2, 1, h.env.Now().Add(-2*time.Minute))
	})
	h.at(3*time.Minute, func() { require.Equal(t, "u1", h.now().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, []berth.ConferenceStatus{
		berth.ConferenceCreating, berth.ConferenceOpen, berth.ConferenceAwaitingRecovery, berth.ConferenceOpen, berth.ConferenceEnded,
	}, h.statuses)
}

// C7: an adoption that fails changes nothing, and the copy is released; what waited is recovered.
func TestC7AdoptionFails(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(string) error{"refused": nack, "lost": silent} {
		h := newHall(t, "u1", "u2")
		var started time.Time
		h.at(time.Minute, func() { started = h.now().CopyStartedAt; h.dies("u1") })
		h.at(2*time.Minute, func() {
			h.units = append(h.units, &cmu{id: "u1", generation: 2, room: 10, answer: answer})
			h.lists("u1", 2, 1, started)
			h.lists("u1", 2, 1, started)
		})
		h.at(3*time.Minute, func() {
			require.Equal(t, "u2", h.now().Owner.NodeID, name)
			require.Equal(t, map[string]string{"conference:c1:2": "u2", "conference:c1:3": "u1"}, h.held)
			h.release()
		})
		h.run()
		require.Equal(t, []string{"u1.2 3", "u1.2 1"}, h.withdrawn(), name)
		require.Len(t, h.adoptions, 1)
	}
}

// C7: the unit dies again while it is told to adopt.
func TestC7UnitDiesWhileItAdopts(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.slow(berth.ActivityAdoptConference, 5*time.Second)
	h.unit("u2").room = 0
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() {
		h.units = append(h.units, &cmu{id: "u1", generation: 2})
		h.lists("u1", 2, 1, h.env.Now().Add(-2*time.Minute))
	})
	h.at(2*time.Minute+time.Second, func() { h.unit("u2").room = 1; h.dies("u1") })
	h.at(3*time.Minute, func() { require.Equal(t, "u2", h.now().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// C8: what is not to be recovered ends with its unit.
func TestC8NotRecoverable(t *testing.T) {
	t.Parallel()
	legacy := func(in *workflows.ConferenceInput) { in.Spec.Recoverable = false }
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() {
		h.news(workflows.UnitNotice{NodeID: "u1", Generation: 1, Gone: berth.DepartureDrained})
	})
	h.at(2*time.Minute, func() { require.Equal(t, berth.ConferenceOpen, h.now().Status, "a drain is no death"); h.dies("u1") })
	is := h.run(legacy)
	require.Equal(t, untilTheEnd, h.statuses)
	require.Equal(t, berth.EndNotRecoverable, is.End)
	require.Len(t, h.places, 1)

	h = newHall(t, "u1")
	h.unit("u1").answer = silent
	is = h.run(legacy)
	require.Equal(t, berth.ConferenceDeleted, is.Status)
	requireAppError(t, h.created.err, berth.CodeNodeFailed)
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn(), "it may run there")
}

// C9: refusals are tried again every five minutes, for thirty from the first one.
func TestC9GivesUpAfterRefusals(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	var lost time.Time
	h.at(time.Minute, func() { lost = h.env.Now(); h.unit("u2").answer = nack; h.dies("u1") })
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
	require.Equal(t, 6, recoveries, "at once and every five minutes")
}

// C9: a recovery that succeeds after refusals begins anew with the next loss.
func TestC9RefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u2").answer = nack; h.dies("u1") })
	h.at(3*time.Minute, func() {
		require.False(t, h.now().RefusedAt.IsZero())
		h.unit("u2").answer = nil
	})
	h.at(7*time.Minute, func() {
		is := h.now()
		require.Equal(t, berth.ConferenceOpen, is.Status)
		require.Zero(t, is.RefusedAt)
		h.release()
	})
	h.run()
}

// C10: an administrator can end it in any state.
func TestC10EndsInAnyState(t *testing.T) {
	t.Parallel()
	for status, prepare := range map[berth.ConferenceStatus]func(h *hall){
		berth.ConferenceCreating: func(h *hall) { h.slow(berth.ActivityCreateConference, 2*time.Second) },
		berth.ConferenceOpen:     func(*hall) {},
		berth.ConferenceAwaitingRecovery: func(h *hall) {
			h.at(500*time.Millisecond, func() { h.dies("u1") })
		},
		berth.ConferenceAwaitingConnection: func(h *hall) {
			h.at(500*time.Millisecond, func() { h.env.SignalWorkflow(workflows.SignalReassert, nil) })
		},
	} {
		h := newHall(t, "u1")
		prepare(h)
		h.at(time.Second, func() { require.Equal(t, status, h.now().Status); h.release() })
		is := h.run()
		require.Equal(t, berth.ConferenceEnded, is.Status, status)
		require.Equal(t, berth.EndReleased, is.End, status)
		require.True(t, h.released.answered)
		require.NoError(t, h.released.err)
		require.True(t, h.created.answered)
	}
}

// C11: in recovery a unit that refuses, or does not answer, is followed by the next one at once.
func TestC11NextUnit(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2", "u3", "u4")
	h.unit("u2").answer, h.unit("u3").answer = nack, silent
	h.at(time.Minute, func() { h.dies("u1") })
	h.at(2*time.Minute, func() { require.Equal(t, "u4", h.now().Owner.NodeID); h.release() })
	is := h.run()
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Recover u3.1 3", "Recover u4.1 4", "Release u4.1 4"}, h.names())
	require.Equal(t, []string{"u3.1 3"}, h.withdrawn(), "it may run where nobody answered")
	var outcomes []string
	for _, o := range is.Orders {
		outcomes = append(outcomes, o.NodeID+": "+o.Outcome)
	}
	require.Equal(t, []string{
		"u1: acknowledged", "u2: refused: no licence", "u3: lost: the node did not finish in time", "u3: sent through the unit's link",
		"u4: acknowledged", "u4: acknowledged",
	}, outcomes)
}

// C14: the same process ended it on purpose; another one lost it.
func TestC14IncarnationTells(t *testing.T) {
	t.Parallel()
	missing := func(n int64) workflows.UnitNotice {
		return workflows.UnitNotice{NodeID: "u1", Generation: 2, Incarnation: incarnation("u1", n), Missing: true, Epoch: 1}
	}
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.news(missing(1)) })
	is := h.run()
	require.Equal(t, berth.EndByUnit, is.End)
	require.Equal(t, []string{"Create u1.1 1"}, h.names(), "there is nothing to release")

	h = newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.units = h.units[1:]; h.news(missing(2)) })
	h.at(2*time.Minute, func() { require.Equal(t, "u2", h.now().Owner.NodeID); h.release() })
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// C16: a creation is answered when it is open; equal ones share the answer; the number is in use for others.
func TestC16Creation(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	var same, other answersOf[workflows.CreateReply]
	h.at(time.Second, func() { h.submit("h1", "r2", &same); h.submit("h2", "r3", &other) })
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, "r1", h.created.reply.SubmissionID)
	require.Equal(t, "r1", same.reply.SubmissionID)
	requireAppError(t, other.rejected, berth.CodeConflict)
	require.False(t, h.places[0].Conference.Status.Final())
	require.True(t, h.places[0].First)
}

// C16: refused, or without room, everything is taken back and the caller is told.
func TestC16RefusedCreation(t *testing.T) {
	t.Parallel()
	deleted := []berth.ConferenceStatus{berth.ConferenceCreating, berth.ConferenceDeleted}
	h := newHall(t, "u1", "u2")
	h.unit("u1").answer = nack
	is := h.run()
	require.Equal(t, berth.EndRefused, is.End)
	require.Equal(t, deleted, h.statuses)
	requireAppError(t, h.created.err, berth.CodeUnitRefused)
	require.ErrorContains(t, h.created.err, "no licence")
	require.Equal(t, []string{"Create u1.1 1"}, h.names(), "it is not tried elsewhere")

	h = newHall(t)
	is = h.run()
	require.Equal(t, berth.EndNoCapacity, is.End)
	require.Equal(t, berth.ConferenceDeleted, is.Status)
	requireAppError(t, h.created.err, berth.CodeNodeFull)
	require.Empty(t, h.names())
}

// C16: a creation that nobody answers is a lost link: it is placed anew, or waits, which its caller is told.
func TestC16LostCreation(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.unit("u1").answer = silent
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, "u2", h.created.reply.Conference.Owner.NodeID)
	require.Equal(t, []string{"Create u1.1 1", "Recover u2.1 2", "Release u2.1 2"}, h.names())
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn())

	h = newHall(t, "u1")
	h.unit("u1").answer = silent
	h.at(time.Minute, h.release)
	h.run()
	require.Equal(t, berth.ConferenceAwaitingRecovery, h.created.reply.Conference.Status)
}

// C17: a release is tried until the unit has acknowledged it; what others say deletes nothing.
func TestC17Release(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() {
		tries := 0
		h.unit("u1").answer = func(string) error {
			if tries++; tries < 4 {
				return temporal.NewApplicationError("not now", "busy")
			}
			return nil
		}
		h.news(workflows.UnitNotice{NodeID: "u2", Generation: 1, Incarnation: incarnation("u2", 1), Missing: true, Epoch: 1})
		h.news(workflows.UnitNotice{NodeID: "u1", Generation: 1, Incarnation: incarnation("u1", 1), Missing: true, Epoch: 9})
		h.news(workflows.UnitNotice{NodeID: "u2", Generation: 1, Gone: berth.DepartureUnresponsive})
		h.news(workflows.UnitNotice{NodeID: "u1", Generation: 0, Gone: berth.DepartureUnresponsive})
	})
	h.at(time.Minute+time.Second, func() { require.Equal(t, berth.ConferenceOpen, h.now().Status); h.release() })
	h.at(time.Minute+2*time.Second, func() { require.False(t, h.released.answered, "not before it is acknowledged") })
	is := h.run()
	require.Len(t, h.commands, 5)
	require.Equal(t, "acknowledged", is.Orders[1].Outcome)
	require.Equal(t, berth.EndReleased, is.End)
}

// C17: a unit that dies while it is told to release has released.
func TestC17UnitDiesBeforeItReleases(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() {
		h.unit("u1").answer = func(string) error { return temporal.NewApplicationError("not now", "busy") }
		h.release()
	})
	h.at(2*time.Minute, func() { require.False(t, h.released.answered); h.dies("u1") })
	h.at(2*time.Minute+time.Second, func() { require.True(t, h.released.answered) })
	require.Equal(t, berth.EndReleased, h.run().End)

	h = newHall(t, "u1") // and one that Redis has forgotten
	h.at(time.Minute, func() { h.unit("u1").answer = silent; h.units[0].generation = 5; h.release() })
	require.Equal(t, berth.EndReleased, h.run().End)
}

// S11: a conference of a unit whose drain is over is recovered elsewhere; then its copy is released.
func TestDrainedUnit(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() {
		h.unit("u1").room = 0
		h.news(workflows.UnitNotice{NodeID: "u1", Generation: 1, Gone: berth.DepartureDrained})
	})
	h.at(2*time.Minute, h.release)
	is := h.run()
	require.Equal(t, recovered, h.statuses)
	require.Equal(t, []string{"u1.1 1"}, h.withdrawn())
	require.Equal(t, berth.EndDrained, is.Segments[0].Reason)
}

// A cancelled run ends its conference.
func TestCancelledConferenceIsReleased(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1")
	h.at(time.Minute, h.env.CancelWorkflow)
	require.Equal(t, berth.EndReleased, h.run().End)
	require.Equal(t, []string{"Create u1.1 1", "Release u1.1 1"}, h.names())
}

// L11: what could not be decided is decided a little later.
func TestRecoveryWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.unit("u2").room, h.unit("u2").full = 0, berth.CodeUnavailable; h.dies("u1") })
	h.at(2*time.Minute, func() {
		require.Len(t, h.places, 1+4+5, "after 1, 2, 4 and 8 s, and every 10 s")
		h.unit("u2").room = 1
	})
	h.at(3*time.Minute, h.release)
	h.run()
	require.Equal(t, recovered, h.statuses)
}

// P2: a recovery was told, and its reply was lost. Whatever comes of it is told as well.
func TestEndAfterALostReply(t *testing.T) {
	t.Parallel()
	h := newHall(t, "u1", "u2")
	h.at(time.Minute, func() { h.cut = true; h.dies("u1") })
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
