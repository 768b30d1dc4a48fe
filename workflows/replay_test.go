package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/workflows"
)

func replayer(fn any) worker.WorkflowReplayer {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: workflows.TaskWorkflow})
	return r
}

// corpus is every recorded history; an empty one is a failure, not a pass.
func corpus(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "task-*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 5, "recorded histories are missing: go test ./tests -record")
	return files
}

func TestRecordedHistoriesReplay(t *testing.T) { // P1
	t.Parallel()
	for _, f := range corpus(t) {
		require.NoError(t, replayer(workflows.Task).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
	}
}

func TestReplayCatchesAnotherStory(t *testing.T) { // P1: the test of the test
	t.Parallel()
	other := func(ctx workflow.Context, in workflows.TaskInput) (workflows.TaskResult, error) {
		// Sleeping first is a command that no recorded history has.
		if err := workflow.Sleep(ctx, 1); err != nil {
			return workflows.TaskResult{}, err
		}
		return workflows.Task(ctx, in)
	}
	for _, f := range corpus(t) {
		require.Error(t, replayer(other).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
	}
}
