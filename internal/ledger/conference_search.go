package ledger

import (
	"context"
	"math"

	"berth"
)

// ConferenceQuery filters conferences. An empty field matches all.
type ConferenceQuery struct {
	UserID, E164, ConferenceID string
	Status                     berth.ConferenceStatus
	NodeID                     string // of the unit that owns it
}

// SearchConferences returns a page of conferences, the newest first, and the cursor of the next page, empty after the
// last. limit is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) SearchConferences(
	ctx context.Context, q ConferenceQuery, cursor string, limit int,
) (out []berth.Conference, next string, err error) {
	at, id := int64(math.MaxInt64), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.text("user_id", q.UserID)
	p.text("e164", q.E164)
	p.text("id", q.ConferenceID)
	p.text("status", string(q.Status))
	p.text("owner", q.NodeID)
	return listPage(ctx, l, p, "search conferences", body[berth.Conference], selectConference+`WHERE `,
		`(created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3`,
		func(c berth.Conference) []any { return []any{millis(c.CreatedAt), c.ID} })
}

// OwnerGenerations returns the generation of each owner of conferences, several of a unit that was registered again.
func (l *Ledger) OwnerGenerations(ctx context.Context) ([]berth.ConferenceOwner, error) {
	return list(ctx, l, "list owners", func(o *berth.ConferenceOwner) []any { return []any{&o.NodeID, &o.Generation} },
		`SELECT owner, generation FROM conferences WHERE owner <> '' GROUP BY owner, generation`)
}

// CountOwners returns the number of conferences per unit.
func (l *Ledger) CountOwners(ctx context.Context) (map[string]int, error) {
	return count[string](ctx, l, "count owners", `SELECT owner, COUNT(*) FROM conferences WHERE owner <> '' GROUP BY owner`)
}
