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

// Scopes of a token (X5).
const (
	ScopeUser     = "user"
	ScopeNode     = "node"
	ScopeOperator = "operator"
)

// What tokens made by IssueToken carry, and what is expected of others unless configured.
const (
	defaultAudience = "berth"
	defaultIssuer   = "berth"
	ticketAudience  = "events"
	leeway          = 5 * time.Second
)

// Principal is who calls.
type Principal struct {
	UserID    string
	Scopes    []string
	ExpiresAt time.Time
}

// Operator tells whether the caller may see everybody's.
func (p Principal) Operator() bool { return slices.Contains(p.Scopes, ScopeOperator) }

// Verifier turns a bearer token into its owner, or fails with berth.CodeUnauthenticated. The built-in one
// knows HS256; one for JWKS or OIDC takes its place through Deps.Verifier.
type Verifier interface {
	Verify(ctx context.Context, token string) (Principal, error)
}

type claims struct {
	jwt.RegisteredClaims
	Scope string `json:"scope,omitempty"`
	// what a ticket is for: one of them
	Task       string `json:"task,omitempty"`
	Session    string `json:"session,omitempty"`
	Conference string `json:"conference,omitempty"`
}

// IssueToken makes an HS256 bearer token for user with the given scopes, valid for ttl from now.
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

// hs256 verifies tokens and tickets made with one shared secret; the audience tells them apart.
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
		reason := "the token does not verify"
		if errors.Is(err, jwt.ErrTokenExpired) {
			reason = "the token has expired"
		}
		return claims{}, berth.Errorf(berth.CodeUnauthenticated, "%s", reason)
	}
	return c, nil
}

// Verify accepts bearer tokens, never tickets.
func (v hs256) Verify(_ context.Context, token string) (Principal, error) {
	c, err := v.parse(token, v.audience, v.issuer)
	if err != nil {
		return Principal{}, err
	}
	return Principal{UserID: c.Subject, Scopes: strings.Fields(c.Scope), ExpiresAt: c.ExpiresAt.Time}, nil
}

// ticketKind is whose events a ticket opens.
type ticketKind string

// The kinds; a route without one takes no tickets.
const (
	noTicket         ticketKind = ""
	ticketTask       ticketKind = "task"
	ticketSession    ticketKind = "session"
	ticketConference ticketKind = "conference"
)

// opens is the claim that says which one a ticket of this kind opens.
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

// ticket makes a token that opens the events of one task, session or conference and nothing else. What an operator may
// see beyond their own, their ticket opens, too.
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

// redeem tells whose ticket for the task, session or conference this is.
func (v hs256) redeem(ticket string, kind ticketKind, id string) (Principal, error) {
	c, err := v.parse(ticket, ticketAudience, "")
	if err != nil {
		return Principal{}, err
	}
	if opens := *c.opens(kind); opens == "" || opens != id {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the ticket is for something else")
	}
	scopes := []string{ScopeUser}
	if c.Scope == ScopeOperator {
		scopes = append(scopes, ScopeOperator)
	}
	return Principal{UserID: c.Subject, Scopes: scopes, ExpiresAt: c.ExpiresAt.Time}, nil
}

// rule says who may call a route. A route without a rule stops New.
type rule struct {
	public bool       // nobody is asked for a token
	scopes []string   // one of them opens it; none: any valid token
	ticket ticketKind // a ticket in the query opens it, too
	raw    bool       // the handler reads the body itself
	stream bool       // the answer has no end in time
}

// The rules that routes share.
var (
	forUser     = rule{scopes: []string{ScopeUser}}
	forUsers    = rule{scopes: []string{ScopeUser, ScopeOperator}} // one's own; an operator sees everybody's
	forNode     = rule{scopes: []string{ScopeNode}}
	forOperator = rule{scopes: []string{ScopeOperator}}
	forFleet    = rule{scopes: []string{ScopeNode, ScopeOperator}}
)

// takes tells whether a token with these scopes opens the route.
func (r rule) takes(scopes []string) bool {
	return len(r.scopes) == 0 || slices.ContainsFunc(r.scopes, func(s string) bool { return slices.Contains(scopes, s) })
}

// guard authenticates and authorises every request before anything of its body is read (X5).
func (s *server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := s.admit(c); err != nil {
			return err
		}
		return next(c)
	}
}

// admit says whether the request may go on, and notes whose it is.
func (s *server) admit(c echo.Context) error {
	r, known := s.rules[routeKey(c.Request().Method, c.Path())]
	if !known || r.public { // unknown: the router's own 404 or 405
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
	if !r.takes(p.Scopes) {
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
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "more than one Authorization header")
	}
	if len(header) == 0 {
		if t := c.QueryParam("ticket"); r.ticket != noTicket && t != "" {
			return s.tickets.redeem(t, r.ticket, c.ParamValues()[0])
		}
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "a bearer token is needed")
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "a bearer token is needed")
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

// routeKey names a route as the router does.
func routeKey(method, path string) string { return method + " " + path }
