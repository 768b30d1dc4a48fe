package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

const sessionColumns = `id, user_id, tenant_id, src_lang, tgt_lang, routing_key, updated_at`

// The condition leaves another user's session as it is, and unseen: no row comes back.
const putSession = `INSERT INTO sessions (id, user_id, tenant_id, src_lang, tgt_lang, routing_key, created_at, updated_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
	ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id, src_lang = excluded.src_lang,
		tgt_lang = excluded.tgt_lang, routing_key = excluded.routing_key, updated_at = excluded.updated_at
	WHERE sessions.user_id = excluded.user_id
	RETURNING ` + sessionColumns

// PutSession stores a session, or changes the user's own of that id; CodeNotFound when the id is another user's. What
// Redis decides of a session (pool, current turn) is no part of it.
func (l *Ledger) PutSession(ctx context.Context, s berth.Session) (berth.Session, error) {
	if !storableID(s.ID) {
		return s, berth.Invalid("sessionId", "must not be empty")
	}
	if !storableID(s.UserID) {
		return s, berth.Invalid("userId", "must not be empty")
	}
	stored, err := scanSession(l.write.QueryRowContext(ctx, putSession, s.ID, s.UserID, plain(s.TenantID), plain(s.SrcLang),
		plain(s.TgtLang), plain(s.RoutingKey), time.Now().UnixMilli()))
	return stored, translate("put session", err)
}

const selectSession = `SELECT ` + sessionColumns + ` FROM sessions WHERE id = $1 AND user_id = $2`

// GetSession answers a session of this user; CodeNotFound when there is none or it is another user's.
func (l *Ledger) GetSession(ctx context.Context, userID, id string) (berth.Session, error) {
	if !storableID(id) || !storableID(userID) {
		return berth.Session{}, translate("get session", sql.ErrNoRows)
	}
	s, err := scanSession(l.read.QueryRowContext(ctx, selectSession, id, userID))
	return s, translate("get session", err)
}

func scanSession(row scanner) (berth.Session, error) {
	var s berth.Session
	var updated int64
	err := row.Scan(&s.ID, &s.UserID, &s.TenantID, &s.SrcLang, &s.TgtLang, &s.RoutingKey, &updated)
	s.UpdatedAt = fromMillis(updated)
	return s, err
}
