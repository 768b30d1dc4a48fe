package health_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
)

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

// lost waits until the context of available dependencies ends, and returns which of them is unavailable.
func lost(t *testing.T, available context.Context) string {
	t.Helper()
	<-available.Done()
	var u *health.UnavailableError
	require.ErrorAs(t, context.Cause(available), &u)
	return u.Dependency
}

func TestGate_OneOfTwoDependenciesFails_OnlyWorkThatNeedsItStops(t *testing.T) { // B5
	t.Parallel()
	var redis, database dependency
	g := gate(t, map[string]health.Check{health.Redis: redis.check, health.Database: database.check})
	require.Equal(t, []string{health.Redis, health.Database}, g.Missing(health.Redis, health.Database), "unavailable until checked")
	redis.up.Store(true)
	turns, stop, err := g.Await(t.Context(), health.Redis)
	require.NoError(t, err)
	defer stop()
	require.Equal(t, []string{health.Database}, g.Missing(health.Redis, health.Database))
	database.up.Store(true)
	tasks, stopTasks, err := g.Await(t.Context(), health.Redis, health.Database)
	require.NoError(t, err)
	defer stopTasks()

	database.up.Store(false)
	require.Equal(t, health.Database, lost(t, tasks))
	require.NoError(t, turns.Err())
	database.up.Store(true)
	tasks, stopTasks, err = g.Await(t.Context(), health.Redis, health.Database)
	require.NoError(t, err)
	defer stopTasks()
	redis.up.Store(false)
	require.Equal(t, health.Redis, lost(t, tasks))
	require.Equal(t, health.Redis, lost(t, turns))

	ended, end := context.WithCancel(t.Context())
	end()
	_, _, err = g.Await(ended, health.Redis)
	require.ErrorIs(t, err, context.Canceled)
}

func TestGate_CheckHangs_DependencyIsUnavailableAndReturns(t *testing.T) { // B5
	t.Parallel()
	replies, hanging := make(chan struct{}, 1), make(chan struct{})
	hang := sync.OnceFunc(func() { close(hanging) })
	var first sync.Once
	g := gate(t, map[string]health.Check{health.Redis: func(ctx context.Context) error {
		ok := false
		first.Do(func() { ok = true })
		if ok {
			return nil
		}
		hang()
		select {
		case <-replies:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	available, stop, err := g.Await(t.Context(), health.Redis)
	require.NoError(t, err)
	defer stop()
	<-hanging
	require.Equal(t, health.Redis, lost(t, available))
	replies <- struct{}{}
	_, again, err := g.Await(t.Context(), health.Redis)
	require.NoError(t, err)
	again()
}

func TestGate_OneSlowCheck_DependencyStaysAvailable(t *testing.T) { // B5
	t.Parallel()
	var calls int // of the one goroutine that checks
	slow := make(chan struct{})
	g := gate(t, map[string]health.Check{health.Database: func(ctx context.Context) error {
		if calls++; calls == 3 {
			defer close(slow)
			<-ctx.Done() // the reply arrives with the timeout
		}
		return nil
	}})
	available, stop, err := g.Await(t.Context(), health.Database)
	require.NoError(t, err)
	defer stop()
	<-slow
	require.NoError(t, available.Err())
}
