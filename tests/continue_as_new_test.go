package tests

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/internal/unit"
	"berth/workflows"
)

// P1: a conference with a long history continues as new and keeps its state: it waits, and is recovered. A link with many
// commands to send also continues as new and sends them until they are acknowledged.
func TestConference_LongHistory_ContinuesAsNew(t *testing.T) {
	t.Parallel()
	s := newStack(t, func(s *stack) { s.infraSettings = append(s.infraSettings, "BERTH_TEMPORAL_RUN_EVENTS=60") })
	m, temporal := s.conferences(), s.temporal()
	u1 := s.media("u1", 5, "--leave")
	c := m.open("8640000001")
	require.True(t, u1.stop(maxWait))
	m.await(c.E164, "without room", func(c berth.Conference) bool { return c.Status == berth.ConferenceAwaitingRecovery && c.Waiting != "" })
	id := workflows.ConferenceWorkflowID(c.E164)
	first := s.runOf(temporal, id)
	s.eventually("a new run", func() bool {
		require.NoError(t, temporal.SignalWorkflow(t.Context(), id, "", workflows.SignalCapacity, nil))
		return s.runOf(temporal, id) != first
	})
	s.saveRun("conference-continued", id, first)
	u2 := s.media("u2", 5)
	current := m.await(c.E164, "recovered", on("u2"))
	require.Equal(t, map[string]int64{c.E164: current.Epoch}, u2.runs())
	require.Len(t, current.Segments, 2)
	require.Equal(t, c.EndAt, current.EndAt)
	m.end(c.E164, "conference-resumed")

	u2.fail(unit.FaultHalfDead)
	link := workflows.LinkWorkflowID("u2", current.Owner.Generation)
	s.awaitEnd(link)
	const copies = 14
	for i := range copies {
		_, err := temporal.SignalWithStartWorkflow(t.Context(), link, workflows.SignalWithdraw,
			berth.UnitRelease{E164: fmt.Sprintf("86400001%02d", i), Epoch: 1},
			temporalclient.StartWorkflowOptions{TaskQueue: workflows.TaskQueueLinks}, workflows.LinkWorkflow,
			workflows.LinkInput{NodeID: "u2", Generation: current.Owner.Generation})
		require.NoError(t, err)
		if i == 0 {
			first = s.runOf(temporal, link)
		}
	}
	s.eventually("a new run", func() bool { return s.runOf(temporal, link) != first })
	s.saveRun("link-continued", link, first)
	u2.fail(unit.FaultNone)
	s.awaitEnd(link)
	s.saveHistory("link-resumed", link)
}

// FF8, A6: a client retries a segment on a full fleet until the turn continues as new, with its node and its events. The turn
// then ends as usual, and nothing of it stays in Redis.
func TestTurn_FleetStaysFull_ContinuesAsNewAndEnds(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"), func(s *stack) { s.infraSettings = append(s.infraSettings, "BERTH_TEMPORAL_RUN_EVENTS=60") })
	temporal := s.temporal()
	d := s.testNode("a", 1)
	c, other := s.session("alice", "s1"), s.session("bob", "s2")
	turn := c.submit("", 0, "")
	c.await(turn.TurnID, berth.EventTranslation)
	d.held.Store(true)
	other.submit("", 0, berth.FinalizeManual)
	job := d.next(s)

	id := workflows.TurnWorkflowID(turn.TurnID)
	first := s.runOf(temporal, id)
	s.eventually("a new run", func() bool {
		_, err := c.trySubmit(turn.TurnID, 1, "")
		require.Equal(t, http.StatusServiceUnavailable, problem(t, err).Status, "%v", err)
		return s.runOf(temporal, id) != first
	})
	s.saveRun("turn-continued", id, first)
	require.Equal(t, turn.NodeID, c.turn(turn.TurnID).AffinityNodeID)
	d.held.Store(false)
	job.answer <- nil
	s.noSlots("a")
	require.Equal(t, berth.AffinityHit, c.submit(turn.TurnID, 1, berth.FinalizeManual).Affinity)
	require.Equal(t, "turn, 0:text 0, 1:text 1, done(manual 0/2)", c.await(turn.TurnID, berth.EventDone))
	s.succeeds(id)
	s.saveHistory("turn-resumed", id)
	keys, err := s.redis().Keys(t.Context(), "*scheduler:turn:*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// C18, C21: reachable units reply to report requests and probes. Unreachable ones are named in the result of a report and not
// counted by a probe.
func TestUnit_Lost_ReportsAndProbesNameIt(t *testing.T) {
	s := shareStack(t)
	s.media("lost-u1", 5)
	c := s.conferences().open("8641000001")
	temporal := s.temporal()
	start := func(id, name string, in any) temporalclient.WorkflowRun {
		run, err := temporal.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueueLinks}, name, in)
		require.NoError(t, err)
		return run
	}
	here, lost := berth.NodeRef{NodeID: "lost-u1", Generation: c.Owner.Generation}, berth.NodeRef{NodeID: "lost-u2", Generation: 1}
	report := start("report:some", workflows.ReportWorkflow, workflows.ReportInput{Units: []berth.NodeRef{here, lost}})
	some := start("probe:some", workflows.ProbeWorkflow, workflows.ProbeInput{Units: []berth.NodeRef{here, lost}})
	none := start("probe:none", workflows.ProbeWorkflow, workflows.ProbeInput{Units: []berth.NodeRef{lost}})
	var answered int
	require.NoError(t, some.Get(t.Context(), &answered))
	require.Equal(t, 1, answered)
	require.NoError(t, none.Get(t.Context(), &answered))
	require.Zero(t, answered)
	var sent workflows.ReportResult
	require.NoError(t, report.Get(t.Context(), &sent))
	require.Equal(t, workflows.ReportResult{Asked: 2, Unresponsive: []berth.NodeRef{lost}}, sent)
	s.saveHistory("report-some", report.GetID())
	s.saveHistory("probe-some", some.GetID())
	s.saveHistory("probe-none", none.GetID())
}
