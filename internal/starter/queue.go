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

// QueueState is the state of a task queue of Temporal.
type QueueState struct {
	Pollers    int           // processes that poll it
	Backlog    int64         // work that no process has taken
	BacklogAge time.Duration // how long the oldest of it waits
}

// DescribeQueue returns the state of a task queue of workflows or model calls.
func (s *Starter) DescribeQueue(ctx context.Context, name string) (q QueueState, err error) {
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
		return QueueState{}, fmt.Errorf("describe task queue %s: %w", name, outcome(err))
	}
	for _, p := range d.GetPollers() {
		if time.Since(p.GetLastAccessTime().AsTime()) < pollerAge {
			q.Pollers++
		}
	}
	q.Backlog, q.BacklogAge = d.GetStats().GetApproximateBacklogCount(), d.GetStats().GetApproximateBacklogAge().AsDuration()
	return q, nil
}
