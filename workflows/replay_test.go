package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth"
	"berth/workflows"
)

// stories are the workflow types, the prefix of their recorded histories, and how many there are at least.
var stories = []struct {
	name, prefix string
	fn           any
	least        int
}{
	{workflows.TaskWorkflow, "task", workflows.Task, 5},
	{workflows.TurnWorkflow, "turn", workflows.Turn, 10},
	{workflows.ExecutionWorkflow, "execution", workflows.Execution, 6},
	{workflows.ReassertWorkflow, "reassert", workflows.Reassert, 1},
	{workflows.ConferenceWorkflow, "conference", workflows.Conference, 10},
	{workflows.LinkWorkflow, "link", workflows.Link, 2},
}

func replayer(name string, fn any) worker.WorkflowReplayer {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	return r
}

// corpus is every recorded history of a workflow type; an empty one is a failure, not a pass.
func corpus(t *testing.T, prefix string, least int) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", prefix+"-*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), least, "recorded histories of %s are missing: go test ./tests -record", prefix)
	return files
}

func TestRecordedHistoriesReplay(t *testing.T) { // P1
	t.Parallel()
	for _, s := range stories {
		for _, f := range corpus(t, s.prefix, s.least) {
			require.NoError(t, replayer(s.name, s.fn).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
		}
	}
}

func TestReplayCatchesAnotherStory(t *testing.T) { // P1: the test of the test
	t.Parallel()
	// Sleeping first is a command that no recorded history has.
	for name, other := range map[string]any{
		workflows.TaskWorkflow: func(ctx workflow.Context, in workflows.TaskInput) (workflows.TaskResult, error) {
			if err := workflow.Sleep(ctx, 1); err != nil {
				return workflows.TaskResult{}, err
			}
			return workflows.Task(ctx, in)
		},
		workflows.TurnWorkflow: func(ctx workflow.Context, in workflows.TurnInput) (berth.Turn, error) {
			if err := workflow.Sleep(ctx, 1); err != nil {
				return berth.Turn{}, err
			}
			return workflows.Turn(ctx, in)
		},
		workflows.ConferenceWorkflow: func(ctx workflow.Context, in workflows.ConferenceInput) (berth.Conference, error) {
			if err := workflow.Sleep(ctx, 1); err != nil {
				return berth.Conference{}, err
			}
			return workflows.Conference(ctx, in)
		},
	} {
		for _, s := range stories {
			if s.name != name {
				continue
			}
			for _, f := range corpus(t, s.prefix, s.least) {
				require.Error(t, replayer(name, other).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
			}
		}
	}
}
