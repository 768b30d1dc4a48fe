package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// recordAttempt bounds one attempt to send a record.
	recordAttempt = 30 * time.Second
	// MaxRecordPause is the longest pause between two attempts.
	MaxRecordPause = time.Hour
)

// RecordInput is the argument of Record.
type RecordInput struct {
	ConferenceID string        `json:"conferenceId"`
	Within       time.Duration `json:"within"` // from its start; no attempt is made later
}

// Record sends the detail record of a conference that has ended by webhook, until the server has accepted it, wants no further
// attempt or the time is over. The error of the last attempt is stored.
func Record(ctx workflow.Context, in RecordInput) error {
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: recordAttempt, ScheduleToCloseTimeout: in.Within, RetryPolicy: backoff(5*time.Second, MaxRecordPause),
	}), SendRecordActivity, in).Get(ctx, nil)
	if err == nil {
		return nil
	}
	abandoned := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: recordAttempt, RetryPolicy: backoff(time.Second, time.Minute),
	}), AbandonRecordActivity, in).Get(ctx, nil)
	if abandoned != nil {
		return abandoned
	}
	return err
}
