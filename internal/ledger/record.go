package ledger

import (
	"context"

	"berth"
)

// ConferenceRecord returns the detail record of a conference that has ended.
func (l *Ledger) ConferenceRecord(ctx context.Context, c berth.Conference) (berth.ConferenceRecord, error) {
	legs, next, err := l.RecordLegs(ctx, c, "")
	return berth.ConferenceRecord{Conference: c, Legs: append([]berth.ConferenceLeg{}, legs...), LegsLeft: next != ""}, err
}

// RecordLegs returns a page of the legs of a conference that has ended, and the cursor of the next page, empty after the last.
func (l *Ledger) RecordLegs(ctx context.Context, c berth.Conference, cursor string) (legs []berth.ConferenceLeg, next string, err error) {
	legs, next, err = l.Legs(ctx, c.ID, cursor, berth.MaxRecordLegs)
	for i := range legs {
		legs[i] = c.EndedLeg(legs[i])
	}
	return legs, next, err
}

// SaveDelivery stores the state of a record's delivery.
func (l *Ledger) SaveDelivery(ctx context.Context, conferenceID string, d berth.RecordDelivery) error {
	_, err := l.exec(ctx, "save delivery", `INSERT INTO record_deliveries (conference_id, state, attempts, error, updated_at)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (conference_id) DO UPDATE SET state = excluded.state, attempts = excluded.attempts, error = excluded.error,
			updated_at = excluded.updated_at`, conferenceID, d.State, d.Attempts, plain(d.Error), millis(d.UpdatedAt))
	return err
}

// FindDelivery returns the state of a record's delivery; CodeNotFound when it was never sent.
func (l *Ledger) FindDelivery(ctx context.Context, conferenceID string) (berth.RecordDelivery, error) {
	d, err := find(ctx, l, "find delivery", func(d *berth.RecordDelivery) []any {
		return []any{&d.State, &d.Attempts, &d.Error, storedTime{&d.UpdatedAt}}
	}, `SELECT state, attempts, error, updated_at FROM record_deliveries WHERE conference_id = $1`, conferenceID)
	d.WebhookID = berth.RecordWebhookID(conferenceID)
	return d, err
}

const deleteDeliveries = `DELETE FROM record_deliveries WHERE conference_id IN (
	SELECT conference_id FROM record_deliveries WHERE updated_at < $1 ORDER BY updated_at LIMIT CAST($2 AS BIGINT))`
