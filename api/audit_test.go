package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
			Detail: jsonOf(h.t, d["detail"]),
		})
	}
	return out
}

func jsonOf(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return b
}

// readsOnly are the routes for operators that change nothing, although their method is not GET.
var readsOnly = []string{"create-ticket", "render-template"}

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
		if op.method == http.MethodGet || slices.Contains(readsOnly, op.id) {
			require.Len(t, h.actions("userId="+url.QueryEscape("auth0|olga")), recorded, op.id)
			require.Equal(t, "action", h.call(http.MethodGet, "/v1/audit?action="+op.id, token, nil).problem.Field, op.id)
			continue
		}
		rows := h.actions("action=" + op.id)
		require.Len(t, rows, 1, op.id)
		require.WithinDuration(t, time.Now(), rows[0].At, time.Minute)
		want := ledger.AuditEntry{
			ID: rows[0].ID, At: rows[0].At, UserID: "auth0|olga", Event: ledger.AuditEvent(op.id), Target: path, RequestID: "req-" + op.id, Status: a.status,
			Detail: json.RawMessage("{}"),
		}
		require.Equal(t, want, rows[0])
		recorded++
	}
	require.GreaterOrEqual(t, recorded, 18)
	require.Len(t, h.actions("userId="+url.QueryEscape("auth0|olga")), recorded)
	require.Empty(t, h.actions("userId=olga"))
	require.Empty(t, h.actions("to="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))))
	reversed := h.call(http.MethodGet, "/v1/audit?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", h.operator(), nil)
	require.Equal(t, http.StatusBadRequest, reversed.status)
	require.Equal(t, "from", reversed.problem.Field)
	require.Len(t, h.actions("from="+url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339))), recorded)
}

func TestAudit_Action_HasTheValuesOfTheRequest(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	h.task("alice", "t1")
	h.conferenceOf("alice", numberOne)
	long := make([]string, 200)
	for i := range long {
		long[i] = strings.Repeat("t", 100) + strconv.Itoa(i)
	}
	grant := doc{"amount": 5, "reason": "invoice 7"}
	for _, a := range []struct {
		method, path string
		body         any
		status       int
		detail       string
	}{
		{http.MethodPatch, modelPath, doc{"cap": 3, "rpm": nil, "paused": true, "reason": "costs"}, 200, `{"cap":3,"paused":true,"reason":"costs","rpm":null}`},
		{http.MethodPatch, "/v1/models/none", doc{"cap": 3}, 404, `{"cap":3}`},
		{http.MethodPatch, modelPath, doc{"cap": 3, "token": "s3cret"}, 400, `{"cap":3}`},
		{http.MethodPatch, modelPath, `["s3cret"]`, 400, `{}`},
		{http.MethodPatch, modelPath, `{"cap":3`, 400, `{}`},
		{http.MethodPost, "/v1/accounts/alice/credits", grant, 201, `{"amount":5,"reason":"invoice 7"}`},
		{http.MethodPost, "/v1/accounts/alice/credits", grant, 200, `{"amount":5,"reason":"invoice 7"}`},
		{http.MethodPost, "/v1/accounts/bob/credits", doc{"amount": -5, "reason": "fraud"}, 409, `{"amount":-5,"reason":"fraud"}`},
		{http.MethodPut, "/v1/pools/p", doc{"strategy": "locality", "tenants": []string{"acme"}, "stale": true}, 200, `{"strategy":"locality","tenants":["acme"]}`},
		{http.MethodPut, "/v1/pools/p", doc{"kind": "translate", "tenants": long}, 200, `{"kind":"translate","omitted":["tenants"]}`},
		{http.MethodPut, "/v1/tenants/acme/pool", doc{"poolId": "q"}, 200, `{"poolId":"q"}`},
		{http.MethodPut, "/v1/config/strategy", doc{"dynamic": doc{"dwellMs": 5}}, 200, `{"dynamic":{"dwellMs":5}}`},
		{http.MethodPut, "/v1/config/services", doc{"asr": []string{"whisper"}}, 200, `{"asr":["whisper"]}`},
		{http.MethodPost, "/v1/nodes/n1/drain", doc{"withinMs": 60000}, 200, `{"withinMs":60000}`},
		{http.MethodPut, "/v1/nodes/n1/services/asr/unavailable", doc{"ttlMs": 1}, 200, `{"ttlMs":1}`},
		{http.MethodDelete, "/v1/nodes/n1?generation=99", nil, 404, `{"generation":"99"}`},
		{http.MethodPost, "/v1/reconciliation", doc{"dryRun": true}, 202, `{"dryRun":true}`},
		{http.MethodDelete, "/v1/tasks/t1?userId=alice", nil, 202, `{"userId":"alice"}`},
		{http.MethodPost, "/v1/conferences/8613800000001/participants", doc{"identity": "bob", "name": "s3cret"}, 201, `{"identity":"bob","omitted":["name"]}`},
		{http.MethodPost, "/v1/conferences/8613800000001/links", doc{"maxUses": 2}, 201, `{"maxUses":2}`},
		{http.MethodPost, "/v1/codec/decode", `{"payloads":[{"metadata":{},"data":"czNjcmV0"}]}`, 200, `{}`},
	} {
		var header []string
		if strings.HasSuffix(a.path, "/credits") {
			header = []string{"Idempotency-Key", "k"}
		}
		got := h.call(a.method, a.path, h.operator(), a.body, header...)
		require.Equal(t, a.status, got.status, "%s %s: %s", a.method, a.path, got.body)
		row := h.actions("userId=olga")[0]
		path, _, _ := strings.Cut(a.path, "?")
		require.Equal(t, path, row.Target)
		require.Equal(t, a.status, row.Status, "a refused action has the status of its response")
		require.Equal(t, a.detail, string(row.Detail), "%s %s", a.method, a.path)
	}
	log := h.call(http.MethodGet, "/v1/audit?limit=200", h.operator(), nil)
	require.NotContains(t, string(log.body), "s3cret")
	require.NotContains(t, string(log.body), "czNjcmV0", "in base64")
}

func TestAudit_UnknownAction_IsRefusedWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, token := range []string{h.operator(), h.token("alice")} {
		a := h.call(http.MethodGet, "/v1/audit?action=zzz", token, nil)
		require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
		require.Equal(t, "action", a.problem.Field)
		for _, action := range []string{"must be one of", "enqueue", "balance_corrected", "patch-model", "withdraw-node", "decode-payloads"} {
			require.Contains(t, a.problem.Detail, action)
		}
		for _, other := range []string{"list-models", "create-ticket", "register-node"} {
			require.NotContains(t, a.problem.Detail, other)
		}
		require.Equal(t, "action", h.call(http.MethodGet, "/v1/audit?action=zzz", token, nil, "Accept", "application/x-ndjson").problem.Field)
	}
	for _, event := range ledger.AuditEvents() {
		require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/audit?action="+string(event), h.operator(), nil).status, event)
	}
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

func TestAudit_RowNotWritten_ActionIsRefused(t *testing.T) { // B8
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es")
	h.damageDatabase()
	a := h.call(http.MethodDelete, "/v1/nodes/n1", h.operator(), nil)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	nodes, err := h.scripts.ReadNodes(t.Context(), "n1")
	require.NoError(t, err)
	require.Equal(t, berth.NodeReady, nodes["n1"].State)
}

// panics is a fleet whose writes panic.
type panics struct{ api.Fleet }

func (panics) Writable() error { panic("broken") }

func TestAudit_HandlerPanics_ResultIsRecorded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Fleet = panics{d.Fleet} })
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
