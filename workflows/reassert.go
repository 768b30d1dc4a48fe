package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// ReassertInput is the argument of Reassert.
type ReassertInput struct {
	// GraceUntil is the end of the grace period in Unix ms of Redis's clock; there is one run per grace period.
	GraceUntil int64 `json:"graceUntil"`
}

// Reassert makes every open workflow restore in Redis what it holds there, after Redis lost data. Workflows that are too
// young to be listed confirm their slots anyway.
func Reassert(ctx workflow.Context, in ReassertInput) error {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: time.Hour,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy:            backoff(200*time.Millisecond, 5*time.Second),
	}), SignalOpenActivity, in).Get(ctx, nil)
}
