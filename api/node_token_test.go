package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
)

// operation is one operation of the description.
type operation struct {
	id, method, path string
	scopes           []string
}

// operations returns all operations of the description.
func operations(t *testing.T, h *harness) []operation {
	t.Helper()
	spec := h.do(h.request(http.MethodGet, "/openapi.json", "", nil)).json(t)
	var out []operation
	paths, _ := spec["paths"].(map[string]any)
	for path, item := range paths {
		for method, described := range item.(map[string]any) {
			d, _ := described.(map[string]any)
			op := operation{method: strings.ToUpper(method), path: path}
			op.id, _ = d["operationId"].(string)
			security, _ := d["security"].([]any)
			for _, requirement := range security {
				if scopes, ok := requirement.(map[string]any)["bearer"].([]any); ok && len(scopes) > 0 {
					op.scopes = append(op.scopes, scopes[0].(string))
				}
			}
			out = append(out, op)
		}
	}
	require.GreaterOrEqual(t, len(out), 40)
	return out
}

// nodeCalls has a call for node n1 for each route that accepts tokens of scope node: its path and its body, which the API accepts
// from a token for n1.
var nodeCalls = map[string]struct {
	path string
	body func(generation int64) any
	// shared routes make no request for one node: what a foreign token gets is tested by name.
	shared bool
}{
	"register-node":  {path: "/v1/nodes", body: func(int64) any { return agent("n1") }},
	"heartbeat-node": {path: "/v1/nodes/n1/heartbeat", body: func(g int64) any { return doc{"generation": g} }},
	"list-nodes":     {path: "/v1/nodes", shared: true},
	"get-node":       {path: "/v1/nodes/n1"},
	"mark-service-unavailable": {
		path: "/v1/nodes/n1/services/asr/unavailable", body: func(int64) any { return doc{"ttlMs": 1000} },
	},
	"get-conference-info": {path: "/v1/conferences/8613800000001/info?nodeId=n1&generation=1&epoch=1"},
	"put-conference-info": {
		path: "/v1/conferences/8613800000001/info",
		body: func(g int64) any { return doc{"nodeId": "n1", "generation": g, "epoch": 1, "live": doc{}} },
	},
	"assign": {path: "/v1/assignments", body: func(int64) any {
		return doc{"leaseId": "l1", "poolId": "translate:en-es", "instanceId": "n1"}
	}},
	"renew-assignment":   {path: "/v1/assignments/l1", shared: true},
	"release-assignment": {path: "/v1/assignments/l1", shared: true},
	"withdraw-node":      {path: "/v1/nodes/n1"},
}

func TestRoutes_ForeignNode_AreForbidden(t *testing.T) { // B8, FC9, P15
	t.Parallel()
	h := newHarness(t)
	generation := h.join("n1")
	own := h.grant(identity.Grant{UserID: "agent", Scopes: []string{"node"}, Nodes: []string{"osaka", "n1"}})
	foreign := map[string]string{
		"another node":         h.grant(identity.Grant{UserID: "agent", Scopes: []string{"node"}, Nodes: []string{"n2", "n11", "tokyo-*"}}),
		"another node's agent": h.grant(identity.Grant{UserID: "other", Scopes: []string{"node", "user"}, Nodes: []string{"n2"}}),
		"no nodes":             signed(t, jwt.SigningMethodHS256, []byte(secret), good(claim("scope", "node"), claim("sub", "agent"))),
	}
	called := map[string]bool{}
	for _, op := range operations(t, h) {
		accepts := false
		for _, scope := range op.scopes {
			accepts = accepts || scope == identity.ScopeNode
		}
		if !accepts {
			continue
		}
		c, ok := nodeCalls[op.id]
		require.True(t, ok, "%s accepts tokens of scope node: add a call to nodeCalls", op.id)
		called[op.id] = true
		if c.shared {
			continue
		}
		var body any
		if c.body != nil {
			body = c.body(generation)
		}
		for name, token := range foreign {
			a := h.call(op.method, c.path, token, body)
			require.Equal(t, http.StatusForbidden, a.status, "%s with %s: %s", op.id, name, a.body)
			require.Equal(t, berth.CodeForbidden, a.problem.Code)
			require.Contains(t, []string{"nodeId", "instanceId"}, a.problem.Field, op.id)
			unknown := strings.ReplaceAll(c.path, "n1", "n99")
			if unknown != c.path {
				b := h.call(op.method, unknown, token, body)
				require.Equal(t, a.problem.Detail, b.problem.Detail, "%s reveals whether the node exists", op.id)
				require.Equal(t, a.status, b.status)
			}
		}
	}
	require.Len(t, called, len(nodeCalls), "nodeCalls has a route that is gone")

	for id, c := range nodeCalls { // the same calls with the node's own token
		if c.shared || id == "withdraw-node" {
			continue
		}
		var body any
		if c.body != nil {
			body = c.body(generation)
		}
		method := map[string]string{"get-node": http.MethodGet, "get-conference-info": http.MethodGet, "mark-service-unavailable": http.MethodPut}[id]
		if method == "" {
			method = http.MethodPost
		}
		a := h.call(method, c.path, own, body)
		if strings.HasSuffix(id, "-conference-info") {
			require.Equal(t, http.StatusNotFound, a.status, "accepted, but there is no conference")
			continue
		}
		require.Equal(t, http.StatusOK, a.status, "%s: %s", id, a.body)
	}
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n1", own, nil).status)
}

func TestListNodes_NodeToken_ListsItsNodesOnly(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t)
	for _, id := range []string{"tokyo-1", "osaka-1", "tokyo-2"} {
		h.join(id)
	}
	list := func(token string) (ids []string) {
		waitFor(t, "the nodes to be known", func() bool { return len(h.fleet.Snapshot().Nodes) == 3 })
		nodes, _ := h.call(http.MethodGet, "/v1/nodes", token, nil).json(t)["nodes"].([]any)
		for _, n := range nodes {
			ids = append(ids, n.(doc)["nodeId"].(string))
		}
		return ids
	}
	node := func(patterns ...string) string {
		return h.grant(identity.Grant{UserID: "agent", Scopes: []string{"node"}, Nodes: patterns})
	}
	require.Equal(t, []string{"tokyo-1", "tokyo-2"}, list(node("tokyo-*")))
	require.Empty(t, list(node("kyoto")))
	require.Len(t, list(h.operator()), 3)
}

func TestNode_OperatorWithoutNodes_WithdrawsButDoesNotRegister(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	both := signed(t, jwt.SigningMethodHS256, []byte(secret), good(claim("scope", "node operator")))
	require.Equal(t, http.StatusForbidden, h.call(http.MethodPost, "/v1/nodes", both, agent("n1")).status)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n1", both, nil).status)
}

// Leases are separated by their callers' ids, whatever characters those have.
func TestAssignment_CallersWithColons_HaveTheirOwnLeases(t *testing.T) { // X5
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	lease := func(user, method, id string, body any) answer {
		token := h.grant(identity.Grant{UserID: user, Scopes: []string{"node"}, Nodes: []string{"n1"}})
		return h.call(method, "/v1/assignments"+id, token, body)
	}
	require.Equal(t, http.StatusOK, lease("a:b", http.MethodPost, "", doc{"leaseId": "c", "poolId": "translate:en-es"}).status)
	require.Equal(t, http.StatusConflict, lease("a", http.MethodPut, "/b:c", nil).status|lease("a", http.MethodPut, "/c", nil).status)
	require.Equal(t, http.StatusConflict, lease("a%3Ab", http.MethodPut, "/c", nil).status)
	require.Equal(t, http.StatusOK, lease("a:b", http.MethodPut, "/c", nil).status)
}
