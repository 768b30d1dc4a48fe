package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/ledger"
)

func with(key string, v any) func(doc) { return func(d doc) { d[key] = v } }

func without(key string) func(doc) { return func(d doc) { delete(d, key) } }

func variable(key string, v any) func(doc) {
	return func(d doc) { d["variables"].(doc)[key] = v }
}

func TestSubmitTask_ValidRequest_AcceptedWithLinks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(), "X-Request-Id", "req-1",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	d := a.json(t)
	id, _ := d["taskId"].(string)
	require.True(t, strings.HasPrefix(id, "t_"), id)
	require.Equal(t, "tasks/"+id, a.header.Get("Location"))
	require.Equal(t, "/v1/tasks/"+id+"/events", d["eventsUrl"])
	require.Equal(t, "PENDING", d["status"])
	require.Equal(t, "q_paid_batch", d["queue"])
	require.NotEmpty(t, d["model"])
	require.Equal(t, "paid", d["tier"])
	require.EqualValues(t, 10000, d["pollAfterMs"])
	require.EqualValues(t, 0, d["position"])
	require.EqualValues(t, 0, d["etaSeconds"])
	require.NotContains(t, d, "replay")

	task, err := h.ledger.GetTask(t.Context(), ref(id))
	require.NoError(t, err)
	require.Equal(t, "req-1", task.RequestID)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", task.TraceID)
	text, err := h.ledger.GetAsset(t.Context(), "alice", task.Variables["resume"])
	require.NoError(t, err, "texts are stored as assets")
	require.Equal(t, "I write Go.", string(text.Content))
	require.Equal(t, berth.AssetText, text.Kind)
}

func TestSubmitTask_Image_StartsAtOCR(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	image := h.upload("alice", "posting.png", pngOf(t, 8, 8)).json(t)["assetId"]
	a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(func(d doc) {
		d["variables"] = doc{"resume": "I write Go.", "jobImage": doc{"assetId": image}}
	}))
	require.Equal(t, http.StatusAccepted, a.status, string(a.body))
	require.Equal(t, "q_paid_vision", a.json(t)["queue"])
	require.EqualValues(t, 20000, a.json(t)["pollAfterMs"])
}

// Without a worker that polls a model's queue the task would wait for its deadline.
func TestSubmitTask_NoWorkerForModel_RefusedByName(t *testing.T) { // T23, T27
	t.Parallel()
	h := newHarness(t)
	_, err := h.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Pollers()).Err())
	require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{"model.deepseek-chat", "model.deepseek-reasoner"}))
	image := h.upload("alice", "posting.png", pngOf(t, 8, 8)).json(t)["assetId"]
	submit := func() answer {
		return h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(func(d doc) {
			d["taskId"], d["variables"] = "t1", doc{"resume": "I write Go.", "jobImage": doc{"assetId": image}}
		}))
	}
	a := submit()
	require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
	require.Equal(t, berth.CodeNotServed, a.problem.Code)
	require.Equal(t, "no worker polls model.glm-4.1v-thinking-flash: start a worker with ZHIPUAI_API_KEY", a.problem.Detail)
	require.Equal(t, "30", a.header.Get("Retry-After"))
	_, err = h.ledger.GetTask(t.Context(), berth.TaskRef{UserID: "alice", TaskID: "t1"})
	require.Equal(t, berth.CodeNotFound, berth.CodeOf(err), "no partial effect")

	require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{"model.glm-4.1v-thinking-flash"}))
	require.Equal(t, http.StatusAccepted, submit().status)
}

// D7: workers that cannot use Temporal may have stopped because of that, so a request does not state that they lack a key.
func TestSubmitTask_NoWorkerAndTemporalUnusable_TemporalIsNamed(t *testing.T) { // T27, L11
	t.Parallel()
	h := newHarness(t)
	_, err := h.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Pollers()).Err())
	for name, failure := range map[string]error{
		"down":              errDown,
		"namespace missing": berth.Errorf(berth.CodeUnavailable, "Temporal refuses the requests of this server"),
	} {
		b, unlock := h.starter.open()
		b.failure = failure
		unlock()
		a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(with("taskId", "t1")))
		require.Equal(t, http.StatusServiceUnavailable, a.status, name)
		require.Equal(t, berth.CodeUnavailable, a.problem.Code, name)
		require.Contains(t, a.problem.Detail, "Temporal", name)
		require.NotContains(t, string(a.body), "worker", name)
		require.NotEmpty(t, a.header.Get("Retry-After"), name)
	}
	b, unlock := h.starter.open()
	b.failure = nil
	unlock()
	a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(with("taskId", "t1")))
	require.Equal(t, berth.CodeNotServed, a.problem.Code, "then it is known")
	require.Zero(t, h.starter.submits.Load(), "no partial effect")
}

func TestSubmitTask_InvalidRequest_FieldNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	image := h.upload("alice", "posting.png", pngOf(t, 8, 8)).json(t)["assetId"]
	foreign := h.upload("bob", "posting.png", pngOf(t, 9, 9)).json(t)["assetId"]
	for name, tc := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"no JSON":                    {`{"serviceId"`, 400, "body"},
		"not an object":              {`[]`, 400, "body"},
		"empty":                      {``, 400, "body"},
		"unknown template":           {match(with("template", "poem")), 400, "template"},
		"the inner template":         {match(with("template", "job_vision")), 400, "template"},
		"no template":                {match(without("template")), 400, "template"},
		"template as number":         {match(with("template", 5)), 400, "template"},
		"bad locale":                 {match(with("locale", "fr")), 400, "locale"},
		"no service":                 {match(without("serviceId")), 400, "serviceId"},
		"service with a slash":       {match(with("serviceId", "a/b")), 400, "serviceId"},
		"service too long":           {match(with("serviceId", strings.Repeat("a", 129))), 400, "serviceId"},
		"bad task id":                {match(with("taskId", "a b")), 400, "taskId"},
		"task id of dots":            {match(with("taskId", "..")), 400, "taskId"},
		"task id with a newline":     {match(with("taskId", "a\n")), 400, "taskId"},
		"unknown field":              {match(with("tasks", 1)), 400, "tasks"},
		"no variables":               {match(without("variables")), 400, "variables"},
		"variables null":             {match(with("variables", nil)), 400, "variables"},
		"variables empty":            {match(with("variables", doc{})), 400, "variables.resume"},
		"missing variable":           {match(func(d doc) { d["variables"] = doc{"jobText": "x"} }), 400, "variables.resume"},
		"unknown variable":           {match(variable("shoe", "x")), 400, "variables.shoe"},
		"empty text":                 {match(variable("resume", "  ")), 400, "variables.resume"},
		"text without a width":       {match(variable("resume", "\u200b \ufeff\u2060\u00ad\u3164\u0007")), 400, "variables.resume"},
		"text with NUL":              {match(variable("resume", "a\x00b")), 400, "variables.resume"},
		"number":                     {match(variable("resume", 5)), 400, "variables.resume"},
		"null":                       {match(variable("resume", nil)), 400, "variables.resume"},
		"list":                       {match(variable("resume", []string{"a"})), 400, "variables.resume"},
		"asset id as number":         {match(variable("resume", doc{"assetId": 5})), 400, "variables.resume"},
		"empty asset id":             {match(variable("resume", doc{"assetId": ""})), 400, "variables.resume"},
		"field besides the asset id": {match(variable("resume", doc{"assetId": "a_1", "x": 1})), 400, "variables.resume"},
		"no such asset":              {match(variable("resume", doc{"assetId": "a_1"})), 400, "variables.resume.assetId"},
		"foreign asset":              {match(variable("resume", doc{"assetId": foreign})), 400, "variables.resume.assetId"},
		"odd asset id":               {match(variable("resume", doc{"assetId": "../x"})), 400, "variables.resume.assetId"},
		"image for a text":           {match(variable("resume", doc{"assetId": image})), 400, "variables.resume.assetId"},
		"text for an image":          {match(without("variables"), with("variables", doc{"resume": "a", "jobImage": "b"})), 400, "variables.jobImage"},
		"text too long":              {match(variable("resume", strings.Repeat("a", 200_001))), 413, "variables.resume"},
		"body too large":             {match(variable("resume", strings.Repeat("a", 5<<20))), 413, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), tc.body)
			require.Equal(t, tc.status, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
			require.NotEmpty(t, a.problem.Detail)
			require.Equal(t, tc.status, a.problem.Status)
		})
	}
	require.Zero(t, h.starter.submits.Load(), "no partial write")
	list, _, err := h.ledger.ListTasks(t.Context(), ledger.TaskQuery{UserID: "alice"}, "", 10)
	require.NoError(t, err)
	require.Empty(t, list)
}

func TestSubmitTask_OtherMediaType_Rejected(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(), "Content-Type", "application/xml")
	require.Equal(t, http.StatusUnsupportedMediaType, a.status, string(a.body))
	require.Equal(t, berth.CodeUnsupportedMedia, a.problem.Code)
}

func TestSubmitTask_SameTaskID_Replayed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	alice, bob := h.token("alice"), h.token("bob")
	first := h.call(http.MethodPost, "/v1/tasks", alice, match(with("taskId", "t1")))
	require.Equal(t, http.StatusAccepted, first.status)

	again := h.call(http.MethodPost, "/v1/tasks", alice, match(with("taskId", "t1")))
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	d := again.json(t)
	require.Equal(t, true, d["replay"])
	require.Equal(t, "t1", d["taskId"])
	require.NotEmpty(t, d["idemKey"])
	require.Equal(t, "PENDING", d["status"])

	other := h.call(http.MethodPost, "/v1/tasks", alice, match(with("taskId", "t1"), variable("resume", "I write C.")))
	require.Equal(t, http.StatusUnprocessableEntity, other.status)
	require.Equal(t, berth.CodeIdempotencyMismatch, other.problem.Code)

	foreign := h.call(http.MethodPost, "/v1/tasks", bob, match(with("taskId", "t1"), variable("resume", "I write Ada.")))
	require.Equal(t, http.StatusAccepted, foreign.status, "the ids of another user are free: %s", foreign.body)

	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: ref("t1"), Status: berth.TaskFailed, Code: berth.CodeInternal})
	require.NoError(t, err)
	failed := h.call(http.MethodPost, "/v1/tasks", alice, match(with("taskId", "t1")))
	require.Equal(t, http.StatusConflict, failed.status, "a failed task never replays")
	require.Equal(t, berth.CodeConflict, failed.problem.Code)
}

func TestSubmitTask_SameIdempotencyKey_Replayed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	submit := func(user string, body doc) answer {
		return h.call(http.MethodPost, "/v1/tasks", h.token(user), body, "Idempotency-Key", "order 66")
	}
	first := submit("alice", match())
	require.Equal(t, http.StatusAccepted, first.status, string(first.body))
	id := first.json(t)["taskId"]

	again := submit("alice", match())
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, id, again.json(t)["taskId"])
	require.Equal(t, "order 66", again.json(t)["idemKey"])

	require.Equal(t, http.StatusUnprocessableEntity, submit("alice", match(with("locale", "zh"))).status)
	both := submit("alice", match(with("taskId", "t1")))
	require.Equal(t, http.StatusBadRequest, both.status)
	require.Equal(t, "Idempotency-Key", both.problem.Field)

	other := submit("bob", match())
	require.Equal(t, http.StatusAccepted, other.status, "keys of different users are independent")
	require.NotEqual(t, id, other.json(t)["taskId"])

	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{
		TaskRef: ref(id.(string)), Status: berth.TaskCancelled, Code: berth.CodeCancelled,
	})
	require.NoError(t, err)
	fresh := submit("alice", match())
	require.Equal(t, http.StatusAccepted, fresh.status, "a cancelled task never replays")
	require.NotEqual(t, id, fresh.json(t)["taskId"])
	require.Equal(t, http.StatusOK, submit("alice", match()).status)
}

// withKey returns the header of a request with an idempotency key, none for an empty one.
func withKey(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Idempotency-Key", key}
}

// advance moves the clock of the API.
func advance(clock *atomic.Int64, by time.Duration) { clock.Add(int64(by)) }

func withClock(clock *atomic.Int64) func(*api.Deps) {
	return func(d *api.Deps) { d.Clock = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) } }
}

func TestSubmitTask_EqualRequestsWithoutKey_OneTaskWithinWindow(t *testing.T) { // T7, FT3
	t.Parallel()
	var clock atomic.Int64
	h := newHarness(t, withClock(&clock), func(d *api.Deps) { d.Config.ReplayWindow = time.Hour - 5*time.Minute })
	submit := func(body doc) answer { return h.call(http.MethodPost, "/v1/tasks", h.token("alice"), body) }
	first := submit(match())
	require.Equal(t, http.StatusAccepted, first.status, string(first.body))
	id := first.json(t)["taskId"]
	assets := h.count("assets")

	again := submit(match())
	require.Equal(t, http.StatusOK, again.status, string(again.body))
	require.Equal(t, id, again.json(t)["taskId"])
	require.NotEmpty(t, again.json(t)["idemKey"])
	require.Equal(t, []ledger.AuditEvent{ledger.AuditEnqueue, ledger.AuditReplay}, h.trail(ref(id.(string))))
	require.Len(t, h.starter.ids(), 1, "a replay starts no other task")
	require.Equal(t, assets, h.count("assets"), "a replay stores nothing")

	for name, other := range map[string]doc{
		"service": match(with("serviceId", "other")), "locale": match(with("locale", "zh")),
		"variables": match(variable("resume", "I write C.")), "template": match(with("template", "interview_prep")),
	} {
		a := submit(other)
		require.Equal(t, http.StatusAccepted, a.status, "another %s: %s", name, a.body)
	}

	advance(&clock, 54*time.Minute)
	require.Equal(t, id, submit(match()).json(t)["taskId"])
	advance(&clock, time.Minute)
	later := submit(match())
	require.Equal(t, http.StatusAccepted, later.status, "outside the window")
	require.NotEqual(t, id, later.json(t)["taskId"])
}

// T7, B11: without its texts, a task does not replace a new one. A client's key always means the same task.
func TestSubmitTask_TextsErased_SameRequestIsNewTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	submit := func(key string) answer {
		return h.call(http.MethodPost, "/v1/tasks", alice, match(), withKey(key)...)
	}
	for name, erase := range map[string]func(task berth.Task) string{
		"of the task": func(task berth.Task) string { return "/v1/tasks/" + task.ID + "/content" },
		"the result":  func(task berth.Task) string { return "/v1/assets/" + task.ResultAssetID },
	} {
		for _, key := range []string{"", "key " + name} {
			first := submit(key)
			require.Equal(t, http.StatusAccepted, first.status, "%s: %s", name, first.body)
			id := first.json(t)["taskId"].(string)
			task, err := h.ledger.GetTask(t.Context(), ref(id))
			require.NoError(t, err)
			task = h.finish(task, "the answer to "+id)
			require.Equal(t, id, submit(key).json(t)["taskId"])
			erased := h.call(http.MethodDelete, erase(task), alice, nil)
			require.Less(t, erased.status, 300, string(erased.body))
			again := submit(key)
			if key != "" {
				require.Equal(t, http.StatusOK, again.status)
				require.Equal(t, id, again.json(t)["taskId"])
				continue
			}
			require.Equal(t, http.StatusAccepted, again.status, "%s: %s", name, again.body)
			require.NotEqual(t, id, again.json(t)["taskId"])
			_, _, err = h.ledger.FinishTask(t.Context(), ledger.End{
				TaskRef: ref(again.json(t)["taskId"].(string)), Status: berth.TaskFailed, Code: berth.CodeInternal,
			})
			require.NoError(t, err)
		}
	}
}

func TestSubmitTask_TasksOfKeyFail_NumberAdvancesWithoutBound(t *testing.T) { // T7
	t.Parallel()
	h := newHarness(t)
	for _, key := range []string{"k", ""} {
		ids := map[any]bool{}
		for range 40 {
			a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(), withKey(key)...)
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			id := a.json(t)["taskId"].(string)
			require.False(t, ids[id], "a failed task is not replayed")
			ids[id] = true
			_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{TaskRef: ref(id), Status: berth.TaskFailed, Code: berth.CodeInternal})
			require.NoError(t, err)
		}
	}
}

func TestSubmitTask_AcceptanceUnconfirmed_SameIDRetried(t *testing.T) { // T7, FT3
	t.Parallel()
	h := newHarness(t)
	h.starter.down.Store(true)
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match()).status)
	}
	h.starter.down.Store(false)
	require.Equal(t, http.StatusAccepted, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match()).status)
	require.Len(t, h.starter.ids(), 1, "every attempt is for one task")
}

func TestTask_SameIDOfTwoUsers_OperatorNamesUser(t *testing.T) { // T1, FT12
	t.Parallel()
	h := newHarness(t)
	h.task("alice", "t1")
	h.task("bob", "t1")
	h.task("bob", "t2")
	op := h.token("op", "operator")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		a := h.call(method, "/v1/tasks/t1", op, nil)
		require.Equal(t, http.StatusConflict, a.status, string(a.body))
		require.Equal(t, "userId", a.problem.Field)
		require.Equal(t, http.StatusForbidden, h.call(method, "/v1/tasks/t1?userId=bob", h.token("alice"), nil).status)
		require.Equal(t, http.StatusNotFound, h.call(method, "/v1/tasks/t2", h.token("alice"), nil).status)
		require.Equal(t, http.StatusNotFound, h.call(method, "/v1/tasks/t1?userId=carol", op, nil).status)
		require.Equal(t, http.StatusNotFound, h.call(method, "/v1/tasks/t3", op, nil).status)
		require.Less(t, h.call(method, "/v1/tasks/t1?userId=bob", op, nil).status, 300)
		require.Less(t, h.call(method, "/v1/tasks/t2", op, nil).status, 300, "an unambiguous id needs no user")
		require.Less(t, h.call(method, "/v1/tasks/t1", h.token("bob", "user", "operator"), nil).status, 300, "one's own task comes first")
	}
	for _, want := range []berth.TaskRef{{UserID: "bob", TaskID: "t1"}, {UserID: "bob", TaskID: "t2"}, {UserID: "bob", TaskID: "t1"}} {
		require.Equal(t, want, <-h.starter.cancels)
	}
	require.Equal(t, http.StatusConflict, h.call(http.MethodGet, "/v1/tasks/t1/events", op, nil).status)
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/tasks/t1/events?userId=bob", h.token("alice"), nil).status)
}

func TestSubmitTask_ConcurrentSameKey_OneTask(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const n = 20
	token := h.token("alice")
	answers := make(chan answer, n)
	for range n {
		go func() {
			answers <- h.call(http.MethodPost, "/v1/tasks", token, match(), "Idempotency-Key", "k")
		}()
	}
	fresh := 0
	ids := map[any]bool{}
	for range n {
		a := <-answers
		if a.status == http.StatusAccepted {
			fresh++
		}
		ids[a.json(t)["taskId"]] = true
	}
	require.Equal(t, 1, fresh)
	require.Len(t, ids, 1)
}

func TestSubmitTask_DependencyUnavailable_RetryRequested(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, h *harness, a answer) {
		t.Helper()
		require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
		require.Equal(t, berth.CodeUnavailable, a.problem.Code)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Positive(t, a.problem.RetryAfter)
		list, _, err := h.ledger.ListTasks(t.Context(), ledger.TaskQuery{UserID: "alice"}, "", 10)
		require.NoError(t, err)
		require.Empty(t, list)
	}
	t.Run("Temporal", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t)
		h.starter.down.Store(true)
		check(t, h, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(with("taskId", "t1"))))
		h.starter.down.Store(false)
		require.Equal(t, http.StatusAccepted, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match(with("taskId", "t1"))).status)
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t)
		h.redis.Kill()
		check(t, h, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match()))
		require.Zero(t, h.starter.submits.Load(), "no partial write")
		h.redis.Restart()
		require.Equal(t, http.StatusAccepted, h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match()).status)
	})
	t.Run("retry", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, func(d *api.Deps) { d.Starter = full{d.Starter} })
		a := h.call(http.MethodPost, "/v1/tasks", h.token("alice"), match())
		require.Equal(t, http.StatusTooManyRequests, a.status)
		require.Equal(t, "8", a.header.Get("Retry-After"))
		require.Equal(t, 8, a.problem.RetryAfter)
		require.Equal(t, berth.CodeQueueFull, a.problem.Code)
	})
}

func TestGetTask_EachStatus_ResultOrError(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.task("alice", "t1")
	d := h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)
	require.Equal(t, "PENDING", d["status"])
	require.EqualValues(t, 10000, d["pollAfterMs"])
	steps, _ := d["steps"].([]any)
	require.Len(t, steps, 2)
	require.Equal(t, "current", steps[0].(map[string]any)["state"])
	require.Equal(t, "waiting", steps[1].(map[string]any)["state"])
	links, _ := d["links"].(map[string]any)
	require.Equal(t, "http://ui.test:8233/namespaces/default/workflows/task:alice:t1", links["temporal"])

	h.finish(task, "all <b>good</b>")
	d = h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)
	require.Equal(t, "COMPLETED", d["status"])
	require.Equal(t, "all <b>good</b>", d["text"], "the text of a stream task")
	require.NotContains(t, d, "result")
	require.NotContains(t, d, "pollAfterMs")
	require.NotEmpty(t, d["endedAt"])

	batch := h.task("alice", "t2", task.Steps[0])
	h.finish(batch, `{"title": "Engineer"}`)
	d = h.call(http.MethodGet, "/v1/tasks/t2", h.token("alice"), nil).json(t)
	require.Equal(t, map[string]any{"title": "Engineer"}, d["result"], "the JSON of a batch task")
	require.NotContains(t, d, "text")

	h.task("alice", "t3")
	_, _, err := h.ledger.FinishTask(t.Context(), ledger.End{
		TaskRef: ref("t3"), Status: berth.TaskFailed, Code: berth.CodeProviderKey, Message: "the provider refused the API key",
	})
	require.NoError(t, err)
	d = h.call(http.MethodGet, "/v1/tasks/t3", h.token("alice"), nil).json(t)
	require.Equal(t, map[string]any{"code": "provider_key", "message": "the provider refused the API key"}, d["error"])

	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/tasks/t1", h.token("bob"), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/tasks/nope", h.token("alice"), nil).status)
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodGet, "/v1/tasks/a%0Ab", h.token("alice"), nil).status)
}

func TestGetTask_LaterStep_ShorterPollInterval(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ocr := berth.Step{Name: "ocr", Mode: berth.ModeVision, Queue: "q_paid_vision", Model: "v", Status: "OCR_PENDING"}
	task := h.task("alice", "t1", append([]berth.Step{ocr}, h.task("alice", "t0").Steps...)...)
	poll := func() any {
		return h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)["pollAfterMs"]
	}
	got := []any{poll()}
	for i, status := range []berth.TaskStatus{"OCR_PENDING", "SUMMARY_PENDING"} {
		a, err := h.ledger.BeginAttempt(t.Context(), ref("t1"), i, status)
		require.NoError(t, err)
		_, err = h.ledger.FinishStep(t.Context(), ledger.StepResult{
			ModelCall:  ledger.ModelCall{UserID: "alice", TaskID: "t1", Step: i, Name: task.Steps[i].Name, Fence: a.Fence},
			NextStatus: "MATCH_PENDING",
			Output:     berth.Asset{UserID: "alice", Kind: berth.AssetResult, MediaType: "text/plain", Content: []byte("x")},
		})
		require.NoError(t, err)
		got = append(got, poll())
	}
	_, err := h.ledger.BeginAttempt(t.Context(), ref("t1"), 2, berth.TaskStreaming)
	require.NoError(t, err)
	got = append(got, poll())
	require.Equal(t, []any{20000.0, 10000.0, 5000.0, 3000.0}, got)
}

func TestListTasks_EachFilter_Matches(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.task("alice", "t1")
	h.finish(h.task("alice", "t2"), "text")
	h.task("bob", "t3")
	hour := func(d time.Duration) string { return url.QueryEscape(time.Now().Add(d).Format(time.RFC3339)) }
	list := func(token, query string) (ids []any) {
		a := h.call(http.MethodGet, "/v1/tasks?"+query, token, nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		for _, v := range a.json(t)["tasks"].([]any) {
			ids = append(ids, v.(doc)["taskId"])
		}
		return ids
	}
	alice := h.token("alice")
	require.Equal(t, []any{"t2"}, list(alice, "status=COMPLETED"))
	require.Equal(t, []any{"t1"}, list(alice, "status=PENDING&template=job_match&from="+hour(-time.Hour)+"&to="+hour(time.Hour)))
	require.Empty(t, list(alice, "template=job_summary"))
	require.Empty(t, list(alice, "template=x"), "tasks outlive templates")
	require.Empty(t, list(alice, "to="+hour(-time.Hour)))
	require.Len(t, list(alice, "userId=alice"), 2)
	require.Equal(t, []any{"t3"}, list(h.operator(), "userId=bob"))
	require.Empty(t, list(h.operator(), ""), "an operator's own tasks")
	reversed := "from=" + hour(time.Hour) + "&to=" + hour(-time.Hour)
	for query, field := range map[string]string{"status=OVER": "status", "from=x": "from", reversed: "from"} {
		a := h.call(http.MethodGet, "/v1/tasks?"+query, alice, nil)
		require.Equal(t, http.StatusBadRequest, a.status, query)
		require.Equal(t, field, a.problem.Field)
	}
	require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/tasks?userId=bob", alice, nil).status)
}

func TestListTasks_SeveralPages_OwnTasksOnly(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, id := range []string{"t1", "t2", "t3"} {
		h.task("alice", id)
	}
	h.task("bob", "t4")
	var ids []string
	path := "/v1/tasks?limit=2"
	for path != "" {
		a := h.call(http.MethodGet, path, h.token("alice"), nil)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		var page struct {
			Tasks      []struct{ TaskID string } `json:"tasks"`
			NextCursor string                    `json:"nextCursor"`
		}
		require.NoError(t, json.Unmarshal(a.body, &page))
		for _, task := range page.Tasks {
			ids = append(ids, task.TaskID)
		}
		path = ""
		if page.NextCursor != "" {
			path = "/v1/tasks?limit=2&cursor=" + page.NextCursor
		}
	}
	require.ElementsMatch(t, []string{"t1", "t2", "t3"}, ids)
	require.Equal(t, `{"tasks":[]}`, strings.TrimSpace(string(h.call(http.MethodGet, "/v1/tasks", h.token("carol"), nil).body)))
	for _, q := range []string{"limit=0", "limit=101", "limit=x", "cursor=%00garbage"} {
		a := h.call(http.MethodGet, "/v1/tasks?"+q, h.token("alice"), nil)
		require.Equal(t, http.StatusBadRequest, a.status, q)
		require.Equal(t, strings.Split(q, "=")[0], a.problem.Field, string(a.body))
	}
}

func TestCancelTask_OpenThenEnded_AcceptedThenConflict(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	task := h.task("alice", "t1")
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, "/v1/tasks/t1", h.token("bob"), nil).status)
	require.Empty(t, h.starter.cancels)

	h.starter.down.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, h.call(http.MethodDelete, "/v1/tasks/t1", h.token("alice"), nil).status)
	h.starter.down.Store(false)

	a := h.call(http.MethodDelete, "/v1/tasks/t1", h.token("alice"), nil)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, true, a.json(t)["cancelling"])
	require.Equal(t, ref("t1"), <-h.starter.cancels)

	h.finish(task, "x")
	a = h.call(http.MethodDelete, "/v1/tasks/t1", h.token("alice"), nil)
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, berth.CodeConflict, a.problem.Code)
	require.Contains(t, a.problem.Detail, "COMPLETED")
}

// waitFor polls a condition that another process or goroutine makes true.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, waitLimit, 5*time.Millisecond, what)
}

func TestEraseTask_Ended_StatusRemainsWithoutTexts(t *testing.T) { // B11
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	id, _ := h.call(http.MethodPost, "/v1/tasks", alice, match()).json(t)["taskId"].(string)
	path := "/v1/tasks/" + id
	task, err := h.ledger.GetTask(t.Context(), ref(id))
	require.NoError(t, err)
	resume := "/v1/assets/" + task.Variables["resume"]

	running := h.call(http.MethodDelete, path+"/content", alice, nil)
	require.Equal(t, http.StatusConflict, running.status)
	require.Contains(t, running.problem.Detail, "cancel it first")
	require.Equal(t, http.StatusConflict, h.call(http.MethodDelete, resume, alice, nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, path+"/content", h.token("bob"), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodDelete, resume, h.token("bob"), nil).status)
	h.finish(task, "the answer")
	require.Equal(t, "the answer", h.call(http.MethodGet, path, alice, nil).json(t)["text"])

	for range 2 {
		erased := h.call(http.MethodDelete, path+"/content", alice, nil)
		require.Equal(t, http.StatusOK, erased.status, string(erased.body))
		require.Equal(t, true, erased.json(t)["contentErased"])
	}
	got := h.call(http.MethodGet, path, alice, nil).json(t)
	require.Equal(t, "COMPLETED", got["status"])
	require.Equal(t, true, got["contentErased"])
	require.NotContains(t, got, "text")
	require.Equal(t, true, h.call(http.MethodGet, "/v1/tasks", alice, nil).json(t)["tasks"].([]any)[0].(doc)["contentErased"])
	gone := h.call(http.MethodGet, resume, alice, nil)
	require.Equal(t, http.StatusGone, gone.status)
	require.Equal(t, berth.CodeErased, gone.problem.Code)
	events := h.do(h.request(http.MethodGet, path+"/events", alice, nil))
	require.Contains(t, string(events.body), "event: done")
	require.NotContains(t, string(events.body), "the answer")

	used := h.call(http.MethodPost, "/v1/tasks", alice, match(func(d doc) {
		d["variables"].(doc)["resume"] = doc{"assetId": task.Variables["resume"]}
	}))
	require.Equal(t, http.StatusBadRequest, used.status)
	require.Equal(t, "variables.resume.assetId", used.problem.Field)
	require.Contains(t, used.problem.Detail, "erased")

	rows := h.call(http.MethodGet, "/v1/audit?action=erase", alice, nil).json(t)["entries"].([]any)
	require.Len(t, rows, 1)
}

func TestEraseAsset_ResultOfTask_TaskStatesIt(t *testing.T) { // B11
	t.Parallel()
	h := newHarness(t)
	task := h.finish(h.task("alice", "t1"), "the answer")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, "/v1/assets/"+task.ResultAssetID, h.token("alice"), nil).status)
	got := h.call(http.MethodGet, "/v1/tasks/t1", h.token("alice"), nil).json(t)
	require.Equal(t, "COMPLETED", got["status"])
	require.Equal(t, true, got["contentErased"])
	require.NotContains(t, got, "text")
	require.NotContains(t, got["steps"].([]any)[0], "outputAssetId")
	operator := h.call(http.MethodDelete, "/v1/tasks/t1/content?userId=alice", h.operator(), nil)
	require.Equal(t, http.StatusOK, operator.status)
}

// The stream of a task that ended a moment ago still has its texts.
func TestEraseTask_StreamNotExpired_EventsWithoutTexts(t *testing.T) { // B11
	t.Parallel()
	h := newHarness(t)
	alice := h.token("alice")
	task := h.running("alice", "t1")
	h.publish(task, berth.Event{Type: berth.EventToken, Stage: berth.StageDeliver, Text: "whole"})
	h.end(task)
	require.Contains(t, string(h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", alice, nil)).body), "whole")
	require.Equal(t, http.StatusOK, h.call(http.MethodDelete, "/v1/tasks/t1/content", alice, nil).status)
	events := string(h.do(h.request(http.MethodGet, "/v1/tasks/t1/events", alice, nil)).body)
	require.Contains(t, events, "event: done")
	require.NotContains(t, events, "whole")

	other := h.running("alice", "t2") // with the same result
	h.publish(other, berth.Event{Type: berth.EventToken, Stage: berth.StageDeliver, Text: "whole"})
	h.end(other)
	ended, err := h.ledger.GetTask(t.Context(), ref("t2"))
	require.NoError(t, err)
	result := "/v1/assets/" + ended.ResultAssetID
	require.Contains(t, string(h.do(h.request(http.MethodGet, "/v1/tasks/t2/events", alice, nil)).body), "whole")
	require.Equal(t, http.StatusNoContent, h.call(http.MethodDelete, result, alice, nil).status)
	require.NotContains(t, string(h.do(h.request(http.MethodGet, "/v1/tasks/t2/events", alice, nil)).body), "whole")

	h.redis.Kill()
	for _, path := range []string{"/v1/tasks/t1/content", result} {
		a := h.call(http.MethodDelete, path, alice, nil)
		require.Equal(t, http.StatusServiceUnavailable, a.status, "the events may still be there")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
}

// T7: a row whose acceptance has not ended is not a replay: the task may still be refused.
func TestSubmitTask_AcceptanceNotEnded_ReplayWaitsForIt(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	require.Equal(t, http.StatusAccepted, h.submit("t1").status)
	h.starter.down.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, h.submit("t1").status, "whether it is accepted is not known")
	h.starter.down.Store(false)
	require.Equal(t, http.StatusOK, h.submit("t1").status)
	_, err := h.ledger.BeginAttempt(t.Context(), ref("t1"), 0, "SUMMARY_PENDING")
	require.NoError(t, err)
	h.starter.down.Store(true)
	require.Equal(t, http.StatusOK, h.submit("t1").status, "its first step has begun")
}

// FA11: every cursor that a list returns is accepted by it, also those of the longest ids, with characters that JSON escapes.
func TestLists_LongestIDs_NextPageIsRead(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, name := range []string{strings.Repeat("<", berth.MaxUserID-1), strings.Repeat("漢", berth.MaxUserID/3-1), strings.Repeat(`"`, berth.MaxUserID-1)} {
		users := []string{name + "1", name + "2", name + "3"}
		for i, user := range users {
			for n := range 3 {
				h.task(user, fmt.Sprintf("%s%d%d", strings.Repeat("i", 126), i, n))
			}
			h.credit(user, 1000)
			h.credit(user, 2000)
		}
		for path, of := range map[string]string{
			"/v1/tasks?limit=1": "tasks", "/v1/tasks?limit=1&allUsers=true": "tasks", "/v1/audit?limit=1": "entries", "/v1/accounts?limit=1": "accounts",
		} {
			token := h.operator()
			if path == "/v1/tasks?limit=1" {
				token = h.token(users[0])
			}
			for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
				a := h.call(http.MethodGet, path+"&cursor="+cursor, token, nil)
				require.Equal(t, http.StatusOK, a.status, "page %d of %s: %s", pages, path, a.body)
				require.Len(t, a.json(t)[of], 1)
				cursor, _ = a.json(t)["nextCursor"].(string)
			}
		}
	}
}
