package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/unit"
	"berth/lua"
	"berth/workflows"
)

func TestReconcile_ConferenceTerminated_ContinuesOnItsUnit(t *testing.T) { // B4, FC7
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
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
	})
}

// An older database is restored, in which a conference that has ended is open.
func TestReconcile_EndedConferenceOpenInRow_StaysEnded(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		m := s.conferences()
		u1 := s.media("u1", 5)
		e164 := m.open("8690000009").Conference.E164
		run := func(statement string) {
			_, err := s.database().ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		run(`CREATE TABLE backup AS SELECT * FROM conferences`)
		m.end(e164, "conference-ended-before-restore")
		ended := m.current(e164)
		run(`DELETE FROM conferences`)
		run(`INSERT INTO conferences SELECT * FROM backup`)
		s.repaired(berth.RuleConferenceWithoutRun, workflows.ConferenceWorkflowID(e164))
		require.Equal(t, ended, m.await(e164, "ended again", ofStatus(berth.ConferenceEnded)))
		require.Empty(t, u1.runs())
		again := s.fullPass(false)
		require.Zero(t, again.Found(), "%+v", again.Findings)
	})
}

func TestReconcile_ConferenceTerminatedAndUnitDead_Recovered(t *testing.T) { // B4, FC7
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
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
	})
}

// A unit dies while no process runs, for so long that Redis has forgotten it.
func TestReconcile_OwnerForgotten_ConferenceRecovered(t *testing.T) { // B4, FC2
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
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
	})
}

func TestReconcile_LicenceOfNoConference_Released(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling("BERTH_CONFERENCE_LICENCES=1"))
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
	})
}

func TestReconcile_ConferenceRowLost_WrittenByItsRun(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
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
	})
}

// A node's row is lost and the indexes of its pools are not.
func TestReconcile_MemberWithoutNode_LeavesThePool(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		s.engine("e1", 2, false)
		fleet := client.New("http://"+s.httpAddr, s.token("nodes", "node"))
		register := func() {
			_, err := fleet.RegisterNode(t.Context(), client.Registration{NodeSpec: berth.NodeSpec{
				ID: "e2", Kind: berth.NodeEngine, MaxConcurrentJobs: 1, Capabilities: []string{"echo"},
				Incarnation: berth.Incarnation{Host: "e2", PID: 1, StartedAt: time.Now().UnixMilli()},
			}})
			require.NoError(t, err)
		}
		members := func() any {
			status, out := s.send(http.MethodPut, "/v1/tenants/acme/pool", s.token("op", "operator"), map[string]any{"poolId": "echo"})
			require.Equal(t, http.StatusOK, status, "%v", out)
			return out["members"]
		}
		register()
		require.EqualValues(t, 2, members())
		s.settled()
		require.NoError(t, s.redis().HDel(t.Context(), lua.Keys{}.NodeBriefs(), "e2").Err())
		reported := s.fullPass(true)
		require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleMemberWithoutNode, Found: 1, Held: 1}}, reported.Counts)
		require.EqualValues(t, 2, members(), "a dry run repairs nothing")
		pass := s.fullPass(false)
		require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleMemberWithoutNode, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
		require.Regexp(t, "^e2/", pass.Findings[0].Subject)
		require.EqualValues(t, 1, members())
		again := s.fullPass(false)
		require.Zero(t, again.Found(), "%+v", again.Findings)
		register()
		require.EqualValues(t, 2, members(), "the node is in its pool again")
	})
}

func TestReconcile_TurnTerminated_SessionGetsItsEnd(t *testing.T) { // B4, FF8
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling(), with("TURN_TIMEOUT_MS=600000"))
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
		lost, err := c.Turn(t.Context(), first.TurnID)
		require.NoError(t, err)
		require.True(t, lost.Lost)
		require.Equal(t, berth.TurnFinalized, lost.Status)
		_, err = c.trySubmit(first.TurnID, 5, "")
		require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)
		require.ErrorContains(t, err, berth.TurnLost)
		second := c.submit("", 1, berth.FinalizeManual)
		require.NotEqual(t, first.TurnID, second.TurnID)
		c.await(second.TurnID, berth.EventDone)

		orphan := lua.Keys{}.Turn("u_forgotten")
		require.NoError(t, s.redis().HSet(t.Context(), orphan, "affinity_node_id", "n1").Err())
		pass := s.fullPass(false)
		require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleTurnWithoutRun, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
		require.Zero(t, s.redis().Exists(t.Context(), orphan).Val())
	})
}

func TestReconcile_ExecutionTerminated_SlotReleased(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		e := s.engine("e1", 2, false)
		c := s.temporal()
		for _, id := range []string{"x1", "x2"} {
			_, err := submit(t, c, id, "wait")
			require.NoError(t, err)
			<-e.started
		}
		require.Equal(t, 2, e.slots())
		s.settled()
		require.NoError(t, c.TerminateWorkflow(t.Context(), executionRun("x1"), "", ""))
		s.repaired(berth.RuleSlotWithoutRun, "execution:alice:x1:1")
		s.repaired(berth.RuleExecutionWithoutRun, executionRun("x1"))
		lost, err := s.user("alice").Execution(t.Context(), "x1")
		require.NoError(t, err)
		require.Equal(t, berth.ExecutionFailed, lost.Status)
		require.Equal(t, berth.CodeLost, lost.Code)
		require.False(t, lost.EndedAt.IsZero())
		require.Equal(t, 1, e.slots(), "the other one is kept")
		e.finish <- struct{}{}
		e.finish <- struct{}{}
		require.Equal(t, berth.ExecutionCompleted, ended(t, c, "x2").Status)
		s.noSlots("e1")
	})
}

func TestReconcile_ExecutionsStuckAfterDeadline_Ended(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		e := s.engine("e1", 1, false)
		_, err := submit(t, s.temporal(), "x1", "wait")
		require.NoError(t, err)
		<-e.started
		s.worker.kill()
		s.worker = s.startWorker("--queues", "links")
		s.settled()
		s.execute(`UPDATE executions SET deadline_at = ?, body = json_set(body, '$.deadlineAt', ?) WHERE id = 'x1'`,
			time.Now().Add(-2*time.Minute).UnixMilli(), time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339Nano))
		s.repaired(berth.RuleExecutionOverdue, executionRun("x1"))
		s.awaitEnd(executionRun("x1"))
		s.repaired(berth.RuleSlotWithoutRun, "execution:alice:x1:1")
		s.worker.kill()
		s.worker = s.startWorker()
		ended, err := s.user("alice").Execution(t.Context(), "x1")
		require.NoError(t, err)
		require.Equal(t, berth.ExecutionFailed, ended.Status)
		require.Equal(t, berth.CodeDeadlineExceeded, ended.Code)
		s.noSlots("e1")
	})
}

func TestReconcile_ExecutionRowsDiffer_WrittenFromTheirRuns(t *testing.T) { // B4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling())
		e := s.engine("e1", 2, false)
		c := s.temporal()
		_, err := submit(t, c, "done", "echo")
		require.NoError(t, err)
		require.Equal(t, berth.ExecutionCompleted, ended(t, c, "done").Status)
		_, err = submit(t, c, "runs", "wait")
		require.NoError(t, err)
		<-e.started
		<-e.started
		s.settled()
		// An older database was restored: one execution had not ended there, the other one did not exist.
		s.execute(`UPDATE executions SET ended_at = 0, status = 'running', body = json_remove(json_set(body, '$.status', 'running'), '$.endedAt')
			WHERE id = 'done'`)
		s.repaired(berth.RuleExecutionWithoutRun, executionRun("done"))
		s.execute(`DELETE FROM executions WHERE id = 'runs'`)
		pass := s.fullPass(false)
		require.Equal(t, []berth.ReconcileCount{{Rule: berth.RuleRunWithoutExecution, Found: 1, Held: 1, Repaired: 1}}, pass.Counts)
		alice := s.user("alice")
		done, err := alice.Execution(t.Context(), "done")
		require.NoError(t, err)
		require.Equal(t, berth.ExecutionCompleted, done.Status)
		require.NotEmpty(t, done.Output)
		e.finish <- struct{}{}
		require.Equal(t, berth.ExecutionCompleted, ended(t, c, "runs").Status)
		s.awaitEnd(executionRun("runs"))
		again := s.fullPass(false)
		require.Zero(t, again.Found(), "%+v", again.Findings)
	})
}

// A unit runs a copy of no conference, of which no notice was sent: it is released when the unit lists what it runs.
func TestReconcile_CopyOfNoConference_ReleasedByListing(t *testing.T) { // B4, C4
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, reconciling("BERTH_RECONCILE_FULL_EVERY=2s"))
		m := s.conferences()
		u1 := s.media("u1", 5)
		open := m.open("8690000007").Conference
		u1.ask(http.MethodPut, "/conferences/8690000008", unit.Copy{
			UnitCopy: berth.UnitCopy{E164: "8690000008", ConferenceID: "gone", Epoch: 1, StartedAt: time.Now()},
		})
		require.Contains(t, u1.runs(), "8690000008")
		s.eventually("the copy to be released", func() bool { return u1.runs()["8690000008"] == 0 })
		require.Equal(t, map[string]int64{open.E164: open.Owner.Epoch}, u1.runs())
		require.Equal(t, open.Revision, m.await(open.E164, "unchanged", func(berth.Conference) bool { return true }).Revision)
		m.end(open.E164, "conference-listed")
	})
}
