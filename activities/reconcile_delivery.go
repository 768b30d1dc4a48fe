package activities

import (
	"context"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/workflows"
)

const (
	// unsentAfter is how long a delivery may have no attempt: its workflow makes one within seconds.
	unsentAfter = time.Minute
	// maxUnsent is how many deliveries a pass considers.
	maxUnsent = 1000
)

// unsentDeliveries considers the deliveries that are due.
func (p *pass) unsentDeliveries(ctx context.Context) error {
	ids, err := p.r.Ledger.UnsentDeliveries(ctx, p.StartedAt.Add(-workflows.MaxSendPause-10*time.Minute), p.StartedAt.Add(-unsentAfter), maxUnsent)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := p.candidate(ctx, berth.RuleDeliveryWithoutRun, workflows.WebhookWorkflowID(id)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) delivery(ctx context.Context, name string) (d berth.WebhookDelivery, ok bool, err error) {
	id, ok := strings.CutPrefix(name, workflows.WebhookPrefix)
	if !ok {
		return d, false, nil
	}
	return berth.Found(r.Ledger.GetDelivery(ctx, id))
}

func (r *Reconciler) deliveryWithoutRun(ctx context.Context, name string) (version int64, differs bool, err error) {
	if running, err := r.runs(ctx, name); err != nil || running {
		return 0, false, err
	}
	d, ok, err := r.delivery(ctx, name)
	return d.UpdatedAt.UnixMilli(), ok && d.State == berth.DeliveryPending, err
}

func (r *Reconciler) startDelivery(ctx context.Context, f berth.ReconcileFinding) error {
	d, ok, err := r.delivery(ctx, f.Subject)
	switch {
	case err != nil:
		return err
	case !ok || d.UpdatedAt.UnixMilli() != f.Version:
		return ledger.ErrStale
	}
	return r.Starter.SendEvent(ctx, workflows.WebhookInput{DeliveryID: d.ID}, false)
}
