package workers

import (
	"context"
	"slices"

	"berth"
	"berth/activities"
)

// modelQueues are the task queues of models that a process polls. They grow with the templates: a queue that no template uses any more is
// still polled, because accepted tasks may use it.
type modelQueues struct {
	opts  Options
	tasks *activities.Tasks
	max   int      // 0 for any number
	known []string // in the order in which they appeared, also those that the process does not select
	given []string // up, as too many
}

// next returns the queues that appeared since the last call, nil for none.
func (q *modelQueues) next(ctx context.Context) (queues []queue) {
	var polled []string
	for _, m := range q.opts.Models(ctx) {
		name := berth.ModelTaskQueue(m)
		switch {
		case slices.Contains(q.known, name) || slices.Contains(q.given, name):
			continue
		case q.max > 0 && len(q.known) >= q.max:
			q.given = append(q.given, name)
			q.opts.Logger.ErrorContext(ctx, "queue not polled: Temporal accepts no more task queues in a version of a worker deployment; "+
				"let templates or routes use fewer models, or unset BERTH_DEPLOYMENT", "queue", name, "accepted", maxVersionQueues)
			continue
		}
		q.known = append(q.known, name)
		if wanted(q.opts.Queues, AllModels, name) {
			queues = append(queues, modelQueue(name, q.tasks))
		}
	}
	for _, name := range q.known {
		if wanted(q.opts.Queues, AllModels, name) {
			polled = append(polled, name)
		}
	}
	if len(queues) > 0 && q.opts.Polled != nil {
		q.opts.Polled(polled)
	}
	return queues
}
