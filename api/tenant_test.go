package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/identity"
)

// tenants is a fleet with a pool of tenant acme, and users of tenants.
type tenants struct {
	*harness
	acme, umbrella, none, operator string
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	h := newHarness(t)
	user := func(id, tenant string) string {
		return h.grant(identity.Grant{UserID: id, Scopes: []string{"user"}, TenantID: tenant})
	}
	x := &tenants{h, user("alice", "acme"), user("bob", "umbrella"), user("carol", ""), h.token("olga", "user", "operator")}
	h.node("n1", "translate:en-es", "resize")
	a := h.call(http.MethodPut, "/v1/pools/own", x.operator, doc{"capabilities": []string{"translate:en-es"}, "tenants": []string{"acme", "acme"}})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, []any{"acme"}, a.json(t)["tenants"])
	h.seen("the pool", func(s *fleet.Snapshot) bool {
		return len(s.Pools) == 1 && slices.Contains(s.Nodes["n1"].Pools, "own")
	})
	return x
}

func (x *tenants) put(token, id string, change ...func(doc)) answer {
	x.t.Helper()
	d := doc{"srcLang": "en", "tgtLang": "es"}
	for _, c := range change {
		c(d)
	}
	return x.call(http.MethodPut, "/v1/sessions/"+id, token, d)
}

func TestPutSession_TenantOfToken_IsRequired(t *testing.T) { // B8, FF6
	t.Parallel()
	x := newTenants(t)
	for name, token := range map[string]string{"another": x.umbrella, "none": x.none} {
		a := x.put(token, "s-"+name, with("tenantId", "acme"))
		require.Equal(t, http.StatusForbidden, a.status, name)
		require.Equal(t, "tenantId", a.problem.Field)
	}
	require.Equal(t, "acme", x.put(x.acme, "s1").json(t)["tenantId"], "the token's by default")
	require.Equal(t, "acme", x.put(x.acme, "s1", with("tenantId", "acme")).json(t)["tenantId"])
	require.NotContains(t, x.put(x.none, "s2").json(t), "tenantId")
	require.Equal(t, "umbrella", x.put(x.operator, "s3", with("tenantId", "umbrella")).json(t)["tenantId"], "operators name any")
	require.Equal(t, http.StatusBadRequest, x.put(x.operator, "s4", with("tenantId", "a b")).status)
}

func TestSession_PoolOfOtherTenants_IsNeverChosen(t *testing.T) { // B8, FF6
	t.Parallel()
	x := newTenants(t)
	bind := func(tenant string) answer {
		return x.call(http.MethodPut, "/v1/tenants/"+tenant+"/pool", x.operator, doc{"poolId": "own"})
	}
	refused := bind("umbrella")
	require.Equal(t, http.StatusConflict, refused.status)
	require.Equal(t, "poolId", refused.problem.Field)
	require.Equal(t, http.StatusOK, bind("acme").status)
	require.NoError(t, x.scripts.BindTenant(t.Context(), "umbrella", "own"), "bound before the pool was restricted")
	require.Equal(t, "own", x.put(x.acme, "s1").json(t)["preferredPool"])
	require.Equal(t, "translate:en-es", x.put(x.umbrella, "s2").json(t)["preferredPool"])
	require.Equal(t, "translate:en-es", x.put(x.none, "s3").json(t)["preferredPool"])

	job := doc{"requestId": "r1", "segment": doc{"index": 0, "text": "hello"}}
	a := x.call(http.MethodPost, "/v1/sessions/s1/jobs", x.acme, job)
	require.Equal(t, "own", a.json(t)["poolId"], string(a.body))

	// The user has left the tenant.
	former := x.grant(identity.Grant{UserID: "alice", Scopes: []string{"user"}, TenantID: "umbrella"})
	job["requestId"] = "r2"
	a = x.call(http.MethodPost, "/v1/sessions/s1/jobs", former, job)
	require.Equal(t, http.StatusForbidden, a.status, string(a.body))
	require.Equal(t, "tenantId", a.problem.Field)
	require.Equal(t, "translate:en-es", x.put(former, "s1").json(t)["preferredPool"], "the pool is not kept")
	a = x.call(http.MethodPost, "/v1/sessions/s1/jobs", former, job)
	require.Equal(t, "translate:en-es", a.json(t)["poolId"], string(a.body))

	// The pool is given to another tenant while a session uses it.
	require.Equal(t, "own", x.put(x.acme, "s4").json(t)["preferredPool"])
	require.Equal(t, http.StatusOK, x.call(http.MethodPut, "/v1/pools/own", x.operator,
		doc{"capabilities": []string{"translate:en-es"}, "tenants": []string{"initech"}}).status)
	a = x.call(http.MethodPost, "/v1/sessions/s4/jobs", x.acme, job)
	require.Equal(t, "translate:en-es", a.json(t)["poolId"], string(a.body))
}

func TestExecution_PoolOfOtherTenants_LooksUnknown(t *testing.T) { // B8, FF6
	t.Parallel()
	x := newTenants(t)
	submit := func(token string, d doc) answer {
		if d["executor"] == nil {
			d["executor"] = "resize"
		}
		return x.call(http.MethodPost, "/v1/executions", token, d)
	}
	require.Equal(t, http.StatusAccepted, submit(x.acme, doc{"poolId": "own"}).status)
	require.Equal(t, http.StatusAccepted, submit(x.operator, doc{"poolId": "own"}).status)
	require.Equal(t, http.StatusAccepted, submit(x.umbrella, doc{}).status)
	for field, d := range map[string]doc{
		"poolId": {"poolId": "own"}, "requiredCapabilities[0]": {"requiredCapabilities": []string{"own"}}, "executor": {"executor": "own"},
	} {
		for _, token := range []string{x.umbrella, x.none} {
			a := submit(token, d)
			require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", field, a.body)
			require.Equal(t, field, a.problem.Field, "as of one that does not exist: see TestSubmit_UnknownCapability_NamesField")
			require.Contains(t, a.problem.Detail, "check the name")
		}
	}

	// Assignments of nodes, which are decided by the same scripts, show what an unknown pool looks like.
	node := x.grant(identity.Grant{UserID: "agent", Scopes: []string{"node"}, Nodes: []string{"*"}, TenantID: "umbrella"})
	ask := func(pool string) map[string]any {
		a := x.call(http.MethodPost, "/v1/assignments", node, doc{"leaseId": "l1", "poolId": pool}, "X-Request-Id", "r")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		d := a.json(t)
		b, err := json.Marshal(d)
		require.NoError(t, err)
		var same map[string]any
		require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(string(b), pool, "POOL")), &same))
		return same
	}
	require.Equal(t, ask("unknown"), ask("own"), "the refusal reveals that the pool exists")
}

func TestAssignment_PoolOfOtherTenants_IsRefused(t *testing.T) { // B8, FF6
	t.Parallel()
	x := newTenants(t)
	node := func(tenant string) string {
		return x.grant(identity.Grant{UserID: "agent", Scopes: []string{"node"}, Nodes: []string{"*"}, TenantID: tenant})
	}
	assign := func(token, id string) answer {
		return x.call(http.MethodPost, "/v1/assignments", token, doc{"leaseId": id, "poolId": "own"})
	}
	a := assign(node("acme"), "l1")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, berth.CodeNoNode, assign(node("umbrella"), "l2").problem.Code)
	require.Equal(t, berth.CodeNoNode, assign(node(""), "l2").problem.Code)
	require.Equal(t, http.StatusOK, assign(x.operator, "l2").status)
	held := a.json(t)
	held["leaseId"] = "l3"
	require.Equal(t, berth.CodeNoNode, x.call(http.MethodPut, "/v1/assignments/l3", node("umbrella"), held).problem.Code,
		"a renewal restores no slot of the pool")
}

func TestExecution_MediaUnits_AreReserved(t *testing.T) { // FF6
	t.Parallel()
	x := newTenants(t)
	a := x.call(http.MethodPut, "/v1/pools/studio", x.operator, doc{"kind": "media"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	x.seen("the pool", func(s *fleet.Snapshot) bool { return len(s.Pools) == 2 })
	for _, c := range []struct {
		field string
		body  doc
	}{
		{"poolId", doc{"executor": "resize", "poolId": "conference"}},
		{"poolId", doc{"executor": "resize", "poolId": "studio"}},
		{"poolId", doc{"executor": "resize", "poolId": "conference+resize"}},
		{"executor", doc{"executor": "conference"}},
		{"requiredCapabilities", doc{"executor": "resize", "requiredCapabilities": []string{"conference"}}},
	} {
		for _, token := range []string{x.acme, x.operator} {
			a := x.call(http.MethodPost, "/v1/executions", token, c.body)
			require.Equal(t, http.StatusBadRequest, a.status, "%v: %s", c.body, a.body)
			require.Equal(t, c.field, a.problem.Field)
		}
	}
}

func TestConference_UnitsOfOtherTenants_AreRefused(t *testing.T) { // B8
	t.Parallel()
	x := newTenants(t)
	a := x.call(http.MethodPut, "/v1/pools/conference", x.operator, doc{"capabilities": []string{"conference"}, "tenants": []string{"acme"}})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	create := func(token string, change ...func(doc)) answer {
		d := doc{"durationMs": 60_000}
		for _, c := range change {
			c(d)
		}
		return x.call(http.MethodPost, "/v1/conferences", token, d)
	}
	require.Equal(t, http.StatusCreated, create(x.acme).status)
	require.Equal(t, berth.CodeNoNode, create(x.umbrella).problem.Code)
	require.Equal(t, berth.CodeNoNode, create(x.umbrella, with("zone", "eu")).problem.Code, "a zone is part of the pool")
}

func TestPutPool_InvalidTenants_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := newHarness(t)
	many := make([]string, berth.MaxPoolTenants+1)
	for i := range many {
		many[i] = "t"
	}
	for _, list := range [][]string{{"a b"}, {""}, many} {
		a := h.call(http.MethodPut, "/v1/pools/p", h.operator(), doc{"tenants": list})
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.problem.Field, "tenants")
	}
}
