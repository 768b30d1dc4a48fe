package ledger

import (
	"context"
	"database/sql"

	"berth"
)

const saveLeg = `INSERT INTO conference_legs (conference_id, id, identity, name, node_id, epoch, joined_at, left_at, reason)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, CASE WHEN CAST($9 AS TEXT) = '` + string(berth.LegLeft) + `' AND EXISTS (
		SELECT 1 FROM conference_participants p WHERE p.conference_id = $1 AND p.identity = $3 AND p.removed_at > 0
	) THEN '` + string(berth.LegRemoved) + `' ELSE CAST($9 AS TEXT) END)
	ON CONFLICT (conference_id, id) DO UPDATE SET left_at = excluded.left_at, reason = excluded.reason
	WHERE conference_legs.left_at = 0`

// SaveLegs stores legs of a conference on a unit. Idempotent: a leg that has ended does not change. Units do not know why a participant
// has left: its reason is LegRemoved if the participant was removed before.
func (l *Ledger) SaveLegs(ctx context.Context, conferenceID string, owner berth.ConferenceOwner, legs []berth.ConferenceLeg) error {
	if !storableID(conferenceID) {
		return berth.Invalid("conferenceId", "must not be empty")
	}
	return l.inTx(ctx, "save legs", func(tx *sql.Tx) error {
		for _, leg := range legs {
			if _, err := tx.ExecContext(ctx, saveLeg, conferenceID, plain(leg.ID), plain(leg.Identity), plain(leg.Name), plain(owner.NodeID),
				owner.Epoch, millis(leg.JoinedAt), millis(leg.LeftAt), plain(string(leg.Reason))); err != nil {
				return err
			}
		}
		return nil
	})
}

// Legs returns a page of a conference's legs in the order in which they began, and the cursor of the next page, empty after the
// last. limit is at most 200.
func (l *Ledger) Legs(ctx context.Context, conferenceID, cursor string, limit int) (legs []berth.ConferenceLeg, next string, err error) {
	at, id := int64(-1), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.add("conference_id =", conferenceID)
	return listPage(ctx, l, p, "list legs", legFields,
		`SELECT id, identity, name, node_id, epoch, joined_at, left_at, reason FROM conference_legs WHERE `,
		`(joined_at, id) > ($1, $2) ORDER BY joined_at, id LIMIT $3`,
		func(g berth.ConferenceLeg) []any { return []any{millis(g.JoinedAt), g.ID} })
}

// HasLeg reports whether a participant was on the copy of a conference with an epoch, as far as its unit has reported.
func (l *Ledger) HasLeg(ctx context.Context, conferenceID, identity string, epoch int64) (bool, error) {
	found, err := list(ctx, l, "find leg", value[string], `SELECT id FROM conference_legs WHERE conference_id = $1 AND identity = $2 AND epoch = $3 LIMIT 1`, conferenceID, plain(identity), epoch)
	return len(found) > 0, err
}

func legFields(g *berth.ConferenceLeg) []any {
	return []any{&g.ID, &g.Identity, &g.Name, &g.NodeID, &g.Epoch, storedTime{&g.JoinedAt}, storedTime{&g.LeftAt}, &g.Reason}
}

// Legs are kept while their conference may continue.
const deleteLegs = `DELETE FROM conference_legs WHERE (conference_id, id) IN (
	SELECT g.conference_id, g.id FROM conference_legs g WHERE g.joined_at < $1
	AND NOT EXISTS (SELECT 1 FROM conferences c WHERE c.id = g.conference_id AND c.status NOT IN ('ended', 'deleted'))
	ORDER BY g.joined_at LIMIT CAST($2 AS BIGINT))`
