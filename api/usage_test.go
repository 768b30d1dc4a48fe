package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
)

// called records a model call of a task, with one failure before it.
func (h *harness) called(t berth.Task) {
	h.t.Helper()
	for call, code := range []berth.Code{berth.CodeProviderUnavailable, ""} {
		a, err := h.ledger.BeginAttempt(h.t.Context(), t.Ref(), 0, t.Steps[0].Status)
		require.NoError(h.t, err)
		c := ledger.ModelCall{
			UserID: t.UserID, TaskID: t.ID, Step: 0, Name: t.Steps[0].Name, Fence: a.Fence, Queue: t.Steps[0].Queue,
			Model: t.Steps[0].Model, Provider: "local", Code: code, LatencyMs: int64(call + 1), CostMicros: 5,
			Usage: berth.Usage{InputTokens: 7, OutputTokens: 3, CachedTokens: 2},
		}
		if code != "" {
			require.NoError(h.t, h.ledger.FailedCall(h.t.Context(), c))
			continue
		}
		_, err = h.ledger.FinishStep(h.t.Context(), ledger.StepResult{
			ModelCall: c, Output: berth.Asset{Kind: berth.AssetResult, MediaType: "text/plain", Content: []byte("x")},
		})
		require.NoError(h.t, err)
	}
}

// rows returns a field of the rows of a log.
func rows(t *testing.T, a answer, key, field string) (values []any) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	for _, v := range a.json(t)[key].([]any) {
		values = append(values, v.(doc)[field])
	}
	return values
}

func TestUsage_UserAndOperator_ReadTheCallsTheyMay(t *testing.T) { // T19
	t.Parallel()
	h := newHarness(t)
	h.called(h.task("alice", "t1"))
	h.called(h.task("bob", "t1"))
	_, err := h.ledger.BeginAttempt(t.Context(), berth.TaskRef{UserID: "bob", TaskID: "t1"}, 1, "MATCH_PENDING")
	require.NoError(t, err)
	get := func(token, query string) answer { return h.call(http.MethodGet, "/v1/usage?"+query, token, nil) }
	own := get(h.token("alice"), "")
	require.Equal(t, "application/json", own.header.Get("Content-Type"))
	require.Equal(t, []any{"success", "provider_unavailable"}, rows(t, own, "calls", "outcome"))
	call := own.json(t)["calls"].([]any)[0].(doc)
	for field, want := range map[string]any{
		"userId": "alice", "taskId": "t1", "serviceId": "svc", "queueId": "q_paid_batch", "step": "summary", "attempt": 2.0, "call": 0.0,
		"model": "deepseek-chat", "provider": "local", "inputTokens": 7.0, "outputTokens": 3.0, "cachedTokens": 2.0, "latencyMs": 2.0, "costMicros": 5.0,
	} {
		require.Equal(t, want, call[field], field)
	}
	require.Len(t, rows(t, get(h.operator(), ""), "calls", "userId"), 5)
	require.Equal(t, []any{"waiting", "success", "provider_unavailable"}, rows(t, get(h.operator(), "userId=bob&taskId=t1"), "calls", "outcome"))
	require.Equal(t, []any{"bob"}, rows(t, get(h.operator(), "model=deepseek-reasoner&outcome=waiting"), "calls", "userId"))
	require.Equal(t, http.StatusForbidden, get(h.token("alice"), "userId=bob").status)
	unknown := get(h.operator(), "outcome=zzz")
	require.Equal(t, http.StatusBadRequest, unknown.status)
	require.Equal(t, "outcome", unknown.problem.Field)
	for _, outcome := range []string{"must be one of", "success", "waiting", "running", "interrupted", "not_started", "provider_unavailable"} {
		require.Contains(t, unknown.problem.Detail, outcome)
	}
	require.Empty(t, rows(t, get(h.operator(), "outcome=deadline_exceeded"), "calls", "userId"))
	require.Equal(t, "cursor", get(h.operator(), "cursor=x").problem.Field)
	require.Equal(t, "from", get(h.operator(), "from=x").problem.Field)
	reversed := get(h.operator(), "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z")
	require.Equal(t, http.StatusBadRequest, reversed.status)
	require.Equal(t, "from", reversed.problem.Field)

	var seen []any
	for cursor := ""; ; {
		page := get(h.operator(), "limit=2&cursor="+cursor)
		seen = append(seen, rows(t, page, "calls", "userId")...)
		next, more := page.json(t)["nextCursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	require.Len(t, seen, 5)
}

func TestAudit_User_ReadsEventsOfOwnTasks(t *testing.T) { // T19
	t.Parallel()
	h := newHarness(t)
	h.finish(h.task("alice", "t1"), "text")
	h.task("bob", "t1")
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/pools/p", h.operator(), doc{}).status)
	get := func(token, query string) answer { return h.call(http.MethodGet, "/v1/audit?"+query, token, nil) }
	require.Equal(t, []any{"done", "enqueue"}, rows(t, get(h.token("alice"), ""), "entries", "action"))
	done := get(h.token("alice"), "action=done&taskId=t1").json(t)["entries"].([]any)[0].(doc)
	require.Equal(t, "COMPLETED", done["detail"].(doc)["status"])
	require.Equal(t, "svc", done["serviceId"])
	require.NotContains(t, done, "target")
	require.Equal(t, []any{"put-pool", "enqueue", "done", "enqueue"}, rows(t, get(h.operator(), ""), "entries", "action"))
	require.Equal(t, []any{"enqueue"}, rows(t, get(h.operator(), "userId=bob"), "entries", "action"))
	require.Equal(t, http.StatusForbidden, get(h.token("alice"), "userId=bob").status)
}

// Usage by key has the titles of the keys.
func TestUsageSums_ByKey_HaveTitles(t *testing.T) { // G16, O4
	t.Parallel()
	h := newHarness(t)
	h.define("/v1/teams/search", doc{})
	h.called(h.task("alice", "t1"))
	titles := map[any]any{nil: nil}
	for _, title := range []any{"Nightly", nil} {
		spec := doc{"teamId": "search"}
		if title != nil {
			spec["title"] = title
		}
		key := h.call(http.MethodPost, "/v1/keys", h.operator(), spec).json(t)["keyId"]
		titles[key] = title
		h.called(h.task(key.(string), "t1"))
	}
	found := map[any]any{}
	for _, sum := range h.call(http.MethodGet, "/v1/usage/sums?by=key", h.operator(), nil).json(t)["sums"].([]any) {
		require.InDelta(t, 2, sum.(doc)["calls"], 0)
		found[sum.(doc)["keyId"]] = sum.(doc)["keyTitle"]
	}
	require.Equal(t, titles, found)
}

func TestAudit_Export_HasEveryRow(t *testing.T) { // T19
	t.Parallel()
	h := newHarness(t)
	const tasks = 450 // more than two pages
	for i := range tasks {
		h.task("alice", fmt.Sprintf("t%d", i))
	}
	a := h.call(http.MethodGet, "/v1/audit?limit=1", h.token("alice"), nil, "Accept", "text/html, application/x-ndjson;q=0.9")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "application/x-ndjson", a.header.Get("Content-Type"))
	var ids []string
	for line := range bytes.Lines(a.body) {
		var row struct{ TaskID string }
		require.NoError(t, json.Unmarshal(line, &row))
		ids = append(ids, row.TaskID)
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), tasks)
	require.Len(t, ids, tasks)
	refused := h.call(http.MethodGet, "/v1/audit", h.token("alice"), nil, "Accept", "application/x-ndjson;q=0")
	require.Equal(t, "application/json", refused.header.Get("Content-Type"))
	bad := h.call(http.MethodGet, "/v1/audit?cursor=x", h.token("alice"), nil, "Accept", "application/x-ndjson")
	require.Equal(t, http.StatusBadRequest, bad.status)
}

func TestAudit_ExportInterrupted_ResponseHasNoEnd(t *testing.T) { // T19
	t.Parallel()
	h := newHarness(t)
	h.task("alice", "t1")
	h.exec( // the oldest row of more than a page cannot be read
		`INSERT INTO audit_log (created_at, user_id, event, task_id, service_id, team_id, queue_id, detail, target, request_id, status, repeat_key, count, last_at)
			WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 300)
			SELECT created_at + n, user_id, event, task_id, service_id, team_id, queue_id, detail, target, request_id, status, '', 1, last_at FROM audit_log, numbers`,
		`UPDATE audit_log SET status = 'unreadable' WHERE id = (SELECT min(id) FROM audit_log)`,
	)
	res, err := h.http.Do(h.request(http.MethodGet, "/v1/audit", h.token("alice"), nil, "Accept", "application/x-ndjson"))
	if err == nil { // else the connection was closed before the header was sent
		defer func() { _ = res.Body.Close() }()
		_, err = new(bytes.Buffer).ReadFrom(res.Body)
	}
	require.Error(t, err)
}

// G16: users read the sums of their calls, operators those of all; mistakes name the parameter.
func TestUsageSums_UserAndOperator_ReadTheSumsTheyMay(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.called(h.task("alice", "t1"))
	h.called(h.task("bob", "t1"))
	get := func(token, query string) answer {
		return h.call(http.MethodGet, "/v1/usage/sums?"+query, token, nil)
	}
	require.Equal(t, []any{2.0}, rows(t, get(h.token("alice"), ""), "sums", "calls"))
	require.Equal(t, []any{4.0}, rows(t, get(h.operator(), ""), "sums", "calls"))
	all := get(h.operator(), "by=user,day&from=2020-12-01T00:00:00Z&to=2021-01-01T00:00:00Z")
	require.Equal(t, []any{}, all.json(t)["sums"])
	own := get(h.operator(), "by=user,model&userId=bob")
	require.Equal(t, []any{"bob"}, rows(t, own, "sums", "userId"))
	require.Equal(t, []any{1.0}, rows(t, own, "sums", "failed"))
	require.Equal(t, []any{14.0}, rows(t, own, "sums", "inputTokens"))
	require.Equal(t, []any{10.0}, rows(t, own, "sums", "costMicros"))
	for query, field := range map[string]string{
		"by=colour": "by", "from=yesterday": "from", "from=2020-01-01T00:00:00Z": "from", "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": "from",
	} {
		a := get(h.operator(), query)
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", query, a.body)
		require.Contains(t, string(a.body), field, query)
	}
	require.Equal(t, http.StatusForbidden, get(h.token("alice"), "userId=bob").status)
}
