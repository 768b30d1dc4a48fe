package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// PassInput is the argument of Reconcile, FindDifferences and RestoreState.
type PassInput struct {
	// PassID is set by Reconcile.
	PassID string `json:"passId,omitempty"`
	// Requested indicates a full pass that an operator started, DryRun that nothing is repaired.
	Requested bool `json:"requested,omitempty"`
	DryRun    bool `json:"dryRun,omitempty"`
	// GraceUntil is set after Redis lost data: the end of the grace period in Unix ms of Redis's clock. Such a run only restores what
	// Redis had; there is one for each grace period.
	GraceUntil int64 `json:"graceUntil,omitempty"`
}

// Differences is the result of FindDifferences and the argument of RepairDifferences.
type Differences struct {
	// Pass has ended if its status is set: there is nothing to check again. Otherwise its reason is why it is incomplete, empty if
	// everything was compared.
	Pass berth.ReconcilePass `json:"pass"`
	// Found are all findings to be checked again after Pause.
	Found []berth.ReconcileFinding `json:"found,omitempty"`
	Pause time.Duration            `json:"pause,omitempty"`
}

const (
	// ReconcileTimeout bounds a pass.
	ReconcileTimeout = 10 * time.Minute
	// ReconcileAttempts is how often each part of a pass is attempted.
	ReconcileAttempts = 3
)

// Reconcile makes one pass of the reconciliation: it compares what berth has stored in several places and repairs differences that
// hold in two checks. The pause between them is longer than the slowest operation that changes one place after another, so that only
// what was lost is found. A Temporal Schedule runs it, one run at a time.
func Reconcile(ctx workflow.Context, in PassInput) (berth.ReconcilePass, error) {
	if in.GraceUntil != 0 {
		return berth.ReconcilePass{}, restoreState(ctx, in)
	}
	in.PassID = workflow.GetInfo(ctx).WorkflowExecution.RunID
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: ReconcileTimeout,
		HeartbeatTimeout:       10 * time.Second,
		// A pass that fails is made up for by the next.
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: ReconcileAttempts},
	})
	var found Differences
	if err := workflow.ExecuteActivity(ctx, FindDifferencesActivity, in).Get(ctx, &found); err != nil {
		return berth.ReconcilePass{}, err
	}
	if found.Pass.Status != "" {
		return found.Pass, nil
	}
	if err := workflow.Sleep(ctx, found.Pause); err != nil {
		return berth.ReconcilePass{}, err
	}
	var pass berth.ReconcilePass
	err := workflow.ExecuteActivity(ctx, RepairDifferencesActivity, found).Get(ctx, &pass)
	return pass, err
}

// restoreState restores in Redis what other stores and workflows know. Workflows that are too young to be listed confirm their slots
// anyway.
func restoreState(ctx workflow.Context, in PassInput) error {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: time.Hour,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy:            backoff(200*time.Millisecond, 5*time.Second),
	}), RestoreStateActivity, in).Get(ctx, nil)
}
