package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// MaxReportUnits is the maximum number of units of one report.
const MaxReportUnits = 500

// ReportInput is the argument of Report.
type ReportInput struct {
	Units []berth.NodeRef `json:"units"` // at most MaxReportUnits
}

// ReportResult is the result of Report.
type ReportResult struct {
	Asked int `json:"asked"`
	// Unresponsive are the units that did not reply in time. They need no retry: a unit that reconnects reports everything,
	// and the sweep declares the others dead.
	Unresponsive []berth.NodeRef `json:"unresponsive,omitempty"`
}

// Report makes every unit report full information of its conferences to the data proxy, concurrently.
func Report(ctx workflow.Context, in ReportInput) (ReportResult, error) {
	replies := make([]workflow.Future, len(in.Units))
	for i, u := range in.Units {
		replies[i] = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              berth.NodeTaskQueue(u.NodeID, u.Generation),
			ScheduleToStartTimeout: 10 * time.Second,
			StartToCloseTimeout:    30 * time.Second,
			ScheduleToCloseTimeout: time.Minute,
			RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: 3},
		}), berth.ActivityReportConferences, berth.UnitReport{})
	}
	out := ReportResult{Asked: len(in.Units)}
	for i, reply := range replies {
		err := reply.Get(ctx, nil)
		if temporal.IsCanceledError(err) {
			return out, err
		}
		if err != nil {
			out.Unresponsive = append(out.Unresponsive, in.Units[i])
		}
	}
	return out, nil
}
