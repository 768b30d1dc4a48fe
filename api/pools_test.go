package api_test

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
)

// L4, L8, L9: an operator defines, reads, changes and deletes a pool.
func TestPool_DefinedAndDeleted_NodesMoved(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	op := h.operator()
	h.join("n1", with("capabilities", []string{"translate:en-es", "gpu"}), with("zone", "z1"))
	h.join("n2", with("capabilities", []string{"translate:en-es", "gpu"}))
	h.join("n3")
	id := "fast/gpu+en:es"
	path := "/v1/pools/" + url.PathEscape(id)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, path, op, nil).status)

	a := h.call(http.MethodPut, path, op, doc{"capabilities": []string{"translate:en-es", "gpu"}, "strategy": "dynamic"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	want := doc{
		"poolId": id, "capabilities": []any{"gpu", "translate:en-es"}, "strategy": "dynamic", "defined": true, "members": 2.0,
		"counts": doc{"free": 2.0, "excluded": doc{}}, "strategyNow": "round-robin", "stale": false,
	}
	require.Equal(t, want, a.json(t))
	require.Equal(t, want, h.call(http.MethodGet, path, op, nil).json(t))
	also := h.call(http.MethodGet, "/v1/pools/fast%2Fgpu%2Ben%3Aes", op, nil)
	require.Equal(t, want, also.json(t), "the id may be escaped differently")

	_, _, err := h.scripts.SwitchStrategy(t.Context(), id, berth.SystemState{Load: 0.9}, berth.DefaultFleetConfig().Dynamic)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/nodes/n2/cordon", op, nil).status)
	seen := h.call(http.MethodGet, path, op, nil).json(t)
	require.Equal(t, "load-balanced", seen["strategyNow"])
	require.Equal(t, doc{"free": 1.0, "excluded": doc{"cordoned": 1.0}}, seen["counts"])
	require.EqualValues(t, 2, seen["members"])
	require.Len(t, seen["switches"], 1)
	require.ElementsMatch(t, []string{"load", "latencyMs"}, slices.Collect(maps.Keys(seen["switches"].([]any)[0].(doc)["by"].(doc))))

	back := h.call(http.MethodPut, path, op, seen)
	require.Equal(t, http.StatusOK, back.status, "the response of GET is a valid body: %s", back.body)
	zone := h.call(http.MethodPut, path, op, doc{"capabilities": []string{"gpu"}, "zone": "z1", "kind": "translate"})
	require.EqualValues(t, 1, zone.json(t)["members"])
	h.seen("moved", func(s *fleet.Snapshot) bool { return s.Pools[id].Zone == "z1" && len(s.Nodes["n2"].Pools) == 2 })

	ids, calls := h.pages("/v1/pools", "pools", "poolId", url.Values{"limit": {"2"}})
	require.Equal(t, []string{id, "gpu", "translate:en-es"}, ids)
	require.Equal(t, 2, calls)
	list := h.call(http.MethodGet, "/v1/pools", op, nil).json(t)["pools"].([]any)
	require.Equal(t, false, list[1].(doc)["defined"])
	require.Equal(t, doc{"free": 1.0, "excluded": doc{"cordoned": 1.0}}, list[1].(doc)["counts"])
	require.EqualValues(t, 3, list[2].(doc)["members"])

	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path, op, nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path, op, nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, path, op, nil).status)
	left, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 1, "the operator settings of n2")
	require.Equal(t, ledger.SettingNode, left[0].Kind)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/pools/gpu", op, nil).status, "a capability is a pool without a definition")
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, "/v1/pools/gpu", op, nil).status, "a pool that was never defined cannot be deleted")
}

// A pool that matches no node can be defined. The response names the missing capabilities, as does a refused assignment.
func TestAssign_PoolWithoutMatchingNode_MissingCapabilityNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	a := h.call(http.MethodPut, "/v1/pools/dream", h.operator(), doc{"capabilities": []string{"translate:en-es", "tpu"}, "strategy": "locality"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := a.json(t)
	require.EqualValues(t, 0, d["members"])
	require.Equal(t, []any{"tpu"}, d["missing"])
	ask := func() {
		t.Helper()
		refused := h.assign(doc{"poolId": "dream"})
		require.Equal(t, http.StatusServiceUnavailable, refused.status)
		require.Equal(t, berth.CodeNoNode, refused.problem.Code)
		require.Equal(t, []string{"tpu"}, refused.problem.Missing)
		require.Contains(t, refused.problem.Detail, "no registered node has tpu")
		require.Equal(t, "1", refused.header.Get("Retry-After"))
	}
	ask() // possibly before the API's snapshot has the pool
	h.seen("dream", func(s *fleet.Snapshot) bool { return len(s.Pools) == 1 })
	ask()
	h.join("n2", with("capabilities", []string{"translate:en-es", "tpu"}))
	got := h.assign(doc{"poolId": "dream"})
	require.Equal(t, http.StatusOK, got.status, string(got.body))
	require.Equal(t, "n2", got.json(t)["nodeId"])
	require.Empty(t, h.call(http.MethodGet, "/v1/pools/dream", h.operator(), nil).json(t)["missing"])
}

func TestPutPool_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	long := strings.Repeat("a", 129)
	for name, tc := range map[string]struct {
		id    string
		body  any
		field string
	}{
		"a blank":                {"a%20b", doc{}, "poolId"},
		"a wrong language":       {"translate:en-xx", doc{}, "poolId"},
		"half a pair":            {"translate:en", doc{}, "poolId"},
		"nothing between":        {"a%2B%2Bb", doc{}, "poolId"},
		"too long":               {strings.Repeat("abcd+", 110) + "a", doc{}, "poolId"},
		"another id":             {"fast", doc{"poolId": "slow"}, "poolId"},
		"unknown kind":           {"fast", doc{"kind": "toaster"}, "kind"},
		"unknown strategy":       {"fast", doc{"strategy": "random"}, "strategy"},
		"strategy as number":     {"fast", doc{"strategy": 1}, "strategy"},
		"wrong capability":       {"fast", doc{"capabilities": []string{"a b"}}, "capabilities"},
		"capability language":    {"fast", doc{"capabilities": []string{"translate:zz-en"}}, "capabilities"},
		"long capability":        {"fast", doc{"capabilities": []string{long}}, "capabilities"},
		"many capabilities":      {"fast", doc{"capabilities": many(65)}, "capabilities"},
		"zone with a line break": {"fast", doc{"zone": "a\nb"}, "zone"},
		"unknown field":          {"fast", doc{"colour": "red"}, "colour"},
		"no object":              {"fast", `[]`, "body"},
		"empty":                  {"fast", ``, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPut, "/v1/pools/"+tc.id, h.operator(), tc.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
		})
	}
	for _, bad := range []string{"translate:en-xx", "a%20b"} {
		require.Equal(t, "poolId", h.call(http.MethodGet, "/v1/pools/"+bad, h.operator(), nil).problem.Field)
		require.Equal(t, "poolId", h.call(http.MethodDelete, "/v1/pools/"+bad, h.operator(), nil).problem.Field)
	}
	all, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Empty(t, all, "no partial write")
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/pools/all", h.operator(), doc{}).status)
}

// P6: a change that was stored but not written to Redis is reported as such, and the next restore writes it.
func TestSetting_RedisWriteFails_SavedAndRetryRequested(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	permit := h.refuseWrites()
	a := h.call(http.MethodPut, "/v1/tenants/acme/pool", h.operator(), doc{"poolId": "fast"})
	permit()
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.problem.Detail, "change saved but not yet applied")
	written, err := fleet.RestoreSettings(t.Context(), h.ledger, h.scripts)
	require.NoError(t, err)
	require.Equal(t, 1, written)
	h.seen("bound", func(s *fleet.Snapshot) bool { return s.Tenants["acme"] == "fast" })
}
