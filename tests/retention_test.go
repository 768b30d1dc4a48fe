package tests

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/client"
	"berth/workflows"
)

// B11: a Temporal Schedule erases the texts of ended tasks; their rows still answer.
func TestRetention_TextsExpired_TaskKeepsItsStatus(t *testing.T) {
	t.Parallel()
	s := newStack(t, with("BERTH_RETAIN_TEXTS=1ms"))
	c := s.user("alice")
	acc := submitMatch(t, c, berth.LocaleEN, "")
	require.Equal(t, berth.EventDone, watch(t, c, acc.TaskID, nil).last.Type)
	status, before := s.send(http.MethodGet, "/v1/tasks/"+acc.TaskID, s.token("alice"), nil)
	require.Equal(t, http.StatusOK, status)
	tc := s.temporal()
	schedule := tc.ScheduleClient().GetHandle(t.Context(), workflows.RetentionID)
	s.eventually("the schedule to exist", func() bool {
		return schedule.Trigger(t.Context(), temporalclient.ScheduleTriggerOptions{}) == nil
	})
	var after map[string]any
	s.eventually("the texts to be erased", func() bool {
		_, after = s.send(http.MethodGet, "/v1/tasks/"+acc.TaskID, s.token("alice"), nil)
		return after["contentErased"] == true
	})
	require.Equal(t, before["status"], after["status"])
	require.Equal(t, before["usage"], after["usage"])
	require.NotContains(t, after, "text")
	require.NotContains(t, after, "result")
	var runs []*workflowservice.ListWorkflowExecutionsResponse
	s.eventually("the run to end", func() bool {
		list, err := tc.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: `WorkflowType = "` + workflows.RetentionWorkflow + `" AND ExecutionStatus = "Completed"`,
		})
		runs = append(runs, list)
		return err == nil && len(list.GetExecutions()) > 0
	})
	run := runs[len(runs)-1].GetExecutions()[0].GetExecution()
	var res workflows.RetentionResult
	require.NoError(t, tc.GetWorkflow(t.Context(), run.GetWorkflowId(), run.GetRunId()).Get(t.Context(), &res))
	require.EqualValues(t, 1, res.Removed["texts of tasks"])
	s.saveRun("retention-texts", run.GetWorkflowId(), run.GetRunId())
}

func TestCLI_TaskList_ShowsFilteredTasks(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	c := s.user("alice")
	for _, id := range []string{"first", "second"} {
		submitMatch(t, c, berth.LocaleEN, id)
		require.Equal(t, berth.EventDone, watch(t, c, id, nil).last.Type)
	}
	_, err := c.Submit(t.Context(), client.Submission{
		TaskID: "summary", ServiceID: "career", Template: "job_summary", Variables: map[string]any{"jobText": "We need a cook."},
	}, "")
	require.NoError(t, err)
	list := s.runCLI(true, "task", "list")
	require.Regexp(t, `^ACCEPTED +TASK +TEMPLATE +TIER +STATUS +ERROR +TITLE\n\S+ \S+ +summary +job_summary +paid +\S+ +We need a cook\.\n\S+ \S+ +second +job_match +paid +COMPLETED`, list)
	require.NotContains(t, s.runCLI(true, "task", "list", "--search", "a COOK", "--service", "career"), "second")
	done := s.runCLI(true, "task", "list", "--status", "COMPLETED", "--template", "job_match", "--since", "1h", "--limit", "1")
	require.Contains(t, done, "second")
	require.Contains(t, done, "more tasks: --cursor ")
	require.NotContains(t, done, "first")
	require.NotContains(t, s.runCLI(true, "task", "list", "--to", "2020-01-01T00:00:00Z"), "first")
	require.Contains(t, s.runCLI(false, "task", "list", "--status", "OVER"), "status: must match the pattern ^(PENDING|STREAMING|COMPLETED|")
	require.Contains(t, s.runCLI(false, "task", "list", "--since", "1h", "--from", "2020-01-01T00:00:00Z"), "not both")
	require.Contains(t, s.runCLI(false, "task", "list", "--user", "bob"), "your own id")
}
