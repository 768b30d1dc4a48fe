package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
	"berth/workflows"
)

func TestReconcile_ConferenceTerminated_ContinuesOnItsUnit(t *testing.T) { // B4, FC7
	t.Parallel()
	s := newStack(t, reconciling())
	m := s.conferences()
	u1 := s.media("u1", 5)
	before := m.open("8690000001").Conference
	s.settled()
	id := workflows.ConferenceWorkflowID(before.E164)
	first := s.runOf(s.temporal(), id)
	require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), id, "", "by a user of the Temporal UI"))
	s.repaired(berth.RuleConferenceWithoutRun, id)
	after := m.await(before.E164, "saved by its new run", func(c berth.Conference) bool {
		return c.Status == berth.ConferenceOpen && c.Revision > before.Revision
	})
	require.NotEqual(t, first, s.runOf(s.temporal(), id))
	require.Equal(t, before.ID, after.ID)
	require.Equal(t, before.Owner, after.Owner, "the conference did not move")
	require.Equal(t, map[string]int64{before.E164: before.Owner.Epoch}, u1.runs())
	again := s.fullPass(false)
	require.Zero(t, again.Found(), "%+v", again.Findings)
	m.end(before.E164, "conference-run-restarted")
	require.Empty(t, u1.runs())
	s.noSlots("u1")
}

func TestReconcile_ConferenceTerminatedAndUnitDead_Recovered(t *testing.T) { // B4, FC7
	t.Parallel()
	s := newStack(t, reconciling())
	m := s.conferences()
	u1 := s.media("u1", 5)
	before := m.open("8690000002").Conference
	s.media("u2", 5)
	s.settled()
	id := workflows.ConferenceWorkflowID(before.E164)
	s.worker.kill()
	require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), id, "", ""))
	u1.kill()
	s.worker = s.startWorker()
	after := m.await(before.E164, "recovered", on("u2"))
	require.Equal(t, before.ID, after.ID)
	m.end(before.E164, "conference-run-restarted-elsewhere")
	s.noSlots("u2")
}

// A unit dies while no process runs, for so long that Redis has forgotten it.
func TestReconcile_OwnerForgotten_ConferenceRecovered(t *testing.T) { // B4, FC2
	t.Parallel()
	s := newStack(t, reconciling())
	m := s.conferences()
	u1 := s.media("u1", 5)
	before := m.open("8690000003").Conference
	s.settled()
	s.worker.kill()
	s.api.kill()
	u1.kill()
	rdb, keys := s.redis(), lua.Keys{}
	require.NoError(t, rdb.Del(t.Context(), keys.Node("u1"), keys.NodePools("u1"), keys.NodeSlots("u1")).Err())
	for _, key := range []string{keys.NodeBeats(string(berth.NodeMedia)), keys.NodeSuspects(string(berth.NodeMedia))} {
		require.NoError(t, rdb.ZRem(t.Context(), key, "u1").Err())
	}
	s.startAPI()
	s.worker = s.startWorker()
	u2 := s.media("u2", 5)
	s.repaired(berth.RuleOwnerNotLive, workflows.ConferenceWorkflowID(before.E164))
	m.await(before.E164, "recovered", on("u2"))
	require.Contains(t, u2.runs(), before.E164)
	m.end(before.E164, "conference-owner-forgotten")
}

func TestReconcile_LicenceOfNoConference_Released(t *testing.T) { // B4
	t.Parallel()
	s := newStack(t, reconciling("BERTH_CONFERENCE_LICENCES=1"))
	m := s.conferences()
	s.media("u1", 5)
	s.settled()
	require.NoError(t, s.redis().SAdd(t.Context(), lua.Keys{}.Licences(), "8690000004").Err())
	pass := s.fullPass(false)
	require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleLicenceWithoutConference, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
	m.open("8690000005")
	again := s.fullPass(false)
	require.Zero(t, again.Found(), "%+v", again.Findings)
	m.end("8690000005", "conference-after-licence")
}

func TestReconcile_ConferenceRowLost_WrittenByItsRun(t *testing.T) { // B4
	t.Parallel()
	s := newStack(t, reconciling())
	m := s.conferences()
	s.media("u1", 5)
	before := m.open("8690000006").Conference
	s.settled()
	s.execute(`DELETE FROM conferences WHERE id = ?`, before.ID)
	pass := s.fullPass(false)
	require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleRunWithoutConference, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
	after := m.await(before.E164, "open", func(c berth.Conference) bool { return c.Status == berth.ConferenceOpen })
	require.Equal(t, before.ID, after.ID)
	require.Equal(t, before.Owner, after.Owner)
	m.end(before.E164, "conference-row-lost")
}

func TestReconcile_TurnTerminated_SessionGetsItsEnd(t *testing.T) { // B4, FF8
	t.Parallel()
	s := newStack(t, reconciling(), with("TURN_TIMEOUT_MS=600000"))
	s.translator("n1")
	c := s.session("alice", "s1")
	first := c.submit("", 0, "")
	c.await(first.TurnID, berth.EventTranslation)
	s.settled()
	id := workflows.TurnWorkflowID(first.TurnID)
	require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), id, "", ""))
	c.await(first.TurnID, berth.EventDone)
	s.repaired(berth.RuleTurnWithoutRun, id)
	require.Zero(t, s.redis().Exists(t.Context(), lua.Keys{}.Turn(first.TurnID)).Val())
	last := c.all[len(c.all)-1].Event
	require.Equal(t, berth.CodeLost, last.Code)
	second := c.submit("", 1, berth.FinalizeManual)
	require.NotEqual(t, first.TurnID, second.TurnID)
	c.await(second.TurnID, berth.EventDone)

	orphan := lua.Keys{}.Turn("u_forgotten")
	require.NoError(t, s.redis().HSet(t.Context(), orphan, "affinity_node_id", "n1").Err())
	pass := s.fullPass(false)
	require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleTurnWithoutRun, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
	require.Zero(t, s.redis().Exists(t.Context(), orphan).Val())
}

func TestReconcile_ExecutionTerminated_SlotReleased(t *testing.T) { // B4
	t.Parallel()
	s := newStack(t, reconciling())
	e := s.engine("e1", 2, false)
	c := s.temporal()
	for _, id := range []string{"x1", "x2"} {
		_, err := submit(t, c, id, "wait")
		require.NoError(t, err)
		<-e.started
	}
	require.Equal(t, 2, e.slots())
	s.settled()
	require.NoError(t, c.TerminateWorkflow(t.Context(), workflows.ExecutionWorkflowID("x1"), "", ""))
	s.repaired(berth.RuleSlotWithoutRun, "execution:x1:1")
	require.Equal(t, 1, e.slots(), "the other one is kept")
	e.finish <- struct{}{}
	e.finish <- struct{}{}
	require.Equal(t, berth.ExecutionCompleted, ended(t, c, "x2").Status)
	s.noSlots("e1")
}
