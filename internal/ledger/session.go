package ledger

import (
	"context"
	"time"

	"berth"
)

var sessionColumns = columns[berth.Session]{
	{"id", func(s *berth.Session) any { return &s.ID }},
	{"user_id", func(s *berth.Session) any { return &s.UserID }},
	{"tenant_id", func(s *berth.Session) any { return &s.TenantID }},
	{"src_lang", func(s *berth.Session) any { return &s.SrcLang }},
	{"tgt_lang", func(s *berth.Session) any { return &s.TgtLang }},
	{"routing_key", func(s *berth.Session) any { return &s.RoutingKey }},
	{"version", func(s *berth.Session) any { return &s.Version }},
	{"updated_at", func(s *berth.Session) any { return storedTime{&s.UpdatedAt} }},
}

// The condition leaves another user's session unchanged and returns no row for it.
var putSession = sessionColumns.insert("sessions", [2]string{"created_at", "$8"}) + `
	ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id, src_lang = excluded.src_lang,
		tgt_lang = excluded.tgt_lang, routing_key = excluded.routing_key, updated_at = excluded.updated_at,
		version = CASE WHEN sessions.version >= excluded.version THEN sessions.version + 1 ELSE excluded.version END
	WHERE sessions.user_id = excluded.user_id
	RETURNING ` + sessionColumns.names("")

// PutSession creates or changes the user's session with that id; CodeNotFound when the id belongs to another user. Pool and
// current turn of a session are in Redis. The result has the version of the row, which each change increases.
func (l *Ledger) PutSession(ctx context.Context, s berth.Session) (berth.Session, error) {
	if !storableID(s.ID) {
		return s, berth.Invalid("sessionId", "must not be empty")
	}
	if !storableID(s.UserID) {
		return s, berth.Invalid("userId", "must not be empty")
	}
	s.TenantID, s.SrcLang, s.TgtLang, s.RoutingKey = plain(s.TenantID), plain(s.SrcLang), plain(s.TgtLang), plain(s.RoutingKey)
	s.UpdatedAt = time.Now()
	s.Version = s.UpdatedAt.UnixMilli() // also higher than all earlier ones where an older database was restored
	stored, err := scan(l.write.QueryRowContext(ctx, putSession, sessionColumns.values(&s)...), sessionColumns.fields)
	return stored, translate("put session", err)
}

var selectSession = `SELECT ` + sessionColumns.names("") + ` FROM sessions WHERE id = $1 AND user_id = $2`

// GetSession returns a session of this user; CodeNotFound when it does not exist or belongs to another user.
func (l *Ledger) GetSession(ctx context.Context, userID, id string) (berth.Session, error) {
	return find(ctx, l, "get session", sessionColumns.fields, selectSession, id, userID)
}
