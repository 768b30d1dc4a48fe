//go:build faults

package tests

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testoidc"
)

// FI7: what doctor, an API process and a user see of an identity provider that is set up wrongly, does not respond, or is merely unusual. The
// cause is named once in the log, and with its setting in /readyz; a user is advised to retry, or that the operator has to change something.
func TestIdentity_OddProvider_DoctorProcessAndUserNameIt(t *testing.T) {
	s := shareStack(t)
	plain := (*httptest.Server).Start
	answer := func(body string) http.HandlerFunc { return testoidc.Answer(body, "application/json") }
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, c := range []struct {
		name           string
		path           string
		tls, trusted   bool
		odd            func(d *testoidc.Documents)
		issuer         func(d *testoidc.Documents) string
		doctor, advice string // empty advice: the check succeeds
		code, user     string // empty code: ready, and the user is known
	}{
		{name: "slash too many", issuer: func(d *testoidc.Documents) string { return d.Issuer + "/" }, doctor: "differs from BERTH_OIDC_ISSUER by a slash", advice: "set BERTH_OIDC_ISSUER="},
		{name: "slash missing", odd: func(d *testoidc.Documents) { d.SetDiscovery(answer(d.Discovery(d.Issuer + "/"))) }, doctor: "differs from BERTH_OIDC_ISSUER by a slash", advice: "set BERTH_OIDC_ISSUER="},
		{name: "private authority, trusted", path: "/realms/main", tls: true, trusted: true, doctor: "keys that verify tokens: k"},
		{name: "private authority", tls: true, doctor: "certificate", advice: "check BERTH_OIDC_ISSUER", code: "certificate", user: "SSL_CERT_FILE"},
		{
			name: "another issuer", odd: func(d *testoidc.Documents) { d.SetDiscovery(answer(d.Discovery("https://login.example/main"))) },
			doctor: "states another issuer", advice: "set BERTH_OIDC_ISSUER=https://login.example/main", code: "issuer", user: "the operator has to change that, see BERTH_OIDC_ISSUER",
		},
		{
			name: "Azure, all tenants", odd: func(d *testoidc.Documents) { d.SetDiscovery(answer(d.Discovery(d.URL + "/{tenantid}/v2.0"))) },
			doctor: "replace the part in braces", advice: "check BERTH_OIDC_ISSUER", code: "issuer", user: "the one of your tenant",
		},
		{
			name: "sign-in page", odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Answer("<!doctype html>", "text/html")) },
			doctor: "it is HTML", advice: "check BERTH_OIDC_ISSUER", code: "document", user: "something else in place of the discovery document",
		},
		{
			name: "not found", odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(404)) },
			doctor: "responded with 404", advice: "check BERTH_OIDC_ISSUER", code: "status", user: "status 404",
		},
		{
			name: "keys without TLS", tls: true, trusted: true, odd: func(d *testoidc.Documents) {
				d.SetDiscovery(answer(testoidc.DiscoveryOf(d.Issuer, "http://other.example/keys")))
			},
			doctor: "must begin with https://", advice: "check BERTH_JWKS_URL", code: "keys_address", user: "see BERTH_JWKS_URL",
		},
		{name: "keys for encryption only", odd: func(d *testoidc.Documents) {
			d.SetKeys(answer(testoidc.JWKS(testoidc.JWK(testoidc.Keys()[0], map[string]any{"use": "enc"}))))
		}, doctor: "is for encryption", advice: "check BERTH_OIDC_ISSUER", code: "keys", user: "publishes no key that verifies tokens"},
		{name: "damaged key beside", odd: func(d *testoidc.Documents) {
			d.SetKeys(answer(testoidc.JWKS(testoidc.JWK(testoidc.Keys()[0], nil), testoidc.JWK(testoidc.Keys()[1], map[string]any{"kid": "bad", "n": "!"}))))
		}, doctor: `tokens that these keys sign are refused: "bad"`, advice: "replace them at the identity provider"},
		{
			name: "internal error", odd: func(d *testoidc.Documents) { d.SetDiscovery(testoidc.Status(500)) },
			doctor: "status 500", advice: "check BERTH_OIDC_ISSUER", code: "status", user: "status 500; retry",
		},
		{
			name: "does not respond", odd: func(d *testoidc.Documents) { d.SetDiscovery(hang) },
			doctor: "does not respond", advice: "check BERTH_OIDC_ISSUER", code: "timeout", user: "does not respond; retry",
		},
		{
			name: "nothing there", issuer: func(*testoidc.Documents) string { return "http://127.0.0.1:1" },
			doctor: "connection refused", advice: "check BERTH_OIDC_ISSUER", code: "unreachable", user: "is unreachable; retry",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := plain
			env := []string{}
			if c.tls {
				start = func(server *httptest.Server) {
					server.StartTLS()
					if c.trusted {
						file := filepath.Join(t.TempDir(), "ca.pem")
						require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
						env = append(env, "SSL_CERT_FILE="+file)
					}
				}
			}
			d := testoidc.Serve(t, c.path, start)
			if c.odd != nil {
				c.odd(d)
			}
			issuer := d.Issuer
			if c.issuer != nil {
				issuer = c.issuer(d)
			}
			addr := freeAddr(t)
			env = append(append(append([]string{}, s.settings...), env...),
				"BERTH_OIDC_ISSUER="+issuer, "BERTH_AUTH_AUDIENCE=berth,"+testoidc.Audience, "BERTH_HTTP_ADDR="+addr)

			checked := s.start("berth", []string{"doctor"}, env)
			<-checked.done
			require.Equal(t, c.code == "", checked.cmd.ProcessState.Success(), string(checked.output()))
			for _, text := range []string{c.doctor, c.advice} {
				require.Contains(t, string(checked.output()), text)
			}

			api := s.start("berth", []string{"api"}, env)
			t.Cleanup(api.kill)
			call := &stack{tb: t, httpAddr: addr}
			var report map[string]any
			s.eventually("the state of the provider", func() bool {
				res, err := http.Get("http://" + addr + "/healthz") //nolint:noctx // a test's own server
				if err != nil {
					return false
				}
				_ = res.Body.Close()
				var status int
				status, report = call.send(http.MethodGet, "/readyz", "", nil)
				return status == http.StatusOK || strings.Contains(fmt.Sprint(report), "setting:BERTH_")
			})
			token := testoidc.Token(t, testoidc.Keys()[0], issuer, nil, nil)
			status, me := call.send(http.MethodGet, "/v1/me", token, nil)
			if c.code == "" {
				require.Equal(t, http.StatusOK, status, "%v", me)
				require.Equal(t, "ok", report["status"])
				return
			}
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.NotNil(t, me["retryAfter"])
			require.Contains(t, me["detail"], c.user)
			identity := fmt.Sprint(report["dependencies"].(map[string]any)["identity"])
			require.Contains(t, identity, "code:"+c.code)
			require.NotContains(t, identity, "127.0.0.1", "any caller reads it")
			require.Equal(t, 1, strings.Count(string(api.output()), "dependency=identity"), "%s", api.output())
			t.Logf("| %s | %s | %s | %s |", c.name, lineWith(string(checked.output()), "identity"), identity, me["detail"])
		})
	}
}

// lineWith returns the first line that contains a text.
func lineWith(output, text string) string {
	for line := range strings.Lines(output) {
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
