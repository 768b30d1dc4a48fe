package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"

	"berth"
)

// The scopes of a token. Each has a row in the table scopes.
const (
	ScopeUser     = "user"
	ScopeNode     = "node"
	ScopeOperator = "operator"
)

var scopes = []struct{ name, allows string }{
	{ScopeUser, "submit work and read one's own"},
	{ScopeNode, "run a node or media unit: register, send heartbeats, report"},
	{ScopeOperator, "see every user's work and manage the fleet"},
}

// Scopes returns the names of all scopes.
func Scopes() []string {
	var names []string
	for _, s := range scopes {
		names = append(names, s.name)
	}
	return names
}

func describeScopes() string {
	var b strings.Builder
	b.WriteString("Scopes:")
	for _, s := range scopes {
		fmt.Fprintf(&b, " `%s` (%s)", s.name, s.allows)
	}
	return b.String()
}

// Claims of the tokens of IssueToken, expected of all tokens unless configured otherwise.
const (
	defaultAudience = "berth"
	defaultIssuer   = "berth"
	ticketAudience  = "events"
	leeway          = 5 * time.Second
)

// Principal is the authenticated caller.
type Principal struct {
	UserID    string
	Scopes    []string
	ExpiresAt time.Time
}

// Operator reports whether the caller may see every user's work.
func (p Principal) Operator() bool { return slices.Contains(p.Scopes, ScopeOperator) }

// Verifier returns the owner of a bearer token, or CodeUnauthenticated. The built-in one verifies HS256; set Deps.Verifier
// for JWKS or OIDC.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

type claims struct {
	jwt.RegisteredClaims
	Scope string `json:"scope,omitempty"`
	// one of these is set in a ticket
	Task       string `json:"task,omitempty"`
	Session    string `json:"session,omitempty"`
	Conference string `json:"conference,omitempty"`
}

// IssueToken returns an HS256 bearer token for user with the given scopes that expires after ttl.
func IssueToken(secret, user string, scopes []string, ttl time.Duration) (string, error) {
	if err := berth.ValidID("user", user); err != nil {
		return "", err
	}
	now := time.Now()
	return sign(secret, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: defaultIssuer, Subject: user, Audience: jwt.ClaimStrings{defaultAudience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
		},
		Scope: strings.Join(scopes, " "),
	})
}

func sign(secret string, c claims) (string, error) {
	if secret == "" {
		return "", errors.New("sign token: empty secret")
	}
	t, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(secret))
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return t, nil
}

// hs256 verifies tokens and tickets that were signed with one shared secret. Their audiences differ.
type hs256 struct {
	secret           []byte
	audience, issuer string
	clock            func() time.Time
}

func (v hs256) parse(token, audience, issuer string) (claims, error) {
	opts := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithAudience(audience), jwt.WithLeeway(leeway), jwt.WithTimeFunc(v.clock), jwt.WithStrictDecoding(),
	}
	if issuer != "" {
		opts = append(opts, jwt.WithIssuer(issuer))
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return v.secret, nil }, opts...)
	if err != nil {
		reason := "the token is invalid"
		if errors.Is(err, jwt.ErrTokenExpired) {
			reason = "the token has expired"
		}
		return claims{}, berth.Errorf(berth.CodeUnauthenticated, "%s", reason)
	}
	return c, nil
}

// Verify implements Verifier. It rejects tickets.
func (v hs256) Verify(_ context.Context, token string) (Principal, error) {
	c, err := v.parse(token, v.audience, v.issuer)
	if err != nil {
		return Principal{}, err
	}
	return Principal{UserID: c.Subject, Scopes: strings.Fields(c.Scope), ExpiresAt: c.ExpiresAt.Time}, nil
}

// ticketKind states whose events a ticket opens.
type ticketKind string

// The kinds. A route without one accepts no tickets.
const (
	noTicket         ticketKind = ""
	ticketTask       ticketKind = "task"
	ticketSession    ticketKind = "session"
	ticketConference ticketKind = "conference"
)

// opens returns the claim with the id that a ticket of this kind opens.
func (c *claims) opens(kind ticketKind) *string {
	switch kind {
	case ticketSession:
		return &c.Session
	case ticketConference:
		return &c.Conference
	default:
		return &c.Task
	}
}

// ticket returns a token that opens the events of one task, session or conference and nothing else. An operator's ticket
// opens those of any user.
func (v hs256) ticket(who Principal, kind ticketKind, id string, ttl time.Duration) (string, time.Time, error) {
	now := v.clock()
	expires := now.Add(ttl).Truncate(time.Second)
	c := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: defaultIssuer, Subject: who.UserID, Audience: jwt.ClaimStrings{ticketAudience},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
		},
		Scope: ScopeUser,
	}
	if who.Operator() {
		c.Scope = ScopeOperator
	}
	*c.opens(kind) = id
	t, err := sign(string(v.secret), c)
	return t, expires, err
}

// redeem returns the owner of a ticket for the task, session or conference.
func (v hs256) redeem(ticket string, kind ticketKind, id string) (Principal, error) {
	c, err := v.parse(ticket, ticketAudience, "")
	if err != nil {
		return Principal{}, err
	}
	if opens := *c.opens(kind); opens == "" || opens != id {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the ticket opens other events")
	}
	scopes := []string{ScopeUser}
	if c.Scope == ScopeOperator {
		scopes = append(scopes, ScopeOperator)
	}
	return Principal{UserID: c.Subject, Scopes: scopes, ExpiresAt: c.ExpiresAt.Time}, nil
}

// rule states who may call a route and how its body is read. New fails for a route without one.
type rule struct {
	public bool       // no token is needed
	scopes []string   // one of them is needed; none: any valid token
	ticket ticketKind // a ticket in the query is accepted instead
	raw    bool       // the handler reads the body
	stream bool       // the response has no time limit
}

// The rules that several routes share.
var (
	forUser     = rule{scopes: []string{ScopeUser}}
	forUsers    = rule{scopes: []string{ScopeUser, ScopeOperator}} // an operator may see every user's
	forNode     = rule{scopes: []string{ScopeNode}}
	forOperator = rule{scopes: []string{ScopeOperator}}
	forFleet    = rule{scopes: []string{ScopeNode, ScopeOperator}}
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
	var p Principal
	var err error
	if r.stream {
		p, err = aside(func() (Principal, error) { return s.authenticate(c, r) })
	} else {
		p, err = s.authenticate(c, r)
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
	callOf(c.Request().Context()).user = p
	return nil
}

func (s *server) authenticate(c echo.Context, r rule) (Principal, error) {
	header := c.Request().Header.Values(echo.HeaderAuthorization)
	if len(header) > 1 {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "send one Authorization header")
	}
	if len(header) == 0 {
		if t := c.QueryParam("ticket"); r.ticket != noTicket && t != "" {
			return s.tickets.redeem(t, r.ticket, c.ParamValues()[0])
		}
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "a bearer token is required")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "a bearer token is required")
	}
	p, err := s.verifier.Verify(c.Request().Context(), strings.TrimSpace(token))
	if err != nil {
		return Principal{}, fmt.Errorf("verify token: %w", err)
	}
	if berth.ValidID("sub", p.UserID) != nil {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the token's subject must match %s", berth.IDPattern)
	}
	return p, nil
}

// routeKey is the key of a route in rules.
func routeKey(method, path string) string { return method + " " + path }
