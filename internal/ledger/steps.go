package ledger

import (
	"context"
	"time"

	"berth"
)

// FinishedStep is a recorded step of a task.
type FinishedStep struct {
	Step          int
	OutputAssetID string
	Erased        bool // the content of the output was erased
	// Provider and Upstream are those of the model call that finished the step.
	Provider, Upstream string
	// FinishReason is why the model stopped in that call.
	FinishReason string
	FinishedAt   time.Time
}

const selectSteps = `SELECT s.step, s.output_asset_id,
	EXISTS (SELECT 1 FROM assets a WHERE a.id = s.output_asset_id AND a.erased_at > 0), COALESCE(u.provider, ''), COALESCE(u.upstream, ''),
	COALESCE(u.finish_reason, ''), s.finished_at
	FROM steps s LEFT JOIN usage_log u ON u.user_id = s.user_id AND u.task_id = s.task_id AND u.step = s.step AND u.success
	WHERE s.user_id = $1 AND s.task_id = $2 ORDER BY s.step`

// FinishedSteps returns the recorded steps of a task in order.
func (l *Ledger) FinishedSteps(ctx context.Context, task berth.TaskRef) ([]FinishedStep, error) {
	return list(ctx, l, "read steps", func(s *FinishedStep) []any {
		return []any{&s.Step, &s.OutputAssetID, &s.Erased, &s.Provider, &s.Upstream, &s.FinishReason, storedTime{&s.FinishedAt}}
	}, selectSteps, task.UserID, task.TaskID)
}
