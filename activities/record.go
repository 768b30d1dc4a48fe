package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/internal/ledger"
	"berth/internal/metrics"
	"berth/internal/webhook"
	"berth/workflows"
)

// Records are the activities of workflows that send detail records.
type Records struct {
	Ledger *ledger.Ledger
	// Webhook is nil where no URL is set.
	Webhook *webhook.Sender
	Logger  *slog.Logger
}

// SendRecord makes one attempt to send the record of a conference, and stores its outcome. An attempt whose outcome was lost is
// repeated with the same webhook id, by which the receiver recognizes it.
func (r *Records) SendRecord(ctx context.Context, in workflows.RecordInput) error {
	c, err := r.Ledger.GetConference(ctx, in.ConferenceID)
	if err != nil {
		return r.unread(err)
	}
	record, err := r.Ledger.ConferenceRecord(ctx, c)
	if err != nil {
		return r.unread(err)
	}
	event, err := json.Marshal(berth.RecordEvent{Type: berth.EventRecord, Timestamp: c.EndedAt, Data: record})
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	delivery := berth.RecordDelivery{
		WebhookID: berth.RecordWebhookID(c.ID), State: berth.DeliveryDelivered, Attempts: int(activity.GetInfo(ctx).Attempt), UpdatedAt: time.Now(),
	}
	failure := r.send(ctx, delivery.WebhookID, event)
	if failure != nil {
		delivery.State, delivery.Error = berth.DeliveryPending, failure.Error()
		if app, ok := errors.AsType[*temporal.ApplicationError](failure); ok {
			delivery.Error = app.Message()
		}
		r.count(ctx, string(berth.DeliveryPending))
		r.Logger.WarnContext(ctx, "detail record not sent; retrying", "conference", c.ID, "attempt", delivery.Attempts, "error", delivery.Error)
	} else {
		r.count(ctx, metrics.OK)
		r.Logger.InfoContext(ctx, "detail record sent", "conference", c.ID, "attempt", delivery.Attempts)
	}
	if err := r.Ledger.SaveDelivery(ctx, c.ID, delivery); err != nil {
		return unavailable("delivery of the record not stored", err)
	}
	return failure
}

// unread returns the error of a record that cannot be read: without its conference there is none.
func (r *Records) unread(err error) error {
	if berth.CodeOf(err) == berth.CodeNotFound {
		return temporal.NewNonRetryableApplicationError("the conference does not exist", string(berth.CodeNotFound), err)
	}
	return unavailable("record not read", err)
}

// send returns the failure of an attempt as an application error.
func (r *Records) send(ctx context.Context, id string, event []byte) error {
	if r.Webhook == nil {
		return final(berth.CodeUnavailable, "no URL is set for detail records", nil)
	}
	_, err := r.Webhook.Send(ctx, id, event)
	var failed *webhook.Error
	if err == nil || !errors.As(err, &failed) {
		return err
	}
	if failed.Permanent() {
		return final(berth.CodeUnavailable, failed.Message, nil)
	}
	return again(berth.CodeUnavailable, failed.Message, sendPause(ctx, failed.RetryAfter), nil)
}

// AbandonRecord stores that a record is not sent again. Idempotent.
func (r *Records) AbandonRecord(ctx context.Context, in workflows.RecordInput) error {
	d, _, err := berth.Found(r.Ledger.FindDelivery(ctx, in.ConferenceID))
	if err != nil {
		return unavailable("delivery of the record not read", err)
	}
	if d.State == berth.DeliveryDelivered { // the reply of the last attempt was lost
		return nil
	}
	d.State, d.UpdatedAt = berth.DeliveryFailed, time.Now()
	if err := r.Ledger.SaveDelivery(ctx, in.ConferenceID, d); err != nil {
		return unavailable("delivery of the record not stored", err)
	}
	r.count(ctx, string(berth.DeliveryFailed))
	r.Logger.ErrorContext(ctx, "detail record not delivered; send it again on request", "conference", in.ConferenceID, "attempts", d.Attempts, "error", d.Error)
	return nil
}

func (r *Records) count(ctx context.Context, outcome string) {
	metrics.Records.Add(ctx, 1, metrics.With(metrics.Outcome.String(outcome)))
}
