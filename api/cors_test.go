package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/api"
)

func TestCORS_ConfiguredOrigin_MayCallWithToken(t *testing.T) { // X5
	t.Parallel()
	const origin = "https://app.example"
	h := newHarness(t, func(d *api.Deps) { d.Config.CORSOrigins = []string{origin, "http://localhost:3000"} })
	preflight := func(from string) answer {
		return h.do(h.request(http.MethodOptions, "/v1/tasks", "", nil, "Origin", from,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, last-event-id, idempotency-key"))
	}
	a := preflight(origin)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"))
	for _, name := range []string{"Authorization", "Last-Event-ID", "Idempotency-Key", "Content-Type"} {
		require.Contains(t, a.header.Get("Access-Control-Allow-Headers"), name)
	}
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		require.Contains(t, a.header.Get("Access-Control-Allow-Methods"), method)
	}
	require.Empty(t, a.header.Get("Access-Control-Allow-Credentials"))

	a = h.do(h.request(http.MethodGet, "/v1/me", h.token("alice"), nil, "Origin", origin))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), "Retry-After")
	require.Contains(t, a.header.Values("Vary"), "Origin")
	a = h.do(h.request(http.MethodGet, "/v1/me", "", nil, "Origin", origin))
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"), "the page can read the error")

	require.Empty(t, preflight("https://evil.example").header.Get("Access-Control-Allow-Origin"))
	a = h.do(h.request(http.MethodGet, "/v1/me", h.token("alice"), nil, "Origin", "https://app.example.evil.example"))
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}

func TestCORS_NotConfigured_NoOriginIsAllowed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.do(h.request(http.MethodOptions, "/v1/tasks", "", nil, "Origin", "https://app.example", "Access-Control-Request-Method", "POST"))
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	a = h.do(h.request(http.MethodGet, "/v1/me", h.token("alice"), nil, "Origin", "https://app.example"))
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}

// Tracing libraries for browsers add headers to the calls of a page, which fail if the server does not allow them.
func TestCORS_TracingHeaders_AreAllowed(t *testing.T) { // FP8
	t.Parallel()
	const origin = "https://app.example"
	h := newHarness(t, func(d *api.Deps) { d.Config.CORSOrigins = []string{origin} })
	for _, header := range []string{
		"traceparent", "tracestate", "baggage", "b3", "x-b3-traceid", "sentry-trace", "x-request-id", "x-correlation-id", "newrelic", "uber-trace-id",
		"elastic-apm-traceparent", "x-datadog-trace-id", "x-datadog-sampling-priority", "request-id", "x-amzn-trace-id", "x-cloud-trace-context",
		"cache-control", "x-requested-with",
	} {
		a := h.do(h.request(http.MethodOptions, "/v1/tasks", "", nil, "Origin", origin,
			"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization,"+header))
		require.Equal(t, http.StatusNoContent, a.status)
		allowed := strings.Split(strings.ToLower(a.header.Get("Access-Control-Allow-Headers")), ",")
		require.Contains(t, allowed, header)
		require.Contains(t, allowed, "authorization", "the wildcard does not include it")
		require.Contains(t, allowed, "*", "of a library that is not listed")
	}
}
