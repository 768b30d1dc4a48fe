package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth/workflows"
)

// A record is sent until it is accepted; it is given up when the time is over, or when the receiver wants no further attempt.
func TestRecord_Attempts_RepeatedUntilAcceptedOrGivenUp(t *testing.T) { // C22
	t.Parallel()
	gone := temporal.NewNonRetryableApplicationError("the server returned 410", "unavailable", nil)
	busy := temporal.NewApplicationError("the server returned 503", "unavailable")
	for name, test := range map[string]struct {
		attempt  func(n int) error
		attempts int
		failed   bool
	}{
		"accepted immediately": {func(int) error { return nil }, 1, false},
		"accepted later":       {func(n int) error { return map[bool]error{true: busy}[n < 6] }, 6, false},
		"gone":                 {func(int) error { return gone }, 1, true},
		"never accepted":       {func(int) error { return busy }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
			in, attempts, abandoned := workflows.RecordInput{ConferenceID: "c-1", Within: 72 * time.Hour}, 0, 0
			env.RegisterActivityWithOptions(func(workflows.RecordInput) error { return nil }, activity.RegisterOptions{Name: workflows.SendRecordActivity})
			env.RegisterActivityWithOptions(func(workflows.RecordInput) error { return nil }, activity.RegisterOptions{Name: workflows.AbandonRecordActivity})
			env.OnActivity(workflows.SendRecordActivity, mock.Anything).Return(func(got workflows.RecordInput) error {
				attempts++
				require.Equal(t, in, got)
				return test.attempt(attempts)
			})
			env.OnActivity(workflows.AbandonRecordActivity, mock.Anything).Return(func(workflows.RecordInput) error {
				abandoned++
				return nil
			})
			env.ExecuteWorkflow(workflows.Record, in)
			require.True(t, env.IsWorkflowCompleted())
			if !test.failed {
				require.NoError(t, env.GetWorkflowError())
				require.Equal(t, test.attempts, attempts)
				require.Zero(t, abandoned)
				return
			}
			require.Error(t, env.GetWorkflowError())
			require.Equal(t, 1, abandoned)
			if test.attempts > 0 {
				require.Equal(t, test.attempts, attempts)
			} else {
				require.Greater(t, attempts, 5)
			}
		})
	}
}
