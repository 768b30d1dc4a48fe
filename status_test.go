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
	allowed, order := taskTransitions(twoSteps)
	requireChart(t, "a task", allowed, order)
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

// twoSteps is the plan of a task whose first step is left out of others.
var twoSteps = TaskPlan{Steps: []Step{{Status: "READ_PENDING", Mode: ModeVision}, {Status: "ANSWER_PENDING", Mode: ModeStream}}}

// taskTransitions returns the statuses that can follow each status of a task, and all in their order.
func taskTransitions(p TaskPlan) (transitions[TaskStatus], []TaskStatus) {
	allowed, order := transitions[TaskStatus]{}, []TaskStatus{TaskPending}
	for _, step := range p.Steps {
		order = append(order, step.Status)
	}
	order = append(order, TaskStreaming, TaskCompleted, TaskFailed, TaskCancelled)
	for _, from := range append([]TaskStatus{""}, order...) {
		for _, to := range order {
			if p.CanBecome(from, to) {
				allowed.add(from, to)
			}
		}
	}
	return allowed, order
}

// T17, G7: a task moves through the statuses of its steps, and ends from any of them.
func TestTaskPlan_CanBecome_FollowsItsSteps(t *testing.T) {
	t.Parallel()
	_, order := taskTransitions(twoSteps)
	for _, from := range order {
		for _, to := range order {
			if twoSteps.CanBecome(from, to) {
				require.Less(t, slices.Index(order, from), slices.Index(order, to), "%s -> %s moves back", from, to)
			}
		}
		require.False(t, twoSteps.CanBecome(from, ""), from)
		require.NotEqual(t, from.Final(), twoSteps.CanBecome(from, TaskFailed) && twoSteps.CanBecome(from, TaskCancelled), from)
		require.NotEqual(t, from.Final(), twoSteps.CanBecome(from, TaskCompleted), from)
	}
	require.True(t, twoSteps.CanBecome(TaskPending, "ANSWER_PENDING"), "a restored row skips the steps that were done")
	require.False(t, twoSteps.CanBecome("ANSWER_PENDING", "READ_PENDING"))
	require.False(t, twoSteps.CanBecome(TaskPending, "MATCH_PENDING"), "of another template")
	require.False(t, TaskPlan{Steps: twoSteps.Steps[:1]}.CanBecome("READ_PENDING", TaskStreaming), "nothing streams")
}
