package tests

import (
	"context"
	"encoding/base64"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"berth"
	"berth/internal/payload"
	"berth/workflows"
)

// record saves the histories that tests name and that are not stored yet: make histories. Stored histories are never overwritten: from the
// first release on they represent running workflows.
var record = flag.Bool("record", false, "keep the named histories that workflows/testdata does not have")

// replayAll replays every history of the stack, to check that the workflows are deterministic (P1).
func (s *stack) replayAll() {
	s.tb.Helper()
	c := s.openTemporal()
	defer c.Close()
	for page := s.replayPage(c, nil); len(page) > 0; {
		page = s.replayPage(c, page)
	}
}

// replayPage replays the histories of one page of the list and returns the token of the next one.
func (s *stack) replayPage(c temporalclient.Client, page []byte) (next []byte) {
	s.tb.Helper()
	quiet := sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	list, err := c.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 100, NextPageToken: page})
	require.NoError(s.tb, err)
	for _, e := range list.GetExecutions() {
		h := s.history(context.Background(), c, e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId())
		s.smallFactsOnly(h)
		if len(h.GetEvents()) < 3 {
			continue // no worker has received it
		}
		replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
			DataConverter: payload.NewDataConverter(s.connection.PayloadKeys), FailureConverter: payload.NewFailureConverter(s.connection.PayloadKeys),
		})
		require.NoError(s.tb, err)
		for name, fn := range map[string]any{
			workflows.TaskWorkflow: workflows.Task, workflows.TurnWorkflow: workflows.Turn,
			workflows.ExecutionWorkflow: workflows.Execution, workflows.ConferenceWorkflow: workflows.Conference,
			workflows.LinkWorkflow: workflows.Link, workflows.ProbeWorkflow: workflows.Probe, workflows.ReportWorkflow: workflows.Report,
			workflows.RetentionWorkflow: workflows.Retention, workflows.ReconcileWorkflow: workflows.Reconcile,
			workflows.RecordWorkflow:  workflows.Record,
			workflows.WebhookWorkflow: workflows.Webhook,
		} {
			replayer.RegisterWorkflowWithOptions(fn, workflow.RegisterOptions{Name: name})
		}
		original := workflow.Execution{ID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId()}
		require.NoError(s.tb, replayer.ReplayWorkflowHistoryWithOptions(quiet, h,
			worker.ReplayWorkflowHistoryOptions{OriginalExecution: original}), original.ID)
	}
	return list.GetNextPageToken()
}

// smallFactsOnly requires that no history contains texts, images or tokens (T26).
func (s *stack) smallFactsOnly(h *history.History) {
	s.tb.Helper()
	b, err := protojson.Marshal(h)
	require.NoError(s.tb, err)
	if h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName() == workflows.TaskWorkflow {
		require.Less(s.tb, len(b), 64<<10)
	}
	for _, payloads := range regexp.MustCompile(`"data":"([A-Za-z0-9+/=]+)"`).FindAllSubmatch(b, -1) {
		data, err := base64.StdEncoding.DecodeString(string(payloads[1]))
		require.NoError(s.tb, err)
		for _, text := range []string{"PostgreSQL", "Kubernetes", "后端"} {
			require.NotContains(s.tb, string(data), text)
		}
	}
}

func (s *stack) history(ctx context.Context, c temporalclient.Client, id, run string) *history.History {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	h := &history.History{}
	events := c.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		ev, err := events.Next()
		require.NoError(s.tb, err)
		h.Events = append(h.Events, ev)
	}
	return h
}

// saveTask saves the history of a user's finished task in the corpus under a name, if -record is set.
func (s *stack) saveTask(name, user, taskID string) {
	s.tb.Helper()
	s.saveHistory(name, workflows.TaskWorkflowID(berth.TaskRef{UserID: user, TaskID: taskID}))
}

// saveHistory is saveTask for any workflow.
func (s *stack) saveHistory(name, workflowID string) {
	s.tb.Helper()
	s.saveRun(name, workflowID, "")
}

// saveRun is saveHistory for an earlier run. It waits until the run has ended: the last event for readers precedes that.
func (s *stack) saveRun(name, workflowID, runID string) {
	s.tb.Helper()
	file := filepath.Join("..", "workflows", "testdata", name+".json")
	if _, err := os.Stat(file); err == nil || !*record || s.connection.PayloadKeys.Encrypt() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	_ = s.temporal().GetWorkflow(ctx, workflowID, runID).GetWithOptions( // its outcome is part of the history
		ctx, nil, temporalclient.WorkflowRunGetOptions{DisableFollowingRuns: true})
	h := s.history(ctx, s.temporal(), workflowID, runID)
	b, err := protojson.MarshalOptions{Indent: " "}.Marshal(h)
	require.NoError(s.tb, err)
	require.NoError(s.tb, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(s.tb, os.WriteFile(file, b, 0o600))
}
