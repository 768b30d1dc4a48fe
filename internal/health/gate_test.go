package health_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
)

// limit is how long a process may take to stop or resume work; its workers need the rest of two seconds.
const limit = 1700 * time.Millisecond

// gate runs a gate until the test ends.
func gate(t *testing.T, checks map[string]health.Check) *health.Gate {
	t.Helper()
	g := health.NewGate(checks)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return g
}

// available waits until dependencies are available.
func available(t *testing.T, g *health.Gate, names ...string) context.Context {
	t.Helper()
	ctx, stop, err := g.Await(t.Context(), names...)
	require.NoError(t, err)
	t.Cleanup(stop)
	return ctx
}

// lost waits until the context of available dependencies ends, and returns which of them is unavailable.
func lost(t *testing.T, available context.Context) string {
	t.Helper()
	<-available.Done()
	var u *health.UnavailableError
	require.ErrorAs(t, context.Cause(available), &u)
	require.Error(t, u.Err, "the reason")
	return u.Dependency
}

func TestGate_OneOfTwoDependenciesFails_OnlyWorkThatNeedsItStops(t *testing.T) { // B5
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis, database dependency
		g := gate(t, map[string]health.Check{health.Redis: redis.check, health.Database: database.check})
		require.Equal(t, []string{health.Redis, health.Database}, g.Missing(health.Redis, health.Database), "unavailable until checked")
		redis.up.Store(true)
		turns := available(t, g, health.Redis)
		require.Equal(t, []string{health.Database}, g.Missing(health.Redis, health.Database))
		database.up.Store(true)
		tasks := available(t, g, health.Redis, health.Database)

		database.up.Store(false)
		at := time.Now()
		require.Equal(t, health.Database, lost(t, tasks))
		require.LessOrEqual(t, time.Since(at), limit)
		require.NoError(t, turns.Err())
		database.up.Store(true)
		at = time.Now()
		tasks = available(t, g, health.Redis, health.Database)
		require.LessOrEqual(t, time.Since(at), limit)
		redis.up.Store(false)
		require.Equal(t, health.Redis, lost(t, tasks))
		require.Equal(t, health.Redis, lost(t, turns))

		ended, end := context.WithCancel(t.Context())
		end()
		_, _, err := g.Await(ended, health.Redis)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestGate_ChecksHang_DependencyIsUnavailableAndReturns(t *testing.T) { // B5
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var redis dependency
		redis.up.Store(true)
		g := gate(t, map[string]health.Check{health.Redis: func(ctx context.Context) error {
			if redis.up.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}})
		now := available(t, g, health.Redis)
		redis.up.Store(false)
		at := time.Now()
		require.Equal(t, health.Redis, lost(t, now))
		require.LessOrEqual(t, time.Since(at), limit)
		redis.up.Store(true)
		at = time.Now()
		available(t, g, health.Redis)
		require.LessOrEqual(t, time.Since(at), limit)
	})
}

func TestGate_ReplyIsSlow_DependencyStaysAvailable(t *testing.T) { // B5
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gate(t, map[string]health.Check{health.Database: func(context.Context) error {
			<-time.After(990 * time.Millisecond)
			return nil
		}})
		now := available(t, g, health.Database)
		<-time.After(time.Minute)
		require.NoError(t, now.Err())
	})
}

// FA10: after an outage it is known for how long a dependency has been available. A process that has found it available since its start
// knows of no interruption.
func TestGate_AvailableFor_SinceTheLastInterruption(t *testing.T) { // B5
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var always, late dependency
		always.up.Store(true)
		g := gate(t, map[string]health.Check{health.Redis: always.check, health.Temporal: late.check})
		require.Zero(t, g.AvailableFor(health.Redis))
		available(t, g, health.Redis)
		require.Greater(t, g.AvailableFor(health.Redis), time.Hour)
		<-time.After(3 * time.Second)
		require.Zero(t, g.AvailableFor(health.Temporal))
		late.up.Store(true)
		available(t, g, health.Temporal)
		<-time.After(5 * time.Second)
		require.InDelta(t, 5, g.AvailableFor(health.Temporal).Seconds(), 0.1, "it was not available at the start")
		always.up.Store(false)
		<-time.After(3 * time.Second)
		require.Zero(t, g.AvailableFor(health.Redis))
		always.up.Store(true)
		available(t, g, health.Redis)
		require.Less(t, g.AvailableFor(health.Redis), time.Second)
	})
}
