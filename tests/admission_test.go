package tests

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/client"
	"berth/lua"
)

// The acceptance test of the design document: a queue with two places refuses the third task; with one slot the second task
// starts only after the first has released it; the counter of the queue goes 2, 1, 0.
func TestTask_QueueOfTwo_ThirdRefusedCounterEndsAtZero(t *testing.T) { // T5, T29
	t.Parallel()
	s := newStack(t, with("QUEUE_MAX_SIZE=2", "BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-chat": 1, "deepseek-reasoner": 1})))
	calls := make(chan chan struct{}) // each call of the model sends a channel and waits until it is closed
	model := s.model.Config.Handler
	s.model.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			finish := make(chan struct{})
			for _, step := range []func() bool{
				func() bool {
					select {
					case calls <- finish:
						return true
					case <-r.Context().Done():
						return false
					}
				},
				func() bool {
					select {
					case <-finish:
						return true
					case <-r.Context().Done():
						return false
					}
				},
			} {
				if !step() {
					return
				}
			}
		}
		model.ServeHTTP(w, r)
	})
	c, queue := s.user("carol"), berth.Queue("")
	push := func(text string) (client.Acceptance, error) {
		return c.Submit(t.Context(), client.Submission{
			ServiceID: "career", Template: berth.TemplateJobSummary, Locale: berth.LocaleEN, Variables: map[string]any{"jobText": text},
		}, "")
	}
	rdb := s.redis()
	counter := func() int64 {
		n, err := rdb.ZCard(t.Context(), lua.Keys{}.QueuePlaces(queue)).Result()
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

	_, err = push("We look for a pilot.")
	refusal := problem(t, err)
	require.Equal(t, http.StatusTooManyRequests, refusal.Status)
	require.True(t, refusal.QueueFull)
	require.Equal(t, 2, refusal.Position)
	require.Positive(t, refusal.RetryAfter)
	_, list := s.send(http.MethodGet, "/v1/tasks", s.token("carol"), nil)
	require.Len(t, list["tasks"], 2, "the refused task does not exist")

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
	n, err := rdb.ZCard(t.Context(), lua.Keys{}.UserPlaces("carol", "career")).Result()
	require.NoError(t, err)
	require.Zero(t, n)

	three, err := push("We look for a pilot.")
	require.NoError(t, err)
	close(<-calls)
	require.Equal(t, berth.EventDone, watch(t, c, three.TaskID, nil).last.Type)
}
