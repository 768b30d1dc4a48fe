package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/api"
	"berth/internal/fleet"
	"berth/internal/identity"
	"berth/lua"
)

func (h *harness) assign(body any) answer {
	h.t.Helper()
	return h.call(http.MethodPost, "/v1/assignments", h.nodeToken(), body)
}

func (h *harness) renew(lease string, body any) answer {
	h.t.Helper()
	return h.call(http.MethodPut, "/v1/assignments/"+lease, h.nodeToken(), body)
}

func (h *harness) release(lease string) answer {
	h.t.Helper()
	return h.call(http.MethodDelete, "/v1/assignments/"+lease, h.nodeToken(), nil)
}

// S10, L7: a slot is acquired, returned again for a retry, renewed and released.
func TestAssignment_Lifecycle_TakenRenewedReleased(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	g := h.join("n1", with("maxConcurrentJobs", 1))
	a := h.assign(doc{"leaseId": "l1", "poolId": "translate:en-es", "holdMs": 60_000})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	want := doc{
		"leaseId": "l1", "nodeId": "n1", "generation": float64(g), "taskQueue": berth.NodeTaskQueue("n1", g),
		"poolId": "translate:en-es", "strategy": "load-balanced", "holdMs": 60_000.0,
	}
	require.Equal(t, want, a.json(t))
	again := h.assign(doc{"leaseId": "l1", "poolId": "translate:en-es", "holdMs": 60_000})
	want["existing"] = true
	require.Equal(t, want, again.json(t), "a retry returns the same slot")
	mixed := h.assign(doc{"leaseId": "l1", "poolId": "gpu"})
	require.Equal(t, http.StatusUnprocessableEntity, mixed.status)
	require.Equal(t, "leaseId", mixed.problem.Field)

	full := h.assign(doc{"poolId": "translate:en-es"})
	require.Equal(t, http.StatusServiceUnavailable, full.status)
	require.Equal(t, berth.CodeNodeFull, full.problem.Code)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1}, full.problem.Reasons)
	require.Equal(t, "1", full.header.Get("Retry-After"))
	require.NotContains(t, h.log.String(), `"level":"ERROR"`, "a full fleet is not an internal error")

	renewed := h.renew("l1", doc{"holdMs": 120_000})
	require.Equal(t, http.StatusOK, renewed.status, string(renewed.body))
	require.EqualValues(t, 120_000, renewed.json(t)["holdMs"])
	require.EqualValues(t, 300_000, h.renew("l1", nil).json(t)["holdMs"], "S6: lockTimeout")
	require.Equal(t, http.StatusOK, h.renew("l1", a.json(t)).status, "the response of POST is a valid body")

	other := h.token("another", identity.ScopeNode)
	require.Equal(t, http.StatusConflict, h.call(http.MethodPut, "/v1/assignments/l1", other, nil).status, "lease of another caller")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/assignments/l1", other, nil).status)
	require.Equal(t, http.StatusServiceUnavailable, h.assign(doc{"poolId": "translate:en-es"}).status, "still held")

	require.Equal(t, http.StatusNoContent, h.release("l1").status)
	require.Equal(t, http.StatusNoContent, h.release("l1").status, "idempotent")
	lost := h.renew("l1", nil)
	require.Equal(t, http.StatusConflict, lost.status)
	require.Equal(t, http.StatusConflict, h.renew("l1", a.json(t)).status, "a released slot cannot be renewed")
	made := h.assign(doc{"requiredCapabilities": []string{"translate:en-es"}}).json(t)
	require.Len(t, made["leaseId"], 32)
	require.Equal(t, "load-balanced", made["strategy"], "S4")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n1", h.operator(), nil).status)
	require.Equal(t, http.StatusConflict, h.renew(made["leaseId"].(string), nil).status, "the lease ended with its node")
}

// L7: a lease that is not renewed expires.
func TestAssignment_NotRenewed_SlotLost(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1", with("maxConcurrentJobs", 1))
	require.Equal(t, http.StatusOK, h.assign(doc{"leaseId": "l1", "poolId": "translate:en-es", "holdMs": 1000}).status)
	require.Eventually(t, func() bool {
		return h.assign(doc{"leaseId": "l2", "poolId": "translate:en-es"}).status == http.StatusOK
	}, waitLimit, 20*time.Millisecond)
	require.Equal(t, http.StatusConflict, h.renew("l1", nil).status)
	require.Equal(t, http.StatusOK, h.renew("l2", nil).status)
}

// S4: only nodes with every required capability are chosen, also by the first request for the combination.
func TestAssign_SeveralCapabilities_OnlyNodesWithAllChosen(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for i := range 3 {
		h.join(fmt.Sprintf("n%d", i))
	}
	h.join("both", with("capabilities", []string{"gpu", "translate:en-es"}))
	h.seen("all", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 4 })
	for _, order := range [][]string{{"translate:en-es", "gpu"}, {"gpu", "translate:en-es", "gpu"}} {
		a := h.assign(doc{"requiredCapabilities": order})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, "both", a.json(t)["nodeId"])
		require.Equal(t, "gpu+translate:en-es", a.json(t)["poolId"])
	}
	full := h.assign(doc{"requiredCapabilities": []string{"translate:en-es", "gpu"}})
	require.Equal(t, berth.CodeNodeFull, full.problem.Code)
	none := h.assign(doc{"requiredCapabilities": []string{"translate:en-es", "tpu", "quantum"}})
	require.Equal(t, http.StatusServiceUnavailable, none.status)
	require.Equal(t, berth.CodeNoNode, none.problem.Code)
	require.Equal(t, []string{"quantum", "tpu"}, none.problem.Missing)
	apart := h.assign(doc{"requiredCapabilities": []string{"gpu", "translate:en-fr"}})
	require.Equal(t, []string{"translate:en-fr"}, apart.problem.Missing)
	h.join("fr", with("capabilities", []string{"translate:en-fr"}))
	h.seen("fr", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 5 })
	apart = h.assign(doc{"requiredCapabilities": []string{"gpu", "translate:en-fr"}})
	require.Equal(t, berth.CodeNoNode, apart.problem.Code, "no node has all capabilities")
	require.Equal(t, []string{"translate:en-fr"}, apart.problem.Missing, "the closest node lacks this capability")
	require.Equal(t, "no eligible node of pool gpu+translate:en-fr: no node has all of gpu, translate:en-fr; the closest node both lacks translate:en-fr", apart.problem.Detail)
	require.NotContains(t, h.call(http.MethodGet, "/v1/pools", h.operator(), nil).json(t)["pools"], "gpu+translate:en-fr")
}

// L8, S1, S7: requests after the response to a change use the new setting.
func TestAssign_StrategyChanged_NextDecisionUsesIt(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Fleet = slowFleet(t, d) })
	h.join("n1", with("maxConcurrentJobs", 100))
	put := func(path string, body doc) {
		a := h.call(http.MethodPut, path, h.operator(), body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
	}
	assigned := func(body doc) string {
		a := h.assign(body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)["strategy"].(string)
	}
	for range 5 {
		for _, strategy := range []string{"locality", "round-robin"} {
			put("/v1/pools/translate:en-es", doc{"capabilities": []string{"translate:en-es"}, "strategy": strategy})
			require.Equal(t, strategy, assigned(doc{"poolId": "translate:en-es"}))
		}
		put("/v1/pools/translate:en-es", doc{"capabilities": []string{"translate:en-es"}})
		for _, strategy := range []string{"affinity", "power-of-two"} {
			put("/v1/config/strategy", doc{"assignmentStrategy": strategy})
			require.Equal(t, strategy, assigned(doc{"poolId": "translate:en-es"}))
		}
	}
	require.Equal(t, "round-robin", assigned(doc{"poolId": "translate:en-es", "strategy": "dynamic"}), "the initial strategy of a dynamic pool")
	put("/v1/pools/translate:en-es", doc{"capabilities": []string{"translate:en-es"}, "strategy": "dynamic"})
	_, _, err := h.scripts.SwitchStrategy(t.Context(), "translate:en-es", berth.SystemState{LatencyMs: 1000}, berth.DefaultFleetConfig().Dynamic)
	require.NoError(t, err)
	put("/v1/config/strategy", doc{})
	require.Equal(t, "locality", assigned(doc{"poolId": "translate:en-es", "strategy": "dynamic"}), "the strategy after a switch")
}

// slowFleet reads Redis only once without a request.
func slowFleet(t *testing.T, d *api.Deps) *fleet.Fleet {
	t.Helper()
	f := fleet.New(d.Scripts, fleet.Options{Settle: time.Hour, Tick: time.Minute})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	<-f.Ready()
	return f
}

// L12: a refusal during a grace period is not an internal error, and is not logged as one.
func TestAssign_DuringGrace_RefusedWithoutErrorLog(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	h.guarded()
	a := h.assign(doc{"poolId": "translate:en-es"})
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, berth.CodeUnavailable, a.problem.Code)
	for _, level := range []string{"ERROR", "WARN"} {
		require.NotContains(t, h.log.String(), `"level":"`+level+`"`)
	}
}

// S3, S5: the strategies affinity and locality use the caller's location.
func TestAssign_CallersLocation_NearNodeChosen(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	at := func(zone, host string) func(doc) {
		return func(d doc) { d["zone"], d["hostname"], d["maxConcurrentJobs"] = zone, host, 50 }
	}
	h.join("a", at("z1", "h1"))
	h.join("b", at("z1", "h2"))
	h.join("c", at("z2", "h3"))
	h.join("d", at("z3", "h1"))
	h.seen("all", func(s *fleet.Snapshot) bool { return len(s.Nodes) == 4 })
	for name, tc := range map[string]struct {
		ask  doc
		node string
	}{
		"caller's node":                 {doc{"strategy": "affinity", "instanceId": "b"}, "b"},
		"caller's node before its host": {doc{"strategy": "locality", "instanceId": "c", "zone": "z1", "host": "h1"}, "c"},
		"caller's host before its zone": {doc{"strategy": "locality", "zone": "z1", "host": "h2"}, "b"},
		"caller's zone":                 {doc{"strategy": "locality", "zone": "z2", "host": "elsewhere"}, "c"},
		"excluded nodes":                {doc{"excludeNodes": []string{"a", "b", "d"}}, "c"},
		"caller's node excluded":        {doc{"strategy": "affinity", "instanceId": "a", "excludeNodes": []string{"a", "c", "d"}}, "b"},

		"only the host given":                     {doc{"strategy": "locality", "host": "h2"}, "b"},
		"host in another zone than the one given": {doc{"strategy": "locality", "zone": "z2", "host": "h2"}, "b"},
		"only the host given, its nodes excluded": {doc{"strategy": "locality", "host": "h2", "excludeNodes": []string{"b"}}, "a"},
		"host of the caller's node":               {doc{"strategy": "locality", "instanceId": "a", "excludeNodes": []string{"a"}}, "d"},
		"zone of the caller's node":               {doc{"strategy": "locality", "instanceId": "a", "excludeNodes": []string{"a", "d"}}, "b"},
	} {
		tc.ask["poolId"] = "translate:en-es"
		a := h.assign(tc.ask)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", name, a.body)
		require.Equal(t, tc.node, a.json(t)["nodeId"], name)
	}
}

// S10: concurrent requests never take more slots than the nodes have.
func TestAssign_ConcurrentRequests_NoSlotTakenTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1", with("maxConcurrentJobs", 3))
	h.join("n2", with("maxConcurrentJobs", 4))
	answers := make([]answer, 40)
	var g errgroup.Group
	for i := range answers {
		g.Go(func() error { answers[i] = h.assign(doc{"poolId": "translate:en-es"}); return nil })
	}
	require.NoError(t, g.Wait())
	taken := map[string]int{}
	for _, a := range answers {
		if a.status == http.StatusOK {
			taken[a.json(t)["nodeId"].(string)]++
			continue
		}
		require.Equal(t, berth.CodeNodeFull, a.problem.Code, string(a.body))
	}
	require.Equal(t, map[string]int{"n1": 3, "n2": 4}, taken)
}

// L12: after Redis lost its data, the holder of a slot restores it once the node has registered again.
func TestRenew_RedisLostData_SlotRestoredAfterNodeRegisters(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	g := h.join("n1", with("maxConcurrentJobs", 1))
	held := h.assign(doc{"leaseId": "l1", "poolId": "translate:en-es"}).json(t)
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.guarded()
	early := h.renew("l1", held)
	require.Equal(t, http.StatusServiceUnavailable, early.status, "the node has not registered again yet: %s", early.body)
	require.NotEmpty(t, early.header.Get("Retry-After"))
	now := h.join("n1", with("maxConcurrentJobs", 1), with("previousGeneration", g))
	require.Greater(t, now, g)
	again := h.renew("l1", held)
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.EqualValues(t, now, again.json(t)["generation"])
	require.Equal(t, berth.NodeTaskQueue("n1", now), again.json(t)["taskQueue"])
	h.setGrace(time.Now().Add(lua.NodeUnsure + time.Second)) // then the node is sure again
	require.Eventually(t, func() bool {
		return h.assign(doc{"leaseId": "l2", "poolId": "translate:en-es"}).problem.Code == berth.CodeNodeFull
	},
		waitLimit, 50*time.Millisecond, "after the grace period the slot is not granted twice")
	require.Equal(t, http.StatusNoContent, h.release("l1").status)
	require.Equal(t, http.StatusOK, h.assign(doc{"leaseId": "l2", "poolId": "translate:en-es"}).status)
}

// FA11: a holder restores a slot only on a node that serves its pool and has one free; what it claims is not enough.
func TestRenew_RedisLostData_PoolAndCapacityChecked(t *testing.T) { // L12, B8
	t.Parallel()
	h := newHarness(t)
	g := h.join("n2", with("maxConcurrentJobs", 2), with("capabilities", []string{"translate:en-es", "gpu"}))
	var first answer
	require.Eventually(t, func() bool {
		first = h.assign(doc{"leaseId": "l1", "requiredCapabilities": []string{"gpu", "translate:en-es"}})
		return first.status == http.StatusOK
	}, waitLimit, 20*time.Millisecond, "the process has read the node")
	held := first.json(t)
	require.Equal(t, "n2", held["nodeId"])
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.guarded()
	now := h.join("n2", with("maxConcurrentJobs", 2), with("capabilities", []string{"translate:en-es", "gpu"}), with("previousGeneration", g))
	_, err := h.scripts.DefinePool(t.Context(), berth.Pool{ID: "farm", Capabilities: []string{"other"}}, false)
	require.NoError(t, err)
	claim := func(lease, pool string) answer {
		return h.renew(lease, doc{"leaseId": lease, "nodeId": "n2", "generation": now, "poolId": pool})
	}
	leases := func() int64 { return h.client.ZCard(t.Context(), h.scripts.Keys().NodeSlots("n2")).Val() }
	for _, pool := range []string{"translate:en-fr", "gpu+tpu"} {
		a := claim("x", pool)
		require.Equal(t, http.StatusServiceUnavailable, a.status, "the pool may not have been defined again: %s", a.body)
	}
	a := claim("x", "farm")
	require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
	require.Equal(t, "poolId", a.problem.Field)
	require.Zero(t, leases())
	again := h.renew("l1", held)
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.Equal(t, http.StatusOK, claim("l2", "gpu").status)
	full := claim("l3", "gpu")
	require.Equal(t, http.StatusConflict, full.status, string(full.body))
	require.Contains(t, full.problem.Detail, "request a new assignment")
	require.EqualValues(t, 2, leases(), "never more than it has")
	require.Equal(t, http.StatusOK, h.renew("l1", held).status, "the holder of a slot keeps it")
}

func TestAssignments_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	pool := func(key string, v any) doc { return doc{"poolId": "translate:en-es", key: v} }
	long := strings.Repeat("a", 129)
	for name, tc := range map[string]struct {
		body  any
		field string
	}{
		"nothing":               {doc{}, "poolId"},
		"no capability":         {doc{"requiredCapabilities": []string{}}, "poolId"},
		"both":                  {pool("requiredCapabilities", []string{"gpu"}), "poolId"},
		"wrong pool":            {doc{"poolId": "a b"}, "poolId"},
		"wrong language":        {doc{"poolId": "translate:en-xx"}, "poolId"},
		"wrong capability":      {doc{"requiredCapabilities": []string{"a b"}}, "requiredCapabilities"},
		"language of a pair":    {doc{"requiredCapabilities": []string{"gpu", "translate:xx-en"}}, "requiredCapabilities"},
		"capability as number":  {doc{"requiredCapabilities": []any{1}}, "requiredCapabilities[0]"},
		"too many capabilities": {doc{"requiredCapabilities": many(65)}, "requiredCapabilities"},
		"too long together":     {doc{"requiredCapabilities": []string{long[:120] + "1", long[:120] + "2", long[:120] + "3", long[:120] + "4", long[:120] + "5"}}, "requiredCapabilities"},
		"unknown strategy":      {pool("strategy", "random"), "strategy"},
		"wrong service":         {pool("services", []string{"a\nb"}), "services"},
		"too many services":     {pool("services", many(33)), "services"},
		"wrong node":            {pool("excludeNodes", []string{"a\x02b"}), "excludeNodes"},
		"too many nodes":        {pool("excludeNodes", many(101)), "excludeNodes"},
		"wrong instance":        {pool("instanceId", "a b"), "instanceId"},
		"wrong host":            {pool("host", "a\x02b"), "host"},
		"wrong zone":            {pool("zone", "a\nb"), "zone"},
		"long zone":             {pool("zone", long), "zone"},
		"short hold":            {pool("holdMs", 999), "holdMs"},
		"endless hold":          {pool("holdMs", 86_400_001), "holdMs"},
		"hold as text":          {pool("holdMs", "1s"), "holdMs"},
		"wrong lease":           {pool("leaseId", "a:b"), "leaseId"},
		"unknown field":         {pool("nodes", 1), "nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.assign(tc.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
		})
	}
	for name, tc := range map[string]struct {
		lease string
		body  any
		field string
	}{
		"wrong lease":      {"a%3Ab", nil, "leaseId"},
		"another lease":    {"l1", doc{"leaseId": "l2"}, "leaseId"},
		"short hold":       {"l1", doc{"holdMs": 1}, "holdMs"},
		"no generation":    {"l1", doc{"nodeId": "n1"}, "generation"},
		"wrong node":       {"l1", doc{"nodeId": "a b", "generation": 1}, "nodeId"},
		"no pool":          {"l1", doc{"nodeId": "n1", "generation": 1}, "poolId"},
		"unknown strategy": {"l1", doc{"nodeId": "n1", "generation": 1, "poolId": "p", "strategy": "random"}, "strategy"},
	} {
		a := h.renew(tc.lease, tc.body)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
		require.Equal(t, tc.field, a.problem.Field, "%s: %s", name, a.body)
	}
	require.Equal(t, "leaseId", h.release("a%20b").problem.Field)
	require.Zero(t, h.call(http.MethodGet, "/v1/nodes/n1", h.operator(), nil).json(t)["leases"], "no partial write")
}
