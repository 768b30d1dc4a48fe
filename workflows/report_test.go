package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"berth"
	"berth/workflows"
)

func TestReport_Units_EachIsAskedOnItsOwnQueue(t *testing.T) { // C18
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	held := make(chan map[string]int, 1) // commands per queue
	held <- map[string]int{}
	env.RegisterActivityWithOptions(func(ctx context.Context, in berth.UnitReport) error {
		require.Empty(t, in.E164, "everything")
		queue := activity.GetInfo(ctx).TaskQueue
		asked := <-held
		defer func() { held <- asked }()
		asked[queue]++
		switch {
		case queue == berth.NodeTaskQueue("u1", 1):
			return temporal.NewNonRetryableApplicationError("no", berth.ErrorRefused, nil)
		case queue == berth.NodeTaskQueue("u2", 2) && asked[queue] < 3:
			return errors.New("the data proxy is unavailable")
		}
		return nil
	}, activity.RegisterOptions{Name: berth.ActivityReportConferences})
	var in workflows.ReportInput
	for i := range int64(50) {
		in.Units = append(in.Units, berth.NodeRef{NodeID: fmt.Sprint("u", i), Generation: i})
	}
	env.ExecuteWorkflow(workflows.Report, in)
	require.NoError(t, env.GetWorkflowError())
	var out workflows.ReportResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, workflows.ReportResult{Asked: len(in.Units), Unresponsive: in.Units[1:2]}, out)
	asked := <-held
	require.Len(t, asked, len(in.Units))
	require.Equal(t, 3, asked[berth.NodeTaskQueue("u2", 2)], "retried")
}
