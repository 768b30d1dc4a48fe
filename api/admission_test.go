package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
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
	h.refusals[event]++
	require.Equal(h.t, h.refusals[event], h.audited(event), "each is counted")
	require.Equal(h.t, assets, h.count("assets"), "nothing is stored before admission")
	require.NotContains(h.t, h.starter.ids(), id)
}

// audited returns how often an event of alice is in the audit log, as the API reports it.
func (h *harness) audited(event ledger.AuditEvent) (n int64) {
	h.t.Helper()
	a := h.call(http.MethodGet, "/v1/audit?limit=200&userId=alice&action="+string(event), h.operator(), nil)
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	for _, e := range a.json(h.t)["entries"].([]any) {
		count, repeated := e.(doc)["count"].(float64)
		require.Equal(h.t, repeated, e.(doc)["lastAt"] != nil)
		n += max(int64(count), 1)
	}
	return n
}

// FA9: a client in a loop leaves one row a minute, which has the number of its requests.
func TestSubmitTask_ClientLoops_RefusalsAndReplaysAreCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 1}))
	require.Equal(t, http.StatusAccepted, h.submit("t1", variable("resume", "t1")).status)
	before := h.count("audit_log")
	const times = 10
	var loops sync.WaitGroup
	for i := range times {
		loops.Go(func() {
			if a := h.submit(fmt.Sprint("full-", i), variable("resume", "t2")); a.status != http.StatusTooManyRequests {
				t.Errorf("not refused: %s", a.body)
			}
			if a := h.submit("t1", variable("resume", "t1")); a.status != http.StatusOK {
				t.Errorf("not a replay: %s", a.body)
			}
		})
	}
	loops.Wait()
	require.EqualValues(t, times, h.audited(ledger.AuditQueueFull))
	require.EqualValues(t, times, h.audited(ledger.AuditReplay))
	require.LessOrEqual(t, h.count("audit_log")-before, 4, "one row of each, and another where a minute has ended")
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

	require.Equal(t, http.StatusOK, h.submit("t1", variable("resume", "t1")).status, "a replay needs no admission")

	task, err := h.ledger.GetTask(t.Context(), ref("t1"))
	require.NoError(t, err)
	require.NoError(t, h.scripts.RemoveAdmissions(t.Context(),
		lua.Admissions{Task: ref("t1"), ServiceID: task.ServiceID, Queues: task.Queues()}))
	require.Equal(t, http.StatusAccepted, h.submit("t3", variable("resume", "t3")).status)
}

func TestSubmitTask_LastOfQueue_RefusalSaysForWhom(t *testing.T) { // T5, FT3
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 10}))
	for i := range 9 {
		require.Equal(t, http.StatusAccepted, h.submit(fmt.Sprint("t", i), variable("resume", fmt.Sprint(i))).status)
	}
	a := h.submit("t9", variable("resume", "9"))
	h.refused(a, "t9", berth.CodeQueueFull, ledger.AuditQueueFull, h.count("assets"))
	require.Contains(t, a.problem.Detail, "has 9 of at most 10 tasks; the last are kept for users who have no unfinished task in it")
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
		a.rate(t)
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

// rate parses the rate fields with their grammar, as clients do, and returns the quota, its window, what is left, and the time
// until there is more, -1 for none.
func (a answer) rate(t *testing.T) (quota, window, left, reset int64) {
	t.Helper()
	item := func(field string, keys ...string) httpsfv.Item {
		list, err := httpsfv.UnmarshalList(a.header.Values(field))
		require.NoError(t, err, field)
		require.Len(t, list, 1, field)
		i, ok := list[0].(httpsfv.Item)
		require.True(t, ok, field)
		require.Equal(t, "submissions", i.Value, "a string")
		require.Subset(t, keys, i.Params.Names(), field)
		return i
	}
	number := func(i httpsfv.Item, key string) int64 {
		v, ok := i.Params.Get(key)
		require.True(t, ok, key)
		n, ok := v.(int64)
		require.True(t, ok, "%s is an integer", key)
		require.GreaterOrEqual(t, n, int64(0), key)
		return n
	}
	policy, state := item("RateLimit-Policy", "q", "w"), item("RateLimit", "r", "t")
	quota, window, left, reset = number(policy, "q"), number(policy, "w"), number(state, "r"), -1
	require.Positive(t, window)
	if _, ok := state.Params.Get("t"); ok {
		reset = number(state, "t")
	}
	if after := a.header.Get("Retry-After"); after != "" && reset >= 0 {
		n, err := strconv.ParseInt(after, 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, reset, "Retry-After is not earlier")
	}
	return quota, window, left, reset
}

func TestSubmitTask_QueueFullWithinRate_FieldsAgree(t *testing.T) { // T5, T6
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 1, PaidRate: 10, FreeRate: 5}))
	_, _, left, reset := h.submit("t1").rate(t)
	require.EqualValues(t, 9, left)
	require.Positive(t, reset)
	a := h.submit("t2")
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, berth.CodeQueueFull, a.problem.Code)
	quota, window, _, reset := a.rate(t)
	require.EqualValues(t, 10, quota)
	require.EqualValues(t, 60, window)
	require.EqualValues(t, -1, reset, "one may be admitted before the rate has more")
}

// Any dependency may refuse a request for its rate, so each route states when to retry.
func TestRoutes_RateLimited_StateRetryAfter(t *testing.T) { // T6
	t.Parallel()
	for _, refusal := range []error{
		berth.Errorf(berth.CodeRateLimited, "too many requests"), berth.Errorf(berth.CodeQueueFull, "the queue is full"),
		&api.RetryError{Err: berth.Errorf(berth.CodeRateLimited, "too many requests"), After: 3 * time.Second},
	} {
		h := withSession(t, func(d *api.Deps) { d.Starter = refusing{d.Starter, refusal} })
		h.task("alice", "t1")
		for request, body := range map[string]any{
			"POST /v1/tasks": match(), "DELETE /v1/tasks/t1": nil, "POST /v1/sessions/s1/jobs": job("r1"),
			"GET /v1/turns/turn-1": nil, "POST /v1/turns/turn-1/finalize": nil,
			"POST /v1/executions": doc{"executor": "ocr"}, "GET /v1/executions/e1": nil, "DELETE /v1/executions/e1": nil,
			"POST /v1/conferences": meeting(),
		} {
			method, path, _ := strings.Cut(request, " ")
			a := h.call(method, path, h.token("alice"), body)
			require.Equal(t, http.StatusTooManyRequests, a.status, "%s: %s", request, a.body)
			if path == "/v1/tasks" {
				require.Empty(t, a.header.Get("RateLimit"), "the rate has no limit here")
			}
			var retry *api.RetryError
			if errors.As(refusal, &retry) {
				require.Equal(t, 3, a.problem.RetryAfter, request)
			}
		}
	}
	for _, c := range berth.Codes() {
		if c.Status == http.StatusTooManyRequests && c.Code != berth.CodeBudgetExceeded { // a retry would fail until the budget is raised
			require.Positive(t, c.RetryAfter, c.Code)
		}
	}
}

// refusing refuses every call.
type refusing struct {
	api.Starter
	err error
}

func (r refusing) SubmitTask(context.Context, berth.TaskPlan) (berth.Task, bool, error) {
	return berth.Task{}, false, r.err
}
func (r refusing) CancelTask(context.Context, berth.TaskRef) error { return r.err }

func (r refusing) Dispatch(context.Context, starter.JobCall) (workflows.DispatchReply, bool, error) {
	return workflows.DispatchReply{}, false, r.err
}

func (r refusing) FinalizeTurn(context.Context, string, workflows.FinalizeRequest) (workflows.FinalizeReply, error) {
	return workflows.FinalizeReply{}, r.err
}

func (r refusing) GetTurn(context.Context, string) (berth.Turn, error) { return berth.Turn{}, r.err }

func (r refusing) SubmitExecution(context.Context, string, workflows.ExecutionInput) (workflows.ExecuteReply, bool, error) {
	return workflows.ExecuteReply{}, false, r.err
}

func (r refusing) GetExecution(context.Context, string) (berth.Execution, error) {
	return berth.Execution{}, r.err
}
func (r refusing) CancelExecution(context.Context, string) error { return r.err }

func (r refusing) CreateConference(context.Context, workflows.ConferenceInput) (berth.Conference, bool, error) {
	return berth.Conference{}, false, r.err
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
			Model: model, Limits: limits(t, model, 1), Times: lua.SlotTimes{TTL: time.Minute, Grant: time.Second},
			Lease: lua.Lease{Process: "p", Path: lua.Path{Queue: "q_paid_batch", UserID: "alice"}, Rest: fmt.Sprint(i)}.ID(),
		})
		require.NoError(t, err)
	}
	require.NoError(t, h.client.HSet(t.Context(), h.scripts.Keys().ModelState(model), "interval", "3000").Err())
	body := h.submit("t2").json(t)
	require.EqualValues(t, 4, body["position"])
	require.EqualValues(t, 15, body["etaSeconds"], "five calls of 3 s each")
	require.NotContains(t, body, "paused")
	require.EqualValues(t, 10000, body["pollAfterMs"])

	// A model that an operator paused.
	_, err = h.scripts.SetModelLimits(t.Context(), model, "", lua.SlotTimes{TTL: time.Minute, Grant: time.Second}, lua.OperatorLimits{Paused: true})
	require.NoError(t, err)
	body = h.submit("t3").json(t)
	require.EqualValues(t, 4, body["position"])
	require.Equal(t, true, body["paused"])
	require.NotContains(t, body, "etaSeconds", "it is not known")
	require.EqualValues(t, 20000, body["pollAfterMs"])
}

// While the model is paused, the time after which to retry does not follow from the pace of before.
func TestSubmitTask_QueueFullModelPaused_RetryAfterAMinute(t *testing.T) { // T5
	t.Parallel()
	h := newHarness(t, admission(api.Admission{Queue: 1}))
	task := h.submit("t1").json(t)
	_, err := h.scripts.SetModelLimits(t.Context(), task["model"].(string), "", lua.SlotTimes{TTL: time.Minute, Grant: time.Second},
		lua.OperatorLimits{Paused: true})
	require.NoError(t, err)
	a := h.submit("t2")
	h.refused(a, "t2", berth.CodeQueueFull, ledger.AuditQueueFull, h.count("assets"))
	require.Equal(t, 60, a.problem.RetryAfter)
	require.Contains(t, a.problem.Detail, "is paused")
}

// G10: the bound of a queue is that of the routing file, also where the setting has another.
func TestSubmit_QueueWithBound_RefusesBeyondIt(t *testing.T) {
	t.Parallel()
	builtin, err := os.ReadFile("../internal/llm/routing.yaml")
	require.NoError(t, err)
	own := strings.Replace(string(builtin), "mode: batch}", "mode: batch, maxTasks: 1}", 1)
	require.NotEqual(t, string(builtin), own)
	path := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(path, []byte(own), 0o600))
	catalog, err := llm.LoadCatalog(path)
	require.NoError(t, err)
	h := newHarness(t, admission(api.Admission{Queue: 100}), func(d *api.Deps) { d.Routing = routing.Fixed(catalog) })
	require.Equal(t, http.StatusAccepted, h.submit("t1", variable("resume", "t1")).status)
	a := h.submit("t2", variable("resume", "t2"))
	require.Equal(t, http.StatusTooManyRequests, a.status, string(a.body))
	require.Contains(t, a.problem.Detail, "queue q_paid_batch is full with 1 task;")
}
