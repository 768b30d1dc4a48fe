package workflows_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"berth/internal/payload"
	"berth/workflows"
)

// corpora lists the workflow types, the prefix of their recorded histories, and the minimum number of these.
var corpora = []struct {
	name, prefix string
	fn           any
	minimum      int
}{
	{workflows.TaskWorkflow, "task", workflows.Task, 5},
	{workflows.TurnWorkflow, "turn", workflows.Turn, 10},
	{workflows.ExecutionWorkflow, "execution", workflows.Execution, 6},
	{workflows.ConferenceWorkflow, "conference", workflows.Conference, 10},
	{workflows.LinkWorkflow, "link", workflows.Link, 4},
	{workflows.ReportWorkflow, "report", workflows.Report, 1},
	{workflows.ProbeWorkflow, "probe", workflows.Probe, 2},
	{workflows.RetentionWorkflow, "retention", workflows.Retention, 1},
	{workflows.ReconcileWorkflow, "reconcile", workflows.Reconcile, 2},
	{workflows.RecordWorkflow, "record", workflows.Record, 2},
	{workflows.WebhookWorkflow, "webhook", workflows.Webhook, 2},
}

func replayer(name string, fn any) worker.WorkflowReplayer {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
	return r
}

// corpus returns every recorded history of a workflow type. Too few are a failure: an empty corpus must not pass.
func corpus(t *testing.T, prefix string, minimum int) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", prefix+"-*.json"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), minimum, "recorded histories of %s are missing: make histories", prefix)
	return files
}

func TestWorkflows_RecordedHistories_Replay(t *testing.T) { // P1
	t.Parallel()
	for _, s := range corpora {
		for _, f := range corpus(t, s.prefix, s.minimum) {
			require.NoError(t, replayer(s.name, s.fn).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
		}
	}
}

// A process with payload keys still reads the histories of workflows that started without keys.
func TestWorkflows_HistoriesRecordedWithoutKeys_ReplayWithKeys(t *testing.T) { // B7
	t.Parallel()
	keys, err := payload.ParseKeys("a:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	for _, s := range corpora {
		r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
			DataConverter: payload.NewDataConverter(keys), FailureConverter: payload.NewFailureConverter(keys),
		})
		require.NoError(t, err)
		r.RegisterWorkflowWithOptions(s.fn, workflow.RegisterOptions{Name: s.name})
		for _, f := range corpus(t, s.prefix, s.minimum) {
			require.NoError(t, r.ReplayWorkflowHistoryFromJSONFile(nil, f), f)
		}
	}
}

// sleepFirst returns a workflow that sleeps first, which is a command that no recorded history has.
func sleepFirst[I, O any](run func(workflow.Context, I) (O, error)) any {
	return func(ctx workflow.Context, in I) (out O, err error) {
		if err := workflow.Sleep(ctx, 1); err != nil {
			return out, err
		}
		return run(ctx, in)
	}
}

func TestWorkflows_ChangedCommands_DoNotReplay(t *testing.T) { // P1: proves that the test above can fail
	t.Parallel()
	changed := map[string]any{
		workflows.TaskWorkflow: sleepFirst(workflows.Task), workflows.TurnWorkflow: sleepFirst(workflows.Turn),
		workflows.ExecutionWorkflow: sleepFirst(workflows.Execution), workflows.ConferenceWorkflow: sleepFirst(workflows.Conference),
		workflows.ReportWorkflow: sleepFirst(workflows.Report), workflows.ProbeWorkflow: sleepFirst(workflows.Probe),
		workflows.ReconcileWorkflow: sleepFirst(workflows.Reconcile),
		workflows.LinkWorkflow: sleepFirst(func(ctx workflow.Context, in workflows.LinkInput) (any, error) {
			return nil, workflows.Link(ctx, in)
		}),
		workflows.RecordWorkflow: sleepFirst(func(ctx workflow.Context, in workflows.RecordInput) (any, error) {
			return nil, workflows.Record(ctx, in)
		}),
		workflows.WebhookWorkflow: sleepFirst(func(ctx workflow.Context, in workflows.WebhookInput) (any, error) {
			return nil, workflows.Webhook(ctx, in)
		}),
		workflows.RetentionWorkflow: sleepFirst(func(ctx workflow.Context, _ any) (workflows.RetentionResult, error) {
			return workflows.Retention(ctx)
		}),
	}
	for _, s := range corpora {
		for _, f := range corpus(t, s.prefix, s.minimum) {
			require.Error(t, replayer(s.name, changed[s.name]).ReplayWorkflowHistoryFromJSONFile(nil, f), f)
		}
	}
}
