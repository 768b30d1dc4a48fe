package activities

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/lease"
	"berth/internal/llm"
	"berth/internal/testledger"
	"berth/internal/testprovider"
	"berth/lua"
	"berth/workflows"
)

// upstreamTest runs steps whose model has the upstreams a, b, …, by default of rising rank, each of a provider of its own, with a p before that name.
type upstreamTest struct {
	*stepTest
	servers map[string]*testprovider.Server
}

// newUpstreamTest starts it; fields has one item for each upstream, with further fields in the form of the routing file.
func newUpstreamTest(t *testing.T, template berth.Template, fields ...string) *upstreamTest {
	t.Helper()
	h := &upstreamTest{stepTest: &stepTest{t: t}, servers: map[string]*testprovider.Server{}}
	var providers, upstreams strings.Builder
	for i, more := range fields {
		name := string(rune('a' + i))
		h.servers[name] = testprovider.Start(t)
		fmt.Fprintf(&providers, "  p%s: {baseURL: %q, keySetting: KEY_%d, streamOptions: false}\n", name, h.servers[name].URL, i)
		if !strings.Contains(more, "rank: ") {
			more += fmt.Sprintf(", rank: %d", i+1)
		}
		fmt.Fprintf(&upstreams, "      - {name: %s, provider: p%s%s}\n", name, name, more)
	}
	content, err := llm.ParseContent("own.yaml", "providers:\n"+providers.String()+"models:\n  "+stepModel+
		":\n    timeouts: {firstByte: 100ms, idle: 100ms}\n    upstreams:\n"+upstreams.String())
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{KeyList: "KEY_0=a;KEY_1=b;KEY_2="})
	require.NoError(t, err)
	h.serve(testledger.Migrated.Postgres(t), template, catalog)
	return h
}

// called returns how many calls each upstream got, as in "a1 b0".
func (h *upstreamTest) called() string {
	var all []string
	for i := range len(h.servers) {
		name := string(rune('a' + i))
		all = append(all, fmt.Sprintf("%s%d", name, h.servers[name].Calls.Load()))
	}
	return strings.Join(all, " ")
}

// logged returns the calls of the usage log as upstream and outcome.
func (h *upstreamTest) logged() (all []string) {
	h.t.Helper()
	calls, err := h.Ledger.ModelCalls(h.t.Context(), h.plan.Ref())
	require.NoError(h.t, err)
	for i, c := range calls {
		require.Equal(h.t, i, c.Call, "of one attempt")
		require.EqualValues(h.t, 1, c.Fence)
		require.Equal(h.t, "p"+c.Upstream, c.Provider)
		all = append(all, c.Upstream+" "+c.Outcome())
	}
	return all
}

// read returns what readers get besides the text: resets, and notices of a retry.
func (h *upstreamTest) read() (resets, notices int) {
	h.t.Helper()
	starts := 0
	for _, ev := range h.events() {
		switch {
		case ev.Type == berth.EventReset:
			resets++
		case ev.Type == berth.EventStart:
			starts++
		case ev.Type == berth.EventStageProgress && ev.Code != "":
			notices++
		}
	}
	require.LessOrEqual(h.t, starts, 1)
	return resets, notices
}

// malformed sends an answer of a form that no server has.
func malformed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":5}}]}\n\n")
}

// Each cause at one upstream while another one works, and at all of them: what readers get, the calls, and what follows.
func TestRunStep_UpstreamFails_AnotherOneServesTheCall(t *testing.T) { // G13, FM4
	t.Parallel()
	status := testprovider.Status
	for name, c := range map[string]struct {
		fault  http.HandlerFunc
		here   bool // no other upstream is tried
		resets int  // readers had a part of the answer
		bought int  // by each call that fails
		code   berth.Code
		fails  bool // for good, where all have the fault
	}{
		"invalid key":        {fault: status(401, "invalid_api_key"), code: berth.CodeProviderKey, fails: true},
		"no credit":          {fault: status(402, "insufficient_quota"), code: berth.CodeProviderRejected, fails: true},
		"no permission":      {fault: status(403, "permission_denied"), code: berth.CodeProviderKey, fails: true},
		"wrong region":       {fault: status(400, "unsupported_country_region_territory"), code: berth.CodeProviderRejected, fails: true},
		"unknown model":      {fault: status(404, "model_not_found"), code: berth.CodeProviderRejected, fails: true},
		"wrong address":      {fault: status(302, ""), code: berth.CodeProviderRejected, fails: true},
		"blocked by a proxy": {fault: status(407, ""), code: berth.CodeProviderRejected, fails: true},
		"rate limit":         {fault: status(429, "rate_limit_exceeded"), code: berth.CodeProviderUnavailable},
		"rate limit, a time": {fault: testprovider.Limited(2 * time.Second), code: berth.CodeProviderUnavailable},
		"overload":           {fault: status(503, "overloaded"), code: berth.CodeProviderUnavailable},
		"gateway timeout":    {fault: status(504, ""), code: berth.CodeProviderUnavailable},
		"internal error":     {fault: status(500, ""), code: berth.CodeProviderUnavailable},
		"no response":        {fault: testprovider.Hang(""), code: berth.CodeProviderUnavailable},
		"stops":              {fault: testprovider.Hang("half "), resets: 1, bought: 1, code: berth.CodeProviderUnavailable},
		"cut before":         {fault: testprovider.Cut(""), code: berth.CodeProviderUnavailable},
		"cut":                {fault: testprovider.Cut("half "), resets: 1, bought: 1, code: berth.CodeProviderUnavailable},
		"error at the end":   {fault: testprovider.Finish("half ", "error"), resets: 1, bought: 1, code: berth.CodeProviderUnavailable},
		"malformed":          {fault: malformed, bought: 1, code: berth.CodeInvalidOutput, fails: true},
		"bad request":        {fault: status(400, "invalid_request_error"), here: true, code: berth.CodeProviderRejected, fails: true},
		"too large":          {fault: status(413, ""), here: true, code: berth.CodeProviderRejected, fails: true},
		"content refused":    {fault: testprovider.Finish("", "content_filter"), here: true, bought: 1, code: berth.CodeProviderRejected, fails: true},
		"empty answer":       {fault: testprovider.Finish("", "stop"), here: true, bought: 1, code: berth.CodeInvalidOutput},
		"tool call":          {fault: testprovider.Finish("", "tool_calls"), here: true, bought: 1, code: berth.CodeInvalidOutput},
	} {
		if !c.here { // else no other one is tried
			t.Run(name+", another one works", func(t *testing.T) {
				t.Parallel()
				h := newUpstreamTest(t, "interview_prep", "", "")
				var failed, called atomic.Int64
				began := time.Now()
				h.servers["a"].Fail(func(w http.ResponseWriter, r *http.Request) {
					defer func() { failed.Store(int64(time.Since(began))) }()
					c.fault(w, r)
				})
				h.servers["b"].Answer(func(w http.ResponseWriter, r *http.Request) {
					called.Store(int64(time.Since(began)))
					testprovider.Write(0, testprovider.Text)(w, r)
				})
				_, err := h.attempt(nil)
				require.NoError(t, err)
				t.Logf("the next call began %s after the fault", time.Duration(called.Load()-failed.Load()).Round(100*time.Microsecond))
				require.Equal(t, testprovider.Text, h.text())
				resets, notices := h.read()
				require.Equal(t, c.resets, resets)
				require.Zero(t, notices, "readers need not know")
				require.Equal(t, "a1 b1", h.called())
				require.Equal(t, []string{"a " + string(c.code), "b success"}, h.logged())
				require.Equal(t, c.bought+1, h.bought())
				steps, err := h.Ledger.FinishedSteps(t.Context(), h.plan.Ref())
				require.NoError(t, err)
				require.Equal(t, "b pb", steps[0].Upstream+" "+steps[0].Provider)
			})
		}
		t.Run(name+" everywhere", func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", "", "")
			for _, s := range h.servers {
				s.Fail(c.fault)
			}
			_, err := h.attempt(nil)
			app := applicationError(t, err)
			require.Equal(t, string(c.code), app.Type())
			require.Equal(t, c.fails, app.NonRetryable())
			_, notices := h.read()
			require.Equal(t, c.fails, notices == 0, "readers know of the retry")
			calls, tried := "a1 b1", []string{"a " + string(c.code), "b " + string(c.code)}
			if c.here {
				calls, tried = "a1 b0", tried[:1]
			}
			require.Equal(t, calls, h.called(), "each one once")
			require.Equal(t, tried, h.logged())
			require.Equal(t, c.bought*len(tried), h.bought())
		})
	}
}

// A fault that may pass decides, whatever the order: the task need not fail because the key of another upstream is wrong.
func TestRunStep_UpstreamsFailDifferently_FaultThatPassesDecides(t *testing.T) { // G13
	t.Parallel()
	key, busy, slow, refused := testprovider.Status(401, ""), testprovider.Status(503, ""), testprovider.Limited(30*time.Second), testprovider.Status(400, "content_filter")
	for name, c := range map[string]struct {
		a, b  http.HandlerFunc
		code  berth.Code
		fails bool
		least time.Duration // of the delay
	}{
		"overload, then key":             {busy, key, berth.CodeProviderUnavailable, false, 0},
		"key, then overload":             {key, busy, berth.CodeProviderUnavailable, false, 0},
		"a long pause, then overload":    {slow, busy, berth.CodeProviderUnavailable, false, 0},
		"a long pause, then another one": {slow, testprovider.Limited(20 * time.Second), berth.CodeProviderUnavailable, false, 15 * time.Second},
		"overload, then a refused text":  {busy, refused, berth.CodeProviderRejected, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", "", "")
			h.servers["a"].Fail(c.a)
			h.servers["b"].Fail(c.b)
			_, err := h.attempt(nil)
			app := applicationError(t, err)
			require.Equal(t, string(c.code), app.Type())
			require.Equal(t, c.fails, app.NonRetryable())
			require.GreaterOrEqual(t, app.NextRetryDelay(), c.least)
			require.LessOrEqual(t, app.NextRetryDelay(), c.least+5*time.Second, "the pause that ends first")
		})
	}
}

// Texts that are too long for an upstream go to one with more room, and to no smaller one.
func TestRunStep_ContextTooLong_LargerUpstreamCalled(t *testing.T) { // G13
	t.Parallel()
	tooLong := testprovider.Status(400, "context_length_exceeded")
	for name, c := range map[string]struct {
		sizes  []string
		called string
		code   berth.Code
	}{
		"one is larger": {[]string{", contextTokens: 20000", ", contextTokens: 10000"}, "a1 b0", berth.CodeProviderRejected},
		"none is":       {[]string{", contextTokens: 10000", ", contextTokens: 20000"}, "a1 b1", ""},
		"unknown sizes": {[]string{"", ""}, "a1 b1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", c.sizes...)
			h.servers["a"].Fail(tooLong)
			_, err := h.attempt(nil)
			require.Equal(t, c.called, h.called())
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			app := applicationError(t, err)
			require.Equal(t, string(c.code), app.Type())
			require.True(t, app.NonRetryable())
		})
	}
}

// An answer with a schema, of which readers see nothing, is requested from another upstream without a reset.
func TestRunStep_StructuredAnswerCut_AnotherUpstreamWithoutReset(t *testing.T) { // G13
	t.Parallel()
	h := newUpstreamTest(t, "job_summary", "", "")
	h.servers["a"].Fail(testprovider.Cut(`{"half`))
	h.servers["b"].Answer(testprovider.Write(0, validJSON(t, "job_summary")))
	_, err := h.attempt(nil)
	require.NoError(t, err)
	resets, notices := h.read()
	require.Zero(t, resets+notices)
	require.Equal(t, []string{"a provider_unavailable", "b success"}, h.logged())
	require.Equal(t, 2, h.bought())
}

// The step buys no more answers than it may, however many upstreams there are.
func TestRunStep_AnswersBoughtOfUpstreams_Bounded(t *testing.T) { // G13
	t.Parallel()
	h := newUpstreamTest(t, "interview_prep", "", "")
	h.Options.MaxAnswers = 1
	h.servers["a"].Fail(testprovider.Cut("half "))
	_, err := h.attempt(nil)
	app := applicationError(t, err)
	require.True(t, app.NonRetryable())
	require.Contains(t, app.Message(), "berth tried once")
	require.Equal(t, "a1 b0", h.called())
}

// Where the others are paused, an upstream with a wrong key does not make the task fail.
func TestRunStep_OthersPaused_StepRepeated(t *testing.T) { // G13
	t.Parallel()
	h := newUpstreamTest(t, "interview_prep", "", "")
	h.servers["a"].Fail(testprovider.Status(401, ""))
	_, err := h.Scripts.SetModelLimits(t.Context(), stepModel, "b", lua.SlotTimes{TTL: time.Minute, Grant: time.Second}, lua.OperatorLimits{Paused: true})
	require.NoError(t, err)
	_, err = h.attempt(nil)
	app := applicationError(t, err)
	require.False(t, app.NonRetryable())
	require.Equal(t, string(berth.CodeProviderKey), app.Type())
	require.Equal(t, "a1 b0", h.called())
}

// A task does not wait for an upstream whose fault lasts until an operator acts.
func TestRunStep_OthersBroken_StepFails(t *testing.T) { // G13
	t.Parallel()
	for name, c := range map[string]struct {
		outcome lua.CallOutcome // of another task's call of b
		wait    time.Duration   // that its provider asked for
		fails   bool
	}{
		"no credit there": {lua.CallBroken, 0, true},
		"a limit there":   {lua.CallLimited, time.Minute, false},
		"a failure there": {lua.CallFailed, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", "", "")
			slot, err := h.Slots.Acquire(t.Context(), lease.Request{Model: stepModel, Queue: "q", UserID: "another"}) // the limits are known from now on
			require.NoError(t, err)
			slot.Release()
			_, _, err = h.Scripts.ReportCall(t.Context(), lua.CallReport{Model: stepModel, Upstream: "b", Task: "another", Outcome: c.outcome, RetryAfter: c.wait})
			require.NoError(t, err)
			h.servers["a"].Fail(testprovider.Status(401, "invalid_api_key"))
			_, failed := h.attempt(nil)
			app := applicationError(t, failed)
			require.Equal(t, string(berth.CodeProviderKey), app.Type())
			require.Equal(t, c.fails, app.NonRetryable())
			require.Equal(t, "a1 b0", h.called())
		})
	}
}

// An upstream whose key this process lacks is not called. Neither is one that the process does not have in its routing file, as while that is replaced.
// Readers of a call that waits again, because all upstreams are paused, know it, and that it continues.
func TestRunStep_AllPausedAfterFault_ReadersKnowThatItWaits(t *testing.T) { // G13
	t.Parallel()
	h := newUpstreamTest(t, "interview_prep", "", "")
	pause := func(paused bool) {
		_, err := h.Scripts.SetModelLimits(t.Context(), stepModel, "b", lua.SlotTimes{TTL: time.Minute, Grant: time.Second}, lua.OperatorLimits{Paused: paused})
		require.NoError(t, err)
	}
	pause(true)
	h.servers["a"].Fail(testprovider.Limited(time.Minute))
	done := make(chan error, 1)
	go func() {
		_, err := h.attempt(nil)
		done <- err
	}()
	statuses := func() (all []string) {
		for _, ev := range h.events() {
			if ev.Type == berth.EventStageProgress {
				all = append(all, string(ev.Stage)+" "+string(ev.Status)+" "+ev.Model)
			}
		}
		return all
	}
	last := h.plan.Steps[0].Status
	queued, writing := "queue "+string(last)+" "+stepModel, "answer STREAMING "+stepModel
	h.eventually("readers know that the step waits", func() bool { return len(statuses()) == 3 })
	require.Equal(t, []string{queued, writing, queued}, statuses())
	waits, err := h.Scripts.ReadPositions(t.Context(), []lua.ModelWaiterKey{lua.ModelWaiterOf(h.plan.Ref(), h.plan.Group, 0, h.plan.Steps[0]).Key()})
	require.NoError(t, err)
	require.Equal(t, []lua.Wait{{Time: -time.Millisecond, Paused: true}}, waits)
	pause(false)
	require.NoError(t, <-done)
	require.Equal(t, []string{queued, writing, queued, writing}, statuses()[:4])
	require.Equal(t, "a1 b1", h.called())
}

// A task that reaches its deadline while no worker serves its model reports that.
func TestFinishTask_DeadlineWhileNoWorkerServesModel_ReasonNamesIt(t *testing.T) {
	t.Parallel()
	const late = "there was no complete answer before the deadline"
	for name, c := range map[string]struct {
		polled string
		code   berth.Code
		says   string
	}{
		"no worker":     {"model.other", berth.CodeDeadlineExceeded, late + ": no worker serves the model " + stepModel},
		"a worker":      {berth.ModelTaskQueue(stepModel), berth.CodeDeadlineExceeded, late},
		"another cause": {"model.other", berth.CodeProviderRejected, late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", "")
			require.NoError(t, h.Scripts.MarkPollers(t.Context(), []string{c.polled}))
			_, err := h.FinishTask(t.Context(), workflows.EndInput{TaskRef: h.plan.Ref(), Status: berth.TaskFailed, Code: c.code, Message: late})
			require.NoError(t, err)
			row, err := h.Ledger.GetTask(t.Context(), h.plan.Ref())
			require.NoError(t, err)
			require.Contains(t, row.ErrorMessage, c.says)
			require.Equal(t, c.says == late, row.ErrorMessage == late, row.ErrorMessage)
		})
	}
}

// A task whose texts fit no upstream since the routing has changed fails with the model, and is not sent to one that is too small.
func TestRunStep_LargeUpstreamRemoved_TooLongForTheModel(t *testing.T) { // G13
	t.Parallel()
	const small, large = ", maxOutputTokens: 100, contextTokens: 110", ", maxOutputTokens: 100, contextTokens: 20000"
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits %v", waits), func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", large, small)
			content, err := llm.ParseContent("newer.yaml", "providers: {pb: {baseURL: "+h.servers["b"].URL+"}}\nmodels: {"+stepModel+
				": {upstreams: [{name: b, provider: pb"+small+"}]}}")
			require.NoError(t, err)
			newer, err := llm.NewCatalog(content.Config, llm.Settings{})
			require.NoError(t, err)
			var catalog atomic.Pointer[llm.Catalog]
			catalog.Store(h.Catalog(stepModel))
			h.Catalog = func(string) *llm.Catalog { return catalog.Load() }
			full := func() {}
			if waits {
				full = h.occupy()
			} else {
				catalog.Store(newer)
			}
			done := make(chan error, 1)
			go func() {
				_, err := h.attempt(nil)
				done <- err
			}()
			if waits {
				h.waiting()
				catalog.Store(newer)
			}
			full()
			app := applicationError(t, <-done)
			require.True(t, app.NonRetryable())
			require.Equal(t, string(berth.CodeTooLarge), app.Type())
			require.Contains(t, app.Message(), "too long for the model "+stepModel)
			require.Equal(t, "a0 b0", h.called())
		})
	}
}

func TestRunStep_UpstreamNotUsableHere_AnotherOneCalled(t *testing.T) { // G12, G13
	t.Parallel()
	t.Run("no key", func(t *testing.T) {
		t.Parallel()
		h := newUpstreamTest(t, "interview_prep", ", keySetting: KEY_2", "")
		_, err := h.attempt(nil)
		require.NoError(t, err)
		require.Equal(t, "a0 b1", h.called())
		require.Equal(t, []string{"b success"}, h.logged())
	})
	t.Run("another file", func(t *testing.T) {
		t.Parallel()
		h := newUpstreamTest(t, "interview_prep", "", "")
		newer := h.Catalog(stepModel).Limits(stepModel, 0)
		newer.Revision++
		newer.Upstreams = append([]lua.UpstreamLimits{{Name: "new", Rank: 0, Cap: 1}}, newer.Upstreams...)
		_, err := h.Scripts.AcquireSlot(t.Context(), lua.SlotCall{
			Model: stepModel, Limits: newer, Lease: lua.Lease{Process: "p", Path: lua.Path{Queue: "q", UserID: "other"}}.ID(),
			Times: lua.SlotTimes{TTL: time.Second, Grant: time.Second},
		})
		require.NoError(t, err)
		_, _, err = h.Scripts.ReleaseSlot(t.Context(), stepModel, newer, lua.SlotTimes{TTL: time.Second, Grant: time.Second},
			lua.Lease{Process: "p", Path: lua.Path{Queue: "q", UserID: "other"}}.ID())
		require.NoError(t, err)
		_, err = h.attempt(nil)
		require.NoError(t, err)
		require.Equal(t, "a1 b0", h.called())
		require.Equal(t, []string{"a success"}, h.logged())
		room, err := h.Scripts.ReadRoom(t.Context(), stepModel, newer, 1)
		require.NoError(t, err)
		require.Zero(t, room.InUse, "the slot was returned")
	})
}

// A call that its upstream failed is before those that came after it.
func TestRunStep_OtherUpstreamFull_PositionKept(t *testing.T) { // G13
	t.Parallel()
	h := newUpstreamTest(t, "interview_prep", "", "")
	acquire := func(user string, excluded ...string) *lease.Slot {
		slot, err := h.Slots.Acquire(t.Context(), lease.Request{
			Model: stepModel, Queue: "q_paid_stream", UserID: user, Needs: lua.Needs{Excluded: excluded},
		})
		require.NoError(t, err)
		return slot
	}
	full := acquire("other", "a")
	require.Equal(t, "b", full.Upstream())
	fails := make(chan struct{})
	h.servers["a"].Fail(func(w http.ResponseWriter, r *http.Request) {
		chunk(w, "half ", "")
		<-fails
		panic(http.ErrAbortHandler)
	})
	done := make(chan error, 1)
	go func() {
		_, err := h.attempt(nil)
		done <- err
	}()
	h.eventually("a is called", func() bool { return h.servers["a"].InFlight() == 1 })
	var before int64
	later := make(chan *lease.Slot, 1)
	go func() {
		slot := acquire("later", "a")
		before = h.servers["b"].Calls.Load()
		later <- slot
	}()
	h.waiting()
	close(fails)
	h.eventually("both wait for b", func() bool {
		n, err := h.redis.ZCard(t.Context(), h.Scripts.Keys().ModelWaiting(stepModel)).Result()
		return err == nil && n == 2
	})
	h.eventually("readers know", func() bool { return h.text() == "" })
	full.Release()
	require.NoError(t, <-done)
	(<-later).Release()
	require.EqualValues(t, 1, before, "the step's call was made first")
	require.Equal(t, testprovider.Text, h.text())
}

func TestRunStep_CallFails_UsageHasTheCause(t *testing.T) { // G16, B9
	t.Parallel()
	for want, fault := range map[llm.Cause]http.HandlerFunc{
		llm.CauseKey:        testprovider.Status(401, "invalid_api_key"),
		llm.CauseCredit:     testprovider.Status(402, "insufficient_quota"),
		llm.CauseLimit:      testprovider.Status(429, "rate_limit_exceeded"),
		llm.CauseConnection: testprovider.Cut("half "),
		llm.CauseRefused:    testprovider.Finish("", "content_filter"),
		llm.CauseEmpty:      testprovider.Finish("", "stop"),
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			h := newUpstreamTest(t, "interview_prep", "", "")
			h.servers["a"].Fail(fault)
			_, err := h.attempt(nil)
			calls, listed := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
			require.NoError(t, listed)
			require.Equal(t, string(want), calls[0].Cause)
			if err == nil {
				require.Empty(t, calls[len(calls)-1].Cause, "of the call that was made elsewhere")
			}
		})
	}
}
