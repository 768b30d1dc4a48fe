package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// ReportWorkflow is the workflow type that has units report what they run to the data proxy (C18).
const ReportWorkflow = "Report"

// MaxReportUnits is how many units one report asks.
const MaxReportUnits = 500

// ReportWorkflowID is the workflow id of one such round.
func ReportWorkflowID(id string) string { return "report:" + id }

// ReportInput starts a round.
type ReportInput struct {
	Units []ReportUnit `json:"units"` // at most MaxReportUnits
}

// ReportUnit is a unit that is to report.
type ReportUnit struct {
	NodeID     string `json:"nodeId"`
	Generation int64  `json:"generation"`
}

// ReportResult is what came of it.
type ReportResult struct {
	Asked int `json:"asked"`
	// Silent did not answer in time. Whoever is lost is noticed by the sweep, and whoever comes back reports everything.
	Silent []ReportUnit `json:"silent,omitempty"`
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
			out.Silent = append(out.Silent, in.Units[i])
		}
	}
	return out, nil
}
