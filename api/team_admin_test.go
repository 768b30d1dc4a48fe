package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
)

// administrator returns a token of scope team for a team and an application, empty for none.
func (h *harness) administrator(user, team, app string) string {
	h.t.Helper()
	return h.grant(identity.Grant{UserID: user, TeamID: team, AppID: app, Scopes: []string{identity.ScopeTeam}})
}

// teams defines a and b, each with an application, and an application without a team. mia is a user of a, bob one of b.
func (h *harness) teams() {
	h.t.Helper()
	h.define("/v1/teams/a", doc{"users": []string{"mia"}})
	h.define("/v1/teams/b", doc{"users": []string{"bob"}})
	h.define("/v1/apps/chat", doc{"teamId": "a"})
	h.define("/v1/apps/other", doc{"teamId": "b"})
	h.define("/v1/apps/loose", doc{})
}

// key creates a key of an application, with a budget.
func (h *harness) key(app string) (id string) {
	h.t.Helper()
	res := h.call(http.MethodPost, "/v1/keys", h.operator(), doc{"appId": app})
	require.Equal(h.t, http.StatusCreated, res.status, string(res.body))
	id = res.json(h.t)["keyId"].(string)
	h.define("/v1/budgets/key/"+id, doc{"credits": 5, "period": "day"})
	return id
}

// fieldOf returns a field of each item of a list, over all of its pages.
func (h *harness) fieldOf(token, path, list, field string) (all []string) {
	h.t.Helper()
	for cursor := ""; ; {
		res := h.call(http.MethodGet, path+cursor, token, nil)
		require.Equal(h.t, http.StatusOK, res.status, string(res.body))
		page := res.json(h.t)
		for _, item := range page[list].([]any) {
			value, _ := item.(map[string]any)[field].(string)
			all = append(all, value)
		}
		next, more := page["nextCursor"].(string)
		if !more {
			return all
		}
		cursor = "&cursor=" + next
	}
}

// O3: administrators of a team manage its keys and their budgets. Those of other teams do not exist for them, and the budget of the team is not theirs.
func TestTeamAdministrators_EachRoute_OwnTeamOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.teams()
	shared := h.key("chat")
	const ok, created, gone, invalid, forbidden, missing = 200, 201, 204, 400, 403, 404
	codes := map[int]berth.Code{invalid: berth.CodeInvalid, forbidden: berth.CodeForbidden, missing: berth.CodeNotFound}
	managers := []map[string]string{ // with the three columns of the table
		{"operator": h.operator(), "operator of a": h.grant(identity.Grant{UserID: "olga", TeamID: "a", Scopes: []string{identity.ScopeTeam, identity.ScopeOperator}})},
		{"of a, by token": h.administrator("ann", "a", ""), "of a, by list": h.administrator("mia", "", "")},
		{"of b, by token": h.administrator("ben", "b", ""), "of b, by list, with the application of a": h.administrator("bob", "", "chat")},
	}
	others := map[string]string{
		"no team": h.administrator("zoe", "", ""), "application only": h.administrator("zoe", "", "chat"),
		"user":   h.grant(identity.Grant{UserID: "ann", TeamID: "a", Scopes: []string{identity.ScopeUser}}),
		"models": h.grant(identity.Grant{UserID: "ann", TeamID: "a", Scopes: []string{identity.ScopeModels}}),
		"node":   h.grant(identity.Grant{UserID: "ann", TeamID: "a", Scopes: []string{identity.ScopeNode}, Nodes: []string{"*"}}),
	}
	settings, budget := doc{"title": "x", "rpm": 3}, doc{"credits": 7, "period": "month"}
	for _, c := range []struct {
		request string
		body    any
		status  [3]int // of an operator, an administrator of a, and one of b
		field   string // of what is forbidden
	}{
		{"GET /v1/keys", nil, [3]int{ok, ok, ok}, ""},
		{"GET /v1/keys?teamId=a", nil, [3]int{ok, ok, forbidden}, "teamId"},
		{"GET /v1/keys?appId=chat", nil, [3]int{ok, ok, ok}, ""},
		{"GET /v1/keys/{key}", nil, [3]int{ok, ok, missing}, ""},
		{"GET /v1/keys/none", nil, [3]int{missing, missing, missing}, ""},
		{"PUT /v1/keys/{key}", settings, [3]int{ok, ok, missing}, ""},
		{"PUT /v1/keys/{key}", doc{"teamId": "b"}, [3]int{invalid, invalid, missing}, ""},
		{"PUT /v1/keys/{key}", doc{"appId": "other"}, [3]int{invalid, invalid, missing}, ""},
		{"PUT /v1/keys/none", settings, [3]int{missing, missing, missing}, ""},
		{"DELETE /v1/keys/{key}", nil, [3]int{gone, gone, missing}, ""},
		{"DELETE /v1/keys/none", nil, [3]int{missing, missing, missing}, ""},
		{"POST /v1/keys", doc{"teamId": "a"}, [3]int{created, created, forbidden}, "teamId"},
		{"POST /v1/keys", doc{"teamId": "none"}, [3]int{invalid, forbidden, forbidden}, "teamId"},
		{"POST /v1/keys", doc{"appId": "chat"}, [3]int{created, created, forbidden}, "appId"},
		{"POST /v1/keys", doc{"teamId": "a", "appId": "chat"}, [3]int{created, created, forbidden}, "teamId"},
		{"POST /v1/keys", doc{"teamId": "a", "appId": "other"}, [3]int{invalid, forbidden, forbidden}, ""},
		{"POST /v1/keys", doc{"appId": "none"}, [3]int{invalid, forbidden, forbidden}, "appId"},
		{"POST /v1/keys", doc{"appId": "loose"}, [3]int{invalid, forbidden, forbidden}, "appId"},
		{"POST /v1/keys", doc{}, [3]int{invalid, created, created}, ""},
		{"GET /v1/budgets", nil, [3]int{ok, ok, ok}, ""},
		{"GET /v1/budgets?teamId=a", nil, [3]int{ok, ok, forbidden}, "teamId"},
		{"GET /v1/budgets?kind=team&id=a", nil, [3]int{ok, ok, ok}, ""},
		{"GET /v1/budgets/team/a", nil, [3]int{ok, ok, missing}, ""},
		{"GET /v1/budgets/key/{key}", nil, [3]int{ok, ok, missing}, ""},
		{"PUT /v1/budgets/key/{key}", budget, [3]int{ok, ok, missing}, ""},
		{"PUT /v1/budgets/key/none", budget, [3]int{missing, missing, missing}, ""},
		{"PUT /v1/budgets/team/a", budget, [3]int{ok, forbidden, missing}, "kind"},
		{"PUT /v1/budgets/team/none", budget, [3]int{missing, missing, missing}, ""},
		{"DELETE /v1/budgets/key/{key}", nil, [3]int{gone, gone, missing}, ""},
		{"DELETE /v1/budgets/team/a", nil, [3]int{gone, forbidden, missing}, "kind"},
	} {
		request := func(caller, token, key string, status int) answer {
			method, path, _ := strings.Cut(strings.ReplaceAll(c.request, "{key}", key), " ")
			res := h.call(method, path, token, c.body)
			require.Equal(t, status, res.status, "%s %v by %s: %s", c.request, c.body, caller, res.body)
			require.Equal(t, codes[status], res.problem.Code, "%s by %s", c.request, caller)
			return res
		}
		for caller, token := range others {
			res := request(caller, token, shared, forbidden)
			if caller == "no team" || caller == "application only" {
				require.Contains(t, res.problem.Detail, "no team")
			}
		}
		for column, status := range c.status {
			for caller, token := range managers[column] {
				key := ""
				if strings.Contains(c.request, "{key}") { // an earlier caller may have changed it
					key = h.key("chat")
				} else if strings.Contains(c.request, "/team/a") {
					h.define("/v1/budgets/team/a", doc{"credits": 5, "period": "day"})
				}
				res := request(caller, token, key, status)
				if status == forbidden && c.field != "" {
					require.Equal(t, c.field, res.problem.Field, "%s by %s", c.request, caller)
				}
			}
		}
	}
	require.NotContains(t, h.call(http.MethodGet, "/v1/keys/"+shared, h.operator(), nil).json(t), "revokedAt")
	require.EqualValues(t, 5, h.call(http.MethodGet, "/v1/budgets/key/"+shared, h.operator(), nil).json(t)["credits"])
}

// O3: lists of a team's administrator have what is of the team, whatever the page and the filter.
func TestTeamAdministrators_Lists_OwnTeamOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.teams()
	var ofA, ofB []string
	for range 3 {
		ofA, ofB = append(ofA, h.key("chat")), append(ofB, h.key("other"))
	}
	for _, team := range []string{"a", "b"} {
		h.define("/v1/budgets/team/"+team, doc{"credits": 5, "period": "day"})
	}
	revoked := h.key("chat")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/keys/"+revoked, h.operator(), nil).status)
	ann := h.administrator("ann", "a", "")
	for query, want := range map[string][]string{
		"": ofA, "&revoked=true": append(slices.Clone(ofA), revoked), "&teamId=a": ofA, "&appId=chat": ofA, "&appId=other": nil,
	} {
		require.ElementsMatch(t, want, h.fieldOf(ann, "/v1/keys?limit=2"+query, "keys", "keyId"), query)
	}
	for query, want := range map[string][]string{
		"": append(slices.Clone(ofA), revoked, "a"), "&kind=team": {"a"}, "&kind=key&id=" + ofA[0]: ofA[:1], "&id=b": nil, "&kind=key&id=" + ofB[0]: nil,
	} {
		require.ElementsMatch(t, want, h.fieldOf(ann, "/v1/budgets?limit=2"+query, "budgets", "id"), query)
	}
	require.ElementsMatch(t, append(ofB, "b"), h.fieldOf(h.operator(), "/v1/budgets?limit=2&teamId=b", "budgets", "id"))
}

// O3: the audit log has what administrators of teams change, with their team, and what was refused.
func TestTeamAdministrators_Changes_InAuditLogWithTeam(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	h.teams()
	key, other := h.key("chat"), h.key("other")
	for _, token := range []string{h.administrator("ann", "a", ""), h.administrator("mia", "", "")} {
		h.call(http.MethodPost, "/v1/keys", token, doc{})
		h.call(http.MethodPut, "/v1/keys/"+other, token, doc{})
		h.call(http.MethodPut, "/v1/keys/"+key, token, doc{"rpm": 3})
		h.call(http.MethodPut, "/v1/budgets/key/"+key, token, doc{"credits": 7, "period": "day"})
		h.call(http.MethodDelete, "/v1/budgets/key/"+key, token, nil)
	}
	h.call(http.MethodPut, "/v1/budgets/team/a", h.operator(), doc{"credits": 7, "period": "day"})
	for user, want := range map[string]string{"ann": "a", "mia": "a", "olga": ""} {
		teams := h.fieldOf(h.operator(), "/v1/audit?limit=100&userId="+user, "entries", "teamId")
		require.GreaterOrEqual(t, len(teams), 5)
		require.Equal(t, []string{want}, slices.Compact(teams), user)
	}
	actions, statuses := map[string]bool{}, map[float64]bool{}
	for _, e := range h.call(http.MethodGet, "/v1/audit?limit=100&teamId=a", h.operator(), nil).json(t)["entries"].([]any) {
		actions[e.(map[string]any)["action"].(string)] = true
		statuses[e.(map[string]any)["status"].(float64)] = true
	}
	require.ElementsMatch(t, []string{"create-key", "put-key", "put-budget", "delete-budget"}, slices.Collect(maps.Keys(actions)))
	require.ElementsMatch(t, []float64{200, 201, 204, 404}, slices.Collect(maps.Keys(statuses)))
}

// O3: a team that only tokens name is defined with its first key, not by reading.
func TestTeamAdministrators_TeamNotDefined_DefinedWithItsFirstKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t, withModels(t))
	token := h.administrator("ann", "new", "")
	require.Empty(t, h.fieldOf(token, "/v1/keys?limit=2", "keys", "keyId"))
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/teams/new", h.operator(), nil).status)
	require.Equal(t, http.StatusCreated, h.call(http.MethodPost, "/v1/keys", token, doc{}).status)
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/teams/new", h.operator(), nil).status)
}

// O3: groups of an identity provider map to teams and roles, by the map of scopes. Groups of two teams are refused, so that no user manages one
// as the administrator of another one.
func TestTeamAdministrators_GroupsOfProvider_MapToTeamAndRole(t *testing.T) {
	t.Parallel()
	h, s := withOIDC(t)
	h.teams()
	h.key("chat")
	h.key("other")
	for name, c := range map[string]struct {
		groups []string
		claims jwt.MapClaims
		status int
		teams  []string // of the keys that the user sees
	}{
		"lead":                    {[]string{"everyone", "a-leads"}, nil, http.StatusOK, []string{"a"}},
		"lead of another team":    {[]string{"b-leads"}, nil, http.StatusOK, []string{"b"}},
		"role and team apart":     {[]string{"leads", "a"}, nil, http.StatusOK, []string{"a"}},
		"role, team by claim":     {[]string{"leads"}, jwt.MapClaims{"team": "b"}, http.StatusOK, []string{"b"}},
		"team by claim and group": {[]string{"a-leads"}, jwt.MapClaims{"team": "a"}, http.StatusOK, []string{"a"}},
		"lead and operator":       {[]string{"a-leads", "berth-operator"}, nil, http.StatusOK, []string{"a", "b"}},
		"member":                  {[]string{"a"}, nil, http.StatusForbidden, nil},
		"role without a team":     {[]string{"leads"}, nil, http.StatusForbidden, nil},
		"another group":           {[]string{"team", "team:a"}, nil, http.StatusForbidden, nil},
		"lead, member of another": {[]string{"a-leads", "b"}, nil, http.StatusUnauthorized, nil},
		"lead, another claim":     {[]string{"a-leads"}, jwt.MapClaims{"team": "b"}, http.StatusUnauthorized, nil},
	} {
		claims := jwt.MapClaims{"realm_access": map[string]any{"roles": c.groups}}
		maps.Copy(claims, c.claims)
		token := s.SignIn(t, "auth0|lee", claims)
		res := h.call(http.MethodGet, "/v1/keys", token, nil)
		require.Equal(t, c.status, res.status, "%s: %s", name, res.body)
		if c.status == http.StatusOK {
			require.Equal(t, c.teams, h.fieldOf(token, "/v1/keys?limit=2", "keys", "teamId"), name)
		}
		if c.status == http.StatusUnauthorized {
			require.Contains(t, res.problem.Detail, "must be of one team", name)
		}
	}
	// The team of a member's group is that of the user's tasks.
	h.credit("auth0|lee", 100)
	member := s.SignIn(t, "auth0|lee", jwt.MapClaims{"realm_access": map[string]any{"roles": []string{"a"}}})
	require.Equal(t, "a", h.submitAs(member)["teamId"])
}
