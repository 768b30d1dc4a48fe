package starter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"berth/workflows"
)

// pollerAge is the time since its last poll after which a process is not presumed to poll any more: a poll lasts a minute at most.
// Temporal lists pollers for five minutes.
const pollerAge = 75 * time.Second

// DescribeQueue returns the number of processes that poll a task queue of workflows or model calls, and how much of its work no
// process has taken.
func (s *Starter) DescribeQueue(ctx context.Context, name string) (pollers int, backlog int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kind := enums.TASK_QUEUE_TYPE_ACTIVITY
	if slices.Contains(workflows.TaskQueues(), name) {
		kind = enums.TASK_QUEUE_TYPE_WORKFLOW
	}
	d, err := s.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: s.Namespace, TaskQueue: &taskqueue.TaskQueue{Name: name}, TaskQueueType: kind, ReportStats: true,
	})
	if err != nil {
		return 0, 0, fmt.Errorf("describe task queue %s: %w", name, outcome(err))
	}
	for _, p := range d.GetPollers() {
		if time.Since(p.GetLastAccessTime().AsTime()) < pollerAge {
			pollers++
		}
	}
	return pollers, d.GetStats().GetApproximateBacklogCount(), nil
}
