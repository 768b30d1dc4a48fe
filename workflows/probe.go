package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

// ProbeInput is the argument of Probe.
type ProbeInput struct {
	Units []berth.NodeRef `json:"units"`
}

// probeTimeout is how long a unit may take to reply to a probe.
const probeTimeout = 2 * time.Second

// Probe sends a command to units whose heartbeats are missing, and returns how many replied. A reply proves that the fault
// is between the units and Redis, so that the units are not dead.
func Probe(ctx workflow.Context, in ProbeInput) (int, error) {
	replied, open := 0, len(in.Units)
	for _, u := range in.Units {
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer func() { open-- }()
			err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
				TaskQueue:              berth.NodeTaskQueue(u.NodeID, u.Generation),
				ScheduleToCloseTimeout: probeTimeout,
				RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
			}), berth.ActivityListConferences).Get(ctx, nil)
			if !temporal.IsTimeoutError(err) {
				replied++ // an error is a reply, too
			}
		})
	}
	err := workflow.Await(ctx, func() bool { return open == 0 })
	return replied, err
}
