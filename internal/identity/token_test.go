package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/identity"
)

func TestIssue_Grant_IsVerified(t *testing.T) { // X5, B8
	t.Parallel()
	g := identity.Grant{
		UserID: "auth0|42", Scopes: []string{"node", "user"}, TenantID: "acme", TeamID: "search", AppID: "chat", Nodes: []string{"tokyo-*", "osaka-1"}, TTL: time.Hour,
	}
	token, err := identity.Issue(secret, g)
	require.NoError(t, err)
	p, err := tokens().Verify(t.Context(), token)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), p.ExpiresAt, time.Minute)
	p.ExpiresAt = time.Time{}
	require.Equal(t, identity.Principal{
		UserID: "auth0|42", TenantID: "acme", TeamID: "search", AppID: "chat", Scopes: []string{"user", "node"}, Nodes: []string{"tokyo-*", "osaka-1"},
	}, p)
	require.True(t, p.ActsFor("tokyo-7"))
	require.False(t, p.ActsFor("osaka-12"))
	require.False(t, p.Operator())

	g.Audience = "https://api.example"
	token, err = identity.Issue(secret, g)
	require.NoError(t, err)
	requireRejected(t, tokens(), token)
}

func TestIssue_InvalidGrant_FailsNamingField(t *testing.T) {
	t.Parallel()
	for field, g := range map[string]identity.Grant{
		"user":   {UserID: strings.Repeat("a", 256)},
		"tenant": {UserID: "alice", TenantID: "a b"},
		"team":   {UserID: "alice", TeamID: "a b"},
		"app":    {UserID: "alice", AppID: "a b"},
		"node":   {UserID: "alice", Scopes: []string{"user", "node"}},
	} {
		_, err := identity.Issue(secret, g)
		require.Equal(t, berth.CodeInvalid, berth.CodeOf(err))
		require.ErrorContains(t, err, field)
	}
	_, err := identity.Issue(secret, identity.Grant{UserID: "alice", Nodes: []string{"a b"}})
	require.ErrorContains(t, err, "node")
	_, err = identity.Issue("", identity.Grant{UserID: "alice"})
	require.Error(t, err)
}

func TestTokens_SecretRotated_FirstSignsAllVerify(t *testing.T) { // X5
	t.Parallel()
	list := identity.ParseSecrets("new " + secret + ", " + secret)
	require.Equal(t, identity.Secrets{"new " + secret, secret}, list)
	require.Empty(t, identity.ParseSecrets(" , "))
	old, err := identity.Issue(secret, identity.Grant{UserID: "alice", TTL: time.Hour})
	require.NoError(t, err)
	young, err := identity.Issue(list[0], identity.Grant{UserID: "alice", TTL: time.Hour})
	require.NoError(t, err)
	both := tokens(list...)
	for _, token := range []string{old, young} {
		_, err = both.Verify(t.Context(), token)
		require.NoError(t, err)
	}
	requireRejected(t, tokens(list[0]), old, "the old secret was removed")
}

func TestTokens_InvalidToken_IsRejected(t *testing.T) { // X5, P15
	t.Parallel()
	hs := func(change jwt.MapClaims, header ...string) string {
		return signed(t, jwt.SigningMethodHS256, []byte(secret), good(change), header...)
	}
	_, err := tokens().Verify(t.Context(), hs(nil))
	require.NoError(t, err)
	for name, token := range map[string]string{
		"garbage":            "a.b.c",
		"expired":            hs(jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()}),
		"no expiry":          hs(jwt.MapClaims{"exp": nil}),
		"not yet valid":      hs(jwt.MapClaims{"nbf": time.Now().Add(time.Hour).Unix()}),
		"another audience":   hs(jwt.MapClaims{"aud": []string{"other"}}),
		"a ticket":           hs(jwt.MapClaims{"aud": identity.TicketAudience}),
		"no audience":        hs(jwt.MapClaims{"aud": nil}),
		"no subject":         hs(jwt.MapClaims{"sub": nil}),
		"subject not text":   hs(jwt.MapClaims{"sub": 42}),
		"control characters": hs(jwt.MapClaims{"sub": "alice\x00"}),
		"another secret":     signed(t, jwt.SigningMethodHS256, []byte("another secret, which is also long enough"), good(nil)),
		"no algorithm":       signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good(nil)),
		"another HMAC":       signed(t, jwt.SigningMethodHS512, []byte(secret), good(nil)),
		"critical extension": hs(nil, "crit", "exp"),
		"tenant not text":    hs(jwt.MapClaims{"tenant": 7}),
		"two tenants":        hs(jwt.MapClaims{"tenant": []string{"a", "b"}}),
		"invalid tenant":     hs(jwt.MapClaims{"tenant": "a:b"}),
		"two teams":          hs(jwt.MapClaims{"team": []string{"a", "b"}}),
		"invalid app":        hs(jwt.MapClaims{"app": "a:b"}),
		"invalid nodes":      hs(jwt.MapClaims{"nodes": []string{"a b"}}),
	} {
		requireRejected(t, tokens(), token, name)
	}
	late := hs(jwt.MapClaims{"exp": time.Now().Add(-3 * time.Second).Unix()})
	_, err = tokens().Verify(t.Context(), late)
	require.NoError(t, err, "within the leeway")
}

func TestTicket_OneStream_OpensNothingElse(t *testing.T) { // X5
	t.Parallel()
	now := time.Now()
	clock := func() time.Time { return now }
	x := identity.Tickets{Secrets: identity.Secrets{secret}, TTL: time.Hour, Clock: clock}
	ticket, expires, err := x.Issue(identity.Principal{UserID: "auth0|1", Scopes: []string{"user", "node"}}, identity.TicketTask, "t1")
	require.NoError(t, err)
	require.WithinRange(t, expires, now.Add(28*time.Second), now.Add(30*time.Second))
	p, err := x.Redeem(ticket, identity.TicketTask, "t1")
	require.NoError(t, err)
	require.Equal(t, "auth0|1", p.UserID)
	require.Equal(t, []string{"user"}, p.Scopes, "a ticket has no other rights of its owner")
	requireRejected(t, tokens(), ticket)
	for _, other := range []struct {
		kind identity.TicketKind
		id   string
	}{{identity.TicketTask, "t2"}, {identity.TicketSession, "t1"}, {identity.TicketConference, "t1"}, {identity.TicketResponse, "t1"}, {identity.TicketTask, ""}, {"", "t1"}} {
		_, err = x.Redeem(ticket, other.kind, other.id)
		require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err), other)
	}
	bearer, err := identity.Issue(secret, identity.Grant{UserID: "alice", TTL: time.Hour})
	require.NoError(t, err)
	_, err = x.Redeem(bearer, identity.TicketTask, "t1")
	require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err))

	now = now.Add(identity.MaxTicketTTL)
	_, err = x.Redeem(ticket, identity.TicketTask, "t1")
	require.ErrorContains(t, err, "expired")

	_, _, err = x.Issue(identity.Principal{UserID: "olga", Scopes: []string{"operator"}}, identity.TicketConference, "861")
	require.NoError(t, err)
}

func TestTicket_ResponseOfKey_HasNoScope(t *testing.T) { // O8
	t.Parallel()
	x := identity.Tickets{Secrets: identity.Secrets{secret}, TTL: time.Minute}
	const key = "key_agrcfzkvvpdbulhx2ewqyjr4amhynfdr"
	require.True(t, berth.IsKeyID(key))
	ticket, _, err := x.Issue(identity.Principal{UserID: key}, identity.TicketResponse, "resp_1")
	require.NoError(t, err)
	p, err := x.Redeem(ticket, identity.TicketResponse, "resp_1")
	require.NoError(t, err)
	require.Equal(t, identity.Principal{UserID: key}, p)
	_, err = x.Redeem(ticket, identity.TicketResponse, "resp_2")
	require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err))
	requireRejected(t, tokens(), ticket)
	ofTask, _, err := x.Issue(identity.Principal{UserID: key}, identity.TicketTask, "t1")
	require.NoError(t, err)
	_, err = x.Redeem(ofTask, identity.TicketTask, "t1")
	require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err), "keys own responses only")
}

func TestTicket_Operator_StaysOperator(t *testing.T) {
	t.Parallel()
	x := identity.Tickets{Secrets: identity.Secrets{secret, "old " + secret}, TTL: time.Minute}
	ticket, _, err := x.Issue(identity.Principal{UserID: "olga", Scopes: []string{"operator"}}, identity.TicketConference, "861")
	require.NoError(t, err)
	p, err := x.Redeem(ticket, identity.TicketConference, "861")
	require.NoError(t, err)
	require.True(t, p.Operator())
	rotated := identity.Tickets{Secrets: identity.Secrets{"new " + secret, secret}, TTL: time.Minute}
	_, err = rotated.Redeem(ticket, identity.TicketConference, "861")
	require.NoError(t, err, "a rotation of the secret rejects no ticket")
}

func TestActsFor_Patterns_MatchWholeIDs(t *testing.T) { // B8, FC9
	t.Parallel()
	for _, c := range []struct {
		pattern, id string
		want        bool
	}{
		{"n1", "n1", true},
		{"n1", "n12", false},
		{"n1", "xn1", false},
		{"*", "anything", true},
		{"tokyo-*", "tokyo-1", true},
		{"tokyo-*", "tokyo-", true},
		{"tokyo-*", "tokyo", false},
		{"tokyo-*", "x-tokyo-1", false},
		{"*-gpu", "tokyo-gpu", true},
		{"*-gpu", "tokyo-gpu-1", false},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "acb", false},
		{"ab*ba", "aba", false},
		{"a*a", "a", false},
		{"a.b*", "aXb", false},
		{"", "", false},
		{"a b*", "a b", false},
	} {
		require.Equal(t, c.want, identity.Principal{Nodes: []string{"other", c.pattern}}.ActsFor(c.id), "%s %s", c.pattern, c.id)
	}
	require.False(t, identity.Principal{}.ActsFor("n1"), "without patterns")
	rapid.Check(t, func(t *rapid.T) { // a pattern made from an id matches it
		id := rapid.StringMatching(`[a-c]{1,12}`).Draw(t, "id")
		from := rapid.IntRange(0, len(id)).Draw(t, "from")
		to := rapid.IntRange(from, len(id)).Draw(t, "to")
		pattern := id[:from] + "*" + id[to:]
		require.True(t, identity.Principal{Nodes: []string{pattern}}.ActsFor(id), "%s %s", pattern, id)
	})
}
