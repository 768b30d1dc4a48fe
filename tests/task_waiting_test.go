package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/lua"
)

// callLog holds the calls of the model until release is closed, and records the numbers in their postings.
type callLog struct {
	release chan struct{}
	mu      sync.Mutex
	numbers []int
}

var numberInPosting = regexp.MustCompile(`posting number (\d+)\b`)

func (s *stack) logCalls() *callLog {
	l := &callLog{release: make(chan struct{})}
	model := s.model.Config.Handler
	s.model.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if m := numberInPosting.FindSubmatch(body); m != nil {
			n, err := strconv.Atoi(string(m[1]))
			if err == nil {
				l.mu.Lock()
				l.numbers = append(l.numbers, n)
				l.mu.Unlock()
			}
		}
		select {
		case <-l.release:
			model.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return l
}

func (l *callLog) made() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.numbers)
}

// submitNumbered submits summaries of numbered postings, and returns their ids by number.
func submitNumbered(t *testing.T, c *client.Client, from, n int) map[int]string {
	t.Helper()
	return submitFor(t, c, func(int) string { return "" }, from, n)
}

// submitFor is submitNumbered for an end user of each number, empty for none.
func submitFor(t *testing.T, c *client.Client, endUser func(int) string, from, n int) map[int]string {
	t.Helper()
	var mu sync.Mutex
	ids := map[int]string{}
	var g errgroup.Group
	g.SetLimit(8)
	for i := from; i < from+n; i++ {
		g.Go(func() error {
			for {
				acc, err := c.Submit(t.Context(), client.Submission{
					ServiceID: "career", Template: "job_summary", Locale: berth.LocaleEN, EndUser: endUser(i),
					Variables: map[string]any{"jobText": fmt.Sprintf("We look for a baker. This is posting number %d", i)},
				}, fmt.Sprint(i))
				if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == berth.CodeUnavailable { // as on a machine that is busy
					select {
					case <-time.After(time.Duration(p.RetryAfter) * time.Second):
						continue
					case <-t.Context().Done():
					}
				}
				mu.Lock()
				defer mu.Unlock()
				ids[i] = acc.TaskID
				return err
			}
		})
	}
	require.NoError(t, g.Wait())
	return ids
}

// oneSlot is a stack whose models have one slot each.
func oneSlot(t *testing.T, opts ...option) *stack {
	t.Helper()
	return newStack(t, append(opts, with("QUEUE_MAX_SIZE=0", "BERTH_SERVICE_MAX_SIZE=0", "BERTH_PAID_RATE=0", "BERTH_FREE_RATE=0",
		"BERTH_ROUTING_FILE="+routing(t, map[string]int{"deepseek-chat": 1, "deepseek-reasoner": 1})))...)
}

// moreThanAhead is a number of tasks of which some wait in their workflows.
const moreThanAhead = 130

// inWorkflows returns how many tasks wait in their workflows.
func (s *stack) inWorkflows() int {
	n, err := s.redis().ZCard(s.tb.Context(), lua.Keys{}.ModelWaiters("deepseek-chat")).Result()
	require.NoError(s.tb, err)
	return int(n)
}

// B1, T24: tasks wait in their workflows, of which readers see the position; it is not part of the stream. A user who comes later
// is served among the first, and a task that is cancelled leaves.
func TestTask_MoreThanWorkersHold_WaitInWorkflowsByFairOrder(t *testing.T) {
	t.Parallel()
	s := oneSlot(t)
	calls := s.logCalls()
	big, small := s.user("big"), s.user("small")
	ids := submitNumbered(t, big, 0, moreThanAhead)
	require.Positive(t, s.inWorkflows())
	own := submitNumbered(t, small, 1000, 2)
	last := ids[moreThanAhead-1]
	var positions []int
	released, cancelled := false, false
	got := watch(t, big, last, func(now *seen) {
		ev := now.events[len(now.events)-1]
		if ev.Event.Type != berth.EventQueued || ev.Event.Position == nil {
			return
		}
		require.Equal(t, "deepseek-chat", ev.Event.Model)
		positions = append(positions, *ev.Event.Position)
		if !cancelled {
			cancelled = true
			status, _ := s.send(http.MethodDelete, "/v1/tasks/"+ids[moreThanAhead-2], s.token("big"), nil)
			require.Equal(t, http.StatusAccepted, status)
		}
		if !released && len(positions) > 0 {
			released = true
			close(calls.release)
		}
	})
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
	require.NotEmpty(t, positions, "the reader of a task that waits in its workflow sees its position")
	require.Greater(t, positions[0], 50)
	require.Greater(t, len(positions), 1, "which moves")
	require.True(t, slices.IsSortedFunc(positions, func(a, b int) int { return b - a }), "towards the front: %v", positions)
	for n, id := range own {
		require.Equal(t, berth.EventDone, watch(t, small, id, nil).last.Type, n)
	}
	require.Equal(t, berth.EventError, watch(t, big, ids[moreThanAhead-2], nil).last.Type)
	for n, id := range ids {
		if n != moreThanAhead-2 {
			require.Equal(t, berth.EventDone, watch(t, big, id, nil).last.Type, n)
		}
	}
	order := calls.made()
	require.Len(t, order, moreThanAhead+1, "each task was called for once, the cancelled one never")
	require.NotContains(t, order, moreThanAhead-2)
	require.Less(t, slices.Index(order, 1000), 10, "the user who came later does not wait for the others")
	require.Zero(t, s.inWorkflows())
	s.noSlotHeld()
}

// B1, L12: Redis loses its data while tasks wait. They continue by themselves, and each is called for once.
func TestTask_RedisLosesDataWhileTasksWait_AllContinueOnce(t *testing.T) {
	t.Parallel()
	redisLossWhileWaiting(t, moreThanAhead)
}

func redisLossWhileWaiting(t *testing.T, tasks int) {
	t.Helper()
	s := oneSlot(t)
	calls := s.logCalls()
	c := s.user("alice")
	ids := submitNumbered(t, c, 0, tasks)
	before := s.inWorkflows()
	require.Positive(t, before)
	s.eventually("a call", func() bool { return len(calls.made()) == 1 })
	require.NoError(t, s.redis().FlushAll(t.Context()).Err())
	s.eventually("the tasks to wait again", func() bool { return s.inWorkflows() >= before-2 })
	later := time.Now()
	close(calls.release)
	for n, id := range ids {
		require.Equal(t, berth.EventDone, watch(t, c, id, nil).last.Type, n)
	}
	t.Logf("%d tasks finished within %s of their return", tasks, time.Since(later).Round(time.Second))
	order := calls.made()
	slices.Sort(order)
	order = slices.Compact(order)
	require.Len(t, order, tasks)
	require.LessOrEqual(t, len(calls.made()), tasks+1, "only the call that ran during the loss may have been repeated")
	require.Zero(t, s.inWorkflows())
	s.noSlotHeld()
}
