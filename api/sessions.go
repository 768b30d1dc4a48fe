package api

import (
	"cmp"
	"context"
	"time"

	"berth"
	"berth/internal/identity"
	"berth/lua"
)

// SessionView is a session as its user sees it.
type SessionView struct {
	berth.Session
	EventsURL string `json:"eventsUrl" doc:"The events of its turns, in order, as Server-Sent Events"`
}

func viewSession(sn berth.Session) SessionView {
	return SessionView{Session: sn, EventsURL: sessionPath(sn.ID) + "/events"}
}

type sessionInput struct {
	ID     string `path:"id" maxLength:"128"`
	UserID string `query:"userId" maxLength:"255" doc:"Owner of the session, for operators. Default: yourself."`
}

type putSessionInput struct {
	ID   string `path:"id" maxLength:"128" doc:"Your own id for the session"`
	Body putSessionInputBody
}

type putSessionOutputBody struct {
	SessionView
	Decision string `json:"decision" enum:"NEW,EXISTS,RESET" doc:"The pool was chosen, kept, or chosen again because the languages changed"`
}

func (s *server) sessionRoutes() {
	register(s, "PUT /v1/sessions/{id}", forUser, s.putSession, op("put-session", "sessions",
		"Create a live translation session or change its languages",
		"Chooses the session's pool, which is kept until the languages change or the pool no longer serves them. "+
			"503 `no_node`: no pool serves the language pair, which `missing` names."))
	register(s, "GET /v1/sessions/{id}", forUsers, s.getSession, op("get-session", "sessions",
		"Get a session, its pool and its current turn"))
}

func (s *server) putSession(ctx context.Context, in *putSessionInput) (*putSessionOutputBody, error) {
	sn, err := newSession(callOf(ctx).user, in)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil { // before anything is written
		return nil, err
	}
	if len(s.Fleet.Snapshot().Eligible(sn.TenantID, sn.SrcLang, sn.TgtLang)) == 0 {
		return nil, s.notServed(ctx, sn)
	}
	if sn, err = s.Ledger.PutSession(ctx, sn); err != nil {
		return nil, noSession(err)
	}
	decision, sn, err := s.decidePool(ctx, sn)
	return &putSessionOutputBody{SessionView: viewSession(sn), Decision: decision}, err
}

// newSession returns the requested session; errors name the field.
func newSession(user identity.Principal, in *putSessionInput) (berth.Session, error) {
	b := in.Body
	tenant, err := tenantOf(user, b.TenantID)
	src, srcErr := berth.ParseLanguage("srcLang", b.SrcLang)
	tgt, tgtErr := berth.ParseLanguage("tgtLang", b.TgtLang)
	sn := berth.Session{ID: in.ID, UserID: user.UserID, TenantID: tenant, SrcLang: src, TgtLang: tgt, RoutingKey: b.RoutingKey}
	err = cmp.Or(err, berth.ValidID("id", sn.ID), srcErr, tgtErr)
	if err == nil && sn.TgtLang == sn.SrcLang {
		err = berth.Invalid("tgtLang", "must differ from srcLang")
	}
	sn.RoutingKey = cmp.Or(sn.RoutingKey, sn.TenantID, sn.ID)
	return sn, cmp.Or(err, berth.ValidID("routingKey", sn.RoutingKey))
}

// getSession reads the row, and adds the pool from Redis unless Redis is unavailable.
func (s *server) getSession(ctx context.Context, in *sessionInput) (*SessionView, error) {
	user := callOf(ctx).user
	if err := cmp.Or(berth.ValidID("id", in.ID), checkUser(user, in.UserID)); err != nil {
		return nil, err
	}
	sn, err := s.Ledger.GetSession(ctx, cmp.Or(in.UserID, user.UserID), in.ID)
	if err != nil {
		return nil, noSession(err)
	}
	if found, ok, err := s.Scripts.FindSession(ctx, sn.UserID, in.ID); err == nil && ok {
		sn = decided(sn, found)
	}
	view := viewSession(sn)
	return &view, nil
}

// decided adds to a session's row what Redis has decided.
func decided(row, found berth.Session) berth.Session {
	row.PreferredPool, row.CurrentTurnID, row.UpdatedAt = found.PreferredPool, found.CurrentTurnID, found.UpdatedAt
	return row
}

// knownSession reads a user's session from Redis: an empty one when Redis has none.
func (s *server) knownSession(ctx context.Context, userID, id string) (berth.Session, error) {
	if err := berth.ValidID("id", id); err != nil {
		return berth.Session{}, err
	}
	sn, _, err := s.Scripts.FindSession(ctx, userID, id)
	if err != nil {
		return sn, unavailable("Redis", err)
	}
	return sn, nil
}

// liveSession returns a session with a pool that serves it. The pool is chosen again where Redis lost the session or the
// pool no longer serves its languages.
func (s *server) liveSession(ctx context.Context, userID, id string) (berth.Session, error) {
	sn, err := s.knownSession(ctx, userID, id)
	if err != nil {
		return sn, err
	}
	if err := sameTenant(ctx, sn); err != nil {
		return sn, err
	}
	if sn.PreferredPool != "" && s.Fleet.Snapshot().Serves(sn.PreferredPool, sn.TenantID, sn.SrcLang, sn.TgtLang) {
		return sn, nil
	}
	if sn, err = s.Ledger.GetSession(ctx, userID, id); err != nil {
		return sn, noSession(err)
	}
	if err := sameTenant(ctx, sn); err != nil {
		return sn, err
	}
	_, sn, err = s.decidePool(ctx, sn)
	return sn, err
}

// sameTenant returns CodeForbidden when the user's session belongs to a tenant that is not the token's: a user who has left the
// tenant must not use its pools.
func sameTenant(ctx context.Context, sn berth.Session) error {
	if user := callOf(ctx).user; sn.TenantID != "" && sn.TenantID != user.TenantID && !user.Operator() {
		return &berth.Error{
			Code: berth.CodeForbidden, Field: "tenantId", Message: "the session belongs to another tenant than the token; PUT it again",
		}
	}
	return nil
}

// decidePool chooses a session's pool from this process's snapshot of the fleet, except for its tenant's pool, which it
// reads from Redis.
func (s *server) decidePool(ctx context.Context, sn berth.Session) (decision string, _ berth.Session, err error) {
	fleet := s.Fleet.Snapshot()
	decision, pool, err := s.Scripts.DecideSessionPool(ctx, lua.SessionPoolRequest{
		SessionID: sn.ID, Key: sn.Key, UserID: sn.UserID, Capabilities: fleet.Capabilities(sn.SrcLang, sn.TgtLang), TenantID: sn.TenantID, SrcLang: sn.SrcLang, TgtLang: sn.TgtLang, Version: sn.Version,
		RoutingKey: sn.RoutingKey, TenantPool: fleet.Tenants[sn.TenantID], Eligible: fleet.Eligible(sn.TenantID, sn.SrcLang, sn.TgtLang),
		Affinity: fleet.Config.SessionAffinity, Seed: fleet.Config.HashSeed,
	})
	if err != nil {
		return "", sn, unavailable("Redis", err)
	}
	switch decision {
	case lua.SessionNoPool:
		return "", sn, s.notServed(ctx, sn)
	case lua.SessionStale: // another request changed the session after this one read its row
		row, err := s.Ledger.GetSession(ctx, sn.UserID, sn.ID)
		if err != nil {
			return "", sn, noSession(err)
		}
		if row.Version == sn.Version { // an older database was restored: its row is the last one all the same
			row.Version = time.Now().UnixMilli()
		}
		return s.decidePool(ctx, row)
	}
	found, ok, err := s.Scripts.FindSession(ctx, sn.UserID, sn.ID)
	if err != nil {
		return "", sn, unavailable("Redis", err)
	}
	if !ok { // lost again: the decision remains valid
		sn.PreferredPool = pool
		return decision, sn, nil
	}
	return decision, decided(sn, found), nil
}

// notServed returns the refusal of a language pair, or CodeUnavailable while Redis may have lost the nodes that serve it.
func (s *server) notServed(ctx context.Context, sn berth.Session) error {
	switch grace, err := s.Scripts.CheckGuard(ctx); {
	case err != nil:
		return unavailable("Redis", err)
	case grace.Left > 0:
		return &berth.Refusal{Code: berth.CodeUnavailable, RetryAfter: grace.Left}
	}
	capability := berth.TranslateCapability(sn.SrcLang, sn.TgtLang)
	return &berth.Refusal{
		Code: berth.CodeNoNode, Message: "no pool serves " + capability, Missing: []string{capability},
	}
}

// noSession returns the error of a missing session.
func noSession(err error) error {
	if err != nil && berth.CodeOf(err) != berth.CodeNotFound {
		return err
	}
	return berth.Errorf(berth.CodeNotFound, "session not found").With(err)
}

func sessionPath(id string) string { return "/v1/sessions/" + id }
