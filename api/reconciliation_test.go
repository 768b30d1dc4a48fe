package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
)

func TestReconciliation_Passes_RulesAndLastPassesForOperators(t *testing.T) { // B4
	t.Parallel()
	h := newHarness(t)
	const path = "/v1/reconciliation"
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, path, h.token("alice", "user"), nil).status)
	a := h.call(http.MethodGet, path, h.operator(), nil)
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Empty(t, a.json(t)["passes"])
	rules := a.json(t)["rules"].([]any)
	require.Len(t, rules, len(berth.ReconcileRules()))
	for i, r := range berth.ReconcileRules() {
		require.Equal(t, string(r.Rule), rules[i].(doc)["rule"])
		require.NotEmpty(t, r.Finds)
		require.NotEmpty(t, r.Repairs)
	}
	at := time.Now().Truncate(time.Millisecond).UTC()
	require.NoError(t, h.ledger.SavePass(t.Context(), berth.ReconcilePass{
		ID: "p1", Kind: berth.ReconcileFull, Status: berth.ReconcileCompleted, StartedAt: at, EndedAt: at.Add(time.Second), Left: 1,
		Counts:   []berth.ReconcileCount{{Rule: berth.RuleBalance, Found: 1, Failed: 1}},
		Findings: []berth.ReconcileFinding{{Rule: berth.RuleBalance, Subject: "alice", Outcome: berth.FindingFailed, Message: "the entries sum to -1"}},
	}))
	passes := h.call(http.MethodGet, path, h.operator(), nil).json(t)["passes"].([]any)
	require.Len(t, passes, 1)
	p := passes[0].(doc)
	require.Equal(t, []any{"p1", "full", "completed", 1.0}, []any{p["passId"], p["kind"], p["status"], p["left"]})
	require.Equal(t, "alice", p["findings"].([]any)[0].(doc)["subject"])
}

func TestReconcile_Requested_IdOfThePassAndAudited(t *testing.T) { // B4
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusForbidden, h.call(http.MethodPost, "/v1/reconciliation", h.token("alice", "user"), doc{}).status)
	require.Equal(t, http.StatusAccepted, h.call(http.MethodPost, "/v1/reconciliation", h.operator(), nil).status)
	a := h.call(http.MethodPost, "/v1/reconciliation", h.operator(), doc{"dryRun": true})
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	require.Equal(t, "pass-1", a.json(t)["passId"])
	actions, _, err := h.ledger.AuditLog(t.Context(), ledger.AuditQuery{Event: "reconcile"}, "", 0)
	require.NoError(t, err)
	require.Len(t, actions, 2, "one without a body")
	require.Equal(t, http.StatusAccepted, actions[0].Status)
	require.Equal(t, http.StatusUnprocessableEntity/100, h.call(http.MethodPost, "/v1/reconciliation", h.operator(), doc{"dryRun": "yes"}).status/100)
}

// FA2: where no pass has ever completed, it is late since the database is used: processes that restart do not hide it.
func TestReconciliation_NoPassEver_IsLateAfterFiveIntervals(t *testing.T) {
	t.Parallel()
	h := newHarness(t) // has just started
	late := func() bool {
		a := h.call(http.MethodGet, "/v1/reconciliation", h.operator(), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.NotContains(t, a.json(t), "completedAt")
		return a.json(t)["late"].(bool)
	}
	for ago, want := range map[time.Duration]bool{0: false, 10 * time.Minute: true} {
		h.expectPasses(time.Now().Add(-ago))
		require.Equal(t, want, late(), ago)
	}
	at := time.Now()
	require.NoError(t, h.ledger.SavePass(t.Context(), berth.ReconcilePass{
		ID: "p1", Kind: berth.ReconcileQuick, Status: berth.ReconcileSkipped, StartedAt: at, EndedAt: at,
	}))
	h.expectPasses(time.UnixMilli(1))
	require.True(t, late(), "a skipped pass compares nothing")
}
