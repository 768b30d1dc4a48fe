// Package testoidc starts an OpenID Connect provider for tests.
package testoidc

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"
)

// Audience is the audience of the provider's tokens.
const Audience = "berth-tests"

const redirectURL = "http://127.0.0.1/signed-in"

// Server is a provider that listens on a port of its own.
type Server struct {
	provider *mockoidc.MockOIDC
	free     chan struct{} // has a value while no request and no test uses the provider
	stopped  bool
}

// Start starts a provider, which stops at the end of the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return StartAt(tb, "127.0.0.1:0")
}

// StartAt is Start on an address.
func StartAt(tb testing.TB, addr string) *Server {
	tb.Helper()
	provider, err := mockoidc.NewServer(nil)
	require.NoError(tb, err)
	provider.ClientID = Audience
	s := &Server{provider: provider, free: make(chan struct{}, 1)}
	s.free <- struct{}{}
	require.NoError(tb, provider.AddMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer s.use()()
			if s.forPages(w, r) {
				next.ServeHTTP(w, r)
			}
		})
	}))
	l, err := net.Listen("tcp", addr) //nolint:noctx // closed with the provider
	require.NoError(tb, err)
	require.NoError(tb, provider.Start(l, nil))
	tb.Cleanup(s.Stop)
	return s
}

// forPages permits pages of any origin to call the provider, as a public client without a secret, which must prove with PKCE that it
// began the sign-in. It returns false for a request that is answered.
func (s *Server) forPages(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return false
	}
	if r.ParseForm() == nil && r.Method == http.MethodPost && r.PostForm.Get("client_secret") == "" {
		if r.PostForm.Get("grant_type") == "authorization_code" && r.PostForm.Get("code_verifier") == "" {
			http.Error(w, `{"error":"invalid_request","error_description":"a public client needs PKCE"}`, http.StatusBadRequest)
			return false
		}
		r.Form.Set("client_secret", s.provider.ClientSecret)
	}
	return true
}

// Queue makes this user the next one who signs in.
func (s *Server) Queue(subject string, claims jwt.MapClaims) {
	s.provider.QueueUser(&user{mockoidc.MockUser{Subject: subject}, claims})
}

// ExpireAfter sets the lifetime of tokens.
func (s *Server) ExpireAfter(d time.Duration) {
	defer s.use()()
	s.provider.AccessTTL = d
}

// use waits until the provider is free, and returns a function that frees it again.
func (s *Server) use() (done func()) {
	<-s.free
	return func() { s.free <- struct{}{} }
}

// Stop stops the provider.
func (s *Server) Stop() {
	if !s.stopped {
		_ = s.provider.Server.Close()
	}
	s.stopped = true
}

// Issuer returns the issuer of the provider's tokens.
func (s *Server) Issuer() string { return s.provider.Issuer() }

// JWKSURL returns the URL of the provider's keys.
func (s *Server) JWKSURL() string { return s.provider.JWKSEndpoint() }

// IssuerAt returns the issuer of a provider that listens on an address.
func IssuerAt(addr string) string { return "http://" + addr + mockoidc.IssuerBase }

// Rotate replaces the key that signs tokens.
func (s *Server) Rotate(tb testing.TB) {
	tb.Helper()
	keys, err := mockoidc.RandomKeypair(2048)
	require.NoError(tb, err)
	defer s.use()()
	s.provider.Keypair = keys
}

// Sign returns a token with these claims, signed with the provider's key.
func (s *Server) Sign(tb testing.TB, claims jwt.MapClaims) string {
	tb.Helper()
	defer s.use()()
	token, err := s.provider.Keypair.SignJWT(claims)
	require.NoError(tb, err)
	return token
}

// PublicKey returns the key with which the provider's tokens are verified, and its id.
func (s *Server) PublicKey(tb testing.TB) (key any, id string) {
	tb.Helper()
	defer s.use()()
	id, err := s.provider.Keypair.KeyID()
	require.NoError(tb, err)
	return s.provider.Keypair.PublicKey, id
}

// user is a user with claims of its own.
type user struct {
	mockoidc.MockUser
	claims jwt.MapClaims
}

// Claims adds those of the user.
func (u *user) Claims(_ []string, base *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	b, err := json.Marshal(base)
	if err != nil {
		return nil, err
	}
	all := jwt.MapClaims{}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, u.claims)
	return all, nil
}

// SignIn signs a user in as an application does, with the authorization code flow, and returns the ID token.
func (s *Server) SignIn(tb testing.TB, subject string, claims jwt.MapClaims) string {
	tb.Helper()
	s.Queue(subject, claims)
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	authorize := s.provider.AuthorizationEndpoint() + "?" + url.Values{
		"scope": {"openid"}, "state": {"state"}, "response_type": {"code"}, "redirect_uri": {redirectURL},
		"client_id": {s.provider.ClientID},
	}.Encode()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, authorize, nil)
	require.NoError(tb, err)
	res, err := client.Do(req)
	require.NoError(tb, err)
	require.NoError(tb, res.Body.Close())
	require.Equal(tb, http.StatusFound, res.StatusCode)
	back, err := res.Location()
	require.NoError(tb, err)

	req, err = http.NewRequestWithContext(tb.Context(), http.MethodPost, s.provider.TokenEndpoint(), strings.NewReader(url.Values{
		"grant_type": {"authorization_code"}, "code": {back.Query().Get("code")}, "redirect_uri": {redirectURL},
		"client_id": {s.provider.ClientID}, "client_secret": {s.provider.ClientSecret},
	}.Encode()))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err = client.Do(req)
	require.NoError(tb, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(tb, err)
	require.Equal(tb, http.StatusOK, res.StatusCode, string(body))
	var tokens struct {
		IDToken string `json:"id_token"`
	}
	require.NoError(tb, json.Unmarshal(body, &tokens))
	return tokens.IDToken
}
