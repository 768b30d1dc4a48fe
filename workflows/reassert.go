package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// ReassertInput starts a reassertion after Redis lost data (L12).
type ReassertInput struct {
	// GraceUntil names the grace, in Unix ms of Redis's clock: one run per grace.
	GraceUntil int64 `json:"graceUntil"`
}

// Reassert has every open workflow put back into Redis what it holds there. Those that are so young that they cannot be
// found yet confirm their slots by themselves.
func Reassert(ctx workflow.Context, in ReassertInput) error {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: time.Hour,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 5 * time.Second},
	}), SignalOpenActivity, in).Get(ctx, nil)
}
