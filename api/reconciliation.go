package api

import (
	"context"
	"net/http"

	"berth"
	"berth/client"
)

// listedPasses is how many passes of the reconciliation are returned.
const listedPasses = 20

// lateIntervals is after how many intervals without a completed pass the reconciliation is late.
const lateIntervals = 5

type reconcileBody struct {
	DryRun bool `json:"dryRun,omitempty" doc:"Only report what would be repaired"`
}

type reconcileInput struct {
	Body *reconcileBody
}

type reconcileAnswer struct {
	PassID string `json:"passId" doc:"Id of the pass among those of GET /v1/reconciliation, once it has ended"`
}

func (s *server) reconciliationRoutes() {
	register(s, "GET /v1/reconciliation", forOperator, s.getReconciliation, op("get-reconciliation", "operations",
		"Get the rules of the reconciliation and its last passes",
		"The reconciliation compares what the database, Temporal, Redis and the fleet have stored, and repairs what was terminated, "+
			"deleted, restored or lost outside of berth. `found` of a pass counts the differences of its first check, `held` those that a second check confirmed."))
	register(s, "POST /v1/reconciliation", forOperator, s.reconcile, withStatus(http.StatusAccepted, op("reconcile", "operations",
		"Start a full pass of the reconciliation",
		"For instance after an older database was restored. Passes also run by themselves. 409 while another requested pass runs.")))
}

func (s *server) getReconciliation(ctx context.Context, _ *struct{}) (*client.Reconciliation, error) {
	passes, err := s.Ledger.Passes(ctx, listedPasses)
	if err != nil {
		return nil, err
	}
	progress, err := s.reconcileProgress(ctx)
	if err != nil {
		return nil, err
	}
	out := &client.Reconciliation{Rules: []client.ReconcileRule{}, Passes: append([]berth.ReconcilePass{}, passes...), ReconcileProgress: progress}
	for i, p := range out.Passes { // lists as described: empty, not null
		out.Passes[i].Counts = append([]berth.ReconcileCount{}, p.Counts...)
		out.Passes[i].Findings = append([]berth.ReconcileFinding{}, p.Findings...)
	}
	for _, r := range berth.ReconcileRules() {
		out.Rules = append(out.Rules, client.ReconcileRule(r))
	}
	return out, nil
}

// reconcileProgress returns when a pass has last completed. It is late where none has for a multiple of the interval, also where none
// ever has: a pass that found something takes longer than one interval.
func (s *server) reconcileProgress(ctx context.Context) (client.ReconcileProgress, error) {
	passes, err := s.Ledger.PassHistory(ctx)
	if err != nil {
		return client.ReconcileProgress{}, err
	}
	completed := passes.Completed.EndedAt
	since := completed
	if since.IsZero() {
		since = passes.ExpectedSince
	}
	return client.ReconcileProgress{CompletedAt: completed, Late: s.Clock().Sub(since) > lateIntervals*s.Config.ReconcileEvery}, nil
}

func (s *server) reconcile(ctx context.Context, in *reconcileInput) (*reconcileAnswer, error) {
	id, err := s.Starter.Reconcile(ctx, in.Body != nil && in.Body.DryRun)
	if err != nil {
		return nil, err
	}
	return &reconcileAnswer{PassID: id}, nil
}
