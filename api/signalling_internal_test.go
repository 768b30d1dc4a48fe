package api

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// FI6: the address of the signalling proxy, with what proxies state. What they or their callers send in another form is ignored.
func TestBaseOf_HeadersOfProxies_GiveTheCallersAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ proto, host, prefix, want string }{
		{"", "", "", "ws://berth:8080"},
		{"https", "", "", "wss://berth:8080"},
		{"WSS", "public.example", "", "wss://public.example"},
		{"https, http", "a.example:8443, inner", "/berth/, /x", "wss://a.example:8443/berth"},
		{"http", "[2001:db8::1]:81", "/a/b", "ws://[2001:db8::1]:81/a/b"},
		{"gopher", "user@evil.example", "//evil.example", "ws://berth:8080"},
		{"", "evil.example/x?y", "/../a b", "ws://berth:8080"},
		{"", "a.example:port", "/x/../", "ws://berth:8080/x/.."}, // a path of its sender
		{"", "", "/", "ws://berth:8080"},
	} {
		r := httptest.NewRequest("POST", "http://berth:8080/v1/x", nil)
		for name, value := range map[string]string{"X-Forwarded-Proto": tt.proto, "X-Forwarded-Host": tt.host, "X-Forwarded-Prefix": tt.prefix} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		require.Equal(t, tt.want, baseOf(r), "%+v", tt)
		r.TLS = &tls.ConnectionState{}
		require.Equal(t, "wss", baseOf(r)[:3])
	}
}
