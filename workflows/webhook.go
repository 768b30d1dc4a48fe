package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// sendAttempt bounds one attempt to send an event by webhook.
	sendAttempt = 30 * time.Second
	// FirstSendPause is the pause after the first attempt, which doubles with each further one.
	FirstSendPause = 5 * time.Second
	// MaxSendPause is the longest pause between two attempts.
	MaxSendPause = time.Hour
	// WebhookWithin is for how long an event of a webhook is sent again.
	WebhookWithin = 72 * time.Hour
)

// RecordInput is the argument of Record.
type RecordInput struct {
	ConferenceID string        `json:"conferenceId"`
	Within       time.Duration `json:"within"` // from its start; no attempt is made later
}

// Record sends the detail record of a conference that has ended by webhook.
func Record(ctx workflow.Context, in RecordInput) error {
	return deliver(ctx, in.Within, SendRecordActivity, AbandonRecordActivity, in)
}

// WebhookInput is the argument of Webhook.
type WebhookInput struct {
	DeliveryID string `json:"deliveryId"`
}

// Webhook sends one event to one webhook.
func Webhook(ctx workflow.Context, in WebhookInput) error {
	return deliver(ctx, WebhookWithin, SendEventActivity, AbandonEventActivity, in)
}

// deliver sends an event until the server has accepted it, wants no further attempt or the time is over. The error of the last attempt is
// stored by the activity that sends; the other one stores that no further attempt is made.
func deliver(ctx workflow.Context, within time.Duration, send, abandon string, in any) error {
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: sendAttempt, ScheduleToCloseTimeout: within, RetryPolicy: backoff(FirstSendPause, MaxSendPause),
	}), send, in).Get(ctx, nil)
	if err == nil {
		return nil
	}
	abandoned := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: sendAttempt, RetryPolicy: backoff(time.Second, time.Minute),
	}), abandon, in).Get(ctx, nil)
	if abandoned != nil {
		return abandoned
	}
	return err
}
