package starter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/workflows"
)

// NotifyLink passes a notice about a media unit's generation to its link. Other nodes have none: the workflows of their
// jobs notice a loss themselves.
func (s *Starter) NotifyLink(ctx context.Context, n berth.NodeNotice) error {
	if n.Kind != berth.NodeMedia {
		return nil
	}
	return s.SignalLink(ctx, berth.NodeRef{NodeID: n.NodeID, Generation: n.Generation}, workflows.SignalNotice, n)
}

// SignalLink signals the link of a unit's generation, and starts it where it is not running.
func (s *Starter) SignalLink(ctx context.Context, unit berth.NodeRef, signal string, arg any) error {
	_, err := s.Client.SignalWithStartWorkflow(ctx, workflows.LinkWorkflowID(unit.NodeID, unit.Generation), signal, arg,
		client.StartWorkflowOptions{TaskQueue: workflows.TaskQueueLinks}, workflows.LinkWorkflow,
		workflows.LinkInput{NodeID: unit.NodeID, Generation: unit.Generation})
	if err != nil {
		return fmt.Errorf("signal the link of %s: %w", unit.NodeID, outcome(err))
	}
	return nil
}

// RestoreState makes the reconciliation restore what Redis lost before the grace period that ends at until, by Redis's clock. Idempotent.
func (s *Starter) RestoreState(ctx context.Context, until time.Time) error {
	_, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.RestoreWorkflowID(until.UnixMilli()), TaskQueue: workflows.TaskQueueLinks,
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflows.ReconcileWorkflow, workflows.PassInput{GraceUntil: until.UnixMilli()})
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if err != nil && !errors.As(err, &started) {
		return fmt.Errorf("start the restoration: %w", outcome(err))
	}
	return nil
}

// maxProbes is how many suspect units are probed.
const maxProbes = 5

// ConfirmLoss probes some of the suspect nodes of a kind without Redis and the API, and reports whether none of them
// responded. Only media units can be probed.
func (s *Starter) ConfirmLoss(ctx context.Context, nodes map[string]berth.Node, kind berth.NodeKind) (bool, error) {
	var suspects []berth.NodeRef
	for id, n := range nodes {
		if kind == berth.NodeMedia && n.Kind == kind && n.State == berth.NodeSuspect {
			suspects = append(suspects, berth.NodeRef{NodeID: id, Generation: n.Generation})
		}
	}
	if len(suspects) == 0 {
		return false, nil
	}
	rand.Shuffle(len(suspects), func(i, j int) { suspects[i], suspects[j] = suspects[j], suspects[i] })
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.ProbeWorkflowID(berth.NewID("")), TaskQueue: workflows.TaskQueueLinks, WorkflowExecutionTimeout: 10 * time.Second,
	}, workflows.ProbeWorkflow, workflows.ProbeInput{Units: suspects[:min(len(suspects), maxProbes)]})
	var responses int
	if err == nil {
		err = run.Get(ctx, &responses)
	}
	if err != nil {
		return false, fmt.Errorf("probe suspect units: %w", err)
	}
	return responses == 0, nil
}

// slotHolders finds the workflows that hold slots of nodes.
const slotHolders = `ExecutionStatus = "Running" AND WorkflowType IN ("` + workflows.TurnWorkflow + `", "` +
	workflows.ExecutionWorkflow + `", "` + workflows.ConferenceWorkflow + `")`

// signalPage is how many workflows one call of SignalSlotHolders signals.
const signalPage = 200

// SignalSlotHolders signals one page of the open workflows that hold slots, and returns their number and the token of the
// next page, which is empty behind the last. The first page's token is empty, and so is one that has expired.
func (s *Starter) SignalSlotHolders(ctx context.Context, token []byte, signal string) (next []byte, signalled int, err error) {
	page, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: signalPage, NextPageToken: token, Query: slotHolders,
	})
	if _, invalid := errors.AsType[*serviceerror.InvalidArgument](err); invalid && len(token) > 0 { // it has expired
		return s.SignalSlotHolders(ctx, nil, signal)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list open workflows: %w", outcome(err))
	}
	var g errgroup.Group
	g.SetLimit(maxSignals)
	for _, e := range page.GetExecutions() {
		g.Go(func() error {
			_, err := s.signal(ctx, e.GetExecution().GetWorkflowId(), signal, nil)
			return err
		})
	}
	return page.GetNextPageToken(), len(page.GetExecutions()), g.Wait()
}
