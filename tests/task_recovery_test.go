package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/sim"
)

// streaming reports whether the first tokens of the match have arrived.
func streaming(s *seen) bool { return len(s.text) > 0 }

func TestTask_WorkerKilledMidStream_StreamCompletesOnce(t *testing.T) { // T13, T16, T17, L7; P2
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 200}))
	c := s.user("alice")
	acc := submitMatch(t, c, berth.LocaleEN, "")
	killed := false
	got := watch(t, c, acc.TaskID, func(now *seen) {
		if !killed && streaming(now) {
			killed = true
			s.worker.kill()
			s.worker = s.startWorker()
		}
	})
	require.True(t, killed)
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
	require.Equal(t, 1, got.resets, "readers are notified of the lost attempt")
	require.Equal(t, got.last.Text, trim(got.text))
	require.Equal(t, 1, got.count(berth.EventStart))
	require.Equal(t, 1, got.count(berth.EventDone))
	require.Equal(t, 2, s.stats().Models["deepseek-reasoner"].Calls, "finished steps are not repeated")
	require.Equal(t, 1, s.stats().Models["deepseek-chat"].Calls)
	s.noSlotHeld()
	s.saveTask("task-worker-killed", "alice", acc.TaskID)
}

func TestTask_AllProcessesKilled_Completes(t *testing.T) { // X1, X7, T16; P2
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 200}))
	c := s.user("alice")
	var ids []string
	for range 3 {
		ids = append(ids, submitMatch(t, c, berth.LocaleEN, "").TaskID)
	}
	killed := false
	for _, id := range ids {
		got := watch(t, c, id, func(now *seen) {
			if killed || !streaming(now) {
				return
			}
			killed = true
			for _, p := range []*process{s.worker, s.api, s.infra} {
				p.kill()
			}
			s.startInfra()
			s.startAPI()
			s.worker = s.startWorker()
		})
		require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
		require.Equal(t, 1, got.count(berth.EventDone))
		require.Equal(t, got.last.Text, trim(got.text))
	}
	require.True(t, killed)
	s.noSlotHeld()
}

// The model is paused meanwhile: after the reset, readers see that the step waits again.
func TestWorker_StoppedDuringCall_TaskCompletesElsewhere(t *testing.T) { // X7, T24
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 100}), with("BERTH_DRAIN=1s"))
	c, op := s.user("alice"), s.operator()
	pause := func(paused bool) {
		_, err := op.PatchModel(t.Context(), "deepseek-reasoner", map[string]any{"paused": paused})
		require.NoError(t, err)
	}
	acc := submitMatch(t, c, berth.LocaleEN, "")
	stopped, resumed := false, false
	got := watch(t, c, acc.TaskID, func(now *seen) {
		switch {
		case !stopped && streaming(now):
			stopped = true
			pause(true)
			next := s.startWorker()
			require.True(t, s.worker.stop(15*time.Second), "the worker stops within its drain time")
			s.worker = next
		case !resumed && now.resets > 0 && now.last.Type == berth.EventQueued:
			resumed = true
			require.True(t, now.last.Paused)
			require.Equal(t, 0, *now.last.Position)
			task, err := c.Get(t.Context(), acc.TaskID)
			require.NoError(t, err)
			require.NotNil(t, task.Waiting)
			require.True(t, task.Waiting.Paused)
			pause(false)
		}
	})
	require.True(t, stopped)
	require.True(t, resumed, "no position after the reset")
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
	require.Equal(t, got.last.Text, trim(got.text))
	s.noSlotHeld()
}

func TestStream_APIRestarts_ReaderMissesNothing(t *testing.T) { // T15, X7
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 200}))
	c := s.user("alice")
	acc := submitMatch(t, c, berth.LocaleEN, "")
	restarts := 0
	got := watch(t, c, acc.TaskID, func(now *seen) {
		if restarts < 3 && len(now.text) > 100*(restarts+1) {
			restarts++
			if restarts%2 == 0 {
				s.api.kill()
			} else {
				require.True(t, s.api.stop(10*time.Second))
			}
			s.startAPI()
		}
	})
	require.Equal(t, 3, restarts)
	require.Zero(t, got.resets)
	require.Equal(t, berth.EventDone, got.last.Type)
	require.Equal(t, got.last.Text, trim(got.text), "nothing lost, nothing repeated")
}

func TestTask_Cancelled_ModelCallStops(t *testing.T) { // T13, T19, T25
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 100}))
	c := s.user("alice")
	acc := submitMatch(t, c, berth.LocaleEN, "")
	cancelled := time.Time{}
	got := watch(t, c, acc.TaskID, func(now *seen) {
		if cancelled.IsZero() && streaming(now) {
			cancelled = time.Now()
			require.NoError(t, c.Cancel(t.Context(), acc.TaskID))
		}
	})
	require.Equal(t, berth.EventError, got.last.Type)
	require.Equal(t, berth.CodeCancelled, got.last.Code)
	require.Equal(t, 1, got.count(berth.EventError))
	s.eventually("the provider's stream to be cancelled", func() bool {
		st := s.stats().Total
		return st.InFlight == 0 && st.Cancelled == 1
	})
	t.Logf("provider's stream ended %s after the cancel", time.Since(cancelled).Round(time.Millisecond))
	task, err := c.Get(t.Context(), acc.TaskID)
	require.NoError(t, err)
	require.Equal(t, berth.TaskCancelled, task.Status)
	require.Error(t, c.Cancel(t.Context(), acc.TaskID), "it has ended")
	s.usageOfCancelled(acc.TaskID)
	s.saveTask("task-cancelled", "alice", acc.TaskID)
	s.noSlotHeld()
}

// usageOfCancelled waits until the worker has recorded what the interrupted call of alice's task used, and requires that the usage
// of the task includes it.
func (s *stack) usageOfCancelled(task string) {
	get := func(path string) map[string]any {
		status, body := s.send(http.MethodGet, path, s.token("alice"), nil)
		require.Equal(s.tb, http.StatusOK, status)
		return body
	}
	var calls []any
	s.eventually("the usage of the interrupted call", func() bool {
		calls = get("/v1/usage?taskId=" + task)["calls"].([]any)
		newest := calls[0].(map[string]any)
		return newest["outcome"] == string(berth.CodeCancelled) && newest["outputTokens"].(float64) > 0
	})
	sum := map[string]any{"inputTokens": 0.0, "outputTokens": 0.0}
	for _, call := range calls {
		for name, n := range sum {
			sum[name] = n.(float64) + call.(map[string]any)[name].(float64)
		}
	}
	require.Len(s.tb, calls, 3, "one of each step")
	require.Equal(s.tb, sum, get("/v1/tasks/" + task)["usage"])
	for _, e := range get("/v1/audit?action=error&taskId=" + task)["entries"].([]any) {
		require.NotContains(s.tb, e.(map[string]any)["detail"], "usage", "it was not known at the end")
	}
}

func TestTask_RedisEmptiedMidStream_Completes(t *testing.T) { // L12, T13
	t.Parallel()
	s := newStack(t, withModel(sim.Options{TokensPerSecond: 200}))
	c := s.user("alice")
	acc := submitMatch(t, c, berth.LocaleEN, "")
	flushed := false
	got := watch(t, c, acc.TaskID, func(now *seen) {
		if !flushed && streaming(now) {
			flushed = true
			require.NoError(t, s.redis().FlushAll(t.Context()).Err())
		}
	})
	require.True(t, flushed)
	require.Equal(t, berth.EventDone, got.last.Type, got.last.Message)
	require.Equal(t, got.last.Text, trim(got.text))
	require.Equal(t, 1, got.count(berth.EventDone))
}
