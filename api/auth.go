package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/apikey"
	"berth/internal/identity"
	"berth/internal/ledger"
)

func describeScopes() string {
	var b strings.Builder
	b.WriteString("Scopes:")
	for _, s := range identity.Scopes() {
		fmt.Fprintf(&b, " `%s` (%s)", s.Name, s.Allows)
	}
	return b.String()
}

// noTicket is the kind of a route that accepts no tickets.
const noTicket identity.TicketKind = ""

// rule states who may call a route and how its body is read. New fails for a route without one.
type rule struct {
	public bool                // no token is needed
	scopes []string            // one of them is needed; none: any valid token
	ticket identity.TicketKind // a ticket in the query is accepted instead
	raw    bool                // the handler reads the body
	stream bool                // the response has no time limit
	reads  bool                // nothing changes, whatever the method: an operator's call is not recorded

	compress bool // its long responses are compressed; never one that has a secret beside what a user chose

	private []string // fields of the body whose values are not recorded: texts about users

	operation string // its id in the description; set at registration
}

// The rules that several routes share.
var (
	forUser     = rule{scopes: []string{identity.ScopeUser}}
	forUsers    = rule{scopes: []string{identity.ScopeUser, identity.ScopeOperator}} // an operator may see every user's
	forNode     = rule{scopes: []string{identity.ScopeNode}}
	forOperator = rule{scopes: []string{identity.ScopeOperator}}
	forTeam     = rule{scopes: []string{identity.ScopeTeam, identity.ScopeOperator}} // an operator manages those of every team
	forFleet    = rule{scopes: []string{identity.ScopeNode, identity.ScopeOperator}}
)

// allows reports whether a token with these scopes may call the route.
func (r rule) allows(scopes []string) bool {
	return len(r.scopes) == 0 || slices.ContainsFunc(r.scopes, func(s string) bool { return slices.Contains(scopes, s) })
}

// guard authenticates and authorises every request before its body is read.
func (s *server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := s.admit(c); err != nil {
			return err
		}
		return next(c)
	}
}

// admit checks the caller of a request and records it in the call.
func (s *server) admit(c echo.Context) error {
	r, known := s.rules[routeKey(c.Request().Method, c.Path())]
	if !known || r.public { // an unknown route is the router's 404 or 405
		return nil
	}
	var p identity.Principal
	var err error
	if r.stream {
		p, err = aside(func() (identity.Principal, error) { return s.authenticate(c, r) })
	} else {
		p, err = s.authenticate(c, r)
	}
	if berth.CodeOf(err) == berth.CodeUnavailable {
		return err
	}
	if err != nil {
		challenge := `Bearer realm="berth"`
		if c.Request().Header.Get(echo.HeaderAuthorization) != "" {
			challenge += `, error="invalid_token"`
		}
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, challenge)
		return err
	}
	if !r.allows(p.Scopes) {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate,
			fmt.Sprintf(`Bearer realm="berth", error="insufficient_scope", scope=%q`, strings.Join(r.scopes, " ")))
		return berth.Errorf(berth.CodeForbidden, "the token lacks the scope %s", strings.Join(r.scopes, " or "))
	}
	cl := callOf(c.Request().Context())
	cl.user = p
	if slices.Contains(r.scopes, identity.ScopeTeam) && !p.Operator() {
		cl.managed, err = s.teamOf(c.Request().Context(), p)
	}
	return err
}

// teamOf returns the team that its administrator manages: the one that the token names, otherwise the one to which operators have added the
// user. The application of a token decides nothing here: users choose the program with which they sign in.
func (s *server) teamOf(ctx context.Context, p identity.Principal) (string, error) {
	if p.TeamID != "" {
		return p.TeamID, nil
	}
	m, err := s.Ledger.FindGroup(ctx, ledger.GroupQuery{UserID: p.UserID})
	if err == nil && m.Team == "" {
		err = berth.Errorf(berth.CodeForbidden, "the token has the scope %s, but no team: it must name one, or operators must add the user to one", identity.ScopeTeam)
	}
	return m.Team, err
}

func (s *server) authenticate(c echo.Context, r rule) (identity.Principal, error) {
	if p, redeemed, err := s.redeem(c, r.ticket); redeemed {
		return p, err
	}
	token, err := bearer(c.Request())
	if err != nil {
		return identity.Principal{}, err
	}
	if apikey.Is(token) {
		return identity.Principal{}, berth.Errorf(berth.CodeUnauthenticated, "API keys are for %s; this route needs a token", openAIPath)
	}
	p, err := s.verifier.Verify(c.Request().Context(), token)
	if err != nil {
		return identity.Principal{}, fmt.Errorf("verify token: %w", err)
	}
	return p, nil
}

// redeem returns the owner of the ticket of a request, if the route accepts one of a kind and the request has no token.
func (s *server) redeem(c echo.Context, kind identity.TicketKind) (p identity.Principal, redeemed bool, err error) {
	t := c.QueryParam("ticket")
	if kind == noTicket || t == "" || len(c.Request().Header.Values(echo.HeaderAuthorization)) > 0 {
		return p, false, nil
	}
	callOf(c.Request().Context()).ticket = true
	p, err = s.tickets.Redeem(t, kind, c.ParamValues()[0])
	return p, true, err
}

// bearer returns the token of a request.
func bearer(req *http.Request) (string, error) {
	header := req.Header.Values(echo.HeaderAuthorization)
	if len(header) > 1 {
		return "", berth.Errorf(berth.CodeUnauthenticated, "send one Authorization header")
	}
	scheme, token, _ := strings.Cut(strings.Join(header, ""), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", berth.Errorf(berth.CodeUnauthenticated, "a bearer token is required")
	}
	return token, nil
}

// nodeRequest is implemented by the input of every route that accepts tokens of scope node. It returns the id of the node for
// which the request is made, with its field; an empty id for none.
type nodeRequest interface {
	node() (field, id string)
}

// checkNode returns CodeForbidden unless the caller may act for the node of the request. An operator may where the route accepts
// operators.
func (r rule) checkNode(p identity.Principal, in nodeRequest) error {
	field, id := in.node()
	if id == "" || slices.Contains(r.scopes, identity.ScopeOperator) && p.Operator() || p.ActsFor(id) {
		return nil
	}
	problem := "the token is for other nodes"
	if len(p.Nodes) == 0 {
		problem = "the token names no nodes; it needs their ids, such as tokyo-*"
	}
	return &berth.Error{Code: berth.CodeForbidden, Field: field, Message: problem}
}

// asNode returns a handler that first checks for which node the request is made. It fails for an input that does not state it.
func asNode[I, O any](r rule, handler func(context.Context, *I) (*O, error)) (func(context.Context, *I) (*O, error), error) {
	if !slices.Contains(r.scopes, identity.ScopeNode) {
		return handler, nil
	}
	if _, ok := any(new(I)).(nodeRequest); !ok {
		return nil, errors.New("the route accepts tokens of scope node, and its input does not state the node")
	}
	return func(ctx context.Context, in *I) (*O, error) {
		if err := r.checkNode(callOf(ctx).user, any(in).(nodeRequest)); err != nil { //nolint:errcheck // checked above
			return nil, err
		}
		return handler(ctx, in)
	}, nil
}

// routeKey is the key of a route in rules.
func routeKey(method, path string) string { return method + " " + path }
