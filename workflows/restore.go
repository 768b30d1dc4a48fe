package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// RestoreInput is the argument of Restore.
type RestoreInput struct {
	// GraceUntil is the end of the grace period in Unix ms of Redis's clock; there is one run per grace period.
	GraceUntil int64 `json:"graceUntil"`
}

// Restore makes every open workflow restore in Redis what it holds there, after Redis lost data. Workflows that are too
// young to be listed confirm their slots anyway.
func Restore(ctx workflow.Context, in RestoreInput) error {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: time.Hour,
		StartToCloseTimeout:    10 * time.Minute,
		HeartbeatTimeout:       10 * time.Second,
		RetryPolicy:            backoff(200*time.Millisecond, 5*time.Second),
	}), SignalOpenActivity, in).Get(ctx, nil)
}
