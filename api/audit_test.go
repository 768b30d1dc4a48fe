package api_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/identity"
	"berth/internal/ledger"
)

func (h *harness) actions(query string) []ledger.AuditEntry {
	h.t.Helper()
	a := h.call(http.MethodGet, "/v1/audit?limit=200&"+query, h.operator(), nil)
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	var out []ledger.AuditEntry
	for _, v := range a.json(h.t)["entries"].([]any) {
		d, _ := v.(doc)
		at, err := time.Parse(time.RFC3339Nano, d["at"].(string))
		require.NoError(h.t, err)
		out = append(out, ledger.AuditEntry{
			ID: int64(d["entryId"].(float64)), At: at, UserID: d["userId"].(string), Event: ledger.AuditEvent(d["action"].(string)),
			Target: d["target"].(string), RequestID: d["requestId"].(string), Status: int(d["status"].(float64)),
		})
	}
	return out
}

// readsOnly are the routes for operators that change nothing, although their method is not GET.
var readsOnly = []string{"create-ticket"}

func TestAudit_EveryRouteOfOperators_IsRecorded(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t)
	token := h.grant(identity.Grant{UserID: "auth0|olga", Scopes: []string{"operator"}})
	recorded := 0
	for _, op := range operations(t, h) {
		if !slices.Contains(op.scopes, identity.ScopeOperator) || op.id == "operator-events" { // which never end
			continue
		}
		path := braces.ReplaceAllString(strings.ReplaceAll(op.path, "{e164}", "8613800000001"), "x1")
		a := h.call(op.method, path, token, nil, "X-Request-Id", "req-"+op.id)
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.status, op.id)
		rows := h.actions("action=" + op.id)
		if op.method == http.MethodGet || slices.Contains(readsOnly, op.id) {
			require.Empty(t, rows, op.id)
			continue
		}
		require.Len(t, rows, 1, op.id)
		require.WithinDuration(t, time.Now(), rows[0].At, time.Minute)
		want := ledger.AuditEntry{
			ID: rows[0].ID, At: rows[0].At, UserID: "auth0|olga", Event: ledger.AuditEvent(op.id), Target: path, RequestID: "req-" + op.id, Status: a.status,
		}
		require.Equal(t, want, rows[0])
		recorded++
	}
	require.GreaterOrEqual(t, recorded, 18)
	require.Len(t, h.actions("userId="+url.QueryEscape("auth0|olga")), recorded)
	require.Empty(t, h.actions("userId=olga"))
	require.Empty(t, h.actions("to="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))))
	require.Len(t, h.actions("from="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))), recorded)
}

func TestAudit_CallsOfOthers_AreNotRecorded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.join("n1")
	require.Equal(t, http.StatusForbidden, h.call(http.MethodPut, "/v1/pools/p", h.token("alice"), doc{}).status)
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodPut, "/v1/pools/p", "", doc{}).status)
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/nodes/n1", h.nodeToken(), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, "/v1/conferences/8613800000001", h.token("alice"), nil).status)
	require.Empty(t, h.actions(""))
}

// brokenAudit is a ledger that cannot record actions.
type brokenAudit struct{ api.Ledger }

func (brokenAudit) BeginAction(context.Context, ledger.AuditEntry) (int64, error) {
	return 0, berth.Errorf(berth.CodeUnavailable, "database unavailable; retry")
}

func TestAudit_RowNotWritten_ActionIsRefused(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Ledger = brokenAudit{d.Ledger} })
	h.node("n1", "translate:en-es")
	a := h.call(http.MethodDelete, "/v1/nodes/n1", h.operator(), nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	nodes, err := h.scripts.ReadNodes(t.Context(), "n1")
	require.NoError(t, err)
	require.Equal(t, berth.NodeReady, nodes["n1"].State)
}

// panicsOnSettings is a ledger in which operators' settings of nodes panic.
type panicsOnSettings struct{ api.Ledger }

func (panicsOnSettings) NodeSettings(context.Context, string) (berth.NodeSettings, bool, error) {
	panic("broken")
}

func TestAudit_HandlerPanics_ResultIsRecorded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Ledger = panicsOnSettings{d.Ledger} })
	require.Equal(t, http.StatusInternalServerError, h.call(http.MethodPost, "/v1/nodes/n1/cordon", h.operator(), nil).status)
	rows := h.actions("")
	require.Len(t, rows, 1)
	require.Equal(t, http.StatusInternalServerError, rows[0].Status)
}

func TestAudit_Pages_NewestFirst(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, id := range []string{"a", "b", "c"} {
		require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/pools/"+id, h.operator(), doc{}).status)
	}
	var targets []string
	for cursor := ""; ; {
		page := h.call(http.MethodGet, "/v1/audit?limit=2&cursor="+cursor, h.operator(), nil).json(t)
		for _, v := range page["entries"].([]any) {
			targets = append(targets, v.(doc)["target"].(string))
		}
		next, more := page["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	require.Equal(t, []string{"/v1/pools/c", "/v1/pools/b", "/v1/pools/a"}, targets)
	a := h.call(http.MethodGet, "/v1/audit?cursor=x", h.operator(), nil)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, "cursor", a.problem.Field)
}
