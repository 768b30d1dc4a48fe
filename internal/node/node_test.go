package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// running is an agent that runs against a registry, with fake workers.
type running struct {
	*agent
	t       *testing.T
	stop    context.CancelFunc
	ended   chan error
	started chan *fakeWorker
	healthy atomic.Bool
	broken  atomic.Bool // workers cannot start
	until   context.Context
}

type fakeWorker struct {
	client.Registered
	stopped chan struct{}
	busy    chan struct{} // Stop waits for it
}

func (w *fakeWorker) Stop() {
	<-w.busy
	close(w.stopped)
}

func idle() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func run(t *testing.T, r *registry, change ...func(*running)) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &running{t: t, stop: cancel, ended: make(chan error, 1), started: make(chan *fakeWorker, 10)}
	out.healthy.Store(true)
	out.until = ctx
	out.agent = newAgent(ctx, Options{
		Spec: berth.NodeSpec{
			ID: "n1", Kind: berth.NodeTranslate, Incarnation: berth.Incarnation{Host: "here", PID: 7, StartedAt: 1000},
			Capabilities: []string{"translate:en-es"},
		},
		API: r.api, Driver: NewSim("n1", SimOptions{}), Drain: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	out.quiet = 10 * time.Millisecond
	out.agent.healthy = func(context.Context) error {
		if out.healthy.Load() {
			return nil
		}
		return errors.New("no Temporal")
	}
	out.work = func(reg client.Registered) (stopper, error) {
		if out.broken.Load() {
			return nil, errors.New("no worker")
		}
		w := &fakeWorker{Registered: reg, stopped: make(chan struct{}), busy: idle()}
		out.started <- w
		return w, nil
	}
	for _, c := range change {
		c(out)
	}
	go func() { out.ended <- out.run(out.until) }()
	t.Cleanup(func() {
		cancel()
		_ = out.end() // tests that expect an error check it themselves
	})
	return out
}

// end waits for Run and returns its error.
func (r *running) end() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("the node did not end")
		return nil
	}
}

func (r *running) worker() *fakeWorker {
	r.t.Helper()
	select {
	case w := <-r.started:
		return w
	case <-time.After(20 * time.Second):
		r.t.Fatal("no worker was started")
		return nil
	}
}

func (r *running) ends(w *fakeWorker) {
	r.t.Helper()
	select {
	case <-w.stopped:
	case <-time.After(20 * time.Second):
		r.t.Fatal("the worker was not stopped")
	}
}

func TestNode_Running_RegistersAndSendsItsLoad(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg)
	w := n.worker()
	require.Equal(t, "node.n1.101", w.TaskQueue)
	n.gate.running.Store(3)
	n.Work.(*jobs).executing.Store(2)
	reg.until(func(s *registryState) bool { return len(s.beats) > 2 && s.beats[len(s.beats)-1].CurrentJobs == 3 })
	reg.do(func(s *registryState) {
		require.Len(t, s.registered, 1)
		require.Equal(t, 4, s.spec.MaxConcurrentJobs)
		last := s.beats[len(s.beats)-1]
		require.Equal(t, int64(101), last.Generation)
		require.NoError(t, last.Validate())
		require.Equal(t, 2, last.ActiveWorkflows)
		require.Positive(t, last.MemoryUsage)
		require.Positive(t, last.LatencyMs)
	})
	n.stop()
	require.NoError(t, n.end())
	n.ends(w)
	reg.do(func(s *registryState) { require.Equal(t, []int64{101}, s.withdrawn) })
}

func TestNode_StoppedWithErrKeepRegistration_StaysRegistered(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	ctx, stop := context.WithCancelCause(context.Background())
	n := run(t, reg, func(r *running) { r.until = ctx })
	w := n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
	stop(ErrKeepRegistration)
	require.NoError(t, n.end())
	n.ends(w)
	var living bool
	reg.do(func(s *registryState) { living = s.living })
	require.True(t, living)
}

func TestNode_ServerSetsInterval_IsAdoptedWithinBounds(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.do(func(s *registryState) { s.intervalMs = time.Hour.Milliseconds() })
	n := run(t, reg)
	n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) == 1 })
	n.stop()
	require.NoError(t, n.end())
	require.Equal(t, maxInterval, n.interval)

	n.setInterval(0)
	require.Equal(t, maxInterval, n.interval, "a reply without an interval keeps it")
	n.setInterval(1)
	require.Equal(t, minInterval, n.interval)
	n.setInterval(1 << 62)
	require.Equal(t, maxInterval, n.interval)
}

func TestNode_OperatorSettingsChange_AreLogged(t *testing.T) { // S11
	t.Parallel()
	reg := newRegistry(t)
	lines := make(logged, 100)
	n := run(t, reg, func(r *running) { r.Logger = slog.New(slog.NewTextHandler(lines, nil)) })
	n.worker()
	reg.do(func(s *registryState) { s.reply.DrainUntil = time.Unix(1_800_000_000, 0).UTC() })
	lines.until(t, `settings="drain until 2027-01-15T08:00:00Z" previous=""`)
	reg.do(func(s *registryState) { s.reply = client.HeartbeatReply{Cordoned: true} })
	lines.until(t, `settings=cordoned previous="drain until`)
	reg.do(func(s *registryState) { s.reply = client.HeartbeatReply{} })
	lines.until(t, `settings="" previous=cordoned`)
	n.stop()
	require.NoError(t, n.end())
}

func TestNode_TemporalUnreachable_LogNamesTemporalAndItsSetting(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	lines := make(logged, 1000)
	n := run(t, reg, func(r *running) {
		r.healthy.Store(false)
		r.Logger = slog.New(slog.NewTextHandler(lines, nil))
	})
	lines.until(t, `level=WARN msg="server unreachable; retrying" server=Temporal call=register error="use Temporal (check BERTH_TEMPORAL_ADDR`)
	reg.do(func(s *registryState) { s.away = http.StatusServiceUnavailable })
	n.broken.Store(true)
	n.healthy.Store(true)
	lines.until(t, `level=WARN msg="server unreachable; retrying" server=API`)
	reg.do(func(s *registryState) { s.away = 0 })
	lines.until(t, `level=WARN msg="server unreachable; retrying" server=Temporal call=register error="use Temporal (check BERTH_TEMPORAL_ADDR, BERTH_TEMPORAL_NAMESPACE`)
	n.broken.Store(false)
	lines.until(t, `msg="server reachable again" server=Temporal`)
	n.worker()
	n.stop()
	require.NoError(t, n.end())
}

// logged are the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (l logged) until(t *testing.T, text string) {
	t.Helper()
	for timeout := time.After(20 * time.Second); ; {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			t.Fatal("not in the log: " + text)
		}
	}
}

func TestNode_HeartbeatConflict_RegistersAgain(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg)
	first := n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
	reg.do(func(s *registryState) { s.living = false })
	second := n.worker()
	require.Equal(t, "node.n1.102", second.TaskQueue)
	n.ends(first)
	reg.until(func(s *registryState) bool { return s.beats[len(s.beats)-1].Generation == 102 })
	reg.do(func(s *registryState) {
		require.Equal(t, int64(0), s.registered[0].PreviousGeneration)
		require.Equal(t, int64(101), s.registered[1].PreviousGeneration)
		require.Equal(t, s.registered[0].NodeSpec, s.registered[1].NodeSpec)
	})
	select {
	case <-second.stopped:
		t.Fatal("the new generation's worker was stopped")
	default:
	}
}

func TestNode_EarlierGenerationHasJobs_StopsAfterThem(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	job := make(chan struct{})
	n := run(t, reg, func(r *running) {
		start := r.work
		r.work = func(reg client.Registered) (stopper, error) {
			w, err := start(reg)
			if reg.Generation == 101 {
				w.(*fakeWorker).busy = job
			}
			return w, err
		}
	})
	first := n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
	reg.do(func(s *registryState) { s.living = false })
	second := n.worker()
	n.stop()
	n.ends(second)
	select {
	case err := <-n.ended:
		t.Fatalf("the node ended before its last job: %v", err)
	default:
	}
	close(job)
	n.ends(first)
	require.NoError(t, n.end())
}

func TestNode_APIUnavailable_RetriesAndKeepsWorking(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.do(func(s *registryState) { s.away = http.StatusServiceUnavailable })
	n := run(t, reg)
	reg.until(func(s *registryState) bool { return s.calls > 2 })
	require.Empty(t, n.started)
	reg.do(func(s *registryState) { s.away = 0 })
	w := n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })

	// Unavailable again: the node keeps working under its generation.
	var before int
	reg.do(func(s *registryState) { s.away, before = http.StatusBadGateway, s.calls })
	reg.until(func(s *registryState) bool { return s.calls > before+2 })
	reg.do(func(s *registryState) { s.away, s.beats = 0, nil })
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 && s.beats[0].Generation == 101 })
	require.Empty(t, n.started)
	select {
	case <-w.stopped:
		t.Fatal("the worker was stopped while the API was unavailable")
	default:
	}
}

func TestNode_TemporalUnreachable_DoesNotRegister(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg, func(r *running) { r.healthy.Store(false); r.broken.Store(true) })
	require.Never(t, func() (called bool) {
		reg.do(func(s *registryState) { called = s.calls > 0 })
		return called
	}, 300*time.Millisecond, 10*time.Millisecond, "nothing is registered without Temporal")
	n.healthy.Store(true)
	reg.until(func(s *registryState) bool { return len(s.registered) > 1 })
	reg.do(func(s *registryState) {
		require.Empty(t, s.beats, "no heartbeats while it cannot poll")
	})
	n.broken.Store(false)
	require.Equal(t, "node.n1.101", n.worker().TaskQueue)
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
}

func TestNode_FirstRegistrationRefused_Fails(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		reg := newRegistry(t)
		reg.do(func(s *registryState) { s.refuse = status })
		err := run(t, reg).end()
		var p *client.Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, status, p.Status)
		require.Equal(t, status == http.StatusUnauthorized || status == http.StatusForbidden, strings.Contains(err.Error(), "check BERTH_TOKEN"), err)
	}
}

func TestNode_LaterRegistrationRefused_Retries(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg)
	n.worker()
	reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
	reg.do(func(s *registryState) { s.living, s.refuse, s.calls = false, http.StatusForbidden, 0 })
	reg.until(func(s *registryState) bool { return s.calls > 3 })
	reg.do(func(s *registryState) { s.refuse = 0 })
	require.Equal(t, int64(102), n.worker().Generation)
}

func TestNode_Superseded_Stops(t *testing.T) {
	t.Parallel()
	t.Run("by a later process of the same host", func(t *testing.T) {
		t.Parallel()
		reg := newRegistry(t)
		reg.do(func(s *registryState) { s.refuse = http.StatusConflict })
		require.ErrorIs(t, run(t, reg).end(), ErrSuperseded)
	})
	t.Run("by a process on another host", func(t *testing.T) {
		t.Parallel()
		reg := newRegistry(t)
		n := run(t, reg)
		w := n.worker()
		reg.until(func(s *registryState) bool { return len(s.beats) > 0 })
		reg.do(func(s *registryState) {
			s.generation++
			s.spec.Incarnation.Host = "there"
		})
		err := n.end()
		require.ErrorIs(t, err, ErrSuperseded)
		require.ErrorContains(t, err, "process 7 on there")
		n.ends(w)
		reg.do(func(s *registryState) {
			require.True(t, s.living, "the other process stays registered")
			require.Len(t, s.registered, 1)
		})
	})
}

func TestNode_WorkerFailsPermanently_Fails(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg)
	w := n.worker()
	n.failed <- workerFailure{generation: 1, err: errors.New("earlier generation")}
	reg.until(func(s *registryState) bool { return len(s.beats) > 2 })
	n.failed <- workerFailure{w.Generation, errors.New("namespace not found")}
	require.ErrorContains(t, n.end(), "namespace not found")
	n.ends(w)
	reg.do(func(s *registryState) { require.Equal(t, []int64{101}, s.withdrawn) })
}

func TestNode_StoppedWithoutAPI_StopsWithinTheDrain(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	n := run(t, reg, func(r *running) { r.Drain = 300 * time.Millisecond })
	w := n.worker()
	reg.do(func(s *registryState) { s.away = http.StatusServiceUnavailable })
	n.stop()
	require.NoError(t, n.end())
	n.ends(w)
}

func TestRun_InvalidSpec_Fails(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), Options{Spec: berth.NodeSpec{ID: "n 1", Kind: berth.NodeTranslate}})
	require.Equal(t, berth.CodeInvalid, berth.CodeOf(err))
}

func TestBackoff_RepeatedFailures_GrowsWithinBounds(t *testing.T) {
	t.Parallel()
	a := newAgent(t.Context(), Options{Logger: slog.New(slog.DiscardHandler), Driver: NewSim("n", SimOptions{})})
	defer a.cut(nil)
	for range 20 {
		require.LessOrEqual(t, a.backoff(errors.New("x")), lastPause)
	}
	require.GreaterOrEqual(t, a.backoff(errors.New("x")), lastPause/2)
	a.succeeded()
	require.Less(t, a.backoff(errors.New("x")), firstPause)
	require.GreaterOrEqual(t, a.backoff(&client.Problem{RetryAfter: 3}), 1500*time.Millisecond, "Retry-After is honoured")
	require.LessOrEqual(t, a.backoff(&client.Problem{RetryAfter: 1 << 40}), lastPause)
}
