package berth

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "rewrite the state charts of docs/architecture.md")

func TestArchitecture_StateCharts_AreThoseOfTheCode(t *testing.T) {
	requireChart(t, "a task", taskTransitions, TaskStatuses())
	requireChart(t, "a turn", turnTransitions, []TurnStatus{TurnOpen})
	requireChart(t, "a job", jobTransitions, []JobStatus{JobRunning})
	requireChart(t, "an execution", executionTransitions, []ExecutionStatus{ExecutionWaiting, ExecutionRunning})
	requireChart(t, "a conference", conferenceTransitions, ConferenceStatuses())
}

// requireChart checks the chart of the transitions, in the order of the statuses from which they begin.
func requireChart[S ~string](t *testing.T, name string, allowed transitions[S], order []S) {
	t.Helper()
	var edges []testdocs.Transition
	drawn := 0
	for _, from := range append([]S{""}, order...) {
		if len(allowed[from]) > 0 {
			drawn++
		}
		next := slices.Clone(allowed[from])
		slices.SortStableFunc(next, func(a, b S) int { return slices.Index(order, a) - slices.Index(order, b) })
		for _, to := range next {
			edges = append(edges, testdocs.Transition{From: string(from), To: string(to)})
		}
	}
	require.Len(t, allowed, drawn, "a status is missing from the order of %s", name)
	testdocs.RequireBlock(t, "docs/architecture.md", "status of "+name, testdocs.StateChart(edges), *update)
}

// T17: a task moves through the statuses of its template's steps, and ends from any of them.
func TestTaskStatus_CanBecome_FollowsTheTemplates(t *testing.T) {
	t.Parallel()
	order := TaskStatuses()
	for _, from := range order {
		for _, to := range order {
			if from.CanBecome(to) {
				require.Less(t, slices.Index(order, from), slices.Index(order, to), "%s -> %s moves back", from, to)
			}
		}
		require.False(t, from.CanBecome(""), from)
		require.NotEqual(t, from.Final(), from.CanBecome(TaskFailed) && from.CanBecome(TaskCancelled), from)
		require.NotEqual(t, from.Final(), from.CanBecome(TaskCompleted), from)
	}
	require.True(t, TaskPending.CanBecome(TaskMatchPending), "a restored row skips the steps that were done")
	require.False(t, TaskMatchPending.CanBecome(TaskAnswerPending), "no template has both steps")
	require.False(t, TaskSummaryPending.CanBecome("NONSENSE"))
}
