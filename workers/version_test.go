package workers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/activities"
	"berth/workers"
)

// B6: Temporal accepts 100 task queues in a version of a worker deployment, and refuses the polls of the others. Processes of a
// version share them, also when each selects its own.
func TestRun_VersionWithTooManyTaskQueues_IsRefused(t *testing.T) {
	t.Parallel()
	var models []workers.ModelQueue
	for i := range 96 {
		models = append(models, workers.ModelQueue{Queue: berth.Queues()[0], Model: fmt.Sprint("model-", i)})
	}
	acts := workers.Activities{Turns: &activities.Turns{}, Executions: &activities.Executions{}}
	opts := workers.Options{Queues: []string{"tasks"}, Models: models, Deployment: "berth", BuildID: "1"}
	require.ErrorContains(t, workers.Run(t.Context(), nil, acts, opts), "101 task queues, and Temporal accepts 100")
	opts.BuildID = ""
	require.ErrorContains(t, workers.Run(t.Context(), nil, acts, opts), "set BERTH_BUILD_ID")
}
