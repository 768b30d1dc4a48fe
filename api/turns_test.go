package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
)

// job returns a valid request for a job of a new turn.
func job(requestID string, change ...func(doc)) doc {
	d := doc{"requestId": requestID, "segment": doc{"index": 0, "text": "Good morning."}}
	for _, c := range change {
		c(d)
	}
	return d
}

func segment(key string, v any) func(doc) { return func(d doc) { d["segment"].(doc)[key] = v } }

// withSession returns a harness with a node for English to Spanish and alice's session s1.
func withSession(t *testing.T, change ...func(*api.Deps)) *harness {
	t.Helper()
	h := newHarness(t, change...)
	h.node("n1", "translate:en-es")
	h.unguarded()
	a := h.session("alice", "s1")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	return h
}

func (h *harness) job(body doc) answer {
	h.t.Helper()
	return h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), body)
}

func TestDispatchJob_Turn_FollowsAffinity(t *testing.T) { // A1, A3, A7
	t.Parallel()
	h := withSession(t)
	a := h.job(job("r1", with("speakerId", "Ana María")))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := a.json(t)
	turn, _ := d["turnId"].(string)
	require.Regexp(t, `^t-[a-z2-7]{32}$`, turn)
	require.Equal(t, turn+"-0", d["jobId"])
	require.Equal(t, "n1", d["nodeId"])
	require.Equal(t, "first", d["affinity"])
	require.Equal(t, "translate:en-es", d["poolId"])
	require.NotZero(t, d["generation"])
	require.Equal(t, false, d["replay"])
	require.Equal(t, turn, h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil).json(t)["currentTurnId"])

	d = h.job(job("r2", with("turnId", turn), segment("index", 1), with("finalize", "max_duration"))).json(t)
	require.Equal(t, "hit", d["affinity"])
	require.NotContains(t, d, "strategy")
	d = h.job(job("r3", with("turnId", turn), segment("index", 2), with("finalize", "manual"))).json(t)
	require.Equal(t, turn+"-2", d["jobId"])

	a = h.job(job("r4", with("turnId", turn), segment("index", 3)))
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, berth.CodeTurnFinalized, a.problem.Code)
	a = h.job(job("r5", with("turnId", "t-unknown")))
	require.Equal(t, http.StatusNotFound, a.status)
	other := h.job(job("r6")).json(t)
	require.NotEqual(t, turn, other["turnId"], "two speakers have two turns (A8)")

	got := h.call(http.MethodGet, "/v1/turns/"+turn, h.token("alice"), nil)
	require.Equal(t, http.StatusOK, got.status, string(got.body))
	require.Equal(t, "finalized", got.json(t)["status"])
	require.Len(t, got.json(t)["jobs"], 3)
	links, _ := got.json(t)["links"].(doc)
	require.Equal(t, "http://ui.test:8233/namespaces/default/workflows/turn:"+turn, links["temporal"])
	require.Equal(t, http.StatusOK, h.call(http.MethodGet, "/v1/turns/"+turn, h.token("root", "operator"), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/turns/"+turn, h.token("bob"), nil).status)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodGet, "/v1/turns/t-unknown", h.token("alice"), nil).status)
}

func TestDispatchJob_SameRequest_IsOneJob(t *testing.T) { // L6, P6
	t.Parallel()
	h := withSession(t)
	first := h.job(job("r1")).json(t)
	again := h.job(job("r1"))
	require.Equal(t, http.StatusOK, again.status)
	first["replay"] = true
	require.Equal(t, first, again.json(t))
	require.Equal(t, first, h.job(job("r1", with("turnId", first["turnId"]))).json(t), "a retry may name the turn that the first request began")

	asset := h.upload("alice", "said.txt", []byte("Good morning.")).json(t)["assetId"]
	uploaded := job("r1", with("segment", doc{"index": 0, "assetId": asset}))
	require.Equal(t, first, h.job(uploaded).json(t), "the same text, uploaded")

	for name, body := range map[string]doc{
		"other words":   job("r1", segment("text", "Good evening.")),
		"other index":   job("r1", segment("index", 1)),
		"other speaker": job("r1", with("speakerId", "bob")),
		"other end":     job("r1", with("finalize", "manual")),
	} {
		a := h.job(body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, name)
		require.Equal(t, berth.CodeIdempotencyMismatch, a.problem.Code, name)
		require.Equal(t, "requestId", a.problem.Field, name)
	}
	require.Equal(t, http.StatusOK, h.call(http.MethodPost, "/v1/turns/"+first["turnId"].(string)+"/finalize", h.token("alice"), nil).status)
	require.Equal(t, first, h.job(job("r1")).json(t), "also after the turn has ended")
}

func TestDispatchJob_ConcurrentRetries_AreOneJob(t *testing.T) { // P7
	t.Parallel()
	h := withSession(t)
	const n = 20
	token := h.token("alice")
	answers := make(chan answer, n)
	for range n {
		go func() { answers <- h.call(http.MethodPost, "/v1/sessions/s1/jobs", token, job("r1")) }()
	}
	fresh, jobs := 0, map[any]bool{}
	for range n {
		d := (<-answers).json(t)
		jobs[d["jobId"]] = true
		if d["replay"] == false {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	require.Len(t, jobs, 1)
}

func TestDispatchJob_InvalidBody_NamesField(t *testing.T) { // X6
	t.Parallel()
	h := withSession(t)
	image := h.upload("alice", "posting.png", pngOf(t, 8, 8)).json(t)["assetId"]
	foreign := h.upload("bob", "said.txt", []byte("Hello.")).json(t)["assetId"]
	large := h.upload("alice", "large.txt", []byte(strings.Repeat("word ", berth.MaxSegmentBytes/5+1))).json(t)["assetId"]
	asset := func(id any) func(doc) { return with("segment", doc{"index": 0, "assetId": id}) }
	for name, c := range map[string]struct {
		body   any
		status int
		field  string
	}{
		"no JSON":                   {`{`, 400, "body"},
		"empty":                     {``, 400, "body"},
		"no request id":             {job("r1", without("requestId")), 400, "requestId"},
		"empty request id":          {job(""), 400, "requestId"},
		"odd request id":            {job("r 1"), 400, "requestId"},
		"reserved request id":       {job("r~1"), 400, "requestId"},
		"odd turn id":               {job("r1", with("turnId", "t/1")), 400, "turnId"},
		"long speaker":              {job("r1", with("speakerId", strings.Repeat("x", 201))), 400, "speakerId"},
		"speaker with a line break": {job("r1", with("speakerId", "a\nb")), 400, "speakerId"},
		"no segment":                {job("r1", without("segment")), 400, "segment"},
		"no index":                  {job("r1", with("segment", doc{"text": "x"})), 400, "segment.index"},
		"negative index":            {job("r1", segment("index", -1)), 400, "segment.index"},
		"index too high":            {job("r1", segment("index", 1000)), 400, "segment.index"},
		"index as text":             {job("r1", segment("index", "0")), 400, "segment.index"},
		"half an index":             {job("r1", segment("index", 0.5)), 400, "segment.index"},
		"no text":                   {job("r1", with("segment", doc{"index": 0})), 400, "segment.text"},
		"blank text":                {job("r1", segment("text", " \n")), 400, "segment.text"},
		"text with NUL":             {job("r1", segment("text", "a\x00b")), 400, "segment.text"},
		"text too long":             {job("r1", segment("text", strings.Repeat("x", berth.MaxSegmentBytes+1))), 413, "segment.text"},
		"text and asset":            {job("r1", segment("assetId", "a_1")), 400, "segment"},
		"no such asset":             {job("r1", asset("a_1")), 400, "segment.assetId"},
		"odd asset id":              {job("r1", asset("../x")), 400, "segment.assetId"},
		"foreign asset":             {job("r1", asset(foreign)), 400, "segment.assetId"},
		"an image":                  {job("r1", asset(image)), 415, "segment.assetId"},
		"a text too long":           {job("r1", asset(large)), 413, "segment.assetId"},
		"unknown finalize":          {job("r1", with("finalize", "never")), 400, "finalize"},
		"finalize as boolean":       {job("r1", with("finalize", true)), 400, "finalize"},
		"unknown field":             {job("r1", with("isManualFinalize", true)), 400, "isManualFinalize"},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.call(http.MethodPost, "/v1/sessions/s1/jobs", h.token("alice"), c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Equal(t, c.field, a.problem.Field, string(a.body))
			require.NotEmpty(t, a.problem.Detail)
			require.NotContains(t, a.problem.Detail, `", `, "the message does not list other fields")
		})
	}
	b, unlock := h.starter.open()
	defer unlock()
	require.Zero(t, b.dispatches, "no partial write")
}

func TestDispatchJob_NoNode_StatesReasons(t *testing.T) { // L9, S4
	t.Parallel()
	h := withSession(t)
	for i := range 4 {
		require.Equal(t, http.StatusOK, h.job(job(fmt.Sprint("r", i))).status)
	}
	a := h.job(job("r9"))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, berth.CodeNodeFull, a.problem.Code)
	require.Equal(t, map[berth.ExcludeReason]int{berth.ExcludeFull: 1}, a.problem.Reasons)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.NotContains(t, h.log.String(), `"level":"ERROR"`, "a full fleet is not an internal error")
}

func TestDispatchJob_PoolNoLongerServes_ChoosesAnother(t *testing.T) { // L5
	t.Parallel()
	h := newHarness(t)
	h.node("n1", "translate:en-es", "gpu")
	_, err := h.scripts.DefinePool(t.Context(), berth.Pool{ID: "a-fast", Capabilities: []string{"translate:en-es", "gpu"}}, false)
	require.NoError(t, err)
	waitFor(t, "the pool to be known", func() bool { return len(h.fleet.Snapshot().Eligible("", "en", "es")) == 2 })
	h.unguarded()
	require.Equal(t, http.StatusOK, h.call(http.MethodPut, "/v1/config/strategy", h.operator(), doc{"sessionAffinity": false}).status)
	require.Equal(t, "a-fast", h.session("alice", "s1").json(t)["preferredPool"])
	require.Equal(t, "a-fast", h.job(job("r1")).json(t)["poolId"])
	require.NoError(t, h.scripts.DeletePool(t.Context(), "a-fast"))
	waitFor(t, "the pool to be gone", func() bool { return len(h.fleet.Snapshot().Eligible("", "en", "es")) == 1 })
	a := h.job(job("r2"))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "translate:en-es", a.json(t)["poolId"])
}

func TestDispatchJob_RedisLostSession_IsRestored(t *testing.T) { // L12
	t.Parallel()
	h := withSession(t)
	turn := h.job(job("r1")).json(t)["turnId"]
	require.NoError(t, h.client.FlushAll(t.Context()).Err())
	h.node("n1", "translate:en-es")
	h.unguarded()
	a := h.job(job("r2", with("turnId", turn), segment("index", 1)))
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := h.call(http.MethodGet, "/v1/sessions/s1", h.token("alice"), nil).json(t)
	require.Equal(t, "translate:en-es", d["preferredPool"])
	require.Equal(t, "alice", d["userId"])
}

func TestFinalizeTurn_OpenTurn_Ends(t *testing.T) { // A1
	t.Parallel()
	h := withSession(t)
	turn, _ := h.job(job("r1")).json(t)["turnId"].(string)
	path := "/v1/turns/" + turn + "/finalize"
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, path, h.token("bob"), nil).status)
	for name, body := range map[string]any{
		"unknown": doc{"reason": "bored"}, "no end": doc{"reason": "max_duration"}, "number": doc{"reason": 1},
	} {
		a := h.call(http.MethodPost, path, h.token("alice"), body)
		require.Equal(t, http.StatusBadRequest, a.status, name)
		require.Equal(t, "reason", a.problem.Field, name)
	}
	a := h.call(http.MethodPost, path, h.token("alice"), doc{"reason": "timeout"})
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	d := a.json(t)
	delete(d, "$schema")
	require.Equal(t, doc{"turnId": turn, "status": "finalized", "reason": "timeout", "jobs": 1.0}, d)
	again := h.call(http.MethodPost, path, h.token("alice"), doc{})
	require.Equal(t, http.StatusConflict, again.status)
	require.Equal(t, berth.CodeTurnFinalized, again.problem.Code)
	require.Equal(t, http.StatusNotFound, h.call(http.MethodPost, "/v1/turns/t-unknown/finalize", h.token("alice"), nil).status)
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodPost, "/v1/turns/a%20b/finalize", h.token("alice"), nil).status)
	require.Equal(t, http.StatusBadRequest, h.call(http.MethodGet, "/v1/turns/a%20b", h.token("alice"), nil).status)
}

func TestTurns_TemporalUnavailable_Return503(t *testing.T) { // L11
	t.Parallel()
	h := withSession(t)
	turn, _ := h.job(job("r1")).json(t)["turnId"].(string)
	b, unlock := h.starter.open()
	b.failure = errDown
	unlock()
	for _, a := range []answer{
		h.job(job("r2")),
		h.call(http.MethodPost, "/v1/turns/"+turn+"/finalize", h.token("alice"), nil),
		h.call(http.MethodGet, "/v1/turns/"+turn, h.token("alice"), nil),
		h.call(http.MethodPost, "/v1/executions", h.token("alice"), doc{"executor": "ocr"}),
		h.call(http.MethodGet, "/v1/executions/e1", h.token("alice"), nil),
	} {
		require.Equal(t, http.StatusServiceUnavailable, a.status, string(a.body))
		require.Equal(t, berth.CodeUnavailable, a.problem.Code)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
}
