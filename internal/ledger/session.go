package ledger

import (
	"context"
	"time"

	"berth"
)

var sessionColumns = columns[berth.Session]{
	{"key", func(s *berth.Session) any { return &s.Key }},
	{"id", func(s *berth.Session) any { return &s.ID }},
	{"user_id", func(s *berth.Session) any { return &s.UserID }},
	{"tenant_id", func(s *berth.Session) any { return &s.TenantID }},
	{"src_lang", func(s *berth.Session) any { return &s.SrcLang }},
	{"tgt_lang", func(s *berth.Session) any { return &s.TgtLang }},
	{"routing_key", func(s *berth.Session) any { return &s.RoutingKey }},
	{"version", func(s *berth.Session) any { return &s.Version }},
	{"updated_at", func(s *berth.Session) any { return storedTime{&s.UpdatedAt} }},
}

var putSession = sessionColumns.insert("sessions", [2]string{"created_at", "$9"}) + `
	ON CONFLICT (key) DO UPDATE SET tenant_id = excluded.tenant_id, src_lang = excluded.src_lang,
		tgt_lang = excluded.tgt_lang, routing_key = excluded.routing_key, updated_at = excluded.updated_at,
		version = CASE WHEN sessions.version >= excluded.version THEN sessions.version + 1 ELSE excluded.version END
	RETURNING ` + sessionColumns.names("")

// PutSession creates or changes the user's session with that id. Pool and current turn of a session are in Redis. The result has the
// version of the row, which each change increases.
func (l *Ledger) PutSession(ctx context.Context, s berth.Session) (berth.Session, error) {
	if !storableID(s.ID) {
		return s, berth.Invalid("sessionId", "must not be empty")
	}
	if !storableID(s.UserID) {
		return s, berth.Invalid("userId", "must not be empty")
	}
	s.Key = berth.SessionKey(s.UserID, s.ID)
	s.TenantID, s.SrcLang, s.TgtLang, s.RoutingKey = plain(s.TenantID), plain(s.SrcLang), plain(s.TgtLang), plain(s.RoutingKey)
	s.UpdatedAt = time.Now()
	s.Version = s.UpdatedAt.UnixMilli() // also higher than all earlier ones where an older database was restored
	stored, err := scan(l.write.QueryRowContext(ctx, putSession, sessionColumns.values(&s)...), sessionColumns.fields)
	return stored, translate("put session", err)
}

var selectSession = `SELECT ` + sessionColumns.names("") + ` FROM sessions WHERE key = $1`

// GetSession returns a session of this user; CodeNotFound when it does not exist.
func (l *Ledger) GetSession(ctx context.Context, userID, id string) (berth.Session, error) {
	if !storableID(userID) || !storableID(id) {
		return berth.Session{}, berth.Errorf(berth.CodeNotFound, "session not found")
	}
	return find(ctx, l, "get session", sessionColumns.fields, selectSession, berth.SessionKey(userID, id))
}
