package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/testdb"
	"berth/workflows"
)

// withTemporalOnPostgres makes Temporal keep its data in PostgreSQL, which limits the length of ids.
func withTemporalOnPostgres(tb testing.TB) option {
	tb.Helper()
	dsn := testdb.Postgres(tb)
	return func(s *stack) { s.infraSettings = append(s.infraSettings, "BERTH_TEMPORAL_DATABASE="+dsn) }
}

// longestID returns an id of the length that the API documents, which ends with n.
func longestID(n int) string {
	suffix := fmt.Sprint("-", n)
	return strings.Repeat("i", 128-len(suffix)) + suffix
}

// longestUsers are ids of users of the length that the API documents, by kind. Each byte of most of them has three in an id of a workflow.
func longestUsers() map[string]string {
	users := map[string]string{"short": "alice"}
	for name, character := range map[string]string{
		"ASCII": "u", "Chinese": "漢", "emoji": "😀", "HTML": "<", "quotes": `"`, "separators": "/", "percent": "%", "tilde": "~", "accents": "é",
	} {
		users[name] = strings.Repeat(character, berth.MaxUserID/len(character))
	}
	return users
}

// Users, numbers and ids of the longest documented length work with Temporal on PostgreSQL, with encrypted payloads.
func TestTemporal_OnPostgresWithLongestIDs_AllWorkRuns(t *testing.T) { // FA4
	t.Parallel()
	s := newStack(t, withTemporalOnPostgres(t), withKeys(t, "k1:"+payloadKey("1")), reconciling(), with("TURN_TIMEOUT_MS=60000"))
	s.media(longestID(1), 20)
	engine := s.engine(longestID(2), 20, false)
	s.testNode(longestID(3), 32)
	s.afterGrace(engine.scripts)
	n := 0
	for name, user := range longestUsers() {
		n++
		e164 := fmt.Sprint(999999999999000 + n) // as long as a number can be
		t.Run(name, func(t *testing.T) {
			c := s.user(user)

			t.Run("task", func(t *testing.T) {
				first := summary("We need a cook.")
				first.TaskID, first.ServiceID = longestID(0), longestID(0)
				acc := accepted(t, func() (client.Acceptance, error) { return c.Submit(t.Context(), first, "") })
				require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
				again, err := c.Submit(t.Context(), first, "")
				require.NoError(t, err)
				require.True(t, again.Replay)
				ref := berth.TaskRef{UserID: user, TaskID: acc.TaskID}
				s.succeeds(workflows.TaskWorkflowID(ref))
				if strings.Contains(user, `"`) {
					return // queries of Temporal's visibility cannot express it
				}
				s.eventually("the run to be found by its user", func() bool {
					found, err := s.temporal().ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{
						Query: fmt.Sprintf(`berthUser = '%s' AND WorkflowType = "Task"`, user),
					})
					return err == nil && len(found.GetExecutions()) == 1
				})
			})

			t.Run("turn", func(t *testing.T) {
				session := s.session(user, longestID(n))
				first := accepted(t, func() (client.Dispatch, error) {
					return session.Dispatch(t.Context(), session.id, client.JobSpec{
						RequestID: longestID(0), SpeakerID: strings.Repeat("s", 128), Segment: client.Segment{Text: "hello"},
					})
				})
				require.Equal(t, longestID(3), first.NodeID)
				require.NoError(t, session.finalize(first.TurnID))
				require.Contains(t, session.await(first.TurnID, berth.EventDone), "done(manual 0/1)")
				s.succeeds(workflows.TurnWorkflowID(first.TurnID))
			})

			t.Run("execution", func(t *testing.T) {
				id := longestID(200 + n)
				accepted(t, func() (client.AcceptedExecution, error) {
					return c.Execute(t.Context(), client.ExecutionSpec{ExecutionID: id, Executor: "echo", Input: json.RawMessage(`"<漢😀>"`), DeadlineMs: 60_000})
				})
				var ex berth.Execution
				s.eventually("the execution to end", func() bool {
					var err error
					ex, err = c.Execution(context.Background(), id)
					return err == nil && ex.Status.Final()
				})
				require.Equal(t, berth.ExecutionCompleted, ex.Status)
				require.JSONEq(t, `"<漢😀>"`, string(ex.Output))
			})

			t.Run("conference", func(t *testing.T) {
				made := accepted(t, func() (client.Conference, error) {
					return c.CreateConference(t.Context(), client.ConferenceSpec{
						E164: e164, Title: strings.Repeat("漢", berth.MaxConferenceTitle/3), DurationMs: time.Hour.Milliseconds(),
					})
				})
				require.Equal(t, longestID(1), made.Owner.NodeID)
				_, err := c.EndConference(t.Context(), e164)
				require.NoError(t, err)
				s.succeeds(workflows.ConferenceWorkflowID(e164))
			})
		})
	}

	t.Run("reconciliation", func(t *testing.T) {
		s.settled()
		s.model.Config.Handler = modelHandler(sim.Options{FirstTokenDelay: time.Hour})
		for _, user := range longestUsers() {
			c := s.user(user)
			spec := summary("We need a driver.")
			spec.TaskID = longestID(300)
			acc := accepted(t, func() (client.Acceptance, error) { return c.Submit(t.Context(), spec, "") })
			ref := berth.TaskRef{UserID: user, TaskID: acc.TaskID}
			reader := s.follow(c, acc.TaskID)
			pass := s.fullPass(true)
			require.Zero(t, pass.Found(), "%+v", pass.Findings)
			require.NoError(t, s.temporal().TerminateWorkflow(t.Context(), workflows.TaskWorkflowID(ref), "", "by a user of the Temporal UI"))
			require.Equal(t, berth.CodeLost, reader().last.Code)
			s.repaired(berth.RuleTaskWithoutRun, workflows.TaskName(ref))
		}
		last := s.user("alice")
		spec := summary("We need a pilot.")
		spec.TaskID = longestID(301)
		accepted(t, func() (client.Acceptance, error) { return last.Submit(t.Context(), spec, "") })
		require.NoError(t, last.Cancel(t.Context(), spec.TaskID))
		s.awaitEnd(alices(spec.TaskID))
	})
}
