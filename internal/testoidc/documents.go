package testoidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// Documents is a provider without users: it serves the documents that a test writes, and the test signs the tokens.
type Documents struct {
	// URL is that of the server, Issuer the same with the path of the provider.
	URL, Issuer string
	// Asked counts the requests.
	Asked atomic.Int64

	discovery, keys atomic.Pointer[http.HandlerFunc]
}

// KeysPath is where the keys are, on the server.
const KeysPath = "/keys"

// Serve starts a provider with an issuer of the given path. change may wrap the server before it starts. It serves correct documents
// with the first of Keys until the test replaces them.
func Serve(tb testing.TB, path string, start func(*httptest.Server)) *Documents {
	tb.Helper()
	d := &Documents{}
	serve := func(p *atomic.Pointer[http.HandlerFunc]) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			d.Asked.Add(1)
			(*p.Load())(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path+"/.well-known/openid-configuration", serve(&d.discovery))
	mux.HandleFunc("GET "+KeysPath, serve(&d.keys))
	server := httptest.NewUnstartedServer(mux)
	start(server)
	tb.Cleanup(server.Close)
	d.URL, d.Issuer = server.URL, server.URL+path
	d.SetDiscovery(Answer(d.Discovery(d.Issuer), "application/json"))
	d.SetKeys(Answer(JWKS(JWK(Keys()[0], nil)), "application/json"))
	return d
}

// SetDiscovery replaces the discovery document.
func (d *Documents) SetDiscovery(h http.HandlerFunc) { d.discovery.Store(&h) }

// SetKeys replaces the keys.
func (d *Documents) SetKeys(h http.HandlerFunc) { d.keys.Store(&h) }

// Discovery returns the discovery document of an issuer.
func (d *Documents) Discovery(issuer string) string { return DiscoveryOf(issuer, d.URL+KeysPath) }

// DiscoveryOf returns the discovery document of an issuer with the address of its keys.
func DiscoveryOf(issuer, keys string) string {
	b, _ := json.Marshal(map[string]string{"issuer": issuer, "jwks_uri": keys}) // texts can be encoded
	return string(b)
}

// Answer returns a handler with a constant response.
func Answer(body, mediaType string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write([]byte(body)) // the client has gone
	}
}

// Status returns a handler with an error page.
func Status(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<html><h1>" + http.StatusText(status) + "</h1></html>")) // the client has gone
	}
}

// Keys returns two RSA keys, the same in each call: their generation takes long.
var Keys = sync.OnceValue(func() (keys []*rsa.PrivateKey) {
	for range 2 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err) // never: see crypto/rand
		}
		keys = append(keys, key)
	}
	return keys
})

// JWK returns the public key as a JWK with kid "k", use "sig" and alg "RS256", with other members where more has them; nil removes one.
func JWK(key *rsa.PrivateKey, more map[string]any) string {
	encode := base64.RawURLEncoding.EncodeToString
	doc := map[string]any{
		"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
	}
	maps.Copy(doc, more)
	maps.DeleteFunc(doc, func(_ string, v any) bool { return v == nil })
	b, _ := json.Marshal(doc) // what tests write can be encoded
	return string(b)
}

// JWKS returns a set of JWKs.
func JWKS(keys ...string) string {
	set := `{"keys":[`
	for i, k := range keys {
		if i > 0 {
			set += ","
		}
		set += k
	}
	return set + "]}"
}

// Token returns a token of alice that is valid for an hour, signed with the key and with kid "k". more has other claims, header other members
// of the header; nil removes one.
func Token(tb testing.TB, key *rsa.PrivateKey, issuer string, more, header map[string]any) string {
	tb.Helper()
	claims := jwt.MapClaims{
		"iss": issuer, "sub": "alice", "aud": Audience, "exp": time.Now().Add(time.Hour).Unix(), "scope": "user",
	}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = "k"
	maps.Copy(token.Header, header)
	maps.DeleteFunc(token.Header, func(_ string, v any) bool { return v == nil })
	signed, err := token.SignedString(key)
	require.NoError(tb, err)
	return signed
}
