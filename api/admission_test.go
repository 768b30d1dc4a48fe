package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
	"berth/lua"
)

func admission(a api.Admission) func(*api.Deps) {
	return func(d *api.Deps) { d.Config.Admission = a }
}

// submit submits a task of alice with an id and returns the response.
func (h *harness) submit(id string, change ...func(doc)) answer {
	return h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(append(change, with("taskId", id))...))
}

// refused checks a response 429 and that its task left nothing but an audit row.
func (h *harness) refused(a answer, id string, code berth.Code, event ledger.AuditEvent, assets int) {
	h.t.Helper()
	require.Equal(h.t, http.StatusTooManyRequests, a.status, string(a.body))
	require.Equal(h.t, code, a.problem.Code)
	require.Equal(h.t, code == berth.CodeRateLimited, a.problem.RateLimited)
	require.Equal(h.t, code == berth.CodeQueueFull, a.problem.QueueFull)
	require.Positive(h.t, a.problem.RetryAfter)
	require.Equal(h.t, fmt.Sprint(a.problem.RetryAfter), a.header.Get("Retry-After"))
	require.Equal(h.t, []ledger.AuditEvent{event}, h.trail(ref(id)))
	require.Equal(h.t, assets, h.count("assets"), "nothing is stored before admission")
	require.NotContains(h.t, h.starter.ids(), id)
}

func TestSubmitTask_QueueFull_RefusedWithPosition(t *testing.T) { // T5, FT3, FT11
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 2}))
	for _, id := range []string{"t1", "t2"} {
		a := h.submit(id, variable("resume", id))
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Empty(t, a.header.Get("RateLimit"), "the rate has no limit")
		require.Empty(t, a.header.Get("RateLimit-Policy"))
	}
	assets := h.count("assets")
	a := h.submit("t3", variable("resume", "t3"))
	h.refused(a, "t3", berth.CodeQueueFull, ledger.AuditQueueFull, assets)
	require.Equal(t, 2, a.problem.Position)
	require.Contains(t, a.problem.Detail, "q_paid_batch")
	var fields map[string]any
	require.NoError(t, json.Unmarshal(a.body, &fields))
	require.Equal(t, true, fields["queueFull"])
	require.NotContains(t, fields, "rateLimited")

	require.Equal(t, http.StatusOK, h.submit("t1", variable("resume", "t1")).status, "a replay needs no place")

	task, err := h.ledger.GetTask(t.Context(), ref("t1"))
	require.NoError(t, err)
	require.NoError(t, h.scripts.RemovePlaces(t.Context(),
		lua.Places{Task: ref("t1"), ServiceID: task.ServiceID, Queues: task.Queues()}))
	require.Equal(t, http.StatusAccepted, h.submit("t3", variable("resume", "t3")).status)
}

func TestSubmitTask_ServiceFull_OtherServiceAccepted(t *testing.T) { // T5
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 10, Service: 1}))
	require.Equal(t, http.StatusAccepted, h.submit("t1").status)
	a := h.submit("t2")
	h.refused(a, "t2", berth.CodeQueueFull, ledger.AuditQueueFull, h.count("assets"))
	require.Equal(t, 1, a.problem.Position)
	require.Equal(t, http.StatusAccepted, h.submit("t3", with("serviceId", "other")).status)
}

func TestSubmitTask_RateExceeded_RefusedByTier(t *testing.T) { // T6
	t.Parallel()
	h := newHarness(t, admission(api.Admission{PaidRate: 2, FreeRate: 1}))
	const paid, free = `"submissions";q=2;w=60`, `"submissions";q=1;w=60`
	state := func(a answer, policy string, left int) {
		t.Helper()
		require.Equal(t, policy, a.header.Get("RateLimit-Policy"))
		require.Regexp(t, fmt.Sprintf(`^"submissions";r=%d;t=([1-9]|[1-5]\d|60)$`, left), a.header.Get("RateLimit"))
	}
	invalid := h.submit("t0", with("template", "surprise"))
	require.Equal(t, http.StatusBadRequest, invalid.status)
	require.Equal(t, paid, invalid.header.Get("RateLimit-Policy"))
	require.Equal(t, `"submissions";r=2;t=0`, invalid.header.Get("RateLimit"), "an invalid request is not counted")
	first := h.submit("t1")
	require.Equal(t, http.StatusAccepted, first.status, string(first.body))
	state(first, paid, 1)
	replay := h.submit("t1")
	require.Equal(t, http.StatusOK, replay.status)
	state(replay, paid, 1)
	require.Equal(t, http.StatusAccepted, h.submit("t2").status)
	a := h.submit("t3")
	h.refused(a, "t3", berth.CodeRateLimited, ledger.AuditRateLimited, h.count("assets"))
	state(a, paid, 0)
	require.Greater(t, a.problem.RetryAfter, 30)
	require.LessOrEqual(t, a.problem.RetryAfter, 60)
	require.Equal(t, http.StatusOK, h.submit("t1").status, "a replay is not limited")

	poor := h.call(http.MethodPost, "/v1/tasks", h.token("poor"), match())
	require.Equal(t, http.StatusAccepted, poor.status)
	state(poor, free, 0)
	poor = h.call(http.MethodPost, "/v1/tasks", h.token("poor"), match(with("locale", "zh")))
	require.Equal(t, http.StatusTooManyRequests, poor.status)

	none := h.call(http.MethodPost, "/v1/tasks", "", match())
	require.Equal(t, http.StatusUnauthorized, none.status)
	require.Empty(t, none.header.Get("RateLimit"))
	require.Empty(t, h.call(http.MethodGet, "/v1/tasks", h.token("alice"), nil).header.Get("RateLimit"), "other routes have no rate")
}

func TestSubmitTask_AcceptanceFails_RetryIsNotCountedAgain(t *testing.T) { // T5, T6
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 1, PaidRate: 1, FreeRate: 1}))
	h.starter.down.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, h.submit("t1").status)
	h.starter.down.Store(false)
	require.Equal(t, http.StatusAccepted, h.submit("t1").status)
}

func TestSubmitTask_ModelBusy_PositionAndEstimate(t *testing.T) { // T5, T24
	t.Parallel()
	h := newHarness(t)
	task := h.submit("t1")
	require.Equal(t, http.StatusAccepted, task.status, string(task.body))
	model, _ := task.json(t)["model"].(string)
	_, err := h.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	for i := range 5 {
		_, err := h.scripts.AcquireSlot(t.Context(), lua.SlotCall{
			Model: model, Limits: lua.ModelLimits{Cap: 1}, Times: lua.SlotTimes{TTL: time.Minute, Grant: time.Second},
			Lease: lua.Lease{Process: "p", Queue: "q_paid_batch", UserID: "alice", Rest: fmt.Sprint(i)}.ID(),
		})
		require.NoError(t, err)
	}
	require.NoError(t, h.client.HSet(t.Context(), h.scripts.Keys().ModelState(model), "gap", "3000").Err())
	body := h.submit("t2").json(t)
	require.EqualValues(t, 4, body["position"])
	require.EqualValues(t, 15, body["etaSeconds"], "five calls of 3 s each")
}
