package health_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"berth/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dependency fails until up is set.
type dependency struct{ up atomic.Bool }

func (d *dependency) check(context.Context) error {
	if !d.up.Load() {
		return errors.New("connection refused at 10.1.2.3")
	}
	return nil
}

// watch watches dependencies until the function that it returns is called.
func watch(t *testing.T, checks map[string]health.Check) (p *health.Probe, stop func()) {
	t.Helper()
	p = health.New("test", slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { p.Watch(ctx, checks) })
	stop = func() { cancel(); watching.Wait() }
	t.Cleanup(stop)
	return p, stop
}

func becomes(t *testing.T, p *health.Probe, s health.Status) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Report().Status == s }, 20*time.Second, time.Millisecond, "%s", s)
}

func TestProbe_DependencyNeverResponded_IsNotReady(t *testing.T) { // L11
	t.Parallel()
	var redis, temporal dependency
	redis.up.Store(true)
	require.Equal(t, health.Starting, health.New("test", slog.New(slog.DiscardHandler)).Report().Status)
	p, stop := watch(t, map[string]health.Check{"redis": redis.check, "temporal": temporal.check})
	require.Eventually(t, func() bool { return p.Report().Dependencies["redis"].Status == health.OK }, 20*time.Second, time.Millisecond)
	require.Equal(t, health.Starting, p.Report().Status)
	require.False(t, p.Report().Ready())
	require.Equal(t, health.Starting, p.Report().Dependencies["temporal"].Status)
	require.Len(t, p.Report().Dependencies, 2)

	temporal.up.Store(true)
	becomes(t, p, health.OK)
	require.True(t, p.Report().Ready())

	stop()
	require.Equal(t, health.Stopping, p.Report().Status)
	require.False(t, p.Report().Ready())
}

func TestProbe_DependencyFailsLater_StaysReadyAndShowsIt(t *testing.T) { // L11
	t.Parallel()
	var redis dependency
	redis.up.Store(true)
	p, _ := watch(t, map[string]health.Check{"redis": redis.check})
	becomes(t, p, health.OK)
	redis.up.Store(false)
	becomes(t, p, health.Degraded)
	require.True(t, p.Report().Ready())
	redis.up.Store(true)
	becomes(t, p, health.OK)
}

func TestHandler_State_DecidesStatus(t *testing.T) {
	t.Parallel()
	var redis dependency
	p, stop := watch(t, map[string]health.Check{"redis": redis.check})
	get := func(path string) (int, health.Report, string) {
		rec := httptest.NewRecorder()
		p.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		var r health.Report
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &r))
		return rec.Code, r, rec.Body.String()
	}
	code, r, body := get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, health.Starting, r.Status)
	require.NotContains(t, body, "10.1.2.3", "error texts show addresses")
	redis.up.Store(true)
	becomes(t, p, health.OK)
	code, _, _ = get("/readyz")
	require.Equal(t, http.StatusOK, code)
	stop()
	code, _, _ = get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	code, _, _ = get("/healthz")
	require.Equal(t, http.StatusOK, code)
}

// broken returns a problem in whose error is an address.
func broken(r health.Reason) *health.Problem {
	return &health.Problem{Reason: r, Said: "10.1.2.3", Advice: r.Text}
}

// FI3: the reason why a dependency does not work is shown, also before it has worked once, and changes with the cause. A risk is shown of one
// that works.
func TestProbe_CheckHasReason_ReportHasItUntilItEnds(t *testing.T) { // L11
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failure atomic.Pointer[health.Problem]
		fail := func(r health.Reason) { failure.Store(broken(r)) }
		replica := health.Reason{Code: "read_only", Setting: "BERTH_REDIS_ADDR", Text: "set the address of the master"}
		full := health.Reason{Code: "memory_full", Setting: "maxmemory", Text: "raise it"}
		evicts := health.Reason{Code: "evicts", Setting: "maxmemory-policy", Text: "set it to noeviction", Risk: true}
		var log bytes.Buffer
		p := health.New("test", slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			p.Watch(ctx, map[string]health.Check{"redis": func(context.Context) error {
				if err := failure.Load(); err != nil {
					return fmt.Errorf("check: %w", err)
				}
				return nil
			}})
		})
		defer func() { cancel(); watching.Wait() }()
		is := func(of health.Status, s health.Status, reason *health.Reason) {
			t.Helper()
			<-time.After(6 * time.Second)
			synctest.Wait()
			r := p.Report()
			require.Equal(t, of, r.Status)
			require.Equal(t, s, r.Dependencies["redis"].Status)
			require.Equal(t, reason, r.Dependencies["redis"].Reason)
			body, err := json.Marshal(r)
			require.NoError(t, err)
			require.NotContains(t, string(body), "10.1.2.3")
		}
		fail(replica)
		is(health.Starting, health.Starting, &replica)
		failure.Store(nil)
		is(health.OK, health.OK, nil)
		since := p.Report().Dependencies["redis"].Since
		fail(evicts)
		is(health.OK, health.OK, &evicts)
		require.Equal(t, since, p.Report().Dependencies["redis"].Since, "it works as before")
		fail(replica)
		is(health.Degraded, health.Unavailable, &replica)
		fail(full)
		is(health.Degraded, health.Unavailable, &full)
		is(health.Degraded, health.Unavailable, &full)
		failure.Store(nil)
		is(health.OK, health.OK, nil)
		require.Equal(t, 3, strings.Count(log.String(), `msg="dependency unavailable"`), "once for each cause: %s", &log)
		require.Equal(t, 1, strings.Count(log.String(), `msg="dependency works with a risk"`), "%s", &log)
		require.Contains(t, log.String(), "10.1.2.3: set the address of the master")
	})
}
