package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

var deliveryColumns = columns[berth.WebhookDelivery]{
	{"id", func(d *berth.WebhookDelivery) any { return &d.ID }},
	{"webhook_id", func(d *berth.WebhookDelivery) any { return &d.WebhookID }},
	{"event_id", func(d *berth.WebhookDelivery) any { return &d.EventID }},
	{"type", func(d *berth.WebhookDelivery) any { return &d.Type }},
	{"subject_id", func(d *berth.WebhookDelivery) any { return &d.SubjectID }},
	{"state", func(d *berth.WebhookDelivery) any { return &d.State }},
	{"attempts", func(d *berth.WebhookDelivery) any { return &d.Attempts }},
	{"log", func(d *berth.WebhookDelivery) any { return storedJSON{&d.Log} }},
	{"event", func(d *berth.WebhookDelivery) any { return storedJSON{&d.Event} }},
	{"created_at", func(d *berth.WebhookDelivery) any { return storedTime{&d.CreatedAt} }},
	{"updated_at", func(d *berth.WebhookDelivery) any { return storedTime{&d.UpdatedAt} }},
}

var (
	insertDeliveries = deliveryColumns.insert("webhook_deliveries")
	selectDeliveries = "SELECT " + deliveryColumns.names("") + " FROM webhook_deliveries WHERE "
)

const (
	pageOfDeliveries = `(created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT CAST($3 AS BIGINT)`
	unsentDeliveries = `SELECT id FROM webhook_deliveries
		WHERE state = 'pending' AND updated_at < $1 AND (attempts = 0 OR updated_at < $2) ORDER BY updated_at LIMIT CAST($3 AS BIGINT)`
)

// AddDelivery stores an event for one webhook, to be sent. CodeNotFound where the webhook does not exist.
func (l *Ledger) AddDelivery(ctx context.Context, webhookID string, event berth.WebhookEvent) (d berth.WebhookDelivery, err error) {
	if d, err = newDelivery(event); err != nil {
		return d, err
	}
	err = l.inTx(ctx, "add delivery", func(tx *sql.Tx) error {
		var id string
		if err := tx.QueryRowContext(ctx, `SELECT id FROM webhooks WHERE id = $1`+l.dialect.forUpdate, webhookID).Scan(&id); err != nil {
			return err
		}
		return insertDelivery(ctx, tx, id, &d)
	})
	return d, err
}

// GetDelivery returns a delivery; CodeNotFound where there is none.
func (l *Ledger) GetDelivery(ctx context.Context, id string) (berth.WebhookDelivery, error) {
	return find(ctx, l, "read delivery", deliveryColumns.fields, selectDeliveries+`id = $1`, id)
}

// Deliveries returns a page of the deliveries of a webhook, the newest first, and the cursor of the next page, empty after the last. An empty state
// matches all. limit is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) Deliveries(ctx context.Context, webhookID string, state berth.DeliveryState, cursor string, limit int) ([]berth.WebhookDelivery, string, error) {
	at, id := int64(1)<<62, ""
	p := pageBehind(cursor, limit, &at, &id)
	p.add("webhook_id =", plain(webhookID))
	p.text("state", string(state))
	return listPage(ctx, l, p, "list deliveries", deliveryColumns.fields, selectDeliveries,
		pageOfDeliveries,
		func(d berth.WebhookDelivery) []any { return []any{millis(d.CreatedAt), d.ID} })
}

// ResendDelivery makes a delivery pending again. CodeNotFound where there is none.
func (l *Ledger) ResendDelivery(ctx context.Context, id string) (berth.WebhookDelivery, error) {
	return l.changeDelivery(ctx, id, func(d *berth.WebhookDelivery) error {
		d.State = berth.DeliveryPending
		return nil
	})
}

// SaveAttempt adds an attempt to a delivery, which has been delivered if the attempt has no error.
func (l *Ledger) SaveAttempt(ctx context.Context, id string, a berth.WebhookAttempt) (berth.WebhookDelivery, error) {
	a.At, a.Error = asStored(a.At), plain(a.Error)
	return l.changeDelivery(ctx, id, func(d *berth.WebhookDelivery) error {
		d.Attempts++
		if d.Log = append(d.Log, a); len(d.Log) > berth.MaxWebhookLog {
			d.Log = d.Log[len(d.Log)-berth.MaxWebhookLog:]
		}
		if a.Error == "" {
			d.State = berth.DeliveryDelivered
		}
		return nil
	})
}

// AbandonDelivery ends a delivery that was not accepted, and reports whether the webhook has accepted no event since it was created.
func (l *Ledger) AbandonDelivery(ctx context.Context, id string) (d berth.WebhookDelivery, nothing bool, err error) {
	d, err = l.changeDelivery(ctx, id, func(d *berth.WebhookDelivery) error {
		if d.State == berth.DeliveryPending {
			d.State = berth.DeliveryFailed
		}
		return nil
	})
	if err != nil {
		return d, false, err
	}
	var accepted int
	err = l.read.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM webhook_deliveries
		WHERE webhook_id = $1 AND state = 'delivered' AND updated_at >= $2 LIMIT 1) AS accepted`, d.WebhookID, millis(d.CreatedAt)).Scan(&accepted)
	return d, accepted == 0, translate("find accepted events", err)
}

func (l *Ledger) changeDelivery(ctx context.Context, id string, change func(*berth.WebhookDelivery) error) (d berth.WebhookDelivery, err error) {
	if !storableID(id) {
		return d, translate("change delivery", sql.ErrNoRows)
	}
	err = l.inTx(ctx, "change delivery", func(tx *sql.Tx) error {
		if d, err = scan(tx.QueryRowContext(ctx, selectDeliveries+`id = $1`+l.dialect.forUpdate, id), deliveryColumns.fields); err != nil {
			return err
		}
		if err := change(&d); err != nil {
			return err
		}
		d.UpdatedAt = asStored(time.Now())
		_, err = tx.ExecContext(ctx, `UPDATE webhook_deliveries SET state = $2, attempts = $3, log = $4, updated_at = $5 WHERE id = $1`,
			id, d.State, d.Attempts, storedJSON{&d.Log}, millis(d.UpdatedAt))
		return err
	})
	return d, err
}

// UnsentDeliveries returns pending deliveries without an attempt since a time, and those without any since another one, the oldest first. limit
// is at most 1,000.
func (l *Ledger) UnsentDeliveries(ctx context.Context, retried, begun time.Time, limit int) ([]string, error) {
	return list(ctx, l, "list unsent deliveries", value[string], unsentDeliveries,
		millis(begun), millis(retried), clamp(limit, 1000))
}

// Pending deliveries stay: their workflow ends them.
const deleteWebhookDeliveries = `DELETE FROM webhook_deliveries WHERE id IN (SELECT id FROM webhook_deliveries
	WHERE created_at < $1 AND state <> 'pending' ORDER BY created_at LIMIT CAST($2 AS BIGINT))`
