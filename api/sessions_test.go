package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/identity"
	"berth/lua"
)

// node registers a translating node and waits until the API's snapshot has it.
func (h *harness) node(id string, capabilities ...string) berth.Node {
	h.t.Helper()
	r, err := h.scripts.RegisterNode(h.t.Context(), berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "h", PID: 1, StartedAt: 1},
		Capabilities: capabilities, MaxConcurrentJobs: 4,
	}, lua.Registration{})
	require.NoError(h.t, err)
	waitFor(h.t, "the node to be known", func() bool { return h.fleet.Snapshot().Nodes[id].Generation == r.Generation })
	return h.fleet.Snapshot().Nodes[id]
}

// session creates a session, English to Spanish unless languages are given.
func (h *harness) session(user, id string, languages ...string) answer {
	h.t.Helper()
	if len(languages) == 0 {
		languages = []string{"en", "es"}
	}
	return h.call(http.MethodPut, "/v1/sessions/"+id, h.token(user), doc{"srcLang": languages[0], "tgtLang": languages[1]})
}

func TestPutSession_LanguagePair_GetsPool(t *testing.T) { // L5
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "translate:en-fr")
	a := h.session("alice", "s1")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := a.json(t)
	require.Equal(t, "NEW", d["decision"])
	require.Equal(t, "s1", d["sessionId"])
	require.Equal(t, "alice", d["userId"])
	require.Equal(t, "translate:en-es", d["preferredPool"])
	require.Equal(t, "s1", d["routingKey"], "without a tenant the session id is the routing key")
	require.Equal(t, "/v1/sessions/s1/events", d["eventsUrl"])
	require.NotEmpty(t, d["updatedAt"])
	require.Equal(t, "EXISTS", h.session("alice", "s1").json(t)["decision"])

	d = h.session("alice", "s1", "en", "fr").json(t)
	require.Equal(t, "RESET", d["decision"])
	require.Equal(t, "translate:en-fr", d["preferredPool"])
	got := h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "fr", got.json(t)["tgtLang"])
	require.Equal(t, "translate:en-fr", got.json(t)["preferredPool"])
}

func TestPutSession_Tenant_GetsItsPool(t *testing.T) { // L5, L8
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "gpu")
	_, err := h.scripts.DefinePool(t.Context(), berth.Pool{ID: "zz-fast", Capabilities: []string{"translate:en-es", "gpu"}}, false)
	require.NoError(t, err)
	require.NoError(t, h.scripts.BindTenant(t.Context(), "acme", "zz-fast"))
	waitFor(t, "the binding to be known", func() bool {
		s := h.fleet.Snapshot()
		return s.Tenants["acme"] == "zz-fast" && len(s.Pools) == 1
	})
	acme := h.grant(identity.Grant{UserID: "alice", Scopes: []string{"user"}, TenantID: "acme"})
	d := h.call(http.MethodPut, "/v1/sessions/s1", acme, doc{"srcLang": "en", "tgtLang": "es"}).json(t)
	require.Equal(t, "zz-fast", d["preferredPool"])
	require.Equal(t, "acme", d["routingKey"])
	require.Equal(t, "acme", d["tenantId"])
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/strategy", h.operator(), doc{"sessionAffinity": false}).status)
	d = h.session("alice", "s2").json(t)
	require.Equal(t, "translate:en-es", d["preferredPool"], "without affinity the first pool")
	d = h.call(http.MethodPut, "/v1/sessions/s2", acme, doc{"srcLang": "en", "tgtLang": "es"}).json(t)
	require.Equal(t, "EXISTS", d["decision"], "the current pool has precedence over the tenant's")
	require.Equal(t, "acme", d["tenantId"])
	require.Equal(t, "acme", h.call(http.MethodGet, "/v1/sessions/s2", h.token("alice"), nil).json(t)["tenantId"])
}

func TestPutSession_TenantJustBound_GetsItsPool(t *testing.T) { // L5, L8
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "gpu")
	root, acme := h.token("root", "operator"), h.grant(identity.Grant{UserID: "alice", Scopes: []string{"user"}, TenantID: "acme"})
	put := func(path string, body doc) {
		a := h.call(http.MethodPut, path, root, body)
		require.Less(t, a.status, 300, string(a.body))
	}
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/strategy", h.operator(), doc{"sessionAffinity": false}).status)
	for i := range 20 { // the snapshot may be updated before or after
		id := fmt.Sprint("s", i)
		put("/v1/pools/zz-"+id, doc{"capabilities": []string{"translate:en-es", "gpu"}})
		put("/v1/tenants/acme/pool", doc{"poolId": "zz-" + id})
		body := doc{"srcLang": "en", "tgtLang": "es", "tenantId": "acme"}
		require.Equal(t, "zz-"+id, h.call(http.MethodPut, "/v1/sessions/"+id, acme, body).json(t)["preferredPool"])
		require.Equal(t, "EXISTS", h.call(http.MethodPut, "/v1/sessions/"+id, acme, body).json(t)["decision"])
		require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/tenants/acme/pool", root, nil).status)
		require.NotEqual(t, "zz-"+id, h.call(http.MethodPut, "/v1/sessions/free-"+id, acme, body).json(t)["preferredPool"])
		require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/pools/zz-"+id, root, nil).status)
	}
}

// L5, L8, FA12: whether and how sessions are spread over pools is an operator's setting; every process follows it, also while Redis has
// lost it. A session that has a pool keeps it.
func TestPutSession_SessionAffinity_SpreadsByRoutingKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	_, err := h.scripts.DefinePool(t.Context(), berth.Pool{ID: "other", Capabilities: []string{"translate:en-es"}}, false)
	require.NoError(t, err)
	waitFor(t, "the pool to be known", func() bool { return len(h.fleet.Snapshot().Eligible("", "en", "es")) == 2 })
	set := func(body doc) {
		t.Helper()
		require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/strategy", h.operator(), body).status)
	}
	get := func(id, key string) any {
		body := doc{"srcLang": "en", "tgtLang": "es", "routingKey": key}
		return h.call(http.MethodPut, "/v1/sessions/"+id, h.token("alice"), body).json(t)["preferredPool"]
	}
	spread := func(round string) (pools []any) {
		kept := map[any]bool{}
		for i := range 12 {
			pools = append(pools, get(fmt.Sprint(round, i), fmt.Sprint("room-", i)))
			kept[get(fmt.Sprint(round, "k", i), "room-1")] = true
		}
		require.Len(t, kept, 1, "one routing key is one pool")
		return pools
	}
	first := spread("a")
	require.Contains(t, first, "other")
	require.Contains(t, first, "translate:en-es")
	require.Equal(t, first, spread("b"))

	set(doc{"hashSeed": 7})
	seeded := spread("c")
	require.NotEqual(t, first, seeded)
	require.Contains(t, seeded, "other")
	require.Contains(t, seeded, "translate:en-es")
	require.Equal(t, first[0], get("a0", "room-0"), "it keeps its pool")

	set(doc{"sessionAffinity": false})
	require.NotContains(t, spread("d"), "translate:en-es")
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().ConfigStrategy()).Err())
	h.fleet.CatchUp(t.Context())
	require.NotContains(t, spread("e"), "translate:en-es", "the last known setting applies until it is restored")
	set(doc{})
	require.Equal(t, first, spread("f"))
}

// FR8: the ids of sessions are unique among those of one user: those of another user with the same id are others, with other turns.
func TestSessions_SameIDOfTwoUsers_AreIndependent(t *testing.T) { // X5
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "translate:en-fr")
	users := []string{"alice", "bob", "https://login.example/u/42", "アリス"}
	turns := map[string]bool{}
	for i, user := range users {
		a := h.session(user, "demo", "en", []string{"es", "fr"}[i%2])
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, "NEW", a.json(t)["decision"])
		require.Equal(t, []any{"demo", user}, []any{a.json(t)["sessionId"], a.json(t)["userId"]})
		begun := h.call(http.MethodPost, "/v1/sessions/demo/jobs", h.token(user), job("r1"))
		require.Equal(t, http.StatusOK, begun.status, string(begun.body))
		require.Equal(t, false, begun.json(t)["replay"])
		turns[begun.json(t)["turnId"].(string)] = true
		again := h.call(http.MethodPost, "/v1/sessions/demo/jobs", h.token(user), job("r1"))
		require.Equal(t, begun.json(t)["turnId"], again.json(t)["turnId"])
		require.Equal(t, true, again.json(t)["replay"])
	}
	require.Len(t, turns, len(users))
	for i, user := range users {
		got := h.call(http.MethodGet, "/v1/sessions/demo", h.token(user), nil).json(t)
		require.Equal(t, []string{"es", "fr"}[i%2], got["tgtLang"])
		require.True(t, turns[got["currentTurnId"].(string)])
		named := h.call(http.MethodGet, "/v1/sessions/demo?userId="+url.QueryEscape(user), h.operator(), nil).json(t)
		require.Equal(t, got, named, "operators name the user")
		other := h.call(http.MethodGet, "/v1/sessions/demo?userId="+url.QueryEscape(users[(i+1)%len(users)]), h.token(user), nil)
		require.Equal(t, http.StatusForbidden, other.status, string(other.body))
		delete(turns, got["currentTurnId"].(string))
	}
	listed := h.call(http.MethodGet, "/v1/sessions", h.operator(), nil).json(t)["sessions"].([]any)
	require.Len(t, listed, len(users))
	for _, s := range listed {
		require.Equal(t, "demo", s.(doc)["sessionId"])
		require.Contains(t, users, s.(doc)["userId"])
	}
}

func TestSessions_OtherUser_ReturnNotFound(t *testing.T) { // X5
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "translate:en-fr")
	h.session("alice", "s1")
	for _, a := range []answer{
		h.call(http.MethodGet, "/v1/sessions/s1", h.token("bob"), nil),
		h.call(http.MethodGet, "/v1/sessions/s9", h.token("alice"), nil),
		h.call(http.MethodGet, "/v1/sessions/s1/events", h.token("bob"), nil),
		h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("bob"), job("r1")),
		h.call(http.MethodPost, "/v1/sessions/s9/jobs", h.token("alice"), job("r1")),
	} {
		require.Equal(t, http.StatusNotFound, a.status, string(a.body))
		require.Equal(t, berth.CodeNotFound, a.problem.Code)
		require.NotContains(t, string(a.body), "alice")
	}
	require.Equal(t, "es", h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil).json(t)["tgtLang"])
	// A session that Redis has lost still belongs to alice.
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.node("n1", "translate:en-es")
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("bob"), job("r1")).status)
}

func TestPutSession_InvalidBody_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	good := func(change ...func(doc)) doc {
		d := doc{"srcLang": "en", "tgtLang": "es"}
		for _, c := range change {
			c(d)
		}
		return d
	}
	for name, c := range map[string]struct {
		id     string
		body   any
		status int
		field  string
	}{
		"no body":              {"s1", ``, 400, "body"},
		"unknown source":       {"s1", good(with("srcLang", "xx")), 400, "srcLang"},
		"a language by name":   {"s1", good(with("tgtLang", "Spanish")), 400, "tgtLang"},
		"no target":            {"s1", good(without("tgtLang")), 400, "tgtLang"},
		"empty target":         {"s1", good(with("tgtLang", "")), 400, "tgtLang"},
		"nothing to translate": {"s1", good(with("tgtLang", "en")), 400, "tgtLang"},
		"odd tenant":           {"s1", good(with("tenantId", "a b")), 400, "tenantId"},
		"odd routing key":      {"s1", good(with("routingKey", "a\nb")), 400, "routingKey"},
		"unknown field":        {"s1", good(with("pool", "x")), 400, "pool"},
		"odd id":               {"s%20", good(), 400, "id"},
		"id with a slash":      {"a%2Fb", good(), 400, "id"},
		"id too long":          {strings.Repeat("s", 129), good(), 400, "id"},
		"unserved pair":        {"s1", good(with("tgtLang", "zh")), 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPut, "/v1/sessions/"+c.id, h.token("alice"), c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
		})
	}
	a := h.session("alice", "s1", "en", "zh")
	require.Equal(t, berth.CodeNoNode, a.problem.Code)
	require.Equal(t, []string{"translate:en-zh"}, a.problem.Missing, "it names the capability")
	require.Contains(t, a.problem.Detail, "translate:en-zh")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil).status, "no partial write")
}

func TestSessions_RedisUnavailable_Return503(t *testing.T) { // L11
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	h.session("alice", "s1")
	h.redis.Kill()
	waitFor(t, "the API to know", func() bool { return h.fleet.Snapshot().Stale })
	for _, a := range []answer{
		h.session("alice", "s2"),
		h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), job("r1")),
		h.call(http.MethodPost, "/v1/executions", h.token("alice"), doc{"executor": "ocr"}),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
		require.Equal(t, berth.CodeUnavailable, a.problem.Code)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	got := h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil)
	require.Equal(t, http.StatusOK, got.status, "reads need no Redis")
	require.Equal(t, "es", got.json(t)["tgtLang"])
	_, err := h.ledger.GetSession(t.Context(), "alice", "s2")
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "no partial write")

	h.redis.Restart()
	waitFor(t, "the API to know", func() bool { return !h.fleet.Snapshot().Stale })
	h.guarded()
	for _, early := range []answer{ // the node has not registered again yet
		h.session("alice", "s2"),
		h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), job("r1")),
	} {
		require.Equal(t, http.StatusServiceUnavailable, early.status, string(early.body))
		require.Equal(t, berth.CodeUnavailable, early.problem.Code)
		require.NotEmpty(t, early.header.Get("Retry-After"))
	}
	h.unguarded()
	require.Equal(t, berth.CodeNoNode, h.session("alice", "s2").problem.Code, "no node registered again during the grace period")
	h.node("n1", "translate:en-es")
	a := h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), job("r1"))
	require.Equal(t, http.StatusOK, a.status, "the session is restored from the database: %s", a.body)
}

// unguarded ends the grace period after a loss of data, so that a test need not wait for it.
func (h *harness) unguarded() { h.setGrace(time.UnixMilli(0)) }

// guarded begins the grace period, if a loss of data has not, and lets it last until unguarded.
func (h *harness) guarded() { h.setGrace(time.Now().Add(time.Hour)) }

func (h *harness) setGrace(until time.Time) {
	h.t.Helper()
	_, err := h.scripts.CheckGuard(h.t.Context())
	require.NoError(h.t, err)
	require.NoError(h.t, h.client.HSet(h.t.Context(), h.scripts.Keys().Guard(), "grace", until.UnixMilli()).Err())
}

// FR7: languages are BCP 47 tags in every spelling that clients use; what is stored and sent is canonical. A session gets the pool of the
// closest pair that nodes declare, and its nodes get the languages as they declared them.
func TestPutSession_LanguageTags_MatchWhatNodesDeclare(t *testing.T) { // L5
	t.Parallel()
	h := newHarness(t)
	for id, capability := range map[string]string{
		"pt": "translate:pt-en", "hans": "translate:zh-en", "hant": "translate:zh-TW-en", "he": "translate:iw-en", "latn": "translate:sr-Latn-en",
		"old": "translate:es-en", "exact": "translate:es_MX-en",
	} {
		h.join(id, with("capabilities", []string{capability}), with("maxConcurrentJobs", 100))
	}
	h.node("of an earlier version", "translate:in-en")
	h.seen("the nodes", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 8 })
	for sent, c := range map[string]struct{ stored, pool, node string }{
		"pt":          {"pt", "translate:pt-en", "pt"},
		"pt-BR":       {"pt-BR", "translate:pt-en", "pt"},
		"pt_PT.UTF-8": {"pt-PT", "translate:pt-en", "pt"},
		"zh":          {"zh", "translate:zh-en", "zh"},
		"zh-Hans-CN":  {"zh-Hans-CN", "translate:zh-en", "zh"},
		"cmn":         {"zh", "translate:zh-en", "zh"},
		"zh-TW":       {"zh-TW", "translate:zh_TW-en", "zh-TW"},
		"zh-Hant-HK":  {"zh-Hant-HK", "translate:zh_TW-en", "zh-TW"},
		"iw":          {"he", "translate:he-en", "he"},
		"he-IL":       {"he-IL", "translate:he-en", "he"},
		"sr_RS@latin": {"sr-Latn-RS", "translate:sr_Latn-en", "sr-Latn"},
		"ES-mx":       {"es-MX", "translate:es_MX-en", "es-MX"},
		"es-419":      {"es-419", "translate:es-en", "es"},
		"id-ID":       {"id-ID", "translate:in-en", "in"},
	} {
		a := h.session("alice", "s1", sent, "EN")
		require.Equal(t, http.StatusOK, a.status, "%s: %s", sent, a.body)
		got := a.json(t)
		require.Equal(t, []any{c.stored, "en", c.pool}, []any{got["srcLang"], got["tgtLang"], got["preferredPool"]}, sent)
		a = h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), job("r-"+strings.NewReplacer("@", "-").Replace(sent)))
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		src, tgt := h.fleet.Snapshot().Pair(c.pool, c.stored, "en")
		require.Equal(t, []string{c.node, "en"}, []string{src, tgt}, "as the node has declared them")
	}
	for sent, field := range map[string]string{"sr": "", "sr-Cyrl": "", "yue": "", "xx": "srcLang", "english": "srcLang", "en-US,en;q=0.9": "srcLang", "und": "srcLang", "en_US.UTF-8": "tgtLang"} {
		a := h.session("alice", "s1", sent, "en-US")
		require.Equal(t, field, a.problem.Field, "%s: %s", sent, a.body)
		if field == "" {
			require.Equal(t, berth.CodeNoNode, a.problem.Code, sent)
			require.Contains(t, a.problem.Missing[0], "translate:"+strings.ReplaceAll(sent, "-", "_"))
		}
	}
}
