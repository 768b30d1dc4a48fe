//go:build faults

package tests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/internal/testdb"
)

// The primary is killed under mixed load and its standby is promoted: processes find it without a restart, requests are refused with 503
// only, and nothing that was accepted is lost or charged twice.
func TestStack_StandbyPromotedUnderLoad_NothingLost(t *testing.T) { // FI2, FI4
	seed := streamSeed(t)
	t.Run("direct", func(t *testing.T) {
		primary, standby := testdb.StartPrimary(t)
		failOver(t, seed, primary.URL("postgres", standby), func() {
			primary.Kill()
			standby.Promote(t)
		})
	})
	t.Run("through a pooler", func(t *testing.T) {
		primary, standby := testdb.StartPrimary(t)
		pooler := testdb.StartPooler(t, primary)
		failOver(t, seed, pooler.URL("postgres"), func() {
			primary.Kill()
			standby.Promote(t)
			pooler.Target(t, standby)
		})
	})
}

func failOver(t *testing.T, seed uint64, database string, fault func()) {
	t.Helper()
	model := httptest.NewServer(sim.ModelServer(sim.Options{
		FirstTokenDelay: 200 * time.Millisecond, TokensPerSecond: 100, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(model.Close)
	w := newCluster(t, "BERTH_LOCAL_MODEL_URL="+model.URL+"/v1", "BERTH_CONFERENCE_LICENCES=30", "BERTH_DATABASE="+database)
	l := beginMixedLoad(t, w, seed)
	defer l.cancel()
	calls := w.submitSteadily(t)
	w.eventually("the load to run", func() bool { return len(l.tasks) > 5 && len(l.answers) > 10 && len(l.met) > 0 })

	killed := time.Now()
	fault()
	promoted := time.Since(killed)
	w.eventually("work to continue", func() bool { return calls.acceptedSince(killed) > 5 })
	before := len(l.tasks)
	w.eventually("tasks to complete", func() bool { return len(l.tasks) > before+5 })
	l.quiet()
	calm := time.Now()
	calls.stop()
	t.Logf("promoted %s after the fault; first task accepted after %s; refused: %v; calls of the load repeated: %d",
		promoted.Round(time.Millisecond), calls.first(killed).Round(time.Millisecond), calls.refused, l.retries.Load())
	for refusal := range calls.refused {
		require.True(t, strings.HasPrefix(refusal, fmt.Sprint(http.StatusServiceUnavailable, " ")), "only 503: %v", calls.refused)
	}

	l.speaking.Wait()
	turns, executions := l.accepted(t)
	w.ended(t, executions)
	w.everyTask(t, append(l.orders(), calls.tasks(t)...))
	conferences := w.keptOnly(t, l.load, calm)
	w.release(t, conferences)
	w.noneOpen(t)
	w.awaitReady()
	w.noSlotHeld()
	require.NoError(t, w.agree())
	require.Zero(t, w.fullPass(false).Found())
	l.cancel()
	l.readers.Wait()
	var received []berth.SessionEvent
	close(l.received)
	for ev := range l.received {
		received = append(received, ev.Event)
	}
	require.NoError(t, checkEvents(turns, received))
	w.everyConference(t, l.load, conferences)
}

// observed are the outcomes of submissions that are not repeated.
type observed struct {
	w       *cluster
	mu      sync.Mutex
	at      []time.Time
	sent    []client.Submission
	refused map[string]int
	stop    func()
}

// submitSteadily submits a task to each API in turn, until stop is called.
func (w *cluster) submitSteadily(t *testing.T) *observed {
	t.Helper()
	const user = "observer"
	w.user(user)
	o := &observed{w: w, refused: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	o.stop = func() { cancel(); running.Wait() }
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			s := summary(fmt.Sprintf("We need %d gardeners.", n))
			s.TaskID = fmt.Sprintf("observed-%d", n)
			calling, end := context.WithTimeout(context.Background(), 30*time.Second)
			_, err := client.New(w.urls[n%len(w.urls)], w.token(user)).Submit(calling, s, "")
			end()
			o.add(s, err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return o
}

func (o *observed) add(s client.Submission, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, s)
	var p *client.Problem
	switch {
	case err == nil:
		o.at = append(o.at, time.Now())
	case errors.As(err, &p):
		o.refused[fmt.Sprint(p.Status, " ", p.Code)]++
	default:
		o.refused[err.Error()]++
	}
}

// acceptedSince returns how many submissions were accepted after a time.
func (o *observed) acceptedSince(at time.Time) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, accepted := range o.at {
		if accepted.After(at) {
			n++
		}
	}
	return n
}

// first returns how long after a time the next submission was accepted.
func (o *observed) first(at time.Time) time.Duration {
	for _, accepted := range o.at {
		if accepted.After(at) {
			return accepted.Sub(at)
		}
	}
	return -1
}

// tasks submits what was refused again, which may have been accepted nevertheless, and follows all tasks to their ends.
func (o *observed) tasks(t *testing.T) (all []submitted) {
	t.Helper()
	c := client.New(o.w.urls[0], o.w.token("observer"))
	for _, spec := range o.sent {
		_, err := c.Submit(t.Context(), spec, "")
		require.NoError(t, err)
		s := submitted{user: "observer", id: spec.TaskID}
		for ev, err := range c.Follow(t.Context(), spec.TaskID, "") {
			require.NoError(t, err)
			if ev.Event.Type.Terminal() {
				s.ends = append(s.ends, ev.Event)
			}
		}
		all = append(all, s)
	}
	return all
}
