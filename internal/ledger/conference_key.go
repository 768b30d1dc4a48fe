package ledger

import (
	"context"
	"time"
)

// ConferenceKey is the conference that an idempotency key refers to.
type ConferenceKey struct {
	ID           string // of user and key
	RequestHash  string
	ConferenceID string
	E164         string
}

const keepConferenceKey = `INSERT INTO conference_keys (id, request_hash, conference_id, e164, used_at) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (id) DO UPDATE SET conference_id = excluded.conference_id, e164 = excluded.e164, used_at = excluded.used_at
	WHERE conference_keys.conference_id = $6`

// KeepConferenceKey stores what a key refers to and returns what is stored: the first conference of the key, unless that is
// the one that k replaces, given by its id as instead.
func (l *Ledger) KeepConferenceKey(ctx context.Context, k ConferenceKey, instead string) (ConferenceKey, error) {
	if _, err := l.write.ExecContext(ctx, keepConferenceKey, k.ID, k.RequestHash, k.ConferenceID, k.E164, time.Now().UnixMilli(), instead); err != nil {
		return ConferenceKey{}, translate("keep conference key", err)
	}
	kept, err := scan(l.write.QueryRowContext(ctx, selectConferenceKey, k.ID), keyFields)
	return kept, translate("conference key", err)
}

const selectConferenceKey = `SELECT id, request_hash, conference_id, e164 FROM conference_keys WHERE id = $1`

// FindConferenceKey returns the conference of a key; CodeNotFound when the key was never used.
func (l *Ledger) FindConferenceKey(ctx context.Context, id string) (ConferenceKey, error) {
	return find(ctx, l, "conference key", keyFields, selectConferenceKey, id)
}

func keyFields(k *ConferenceKey) []any { return []any{&k.ID, &k.RequestHash, &k.ConferenceID, &k.E164} }
