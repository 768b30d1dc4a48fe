package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"berth/workflows"
)

// signalled is the progress of SignalOpen, in its heartbeats.
type signalled struct {
	Page  []byte // token of the next page
	Count int
}

// SignalOpen signals every open workflow to restore in Redis what it holds. A retry continues with the page that the last
// attempt had reached. Idempotent.
func (l *Links) SignalOpen(ctx context.Context, in workflows.ReassertInput) error {
	var done signalled
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = signalled{}
		}
	}
	for {
		next, n, err := l.Starter.SignalSlotHolders(ctx, done.Page, workflows.SignalReassert)
		if err != nil {
			return unavailable("open workflows not signalled", err)
		}
		done.Page, done.Count = next, done.Count+n
		if len(done.Page) == 0 {
			break
		}
		activity.RecordHeartbeat(ctx, done)
	}
	l.Logger.InfoContext(ctx, "open workflows signalled to restore their slots", "workflows", done.Count, "graceUntil", in.GraceUntil)
	return nil
}
