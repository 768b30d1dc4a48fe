package workflows_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/workflows"
)

// Every id of a workflow fits into the databases of Temporal, whatever the ids of users are. Short ids are those of earlier versions.
func TestWorkflowID_AnyName_FitsAndIsUnique(t *testing.T) { // FA4
	t.Parallel()
	users := rapid.Custom(func(t *rapid.T) string {
		s := rapid.StringOfN(rapid.RuneFrom([]rune("漢😀<\"/%~.é a-Z_1@")), 1, -1, berth.MaxUserID).Draw(t, "user")
		return s
	})
	id := rapid.StringMatching(`[A-Za-z0-9_.@-]{1,128}`)
	rapid.Check(t, func(rt *rapid.T) {
		a := berth.TaskRef{UserID: users.Draw(rt, "a"), TaskID: id.Draw(rt, "task a")}
		b := berth.TaskRef{UserID: a.UserID, TaskID: id.Draw(rt, "task b")}
		if rapid.Bool().Draw(rt, "another user") {
			b.UserID = users.Draw(rt, "b")
		}
		for _, ref := range []berth.TaskRef{a, b} {
			got := workflows.TaskWorkflowID(ref)
			require.LessOrEqual(rt, len(got), 255)
			require.True(rt, strings.HasPrefix(got, workflows.TaskPrefix))
			require.Equal(rt, got, workflows.WorkflowID(got), "an id is its own name")
			require.Equal(rt, got != workflows.TaskName(ref), workflows.Shortened(got))
			back, ok := berth.ParseTaskRef(strings.TrimPrefix(workflows.TaskName(ref), workflows.TaskPrefix))
			require.True(rt, ok)
			require.Equal(rt, ref, back)
		}
		require.Equal(rt, a == b, workflows.TaskWorkflowID(a) == workflows.TaskWorkflowID(b))
	})
	require.Equal(t, "task:alice:t1", workflows.TaskWorkflowID(berth.TaskRef{UserID: "alice", TaskID: "t1"}))
	require.Equal(t, "task:auth0%7C5:t1", workflows.TaskWorkflowID(berth.TaskRef{UserID: "auth0|5", TaskID: "t1"}))
	longest := strings.Repeat("i", 128)
	for _, got := range []string{
		workflows.TurnWorkflowID(longest), workflows.ExecutionWorkflowID(longest), workflows.ConferenceWorkflowID("999999999999999"),
		workflows.LinkWorkflowID(longest, 1<<62), workflows.RecordWorkflowID(longest), workflows.WebhookWorkflowID(longest), workflows.RestoreWorkflowID(1 << 62),
	} {
		require.False(t, workflows.Shortened(got), got)
	}
	require.LessOrEqual(t, len(berth.NodeTaskQueue(longest, 1<<62)), 255)
}
