package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// RetentionResult is the result of Retention: how much of each kind was removed.
type RetentionResult struct {
	Removed map[string]int64 `json:"removed"`
}

// RetentionInterval is the time between two runs of Retention.
const RetentionInterval = 10 * time.Minute

// Retention removes expired data. A Temporal Schedule runs it, one run at a time.
func Retention(ctx workflow.Context) (RetentionResult, error) {
	var res RetentionResult
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: RetentionInterval,
		HeartbeatTimeout:       time.Minute,
		RetryPolicy:            backoff(time.Second, time.Minute),
	}), RemoveExpiredActivity).Get(ctx, &res)
	return res, err
}
