package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// O3: an operator defines budgets of keys and teams, and reads their use and period; what was read is a valid definition.
func TestBudgets_DefinedAndDeleted_ShownWithPeriod(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	a := h.call(http.MethodPost, "/v1/keys", h.operator(), doc{"teamId": "search", "title": "Nightly"})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	key := a.json(t)["keyId"].(string)
	for path, period := range map[string]berth.BudgetPeriod{
		"/v1/budgets/key/" + key: berth.PeriodDay, "/v1/budgets/team/search": berth.PeriodTotal,
	} {
		require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, path, h.operator(), nil).status, path)
		began := period.Began(time.Now())
		got := h.define(path, doc{"credits": 12.5, "period": period})
		require.InDelta(t, 12.5, got["credits"], 0, path)
		require.InDelta(t, 0, got["used"], 0, path)
		require.Equal(t, "olga", got["updatedBy"], path)
		require.Equal(t, map[bool]any{true: "Nightly"}[strings.Contains(path, "/key/")], got["title"], path)
		if period == berth.PeriodTotal {
			require.NotContains(t, got, "beganAt")
			require.NotContains(t, got, "endsAt")
		} else if began.Equal(period.Began(time.Now())) { // the test did not run at midnight
			require.Equal(t, began.Format(time.RFC3339), got["beganAt"])
			require.Equal(t, began.AddDate(0, 0, 1).Format(time.RFC3339), got["endsAt"])
		}
		read := h.call(http.MethodGet, path, h.operator(), nil).json(t)
		require.Equal(t, got, read, path)
		require.InDelta(t, 12.5, h.define(path, read)["credits"], 0, "the response of GET is a valid body")
	}
	ids, calls := h.pages("/v1/budgets", "budgets", "id", url.Values{"limit": {"1"}})
	require.Equal(t, []string{key, "search"}, ids)
	require.Equal(t, []any{"Nightly", nil}, rows(t, h.call(http.MethodGet, "/v1/budgets", h.operator(), nil), "budgets", "title"))
	require.Equal(t, 2, calls)
	ids, _ = h.pages("/v1/budgets", "budgets", "id", url.Values{"kind": {"team"}})
	require.Equal(t, []string{"search"}, ids)
	ids, _ = h.pages("/v1/budgets", "budgets", "id", url.Values{"id": {key}})
	require.Equal(t, []string{key}, ids)
	ids, _ = h.pages("/v1/budgets", "budgets", "id", url.Values{"kind": {"team"}, "id": {key}})
	require.Empty(t, ids)

	path := "/v1/budgets/team/search"
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, path, h.operator(), nil).status)
	a = h.call(http.MethodDelete, path, h.operator(), nil)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Equal(t, `team "search" has no budget`, a.problem.Detail)
	changes := h.actions("action=put-budget")
	require.Len(t, changes, 4)
	require.Contains(t, string(changes[0].Detail), `"credits":12.5`)
}

// O3: what is wrong with a budget is named by its field.
func TestBudgets_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	for _, tc := range []struct {
		path   string
		body   doc
		status int
		field  string
	}{
		{"/v1/budgets/team/search", doc{"credits": -1, "period": "day"}, http.StatusBadRequest, "credits"},
		{"/v1/budgets/team/search", doc{"credits": 0.0001, "period": "day"}, http.StatusBadRequest, "credits"},
		{"/v1/budgets/team/search", doc{"period": "day"}, http.StatusBadRequest, "credits"},
		{"/v1/budgets/team/search", doc{"credits": 1, "period": "year"}, http.StatusBadRequest, "period"},
		{"/v1/budgets/team/search", doc{"credits": 1}, http.StatusBadRequest, "period"},
		{"/v1/budgets/team/search", doc{"credits": 1, "period": "day", "id": "ads"}, http.StatusBadRequest, "id"},
		{"/v1/budgets/team/search", doc{"credits": 1, "period": "day", "kind": "key"}, http.StatusBadRequest, "kind"},
		{"/v1/budgets/user/search", doc{"credits": 1, "period": "day"}, http.StatusBadRequest, "kind"},
		{"/v1/budgets/team/ads", doc{"credits": 1, "period": "day"}, http.StatusNotFound, ""},
		{"/v1/budgets/key/none", doc{"credits": 1, "period": "day"}, http.StatusNotFound, ""},
	} {
		a := h.call(http.MethodPut, tc.path, h.operator(), tc.body)
		require.Equal(t, tc.status, a.status, "%s %v: %s", tc.path, tc.body, a.body)
		require.Equal(t, tc.field, a.problem.Field, "%s %v: %s", tc.path, tc.body, a.body)
	}
	require.Empty(t, h.call(http.MethodGet, "/v1/budgets", h.operator(), nil).json(t)["budgets"])
}
