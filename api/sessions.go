package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/lua"
)

// sessionView is a session as its user sees it.
type sessionView struct {
	berth.Session
	EventsURL string `json:"eventsUrl" doc:"What its turns bring, in order, as Server-Sent Events"`
}

func viewSession(sn berth.Session) sessionView {
	return sessionView{Session: sn, EventsURL: sessionPath(sn.ID) + "/events"}
}

type putSessionInput struct {
	ID   string `path:"id" maxLength:"128" doc:"Your own id for the session"`
	Body struct {
		SrcLang    string `json:"srcLang" doc:"What is spoken, ISO 639-1" example:"en"`
		TgtLang    string `json:"tgtLang" doc:"What is heard, ISO 639-1" example:"es"`
		TenantID   string `json:"tenantId,omitempty" doc:"On whose behalf: an operator may have bound the tenant to a pool"`
		RoutingKey string `json:"routingKey,omitempty" doc:"Sessions of one key go to one pool; by default the tenant's id, else the session's"`
	}
}

type putSessionOutput struct {
	Body struct {
		sessionView
		Decision string `json:"decision" enum:"NEW,EXISTS,RESET" doc:"The pool was decided, kept, or decided anew because the languages changed (L5)"`
	}
}

type sessionInput struct {
	ID string `path:"id" maxLength:"128"`
}

type sessionOutput struct{ Body sessionView }

func (s *server) sessionRoutes() {
	register(s, huma.Operation{
		OperationID: "put-session", Method: http.MethodPut, Path: "/v1/sessions/{id}", Tags: []string{"sessions"},
		Summary: "Make a session of live translation, or change its languages",
		Description: "The pool of its nodes is decided now and kept while the languages stay and the pool serves them (L5). " +
			"503 `no_node` names the language pair that nobody serves.",
	}, forUser, s.putSession)
	register(s, huma.Operation{
		OperationID: "get-session", Method: http.MethodGet, Path: "/v1/sessions/{id}", Tags: []string{"sessions"},
		Summary: "A session, its pool and its current turn",
	}, forUser, s.getSession)
}

func (s *server) putSession(ctx context.Context, in *putSessionInput) (*putSessionOutput, error) {
	sn, err := newSession(callOf(ctx).user.UserID, in)
	if err != nil {
		return nil, err
	}
	if err := s.Fleet.Writable(); err != nil { // before anything is written (L11)
		return nil, err
	}
	if len(s.Fleet.Snapshot().Eligible(sn.SrcLang, sn.TgtLang)) == 0 {
		return nil, s.nobodyServes(ctx, sn)
	}
	if sn, err = s.Ledger.PutSession(ctx, sn); err != nil {
		return nil, noSession(err)
	}
	out := &putSessionOutput{}
	if out.Body.Decision, sn, err = s.decidePool(ctx, sn); err != nil {
		return nil, err
	}
	out.Body.sessionView = viewSession(sn)
	return out, nil
}

// newSession is what the request asks for; errors name the field.
func newSession(userID string, in *putSessionInput) (berth.Session, error) {
	b := in.Body
	sn := berth.Session{
		ID: in.ID, UserID: userID, TenantID: b.TenantID, SrcLang: b.SrcLang, TgtLang: b.TgtLang, RoutingKey: b.RoutingKey,
	}
	if err := berth.ValidID("id", sn.ID); err != nil {
		return sn, err
	}
	if err := berth.ValidLanguage("srcLang", sn.SrcLang); err != nil {
		return sn, err
	}
	if err := berth.ValidLanguage("tgtLang", sn.TgtLang); err != nil {
		return sn, err
	}
	if sn.TgtLang == sn.SrcLang {
		return sn, berth.Invalid("tgtLang", "is what is spoken already: nothing is to be translated")
	}
	sn.RoutingKey = cmp.Or(sn.RoutingKey, sn.TenantID, sn.ID)
	if sn.TenantID != "" {
		if err := berth.ValidID("tenantId", sn.TenantID); err != nil {
			return sn, err
		}
	}
	return sn, berth.ValidID("routingKey", sn.RoutingKey)
}

// getSession answers from the row, and adds what Redis has decided, if it can be asked (L11).
func (s *server) getSession(ctx context.Context, in *sessionInput) (*sessionOutput, error) {
	if err := berth.ValidID("id", in.ID); err != nil {
		return nil, err
	}
	sn, err := s.Ledger.GetSession(ctx, callOf(ctx).user.UserID, in.ID)
	if err != nil {
		return nil, noSession(err)
	}
	if found, ok, err := s.Scripts.FindSession(ctx, in.ID); err == nil && ok {
		sn = decided(sn, found)
	}
	return &sessionOutput{Body: viewSession(sn)}, nil
}

// decided is a session as its row has it with what Redis has decided of it.
func decided(row, found berth.Session) berth.Session {
	row.PreferredPool, row.CurrentTurnID, row.UpdatedAt = found.PreferredPool, found.CurrentTurnID, found.UpdatedAt
	return row
}

// knownSession is a session as Redis has it: one read. It is empty when Redis has none of this id; CodeNotFound when it
// is another user's.
func (s *server) knownSession(ctx context.Context, userID, id string) (berth.Session, error) {
	if err := berth.ValidID("id", id); err != nil {
		return berth.Session{}, err
	}
	sn, ok, err := s.Scripts.FindSession(ctx, id)
	switch {
	case err != nil:
		return sn, unavailable("Redis", err)
	case ok && sn.UserID != userID:
		return berth.Session{}, noSession(nil)
	default:
		return sn, nil
	}
}

// liveSession is a session with a pool that serves it: as Redis has it, or decided again where Redis has lost it or the
// pool no longer serves its languages (L5, L12).
func (s *server) liveSession(ctx context.Context, userID, id string) (berth.Session, error) {
	sn, err := s.knownSession(ctx, userID, id)
	if err != nil {
		return sn, err
	}
	if sn.PreferredPool != "" && s.Fleet.Snapshot().Serves(sn.PreferredPool, sn.SrcLang, sn.TgtLang) {
		return sn, nil
	}
	if sn, err = s.Ledger.GetSession(ctx, userID, id); err != nil {
		return sn, noSession(err)
	}
	_, sn, err = s.decidePool(ctx, sn)
	return sn, err
}

// decidePool decides a session's pool from the fleet as it is known here, but for its tenant's pool, which is as Redis has
// it; and returns the session with it.
func (s *server) decidePool(ctx context.Context, sn berth.Session) (decision string, _ berth.Session, err error) {
	fleet := s.Fleet.Snapshot()
	decision, pool, err := s.Scripts.DecideSessionPool(ctx, lua.SessionPoolRequest{
		SessionID: sn.ID, UserID: sn.UserID, TenantID: sn.TenantID, SrcLang: sn.SrcLang, TgtLang: sn.TgtLang,
		RoutingKey: sn.RoutingKey, TenantPool: fleet.Tenants[sn.TenantID], Eligible: fleet.Eligible(sn.SrcLang, sn.TgtLang),
		Affinity: s.Config.SessionAffinity,
	})
	if err != nil {
		return "", sn, unavailable("Redis", err)
	}
	if decision == lua.SessionNoPool {
		return "", sn, s.nobodyServes(ctx, sn)
	}
	found, ok, err := s.Scripts.FindSession(ctx, sn.ID)
	if err != nil {
		return "", sn, unavailable("Redis", err)
	}
	if !ok { // lost again meanwhile: the decision is as good
		sn.PreferredPool = pool
		return decision, sn, nil
	}
	return decision, decided(sn, found), nil
}

// nobodyServes refuses a language pair; but for as long as Redis may have lost its nodes, whether anybody serves the pair
// is not known (L12).
func (s *server) nobodyServes(ctx context.Context, sn berth.Session) error {
	switch grace, err := s.Scripts.CheckGuard(ctx); {
	case err != nil:
		return unavailable("Redis", err)
	case grace.Left > 0:
		return &RetryError{Err: berth.Errorf(berth.CodeUnavailable, "Redis may have lost data: its nodes are not all back yet"), After: grace.Left}
	}
	capability := berth.TranslateCapability(sn.SrcLang, sn.TgtLang)
	return &berth.Refusal{
		Code: berth.CodeNoNode, Message: "no pool serves " + capability, Missing: []string{capability},
	}
}

// noSession words the ledger's answer: missing and foreign sessions are alike.
func noSession(err error) error {
	if err != nil && berth.CodeOf(err) != berth.CodeNotFound {
		return err
	}
	return berth.Errorf(berth.CodeNotFound, "there is no such session").With(err)
}

func sessionPath(id string) string { return "/v1/sessions/" + id }
