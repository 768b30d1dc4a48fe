package api_test

import (
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	templatecatalog "berth/internal/catalog"
	"berth/internal/fleet"
	"berth/internal/gateway"
	"berth/internal/health"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/signalling"
	"berth/internal/stream"
	"berth/internal/testtemplate"
	"berth/internal/waiting"
	"berth/lua"
)

var update = flag.Bool("update", false, "rewrite openapi.yaml")

// idle returns the router with dependencies that no request of these tests uses.
func idle(t *testing.T, change ...func(*api.Deps)) *echo.Echo {
	t.Helper()
	catalog, err := llm.LoadCatalog("")
	require.NoError(t, err)
	deps := api.Deps{
		Starter: &fakeStarter{}, Ledger: &ledger.Ledger{}, Hub: (*stream.Hub)(nil), Routing: routing.Fixed(catalog), Templates: &templatecatalog.Catalog{},
		Scripts: &lua.Scripts{}, Positions: &waiting.Board{}, Fleet: (*fleet.Fleet)(nil),
		Health: newReporter(), Signalling: &signalling.Proxy{}, Gateway: &gateway.Gateway{}, Keys: &apikey.Keys{}, Config: api.Config{Secrets: identity.Secrets{secret}},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&deps)
	}
	e, err := api.New(deps)
	require.NoError(t, err)
	return e
}

func TestDescription_Generated_EqualsCheckedIn(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	got := h.do(h.request(http.MethodGet, "/openapi.yaml", "", nil))
	require.Equal(t, http.StatusOK, got.status)
	if *update {
		require.NoError(t, os.WriteFile("openapi.yaml", got.body, 0o600))
	}
	want, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got.body), "run: go test ./api -run Description -update")
}

var pathParam = regexp.MustCompile(`:(\w+)`)

// described returns method and path of every operation in the OpenAPI description.
func described(t *testing.T, h *harness) []string {
	t.Helper()
	spec := h.do(h.request(http.MethodGet, "/openapi.json", "", nil)).json(t)
	var out []string
	paths, _ := spec["paths"].(map[string]any)
	for path, item := range paths {
		ops, _ := item.(map[string]any)
		for method, op := range ops {
			o, _ := op.(map[string]any)
			require.NotEmpty(t, o["operationId"], "%s %s", method, path)
			require.NotEmpty(t, o["responses"], "%s %s", method, path)
			out = append(out, strings.ToUpper(method)+" "+path)
		}
	}
	return out
}

func TestDescription_Routes_AreAllDescribed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var routes []string
	for _, r := range idle(t).Routes() {
		if r.Method != echo.RouteNotFound && !strings.HasPrefix(r.Path, "/openai/") { // of another protocol
			routes = append(routes, r.Method+" "+pathParam.ReplaceAllString(r.Path, "{$1}"))
		}
	}
	require.ElementsMatch(t, routes, described(t, h))
	require.GreaterOrEqual(t, len(routes), 15)
}

// A misspelled filter would return too much: each route accepts the query parameters that its description lists, and no other, each once.
func TestRoutes_UnknownQueryParameter_RejectedByName(t *testing.T) { // B12
	t.Parallel()
	h := newHarness(t)
	all := h.token("op", identity.ScopeOperator, identity.ScopeUser, identity.ScopeNode)
	for _, route := range described(t, h) {
		method, path, _ := strings.Cut(route, " ")
		path = braces.ReplaceAllString(path, "x")
		if _, own := ownTokens[route]; own {
			continue
		}
		if !strings.HasPrefix(path, "/v1/") {
			require.Equal(t, http.StatusOK, h.do(h.request(method, path+"?probe=1", "", nil)).status, "a load balancer may add one")
			continue
		}
		if route == "POST /v1/codec/decode" { // Temporal decides what its UI sends
			continue
		}
		a := h.do(h.request(method, path+"?statsu=x", all, nil))
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", route, a.body)
		require.Equal(t, berth.CodeInvalid, a.problem.Code)
		require.Equal(t, "statsu", a.problem.Field, route)
		require.Contains(t, a.problem.Detail, "unknown parameter; the route has ", route)
		if !slices.Contains(public, route) {
			require.Equal(t, http.StatusUnauthorized, h.do(h.request(method, path+"?statsu=x", "", nil)).status, route)
		}
	}
	alice := h.token("alice")
	a := h.do(h.request(http.MethodGet, "/v1/tasks?b=1&a=1&limit=1", alice, nil))
	require.Equal(t, []api.FieldError{
		{Field: "a", Message: "unknown parameter; the route has userId, allUsers, status, template, serviceId, teamId, open, q, from, to, limit, cursor"},
		{Field: "b", Message: "unknown parameter; the route has userId, allUsers, status, template, serviceId, teamId, open, q, from, to, limit, cursor"},
	}, a.problem.Errors)
	require.Equal(t, http.StatusOK, h.do(h.request(http.MethodGet, "/v1/tasks?limit=1&status=FAILED&template=job_match", alice, nil)).status)
	a = h.do(h.request(http.MethodGet, "/v1/tasks?limit=1&limit=2", alice, nil))
	require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
	require.Equal(t, "limit", a.problem.Field)
	require.Equal(t, "must not be given twice", a.problem.Detail)
	require.Equal(t, "query", h.do(h.request(http.MethodGet, "/v1/tasks?limit=%zz", alice, nil)).problem.Field)
	require.Equal(t, http.StatusNotFound, h.do(h.request(http.MethodGet, "/v1/tasks/x/events?userId=&lastEventId=1-0&fromLatest=0", alice, nil)).status)
}

func TestDescription_Enums_ListDomainValues(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	for _, name := range berth.Strategies() {
		require.Contains(t, string(b), "- "+string(name)+"\n")
	}
	require.Contains(t, string(b), berth.TaskStatusPattern)
}

func TestNew_InvalidConfig_Fails(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*api.Deps){
		"no secret":                  func(d *api.Deps) { d.Config.Secrets = nil },
		"short secret in production": func(d *api.Deps) { d.Config.Secrets, d.Config.Production = identity.Secrets{secret, "short"}, true },
		"long-lived tickets":         func(d *api.Deps) { d.Config.TicketTTL = time.Minute },
		"no signalling":              func(d *api.Deps) { d.Signalling = nil },
		"no ledger":                  func(d *api.Deps) { d.Ledger = nil },
		"no templates":               func(d *api.Deps) { d.Templates = nil },
		"no scripts":                 func(d *api.Deps) { d.Scripts = nil },
		"no fleet":                   func(d *api.Deps) { d.Fleet = nil },
		"no gateway":                 func(d *api.Deps) { d.Gateway = nil },
		"no keys":                    func(d *api.Deps) { d.Keys = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deps := api.Deps{
				Starter: &fakeStarter{}, Ledger: &ledger.Ledger{}, Hub: (*stream.Hub)(nil), Routing: routing.Fixed(&llm.Catalog{}), Templates: &templatecatalog.Catalog{},
				Scripts: &lua.Scripts{}, Positions: &waiting.Board{}, Fleet: (*fleet.Fleet)(nil),
				Health: newReporter(), Signalling: &signalling.Proxy{}, Gateway: &gateway.Gateway{}, Keys: &apikey.Keys{}, Config: api.Config{Secrets: identity.Secrets{secret}},
				Logger: slog.New(slog.DiscardHandler),
			}
			_, err := api.New(deps)
			require.NoError(t, err)
			change(&deps)
			_, err = api.New(deps)
			require.Error(t, err)
		})
	}
}

func TestServer_EveryResponse_HasSecurityHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, path := range []string{"/", "/some/page", "/healthz", "/v1/me", "/v1/nowhere", "/openapi.yaml"} {
		a := h.do(h.request(http.MethodGet, path, "", nil))
		require.NotEmpty(t, a.header.Get("X-Request-Id"), path)
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), path)
		csp := a.header.Get("Content-Security-Policy")
		require.Contains(t, csp, "frame-ancestors 'none'", path)
		require.NotContains(t, csp, "unsafe", path)
	}
	page := h.do(h.request(http.MethodGet, "/", "", nil))
	require.Contains(t, page.header.Get("Content-Security-Policy"), "connect-src 'self';")
	require.Contains(t, page.header.Get("Permissions-Policy"), "camera=(self), microphone=(self), ")
	h = newHarness(t, func(d *api.Deps) { d.Config.SignallingURL = "wss://media.example:8443/berth" })
	page = h.do(h.request(http.MethodGet, "/", "", nil))
	require.Contains(t, page.header.Get("Content-Security-Policy"), "connect-src 'self' wss://media.example:8443 https://media.example:8443;")
}

func TestServer_SignInConfigured_PagePolicyNamesOnlyTheIssuer(t *testing.T) { // X5, X8
	t.Parallel()
	policy := func(h *harness) string {
		return h.do(h.request(http.MethodGet, "/", "", nil)).header.Get("Content-Security-Policy")
	}
	h := newHarness(t)
	require.Contains(t, policy(h), "connect-src 'self';")
	require.Empty(t, h.call(http.MethodGet, "/v1/sign-in", "", nil).json(t))
	h = newHarness(t, func(d *api.Deps) {
		d.Config.SignIn = api.SignIn{Issuer: "https://login.example/realms/main", ClientID: "berth-page", Parameters: map[string]string{"scope": "openid"}, Token: "access"}
	})
	require.Contains(t, policy(h), "connect-src 'self' https://login.example;")
	require.Equal(t, map[string]any{
		"issuer": "https://login.example/realms/main", "clientId": "berth-page", "parameters": map[string]any{"scope": "openid"}, "token": "access",
	}, h.call(http.MethodGet, "/v1/sign-in", "", nil).json(t))
}

func TestServer_RequestID_IsKeptOrGenerated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.do(h.request(http.MethodGet, "/v1/me", "", nil, "X-Request-Id", "abc-1"))
	require.Equal(t, "abc-1", a.header.Get("X-Request-Id"))
	require.Equal(t, "abc-1", a.problem.RequestID)
	a = h.do(h.request(http.MethodGet, "/v1/me", "", nil, "X-Request-Id", "<script>"))
	require.NotContains(t, a.header.Get("X-Request-Id"), "<")
	require.NotEmpty(t, a.problem.RequestID)
}

func TestServer_UnknownPathOrMethod_ReturnsProblem(t *testing.T) { // FP6
	t.Parallel()
	h := newHarness(t)
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/v1", http.StatusNotFound},
		{http.MethodGet, "/v1/", http.StatusNotFound},
		{http.MethodGet, "/v1/nowhere", http.StatusNotFound},
		{http.MethodGet, "/v1/task/t1", http.StatusNotFound},
		{http.MethodGet, "/v1/tasks/", http.StatusNotFound},
		{http.MethodGet, "/v1/tasks/t1/nothing", http.StatusNotFound},
		{http.MethodGet, "/v1/index.html", http.StatusNotFound},
		{http.MethodDelete, "/v1/nowhere", http.StatusNotFound},
		{http.MethodPost, "/somewhere", http.StatusNotFound},
		{http.MethodGet, "/somewhere", http.StatusNotFound},
		{http.MethodGet, "/v2/tasks", http.StatusNotFound},
		{http.MethodGet, "/api/v1/tasks", http.StatusNotFound},
		{http.MethodGet, "/metrics", http.StatusNotFound},
		{http.MethodGet, "/swagger.json", http.StatusNotFound},
		{http.MethodGet, "/assets/none.js", http.StatusNotFound},
		{http.MethodGet, "/v1/tickets", http.StatusMethodNotAllowed},
		{http.MethodPut, "/v1/tasks", http.StatusMethodNotAllowed},
		{http.MethodPatch, "/v1/tasks/t1", http.StatusMethodNotAllowed},
		{http.MethodPost, "/healthz", http.StatusMethodNotAllowed},
		{http.MethodPost, "/", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/index.html", http.StatusMethodNotAllowed},
	} {
		a := h.do(h.request(tc.method, tc.path, h.token("alice"), nil))
		require.Equal(t, tc.status, a.status, "%s %s", tc.method, tc.path)
		require.Equal(t, tc.status, a.problem.Status, "%s %s: %s", tc.method, tc.path, a.body)
		require.NotEmpty(t, a.problem.Code)
		if tc.status == http.StatusMethodNotAllowed {
			require.NotEmpty(t, a.header.Get("Allow"))
			require.Contains(t, a.problem.Detail, "does not accept "+tc.method+", only "+a.header.Get("Allow"))
		}
	}
}

// Browsers get a page for an address that does not exist, and the API's problem below /v1.
func TestServer_UnknownPathInBrowser_ReturnsPageNotFound(t *testing.T) { // FP6
	t.Parallel()
	h := newHarness(t)
	browse := func(method, path string) answer {
		return h.do(h.request(method, path, "", nil, "Accept", "text/html,application/xhtml+xml,*/*;q=0.8"))
	}
	for path, start := range map[string]string{"/somewhere": "./", "/tasks/t1": "../", "/wp-login.php": "./", "/assets/old.js": "../", "/console/": "../"} {
		a := browse(http.MethodGet, path)
		require.Equal(t, http.StatusNotFound, a.status, path)
		require.Contains(t, a.header.Get("Content-Type"), "text/html")
		require.Contains(t, string(a.body), `href="`+start+`"`)
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, http.StatusNotFound, browse(http.MethodHead, path).status, path)
	}
	for _, path := range []string{"/", "/?code=1&state=2", "/index.html"} {
		a := browse(http.MethodGet, path)
		require.Equal(t, http.StatusOK, a.status, path)
		require.Contains(t, string(a.body), "<title>berth", path)
	}
	a := browse(http.MethodGet, "/v1/nowhere")
	require.Equal(t, http.StatusNotFound, a.problem.Status, string(a.body))
}

func TestReadyz_DependencyUnavailable_ShowsItAndStaysReady(t *testing.T) { // L11
	t.Parallel()
	h := newHarness(t)
	for status, code := range map[health.Status]int{
		health.Starting: http.StatusServiceUnavailable, health.OK: http.StatusOK, health.Degraded: http.StatusOK,
		health.Stopping: http.StatusServiceUnavailable,
	} {
		r := health.Report{Status: status, Version: "test", Dependencies: map[string]health.Dependency{"redis": {Status: health.Unavailable}}}
		h.health.report.Store(&r)
		a := h.do(h.request(http.MethodGet, "/readyz", "", nil))
		require.Equal(t, code, a.status, status)
		var got health.Report
		require.NoError(t, json.Unmarshal(a.body, &got))
		require.Equal(t, r, got)
		require.Equal(t, http.StatusOK, h.do(h.request(http.MethodGet, "/healthz", "", nil)).status)
	}
}

func TestServer_HandlerPanics_ReturnsProblem(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Ledger = &ledger.Ledger{} }) // its calls panic
	for _, path := range []string{"/v1/tasks/t1", "/v1/tasks/t1/events", "/v1/assets/a1"} {
		a := h.do(h.request(http.MethodGet, path, h.token("alice"), nil))
		require.Equal(t, http.StatusInternalServerError, a.status, path)
		require.Equal(t, berth.CodeInternal, a.problem.Code, path)
		require.NotContains(t, string(a.body), "nil pointer")
	}
	require.Contains(t, h.log.String(), "nil pointer", "the panic is logged")
}

func TestServer_TemplatesAndMe_DescribeTemplatesAndToken(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.call(http.MethodGet, "/v1/templates", h.token("alice"), nil)
	require.Equal(t, http.StatusOK, a.status)
	list, _ := a.json(t)["templates"].([]any)
	require.Len(t, list, len(testtemplate.All()))
	modes := map[any]any{}
	for _, v := range list {
		d, _ := v.(map[string]any)
		modes[d["name"]] = d["mode"]
		require.NotEmpty(t, d["variables"])
		if d["name"] == "translate" { // no prompt depends on the language
			require.Equal(t, []any{}, d["locales"])
			continue
		}
		require.Equal(t, []any{"en", "zh"}, d["locales"])
	}
	require.Equal(t, "stream", modes["job_match"])
	require.Equal(t, "batch", modes["job_summary"])

	me := h.call(http.MethodGet, "/v1/me", h.token("alice", "user", "operator"), nil).json(t)
	require.Equal(t, "alice", me["userId"])
	require.Equal(t, []any{"user", "operator"}, me["scopes"])
}
