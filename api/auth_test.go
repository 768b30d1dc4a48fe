package api_test

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/identity"
)

// public are the routes that need no token.
var public = []string{"GET /healthz", "GET /readyz", "GET /openapi.yaml", "GET /openapi.json", "GET /v1/sign-in"}

// ownTokens are the routes that check a token which is not a bearer token of the API, with their status without one.
var ownTokens = map[string]int{
	"GET /rtc": http.StatusUnauthorized, "GET /rtc/validate": http.StatusUnauthorized,
	"GET /rtc/v1": http.StatusUnauthorized, "GET /rtc/v1/validate": http.StatusUnauthorized,
	"POST /v1/invitations": http.StatusBadRequest, "POST /v1/invitations/lookup": http.StatusBadRequest,
}

var braces = regexp.MustCompile(`{\w+}`)

// scopesOf lists the accepted scopes of each route that does not accept only the scope user.
var scopesOf = map[string][]string{
	"POST /v1/tickets":                        {"user", "operator"},
	"GET /v1/tasks":                           {"user", "operator"},
	"GET /v1/tasks/{id}":                      {"user", "operator"},
	"DELETE /v1/tasks/{id}":                   {"user", "operator"},
	"DELETE /v1/tasks/{id}/content":           {"user", "operator"},
	"GET /v1/tasks/{id}/events":               {"user", "operator"},
	"GET /v1/conferences":                     {"user", "operator"},
	"GET /v1/conferences/{e164}":              {"user", "operator"},
	"DELETE /v1/conferences/{e164}":           {"user", "operator"},
	"PATCH /v1/conferences/{e164}":            {"user", "operator"},
	"POST /v1/conferences/{e164}/move":        {"operator"},
	"POST /v1/conferences/{e164}/record/send": {"operator"},
	"GET /v1/conferences/{e164}/record":       {"user", "operator"},
	"GET /v1/conferences/{e164}/events":       {"user", "operator"},
	"GET /v1/conferences/{e164}/info":         {"node"},
	"POST /v1/conferences/{e164}/info":        {"node"},

	"POST /v1/conferences/{e164}/participants":              {"user", "operator"},
	"GET /v1/conferences/{e164}/participants":               {"user", "operator"},
	"DELETE /v1/conferences/{e164}/participants/{identity}": {"user", "operator"},
	"POST /v1/conferences/{e164}/links":                     {"user", "operator"},
	"GET /v1/conferences/{e164}/links":                      {"user", "operator"},
	"DELETE /v1/conferences/{e164}/links/{linkId}":          {"user", "operator"},
	"GET /v1/participations/{conferenceId}/events":          {"user", "operator"},

	"POST /v1/conferences/report": {"operator"},
	"GET /v1/stats/conferences":   {"operator"},
	"POST /v1/codec/decode":       {"operator"},

	"POST /v1/nodes":                {"node"},
	"POST /v1/nodes/{id}/heartbeat": {"node"},
	"GET /v1/nodes":                 {"node", "operator"},
	"GET /v1/nodes/{id}":            {"node", "operator"},
	"DELETE /v1/nodes/{id}":         {"node", "operator"},

	"PUT /v1/nodes/{id}/services/{service}/unavailable": {"node", "operator"},

	"POST /v1/nodes/{id}/cordon":   {"operator"},
	"POST /v1/nodes/{id}/uncordon": {"operator"},
	"POST /v1/nodes/{id}/drain":    {"operator"},
	"POST /v1/nodes/{id}/undrain":  {"operator"},
	"GET /v1/models":               {"operator"},
	"PATCH /v1/models/{name}":      {"operator"},
	"GET /v1/models/{name}/levels": {"operator"},

	"PATCH /v1/models/{name}/upstreams/{upstream}": {"operator"},
	"GET /v1/routing":                      {"operator"},
	"PUT /v1/routing":                      {"operator"},
	"GET /v1/routing/revisions":            {"operator"},
	"GET /v1/routing/revisions/{revision}": {"operator"},
	"POST /v1/routing/activate":            {"operator"},
	"GET /v1/usage/sums":                   {"user", "operator"},

	"GET /v1/reconciliation":         {"operator"},
	"POST /v1/reconciliation":        {"operator"},
	"GET /v1/queues":                 {"operator"},
	"GET /v1/pools":                  {"operator"},
	"GET /v1/pools/{id}":             {"operator"},
	"PUT /v1/pools/{id}":             {"operator"},
	"DELETE /v1/pools/{id}":          {"operator"},
	"GET /v1/teams":                  {"operator"},
	"GET /v1/teams/{id}":             {"operator"},
	"PUT /v1/teams/{id}":             {"operator"},
	"DELETE /v1/teams/{id}":          {"operator"},
	"GET /v1/apps":                   {"operator"},
	"GET /v1/apps/{id}":              {"operator"},
	"PUT /v1/apps/{id}":              {"operator"},
	"DELETE /v1/apps/{id}":           {"operator"},
	"GET /v1/budgets":                {"team", "operator"},
	"GET /v1/budgets/{kind}/{id}":    {"team", "operator"},
	"PUT /v1/budgets/{kind}/{id}":    {"team", "operator"},
	"DELETE /v1/budgets/{kind}/{id}": {"team", "operator"},

	"POST /v1/keys":        {"team", "operator"},
	"GET /v1/keys":         {"team", "operator"},
	"GET /v1/keys/{id}":    {"team", "operator"},
	"PUT /v1/keys/{id}":    {"team", "operator"},
	"DELETE /v1/keys/{id}": {"team", "operator"},

	"POST /v1/webhooks":                                     {"team", "operator"},
	"GET /v1/webhooks":                                      {"team", "operator"},
	"GET /v1/webhooks/{id}":                                 {"team", "operator"},
	"PUT /v1/webhooks/{id}":                                 {"team", "operator"},
	"DELETE /v1/webhooks/{id}":                              {"team", "operator"},
	"POST /v1/webhooks/{id}/secret":                         {"team", "operator"},
	"POST /v1/webhooks/{id}/test":                           {"team", "operator"},
	"GET /v1/webhooks/{id}/deliveries":                      {"team", "operator"},
	"POST /v1/webhooks/{id}/deliveries/{deliveryId}/resend": {"team", "operator"},
	"PUT /v1/tenants/{id}/pool":                             {"operator"},
	"DELETE /v1/tenants/{id}/pool":                          {"operator"},
	"GET /v1/config/strategy":                               {"operator"},
	"PUT /v1/config/strategy":                               {"operator"},
	"GET /v1/config/services":                               {"operator"},
	"PUT /v1/config/services":                               {"operator"},
	"GET /v1/stats/excludes":                                {"operator"},
	"GET /v1/audit":                                         {"user", "operator"},
	"GET /v1/usage":                                         {"user", "operator"},

	"GET /v1/accounts/{userId}":          {"operator"},
	"GET /v1/accounts/{userId}/entries":  {"operator"},
	"POST /v1/accounts/{userId}/credits": {"operator"},

	"GET /v1/templates/{name}":                    {"operator"},
	"PUT /v1/templates/{name}":                    {"operator"},
	"DELETE /v1/templates/{name}":                 {"operator"},
	"GET /v1/templates/{name}/versions":           {"operator"},
	"GET /v1/templates/{name}/versions/{version}": {"operator"},
	"POST /v1/templates/{name}/activate":          {"operator"},
	"POST /v1/templates/{name}/render":            {"operator"},

	"GET /v1/events":                {"operator"},
	"GET /v1/overview":              {"operator"},
	"GET /v1/executions":            {"operator"},
	"GET /v1/sessions":              {"operator"},
	"GET /v1/turns":                 {"operator"},
	"GET /v1/turns/{id}/dispatches": {"operator"},
	"GET /v1/accounts":              {"operator"},

	"GET /v1/turns/{id}":               {"user", "operator"},
	"GET /v1/sessions/{id}":            {"user", "operator"},
	"GET /v1/executions/{id}":          {"user", "operator"},
	"DELETE /v1/executions/{id}":       {"user", "operator"},
	"POST /v1/assignments":             {"node", "operator"},
	"PUT /v1/assignments/{leaseId}":    {"node", "operator"},
	"DELETE /v1/assignments/{leaseId}": {"node", "operator"},
}

// asking has a valid body for each route that rejects an empty one.
var asking = map[string]doc{
	"PUT /v1/sessions/{id}":        {"srcLang": "en", "tgtLang": "es"},
	"POST /v1/sessions/{id}/jobs":  {"requestId": "r1", "segment": doc{"index": 0, "text": "hello"}},
	"POST /v1/turns/{id}/finalize": {},

	"POST /v1/conferences/{e164}/participants": {"identity": "eve"},
	"POST /v1/conferences/{e164}/links":        {},
}

func signed(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	s, err := jwt.NewWithClaims(method, claims).SignedString(key)
	require.NoError(t, err)
	return s
}

// good returns valid claims, with changes applied.
func good(change ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{"sub": "alice", "aud": "berth", "scope": "user", "exp": time.Now().Add(time.Hour).Unix()}
	for _, f := range change {
		f(c)
	}
	return c
}

func claim(key string, v any) func(jwt.MapClaims) {
	return func(c jwt.MapClaims) {
		if v == nil {
			delete(c, key)
			return
		}
		c[key] = v
	}
}

func TestRoutes_TokenWithoutScope_AreRejected(t *testing.T) { // P15
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "the secret answer of alice")
	_, err := h.ledger.PutSession(t.Context(), berth.Session{ID: "t1", UserID: "alice", SrcLang: "en", TgtLang: "es"})
	require.NoError(t, err)
	require.NoError(t, h.ledger.SaveConference(t.Context(), berth.Conference{
		ID: "c-1", UserID: "alice", Status: berth.ConferenceEnded, ConferenceSpec: berth.ConferenceSpec{E164: "8613800000001"},
	}))
	h.join("n1")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	hs := func(f ...func(jwt.MapClaims)) string {
		return signed(t, jwt.SigningMethodHS256, []byte(secret), good(f...))
	}
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/tasks/t1", hs(), nil).status, "the valid token is accepted")
	ticket := h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"taskId": "t1"}).json(t)["ticket"].(string)

	tokens := map[string]string{
		"none":            "",
		"garbage":         "garbage",
		"expired":         hs(claim("exp", time.Now().Add(-time.Minute).Unix())),
		"no expiry":       hs(claim("exp", nil)),
		"not yet":         hs(claim("nbf", time.Now().Add(time.Hour).Unix())),
		"wrong audience":  hs(claim("aud", "events")),
		"no audience":     hs(claim("aud", nil)),
		"no subject":      hs(claim("sub", nil)),
		"odd subject":     hs(claim("sub", "alice\nsvc")),
		"long subject":    hs(claim("sub", strings.Repeat("a", 256))),
		"another secret":  signed(t, jwt.SigningMethodHS256, []byte("another secret of the same length...."), good()),
		"alg none":        signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good()),
		"another hmac":    signed(t, jwt.SigningMethodHS512, []byte(secret), good()),
		"asymmetric":      signed(t, jwt.SigningMethodRS256, rsaKey, good()),
		"ticket":          ticket,
		"signature cut":   hs()[:len(hs())-4],
		"payload swapped": swapPayload(hs(), hs(claim("sub", "bob"))),
		"API key":         apikey.NewSecret(), // O3
	}
	for _, route := range described(t, h) {
		method, path, _ := strings.Cut(route, " ")
		one := braces.MatchString(path)
		path = braces.ReplaceAllString(strings.ReplaceAll(path, "{e164}", "8613800000001"), "t1")
		isPublic := false
		for _, p := range public {
			isPublic = isPublic || p == route
		}
		if status, own := ownTokens[route]; own {
			require.Equal(t, status, h.call(method, path, "", doc{}).status, route)
			continue
		}
		if isPublic {
			require.Equal(t, http.StatusOK, h.call(method, path, "", nil).status, route)
			continue
		}
		for name, token := range tokens {
			a := h.call(method, path, token, nil)
			require.Equal(t, http.StatusUnauthorized, a.status, "%s with %s: %s", route, name, a.body)
			require.Equal(t, berth.CodeUnauthenticated, a.problem.Code, "%s with %s", route, name)
			require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer", "%s with %s", route, name)
			require.NotContains(t, string(a.body), "secret answer")
			require.Equal(t, name == "API key", strings.Contains(a.problem.Detail, "API keys are for /openai/v1"), "%s with %s", route, name)
		}
		if path == "/v1/me" {
			continue
		}
		var body any
		if d, ok := asking[route]; ok {
			body = d
		}
		allowed, ok := scopesOf[route]
		if !ok {
			allowed = []string{"user"}
		}
		for _, scope := range []string{"", "user", "node", "operator", "users", "USER", "nodes", "user,node"} {
			if slices.Contains(allowed, scope) {
				continue
			}
			a := h.call(method, path, hs(claim("scope", scope)), nil)
			require.Equal(t, http.StatusForbidden, a.status, "%s with scope %q", route, scope)
			require.Contains(t, a.header.Get("WWW-Authenticate"), "insufficient_scope")
		}
		if one && slices.Contains(allowed, "user") && route != "PUT /v1/sessions/{id}" { // which creates one of the other user
			a := h.call(method, path, h.token("bob"), body)
			require.Equal(t, http.StatusNotFound, a.status, "%s as another user: %s", route, a.body)
			require.NotContains(t, string(a.body), "alice")
		}
		if method == http.MethodGet { // a bearer token in the query is not accepted
			for _, q := range []string{"?token=", "?access_token=", "?ticket="} {
				a := h.call(method, path+q+h.token("alice"), "", nil)
				require.Equal(t, http.StatusUnauthorized, a.status, route+q)
			}
		}
	}
	log := h.log.String()
	require.NotEmpty(t, log)
	for name, token := range tokens {
		if len(token) > 10 {
			require.NotContains(t, log, token[len(token)-10:], "token %q is in the log", name)
		}
	}
}

// swapPayload returns token a with the payload of token b.
func swapPayload(a, b string) string {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	return strings.Join([]string{x[0], y[1], x[2]}, ".")
}

func TestTicket_OtherTask_IsRejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "answer one")
	h.finish(h.task("alice", "t2"), "answer two")
	h.finish(h.task("bob", "t3"), "answer three")
	a := h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"taskId": "t1"})
	require.Equal(t, http.StatusCreated, a.status)
	url, _ := a.json(t)["eventsUrl"].(string)
	events := h.call(http.MethodGet, url, "", nil)
	require.Equal(t, http.StatusOK, events.status)
	require.Contains(t, string(events.body), "answer one")

	ticket, _ := a.json(t)["ticket"].(string)
	for _, path := range []string{"/v1/tasks/t2/events", "/v1/tasks/t3/events", "/v1/tasks/t1", "/v1/tasks", "/v1/me"} {
		require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, path+"?ticket="+ticket, "", nil).status, path)
	}
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, url, "garbage", nil).status, "a ticket does not replace an invalid header")
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/tickets", h.token("bob"), doc{"taskId": "t1"}).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/tickets", h.token("alice"), doc{"taskId": "t9"}).status)
	require.NotContains(t, h.log.String(), ticket, "the query is not logged")
}

func TestTicket_Expired_IsRejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "answer")
	old := newHarness(t, func(d *api.Deps) {
		d.Clock = func() time.Time { return time.Now().Add(-identity.MaxTicketTTL) }
	})
	old.task("alice", "t1")
	// The token has no not-before time, so it is also valid for a server whose clock is behind.
	a := old.call(http.MethodPost, "/v1/tickets", old.token("alice"), doc{"taskId": "t1"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	url, _ := a.json(t)["eventsUrl"].(string)
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, url, "", nil).status)
}
