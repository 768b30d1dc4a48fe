package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/lua"
)

// define defines a team or an application.
func (h *harness) define(path string, body doc) doc {
	h.t.Helper()
	a := h.call(http.MethodPut, path, h.operator(), body)
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	return a.json(h.t)
}

// submitAs submits a task with a token, and returns it.
func (h *harness) submitAs(token string, change ...func(doc)) doc {
	h.t.Helper()
	a := h.call(http.MethodPost, "/v1/tasks", token, match(change...))
	require.Equal(h.t, http.StatusAccepted, a.status, string(a.body))
	got := h.call(http.MethodGet, "/v1/tasks/"+a.json(h.t)["taskId"].(string), token, nil)
	require.Equal(h.t, http.StatusOK, got.status, string(got.body))
	return got.json(h.t)
}

func levels(d doc) []any { return []any{d["teamId"], d["appId"], d["endUser"]} }

// G11: an operator defines, reads, changes and deletes teams and applications; what was read is a valid definition.
func TestTeams_DefinedAndDeleted_ShownWithUse(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/teams/search", h.operator(), nil).status)
	empty := doc{"inUse": 0.0, "waiting": 0.0, "atLimit": false}
	with := func(d doc) doc {
		for k, v := range empty {
			d[k] = v
		}
		return d
	}
	team := with(doc{
		"teamId": "search", "title": "Search", "weight": 2.5, "slots": 1.0, "users": []any{"auth0|1", "bob"}, "services": []any{"crawl"},
	})
	require.Equal(t, team, h.define("/v1/teams/search", doc{"title": " Search ", "weight": 2.5, "slots": 1, "users": []string{"bob", "auth0|1"}, "services": []string{"crawl"}}))
	require.Equal(t, team, h.define("/v1/teams/search", team), "the response of GET is a valid body")
	app := with(doc{"appId": "chat", "teamId": "search", "weight": 1.0, "maxTasks": 5.0, "services": []any{"talk"}})
	require.Equal(t, app, h.define("/v1/apps/chat", doc{"teamId": "search", "maxTasks": 5, "services": []string{"talk"}}))
	require.Equal(t, with(doc{"appId": "solo", "weight": 1.0}), h.define("/v1/apps/solo", doc{}))
	require.Equal(t, with(doc{"teamId": "ads", "weight": 1.0}), h.define("/v1/teams/ads", doc{}))

	for i, p := range []lua.Path{
		{Queue: paidStream, Group: lua.Group{Team: "search", App: "chat", EndUser: "e"}, UserID: "u"},
		{Queue: paidStream, Group: lua.Group{Team: "search"}, UserID: "bob"},
		{Queue: paidStream, UserID: "bob"},
		{Queue: paidStream, UserID: "bob"},
	} {
		_, err := h.scripts.AcquireSlot(t.Context(), lua.SlotCall{
			Model: "deepseek-chat", Limits: limits(t, "deepseek-chat", 2), Times: modelTimes, Lease: lua.Lease{Process: "p", Path: p, Rest: string(rune('1' + i))}.ID(),
		})
		require.NoError(t, err)
	}
	use := func(inUse, waiting float64) []any {
		return []any{doc{"model": "deepseek-chat", "queue": "q_paid_stream", "inUse": inUse, "waiting": waiting}}
	}
	get := func(path string) doc {
		t.Helper()
		a := h.call(http.MethodGet, path, h.operator(), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	team["inUse"], team["waiting"], team["atLimit"], team["uses"] = 1.0, 1.0, true, use(1, 1)
	require.Equal(t, team, get("/v1/teams/search"))
	app["inUse"], app["uses"] = 1.0, use(1, 0)
	require.Equal(t, app, get("/v1/apps/chat"))
	waits := h.model("deepseek-chat")["users"].([]any)
	require.Equal(t, doc{"userId": "bob", "teamId": "search", "queue": "q_paid_stream", "model": "deepseek-chat", "waiting": 1.0}, waits[0])

	ids, calls := h.pages("/v1/teams", "teams", "teamId", url.Values{"limit": {"1"}})
	require.Equal(t, []string{"ads", "search"}, ids)
	require.Equal(t, 2, calls)
	listed := get("/v1/teams")["teams"].([]any)[1].(doc)
	for _, left := range []string{"users", "services", "uses"} {
		delete(team, left)
		delete(app, left)
	}
	require.Equal(t, team, listed)
	require.Equal(t, []any{app}, get("/v1/apps?teamId=search")["apps"])
	require.Len(t, get("/v1/apps")["apps"], 2)
	require.Equal(t, []any{team}, get("/v1/teams?prefix=se")["teams"])
	require.Empty(t, get("/v1/apps?prefix=se")["apps"])

	a := h.call(http.MethodDelete, "/v1/teams/search", h.operator(), nil)
	require.Equal(t, http.StatusConflict, a.status)
	require.Contains(t, a.problem.Detail, "applications, such as chat")
	stored := func() map[lua.Level]lua.LevelLimits {
		settings, err := h.scripts.StoredSettings(t.Context(), nil, nil)
		require.NoError(t, err)
		return settings.Levels
	}
	require.Equal(t, map[lua.Level]lua.LevelLimits{{Team: "search"}: {Weight: 2.5, Slots: 1}}, stored())
	for _, path := range []string{"/v1/apps/chat", "/v1/apps/solo", "/v1/teams/search", "/v1/teams/ads"} {
		require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path, h.operator(), nil).status)
		require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path, h.operator(), nil).status)
	}
	require.Empty(t, stored())
	left, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
	actions, _, err := h.ledger.AuditLog(t.Context(), ledger.AuditQuery{Event: "put-team"}, "", 0)
	require.NoError(t, err)
	require.Len(t, actions, 3)
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/teams", h.token("alice"), nil).status)
}

func TestPutTeam_InvalidRequest_FieldNamed(t *testing.T) { // G11
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/taken", doc{"users": []string{"bob"}})
	for name, tc := range map[string]struct {
		path  string
		body  doc
		field string
	}{
		"weight too small":       {"/v1/teams/a", doc{"weight": 0.001}, "weight"},
		"weight too large":       {"/v1/apps/a", doc{"weight": 1001}, "weight"},
		"negative weight":        {"/v1/teams/a", doc{"weight": -1}, "weight"},
		"negative slots":         {"/v1/teams/a", doc{"slots": -1}, "slots"},
		"negative maxTasks":      {"/v1/apps/a", doc{"maxTasks": -1}, "maxTasks"},
		"long title":             {"/v1/teams/a", doc{"title": strings.Repeat("x", 101)}, "title"},
		"invalid id":             {"/v1/teams/a%20b", doc{}, "teamId"},
		"invalid application id": {"/v1/apps/a%2Fb", doc{}, "appId"},
		"another id":             {"/v1/teams/a", doc{"teamId": "b"}, "teamId"},
		"another application id": {"/v1/apps/a", doc{"appId": "b"}, "appId"},
		"invalid user":           {"/v1/teams/a", doc{"users": []string{""}}, "users"},
		"user twice":             {"/v1/teams/a", doc{"users": []string{"u", "u"}}, "users"},
		"invalid service":        {"/v1/teams/a", doc{"services": []string{"a b"}}, "services"},
		"unknown team":           {"/v1/apps/a", doc{"teamId": "none"}, "teamId"},
	} {
		a := h.call(http.MethodPut, tc.path, h.operator(), tc.body)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
		require.Equal(t, tc.field, a.problem.Field, "%s: %s", name, a.body)
	}
	a := h.call(http.MethodPut, "/v1/teams/a", h.operator(), doc{"users": []string{"bob"}})
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, "users", a.problem.Field)
	require.Contains(t, a.problem.Detail, `user "bob" belongs to team taken`)
}

// G11: a task has the team and application of its token, user or service when it is accepted, and keeps them.
func TestSubmit_TeamOfTokenUserOrService_FixedAtAcceptance(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/a", doc{"users": []string{"ann"}, "services": []string{"crawl"}})
	h.define("/v1/apps/chat", doc{"teamId": "a", "services": []string{"talk"}})
	service := func(id string) func(doc) { return func(d doc) { d["serviceId"] = id } }
	endUser := func(id string) func(doc) { return func(d doc) { d["endUser"] = id } }
	ofTeam := h.grant(identity.Grant{UserID: "ann", Scopes: []string{"user"}, TeamID: "new"})
	ofApp := h.grant(identity.Grant{UserID: "svc", Scopes: []string{"user"}, AppID: "chat"})
	me := h.call(http.MethodGet, "/v1/me", ofTeam, nil).json(t)
	require.Equal(t, []any{"new", nil}, []any{me["teamId"], me["appId"]})

	require.Equal(t, []any{"new", nil, nil}, levels(h.submitAs(ofTeam)))
	require.Equal(t, []any{"a", nil, nil}, levels(h.submitAs(h.token("ann"), service("other"))))
	require.Equal(t, []any{"a", nil, nil}, levels(h.submitAs(h.token("eve"), service("crawl"))))
	require.Equal(t, []any{nil, nil, nil}, levels(h.submitAs(h.token("eve"))))
	first := h.submitAs(ofApp, endUser("Ünal 1"))
	require.Equal(t, []any{"a", "chat", "Ünal 1"}, levels(first))
	second := h.submitAs(ofApp, endUser("2"))
	require.NotEqual(t, first["taskId"], second["taskId"], "the end user is a part of the request")
	require.Equal(t, []any{"a", "chat", "3"}, levels(h.submitAs(h.token("eve"), service("talk"), endUser("3"))))

	for name, tc := range map[string]struct{ token, endUser, problem string }{
		"without an application": {h.token("ann"), "x", "needs an application"},
		"of another team":        {h.grant(identity.Grant{UserID: "svc", Scopes: []string{"user"}, TeamID: "b", AppID: "chat"}), "x", "needs an application"},
		"not printable":          {ofApp, "a\x07", "printable"},
		"too long":               {ofApp, strings.Repeat("x", 256), ""},
	} {
		a := h.call(http.MethodPost, "/v1/tasks", tc.token, match(endUser(tc.endUser)))
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", name, a.body)
		require.Equal(t, "endUser", a.problem.Field, name)
		require.Contains(t, a.problem.Detail, tc.problem, name)
	}

	teams, _ := h.pages("/v1/teams", "teams", "teamId", url.Values{})
	require.Equal(t, []string{"a", "b", "new"}, teams, "teams of tokens are listed")
	ids, _ := h.pages("/v1/tasks", "tasks", "userId", url.Values{"allUsers": {"true"}, "teamId": {"a"}})
	require.ElementsMatch(t, []string{"ann", "eve", "svc", "svc", "eve"}, ids)
	own := h.call(http.MethodGet, "/v1/tasks?teamId=new", h.token("ann"), nil).json(t)["tasks"]
	require.Len(t, own, 1)

	// What was accepted keeps its team, also when an operator moves the user.
	h.define("/v1/teams/a", doc{})
	require.Equal(t, []any{nil, nil, nil}, levels(h.submitAs(h.token("ann"), service("third"))))
	stored, err := h.ledger.GetTask(t.Context(), berth.TaskRef{UserID: "svc", TaskID: first["taskId"].(string)})
	require.NoError(t, err)
	_, err = h.ledger.BeginAttempt(t.Context(), stored.Ref(), 0, stored.Steps[0].Status)
	require.NoError(t, err)
	calls := h.call(http.MethodGet, "/v1/usage?userId=svc", h.operator(), nil).json(t)["calls"].([]any)
	require.Len(t, calls, 1)
	require.Equal(t, []any{"a", "chat"}, []any{calls[0].(doc)["teamId"], calls[0].(doc)["appId"]})
	require.Equal(t, []any{"a", "chat", "Ünal 1"}, levels(h.call(http.MethodGet, "/v1/tasks/"+stored.ID, ofApp, nil).json(t)))
}

// G11: a team and an application with as many unfinished tasks as they may have get no more, whichever of their users submits.
func TestSubmit_TeamOrApplicationFull_Refused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/a", doc{"maxTasks": 2})
	h.define("/v1/apps/chat", doc{"teamId": "a", "maxTasks": 1})
	submit := func(user, app string) answer {
		return h.call(http.MethodPost, "/v1/tasks", h.grant(identity.Grant{UserID: user, Scopes: []string{"user"}, TeamID: "a", AppID: app}), match())
	}
	require.Equal(t, http.StatusAccepted, submit("u1", "chat").status)
	full := submit("u2", "chat")
	require.Equal(t, http.StatusTooManyRequests, full.status)
	require.Equal(t, berth.CodeQueueFull, full.problem.Code)
	require.Contains(t, full.problem.Detail, "1 task of application chat is unfinished")
	require.Equal(t, http.StatusAccepted, submit("u2", "").status)
	full = submit("u3", "")
	require.Equal(t, http.StatusTooManyRequests, full.status)
	require.Contains(t, full.problem.Detail, "2 tasks of team a are unfinished")
	h.define("/v1/teams/a", doc{"maxTasks": 3})
	require.Equal(t, http.StatusAccepted, submit("u3", "").status)
}
