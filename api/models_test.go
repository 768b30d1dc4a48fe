package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/lua"
)

const (
	modelPath  = "/v1/models/deepseek-chat"
	paidStream = berth.Queue("q_paid_stream")
)

// modelTimes are so long that no slot and no ticket ends during a test.
var modelTimes = lua.SlotTimes{TTL: time.Hour, Grant: time.Hour}

// call requests a slot of a model, as the worker of a task does.
func (h *harness) callModel(model string, queue berth.Queue, user string, n int) lua.SlotReply {
	h.t.Helper()
	r, err := h.scripts.AcquireSlot(h.t.Context(), lua.SlotCall{
		Model: model, Limits: limits(h.t, model, 2), Times: modelTimes,
		Lease: lua.Lease{Process: "p", Path: lua.Path{Queue: queue, UserID: user}, Rest: fmt.Sprint(n)}.ID(),
	})
	require.NoError(h.t, err)
	return r
}

// limits returns the limits of a model in the routing file, with so many slots.
func limits(t *testing.T, model string, slots int) lua.ModelLimits {
	t.Helper()
	c, err := llm.LoadCatalog("")
	require.NoError(t, err)
	l := c.Limits(model, 0)
	l.Upstreams[0].Cap = slots
	return l
}

// model returns what GET /v1/models has about a model.
func (h *harness) model(name string) doc {
	h.t.Helper()
	a := h.call(http.MethodGet, "/v1/models", h.operator(), nil)
	require.Equal(h.t, http.StatusOK, a.status, string(a.body))
	for _, m := range a.json(h.t)["models"].([]any) {
		if m := m.(doc); m["name"] == name {
			return m
		}
	}
	require.Fail(h.t, "model not listed", name)
	return nil
}

func (h *harness) patch(body any) answer {
	h.t.Helper()
	return h.call(http.MethodPatch, modelPath, h.operator(), body)
}

// T4: operators change the limits of a model, which apply immediately, and reset them.
func TestPatchModel_LimitsChanged_ApplyToTheNextCall(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	before := h.model("deepseek-chat")
	require.Equal(t, []any{5.0, 0.0, 0.0, false, 0.0}, []any{before["cap"], before["rpm"], before["tpm"], before["paused"], before["etaSeconds"]})
	a := h.patch(doc{"cap": 1, "rpm": 600, "tpm": 1_000_000})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, h.model("deepseek-chat"), a.json(t))
	require.Equal(t, []any{1.0, 600.0, 1_000_000.0}, []any{a.json(t)["cap"], a.json(t)["rpm"], a.json(t)["tpm"]})
	require.Equal(t, doc{"cap": 5.0, "rpm": 0.0, "tpm": 0.0}, a.json(t)["configured"])
	require.Equal(t, lua.SlotGranted, h.callModel("deepseek-chat", paidStream, "u", 1).Code)
	require.Equal(t, lua.SlotWaiting, h.callModel("deepseek-chat", paidStream, "u", 2).Code)
	require.EqualValues(t, 1, h.model("deepseek-chat")["waiting"])
	d := h.patch(doc{"cap": 2, "rpm": nil}).json(t)
	require.Equal(t, []any{2.0, 0.0, 1_000_000.0, 2.0, 0.0}, []any{d["cap"], d["rpm"], d["tpm"], d["inUse"], d["waiting"]},
		"the free slot is granted, null restores a limit, absent fields keep theirs")
	require.EqualValues(t, 5, h.patch(doc{"cap": nil, "tpm": 0}).json(t)["cap"])
	actions, _, err := h.ledger.AuditLog(t.Context(), ledger.AuditQuery{Event: "patch-model"}, "", 0)
	require.NoError(t, err)
	require.Len(t, actions, 3)
	require.Equal(t, modelPath, actions[0].Target)
	require.Equal(t, http.StatusOK, actions[0].Status)
	require.Contains(t, h.log.String(), "model settings changed")
}

// T4: a pause holds back calls until it is ended; ending it also ends a pause that the provider caused.
func TestPatchModel_PausedAndResumed_CallsWaitMeanwhile(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	d := h.patch(doc{"paused": true, "reason": "maintenance"}).json(t)
	require.Equal(t, []any{true, "operator", "maintenance"}, []any{d["paused"], d["pausedBy"], d["reason"]})
	require.NotContains(t, d, "etaSeconds")
	require.NotContains(t, d, "pausedUntil")
	require.Equal(t, lua.SlotWaiting, h.callModel("deepseek-chat", paidStream, "u", 1).Code)
	require.EqualValues(t, true, h.patch(doc{"cap": 3}).json(t)["paused"], "another change keeps the pause")
	d = h.patch(doc{"paused": false}).json(t)
	require.Equal(t, []any{false, 1.0, 0.0}, []any{d["paused"], d["inUse"], d["waiting"]})
	require.NotContains(t, d, "reason")

	pause := func() {
		_, _, err := h.scripts.ReportCall(t.Context(), lua.CallReport{
			Model: "deepseek-chat", Upstream: "deepseek", Outcome: lua.CallLimited, RetryAfter: time.Minute, Reason: "rate limited",
		})
		require.NoError(t, err)
	}
	for range 2 {
		pause()
		d = h.model("deepseek-chat")
		require.Equal(t, []any{true, "provider", "rate limited"}, []any{d["paused"], d["pausedBy"], d["reason"]})
		require.NotEmpty(t, d["pausedUntil"])
		require.Greater(t, d["nextGrantMs"], 50_000.0)
		require.Greater(t, d["etaSeconds"], 50.0)
		require.Equal(t, true, h.patch(doc{"cap": 4}).json(t)["paused"], "another change does not end it")
		require.Equal(t, false, h.patch(doc{"paused": false}).json(t)["paused"])
	}
}

func TestPatchModel_InvalidRequest_FieldNamed(t *testing.T) { // T4
	t.Parallel()
	h := newHarness(t)
	for name, tc := range map[string]struct {
		body  any
		field string
	}{
		"no cap":             {doc{"cap": 0}, "cap"},
		"huge cap":           {doc{"cap": 10_001}, "cap"},
		"cap as text":        {doc{"cap": "5"}, "cap"},
		"half a slot":        {doc{"cap": 1.5}, "cap"},
		"negative rpm":       {doc{"cap": 1, "rpm": -1}, "rpm"},
		"huge rpm":           {doc{"rpm": 1_000_001}, "rpm"},
		"negative tpm":       {doc{"tpm": -1}, "tpm"},
		"huge tpm":           {doc{"tpm": 1_000_000_001}, "tpm"},
		"paused as text":     {doc{"paused": "yes"}, "paused"},
		"reason alone":       {doc{"reason": "x"}, "reason"},
		"reason of resuming": {doc{"paused": false, "reason": "x"}, "reason"},
		"blank reason":       {doc{"paused": true, "reason": " \u200b "}, "reason"},
		"reason with a tab":  {doc{"paused": true, "reason": "a\tb"}, "reason"},
		"reason with NUL":    {doc{"paused": true, "reason": "a\x00b"}, "reason"},
		"long reason":        {doc{"paused": true, "reason": strings.Repeat("x", 501)}, "reason"},
		"unknown field":      {doc{"colour": "red"}, "colour"},
		"nothing":            {doc{}, "body"},
		"no object":          {`[]`, "body"},
		"empty":              {``, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.patch(tc.body)
			require.Equal(t, http.StatusBadRequest, a.status, string(a.body))
			require.Equal(t, tc.field, a.problem.Field, string(a.body))
		})
	}
	all, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Empty(t, all, "no partial write")
	unknown := h.call(http.MethodPatch, "/v1/models/gpt", h.operator(), doc{"cap": 1})
	require.Equal(t, http.StatusNotFound, unknown.status)
	require.Equal(t, `model "gpt" not found in the routing file`, unknown.problem.Detail)
	require.EqualValues(t, 5, h.model("deepseek-chat")["cap"])
}

func TestModels_WithoutScopeOperator_Forbidden(t *testing.T) { // T4
	t.Parallel()
	h := newHarness(t)
	for _, token := range []string{h.token("alice"), h.nodeToken()} {
		require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/models", token, nil).status)
		require.Equal(t, http.StatusForbidden, h.call(http.MethodGet, "/v1/queues", token, nil).status)
		require.Equal(t, http.StatusForbidden, h.call(http.MethodPatch, modelPath, token, doc{"cap": 1}).status)
	}
	require.Equal(t, http.StatusUnauthorized, h.call(http.MethodGet, "/v1/models", "", nil).status)
	a := h.call(http.MethodPost, modelPath, h.operator(), doc{})
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Equal(t, "PATCH", a.header.Get("Allow"))
}

// T4: queues and models list their slots, and waiting calls by user, the most first, a bounded number.
func TestListQueues_CallsWait_CountedByQueueModelAndUser(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.patch(doc{"cap": 2})
	number := 0
	arrive := func(queue berth.Queue, user string, n int) {
		for range n {
			number++
			h.callModel("deepseek-chat", queue, user, number)
		}
	}
	arrive(paidStream, "big", 7)
	arrive("q_paid_batch", "small", 2)
	for i := range 24 {
		arrive("q_paid_batch", fmt.Sprintf("user %02d", i), 1)
	}
	m := h.model("deepseek-chat")
	require.Equal(t, []any{2.0, 31.0}, []any{m["inUse"], m["waiting"]})
	require.NotContains(t, m, "etaSeconds", "no waiter was served so far")
	require.Equal(t, []any{
		doc{"queue": "q_paid_stream", "weight": 8.0, "inUse": 2.0, "waiting": 5.0},
		doc{"queue": "q_paid_batch", "weight": 4.0, "inUse": 0.0, "waiting": 26.0},
	}, m["queues"])
	users := m["users"].([]any)
	require.Len(t, users, 20)
	require.Equal(t, doc{"userId": "big", "queue": "q_paid_stream", "model": "deepseek-chat", "waiting": 5.0}, users[0])
	require.Equal(t, doc{"userId": "small", "queue": "q_paid_batch", "model": "deepseek-chat", "waiting": 2.0}, users[1])

	queues := h.call(http.MethodGet, "/v1/queues", h.operator(), nil).json(t)["queues"].([]any)
	require.Len(t, queues, 6)
	stream, batch := queues[0].(doc), queues[1].(doc)
	require.Equal(t, []any{"q_paid_stream", 8.0, 2.0, 5.0}, []any{stream["queue"], stream["weight"], stream["inUse"], stream["waiting"]})
	require.Equal(t, []any{users[0]}, stream["users"])
	require.Equal(t, []any{
		doc{"name": "deepseek-chat", "cap": 2.0, "inUse": 2.0, "waiting": 5.0, "paused": false, "nextGrantMs": 0.0},
		doc{"name": "deepseek-reasoner", "cap": 5.0, "inUse": 0.0, "waiting": 0.0, "paused": false, "nextGrantMs": 0.0, "etaSeconds": 0.0},
	}, stream["models"])
	require.Equal(t, []any{"q_paid_batch", 26.0}, []any{batch["queue"], batch["waiting"]})
	require.Len(t, batch["users"], 20)

	// The estimate follows the pace at which waiters are served.
	holders := func() []string {
		all, err := h.client.ZRange(t.Context(), h.scripts.Keys().ModelHolders("deepseek-chat"), 0, -1).Result()
		require.NoError(t, err)
		return all
	}
	require.Eventually(t, func() bool { // so that the clock advances between grants
		_, _, err := h.scripts.ReleaseSlot(t.Context(), "deepseek-chat", limits(t, "deepseek-chat", 2), modelTimes, holders()[0])
		require.NoError(t, err)
		_, known := h.model("deepseek-chat")["etaSeconds"]
		return known
	}, waitLimit, 5*time.Millisecond)
	queues = h.call(http.MethodGet, "/v1/queues", h.operator(), nil).json(t)["queues"].([]any)
	require.Contains(t, queues[0].(doc)["models"].([]any)[0], "etaSeconds")
}

// T4, L12: the limits survive a loss of Redis's data, and a change that did not reach Redis is written later.
func TestPatchModel_RedisLostData_Restored(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	d := h.patch(doc{"cap": 3, "paused": true, "reason": "maintenance"}).json(t)
	require.NoError(t, h.client.FlushDB(t.Context()).Err())
	require.EqualValues(t, 5, h.model("deepseek-chat")["cap"])
	h.unguarded()
	require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{lua.PolledUpstream("deepseek-chat", "deepseek")}), "as its worker repeats")
	h.callModel("deepseek-chat", paidStream, "u", 1) // a worker creates the room again
	written, err := fleet.RestoreSettings(t.Context(), h.ledger, h.scripts)
	require.NoError(t, err)
	require.Equal(t, 1, written)
	now := h.model("deepseek-chat")
	require.Equal(t, []any{3.0, true, "maintenance", 1.0}, []any{now["cap"], now["paused"], now["reason"], now["inUse"]})
	require.Equal(t, d["configured"], now["configured"])
	written, err = fleet.RestoreSettings(t.Context(), h.ledger, h.scripts)
	require.NoError(t, err)
	require.Zero(t, written, "nothing is missing")
}

func TestPatchModel_RedisWriteFails_SavedAndRetryRequested(t *testing.T) { // T4, P6
	t.Parallel()
	h := newHarness(t)
	permit := h.refuseWrites()
	a := h.patch(doc{"cap": 3})
	permit()
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.problem.Detail, "change saved but not yet applied; retry")
	require.EqualValues(t, 5, h.model("deepseek-chat")["cap"])
	require.EqualValues(t, 3, h.patch(doc{"paused": false}).json(t)["cap"], "the retry writes all of it")
}

func TestModels_RedisUnavailable_RefusedWithoutChange(t *testing.T) { // T4
	t.Parallel()
	h := newHarness(t)
	h.redis.Kill()
	h.seen("stale", func(s *fleet.Snapshot) bool { return s.Stale })
	for _, a := range []answer{
		h.patch(doc{"cap": 3}),
		h.call(http.MethodGet, "/v1/models", h.operator(), nil),
		h.call(http.MethodGet, "/v1/queues", h.operator(), nil),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
		require.Equal(t, berth.CodeUnavailable, a.problem.Code)
	}
	all, err := h.ledger.Settings(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

// G12: an upstream that is renamed does not keep what operators have set; its old name is shown, with which they remove it. The slots of a
// provider are shown with each of its upstreams.
func TestModels_UpstreamRenamed_SettingsOfItsOldNameShown(t *testing.T) {
	t.Parallel()
	h := newHarness(t, publishedRouting(t))
	publish := func(upstream string) doc {
		a := h.call(http.MethodPut, "/v1/routing", h.operator(), doc{
			"content": "providers: {p: {baseURL: http://127.0.0.1:1/v1, cap: 7}, q: {baseURL: http://127.0.0.1:1/v1}}\n" +
				"models: {deepseek-chat: {provider: p, upstreams: [{name: " + upstream + "}, {provider: q}]}}\n",
		})
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	upstream := func(i int) doc { return h.model("deepseek-chat")["upstreams"].([]any)[i].(doc) }
	patch := func(upstream string, body doc) answer {
		return h.call(http.MethodPatch, modelPath+"/upstreams/"+upstream, h.operator(), body)
	}
	publish("old")
	require.Equal(t, http.StatusOK, patch("old", doc{"paused": true, "cap": 3}).status)
	require.NotContains(t, h.model("deepseek-chat"), "unknownUpstreams")
	require.Contains(t, publish("new")["warnings"], "operators have set limits or a pause for upstream old of model deepseek-chat, which this routing does not have: set them for its new name")
	require.Equal(t, []any{"old"}, h.model("deepseek-chat")["unknownUpstreams"])
	require.Equal(t, []any{"new", false, 5.0}, []any{upstream(0)["name"], upstream(0)["paused"], upstream(0)["cap"]})
	require.Equal(t, []any{"old"}, patch("old", doc{"paused": false}).json(t)["unknownUpstreams"], "its cap")
	require.NotContains(t, patch("old", doc{"cap": nil}).json(t), "unknownUpstreams")
	require.Equal(t, http.StatusNotFound, patch("old", doc{"cap": nil}).status)

	require.Equal(t, []any{7.0, nil}, []any{upstream(0)["providerCap"], upstream(0)["providerInUse"]})
	require.NotContains(t, upstream(1), "providerCap")
	limits := lua.ModelLimits{Upstreams: []lua.UpstreamLimits{{Name: "p", Rank: 1, Cap: 5, Provider: "p", ProviderCap: 7}}}
	_, err := h.scripts.AcquireSlot(t.Context(), lua.SlotCall{
		Model: "other", Limits: limits, Times: modelTimes, Lease: lua.Lease{Process: "p", Path: lua.Path{Queue: paidStream, UserID: "u"}, Rest: "1"}.ID(),
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, upstream(0)["providerInUse"], "by a call of another model")
}

// A model whose task queue no worker polls shows that, if templates use it or accepted tasks need it.
func TestModels_NoWorkerPollsQueue_Shown(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, err := h.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Pollers()).Err())
	for _, c := range []struct {
		polled   string
		unpolled any
	}{{"deepseek-reasoner", true}, {"deepseek-chat", nil}} {
		require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{berth.ModelTaskQueue(c.polled)}))
		require.Equal(t, c.unpolled, h.model("deepseek-chat")["unpolled"], c.polled)
	}
}

// The limits of a model do not count an upstream that no process can call, because none has its API key.
func TestModels_NoProcessHasKeyOfUpstream_NotCounted(t *testing.T) { // G12
	t.Parallel()
	h := newHarness(t)
	_, err := h.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	shown := func() []any {
		m := h.model("deepseek-chat")
		return []any{m["cap"], m["configured"].(doc)["cap"], m["upstreams"].([]any)[0].(doc)["noKey"]}
	}
	require.Equal(t, []any{5.0, 5.0, nil}, shown())
	require.NoError(t, h.client.Del(t.Context(), h.scripts.Keys().Pollers()).Err())
	require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{berth.ModelTaskQueue("deepseek-chat"), lua.PolledUpstream("deepseek-chat", "other")}))
	require.Equal(t, []any{0.0, 5.0, true}, shown())
	require.NoError(t, h.scripts.MarkPollers(t.Context(), []string{lua.PolledUpstream("deepseek-chat", "deepseek")}))
	require.Equal(t, []any{5.0, 5.0, nil}, shown())
}

// G12, T4: the limits of a model are those of its only upstream, by whichever name they are changed.
func TestPatchUpstream_OnlyUpstream_ChangesTheModel(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	patch := func(path string, body doc) doc {
		a := h.call(http.MethodPatch, path, h.operator(), body)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		return a.json(t)
	}
	const upstream = modelPath + "/upstreams/deepseek"
	require.Equal(t, []any{true, "operator", "maintenance"}, func(d doc) []any { return []any{d["paused"], d["pausedBy"], d["reason"]} }(
		patch(upstream, doc{"paused": true, "reason": "maintenance"})))
	require.Equal(t, false, patch(modelPath, doc{"paused": false})["paused"])
	require.EqualValues(t, 2, patch(upstream, doc{"cap": 2})["cap"])
	require.EqualValues(t, 6, patch(modelPath, doc{"cap": 6})["cap"])
	d := patch(upstream, doc{"cap": nil})
	require.EqualValues(t, 5, d["cap"])
	require.Equal(t, "deepseek", d["upstreams"].([]any)[0].(doc)["name"])
	a := h.call(http.MethodPatch, modelPath+"/upstreams/other", h.operator(), doc{"cap": 2})
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, string(a.body), `has no upstream`)
}
