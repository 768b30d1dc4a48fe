package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/ledger"
	"berth/lua"
	"berth/workflows"
)

// Links looks after what the fleet's changes mean for open workflows.
type Links struct {
	Temporal client.Client
	Ledger   *ledger.Ledger
	Scripts  *lua.Scripts
	Logger   *slog.Logger
}

const (
	signalPage    = 200
	signalsAtOnce = 32
)

// openWork finds the workflows that hold slots of nodes.
const openWork = `ExecutionStatus = "Running" AND WorkflowType IN ("` + workflows.TurnWorkflow + `", "` + workflows.ExecutionWorkflow + `", "` +
	workflows.ConferenceWorkflow + `")`

// signalled is how far SignalOpen has come.
type signalled struct {
	Page  []byte // token of the next page
	Count int
}

// SignalOpen signals every open workflow to put back what it holds (L12). Tried again, it goes on at the page it had come
// to; a workflow that is signalled twice does no harm.
func (l *Links) SignalOpen(ctx context.Context, in workflows.ReassertInput) error {
	var done signalled
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = signalled{}
		}
	}
	for {
		page, err := l.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			PageSize: signalPage, NextPageToken: done.Page, Query: openWork,
		})
		var stale *serviceerror.InvalidArgument
		if errors.As(err, &stale) && len(done.Page) > 0 {
			done = signalled{} // a token that the server does not know any more
			continue
		}
		if err != nil {
			return again(berth.CodeUnavailable, "the open workflows cannot be listed", 0, err)
		}
		var g errgroup.Group
		g.SetLimit(signalsAtOnce)
		for _, e := range page.GetExecutions() {
			g.Go(func() error { return l.signal(ctx, e.GetExecution().GetWorkflowId()) })
		}
		if err := g.Wait(); err != nil {
			return again(berth.CodeUnavailable, "a workflow cannot be signalled", 0, err)
		}
		done.Page, done.Count = page.GetNextPageToken(), done.Count+len(page.GetExecutions())
		if len(done.Page) == 0 {
			break
		}
		activity.RecordHeartbeat(ctx, done)
	}
	l.Logger.InfoContext(ctx, "open workflows were told to put back what they hold", "workflows", done.Count, "graceUntil", in.GraceUntil)
	return nil
}

// signal tells one workflow; one that has ended meanwhile needs nothing.
func (l *Links) signal(ctx context.Context, workflowID string) error {
	err := l.Temporal.SignalWorkflow(ctx, workflowID, "", workflows.SignalReassert, nil)
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("signal %s: %w", workflowID, err)
	}
	return nil
}
