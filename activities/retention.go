package activities

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"

	"berth/internal/ledger"
	"berth/workflows"
)

// retentionBatch is how many items one transaction or a few short ones remove.
const retentionBatch = 200

// Retention implements the activity of the Retention workflow.
type Retention struct {
	Ledger *ledger.Ledger
	// Texts and Rows are how long contents and rows are kept.
	Texts, Rows time.Duration
	Logger      *slog.Logger
}

// RemoveExpired removes expired data in batches, and heartbeats after each of them. It is idempotent: a retry continues with what is
// left, and counts only that.
func (r *Retention) RemoveExpired(ctx context.Context) (workflows.RetentionResult, error) {
	now, res := time.Now(), workflows.RetentionResult{Removed: map[string]int64{}}
	for _, e := range r.Ledger.Expiries() {
		before := now.Add(-r.Rows)
		if e.Text {
			before = now.Add(-r.Texts)
		}
		for more := true; more; {
			var removed int64
			var err error
			if removed, more, err = e.Remove(ctx, before, retentionBatch); err != nil {
				return res, unavailable("expired "+e.Name+" not removed", err)
			}
			if removed > 0 {
				res.Removed[e.Name] += removed
			}
			activity.RecordHeartbeat(ctx)
			if err := ctx.Err(); err != nil {
				return res, err
			}
		}
	}
	r.Logger.InfoContext(ctx, "expired data removed", "removed", res.Removed)
	return res, nil
}
