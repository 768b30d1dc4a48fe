package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
)

func TestSubmitTask_CreditsSuffice_ChargedOnceAndRefundedOnce(t *testing.T) { // T18
	t.Parallel()
	h := newHarness(t)
	h.credit("bob", 7)
	bob := h.token("bob")
	submit := func(id string) answer { return h.call(http.MethodPost, "/v1/tasks", bob, match(with("taskId", id))) }

	first := submit("t1").json(t)
	require.Equal(t, "paid", first["tier"])
	require.Equal(t, "q_paid_batch", first["queue"])
	require.NotContains(t, first, "downgraded")
	require.EqualValues(t, 4, h.credits("bob"))
	require.Equal(t, http.StatusOK, submit("t1").status)
	require.EqualValues(t, 4, h.credits("bob"), "a replay charges nothing")

	second := submit("t2").json(t)
	require.Equal(t, "paid", second["tier"])
	require.EqualValues(t, 1, h.credits("bob"))

	third := submit("t3").json(t)
	require.Equal(t, "free", third["tier"])
	require.Equal(t, true, third["downgraded"])
	require.Equal(t, "q_free_batch", third["queue"])
	require.Equal(t, "glm-4.5-flash", third["model"])
	require.EqualValues(t, 1, h.credits("bob"))
	again := submit("t3")
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, true, again.json(t)["downgraded"], "a replay reports the tier of the task")

	task := berth.TaskRef{UserID: "bob", TaskID: "t2"}
	for range 3 {
		_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: task, Status: berth.TaskFailed, Code: berth.CodeInternal})
		require.NoError(t, err)
	}
	require.EqualValues(t, 4, h.credits("bob"), "one refund")
	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: berth.TaskRef{UserID: "bob", TaskID: "t3"}, Status: berth.TaskCancelled})
	require.NoError(t, err)
	require.EqualValues(t, 4, h.credits("bob"), "the free tier costs nothing, so nothing is refunded")

	entries, _ := h.call(http.MethodGet, "/v1/me/entries", bob, nil).json(t)["entries"].([]any)
	var kinds []string
	for _, e := range entries {
		e := e.(map[string]any)
		kinds = append(kinds, fmt.Sprint(e["kind"], " ", e["amount"], " ", e["taskId"]))
		require.NotEmpty(t, e["entryId"])
		require.NotEmpty(t, e["at"])
	}
	require.Equal(t, []string{"refund 3 t2", "charge -3 t2", "charge -3 t1", "grant 7 <nil>"}, kinds)
}

// spent is a starter that another request precedes, which spends the user's credits.
type spent struct {
	api.Starter
	ledger *ledger.Ledger
}

func (s spent) SubmitTask(ctx context.Context, plan berth.TaskPlan) (berth.Task, bool, error) {
	credits, err := s.ledger.Credits(ctx, plan.UserID)
	if err == nil {
		_, _, _, err = s.ledger.AddCredits(ctx, ledger.Grant{UserID: plan.UserID, Amount: -credits, Reason: "test", Key: "spent"})
	}
	if err != nil {
		return berth.Task{}, false, err
	}
	return s.Starter.SubmitTask(ctx, plan)
}

func TestSubmitTask_ChargeFailsAtAcceptance_FreeTier(t *testing.T) { // T18
	t.Parallel()
	h := newHarness(t, func(d *api.Deps) { d.Starter = spent{d.Starter, d.Ledger} })
	h.credit("bob", 10)
	a := h.call(http.MethodPost, "/v1/tasks", h.token("bob"), match())
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	d := a.json(t)
	require.Equal(t, []any{"free", true, "q_free_batch", "glm-4.5-flash"}, []any{d["tier"], d["downgraded"], d["queue"], d["model"]})
	got := h.call(http.MethodGet, "/v1/tasks/"+d["taskId"].(string), h.token("bob"), nil).json(t)
	require.Equal(t, "free", got["tier"])
	for _, step := range got["steps"].([]any) {
		require.Contains(t, step.(map[string]any)["queue"], "q_free_")
	}
	require.Zero(t, h.credits("bob"))
}

func TestAccount_OperatorChangesCredits_EachKeyOnce(t *testing.T) { // T18
	t.Parallel()
	h := newHarness(t)
	op := h.token("op", "operator")
	user := "https://login.example/u/42"
	path := "/v1/accounts/" + url.PathEscape(user)
	add := func(key string, amount int64, reason string) answer {
		return h.call(http.MethodPost, path+"/credits", op, doc{"amount": amount, "reason": reason}, "Idempotency-Key", key)
	}
	get := func() map[string]any { return h.call(http.MethodGet, path, op, nil).json(t) }
	require.Equal(t, map[string]any{"userId": user, "tier": "free", "credits": 0.0}, get())

	first := add("order 1", 5, "paid by card")
	require.Equal(t, http.StatusCreated, first.status, string(first.body))
	require.EqualValues(t, 5, first.json(t)["credits"])
	again := add("order 1", 5, "paid by card")
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, first.json(t)["entry"], again.json(t)["entry"])
	require.Equal(t, true, again.json(t)["replay"])
	require.Equal(t, map[string]any{"userId": user, "tier": "paid", "credits": 5.0}, get())

	for name, c := range map[string]struct {
		answer
		status int
		field  string
	}{
		"same key, other amount": {add("order 1", 6, "paid by card"), 422, "Idempotency-Key"},
		"same key, other reason": {add("order 1", 5, "gift"), 422, "Idempotency-Key"},
		"no key":                 {h.call(http.MethodPost, path+"/credits", op, doc{"amount": 5, "reason": "x"}), 400, "Idempotency-Key"},
		"nothing":                {add("k", 0, "x"), 400, "amount"},
		"too much":               {add("k", 1_000_000_001, "x"), 400, "amount"},
		"more than there is":     {add("k", -6, "x"), 409, "amount"},
		"no reason":              {add("k", 1, ""), 400, "reason"},
		"blank reason":           {add("k", 1, " \u200b "), 400, "reason"},
		"reason with NUL":        {add("k", 1, "a\x00b"), 400, "reason"},
		"reason of two lines":    {add("k", 1, "a\nb"), 400, "reason"},
		"reason with C1":         {add("k", 1, "a\u0085b"), 400, "reason"},
		"long reason":            {add("k", 1, strings.Repeat("x", 501)), 400, "reason"},
		"no user":                {h.call(http.MethodPost, "/v1/accounts/%0A/credits", op, doc{"amount": 1, "reason": "x"}, "Idempotency-Key", "k"), 400, "userId"},
	} {
		require.Equal(t, c.status, c.answer.status, "%s: %s", name, c.body)
		require.Equal(t, c.field, c.problem.Field, name)
	}
	require.EqualValues(t, 5, get()["credits"], "no partial effect")
	require.Equal(t, http.StatusCreated, add("order 2", -5, "chargeback").status)
	require.Equal(t, map[string]any{"userId": user, "tier": "free", "credits": 0.0}, get())

	page := h.call(http.MethodGet, path+"/entries?limit=1", op, nil).json(t)
	entries := page["entries"].([]any)
	require.Len(t, entries, 1)
	require.Equal(t, []any{"correction", -5.0, "chargeback"}, []any{
		entries[0].(map[string]any)["kind"], entries[0].(map[string]any)["amount"], entries[0].(map[string]any)["reason"],
	})
	rest := h.call(http.MethodGet, path+"/entries?limit=1&cursor="+page["nextCursor"].(string), op, nil).json(t)
	require.Equal(t, "grant", rest["entries"].([]any)[0].(map[string]any)["kind"])
	require.NotContains(t, rest, "nextCursor")
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodGet, path+"/entries?cursor=x", op, nil).status)

	actions, _, err := h.ledger.AuditLog(t.Context(), ledger.AuditQuery{Event: "add-credits"}, "", 0)
	require.NoError(t, err)
	require.NotEmpty(t, actions)
	require.Equal(t, "op", actions[0].UserID)

	for _, route := range []string{path, path + "/entries"} {
		require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, route, h.token("alice"), nil).status)
	}
	require.Equal(t, http.StatusForbidden, h.call(http.MethodPost, path+"/credits", h.token("alice"), doc{"amount": 1, "reason": "x"}, "Idempotency-Key", "k").status)
}

func TestMe_EachBalance_TierAndCredits(t *testing.T) { // T18
	t.Parallel()
	h := newHarness(t)
	me := func(user string) []any {
		d := h.call(http.MethodGet, "/v1/me", h.token(user), nil).json(t)
		require.Equal(t, user, d["userId"])
		return []any{d["tier"], d["credits"]}
	}
	require.Equal(t, []any{"paid", 1000.0}, me("alice"))
	require.Equal(t, []any{"free", 0.0}, me("bob"))
	prices := map[any]any{}
	for _, v := range h.call(http.MethodGet, "/v1/templates", h.token("bob"), nil).json(t)["templates"].([]any) {
		v := v.(map[string]any)
		prices[v["name"]] = v["credits"]
	}
	require.Equal(t, map[any]any{
		"job_match": 3.0, "interview_prep": 2.0, "resume_customize": 2.0, "resume_summary": 1.0,
		"detailed_resume_summary": 2.0, "job_summary": 1.0, "ticket_summary": 1.0, "translate": 2.0,
	}, prices)
}
