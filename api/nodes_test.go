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
)

const waitLimit = 20 * time.Second // for conditions that normally hold much sooner

// agent returns the registration of a node.
func agent(id string, change ...func(doc)) doc {
	d := doc{
		"nodeId": id, "kind": "translate", "incarnation": doc{"host": "10.0.0.1", "pid": 7, "startedAt": 1_700_000_000_000},
		"capabilities": []string{"translate:en-es"}, "maxConcurrentJobs": 2,
	}
	for _, c := range change {
		c(d)
	}
	return d
}

func (h *harness) nodeToken() string { return h.token("agent", identity.ScopeNode) }

func (h *harness) operator() string { return h.token("olga", identity.ScopeOperator) }

// join registers a node over HTTP and returns its generation.
func (h *harness) join(id string, change ...func(doc)) int64 {
	h.t.Helper()
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent(id, change...))
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	return int64(a.json(h.t)["generation"].(float64))
}

// seen waits until the API's snapshot of the fleet satisfies is.
func (h *harness) seen(what string, is func(s *fleet.Snapshot) bool) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return is(h.fleet.Snapshot()) }, waitLimit, time.Millisecond, what)
}

func (h *harness) beat(id string, generation int64, change ...func(doc)) answer {
	h.t.Helper()
	d := doc{"generation": generation, "cpuUsage": 10, "memoryUsage": 20, "currentJobs": 1, "latencyMs": 3.5}
	for _, c := range change {
		c(d)
	}
	return h.call(http.MethodPost, "/v1/nodes/"+id+"/heartbeat", h.nodeToken(), d)
}

// L3, L4: a node registers, reports its load, and withdraws.
func TestNode_Lifecycle_RegistersHeartbeatsWithdraws(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n1", with("hostname", "h1"), with("zone", "z1")))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := a.json(t)
	generation := int64(d["generation"].(float64))
	require.Positive(t, generation)
	require.Equal(t, berth.NodeTaskQueue("n1", generation), d["taskQueue"])
	require.EqualValues(t, 5000, d["heartbeatIntervalMs"])
	require.Equal(t, []any{"translate:en-es"}, d["pools"])
	require.Equal(t, false, d["existing"])

	again := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n1")).json(t)
	require.Equal(t, true, again["existing"], "the same incarnation keeps its generation")
	require.EqualValues(t, generation, again["generation"])

	beat := h.beat("n1", generation) // accepted before the snapshot has the node
	require.Equal(t, http.StatusOK, beat.status, string(beat.body))
	require.Equal(t, doc{"heartbeatIntervalMs": 5000.0, "cordoned": false}, beat.json(t))
	h.seen("registered", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Generation == generation })

	got := h.call(http.MethodGet, "/v1/nodes/n1", h.nodeToken(), nil)
	require.Equal(t, http.StatusOK, got.status)
	n := got.json(t)
	require.Equal(t, "ready", n["state"])
	require.Equal(t, false, n["stale"])
	require.EqualValues(t, 2, n["maxConcurrentJobs"])
	require.Equal(t, doc{
		"cpuUsage": 10.0, "memoryUsage": 20.0, "currentJobs": 1.0, "activeWorkflows": 0.0, "latencyMs": 3.5,
	}, n["load"], "the usage of the GPU is not known")
	require.Equal(t, http.StatusOK, h.beat("n1", generation, func(d doc) { d["gpuUsage"] = 0 }).status)
	require.EqualValues(t, 0, h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t)["load"].(doc)["gpuUsage"], "an idle GPU")

	wrong := h.call(http.MethodDelete, fmt.Sprintf("/v1/nodes/n1?generation=%d", generation+1), h.nodeToken(), nil)
	require.Equal(t, http.StatusNotFound, wrong.status, "the node has another generation")
	left := h.call(http.MethodDelete, fmt.Sprintf("/v1/nodes/n1?generation=%d", generation), h.nodeToken(), nil)
	require.Equal(t, http.StatusNoContent, left.status, string(left.body))
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, "/v1/nodes/n1", h.operator(), nil).status, "the node is already dead")
	require.Equal(t, "dead", h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t)["state"])

	next := h.join("n1")
	require.Greater(t, next, generation, "a dead generation is never reused")
}

// A media unit registers where participants reach its server; a registration replaces it.
func TestNode_MediaUnit_ClientURLListed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, at := range []string{"ws://10.0.0.1:7880", "wss://media.test/path"} {
		generation := h.join("u1", with("kind", "media"), with("clientUrl", at), with("keyId", "key1"))
		h.seen("registered", func(s *fleet.Snapshot) bool {
			n := s.Nodes["u1"]
			return n.Generation == generation && n.ClientURL == at && n.KeyID == "key1"
		})
		n := h.call(http.MethodGet, "/v1/nodes/u1", h.operator(), nil).json(t)
		require.Equal(t, at, n["clientUrl"])
		require.Equal(t, "key1", n["keyId"])
	}
}

// P10: a heartbeat of an unknown, superseded or dead generation changes nothing, and its reply requests a registration.
func TestHeartbeat_UnknownGeneration_MustRegisterAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	old := h.join("n1")
	now := h.join("n1", func(d doc) { d["incarnation"].(doc)["startedAt"] = 1_700_000_000_001 })
	require.Greater(t, now, old)
	dead := h.join("n2")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n2", h.nodeToken(), nil).status)
	for name, a := range map[string]answer{
		"unknown node": h.beat("unknown", 1), "superseded": h.beat("n1", old), "future": h.beat("n1", now+1), "dead": h.beat("n2", dead),
	} {
		require.Equal(t, http.StatusConflict, a.status, name)
		require.Equal(t, berth.CodeConflict, a.problem.Code, name)
		require.Contains(t, a.problem.Detail, "register again", name)
		require.Equal(t, "generation", a.problem.Field, name)
	}
	require.Equal(t, http.StatusOK, h.beat("n1", now).status)
	stale := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n1"))
	require.Equal(t, http.StatusConflict, stale.status, "a process that was replaced cannot register")
	require.Equal(t, "incarnation.startedAt", stale.problem.Field)
}

// S4: engines name their capabilities supportedExecutors.
func TestRegister_SupportedExecutors_AreCapabilities(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("e1", without("capabilities"), with("kind", "engine"),
		with("supportedExecutors", []string{"http", "llm"})))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, []any{"http", "llm"}, a.json(t)["pools"])
	require.EqualValues(t, 30_000, a.json(t)["heartbeatIntervalMs"], "S6")
}

// L4: a node that translates any-to-any between nine languages has 72 pairs, each of which is a pool.
func TestRegister_Languages_EveryPairIsAPool(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	nine := []string{"ar", "de", "en", "es", "fr", "ja", "pt", "ru", "zh"}
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n9", with("capabilities", []string{"gpu", "translate:ar-de"}),
		with("languages", doc{"sources": nine, "targets": nine})))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	pools := a.json(t)["pools"].([]any)
	require.Len(t, pools, 1+9*8)
	require.Contains(t, pools, "gpu")
	require.Contains(t, pools, "translate:zh-ru")
	require.NotContains(t, pools, "translate:zh-zh")
	a = h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n1", without("capabilities"),
		with("languages", doc{"sources": []string{"en", "en"}, "targets": []string{"en", "es", "fr"}})))
	require.Equal(t, []any{"translate:en-es", "translate:en-fr"}, a.json(t)["pools"])
}

func TestRegister_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	incarnation := func(key string, v any) func(doc) {
		return func(d doc) { d["incarnation"].(doc)[key] = v }
	}
	long := strings.Repeat("a", 129)
	for name, tc := range map[string]struct {
		body  any
		field string
	}{
		"empty":                        {``, "body"},
		"no JSON":                      {`{"nodeId"`, "body"},
		"no object":                    {`[]`, "body"},
		"no id":                        {agent("n", without("nodeId")), "nodeId"},
		"empty id":                     {agent(""), "nodeId"},
		"id with a slash":              {agent("a/b"), "nodeId"},
		"id with a colon":              {agent("a:b"), "nodeId"},
		"long id":                      {agent(long), "nodeId"},
		"unknown kind":                 {agent("n", with("kind", "toaster")), "kind"},
		"no kind":                      {agent("n", without("kind")), "kind"},
		"kind as number":               {agent("n", with("kind", 1)), "kind"},
		"no incarnation":               {agent("n", without("incarnation")), "incarnation"},
		"incarnation as text":          {agent("n", with("incarnation", "x")), "incarnation"},
		"no host":                      {agent("n", incarnation("host", "")), "incarnation.host"},
		"host with a line break":       {agent("n", incarnation("host", "a\nb")), "incarnation.host"},
		"pid 0":                        {agent("n", incarnation("pid", 0)), "incarnation.pid"},
		"pid as text":                  {agent("n", incarnation("pid", "7")), "incarnation.pid"},
		"pid of a fraction":            {agent("n", incarnation("pid", 1.5)), "incarnation.pid"},
		"start 0":                      {agent("n", incarnation("startedAt", 0)), "incarnation.startedAt"},
		"start beyond numbers":         {agent("n", incarnation("startedAt", 1e17)), "incarnation.startedAt"},
		"no slots":                     {agent("n", with("maxConcurrentJobs", 0)), "maxConcurrentJobs"},
		"negative slots":               {agent("n", with("maxConcurrentJobs", -1)), "maxConcurrentJobs"},
		"too many slots":               {agent("n", with("maxConcurrentJobs", 100_001)), "maxConcurrentJobs"},
		"slots as text":                {agent("n", with("maxConcurrentJobs", "4")), "maxConcurrentJobs"},
		"wrong language":               {agent("n", with("capabilities", []string{"translate:en-xx"})), "capabilities"},
		"wrong pair":                   {agent("n", with("capabilities", []string{"translate:en"})), "capabilities"},
		"capability of a blank":        {agent("n", with("capabilities", []string{"a b"})), "capabilities"},
		"capability with a line break": {agent("n", with("capabilities", []string{"a\nb"})), "capabilities"},
		"capability of a plus":         {agent("n", with("capabilities", []string{"a+b"})), "capabilities"},
		"empty capability":             {agent("n", with("capabilities", []string{""})), "capabilities"},
		"long capability":              {agent("n", with("capabilities", []string{long})), "capabilities"},
		"too many capabilities":        {agent("n", with("capabilities", many(1001))), "capabilities"},
		"capability as number":         {agent("n", with("capabilities", []any{1})), "capabilities[0]"},
		"wrong executor":               {agent("n", without("capabilities"), with("supportedExecutors", []string{"a b"})), "supportedExecutors"},
		"too many executors":           {agent("n", without("capabilities"), with("supportedExecutors", many(1001))), "supportedExecutors"},
		"no sources":                   {agent("n", with("languages", map[string]any{"sources": []string{}, "targets": []string{"en"}})), "languages.sources"},
		"no targets":                   {agent("n", with("languages", map[string]any{"sources": []string{"en"}, "targets": []string{}})), "languages.targets"},
		"wrong source":                 {agent("n", with("languages", map[string]any{"sources": []string{"xx"}, "targets": []string{"en"}})), "languages.sources"},
		"wrong target":                 {agent("n", with("languages", map[string]any{"sources": []string{"en"}, "targets": []string{"english"}})), "languages.targets"},
		"no pair":                      {agent("n", with("languages", map[string]any{"sources": []string{"en"}, "targets": []string{"en"}})), "languages"},
		"both":                         {agent("n", with("supportedExecutors", []string{"a"})), "supportedExecutors"},
		"zone with a line break":       {agent("n", with("zone", "a\nb")), "zone"},
		"zone with a separator":        {agent("n", with("zone", "a\x01b")), "zone"},
		"long hostname":                {agent("n", with("hostname", long)), "hostname"},
		"negative generation":          {agent("n", with("previousGeneration", -1)), "previousGeneration"},
		"client URL of no media unit":  {agent("n", with("clientUrl", "ws://h"), with("keyId", "k")), "clientUrl"},
		"client URL without key":       {agent("n", with("kind", "media"), with("clientUrl", "ws://h")), "keyId"},
		"key without client URL":       {agent("n", with("kind", "media"), with("keyId", "k")), "clientUrl"},
		"client URL of another scheme": {agent("n", with("kind", "media"), with("clientUrl", "http://h"), with("keyId", "k")), "clientUrl"},
		"client URL with a user":       {agent("n", with("kind", "media"), with("clientUrl", "ws://u:p@h"), with("keyId", "k")), "clientUrl"},
		"client URL with a query":      {agent("n", with("kind", "media"), with("clientUrl", "ws://h/?a=b"), with("keyId", "k")), "clientUrl"},
		"client URL without host":      {agent("n", with("kind", "media"), with("clientUrl", "ws://:80"), with("keyId", "k")), "clientUrl"},
		"key with a line break":        {agent("n", with("kind", "media"), with("clientUrl", "ws://h"), with("keyId", "a\nb")), "keyId"},
		"unknown field":                {agent("n", with("slots", 4)), "slots"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), tc.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, berth.CodeInvalid, a.problem.Code)
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
			require.NotEmpty(t, a.problem.Detail)
		})
	}
	huge := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n", with("zone", strings.Repeat("a", 5<<20))))
	require.Equal(t, http.StatusRequestEntityTooLarge, huge.status)
	require.Empty(t, h.call(http.MethodGet, "/v1/nodes", h.operator(), nil).json(t)["nodes"], "no partial write")
}

func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("c%d", i)
	}
	return out
}

func TestHeartbeat_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	g := h.join("n1")
	for name, tc := range map[string]struct {
		change func(doc)
		field  string
	}{
		"no generation":      {without("generation"), "generation"},
		"generation 0":       {with("generation", 0), "generation"},
		"generation as text": {with("generation", "1"), "generation"},
		"cpu over":           {with("cpuUsage", 100.5), "cpuUsage"},
		"cpu under":          {with("cpuUsage", -1), "cpuUsage"},
		"gpu over":           {with("gpuUsage", 101), "gpuUsage"},
		"memory as text":     {with("memoryUsage", "1"), "memoryUsage"},
		"memory over":        {with("memoryUsage", 1e300), "memoryUsage"},
		"negative jobs":      {with("currentJobs", -1), "currentJobs"},
		"too many jobs":      {with("currentJobs", 1_000_001), "currentJobs"},
		"half a workflow":    {with("activeWorkflows", 0.5), "activeWorkflows"},
		"negative workflows": {with("activeWorkflows", -1), "activeWorkflows"},
		"negative latency":   {with("latencyMs", -1), "latencyMs"},
		"endless latency":    {with("latencyMs", 1e9), "latencyMs"},
		"unknown field":      {with("cpu", 1), "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.beat("n1", g, tc.change)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
		})
	}
	require.Equal(t, "nodeId", h.beat(url.PathEscape("a b"), g).problem.Field)
	require.Equal(t, http.StatusOK, h.beat("n1", g, without("cpuUsage"), without("memoryUsage"), without("currentJobs"), without("latencyMs")).status)
}

// S11: operator settings are separate from health, survive registrations, and are returned with heartbeats.
func TestNodeSettings_CordonAndDrain_NodeExcluded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	g := h.join("n1")
	set := func(what string, body any) answer {
		return h.call(http.MethodPost, "/v1/nodes/n1/"+what, h.operator(), body)
	}
	for _, what := range []string{"cordon", "uncordon", "drain", "undrain"} {
		require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/nodes/unknown/"+what, h.operator(), nil).status, what)
		require.Equal(t, http.StatusForbidden, h.call(http.MethodPost, "/v1/nodes/n1/"+what, h.nodeToken(), nil).status, what)
	}
	a := set("cordon", nil)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, doc{"nodeId": "n1", "cordoned": true}, a.json(t))
	for range 20 { // the response is read from Redis, not from the snapshot
		require.Equal(t, doc{"heartbeatIntervalMs": 5000.0, "cordoned": true}, h.beat("n1", g).json(t))
		set("uncordon", nil)
		require.Equal(t, doc{"heartbeatIntervalMs": 5000.0, "cordoned": false}, h.beat("n1", g).json(t))
		set("cordon", nil)
	}
	require.Equal(t, true, h.beat("n1", g).json(t)["cordoned"])
	g = h.join("n1", func(d doc) { d["incarnation"].(doc)["pid"] = 8 })
	require.Equal(t, "cordoned", h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t)["excluded"])

	before := time.Now()
	d := set("drain", nil).json(t)
	until, err := time.Parse(time.RFC3339Nano, d["drainUntil"].(string))
	require.NoError(t, err)
	require.WithinRange(t, until, before.Add(4*time.Minute), time.Now().Add(6*time.Minute))
	require.Equal(t, true, d["cordoned"])
	d = set("drain", doc{"withinMs": 3_600_000}).json(t)
	until, err = time.Parse(time.RFC3339Nano, d["drainUntil"].(string))
	require.NoError(t, err)
	require.WithinRange(t, until, before.Add(59*time.Minute), time.Now().Add(61*time.Minute))
	require.Equal(t, d["drainUntil"], h.beat("n1", g).json(t)["drainUntil"])
	h.seen("draining", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].DrainUntil.Equal(until) })
	at := set("drain", doc{"withinMs": 0}).json(t)["drainUntil"].(string)
	until, err = time.Parse(time.RFC3339Nano, at)
	require.NoError(t, err)
	require.WithinRange(t, until, before.Add(-time.Second), time.Now().Add(time.Second), "the drain ends immediately")

	require.Equal(t, doc{"nodeId": "n1", "cordoned": true}, set("undrain", nil).json(t))
	require.Equal(t, doc{"nodeId": "n1", "cordoned": false}, set("uncordon", nil).json(t))
	for _, bad := range []any{-1, 86_400_001, "x"} {
		a := set("drain", doc{"withinMs": bad})
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Equal(t, "withinMs", a.problem.Field)
	}
	require.Equal(t, "nodeId", h.call(http.MethodPost, "/v1/nodes/a%20b/cordon", h.operator(), nil).problem.Field)
}

// L10: a node is excluded for a service that is marked unavailable until the mark expires.
func TestMarkUnavailable_Service_NodeExcludedUntilItExpires(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	path := "/v1/nodes/n1/services/tts/unavailable"
	ask := doc{"poolId": "translate:en-es", "services": []string{"tts"}}
	a := h.call(http.MethodPut, path, h.nodeToken(), doc{"ttlMs": 60_000})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, doc{"nodeId": "n1", "service": "tts", "ttlMs": 60_000.0}, a.json(t))
	n := h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t)
	require.Len(t, n["unavailable"], 1)
	until, err := time.Parse(time.RFC3339Nano, n["unavailable"].(doc)["tts"].(string))
	require.NoError(t, err)
	require.WithinRange(t, until, time.Now().Add(30*time.Second), time.Now().Add(90*time.Second))
	h.seen("marked", func(s *fleet.Snapshot) bool { return s.Nodes["n1"].Unavailable["tts"].Equal(until) })
	list := h.call(http.MethodGet, "/v1/nodes", h.operator(), nil).json(t)["nodes"].([]any)
	require.Equal(t, n["unavailable"], list[0].(doc)["unavailable"])
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/nodes/n1/services/asr/unavailable", h.nodeToken(), doc{"ttlMs": 1}).status)
	waitFor(t, "the other to be available again", func() bool {
		return !strings.Contains(string(h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).body), "asr")
	})
	refused := h.assign(ask)
	require.Equal(t, http.StatusServiceUnavailable, refused.status, string(refused.body))
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceUnavailable: 1}, refused.problem.Reasons)
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, path, h.operator(), doc{"ttlMs": 0}).status)
	require.NotContains(t, h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t), "unavailable")
	require.Equal(t, http.StatusOK, h.assign(ask).status)

	require.Equal(t, "ttlMs", h.call(http.MethodPut, path, h.operator(), doc{"ttlMs": -1}).problem.Field)
	require.Equal(t, "ttlMs", h.call(http.MethodPut, path, h.operator(), doc{}).problem.Field)
	require.Equal(t, "service", h.call(http.MethodPut, "/v1/nodes/n1/services/a%2Fb/unavailable", h.operator(), doc{"ttlMs": 1}).problem.Field)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPut, "/v1/nodes/n2/services/tts/unavailable", h.operator(), doc{"ttlMs": 1}).status)
}
