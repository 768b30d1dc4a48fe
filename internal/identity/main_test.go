package identity_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/identity"
	"berth/internal/testoidc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of the tests that is long enough for HS256"

// tokens returns a verifier of the secret.
func tokens(secrets ...string) *identity.Tokens {
	if len(secrets) == 0 {
		secrets = []string{secret}
	}
	return &identity.Tokens{Secrets: identity.Secrets(secrets), Audiences: []string{"berth"}, Leeway: identity.DefaultLeeway}
}

// patient is how long calls wait for a provider in tests that are not about one that hangs: a busy machine is slow.
const patient = time.Minute

// withProvider returns a verifier of the secret and of the provider's tokens.
func withProvider(t *testing.T, s *testoidc.Server, change ...func(*identity.ProviderOptions)) *identity.Tokens {
	t.Helper()
	o := identity.ProviderOptions{
		Issuer: s.Issuer(), Claims: identity.ClaimMap{Scope: "scope", Tenant: "tenant", Team: "org.team", App: "azp", Nodes: "nodes"},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	p, err := identity.NewProvider(o)
	require.NoError(t, err)
	p.SetWait(patient)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	v := tokens()
	v.Provider, v.Audiences = p, []string{"other", testoidc.Audience, "berth"}
	return v
}

// signed returns a token with these claims.
func signed(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims, header ...string) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for i := 0; i+1 < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	s, err := token.SignedString(key)
	require.NoError(t, err)
	return s
}

// good returns valid claims, with changes applied; nil removes one.
func good(change jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{"sub": "alice", "aud": "berth", "scope": "user", "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func requireRejected(t *testing.T, v identity.Verifier, token string, why ...any) {
	t.Helper()
	p, err := v.Verify(t.Context(), token)
	require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(err), why...)
	require.Zero(t, p)
	require.NotContains(t, err.Error(), token, "an error does not contain the token")
}
