package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// MaxReportUnits is how many units one report asks.
const MaxReportUnits = 500

// ReportInput starts a round.
type ReportInput struct {
	Units []NodeRef `json:"units"` // at most MaxReportUnits
}

// ReportResult is what came of it.
type ReportResult struct {
	Asked int `json:"asked"`
	// Unresponsive did not answer in time. Whoever is lost is noticed by the sweep, and whoever comes back reports everything.
	Unresponsive []NodeRef `json:"silent,omitempty"`
}

// Report asks every unit on its own task queue for full information of all that it runs, all at once.
func Report(ctx workflow.Context, in ReportInput) (ReportResult, error) {
	asked := make([]workflow.Future, len(in.Units))
	for i, u := range in.Units {
		asked[i] = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              berth.NodeTaskQueue(u.NodeID, u.Generation),
			ScheduleToStartTimeout: 10 * time.Second,
			StartToCloseTimeout:    30 * time.Second,
			ScheduleToCloseTimeout: time.Minute,
			RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: 3},
		}), berth.ActivityReportConferences, berth.UnitReport{})
	}
	out := ReportResult{Asked: len(in.Units)}
	for i, f := range asked {
		err := f.Get(ctx, nil)
		if temporal.IsCanceledError(err) {
			return out, err
		}
		if err != nil {
			out.Unresponsive = append(out.Unresponsive, in.Units[i])
		}
	}
	return out, nil
}
