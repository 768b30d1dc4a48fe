package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/fleet"
)

// pages reads a list to its end and returns the ids and the number of pages.
func (h *harness) pages(path, list, id string, query url.Values) (ids []string, calls int) {
	h.t.Helper()
	return h.pagesAs(h.operator(), path, list, id, query)
}

func (h *harness) pagesAs(token, path, list, id string, query url.Values) (ids []string, calls int) {
	h.t.Helper()
	for {
		a := h.call(http.MethodGet, path+"?"+query.Encode(), token, nil)
		require.Equal(h.t, http.StatusOK, a.status, string(a.body))
		calls++
		d := a.json(h.t)
		for _, item := range d[list].([]any) {
			ids = append(ids, item.(doc)[id].(string))
		}
		next, more := d["nextCursor"].(string)
		if !more {
			return ids, calls
		}
		query.Set("cursor", next)
	}
}

// L12: while Redis may have lost data, an empty list does not mean an empty fleet.
func TestListNodes_DuringGrace_MarkedStale(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Guard()).Err())
	require.Equal(t, doc{"nodes": []any{}, "stale": true}, h.call(http.MethodGet, "/v1/nodes", h.nodeToken(), nil).json(t))
}

func TestListNodes_SeveralPages_EveryNodeOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	none := h.call(http.MethodGet, "/v1/nodes", h.nodeToken(), nil).json(t)
	require.Equal(t, doc{"nodes": []any{}, "stale": false}, none)
	var all, engines, fr []string
	for i := range 25 {
		id := fmt.Sprintf("n%02d", i)
		all = append(all, id)
		switch {
		case i%5 == 0:
			engines = append(engines, id)
			h.join(id, with("kind", "engine"))
		case i%3 == 0:
			fr = append(fr, id)
			h.join(id, with("capabilities", []string{"translate:en-fr"}))
		default:
			h.join(id)
		}
	}
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n07", h.operator(), nil).status)
	h.seen("all of them", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 25 && s.Nodes["n07"].State == berth.NodeDead })

	for name, tc := range map[string]struct {
		query url.Values
		want  []string
		calls int
	}{
		"pages of ten":                     {url.Values{"limit": {"10"}}, all, 3},
		"pages of five, the last one full": {url.Values{"limit": {"5"}}, all, 5},
		"one page":                         {url.Values{}, all, 1},
		"a kind":                           {url.Values{"kind": {"engine"}, "limit": {"2"}}, engines, 3},
		"a pool":                           {url.Values{"pool": {"translate:en-fr"}, "limit": {"4"}}, fr, 2},
		"a state":                          {url.Values{"state": {"dead"}, "limit": {"1"}}, []string{"n07"}, 1},
		"no match":                         {url.Values{"state": {"suspect"}}, nil, 1},
		"cursor after the last node":       {url.Values{"cursor": {"zzz"}}, nil, 1},
		"cursor between two nodes":         {url.Values{"cursor": {"n20x"}}, all[21:], 1},
	} {
		ids, calls := h.pages("/v1/nodes", "nodes", "nodeId", tc.query)
		require.Equal(t, tc.want, ids, name)
		require.Equal(t, tc.calls, calls, name)
	}
	for _, bad := range [][2]string{
		{"limit", "0"}, {"limit", "1001"}, {"limit", "x"}, {"kind", "toaster"}, {"state", "asleep"},
	} {
		a := h.call(http.MethodGet, "/v1/nodes?"+bad[0]+"="+bad[1], h.operator(), nil)
		require.Equal(t, http.StatusBadRequest, a.status, bad)
		require.Equal(t, bad[0], a.problem.Field, bad)
	}
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/nodes/unknown", h.operator(), nil).status)
	require.Equal(t, "nodeId", h.call(http.MethodGet, "/v1/nodes/a%20b", h.operator(), nil).problem.Field)
}

// L11: while Redis is unavailable, reads return the last snapshot marked as stale, and writes are refused immediately. Redis
// restarts empty, so nodes register again and operator settings are restored (L12).
func TestFleetReads_RedisUnavailable_LastKnownState(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	g := h.join("n1")
	op := h.operator()
	put := func(path string, body any) answer { return h.call(http.MethodPut, path, op, body) }
	require.Equal(t, http.StatusOK, put("/v1/pools/fast", doc{"capabilities": []string{"translate:en-es"}, "strategy": "dynamic"}).status)
	require.Equal(t, http.StatusOK, put("/v1/tenants/acme/pool", doc{"poolId": "fast"}).status)
	require.Equal(t, http.StatusOK, put("/v1/config/strategy", doc{"maxRetries": 9}).status)
	require.Equal(t, http.StatusOK, put("/v1/config/services", doc{"asr": []string{"whisper"}}).status)
	held := h.assign(doc{"poolId": "fast"})
	require.Equal(t, http.StatusOK, held.status, string(held.body))
	require.Equal(t, http.StatusServiceUnavailable, h.assign(doc{"poolId": "nothing"}).status)
	require.Equal(t, false, h.call(http.MethodGet, "/v1/stats/excludes", op, nil).json(t)["stale"])
	require.Equal(t, http.StatusOK, h.beat("n1", g).status)
	h.seen("all changes", func(s *fleet.Snapshot) bool {
		return s.Nodes["n1"].Leases == 1 && s.Config.MaxRetries == 9 && len(s.Services) > 0 && len(s.Pools) == 1 && len(s.Nodes["n1"].Pools) == 2
	})

	h.redis.Kill()
	h.seen("stale", func(s *fleet.Snapshot) bool { return s.Stale })
	nodes := h.call(http.MethodGet, "/v1/nodes", op, nil).json(t)
	require.Equal(t, true, nodes["stale"])
	require.Len(t, nodes["nodes"], 1)
	for path, has := range map[string]string{
		"/v1/nodes/n1": `"nodeId":"n1"`, "/v1/pools": `"poolId":"fast"`, "/v1/pools/fast": `"members":1`,
		"/v1/config/strategy": `"maxRetries":9`, "/v1/stats/excludes": `"*":{"capability_missing":1}`,
	} {
		a := h.call(http.MethodGet, path, op, nil)
		require.Equal(t, http.StatusOK, a.status, path)
		require.Contains(t, string(a.body), has, path)
		require.Contains(t, string(a.body), `"stale":true`, path)
	}
	services := h.call(http.MethodGet, "/v1/config/services", op, nil)
	require.JSONEq(t, `{"asr":["whisper"]}`, string(services.body))
	require.Equal(t, "true", services.header.Get("Berth-Stale"))
	for path, a := range map[string]answer{
		"register": h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("n2")),
		"beat":     h.beat("n1", g), "leave": h.call(http.MethodDelete, "/v1/nodes/n1", op, nil),
		"cordon": h.call(http.MethodPost, "/v1/nodes/n1/cordon", op, nil),
		"mark":   put("/v1/nodes/n1/services/tts/unavailable", doc{"ttlMs": 1}),
		"pool":   put("/v1/pools/slow", doc{"capabilities": []string{"a"}}), "no pool": h.call(http.MethodDelete, "/v1/pools/fast", op, nil),
		"tenant": put("/v1/tenants/acme/pool", doc{"poolId": "slow"}), "no tenant": h.call(http.MethodDelete, "/v1/tenants/acme/pool", op, nil),
		"strategy": put("/v1/config/strategy", doc{}), "services": put("/v1/config/services", doc{}),
		"assign": h.assign(doc{"poolId": "fast"}), "renew": h.renew("l1", nil), "release": h.call(http.MethodDelete, "/v1/assignments/l1", op, nil),
		"unknown node": h.call(http.MethodGet, "/v1/nodes/n9", op, nil), "unknown pool": h.call(http.MethodGet, "/v1/pools/p9", op, nil),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.status, "%s: %s", path, a.body)
		require.Equal(t, berth.CodeUnavailable, a.problem.Code, path)
		require.NotEmpty(t, a.header.Get("Retry-After"), path)
	}
	require.Equal(t, "nodeId", h.call(http.MethodPost, "/v1/nodes", h.nodeToken(), agent("a b")).problem.Field, "invalid input is reported before unavailability")

	h.redis.Restart()
	h.seen("current", func(s *fleet.Snapshot) bool { return !s.Stale })
	h.guarded()
	require.Equal(t, http.StatusConflict, h.beat("n1", g).status, "register again")
	require.GreaterOrEqual(t, h.join("n1"), g, "generations never decrease")
	written, err := fleet.RestoreSettings(t.Context(), h.ledger, h.scripts)
	require.NoError(t, err)
	require.Equal(t, 4, written)
	pool := h.call(http.MethodGet, "/v1/pools/fast", op, nil).json(t)
	require.EqualValues(t, 1, pool["members"])
	require.Equal(t, "dynamic", pool["strategy"])
	require.EqualValues(t, 9, h.call(http.MethodGet, "/v1/config/strategy", op, nil).json(t)["maxRetries"])
	require.JSONEq(t, `{"asr":["whisper"]}`, string(h.call(http.MethodGet, "/v1/config/services", op, nil).body))
	h.seen("the tenant again", func(s *fleet.Snapshot) bool { return s.Tenants["acme"] == "fast" })

	grace := h.assign(doc{"poolId": "fast"})
	require.Equal(t, http.StatusServiceUnavailable, grace.status, "L12: no grants during the grace period")
	require.Equal(t, berth.CodeUnavailable, grace.problem.Code)
	body := held.json(t)
	put1 := h.call(http.MethodPut, "/v1/assignments/"+body["leaseId"].(string), h.nodeToken(), nil)
	require.Equal(t, http.StatusConflict, put1.status, "Redis has lost the lease")
}

// slow returns an API process beside h that hardly ever reads the fleet unprompted.
func (h *harness) slow() *harness {
	h.t.Helper()
	f := fleet.New(h.scripts, fleet.Options{Settle: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	h.t.Cleanup(func() { cancel(); require.NoError(h.t, <-done) })
	<-f.Ready()
	return newHarness(h.t, func(d *api.Deps) { d.Scripts, d.Ledger, d.Fleet = h.scripts, h.ledger, f })
}

// What an operator or a node has changed is in every following list of any process, and in the counts of this one.
func TestListNodes_AfterAChange_ShowsIt(t *testing.T) { // FP6
	t.Parallel()
	fast := newHarness(t)
	for i := range 5 {
		fast.join(fmt.Sprintf("n%d", i))
	}
	h, other := fast.slow(), fast.slow()
	node := func(from *harness, id string) berth.Node {
		var list struct{ Nodes []berth.Node }
		a := from.call(http.MethodGet, "/v1/nodes", h.operator(), nil)
		require.NoError(t, json.Unmarshal(a.body, &list))
		for _, n := range list.Nodes {
			if n.ID == id {
				return n
			}
		}
		return berth.Node{}
	}
	cordoned := func() any {
		pools, _ := h.call(http.MethodGet, "/v1/pools", h.operator(), nil).json(t)["pools"].([]any)
		excluded, _ := pools[0].(doc)["counts"].(doc)["excluded"].(doc)
		return excluded["cordoned"]
	}
	order := func(id, name string) {
		require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/nodes/"+id+"/"+name, h.operator(), nil).status)
	}
	for i := range 5 {
		id := fmt.Sprintf("n%d", i)
		order(id, "cordon")
		require.True(t, node(h, id).Cordoned, "the same process, %d", i)
		require.True(t, node(other, id).Cordoned, "another process, %d", i)
		require.EqualValues(t, 1, cordoned(), "the counts of the pool, %d", i)
		order(id, "uncordon")
		require.False(t, node(h, id).Cordoned)
		require.False(t, node(other, id).Cordoned)
		require.Nil(t, cordoned())
		order(id, "drain")
		require.NotZero(t, node(other, id).DrainUntil)
		order(id, "undrain")
		require.Zero(t, node(other, id).DrainUntil)
	}
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n0", h.operator(), nil).status)
	require.Equal(t, berth.NodeDead, node(other, "n0").State)
	for _, from := range []*harness{h, other} {
		ids, _ := from.pages("/v1/nodes", "nodes", "nodeId", url.Values{"state": {"ready"}})
		require.Equal(t, []string{"n1", "n2", "n3", "n4"}, ids, "a node that does not match any more is not in a filtered list")
	}
}
