package identity_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/freeport"
	"berth/internal/identity"
	"berth/internal/testoidc"
)

func TestProvider_SignIn_TokenIsAccepted(t *testing.T) { // X5, B7
	t.Parallel()
	s := testoidc.Start(t)
	v := withProvider(t, s)
	token := s.SignIn(t, "auth0|507f1f77", jwt.MapClaims{"scope": "openid user", "tenant": "acme", "org": map[string]any{"team": "search"}, "azp": "chat"})
	p, err := v.Verify(t.Context(), token)
	require.NoError(t, err)
	require.False(t, p.ExpiresAt.IsZero())
	p.ExpiresAt = time.Time{}
	require.Equal(t, identity.Principal{UserID: "auth0|507f1f77", TenantID: "acme", TeamID: "search", AppID: "chat", Scopes: []string{"user"}}, p)

	own, err := identity.Issue(secret, identity.Grant{UserID: "alice", Scopes: []string{"user"}, TTL: time.Hour})
	require.NoError(t, err)
	p, err = v.Verify(t.Context(), own)
	require.NoError(t, err, "secrets work beside the provider")
	require.Equal(t, "alice", p.UserID)
	requireRejected(t, tokens(), token, "without the provider")

	direct := withProvider(t, s, func(o *identity.ProviderOptions) { o.Issuer, o.JWKSURL = "", s.JWKSURL() })
	_, err = direct.Verify(t.Context(), token)
	require.NoError(t, err, "without discovery")
}

func TestProvider_InvalidToken_IsRejected(t *testing.T) { // X5, P15
	t.Parallel()
	s := testoidc.Start(t)
	v := withProvider(t, s)
	claims := func(change jwt.MapClaims) jwt.MapClaims {
		c := good(jwt.MapClaims{"iss": s.Issuer(), "aud": testoidc.Audience})
		for k, value := range change {
			if c[k] = value; value == nil {
				delete(c, k)
			}
		}
		return c
	}
	_, err := v.Verify(t.Context(), s.Sign(t, claims(nil)))
	require.NoError(t, err)
	public, id := s.PublicKey(t)
	der, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	valid := s.Sign(t, claims(nil))
	for name, token := range map[string]string{
		"wrong audience":                     s.Sign(t, claims(jwt.MapClaims{"aud": "someone else"})),
		"no audience":                        s.Sign(t, claims(jwt.MapClaims{"aud": nil})),
		"wrong issuer":                       s.Sign(t, claims(jwt.MapClaims{"iss": "https://evil.example"})),
		"no issuer":                          s.Sign(t, claims(jwt.MapClaims{"iss": nil})),
		"expired":                            s.Sign(t, claims(jwt.MapClaims{"exp": time.Now().Add(-time.Minute).Unix()})),
		"no algorithm":                       signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil), "kid", id),
		"HS256 with the public key":          signed(t, jwt.SigningMethodHS256, der, claims(nil), "kid", id),
		"HS256 with the public key as PEM":   signed(t, jwt.SigningMethodHS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), claims(nil), "kid", id),
		"another key under the same id":      signed(t, jwt.SigningMethodRS256, other, claims(nil), "kid", id),
		"another key under another id":       signed(t, jwt.SigningMethodRS256, other, claims(nil), "kid", "evil"),
		"another key without an id":          signed(t, jwt.SigningMethodRS256, other, claims(nil)),
		"another algorithm of the same kind": signed(t, jwt.SigningMethodPS256, other, claims(nil), "kid", id),
		"signature cut":                      valid[:len(valid)-4],
		"odd subject":                        s.Sign(t, claims(jwt.MapClaims{"sub": "a\nb"})),
	} {
		requireRejected(t, v, token, name)
	}
}

func TestProvider_KeyRotated_NewTokenIsAccepted(t *testing.T) { // X5
	t.Parallel()
	s := testoidc.Start(t)
	v := withProvider(t, s)
	old := s.SignIn(t, "alice", jwt.MapClaims{"scope": "user"})
	_, err := v.Verify(t.Context(), old)
	require.NoError(t, err)
	s.Rotate(t)
	_, err = v.Verify(t.Context(), old)
	require.NoError(t, err, "the new key is not known yet")
	_, err = v.Verify(t.Context(), s.SignIn(t, "alice", jwt.MapClaims{"scope": "user"}))
	require.NoError(t, err)
	requireRejected(t, v, old, "the provider does not publish its key any more")
}

func TestProvider_Unavailable_KnownKeysStayValid(t *testing.T) { // X5
	t.Parallel()
	port, release, err := freeport.Reserve()
	require.NoError(t, err)
	t.Cleanup(release)
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s := testoidc.Start(t) // for its tokens until the other one has started
	v := withProvider(t, s, func(o *identity.ProviderOptions) {
		o.Issuer, o.JWKSURL = "", testoidc.IssuerAt(addr)+"/.well-known/jwks.json"
	})
	token := s.SignIn(t, "alice", jwt.MapClaims{"scope": "user"})
	_, err = v.Verify(t.Context(), token)
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err), "unavailable at the start")
	own, err := identity.Issue(secret, identity.Grant{UserID: "alice", TTL: time.Hour})
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), own)
	require.NoError(t, err)

	second := testoidc.StartAt(t, addr) // has the same key
	require.Eventually(t, func() bool {
		_, err = v.Verify(t.Context(), token)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "available again")
	second.Stop()
	s.Rotate(t)
	_, err = v.Verify(t.Context(), s.SignIn(t, "alice", jwt.MapClaims{"scope": "user"}))
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err), "a key that may be new")
	_, err = v.Verify(t.Context(), token)
	require.NoError(t, err, "a known key")
}

func TestProvider_ForgedKeyIDs_AskProviderRarely(t *testing.T) {
	t.Parallel()
	s := testoidc.Start(t)
	var asked atomic.Int64
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Redirect(w, httptest.NewRequest(http.MethodGet, "/", nil), s.JWKSURL(), http.StatusFound)
	}))
	t.Cleanup(counting.Close)
	v := withProvider(t, s, func(o *identity.ProviderOptions) { o.Issuer, o.JWKSURL = "", counting.URL })
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	began := time.Now()
	results := make(chan error, 100)
	for i := range cap(results) {
		token := signed(t, jwt.SigningMethodRS256, key, good(nil), "kid", fmt.Sprint("forged", i))
		go func() {
			_, err := v.Verify(t.Context(), token)
			results <- err
		}()
	}
	for range cap(results) {
		require.Equal(t, berth.CodeUnauthenticated, berth.CodeOf(<-results))
	}
	require.LessOrEqual(t, asked.Load(), 2+int64(time.Since(began)/time.Second), "at most once a second")
}

func TestProvider_KeysOfOtherKinds_AreIgnored(t *testing.T) {
	t.Parallel()
	s := testoidc.Start(t)
	for name, document := range map[string]string{
		"symmetric":      `{"keys":[{"kty":"oct","k":"YSBzZWNyZXQgb2YgdGhlIHRlc3RzLCBsb25nIGVub3VnaA"}]}`,
		"for encryption": `{"keys":[{"kty":"OKP","crv":"Ed25519","use":"enc","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`,
		"unknown":        `{"keys":[{"kty":"new","x":1}]}`,
		"none":           `{"keys":[]}`,
		"not JSON":       `<html>`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, document) }))
			t.Cleanup(bad.Close)
			v := withProvider(t, s, func(o *identity.ProviderOptions) { o.Issuer, o.JWKSURL = "", bad.URL })
			_, err := v.Verify(t.Context(), s.Sign(t, good(jwt.MapClaims{"aud": testoidc.Audience})))
			require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
		})
	}
}

func TestProvider_ClaimMap_GivesScopesTenantNodes(t *testing.T) { // X5, B8
	t.Parallel()
	s := testoidc.Start(t)
	for name, c := range map[string]struct {
		claims identity.ClaimMap
		token  jwt.MapClaims
		want   identity.Principal
	}{
		"Auth0": {
			identity.ClaimMap{Scope: "permissions", Tenant: "org_id", Nodes: "https://berth.example/nodes"},
			jwt.MapClaims{
				"permissions": []string{"user", "operator", "read:mail"}, "org_id": "org_1",
				"https://berth.example/nodes": []string{"a-*"}, "scope": "node",
			},
			identity.Principal{TenantID: "org_1", Scopes: []string{"user", "operator"}, Nodes: []string{"a-*"}},
		},
		"Keycloak": {
			identity.ClaimMap{
				Scope: "realm_access.roles", Tenant: "organization", Nodes: "nodes",
				Scopes: map[string]string{"berth-admin": "operator,user", "berth-node": "node", "*": "user"},
			},
			jwt.MapClaims{
				"realm_access": map[string]any{"roles": []string{"berth-node", "offline_access"}}, "organization": []string{"acme"},
				"nodes": "n1 n2",
			},
			identity.Principal{TenantID: "acme", Scopes: []string{"user", "node"}, Nodes: []string{"n1", "n2"}},
		},
		"mapped values only": {
			identity.ClaimMap{Scope: "roles", Scopes: map[string]string{"member": "user"}},
			jwt.MapClaims{"roles": []string{"operator", "member"}},
			identity.Principal{Scopes: []string{"user"}},
		},
		"missing claims": {
			identity.ClaimMap{Scope: "a.b.c", Tenant: "x.y", Nodes: "z"},
			jwt.MapClaims{"a": map[string]any{"b": "user"}, "x": "acme", "scope": "operator"},
			identity.Principal{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := withProvider(t, s, func(o *identity.ProviderOptions) { o.Claims = c.claims })
			token := jwt.MapClaims{"iss": s.Issuer(), "aud": testoidc.Audience, "scope": nil}
			for k, value := range c.token {
				token[k] = value
			}
			p, err := v.Verify(t.Context(), s.Sign(t, good(token)))
			require.NoError(t, err)
			c.want.UserID, p.ExpiresAt = "alice", time.Time{}
			require.Equal(t, c.want, p)
		})
	}
}

func TestNewProvider_InvalidOptions_Fails(t *testing.T) {
	t.Parallel()
	_, err := identity.NewProvider(identity.ProviderOptions{})
	require.ErrorContains(t, err, "issuer")
	_, err = identity.NewProvider(identity.ProviderOptions{Issuer: "https://x", Claims: identity.ClaimMap{Scopes: map[string]string{"a": "admin"}}})
	require.ErrorContains(t, err, "admin")
}
