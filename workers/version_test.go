package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/activities"
	"berth/internal/health"
	"berth/workers"
)

// B6, G2: Temporal accepts 100 task queues in a version of a worker deployment, and refuses the polls of the others. Processes of a
// version share them, also when each selects its own.
func TestRun_VersionWithTooManyTaskQueues_RestIsNotPolled(t *testing.T) {
	t.Parallel()
	acts := workers.Activities{Turns: &activities.Turns{}, Executions: &activities.Executions{}}
	models := make([]string, 93)
	for i := range models {
		models[i] = fmt.Sprint("model-", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changed, polled := make(chan struct{}), make(chan []string, 2)
	var given atomic.Pointer[[]string]
	given.Store(&models)
	opts := workers.Options{
		Queues: []string{workers.AllModels}, Deployment: "berth", BuildID: "1", Logger: slog.New(slog.DiscardHandler),
		Models: func(context.Context) []string { return *given.Load() }, Changed: changed,
		Polled: func(names []string) { polled <- names }, Gate: health.NewGate(map[string]health.Check{health.Redis: nil, health.Database: nil, health.Temporal: nil}), // never available
	}
	ended := make(chan error, 1)
	go func() { ended <- workers.Run(ctx, nil, acts, opts) }()
	require.Len(t, <-polled, 93)
	given.Store(new(append(slices.Clone(models), "b", "c")))
	changed <- struct{}{}
	names := <-polled
	require.Len(t, names, 94, "with the six queues of workflows these are 100")
	require.Contains(t, names, berth.ModelTaskQueue("b"))
	cancel()
	require.NoError(t, <-ended)

	opts.BuildID = ""
	require.ErrorContains(t, workers.Run(t.Context(), nil, acts, opts), "set BERTH_BUILD_ID")
}
