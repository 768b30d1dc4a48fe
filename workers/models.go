package workers

import (
	"context"
	"slices"

	"berth"
	"berth/activities"
)

// modelQueues are the task queues of models that a process polls. They follow the models that templates and accepted tasks use.
type modelQueues struct {
	opts    Options
	tasks   *activities.Tasks
	max     int             // 0 for any number
	counted map[string]bool // the queues that Temporal counts in the version, also those that are not polled any more
	given   []string        // up, as too many
	polled  []string
}

// next returns the queues to poll, and whether they are others than those of the last call.
func (q *modelQueues) next(ctx context.Context) (queues []queue, changed bool) {
	var polled []string
	for _, m := range q.opts.Models(ctx) {
		name := berth.ModelTaskQueue(m)
		if !q.accepted(ctx, name) || !wanted(q.opts.Queues, AllModels, name) {
			continue
		}
		polled = append(polled, name)
		queues = append(queues, modelQueue(name, q.tasks))
	}
	if slices.Equal(polled, q.polled) {
		return queues, false
	}
	q.polled = polled
	if q.opts.Polled != nil {
		q.opts.Polled(polled)
	}
	return queues, true
}

// accepted reports whether Temporal accepts a queue in the version of this process.
func (q *modelQueues) accepted(ctx context.Context, name string) bool {
	switch {
	case q.max == 0 || q.counted[name]:
		return true
	case len(q.counted) < q.max:
		if q.counted == nil {
			q.counted = map[string]bool{}
		}
		q.counted[name] = true
		return true
	case !slices.Contains(q.given, name):
		q.given = append(q.given, name)
		q.opts.Logger.ErrorContext(ctx, "queue not polled: Temporal accepts no more task queues in a version of a worker deployment; "+
			"let templates or routes use fewer models, or unset BERTH_DEPLOYMENT", "queue", name, "accepted", maxVersionQueues)
	}
	return false
}
