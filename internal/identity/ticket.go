package identity

import (
	"time"

	"github.com/golang-jwt/jwt/v5"

	"berth"
)

// TicketAudience is the audience of tickets. It must not be an audience of bearer tokens.
const TicketAudience = "events"

// MaxTicketTTL is how long a ticket is valid at most.
const MaxTicketTTL = 30 * time.Second

// TicketKind is the kind of work whose events a ticket opens.
type TicketKind string

// The kinds.
const (
	TicketTask       TicketKind = "task"
	TicketSession    TicketKind = "session"
	TicketConference TicketKind = "conference"
	// TicketResponse opens a response of OpenAI's protocol, as a whole and as events.
	TicketResponse TicketKind = "response"
	// TicketParticipation opens what a participant may see of its conference.
	TicketParticipation TicketKind = "participation"
)

// Tickets issues and redeems tickets: tokens for an address that opens one event stream, for browsers, whose EventSource
// cannot send a header.
type Tickets struct {
	Secrets SecretSource
	TTL     time.Duration    // at most MaxTicketTTL
	Clock   func() time.Time // nil: the system's
}

func (t Tickets) now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock()
}

// Issue returns a ticket that opens the events of one task, session, conference or response for its owner, and nothing else. An
// operator's ticket opens those of any user.
func (t Tickets) Issue(who Principal, kind TicketKind, id string) (ticket string, expires time.Time, err error) {
	now := t.now()
	expires = now.Add(min(t.TTL, MaxTicketTTL)).Truncate(time.Second)
	scope := ScopeUser
	if who.Operator() {
		scope = ScopeOperator
	}
	ticket, err = sign([]byte(t.Secrets.Current()[0]), jwt.MapClaims{
		"iss": issuer, "sub": who.UserID, "aud": TicketAudience, "iat": now.Unix(), "exp": expires.Unix(),
		"kind": kind, "id": id, ownClaims.Scope: scope,
	})
	return ticket, expires, err
}

// Redeem returns the owner of a ticket for the task, session, conference or response. The clocks of the processes that issue and redeem
// tickets must not differ by more than a few seconds.
func (t Tickets) Redeem(ticket string, kind TicketKind, id string) (Principal, error) {
	c, err := parse(ticket, func(*jwt.Token, jwt.MapClaims) (any, error) { return t.Secrets.Current().keys(), nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithAudience(TicketAudience), jwt.WithTimeFunc(t.now))
	if err != nil {
		return Principal{}, rejection(err, c, 0)
	}
	if c["kind"] != string(kind) || c["id"] != id || id == "" {
		return Principal{}, berth.Errorf(berth.CodeUnauthenticated, "the ticket opens other events")
	}
	if kind == TicketResponse { // its owner is an API key, which has no scopes
		owner, _ := c["sub"].(string)
		return Principal{UserID: owner}, nil
	}
	p, err := ownClaims.principal(c)
	if err == nil && p.Operator() {
		p.Scopes = append(p.Scopes, ScopeUser)
	}
	return p, err
}
