package activities

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/ledger"
)

// inOrder returns a provider whose calls are answered in order, and those after the last by that.
func inOrder(handlers ...http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) { handlers[min(int(n.Add(1)), len(handlers))-1](w, r) }
}

func cut(w http.ResponseWriter, _ *http.Request) {
	chunk(w, "half ", "")
	panic(http.ErrAbortHandler)
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func whole(w http.ResponseWriter, _ *http.Request) { chunk(w, "The answer.", "stop") }

func empty(w http.ResponseWriter, _ *http.Request) { chunk(w, "", "stop") }

func fault(w http.ResponseWriter, _ *http.Request) { chunk(w, "half ", "cancelled") }

// A step buys at most three answers, whatever the causes. What a provider rejects is not bought, and does not count.
func TestRunStep_AnswersBought_BoundedWhateverTheCause(t *testing.T) { // B2, FM4, P21
	t.Parallel()
	busy := reply(http.StatusTooManyRequests, `{"error":{"message":"slow down"}}`)
	inStream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"error":{"code":429,"message":"slow down"}}`+"\n\n")
	}
	asks := func(after string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", after)
			busy(w, r)
		}
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		calls    []http.HandlerFunc
		attempts int
		bought   int
		code     berth.Code
		says     string
	}{
		"cut off every time":            {[]http.HandlerFunc{cut}, 3, 3, berth.CodeProviderUnavailable, "closed the connection"},
		"cut off twice":                 {[]http.HandlerFunc{cut, cut, whole}, 3, 3, "", ""},
		"empty every time":              {[]http.HandlerFunc{empty}, 3, 3, berth.CodeInvalidOutput, "returned no answer"},
		"different faults":              {[]http.HandlerFunc{empty, cut, fault}, 3, 3, berth.CodeInvalidOutput, "does not know (cancelled)"},
		"limited, then answered":        {[]http.HandlerFunc{busy, inStream, busy, inStream, whole}, 5, 1, "", ""},
		"limited and cut":               {[]http.HandlerFunc{busy, cut, inStream, cut, busy, cut, whole}, 6, 3, berth.CodeProviderUnavailable, "; berth tried three times"},
		"asks for tomorrow":             {[]http.HandlerFunc{asks(tomorrow)}, 1, 0, berth.CodeProviderUnavailable, "deepseek asks this server to wait until 20"},
		"asks for two hours":            {[]http.HandlerFunc{asks("7200")}, 1, 0, berth.CodeProviderUnavailable, "which is later than the deadline: retry later"},
		"asks for a long time":          {[]http.HandlerFunc{asks("1e300")}, 1, 0, berth.CodeProviderUnavailable, "which is later than"},
		"only thoughts until the limit": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { chunk(w, "<think>hm", "length") }}, 1, 1, berth.CodeInvalidOutput, "raise maxOutputTokens"},
		"too long":                      {[]http.HandlerFunc{reply(400, `{"error":{"code":"context_length_exceeded"}}`)}, 1, 0, berth.CodeProviderRejected, "shorten"},
		"too long, within a stream":     {[]http.HandlerFunc{reply(200, `{"error":{"code":"context_length_exceeded"}}`)}, 1, 0, berth.CodeProviderRejected, "shorten"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStepTest(t, "interview_prep", inOrder(c.calls...))
			for n := range c.attempts {
				_, err := h.attempt(nil)
				if n < c.attempts-1 {
					require.False(t, applicationError(t, err).NonRetryable(), "attempt %d", n)
					continue
				}
				if c.code == "" {
					require.NoError(t, err)
					require.Equal(t, "The answer.", h.text())
					break
				}
				app := applicationError(t, err)
				require.True(t, app.NonRetryable())
				require.Equal(t, string(c.code), app.Type())
				require.Contains(t, app.Message(), c.says)
			}
			retried := 0
			for _, e := range h.events() {
				if e.Type == berth.EventStageProgress && e.Code != "" {
					retried++
				}
			}
			require.Equal(t, c.attempts-1, retried, "readers know of each retry, and of no other")
			require.EqualValues(t, c.attempts, h.calls.Load())
			require.Equal(t, c.bought, h.bought())
		})
	}
}

// bought returns the number of calls in the usage log that cost something.
func (h *stepTest) bought() (n int) {
	h.t.Helper()
	calls, err := h.Ledger.ModelCalls(h.t.Context(), h.plan.Ref())
	require.NoError(h.t, err)
	for _, c := range calls {
		if c.Usage != (berth.Usage{}) {
			n++
		}
	}
	return n
}

// A worker that is killed counts once its call had begun, and not while it waited.
func TestRunStep_WorkersLost_CountOnceCallHadBegun(t *testing.T) { // B2
	t.Parallel()
	h := newStepTest(t, "interview_prep", whole)
	lose := func(called bool) {
		a, err := h.Ledger.BeginAttempt(t.Context(), h.plan.Ref(), 0, h.plan.Steps[0].Status)
		require.NoError(t, err)
		if called {
			require.NoError(t, h.Ledger.StartCall(t.Context(), ledger.CallStart{
				TaskRef: h.plan.Ref(), Fence: a.Fence, Status: berth.TaskStreaming, Provider: "deepseek",
			}))
		}
	}
	for range 5 {
		lose(false)
	}
	lose(true)
	lose(true)
	lose(false)
	a, err := h.Ledger.BeginAttempt(t.Context(), h.plan.Ref(), 0, h.plan.Steps[0].Status)
	require.NoError(t, err)
	require.Equal(t, 2, a.Bought)
	lose(true)
	_, err = h.attempt(nil)
	app := applicationError(t, err)
	require.True(t, app.NonRetryable())
	require.Equal(t, string(berth.CodeInterrupted), app.Type())
	require.Contains(t, app.Message(), "berth tried three times")
	require.Zero(t, h.calls.Load(), "no fourth call")

	h.Options.MaxAnswers = 4 // the setting
	_, err = h.attempt(nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, h.calls.Load())
}

// An answer that is held is stored, also by an attempt that may buy no other.
func TestRunStep_HeldAnswerOfLastCall_Stored(t *testing.T) { // B2
	t.Parallel()
	h := newStepTest(t, "interview_prep", whole)
	a, err := h.Ledger.BeginAttempt(t.Context(), h.plan.Ref(), 0, h.plan.Steps[0].Status)
	require.NoError(t, err)
	require.NoError(t, h.Ledger.StartCall(t.Context(), ledger.CallStart{
		TaskRef: h.plan.Ref(), Fence: a.Fence, Status: berth.TaskStreaming, Provider: "deepseek",
	}))
	held, err := json.Marshal(heldAnswer{
		Call: ledger.ModelCall{
			UserID: "alice", TaskID: h.plan.ID, Name: h.plan.Steps[0].Name, Fence: a.Fence, Queue: h.plan.Steps[0].Queue, Model: stepModel, Provider: "deepseek",
			FinishReason: "stop", Usage: berth.Usage{InputTokens: 5, OutputTokens: 3},
		},
		MediaType: berth.AnswerMediaType, Content: []byte(`{"text":"held"}`),
	})
	require.NoError(t, err)
	require.NoError(t, h.Scripts.HoldAnswer(t.Context(), h.plan.Ref(), 0, held, time.Minute))
	h.Options.MaxAnswers = 1
	_, err = h.attempt(nil)
	require.NoError(t, err)
	require.Equal(t, "held", h.text())
	require.Zero(t, h.calls.Load())
}

// Readers, the result and a later prompt get neither thoughts nor boxes, however the model marks them.
func TestRunStep_MarkupOfModel_ReachesNobody(t *testing.T) { // FM2
	t.Parallel()
	stream := func(pieces ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for _, p := range pieces {
				chunk(w, p, "")
			}
			chunk(w, "", "stop")
		}
	}
	for name, provider := range map[string]http.HandlerFunc{
		"thoughts in tags":               stream("<thi", "nk>a dra", "ft</th", "ink>\n\nThe ", "answer."),
		"box":                            stream("<|begin", "_of_box|>The answer", ".<|end_of", "_box|>"),
		"closing tag only, in pieces":    stream("a draft with a ", "point\n", "</think>", "\n\nThe ", "answer."),
		"closing tag only, in one piece": stream("a draft\n</think>\n\nThe answer."),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStepTest(t, "interview_prep", provider)
			out, err := h.attempt(nil)
			require.NoError(t, err)
			require.Equal(t, "The answer.", h.text())
			stored, err := h.Ledger.GetAsset(t.Context(), "alice", out.AssetID)
			require.NoError(t, err)
			require.JSONEq(t, `{"text":"The answer."}`, string(stored.Content))
			require.EqualValues(t, 1, h.calls.Load())
		})
	}
	t.Run("a draft before the final object", func(t *testing.T) {
		t.Parallel()
		letter := validJSON(t, "resume_customize")
		var final map[string]any
		require.NoError(t, json.Unmarshal([]byte(letter), &final))
		for name := range final {
			if text, ok := final[name].(string); ok {
				final[name] = text + " FINAL"
			}
		}
		second, err := json.Marshal(final)
		require.NoError(t, err)
		for _, between := range []string{"<think>" + letter + "</think>", letter + "</think>", letter + "\n</think>\n"} {
			h := newStepTest(t, "resume_customize", answers([2]string{between + string(second), "stop"}))
			out, err := h.attempt(nil)
			require.NoError(t, err)
			stored, err := h.Ledger.GetAsset(t.Context(), "alice", out.AssetID)
			require.NoError(t, err)
			require.JSONEq(t, string(second), string(stored.Content))
		}
	})
}

// A prompt that its provider cut marks the task, its end and the usage log.
func TestRunStep_PromptTruncatedByProvider_Marked(t *testing.T) { // FM5
	t.Parallel()
	for tokens, want := range map[string]bool{"20": true, "2000": false} {
		h := newStepTest(t, "interview_prep", func(w http.ResponseWriter, _ *http.Request) {
			chunk(w, "A short answer.", "stop")
			_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":`+tokens+`,"completion_tokens":5}}`+"\n\n")
		})
		_, err := h.attempt(nil)
		require.NoError(t, err)
		task, err := h.Ledger.GetTask(t.Context(), h.plan.Ref())
		require.NoError(t, err)
		require.Equal(t, want, task.PromptTruncated)
		all := h.events()
		require.Equal(t, berth.EventDone, all[len(all)-1].Type)
		require.Equal(t, want, all[len(all)-1].PromptTruncated)
		calls, err := h.Ledger.ModelCalls(t.Context(), h.plan.Ref())
		require.NoError(t, err)
		require.Equal(t, want, calls[0].PromptTruncated)
	}
}
