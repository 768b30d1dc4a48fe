package tests

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"berth"
	"berth/client"
	"berth/workflows"
)

// apertium runs `berth node run` with the real translator; a job takes half a second more, so that some are running.
func (s *stack) apertium(id string) *process {
	s.tb.Helper()
	// The slots suffice for all segments of a test: a turn follows its node only as long as that is not full.
	p := s.start("berth", []string{"node", "--id", id, "--slots", "16", "--capabilities", enES, "--driver", "exec", "--exec", "sleep 0.5; apertium -u eng-spa"},
		append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node")}, s.settings...))
	s.awaitNode(id)
	return p
}

// spanish returns the output of the translator without berth.
func spanish(t *testing.T, text string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "apertium", "-u", "eng-spa")
	cmd.Stdin = strings.NewReader(text + "\n")
	out, err := cmd.Output()
	require.NoError(t, err, "apt-get install apertium-eng-spa")
	return strings.TrimRight(string(out), "\n")
}

// A1-A8, A10, A11: two Apertium nodes in one pool. Two speakers talk at the same time in one session, each in long turns of
// several segments, each turn on its node. The node of one is killed during a turn: nothing is lost, repeated or out of
// order, and each turn ends once.
func TestTurn_TwoApertiumNodes_SpeakersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("TURN_TIMEOUT_MS=60000"))
	nodes := map[string]*process{"n1": s.apertium("n1"), "n2": s.apertium("n2")}
	c := s.session("alice", "s1")
	lines := []string{
		"The ship is in the harbour.", "The captain reads an old book.", "We wait for the night.", "The sea is quiet.",
		"My sister works in a hospital.", "The train leaves at eight.", "Thank you for the water.", "The house has a red door.",
	}
	accepted := map[string]segments{}
	say := func(speaker, turn string, index int, f berth.Finalize) (out client.Dispatch) {
		text := lines[(index+len(speaker))%len(lines)]
		s.eventually("segment to be taken", func() bool {
			var err error
			out, err = c.Dispatch(t.Context(), c.id, client.JobSpec{
				RequestID: fmt.Sprintf("%s-%d", speaker, index), TurnID: turn, SpeakerID: speaker,
				Segment: client.Segment{Index: index, Text: text}, Finalize: f,
			})
			return err == nil
		})
		if accepted[out.TurnID] == nil {
			accepted[out.TurnID] = segments{}
		}
		accepted[out.TurnID][index] = spanish(t, text)
		return out
	}
	ann, ben := say("ann", "", 0, berth.FinalizeMaxDuration), say("benjamin", "", 0, berth.FinalizeMaxDuration)
	require.NotEqual(t, ann.TurnID, ben.TurnID)
	for i := 1; i < 3; i++ {
		require.Equal(t, ann.NodeID, say("ann", ann.TurnID, i, berth.FinalizeMaxDuration).NodeID)
		require.Equal(t, ben.NodeID, say("benjamin", ben.TurnID, i, berth.FinalizeMaxDuration).NodeID)
	}
	c.await(ann.TurnID, berth.EventTranslation)
	victim := nodes[ann.NodeID]
	say("ann", ann.TurnID, 3, berth.FinalizeMaxDuration)
	victim.kill()
	for i := 3; i < 6; i++ {
		say("benjamin", ben.TurnID, i, berth.FinalizeMaxDuration)
		say("ann", ann.TurnID, i+1, berth.FinalizeMaxDuration)
	}
	say("ann", ann.TurnID, 7, berth.FinalizeManual)
	say("benjamin", ben.TurnID, 6, berth.FinalizeManual)
	c.await(ann.TurnID, berth.EventDone)
	c.await(ben.TurnID, berth.EventDone)
	s.awaitEnd(workflows.TurnWorkflowID(ann.TurnID))
	s.awaitEnd(workflows.TurnWorkflowID(ben.TurnID))
	s.noSlots("n1", "n2")
	var received []berth.SessionEvent
	for _, ev := range c.all {
		require.NotEqual(t, berth.EventTranslationFailed, ev.Event.Type)
		received = append(received, ev.Event)
	}
	require.NoError(t, checkEvents(accepted, received))
	redone := 0
	for _, j := range c.turn(ann.TurnID).Jobs {
		if j.Dispatches > 1 {
			redone++
			require.NotEqual(t, ann.NodeID, j.NodeID)
		}
	}
	require.Positive(t, redone, "no job was running when the node was killed")
	s.visible(t, c.id, ann, ben)
}

// visible checks that Temporal's visibility lists the session's runs, each with the nodes of its jobs.
func (s *stack) visible(t *testing.T, session string, turns ...client.Dispatch) {
	t.Helper()
	tc := s.temporal()
	var list *workflowservice.ListWorkflowExecutionsResponse
	s.eventually("the runs to be listed", func() bool {
		var err error
		list, err = tc.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf(`%s = %q AND ExecutionStatus = "Completed"`, workflows.SearchSession, session),
		})
		return err == nil && len(list.GetExecutions()) == len(turns)
	})
	for _, d := range turns {
		var summaries []string
		for _, ev := range s.history(t.Context(), tc, workflows.TurnWorkflowID(d.TurnID), "").GetEvents() {
			if ev.GetEventType() == enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
				var summary string
				require.NoError(t, converter.GetDefaultDataConverter().FromPayload(ev.GetUserMetadata().GetSummary(), &summary))
				summaries = append(summaries, summary)
			}
		}
		require.Contains(t, summaries, d.NodeID+": segment 0")
		t.Log(strings.Join(summaries, "; "))
	}
}
