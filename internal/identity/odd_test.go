package identity_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/testoidc"
)

// logged is a log that tests read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// verifierOf returns a verifier of an odd provider's tokens, after the first reading of its keys.
func verifierOf(t *testing.T, o identity.ProviderOptions) (*identity.Tokens, error) {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Claims.Scope == "" {
		o.Claims = identity.ClaimMap{Scope: "scope", Tenant: "tenant", Nodes: "nodes"}
	}
	p, err := identity.NewProvider(o)
	require.NoError(t, err)
	p.SetWait(patient)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	v := tokens()
	v.Provider, v.Audiences = p, []string{testoidc.Audience, "berth"}
	return v, p.Check(t.Context())
}

// FI7: what providers do wrong or differently. Each cause is in the error of the check, with the setting, and in that of the caller; a temporary
// one states that. What does not matter is accepted.
func TestProvider_OddDocuments_AcceptedOrNamed(t *testing.T) {
	t.Parallel()
	key := testoidc.JWK(testoidc.Keys()[0], nil)
	good := testoidc.JWKS(key)
	const discovery, keys = "/.well-known/openid-configuration", testoidc.KeysPath
	for name, c := range map[string]struct {
		path                string                             // of the issuer
		odd                 func(d *testoidc.Documents)        // changes the documents
		set                 func(d *testoidc.Documents) string // BERTH_OIDC_ISSUER; nil: the issuer
		iss                 func(d *testoidc.Documents) string // of the token; nil: the issuer
		opt                 func(o *identity.ProviderOptions)  // nil: none
		tls                 bool
		code, setting, text string // of the problem; empty: the token is accepted
		temporary           bool
	}{
		"as it should be":      {},
		"Keycloak's path":      {path: "/realms/main"},
		"Azure's path":         {path: "/8f3c/v2.0"},
		"setting with a slash": {set: func(d *testoidc.Documents) string { return d.Issuer + "/" }},
		"Auth0, setting without slash": {
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(d.Discovery(d.Issuer+"/"), "application/json"))
			},
			iss: func(d *testoidc.Documents) string { return d.Issuer + "/" },
		},
		"Keycloak, all with slashes": {
			path: "/realms/main", set: func(d *testoidc.Documents) string { return d.Issuer + "/" },
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(d.Discovery(d.Issuer+"/"), "application/json"))
			},
			iss: func(d *testoidc.Documents) string { return d.Issuer + "/" },
		},
		"text/plain":          {odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Answer(d.Discovery(d.Issuer), "text/plain")) }},
		"text/html with JSON": {odd: func(d *testoidc.Documents) { d.SetKeys(testoidc.Answer(good, "text/html")) }},
		"byte order marks": {odd: func(d *testoidc.Documents) {
			d.SetDiscovery(testoidc.Answer("\ufeff"+d.Discovery(d.Issuer), "application/json"))
			d.SetKeys(testoidc.Answer("\ufeff\r\n"+good, "application/json"))
		}},
		"redirect": {odd: func(d *testoidc.Documents) {
			d.SetDiscovery(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "" {
					http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
					return
				}
				testoidc.Answer(d.Discovery(d.Issuer), "application/json")(w, r)
			})
		}},
		"keys on another host": {odd: func(d *testoidc.Documents) {
			other := testoidc.Serve(t, "", (*httptest.Server).Start)
			d.SetDiscovery(testoidc.Answer(other.Discovery(d.Issuer), "application/json"))
		}},
		"keys without discovery": {
			opt: func(o *identity.ProviderOptions) { o.JWKSURL = o.Issuer + keys },
			odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(404)) },
		},
		"self-signed authority, trusted": {tls: true, opt: func(o *identity.ProviderOptions) {}},

		"another issuer": {
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(d.Discovery("https://login.example/"), "application/json"))
			},
			code: "issuer", setting: "BERTH_OIDC_ISSUER", text: `"https://login.example/"`,
		},
		"Azure's template": {
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(d.Discovery(d.URL+"/{tenantid}/v2.0"), "application/json"))
			},
			code: "issuer", setting: "BERTH_OIDC_ISSUER", text: "the one of your tenant",
		},
		"no issuer": {
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(`{"jwks_uri":"`+d.URL+keys+`"}`, "application/json"))
			},
			code: "issuer", setting: "BERTH_OIDC_ISSUER", text: `states ""`,
		},
		"HTML": {
			odd:  func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Answer("<!doctype html><p>Sign in", "text/html")) },
			code: "document", setting: "BERTH_OIDC_ISSUER", text: "it is HTML",
		},
		"HTML after a redirect": {
			odd: func(d *testoidc.Documents) {
				login := httptest.NewServer(testoidc.Answer("\n <html>", "text/html"))
				t.Cleanup(login.Close)
				d.SetDiscovery(func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, login.URL+"/login", http.StatusSeeOther)
				})
			},
			code: "document", setting: "BERTH_OIDC_ISSUER", text: "/login",
		},
		"half a document": {odd: func(d *testoidc.Documents) {
			d.SetDiscovery(testoidc.Answer(d.Discovery(d.Issuer)[:20], "application/json"))
		}, code: "document", setting: "BERTH_OIDC_ISSUER", text: "it is not JSON"},
		"a list":           {odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Answer("[]", "application/json")) }, code: "discovery", setting: "BERTH_OIDC_ISSUER", text: "malformed"},
		"404":              {odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(404)) }, code: "status", setting: "BERTH_OIDC_ISSUER", text: discovery + " responded with 404"},
		"403":              {odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(403)) }, code: "status", setting: "BERTH_OIDC_ISSUER", text: "status 403"},
		"500":              {odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(500)) }, code: "status", setting: "BERTH_OIDC_ISSUER", text: "status 500", temporary: true},
		"429 for the keys": {odd: func(d *testoidc.Documents) { d.SetKeys(testoidc.Status(429)) }, code: "status", setting: "BERTH_OIDC_ISSUER", text: keys + " responded with 429", temporary: true},
		"jwks_uri missing": {odd: func(d *testoidc.Documents) {
			d.SetDiscovery(testoidc.Answer(testoidc.DiscoveryOf(d.Issuer, ""), "application/json"))
		}, code: "keys_address", setting: "BERTH_JWKS_URL", text: `jwks_uri is ""`},
		"jwks_uri relative": {odd: func(d *testoidc.Documents) {
			d.SetDiscovery(testoidc.Answer(testoidc.DiscoveryOf(d.Issuer, keys), "application/json"))
		}, code: "keys_address", setting: "BERTH_JWKS_URL", text: `jwks_uri is "/keys"`},
		"jwks_uri without TLS on another host": {
			tls: true,
			odd: func(d *testoidc.Documents) {
				d.SetDiscovery(testoidc.Answer(testoidc.DiscoveryOf(d.Issuer, "http://other.example/keys"), "application/json"))
			},
			code: "keys_address", setting: "BERTH_JWKS_URL", text: "http://other.example/keys",
		},
		"keys that redirect to http": {
			tls: true,
			odd: func(d *testoidc.Documents) {
				d.SetKeys(func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, "http://127.0.0.1:1/keys", http.StatusFound)
				})
			},
			code: "redirect", setting: "BERTH_OIDC_ISSUER", text: "without TLS",
		},
		"no keys":        {odd: func(d *testoidc.Documents) { d.SetKeys(testoidc.Answer(`{}`, "application/json")) }, code: "keys", setting: "BERTH_OIDC_ISSUER", text: "it has no keys"},
		"keys as HTML":   {odd: func(d *testoidc.Documents) { d.SetKeys(testoidc.Answer("<html>", "text/html")) }, code: "document", setting: "BERTH_OIDC_ISSUER", text: "in place of the keys"},
		"keys as a text": {odd: func(d *testoidc.Documents) { d.SetKeys(testoidc.Answer(`{"keys":"none"}`, "application/json")) }, code: "keys", setting: "BERTH_OIDC_ISSUER", text: "no JWK set"},
		"keys of other uses": {odd: func(d *testoidc.Documents) {
			d.SetKeys(testoidc.Answer(testoidc.JWKS(testoidc.JWK(testoidc.Keys()[0], map[string]any{"use": "enc"})), ""))
		}, code: "keys", setting: "BERTH_OIDC_ISSUER", text: `"k" is for encryption`},
		"untrusted authority": {
			tls: true, opt: func(o *identity.ProviderOptions) { o.Client = nil }, code: "certificate", setting: "BERTH_OIDC_ISSUER", text: "SSL_CERT_FILE",
		},
		"https where there is no TLS": {
			set:  func(d *testoidc.Documents) string { return strings.Replace(d.Issuer, "http:", "https:", 1) },
			code: "no_tls", setting: "BERTH_OIDC_ISSUER", text: "does not speak TLS",
		},
		"another port":    {set: func(*testoidc.Documents) string { return "http://127.0.0.1:1" }, code: "unreachable", setting: "BERTH_OIDC_ISSUER", text: "refused", temporary: true},
		"an unknown host": {set: func(*testoidc.Documents) string { return "http://login.invalid" }, code: "unreachable", setting: "BERTH_OIDC_ISSUER", text: "host of the identity provider is not found", temporary: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := (*httptest.Server).Start
			o := identity.ProviderOptions{}
			if c.tls {
				start = func(s *httptest.Server) {
					s.StartTLS()
					o.Client = s.Client()
				}
			}
			d := testoidc.Serve(t, c.path, start)
			if c.odd != nil {
				c.odd(d)
			}
			issuer := d.Issuer
			if o.Issuer = d.Issuer; c.set != nil {
				o.Issuer = c.set(d)
			}
			if c.code != "" {
				issuer = o.Issuer
			}
			if c.iss != nil {
				issuer = c.iss(d)
			}
			if o.Client != nil { // trusts the server's certificate, and is otherwise as the default
				o.Client.CheckRedirect = identity.CheckRedirect
			}
			if c.opt != nil {
				c.opt(&o)
			}
			v, err := verifierOf(t, o)
			p, refused := v.Verify(t.Context(), testoidc.Token(t, testoidc.Keys()[0], issuer, nil, nil))
			if c.code == "" {
				require.NoError(t, err)
				require.NoError(t, refused)
				require.Equal(t, "alice", p.UserID)
				return
			}
			var wrong *health.Problem
			require.ErrorAs(t, err, &wrong)
			t.Logf("%s | %s | %s", wrong, wrong.Setting, refused)
			require.Equal(t, c.code, wrong.Code)
			require.Equal(t, c.setting, wrong.Setting)
			require.Equal(t, c.temporary, !wrong.Lasting)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, wrong.Text, "http", "any caller reads it")
			e, ok := errors.AsType[*berth.Error](refused)
			require.True(t, ok)
			require.Equal(t, berth.CodeUnavailable, e.Code)
			require.Contains(t, e.Message, wrong.Text)
			if c.temporary {
				require.Contains(t, e.Message, "retry later")
			} else {
				require.Contains(t, e.Message, c.setting)
			}
			own, err := identity.Issue(secret, identity.Grant{UserID: "bob", TTL: time.Hour})
			require.NoError(t, err)
			_, err = v.Verify(t.Context(), own)
			require.NoError(t, err, "tokens of the secret are not concerned")
		})
	}
}

// FI7: the forms of keys and tokens that providers use.
func TestProvider_OddKeysAndTokens_AcceptedOrNamed(t *testing.T) {
	t.Parallel()
	k := testoidc.Keys()
	jwk := func(more map[string]any) string { return testoidc.JWK(k[0], more) }
	other := func(more map[string]any) string { return testoidc.JWK(k[1], more) }
	type m = map[string]any
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	enc := other(m{"kid": "e", "use": "enc", "alg": "RSA-OAEP"})
	for name, c := range map[string]struct {
		keys           []string
		claims, header m
		claim          identity.ClaimMap
		scopes         []string // nil: user
		refused        string   // part of the error; empty: accepted
		log            string   // what is logged, once
	}{
		"key without kid":                   {keys: []string{jwk(m{"kid": nil})}},
		"token without kid":                 {keys: []string{other(m{"kid": "o"}), jwk(nil)}, header: m{"kid": nil}},
		"neither has one":                   {keys: []string{other(m{"kid": nil}), jwk(m{"kid": nil})}, header: m{"kid": nil}},
		"equal key ids":                     {keys: []string{other(nil), jwk(nil), other(nil)}},
		"key without alg and use":           {keys: []string{jwk(m{"alg": nil, "use": nil})}},
		"key_ops":                           {keys: []string{jwk(m{"use": nil, "key_ops": []string{"verify"}})}},
		"certificate that is none":          {keys: []string{jwk(m{"x5c": []string{"bm9uZQ=="}, "x5t": "???", "x5u": "\x00"})}},
		"padded numbers":                    {keys: []string{jwk(m{"e": "AQAB=="})}},
		"unknown kind beside":               {keys: []string{`{"kty":"new","kid":"n","x":1}`, jwk(nil)}, log: "its kind is not one"},
		"symmetric beside":                  {keys: []string{`{"kty":"oct","kid":"s","k":"YQ"}`, jwk(nil)}, log: "its kind is not one"},
		"for encryption beside":             {keys: []string{enc, jwk(nil)}, log: "is for encryption"},
		"damaged beside":                    {keys: []string{other(m{"kid": "bad", "n": "!"}), jwk(nil)}, log: "bad"},
		"short beside":                      {keys: []string{other(m{"kid": "short", "n": "AQAB"}), jwk(nil)}, log: "an RSA key of 17 bits"},
		"not an object beside":              {keys: []string{`"key"`, jwk(nil)}, log: "key 1"},
		"kid that is a number beside":       {keys: []string{other(m{"kid": 7}), jwk(nil)}, log: "7"},
		"unknown curve beside":              {keys: []string{`{"kty":"EC","crv":"secp256k1","kid":"c","x":"AA","y":"AA"}`, jwk(nil)}, log: "secp256k1"},
		"token of a damaged key":            {keys: []string{jwk(m{"kid": "k", "n": "!"}), other(m{"kid": "o"})}, refused: `does not publish: kid "k"`, log: "illegal base64"},
		"token of an encryption key":        {keys: []string{jwk(m{"use": "enc"}), other(m{"kid": "o"})}, refused: `does not publish: kid "k"`},
		"key for another algorithm":         {keys: []string{jwk(m{"alg": "PS512"}), other(m{"kid": "o"})}, refused: `alg RS256`},
		"signature of another key":          {keys: []string{other(nil)}, refused: "signature that is not valid"},
		"nbf ahead":                         {claims: m{"nbf": 50 * time.Second, "iat": 50 * time.Second}},
		"iat far ahead":                     {claims: m{"iat": in(time.Hour)}},
		"nbf far ahead":                     {claims: m{"nbf": 2 * time.Minute}, refused: "nbf is ahead of this server's clock by more than 1m5s"},
		"expired within the leeway":         {claims: m{"exp": -2 * time.Second}},
		"expired":                           {claims: m{"exp": in(-time.Minute)}, refused: "has expired"},
		"exp with a fraction":               {claims: m{"exp": float64(in(time.Hour)) + 0.25}},
		"exp in exponents":                  {claims: m{"exp": 1.9e10}},
		"exp as a text":                     {claims: m{"exp": fmt.Sprint(in(time.Hour))}, refused: "exp and nbf are numbers"},
		"no exp":                            {claims: m{"exp": nil}, refused: "has no exp"},
		"audiences":                         {claims: m{"aud": []string{"account", testoidc.Audience}}},
		"another audience":                  {claims: m{"aud": []string{"account"}}, refused: "BERTH_AUTH_AUDIENCE"},
		"no audience":                       {claims: m{"aud": nil}, refused: "has no aud"},
		"audience that is a number":         {claims: m{"aud": 7}, refused: "aud is a text or a list"},
		"Azure's v1 issuer":                 {claims: m{"iss": "https://sts.windows.net/8f3c/"}, refused: `issuer is "https://sts.windows.net/8f3c/", and not that of BERTH_OIDC_ISSUER`},
		"no issuer":                         {claims: m{"iss": nil}, refused: `issuer is ""`},
		"at+jwt":                            {header: m{"typ": "at+jwt"}},
		"application/at+jwt":                {header: m{"typ": "application/at+jwt"}},
		"no typ":                            {header: m{"typ": nil}},
		"kid that is a number":              {keys: []string{jwk(m{"kid": nil})}, header: m{"kid": 7}},
		"critical extension":                {header: m{"crit": []string{"b64"}}, refused: "signature that is not valid, or"},
		"Okta: scp as a list":               {claims: m{"scope": nil, "scp": []string{"openid", "user", "operator"}}, scopes: []string{"user", "operator"}},
		"Azure: scp as a text":              {claims: m{"scope": nil, "scp": "user openid"}},
		"scope precedes scp":                {claims: m{"scp": "operator"}},
		"scope as a list":                   {claims: m{"scope": []any{"user", 7, nil}}},
		"scp is not read for another claim": {claim: identity.ClaimMap{Scope: "roles"}, claims: m{"scp": "operator"}, scopes: []string{}},
		"Azure: app roles": {
			claim: identity.ClaimMap{Scope: "roles", Scopes: map[string]string{"Berth.Operator": "operator,user"}}, claims: m{"roles": []string{"Berth.Operator"}},
			scopes: []string{"user", "operator"},
		},
		"groups with spaces and slashes": {
			claim: identity.ClaimMap{Scope: "groups", Scopes: map[string]string{"/Berth Admins": "operator"}}, claims: m{"groups": []string{"/Berth Admins", "/x"}},
			scopes: []string{"operator"},
		},
		"Keycloak: roles of the client": {
			claim: identity.ClaimMap{Scope: "resource_access.berth.roles"}, claims: m{"resource_access": m{"berth": m{"roles": []string{"user"}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testoidc.Serve(t, "", (*httptest.Server).Start)
			if c.keys != nil {
				d.SetKeys(testoidc.Answer(testoidc.JWKS(c.keys...), "application/json"))
			}
			log := &logged{}
			v, err := verifierOf(t, identity.ProviderOptions{Issuer: d.Issuer, Claims: c.claim, Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, err)
			for name, value := range c.claims {
				if from, ok := value.(time.Duration); ok { // now: the table was made some time ago
					c.claims[name] = time.Now().Add(from).Unix()
				}
			}
			p, err := v.Verify(t.Context(), testoidc.Token(t, k[0], d.Issuer, c.claims, c.header))
			if c.log != "" {
				require.Equal(t, 1, strings.Count(log.String(), "keys not used"), log)
				require.Contains(t, log.String(), c.log)
			}
			if c.refused != "" {
				e, ok := errors.AsType[*berth.Error](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, berth.CodeUnauthenticated, e.Code)
				require.Contains(t, e.Message, c.refused)
				return
			}
			require.NoError(t, err)
			if c.scopes == nil {
				c.scopes = []string{"user"}
			}
			require.ElementsMatch(t, c.scopes, p.Scopes)
		})
	}
}

// FI7: a provider that hangs delays the first calls by two seconds, and no later ones. Whatever calls there are, one request is open, and the
// keys that were read before stay in use.
func TestProvider_Hangs_CallsAreNotDelayed(t *testing.T) {
	t.Parallel()
	d := testoidc.Serve(t, "", (*httptest.Server).Start)
	v, err := verifierOf(t, identity.ProviderOptions{Issuer: d.Issuer})
	require.NoError(t, err)
	v.Provider.SetWait(identity.MaxWait)
	known := testoidc.Token(t, testoidc.Keys()[0], d.Issuer, nil, nil)
	unknown := testoidc.Token(t, testoidc.Keys()[1], d.Issuer, nil, map[string]any{"kid": "next"})
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	d.SetDiscovery(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	asked, began := d.Asked.Load(), time.Now()
	call := func(token string) (took time.Duration, err error) {
		began := time.Now()
		_, err = v.Verify(t.Context(), token)
		return time.Since(began), err
	}
	took, err := call(unknown)
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	require.Less(t, took, 4*time.Second)
	require.Eventually(t, func() bool { return v.Provider.Check(t.Context()) != nil }, 20*time.Second, 10*time.Millisecond, "the reading is given up")
	var wrong *health.Problem
	require.ErrorAs(t, v.Provider.Check(t.Context()), &wrong)
	require.Equal(t, "timeout", wrong.Code)
	calls := time.Now()
	for range 100 {
		_, err = call(unknown)
		require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
		require.ErrorContains(t, err, "does not respond; retry later")
		_, err = call(known)
		require.NoError(t, err)
	}
	require.Less(t, time.Since(calls), 20*time.Second, "ten calls that wait take longer")
	require.LessOrEqual(t, d.Asked.Load()-asked, 3+int64(time.Since(began)/(5*time.Second)), "one is open at a time")
}

// FI7: keys that were replaced are noticed by the next token: under a new id, without ids, and some time later also under the same id.
func TestProvider_KeysReplaced_NextTokenIsAccepted(t *testing.T) {
	t.Parallel()
	k := testoidc.Keys()
	for name, id := range map[string]any{"new id": "next", "no ids": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testoidc.Serve(t, "", (*httptest.Server).Start)
			first := map[string]any{"kid": nil}
			if id != nil {
				first = nil
			}
			d.SetKeys(testoidc.Answer(testoidc.JWKS(testoidc.JWK(k[0], first)), "application/json"))
			v, err := verifierOf(t, identity.ProviderOptions{Issuer: d.Issuer})
			require.NoError(t, err)
			old := testoidc.Token(t, k[0], d.Issuer, nil, first)
			_, err = v.Verify(t.Context(), old)
			require.NoError(t, err)
			d.SetKeys(testoidc.Answer(testoidc.JWKS(testoidc.JWK(k[1], map[string]any{"kid": id})), "application/json"))
			_, err = v.Verify(t.Context(), testoidc.Token(t, k[1], d.Issuer, nil, map[string]any{"kid": id}))
			require.NoError(t, err)
			requireRejected(t, v, old)
		})
	}
}
