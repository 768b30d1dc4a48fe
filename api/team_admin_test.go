package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
)

// O3: administrators of a team manage its keys and their budgets, and see no others.
func TestKeys_TeamAdministrators_ManageThoseOfTheirTeam(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.define("/v1/teams/a", doc{"users": []string{"mia"}})
	h.define("/v1/teams/b", doc{})
	h.define("/v1/apps/chat", doc{"teamId": "a"})
	h.define("/v1/apps/other", doc{"teamId": "b"})
	create := func(body doc) string {
		t.Helper()
		res := h.call(http.MethodPost, "/v1/keys", h.operator(), body)
		require.Equal(t, http.StatusCreated, res.status, string(res.body))
		return res.json(t)["keyId"].(string)
	}
	keys := strings.NewReplacer("{a}", create(doc{"appId": "chat", "title": "of a"}), "{b}", create(doc{"teamId": "b", "title": "of b"}))
	for _, id := range []string{"key/{a}", "key/{b}", "team/a", "team/b"} {
		h.define("/v1/budgets/"+keys.Replace(id), doc{"credits": 5, "period": "day"})
	}
	admin := func(user, team string) string {
		return h.grant(identity.Grant{UserID: user, TeamID: team, Scopes: []string{identity.ScopeTeam}})
	}
	callers := map[string]string{
		"claim": admin("ann", "a"), "member": admin("mia", ""), "of b": admin("bob", "b"), "no team": admin("zoe", ""),
		"user": h.grant(identity.Grant{UserID: "ann", TeamID: "a", Scopes: []string{identity.ScopeUser, identity.ScopeModels}}), "operator": h.operator(),
	}
	const ok, created, gone, invalid, forbidden, missing = 200, 201, 204, 400, 403, 404
	budget := doc{"credits": 7, "period": "month"}
	for _, c := range []struct {
		request string
		body    any
		admin   int    // of an administrator of a
		names   string // what the problem names
	}{
		{"GET /v1/keys", nil, ok, ""},
		{"GET /v1/keys?teamId=a", nil, ok, ""},
		{"GET /v1/keys?teamId=b", nil, forbidden, "teamId"},
		{"GET /v1/keys/{a}", nil, ok, ""},
		{"GET /v1/keys/{b}", nil, missing, ""},
		{"PUT /v1/keys/{a}", doc{"title": "of a", "rpm": 3}, ok, ""},
		{"PUT /v1/keys/{b}", doc{"title": "of b", "rpm": 3}, missing, ""},
		{"POST /v1/keys", doc{"teamId": "a"}, created, ""},
		{"POST /v1/keys", doc{}, created, ""},
		{"POST /v1/keys", doc{"teamId": "b"}, forbidden, "teamId"},
		{"POST /v1/keys", doc{"appId": "chat"}, created, ""},
		{"POST /v1/keys", doc{"appId": "other"}, invalid, "appId"},
		{"POST /v1/keys", doc{"appId": "none"}, invalid, "appId"},
		{"GET /v1/budgets", nil, ok, ""},
		{"GET /v1/budgets?teamId=b", nil, forbidden, "teamId"},
		{"GET /v1/budgets/team/a", nil, ok, ""},
		{"GET /v1/budgets/team/b", nil, missing, ""},
		{"GET /v1/budgets/key/{a}", nil, ok, ""},
		{"GET /v1/budgets/key/{b}", nil, missing, ""},
		{"PUT /v1/budgets/key/{a}", budget, ok, ""},
		{"PUT /v1/budgets/key/{b}", budget, missing, ""},
		{"PUT /v1/budgets/team/a", budget, forbidden, "operators"},
		{"PUT /v1/budgets/team/b", budget, missing, ""},
		{"DELETE /v1/budgets/team/a", nil, forbidden, "operators"},
		{"DELETE /v1/budgets/key/{b}", nil, missing, ""},
		{"DELETE /v1/budgets/key/{a}", nil, gone, ""},
		{"DELETE /v1/keys/{b}", nil, missing, ""},
		{"DELETE /v1/keys/{a}", nil, gone, ""},
	} {
		method, path, _ := strings.Cut(keys.Replace(c.request), " ")
		for _, caller := range []string{"user", "no team"} {
			require.Equal(t, forbidden, h.call(method, path, callers[caller], c.body).status, "%s by %s", c.request, caller)
		}
		if method == http.MethodGet {
			require.Equal(t, ok, h.call(method, path, callers["operator"], c.body).status, c.request)
		}
		for _, caller := range []string{"claim", "member"} {
			if c.admin == gone && caller == "member" { // it was deleted
				continue
			}
			res := h.call(method, path, callers[caller], c.body)
			require.Equal(t, c.admin, res.status, "%s by %s: %s", c.request, caller, res.body)
			require.Contains(t, res.problem.Detail+res.problem.Field, c.names, c.request)
		}
	}
	listed := func(caller, path, field, name string) (all []string) {
		t.Helper()
		for _, v := range h.call(http.MethodGet, path, callers[caller], nil).json(t)[field].([]any) {
			all = append(all, v.(map[string]any)[name].(string))
		}
		return all
	}
	require.Equal(t, []string{"of b"}, listed("of b", "/v1/keys", "keys", "title"))
	require.Equal(t, []string{keys.Replace("{b}"), "b"}, listed("of b", "/v1/budgets", "budgets", "id"))
	require.NotContains(t, listed("claim", "/v1/keys?revoked=true", "keys", "teamId"), "b")
	require.Equal(t, []string{"a"}, listed("claim", "/v1/budgets", "budgets", "id"), "that of the key was deleted")

	// What they change is in the audit log, as what operators change.
	entries := h.call(http.MethodGet, "/v1/audit?userId=ann", h.operator(), nil).json(t)["entries"].([]any)
	events := map[string]bool{}
	for _, e := range entries {
		events[e.(map[string]any)["action"].(string)] = true
	}
	for _, event := range []string{"create-key", "put-key", "revoke-key", "put-budget", "delete-budget"} {
		require.True(t, events[event], "%s in %v", event, events)
	}
	require.Equal(t, berth.CodeForbidden, h.call(http.MethodGet, "/v1/keys", callers["no team"], nil).problem.Code)
}
