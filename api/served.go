package api

import (
	"context"
	"strings"

	"berth"
)

// checkServed refuses a plan with a step that no worker would run: the task would wait for its deadline. The error names the
// task queue, and the setting that its workers lack if the provider needs a key. Workers that cannot use Temporal may have stopped because of
// that, so the error is not about them unless Temporal replies.
func (s *server) checkServed(ctx context.Context, steps []berth.Step) error {
	queues := make([]string, len(steps))
	for i, st := range steps {
		queues[i] = berth.ModelTaskQueue(st.Model)
	}
	unpolled, err := s.Scripts.CheckPollers(ctx, queues)
	if err != nil {
		return unavailable("Redis", err)
	}
	if len(unpolled) == 0 {
		return nil
	}
	if _, err := s.Starter.DescribeQueue(ctx, unpolled[0]); err != nil {
		return err
	}
	message := "no worker polls " + strings.Join(unpolled, ", ")
	for _, st := range steps {
		setting := s.catalog().KeySetting(st.Model)
		if berth.ModelTaskQueue(st.Model) == unpolled[0] && setting != "" {
			message += ": start a worker with " + setting
		}
	}
	return errorIn("template", berth.CodeNotServed, "%s", message)
}
