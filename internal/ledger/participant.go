package ledger

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"berth"
)

const participantColumns = `conference_id, identity, name, role, link_id, created_at, removed_at, removed_by`

// addParticipant leaves a removed participant and a guest as they are, and returns no row then.
const addParticipant = `INSERT INTO conference_participants (conference_id, identity, name, role, link_id, secret, created_at, removed_at, removed_by)
	VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '')
	ON CONFLICT (conference_id, identity) DO UPDATE SET name = excluded.name, role = excluded.role
	WHERE conference_participants.removed_at = 0 AND conference_participants.link_id = ''
	RETURNING ` + participantColumns

// AddParticipant stores who may join a conference; the same identity again gets the new name and role. CodeConflict when it was
// removed.
func (l *Ledger) AddParticipant(ctx context.Context, p berth.Participant) (berth.Participant, error) {
	added, err := scan(l.write.QueryRowContext(ctx, addParticipant,
		p.ConferenceID, plain(p.Identity), plain(p.Name), p.Role, "", "", millis(p.CreatedAt)), participantFields)
	if errors.Is(err, sql.ErrNoRows) {
		return added, berth.Errorf(berth.CodeConflict, "the participant was removed from the conference; use another identity")
	}
	return added, translate("add participant", err)
}

// FindParticipant returns a participant, also one that was removed; CodeNotFound when there is none.
func (l *Ledger) FindParticipant(ctx context.Context, conferenceID, identity string) (berth.Participant, error) {
	return find(ctx, l, "find participant", participantFields,
		`SELECT `+participantColumns+` FROM conference_participants WHERE conference_id = $1 AND identity = $2`, conferenceID, identity)
}

// Participants returns a page of a conference's participants by identity, those that were removed too, and the cursor of the
// next page, empty after the last. limit is at most 200.
func (l *Ledger) Participants(
	ctx context.Context, conferenceID, cursor string, limit int,
) (out []berth.Participant, next string, err error) {
	at, after := 0, ""
	p := pageBehind(cursor, limit, &at, &after)
	p.args = p.args[1:] // cursors begin with a 0, which orders nothing
	p.add("conference_id =", conferenceID)
	return listPage(ctx, l, p, "list participants", participantFields, `SELECT `+participantColumns+` FROM conference_participants WHERE `,
		`identity > $1 ORDER BY identity LIMIT $2`, func(p berth.Participant) []any { return []any{0, p.Identity} })
}

// RemovedParticipants returns the identities that were removed from a conference.
func (l *Ledger) RemovedParticipants(ctx context.Context, conferenceID string) ([]string, error) {
	return list(ctx, l, "removed participants", value[string],
		`SELECT identity FROM conference_participants WHERE conference_id = $1 AND removed_at > 0`, conferenceID)
}

// RemoveParticipant records that a participant was removed, and with revokeLink revokes the link of a guest. CodeNotFound when
// there is none. Idempotent: the first removal is kept.
func (l *Ledger) RemoveParticipant(
	ctx context.Context, conferenceID, identity, by string, at time.Time, revokeLink bool,
) (p berth.Participant, err error) {
	err = l.inTx(ctx, "remove participant", func(tx *sql.Tx) (err error) {
		p, err = scan(tx.QueryRowContext(ctx, `UPDATE conference_participants
			SET removed_by = CASE WHEN removed_at = 0 THEN $3 ELSE removed_by END, removed_at = CASE WHEN removed_at = 0 THEN $4 ELSE removed_at END
			WHERE conference_id = $1 AND identity = $2 RETURNING `+participantColumns,
			conferenceID, plain(identity), plain(by), millis(at)), participantFields)
		if err != nil || !revokeLink || p.LinkID == "" {
			return err
		}
		_, err = tx.ExecContext(ctx, revokeLinkByID, conferenceID, p.LinkID, millis(at), plain(by))
		return err
	})
	return p, err
}

func participantFields(p *berth.Participant) []any {
	return []any{
		&p.ConferenceID, &p.Identity, &p.Name, &p.Role, &p.LinkID, storedTime{&p.CreatedAt}, storedTime{&p.RemovedAt}, &p.RemovedBy,
	}
}

const linkColumns = `id, conference_id, role, max_uses, uses, created_at, created_by, revoked_at, revoked_by`

const revokeLinkByID = `UPDATE conference_links SET revoked_at = $3, revoked_by = $4
	WHERE conference_id = $1 AND id = $2 AND revoked_at = 0`

// CreateLink stores a link with the hash of its secret.
func (l *Ledger) CreateLink(ctx context.Context, k berth.Link, secret string) error {
	_, err := l.exec(ctx, "create link", `INSERT INTO conference_links
		(id, conference_id, role, secret, max_uses, uses, created_at, created_by, revoked_at, revoked_by)
		VALUES ($1, $2, $3, $4, $5, 0, $6, $7, 0, '')`,
		k.ID, k.ConferenceID, k.Role, secret, k.MaxUses, millis(k.CreatedAt), plain(k.CreatedBy))
	return err
}

// Links returns a page of a conference's links, newest first, and the cursor of the next page, empty after the last. limit is at
// most 200.
func (l *Ledger) Links(ctx context.Context, conferenceID, cursor string, limit int) (out []berth.Link, next string, err error) {
	at, id := int64(math.MaxInt64), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.add("conference_id =", conferenceID)
	return listPage(ctx, l, p, "list links", linkFields, `SELECT `+linkColumns+` FROM conference_links WHERE `,
		`(created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3`,
		func(k berth.Link) []any { return []any{millis(k.CreatedAt), k.ID} })
}

// FindLink returns the link with the hash of a secret; CodeNotFound when there is none.
func (l *Ledger) FindLink(ctx context.Context, secret string) (berth.Link, error) {
	return find(ctx, l, "find link", linkFields, `SELECT `+linkColumns+` FROM conference_links WHERE secret = $1`, secret)
}

// RevokeLink revokes a link of a conference. Idempotent. CodeNotFound when there is none.
func (l *Ledger) RevokeLink(ctx context.Context, conferenceID, id, by string, at time.Time) error {
	changed, err := l.exec(ctx, "revoke link", revokeLinkByID, conferenceID, plain(id), millis(at), plain(by))
	if err != nil || changed > 0 {
		return err
	}
	_, err = find(ctx, l, "find link", linkFields, `SELECT `+linkColumns+` FROM conference_links WHERE conference_id = $1 AND id = $2`, conferenceID, id)
	return err
}

// RedeemLink admits a guest with a link, given by the hash of its secret. guest is the hash of the secret that the guest's
// browser keeps. CodeNotFound when the link does not exist, is revoked or was used as often as it may be; it admits no guest
// then.
func (l *Ledger) RedeemLink(ctx context.Context, secret string, p berth.Participant, guest string) (berth.Participant, error) {
	err := l.inTx(ctx, "redeem link", func(tx *sql.Tx) error {
		link, err := scan(tx.QueryRowContext(ctx, `UPDATE conference_links SET uses = uses + 1
			WHERE secret = $1 AND revoked_at = 0 AND uses < max_uses RETURNING `+linkColumns, secret), linkFields)
		if err != nil {
			return err
		}
		p.ConferenceID, p.Role, p.LinkID = link.ConferenceID, link.Role, link.ID
		p, err = scan(tx.QueryRowContext(ctx, addParticipant,
			p.ConferenceID, p.Identity, plain(p.Name), p.Role, p.LinkID, guest, millis(p.CreatedAt)), participantFields)
		return err
	})
	return p, err
}

// FindGuest returns the guest whose browser keeps a secret, given by its hash; CodeNotFound when there is none.
func (l *Ledger) FindGuest(ctx context.Context, secret string) (berth.Participant, error) {
	return find(ctx, l, "find guest", participantFields,
		`SELECT `+participantColumns+` FROM conference_participants WHERE secret = $1 AND secret <> ''`, secret)
}

func linkFields(k *berth.Link) []any {
	return []any{
		&k.ID, &k.ConferenceID, &k.Role, &k.MaxUses, &k.Uses, storedTime{&k.CreatedAt}, &k.CreatedBy, storedTime{&k.RevokedAt}, &k.RevokedBy,
	}
}

// Participants and links are kept while their conference may continue.
const (
	deleteParticipants = `DELETE FROM conference_participants WHERE (conference_id, identity) IN (
		SELECT p.conference_id, p.identity FROM conference_participants p WHERE p.created_at < $1
		AND NOT EXISTS (SELECT 1 FROM conferences c WHERE c.id = p.conference_id AND c.status NOT IN ('ended', 'deleted'))
		ORDER BY p.created_at LIMIT CAST($2 AS BIGINT))`
	deleteLinks = `DELETE FROM conference_links WHERE id IN (SELECT k.id FROM conference_links k WHERE k.created_at < $1
		AND NOT EXISTS (SELECT 1 FROM conferences c WHERE c.id = k.conference_id AND c.status NOT IN ('ended', 'deleted'))
		ORDER BY k.created_at LIMIT CAST($2 AS BIGINT))`
)
