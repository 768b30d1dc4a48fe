package tests

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// engineFleet is a small fleet of engines that run no jobs, with an operator who sets their strategy.
type engineFleet struct {
	*stack
	operator, node string
	fleet          *client.Client
	generations    map[string]int64
	leases         map[string]bool
}

const engineSlots = 8

// newEngineFleet returns three engines with 8 slots: a1 and a2 in zone a on hosts h1 and h2, and b1 in zone b on h3. Only b1
// has gpu.
func newEngineFleet(t *testing.T) *engineFleet {
	t.Helper()
	s := newStack(t)
	y := &engineFleet{
		stack: s, operator: s.token("op", "operator"), node: s.token("nodes", "node"), fleet: s.user("nodes", "node"),
		generations: map[string]int64{}, leases: map[string]bool{},
	}
	for i, id := range []string{"a1", "a2", "b1"} {
		n := berth.NodeSpec{
			ID: id, Kind: berth.NodeEngine, Hostname: fmt.Sprintf("h%d", i+1), Zone: id[:1], Capabilities: []string{"work"},
			MaxConcurrentJobs: engineSlots, Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixMilli()},
		}
		if id == "b1" {
			n.Capabilities = append(n.Capabilities, "gpu")
		}
		r, err := y.fleet.RegisterNode(t.Context(), client.Registration{NodeSpec: n})
		require.NoError(t, err)
		y.generations[id] = r.Generation
	}
	y.report(t, map[string]berth.NodeLoad{"a1": {CPUUsage: 50}, "a2": {CPUUsage: 20}, "b1": {CPUUsage: 80}})
	return y
}

// report sends a heartbeat with a load for each node.
func (y *engineFleet) report(t *testing.T, loads map[string]berth.NodeLoad) {
	t.Helper()
	for id, l := range loads {
		_, err := y.fleet.HeartbeatNode(t.Context(), id, client.Heartbeat{Generation: y.generations[id], NodeLoad: l})
		require.NoError(t, err)
	}
}

// operate makes an operator's call that must succeed.
func (y *engineFleet) operate(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	status, out := y.send(method, path, y.operator, body)
	require.Equal(t, http.StatusOK, status, "%s %s: %v", method, path, out)
	return out
}

// pool defines the pool of all engines with a strategy, and waits until assignments use it.
func (y *engineFleet) pool(t *testing.T, strategy berth.Strategy) map[string]any {
	t.Helper()
	id := "by-" + string(strategy)
	y.operate(t, http.MethodPut, "/v1/pools/"+id, map[string]any{"capabilities": []string{"work"}, "strategy": strategy})
	current := y.operate(t, http.MethodGet, "/v1/pools/"+id, nil)
	require.EqualValues(t, 3, current["members"])
	require.EqualValues(t, strategy, current["strategy"])
	y.eventually("the API's local copy to have the pool", func() bool {
		for _, p := range y.operate(t, http.MethodGet, "/v1/pools", nil)["pools"].([]any) {
			if p := p.(map[string]any); p["poolId"] == id && p["strategy"] == string(strategy) {
				return true
			}
		}
		return false
	})
	return map[string]any{"poolId": id}
}

// also returns a request with additional fields.
func also(ask map[string]any, more ...any) map[string]any {
	out := map[string]any{"holdMs": 600_000}
	for k, v := range ask {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// assign takes a slot and keeps it. It returns the node and the strategy that decided.
func (y *engineFleet) assign(t *testing.T, ask map[string]any) (node, strategy string) {
	t.Helper()
	status, out := y.send(http.MethodPost, "/v1/assignments", y.node, also(ask))
	require.Equal(t, http.StatusOK, status, "%v", out)
	y.leases[out["leaseId"].(string)] = true
	return out["nodeId"].(string), out["strategy"].(string)
}

// refused requests a slot, which must be refused with the code, and returns the problem.
func (y *engineFleet) refused(t *testing.T, ask map[string]any, code berth.Code) (problem map[string]any) {
	t.Helper()
	status, out := y.send(http.MethodPost, "/v1/assignments", y.node, also(ask))
	require.Equal(t, http.StatusServiceUnavailable, status, "%v", out)
	require.EqualValues(t, code, out["code"])
	return out
}

// releaseAll releases all slots.
func (y *engineFleet) releaseAll(t *testing.T) {
	t.Helper()
	for id := range y.leases {
		status, out := y.send(http.MethodDelete, "/v1/assignments/"+url.PathEscape(id), y.node, nil)
		require.Equal(t, http.StatusNoContent, status, "%v", out)
		delete(y.leases, id)
	}
}

// assignEach requests n assignments and releases each before the next. It returns the number per node.
func (y *engineFleet) assignEach(t *testing.T, n int, ask map[string]any, by berth.Strategy) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		node, strategy := y.assign(t, ask)
		require.EqualValues(t, by, strategy)
		got[node]++
		y.releaseAll(t)
	}
	return got
}

// S1-S5, S9: each strategy of a pool chooses nodes as documented, over HTTP.
func TestStrategy_EachOverHTTP_ChoosesAsDocumented(t *testing.T) {
	t.Parallel()
	y := newEngineFleet(t)
	for strategy, does := range map[berth.Strategy]func(t *testing.T, ask map[string]any){
		berth.StrategyRoundRobin: func(t *testing.T, ask map[string]any) {
			require.Equal(t, map[string]int{"a1": 7, "a2": 7, "b1": 7}, y.assignEach(t, 21, ask, berth.StrategyRoundRobin), "one node after the other")
		},
		berth.StrategyLoadBalanced: func(t *testing.T, ask map[string]any) {
			require.Equal(t, map[string]int{"a2": 10}, y.assignEach(t, 10, ask, berth.StrategyLoadBalanced), "the lowest load")
			got := map[string]int{}
			for range 2 * engineSlots {
				node, _ := y.assign(t, ask)
				got[node]++
			}
			require.Positive(t, got["a1"], "held slots count immediately")
			require.Greater(t, got["a2"], got["a1"])
			require.Greater(t, got["a1"], got["b1"])
			for range engineSlots {
				y.assign(t, ask)
			}
			require.Equal(t, map[string]any{"full": 3.0}, y.refused(t, ask, berth.CodeNodeFull)["reasons"], "S10")
		},
		berth.StrategyPowerOfTwo: func(t *testing.T, ask map[string]any) {
			got := y.assignEach(t, 200, ask, berth.StrategyPowerOfTwo)
			require.Zero(t, got["b1"], "the busiest node is never the better one of a pair")
			require.Greater(t, got["a2"], got["a1"], "the idlest node is in two of three pairs")
			require.Positive(t, got["a1"])
		},
		berth.StrategyAffinity: func(t *testing.T, ask map[string]any) {
			own := also(ask, "instanceId", "b1")
			for range engineSlots {
				node, strategy := y.assign(t, own)
				require.Equal(t, "b1", node)
				require.EqualValues(t, berth.StrategyAffinity, strategy)
			}
			node, _ := y.assign(t, own)
			require.Equal(t, "a2", node, "the first node with capacity")
			y.releaseAll(t)
			y.operate(t, http.MethodPost, "/v1/nodes/b1/cordon", nil)
			node, _ = y.assign(t, own)
			require.Equal(t, "a2", node)
			y.operate(t, http.MethodPost, "/v1/nodes/b1/uncordon", nil)
			passed := y.operate(t, http.MethodGet, "/v1/stats/excludes", nil)["pools"].(map[string]any)["by-affinity"]
			require.Equal(t, map[string]any{"full": 1.0, "cordoned": 1.0}, passed, "L9: why the own node was not chosen")
		},
		berth.StrategyCapability: func(t *testing.T, ask map[string]any) {
			require.Equal(t, map[string]int{"a2": 3}, y.assignEach(t, 3, ask, berth.StrategyLoadBalanced), "the lowest load among nodes with the capabilities")
			both := map[string]any{"requiredCapabilities": []string{"gpu", "work"}}
			require.Equal(t, map[string]int{"b1": 3}, y.assignEach(t, 3, both, berth.StrategyLoadBalanced))
			none := y.refused(t, map[string]any{"requiredCapabilities": []string{"tpu", "work"}}, berth.CodeNoNode)
			require.Equal(t, []any{"tpu"}, none["missing"])
		},
		berth.StrategyLocality: func(t *testing.T, ask map[string]any) {
			for _, tc := range []struct {
				where []any
				node  string
			}{
				{[]any{"instanceId", "b1", "host", "h1", "zone", "a"}, "b1"},
				{[]any{"host", "h1", "zone", "a"}, "a1"},
				{[]any{"host", "elsewhere", "zone", "a"}, "a2"},
				{[]any{"zone", "b"}, "b1"},
				{[]any{"zone", "c"}, "a2"},
			} {
				require.Equal(t, map[string]int{tc.node: 3}, y.assignEach(t, 3, also(ask, tc.where...), berth.StrategyLocality), "%v", tc.where)
			}
		},
	} {
		t.Run(string(strategy), func(t *testing.T) {
			does(t, y.pool(t, strategy))
			y.releaseAll(t)
		})
	}
}

// S7: a dynamic pool switches by the reports of its nodes. The pool and the log show each switch, and the next assignment
// uses it.
func TestStrategy_Dynamic_SwitchesWithReports(t *testing.T) {
	t.Parallel()
	y := newEngineFleet(t)
	y.operate(t, http.MethodPut, "/v1/config/strategy", map[string]any{
		"assignmentStrategy": "dynamic", "dynamic": map[string]any{"loadHigh": 0.7, "loadLow": 0.6, "dwellMs": 100},
	})
	current := y.operate(t, http.MethodGet, "/v1/config/strategy", nil)
	require.Equal(t, "dynamic", current["assignmentStrategy"])
	require.EqualValues(t, 100, current["dynamic"].(map[string]any)["latencyHighMs"], "an omitted field has its default")
	ask := y.pool(t, berth.StrategyDynamic)
	of := func(l berth.NodeLoad) map[string]berth.NodeLoad {
		return map[string]berth.NodeLoad{"a1": l, "a2": l, "b1": l}
	}
	previous := berth.StrategyRoundRobin
	for i, step := range []struct {
		report berth.NodeLoad
		to     berth.Strategy
	}{
		{berth.NodeLoad{CPUUsage: 75}, berth.StrategyLoadBalanced},
		{berth.NodeLoad{CPUUsage: 65, LatencyMs: 150}, ""}, // not low enough
		{berth.NodeLoad{CPUUsage: 10, LatencyMs: 150}, berth.StrategyLocality},
		{berth.NodeLoad{CPUUsage: 10, LatencyMs: 20}, berth.StrategyRoundRobin},
	} {
		y.report(t, of(step.report))
		if step.to == "" {
			continue // it would be among the switches
		}
		for _, pool := range []string{"by-dynamic", "work"} { // its own strategy, and the fleet's
			y.eventually(fmt.Sprintf("step %d of %s", i, pool), func() bool {
				y.report(t, of(step.report))
				return y.operate(t, http.MethodGet, "/v1/pools/"+pool, nil)["strategyNow"] == string(step.to)
			})
		}
		last := y.operate(t, http.MethodGet, "/v1/pools/by-dynamic", nil)["switches"].([]any)[0].(map[string]any)
		require.EqualValues(t, previous, last["from"])
		require.EqualValues(t, step.to, last["to"])
		require.InDelta(t, step.report.LatencyMs, last["by"].(map[string]any)["latencyMs"], 0.1)
		require.InDelta(t, step.report.CPUUsage/100, last["by"].(map[string]any)["load"], 0.01)
		y.eventually("assignments to go by it", func() bool {
			_, by := y.assign(t, also(ask, "zone", "b"))
			y.releaseAll(t)
			return by == string(step.to)
		})
		if step.to == berth.StrategyLocality {
			require.Equal(t, map[string]int{"b1": 3}, y.assignEach(t, 3, also(ask, "zone", "b"), step.to))
		}
		require.Contains(t, string(y.worker.output()), fmt.Sprintf("pool=by-dynamic from=%s to=%s", previous, step.to))
		previous = step.to
	}
	require.Len(t, y.operate(t, http.MethodGet, "/v1/pools/by-dynamic", nil)["switches"], 3)
	require.Equal(t, 3, bytes.Count(y.worker.output(), []byte("pool=by-dynamic from=")), "each is logged once")
	require.Equal(t, map[string]int{"a1": 2, "a2": 2, "b1": 2}, y.assignEach(t, 6, ask, berth.StrategyRoundRobin))
}
