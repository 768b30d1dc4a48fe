//go:build faults

package tests

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// longWait bounds waits for passes with the default times.
const longWait = 4 * time.Minute

// within waits for a condition that takes longer than other tests wait, and returns how long it took.
func (s *stack) within(what string, ok func() bool) time.Duration {
	s.tb.Helper()
	for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
		if ok() {
			return time.Since(began)
		}
		if time.Since(began) > longWait {
			s.tb.Fatalf("waited %s for %s", longWait, what)
		}
	}
}

// B4: everything that can be terminated in the Temporal UI, with the default times. The log has the time until each was correct.
func TestReconcile_DefaultTimes_TerminatedWorkCorrected(t *testing.T) {
	bothModes(t, func(t *testing.T, mode option) {
		s := newStack(t, mode, held, with("TURN_TIMEOUT_MS=600000", "BERTH_CONFERENCE_LICENCES=5"))
		c, m := s.user("alice"), s.conferences()
		e := s.engine("e1", 1, false)
		s.translator("n1")
		s.media("u1", 5)
		acc, err := c.Submit(t.Context(), summary("We need a cook."), "")
		require.NoError(t, err)
		_, err = submit(t, s.temporal(), "x1", "wait")
		require.NoError(t, err)
		<-e.started
		speaker := s.session("alice", "s1")
		turn := speaker.submit("", 0, "")
		speaker.await(turn.TurnID, berth.EventTranslation)
		open := m.open("8690000011").Conference
		t.Logf("the first pass was made after %s", s.within("a pass", func() bool { return len(s.passes()) > 0 }).Round(time.Second))

		began := time.Now()
		for _, id := range []string{
			alices(acc.TaskID), executionRun("x1"), workflows.TurnWorkflowID(turn.TurnID), workflows.ConferenceWorkflowID(open.E164),
		} {
			require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), id, "", "by a user of the Temporal UI"))
		}
		took := map[string]time.Duration{}
		left := map[string]func() bool{
			"task": func() bool {
				task, err := c.Get(t.Context(), acc.TaskID)
				return err == nil && task.Status == berth.TaskFailed && task.Error.Code == berth.CodeLost
			},
			"execution": func() bool {
				x, err := c.Execution(t.Context(), "x1")
				return err == nil && x.Status == berth.ExecutionFailed && x.Code == berth.CodeLost && !x.EndedAt.IsZero()
			},
			"slot of the execution": func() bool { return e.slots() == 0 },
			"turn": func() bool {
				return s.redis().Exists(t.Context(), lua.Keys{}.Turn(turn.TurnID)).Val() == 0
			},
			"conference": func() bool {
				now, err := c.Conference(t.Context(), open.E164, open.ID)
				return err == nil && now.Status == berth.ConferenceOpen && now.Revision > open.Revision
			},
		}
		s.within("all to be correct", func() bool {
			for what, correct := range left {
				if correct() {
					took[what] = time.Since(began).Round(time.Second)
					delete(left, what)
				}
			}
			return len(left) == 0
		})
		t.Logf("correct after the termination: %v", took)
		require.Equal(t, []string{"refund", "charge"}, charges(t, c))
		require.Equal(t, berth.EventError, watch(t, c, acc.TaskID, nil).last.Type)
		m.end(open.E164, "conference-default-times")
	})
}
