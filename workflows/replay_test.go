package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

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
	{workflows.LinkWorkflow, "link", workflows.Link, 4},
	{workflows.ReportWorkflow, "report", workflows.Report, 1},
	{workflows.ProbeWorkflow, "probe", workflows.Probe, 2},
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

// later is another story: sleeping first is a command that no recorded history has.
func later[I, O any](story func(workflow.Context, I) (O, error)) any {
	return func(ctx workflow.Context, in I) (out O, err error) {
		if err := workflow.Sleep(ctx, 1); err != nil {
			return out, err
		}
		return story(ctx, in)
	}
}

func TestReplayCatchesAnotherStory(t *testing.T) { // P1: the test of the test
	t.Parallel()
	others := map[string]any{
		workflows.TaskWorkflow: later(workflows.Task), workflows.TurnWorkflow: later(workflows.Turn),
		workflows.ExecutionWorkflow: later(workflows.Execution), workflows.ConferenceWorkflow: later(workflows.Conference),
		workflows.ReportWorkflow: later(workflows.Report), workflows.ProbeWorkflow: later(workflows.Probe),
		workflows.LinkWorkflow: later(func(ctx workflow.Context, in workflows.LinkInput) (any, error) {
			return nil, workflows.Link(ctx, in)
		}),
		workflows.ReassertWorkflow: later(func(ctx workflow.Context, in workflows.ReassertInput) (any, error) {
			return nil, workflows.Reassert(ctx, in)
		}),
	}
	for _, s := range stories {
		for _, f := range corpus(t, s.prefix, s.least) {
			require.Error(t, replayer(s.name, others[s.name]).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
		}
	}
}
