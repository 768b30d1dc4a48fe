package activities

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"berth"
	"berth/internal/ledger"
	"berth/internal/metrics"
	"berth/internal/starter"
	"berth/internal/webhook"
	"berth/workflows"
)

const (
	// maxWebhookCalls is how many events a process sends to one webhook concurrently, so that a server that hangs delays no other one's events.
	maxWebhookCalls = 20
	// webhookBusy is the pause of an event that waits for these.
	webhookBusy = 10 * time.Second
	// startedTogether is how many workflows a process starts concurrently, and waitingStarts how many more deliveries wait for that. The
	// reconciliation finds the rest.
	startedTogether = 16
	waitingStarts   = 10_000
)

// Webhooks are the activities of workflows that send events to webhooks.
type Webhooks struct {
	Ledger  *ledger.Ledger
	Starter *starter.Starter
	// AllowPrivate permits addresses that are not public.
	AllowPrivate bool
	Logger       *slog.Logger

	calls sync.Map // of *semaphore.Weighted, by the id of the webhook
}

// SendEvent makes one attempt to send an event, and stores its outcome. An attempt whose outcome was lost is repeated with the same webhook
// id, by which the receiver recognizes it.
func (w *Webhooks) SendEvent(ctx context.Context, in workflows.WebhookInput) error {
	d, found, err := berth.Found(w.Ledger.GetDelivery(ctx, in.DeliveryID))
	if err != nil {
		return unavailable("delivery not read", err)
	}
	if !found || d.State != berth.DeliveryPending { // deleted with its webhook, or started again although it was delivered
		return nil
	}
	hook, found, err := berth.Found(w.Ledger.GetWebhook(ctx, d.WebhookID))
	if err != nil {
		return unavailable("webhook not read", err)
	}
	if !found {
		return nil
	}
	if !hook.DisabledAt.IsZero() {
		return final(berth.CodeUnavailable, "the webhook is disabled: "+hook.DisabledWhy, nil)
	}
	limit, _ := w.calls.LoadOrStore(hook.ID, semaphore.NewWeighted(maxWebhookCalls))
	calls := limit.(*semaphore.Weighted) //nolint:errcheck // nothing else is stored
	if !calls.TryAcquire(1) {
		return again(berth.CodeUnavailable, "other events are being sent to the webhook", webhookBusy, nil)
	}
	defer calls.Release(1)
	return w.attempt(ctx, hook, d)
}

// attempt sends the event and stores the outcome.
func (w *Webhooks) attempt(ctx context.Context, hook berth.Webhook, d berth.WebhookDelivery) error {
	began := time.Now()
	status, failure := w.send(ctx, hook, d)
	a := berth.WebhookAttempt{At: began, TookMs: time.Since(began).Milliseconds(), Status: status}
	if failure != nil {
		a.Error = failure.Error()
	}
	log := w.Logger.With("webhook", hook.ID, "delivery", d.ID, "event", d.EventID, "attempt", d.Attempts+1)
	if _, err := w.Ledger.SaveAttempt(ctx, d.ID, a); err != nil && berth.CodeOf(err) != berth.CodeNotFound {
		return unavailable("outcome of the delivery not stored", err)
	}
	if failure == nil {
		w.count(ctx, metrics.OK)
		log.InfoContext(ctx, "event sent to a webhook")
		return nil
	}
	w.count(ctx, string(berth.DeliveryPending))
	log.WarnContext(ctx, "event not sent to a webhook", "error", a.Error)
	if !failure.Permanent() {
		return again(berth.CodeUnavailable, a.Error, sendPause(ctx, failure.RetryAfter), nil)
	}
	if err := w.disable(ctx, hook.ID, berth.WebhookGone); err != nil {
		return err
	}
	return final(berth.CodeUnavailable, a.Error, nil)
}

// sendPause returns the pause before the next attempt to send an event: as the server requests, but no shorter than without a request.
func sendPause(ctx context.Context, requested time.Duration) time.Duration {
	doubled := min(activity.GetInfo(ctx).Attempt-1, 10)
	return min(max(requested, workflows.FirstSendPause<<doubled), workflows.MaxSendPause)
}

// send makes the call, and returns the status of the response, 0 without one.
func (w *Webhooks) send(ctx context.Context, hook berth.Webhook, d berth.WebhookDelivery) (status int, failure *webhook.Error) {
	sender, err := webhook.New(webhook.Options{URL: hook.URL, Secrets: hook.Signing(time.Now()), AllowPrivate: w.AllowPrivate})
	if err != nil { // it was valid with other settings of this process
		return 0, &webhook.Error{Message: err.Error(), Err: err}
	}
	status, err = sender.Send(ctx, d.EventID, d.Event)
	failure, _ = errors.AsType[*webhook.Error](err)
	return status, failure
}

// AbandonEvent stores that an event is not sent again. A webhook that has accepted nothing since the event is disabled. Idempotent.
func (w *Webhooks) AbandonEvent(ctx context.Context, in workflows.WebhookInput) error {
	d, nothing, err := w.Ledger.AbandonDelivery(ctx, in.DeliveryID)
	switch {
	case berth.CodeOf(err) == berth.CodeNotFound: // deleted with its webhook
		return nil
	case err != nil:
		return unavailable("end of the delivery not stored", err)
	case d.State != berth.DeliveryFailed: // the reply of the last attempt was lost
		return nil
	}
	w.count(ctx, string(berth.DeliveryFailed))
	w.Logger.ErrorContext(ctx, "event not delivered to a webhook; send it again on request", "webhook", d.WebhookID, "delivery", d.ID, "attempts", d.Attempts)
	if nothing && d.Attempts > 1 && time.Since(d.CreatedAt) >= workflows.WebhookWithin {
		return w.disable(ctx, d.WebhookID, berth.WebhookFailing)
	}
	return nil
}

// disable disables a webhook, unless it is.
func (w *Webhooks) disable(ctx context.Context, id, why string) error {
	_, err := w.Ledger.ChangeWebhook(ctx, id, func(hook *berth.Webhook) error {
		if hook.DisabledAt.IsZero() {
			hook.DisabledAt, hook.DisabledWhy = time.Now(), why
		}
		return nil
	})
	if err != nil && berth.CodeOf(err) != berth.CodeNotFound {
		return unavailable("webhook not disabled", err)
	}
	w.Logger.ErrorContext(ctx, "webhook disabled", "webhook", id, "reason", why)
	return nil
}

func (w *Webhooks) count(ctx context.Context, outcome string) {
	metrics.WebhookEvents.Add(ctx, 1, metrics.With(metrics.Outcome.String(outcome)))
}

// StartDeliveries starts the workflows of the deliveries that the ledger of this process adds, until ctx ends.
func (w *Webhooks) StartDeliveries(ctx context.Context, added <-chan string) error {
	var g errgroup.Group
	for range startedTogether {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case id := <-added:
					if err := w.Starter.SendEvent(ctx, workflows.WebhookInput{DeliveryID: id}, false); err != nil {
						w.Logger.WarnContext(ctx, "sending of an event not started; the reconciliation starts it", "delivery", id, "error", err)
					}
				}
			}
		})
	}
	return g.Wait()
}

// AddedDeliveries returns what an OnDeliveries of a ledger sends to StartDeliveries.
func AddedDeliveries() (on func(ids []string), added <-chan string) {
	c := make(chan string, waitingStarts)
	return func(ids []string) {
		for _, id := range ids {
			select {
			case c <- id:
			default: // the reconciliation finds it
			}
		}
	}, c
}
