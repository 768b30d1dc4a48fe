package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/llm"
	"berth/lua"
)

// holdCalls makes each call of the model send a channel and wait until that is closed.
func (s *stack) holdCalls() (calls chan chan struct{}) {
	calls = make(chan chan struct{})
	model := s.model.Config.Handler
	s.model.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // or the server does not notice that its client left
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		finish := make(chan struct{})
		select {
		case calls <- finish:
		case <-r.Context().Done():
			return
		}
		select {
		case <-finish:
			model.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return calls
}

// The acceptance test of the design document: a queue of two tasks refuses the third task; with one slot the second task
// starts only after the first has released it; the counter of the queue goes 2, 1, 0.
func TestTask_QueueOfTwo_ThirdRefusedCounterEndsAtZero(t *testing.T) { // T5, T29
	t.Parallel()
	metrics := freeAddr(t)
	s := newStack(t, with("QUEUE_MAX_SIZE=2", "BERTH_METRICS_ADDR="+metrics,
		"BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-chat": 1, "deepseek-reasoner": 1})))
	calls := s.holdCalls()
	c, queue := s.user("carol"), berth.Queue("")
	push := func(text string) (client.Acceptance, error) {
		return c.Submit(t.Context(), client.Submission{
			ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, Variables: map[string]any{"jobText": text},
		}, "")
	}
	rdb := s.redis()
	counter := func() int64 {
		n, err := rdb.ZCard(t.Context(), lua.Keys{}.QueueAdmissions(queue)).Result()
		require.NoError(t, err)
		return n
	}
	one, err := push("We look for a Go developer.")
	require.NoError(t, err)
	queue = one.Queue
	first := <-calls
	two, err := push("We look for a baker.")
	require.NoError(t, err)
	require.Equal(t, queue, two.Queue)
	require.EqualValues(t, 2, counter())

	s.eventually("the second task to wait for the slot", func() bool {
		n, err := rdb.ZCard(t.Context(), lua.Keys{}.ModelWaiting(one.Model)).Result()
		return err == nil && n == 1
	})
	_, err = push("We look for a pilot.")
	refusal := problem(t, err)
	require.Equal(t, http.StatusTooManyRequests, refusal.Status)
	require.True(t, refusal.QueueFull)
	require.Equal(t, 2, refusal.Position)
	require.Positive(t, refusal.RetryAfter)
	_, list := s.send(http.MethodGet, "/v1/tasks", s.token("carol"), nil)
	require.Len(t, list["tasks"], 2, "the refused task does not exist")
	require.Contains(t, scrape(metrics), fmt.Sprintf(`berth_submissions_refused_total{code="queue_full",queue=%q} 1`, queue))

	select {
	case <-calls:
		t.Fatal("the second task started while the first had the slot")
	default:
	}
	close(first)
	require.Equal(t, berth.EventDone, watch(t, c, one.TaskID, nil).last.Type)
	require.EqualValues(t, 1, counter())
	close(<-calls)
	require.Equal(t, berth.EventDone, watch(t, c, two.TaskID, nil).last.Type)
	require.Zero(t, counter())
	s.noSlotHeld()
	n, err := rdb.ZCard(t.Context(), lua.Keys{}.UserAdmissions("carol", "career")).Result()
	require.NoError(t, err)
	require.Zero(t, n)

	three, err := push("We look for a pilot.")
	require.NoError(t, err)
	close(<-calls)
	require.Equal(t, berth.EventDone, watch(t, c, three.TaskID, nil).last.Type)
}

// A task has one admission, to the queue of its current step, and none after it was cancelled.
func TestTask_Chain_AdmissionFollowsItsStep(t *testing.T) { // T5
	t.Parallel()
	s := newStack(t)
	calls := s.holdCalls()
	c, rdb := s.user("alice"), s.redis()
	acc, err := c.Submit(t.Context(), client.Submission{
		ServiceID: "career", Template: "job_match", Locale: berth.LocaleEN,
		Variables: map[string]any{"jobText": "We look for a Go developer.", "resume": "I write Go."},
	}, "")
	require.NoError(t, err)
	admitted := func() (queues []berth.Queue) {
		for _, q := range sixQueues(t) {
			n, err := rdb.ZCard(t.Context(), lua.Keys{}.QueueAdmissions(q)).Result()
			require.NoError(t, err)
			for range n {
				queues = append(queues, q)
			}
		}
		return queues
	}
	first := <-calls
	require.Equal(t, []berth.Queue{acc.Queue}, admitted())
	close(first)
	<-calls // of the next step
	require.Equal(t, []berth.Queue{berth.Queue("q_" + string(acc.Tier) + "_stream")}, admitted())
	require.NoError(t, c.Cancel(t.Context(), acc.TaskID))
	require.Equal(t, berth.EventError, watch(t, c, acc.TaskID, nil).last.Type)
	require.Empty(t, admitted())
	n, err := rdb.Exists(t.Context(), lua.Keys{}.UserAdmissions("alice", "career")).Result()
	require.NoError(t, err)
	require.Zero(t, n)
}

// sixQueues returns the queues of the built-in routing file.
func sixQueues(t *testing.T) []berth.Queue {
	t.Helper()
	catalog, err := llm.LoadCatalog("")
	require.NoError(t, err)
	return catalog.Queues()
}
