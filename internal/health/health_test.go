package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
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
