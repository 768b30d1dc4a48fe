package tests

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/workflows"
)

// rollout runs a command of berth rollout that must succeed, and returns its output.
func (s *stack) rollout(args ...string) string {
	s.tb.Helper()
	output, ok := s.tryRollout(args...)
	require.True(s.tb, ok, "%v: %s", args, output)
	return output
}

func (s *stack) tryRollout(args ...string) (output string, ok bool) {
	s.tb.Helper()
	p := s.start("berth", append([]string{"rollout"}, args...), s.settings)
	s.eventually(strings.Join(args, " ")+" to end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	return string(p.output()), p.cmd.ProcessState.Success()
}

// startVersion starts a worker with a version.
func (s *stack) startVersion(build string) *process {
	s.tb.Helper()
	p := s.start("berth", []string{"worker"}, append(slices.Clone(s.settings), "BERTH_DEPLOYMENT=berth", "BERTH_BUILD_ID="+build))
	s.awaitOutput(p, "workers started")
	return p
}

// versionOf returns the version of the workers to which the current run of a workflow is pinned.
func (s *stack) versionOf(c temporalclient.Client, workflowID string) string {
	s.tb.Helper()
	d, err := c.DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(s.tb, err)
	return d.GetWorkflowExecutionInfo().GetVersioningInfo().GetDeploymentVersion().GetBuildId()
}

// B6: two versions of the workers run side by side. Open turns stay on theirs, conferences continue on the new one with their unit
// and epoch, and everything new begins there. The old workers stop when their version is drained; what ended on them stays readable.
func TestRollout_TwoVersions_RunsStayAndConferencesContinue(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_DEPLOYMENT=berth", "BERTH_BUILD_ID=1", "TURN_TIMEOUT_MS=60000"), func(s *stack) {
		s.infraSettings = append(s.infraSettings, "BERTH_TEMPORAL_DRAINAGE=1s")
	})
	require.Contains(t, s.rollout("set"), "berth 1 is current")
	temporal, node := s.temporal(), s.testNode("a", 4)
	unit, m := s.media("u1", 5), s.conferences()
	conference := m.open("8651000001")
	first := s.runOf(temporal, workflows.ConferenceWorkflowID(conference.E164))
	before, during := s.session("alice", "before"), s.session("alice", "during")
	ended := before.submit("", 0, berth.FinalizeManual)
	before.await(ended.TurnID, berth.EventDone)
	node.held.Store(true)
	open := during.submit("", 0, "")
	job := node.next(s)
	node.held.Store(false)

	refusal, ok := s.tryRollout("set", "2", "--wait=5s")
	require.False(t, ok)
	require.Contains(t, refusal, "version 2 of berth has no workers")
	s.startVersion("2")
	require.Contains(t, s.rollout("set", "2"), "all open conferences run on it")
	require.Equal(t, "1", s.versionOf(temporal, workflows.TurnWorkflowID(open.TurnID)))
	require.Equal(t, "2", s.versionOf(temporal, workflows.ConferenceWorkflowID(conference.E164)))
	s.eventually("the open turn to be all that version 1 has", func() bool { // Temporal's counts are a little late
		return strings.Contains(strings.Join(strings.Fields(s.rollout("status")), " "), "1 draining 0 1 0 0 keep until the version is drained")
	})
	s.saveRun("conference-upgraded", workflows.ConferenceWorkflowID(conference.E164), first)
	current, err := m.Conference(t.Context(), conference.E164, "")
	require.NoError(t, err)
	require.Equal(t, berth.ConferenceOpen, current.Status)
	require.Equal(t, conference.Owner, current.Owner)
	require.Equal(t, map[string]int64{conference.E164: current.Epoch}, unit.runs())

	after, alice := s.session("alice", "after"), s.user("alice")
	next := after.submit("", 0, berth.FinalizeManual)
	after.await(next.TurnID, berth.EventDone)
	require.Equal(t, "2", s.versionOf(temporal, workflows.TurnWorkflowID(next.TurnID)))
	task, err := alice.Submit(t.Context(), summary("We need a cook."), "")
	require.NoError(t, err)
	require.Equal(t, berth.EventDone, watch(t, alice, task.TaskID, nil).last.Type)
	require.Equal(t, "2", s.versionOf(temporal, workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: task.TaskID})))

	job.answer <- nil
	during.submit(open.TurnID, 1, berth.FinalizeManual)
	require.Equal(t, "turn, 0:text 0, 1:text 1, done(manual 0/2)", during.await(open.TurnID, berth.EventDone))
	s.eventually("version 1 to be drained", func() bool {
		return strings.Contains(strings.Join(strings.Fields(s.rollout("status")), " "), "1 drained 0 0 0 0 may be stopped")
	})
	require.True(t, s.worker.stop(maxWait))
	require.Equal(t, berth.TurnFinalized, before.turn(ended.TurnID).Status)
	_, err = before.trySubmit(ended.TurnID, 1, "")
	require.Equal(t, berth.CodeTurnFinalized, problem(t, err).Code)
	m.end(conference.E164, "conference-upgraded-end")
}
