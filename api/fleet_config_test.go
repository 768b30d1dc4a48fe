package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
)

// S6: the documented defaults apply until an operator changes them; a field that a change omits gets its default.
func TestPutStrategy_ValidConfiguration_Replaced(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const path = "/v1/config/strategy"
	get := func() doc { return h.call(http.MethodGet, path, h.operator(), nil).json(t) }
	defaults := get()
	require.Equal(t, doc{
		"memoryWeight": 0.5, "lockTimeoutMs": 300_000.0, "maxRetries": 3.0, "enableFailover": true, "stale": false,
		"gpuWeight": 0.0, "sessionAffinity": true, "hashSeed": 0.0,
		"dynamic": doc{"loadHigh": 0.8, "loadLow": 0.7, "latencyHighMs": 100.0, "latencyLowMs": 80.0, "dwellMs": 30_000.0},
		"times": doc{
			"translate": doc{"heartbeatIntervalMs": 5000.0, "suspectAfterMs": 12_000.0, "failureDetectionTimeoutMs": 20_000.0},
			"media":     doc{"heartbeatIntervalMs": 1000.0, "suspectAfterMs": 2500.0, "failureDetectionTimeoutMs": 4000.0},
			"engine":    doc{"heartbeatIntervalMs": 30_000.0, "suspectAfterMs": 60_000.0, "failureDetectionTimeoutMs": 90_000.0},
		},
	}, defaults)
	put := h.call(http.MethodPut, path, h.operator(), doc{
		"assignmentStrategy": "power-of-two", "enableFailover": false, "memoryWeight": 0, "maxRetries": 0,
		"gpuWeight": 1.5, "sessionAffinity": false, "hashSeed": 4294967295,
		"times":   doc{"translate": doc{"heartbeatIntervalMs": 1000, "suspectAfterMs": 2000, "failureDetectionTimeoutMs": 3000}},
		"dynamic": doc{"loadHigh": 0.9},
	})
	require.Equal(t, http.StatusOK, put.status, string(put.body))
	now := get()
	require.Equal(t, put.json(t), now)
	require.Equal(t, "power-of-two", now["assignmentStrategy"])
	require.Equal(t, false, now["enableFailover"], "false is not omitted")
	require.EqualValues(t, 0, now["memoryWeight"])
	require.EqualValues(t, 0, now["maxRetries"])
	require.Equal(t, []any{1.5, false, 4294967295.0}, []any{now["gpuWeight"], now["sessionAffinity"], now["hashSeed"]})
	require.EqualValues(t, 300_000, now["lockTimeoutMs"])
	require.Equal(t, doc{"loadHigh": 0.9, "loadLow": 0.7, "latencyHighMs": 100.0, "latencyLowMs": 80.0, "dwellMs": 30_000.0}, now["dynamic"])
	require.EqualValues(t, 4000, now["times"].(doc)["media"].(doc)["failureDetectionTimeoutMs"])
	h.seen("changed", func(s *fleet.Snapshot) bool { return s.Config.AssignmentStrategy == berth.StrategyPowerOfTwo })
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n1")).json(t)
	require.EqualValues(t, 1000, a["heartbeatIntervalMs"], "nodes receive the new interval")

	require.Equal(t, http.StatusOK, h.call(http.MethodPut, path, h.operator(), now).status, "the response of GET is a valid body")
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, path, h.operator(), doc{}).status)
	require.Equal(t, defaults, get())
	kept, err := h.scripts.FleetConfig(t.Context())
	require.NoError(t, err)
	require.Equal(t, berth.DefaultFleetConfig(), kept)
}

func TestPutStrategy_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	times := func(heartbeat, suspect, death int) doc {
		return doc{"times": doc{"media": doc{
			"heartbeatIntervalMs": heartbeat, "suspectAfterMs": suspect, "failureDetectionTimeoutMs": death,
		}}}
	}
	for name, tc := range map[string]struct {
		body  any
		field string
	}{
		"unknown strategy":  {doc{"assignmentStrategy": "random"}, "assignmentStrategy"},
		"negative weight":   {doc{"memoryWeight": -1}, "memoryWeight"},
		"weight as text":    {doc{"memoryWeight": "1"}, "memoryWeight"},
		"large GPU weight":  {doc{"gpuWeight": 10.5}, "gpuWeight"},
		"affinity as text":  {doc{"sessionAffinity": "no"}, "sessionAffinity"},
		"negative seed":     {doc{"hashSeed": -1}, "hashSeed"},
		"large seed":        {doc{"hashSeed": 1 << 32}, "hashSeed"},
		"half a seed":       {doc{"hashSeed": 0.5}, "hashSeed"},
		"short lock":        {doc{"lockTimeoutMs": 10}, "lockTimeoutMs"},
		"endless lock":      {doc{"lockTimeoutMs": 1e18}, "lockTimeoutMs"},
		"retries":           {doc{"maxRetries": 101}, "maxRetries"},
		"half a retry":      {doc{"maxRetries": 0.5}, "maxRetries"},
		"failover as text":  {doc{"enableFailover": "yes"}, "enableFailover"},
		"load over 1":       {doc{"dynamic": doc{"loadHigh": 1.5}}, "dynamic.loadLow"},
		"low over high":     {doc{"dynamic": doc{"loadLow": 0.9}}, "dynamic.loadLow"},
		"latency":           {doc{"dynamic": doc{"latencyLowMs": 200}}, "dynamic.latencyLowMs"},
		"negative dwell":    {doc{"dynamic": doc{"dwellMs": -1}}, "dynamic.dwellMs"},
		"times that fall":   {times(1000, 500, 4000), "times"},
		"short heartbeat":   {times(10, 500, 4000), "times.media.heartbeatIntervalMs"},
		"endless death":     {times(1000, 5000, 1<<40), "times.media.failureDetectionTimeoutMs"},
		"half of the times": {doc{"times": doc{"media": doc{"heartbeatIntervalMs": 1000, "suspectAfterMs": 2000}}}, "times.media.failureDetectionTimeoutMs"},
		"unknown kind":      {doc{"times": doc{"toaster": doc{"heartbeatIntervalMs": 1000, "suspectAfterMs": 2000, "failureDetectionTimeoutMs": 3000}}}, "times"},
		"unknown field":     {doc{"colour": "red"}, "colour"},
		"no object":         {`"x"`, "body"},
		"empty":             {``, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPut, "/v1/config/strategy", h.operator(), tc.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
		})
	}
	all, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Empty(t, all, "no partial write")
}

// L8, FA12: capabilities require services; an invalid document is refused by its field and changes nothing.
func TestPutServices_Capabilities_RequireServices(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const path = "/v1/config/services"
	require.JSONEq(t, `{}`, string(h.call(http.MethodGet, path, h.operator(), nil).body))
	text := `{"asr": ["whisper"], "translate": ["nmt", "glossary"], "translate:en-es": []}`
	a := h.call(http.MethodPut, path, h.operator(), text)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.JSONEq(t, text, string(a.body))
	text = `{"asr": ["whisper"], "translate": ["nmt", "glossary"]}` // an empty list has no effect
	got := h.call(http.MethodGet, path, h.operator(), nil)
	require.JSONEq(t, text, string(got.body))
	require.Empty(t, got.header.Get("Berth-Stale"))
	h.seen("services", func(s *fleet.Snapshot) bool { return len(s.Services) == 2 })
	for name, tc := range map[string][2]string{
		"a list": {`[]`, "body"}, "a text": {`"x"`, "body"}, "a number": {`1`, "body"}, "null": {`null`, "body"}, "half": {`{"a"`, "body"}, "nothing": {``, "body"},
		"a service as text":    {`{"asr": "whisper"}`, "asr"},
		"settings":             {`{"asr": {"url": "http://a"}}`, "asr"},
		"a service of spaces":  {`{"asr": ["a b"]}`, "asr"},
		"a service as number":  {`{"asr": [1]}`, "asr[0]"},
		"no list":              {`{"asr": null}`, "asr"},
		"a capability of tabs": {`{"a\tb": ["whisper"]}`, "body"},
		"a wrong language":     {`{"translate:en-xx": ["nmt"]}`, "body"},
		"too many services":    {`{"asr": ["` + strings.Repeat(`x","`, 20) + `x"]}`, "asr"},
	} {
		a := h.call(http.MethodPut, path, h.operator(), tc[0])
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
		require.Equal(t, tc[1], a.problem.Field, "%s: %s", name, a.body)
	}
	a = h.call(http.MethodPut, path, h.operator(), doc{"a": strings.Repeat("a", 5<<20)})
	require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	require.JSONEq(t, text, string(h.call(http.MethodGet, path, h.operator(), nil).body))
}

// FA12: work whose capability requires a service, or whose request names one, goes to a node that declares it; the refusal names it.
func TestAssign_CapabilityRequiresService_NodeDeclaresIt(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	register := func(id string, services ...string) {
		t.Helper()
		body := agent(id)
		if len(services) > 0 {
			body["services"] = services
		}
		a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
	}
	ask := doc{"poolId": "translate:en-es"}
	register("plain")
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/services", h.operator(), doc{"translate": []string{"nmt"}}).status)
	refused := h.assign(ask)
	require.Equal(t, http.StatusServiceUnavailable, refused.status, string(refused.body))
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceMissing: 1}, refused.problem.Reasons)
	require.Contains(t, refused.problem.Detail, "nmt")
	register("able", "nmt", "glossary")
	require.Equal(t, []any{"glossary", "nmt"}, h.call(http.MethodGet, "/v1/nodes/able", h.operator(), nil).json(t)["services"])
	require.NotContains(t, h.call(http.MethodGet, "/v1/nodes/plain", h.operator(), nil).json(t), "services")
	register("other", "glossary")
	require.Equal(t, "able", h.assign(ask).json(t)["nodeId"])
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/services", h.operator(), doc{}).status)
	h.seen("the services", func(s *fleet.Snapshot) bool { return s.Declares() })
	both := doc{"poolId": "translate:en-es", "services": []string{"nmt"}, "excludeNodes": []string{"able", "plain"}}
	refused = h.assign(both)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeServiceMissing: 1, berth.ExcludeByCaller: 2}, refused.problem.Reasons, string(refused.body))
	require.Contains(t, refused.problem.Detail, "nmt")
	a := h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), func() doc { d := agent("bad"); d["services"] = []string{"a b"}; return d }())
	require.Equal(t, "services", a.problem.Field, string(a.body))
}

// L5: a tenant can be bound to a pool.
func TestBindTenant_BoundAndUnbound_SnapshotFollows(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	a := h.call(http.MethodPut, "/v1/tenants/acme/pool", h.operator(), doc{"poolId": "translate:en-es"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, doc{"tenantId": "acme", "poolId": "translate:en-es", "members": 1.0}, a.json(t))
	h.seen("bound", func(s *fleet.Snapshot) bool { return s.Tenants["acme"] == "translate:en-es" })
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/tenants/acme/pool", h.operator(), nil).status)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/tenants/acme/pool", h.operator(), nil).status, "idempotent")
	h.seen("freed", func(s *fleet.Snapshot) bool { return len(s.Tenants) == 0 })
	for name, tc := range map[string][3]string{
		"no pool":        {"acme", `{}`, "poolId"},
		"empty pool":     {"acme", `{"poolId": ""}`, "poolId"},
		"wrong pool":     {"acme", `{"poolId": "a b"}`, "poolId"},
		"wrong language": {"acme", `{"poolId": "translate:en-xx"}`, "poolId"},
		"wrong tenant":   {"a%2Fb", `{"poolId": "fast"}`, "tenantId"},
	} {
		a := h.call(http.MethodPut, "/v1/tenants/"+tc[0]+"/pool", h.operator(), tc[1])
		require.Equal(t, http.StatusBadRequest, a.status, name)
		require.Equal(t, tc[2], a.problem.Field, name)
	}
	require.Equal(t, "tenantId", h.call(http.MethodDelete, "/v1/tenants/a%20b/pool", h.operator(), nil).problem.Field)
}

// L9: the reasons for excluding nodes are counted.
func TestExcludeStats_NodesExcluded_CountedByReason(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	for range 3 {
		h.assign(doc{"poolId": "translate:en-es"})
	}
	a := h.call(http.MethodGet, "/v1/stats/excludes", h.operator(), nil)
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"pools": {"translate:en-es": {"full": 1}}, "stale": false}`, string(a.body))
}
