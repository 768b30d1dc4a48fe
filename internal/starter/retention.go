package starter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"berth/workflows"
)

// ScheduleRetention creates the schedule that removes expired data, unless it exists.
func (s *Starter) ScheduleRetention(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := s.Client.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID:   workflows.RetentionID,
		Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: workflows.RetentionInterval}}},
		Action: &client.ScheduleWorkflowAction{
			ID: workflows.RetentionID, Workflow: workflows.RetentionWorkflow, TaskQueue: workflows.TaskQueueLinks,
		},
		Overlap:       enums.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: time.Minute, // a run that was missed is made up for by the next
	})
	if err != nil && !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("create the schedule of the retention: %w", outcome(err))
	}
	return nil
}
