package activities

import (
	"context"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/lua"
	"berth/workflows"
)

const (
	// restorePage is how many waiting tasks are read in one call, maxRestored how many of them are entered concurrently.
	restorePage = 500
	maxRestored = 16
)

// signalled is the progress of SignalOpen, in its heartbeats.
type signalled struct {
	Page  []byte // token of the next page
	Count int
	// Waiting is the last task that was entered again, Restored is set once all were.
	Waiting  berth.TaskRef
	Restored bool
}

// SignalOpen restores in Redis what open workflows have there: it enters the tasks that wait for a model again, in the order of
// their creation and without a signal, and signals the others, which restore what they hold. A retry continues with the page that the last
// attempt had reached. Idempotent.
func (l *Links) SignalOpen(ctx context.Context, in workflows.ReassertInput) error {
	var done signalled
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = signalled{}
		}
	}
	if err := l.restoreWaiting(ctx, &done); err != nil {
		return unavailable("waiting tasks not restored", err)
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

func (l *Links) restoreWaiting(ctx context.Context, done *signalled) error {
	for restored := 0; !done.Restored; {
		rows, err := l.Ledger.WaitingTasks(ctx, done.Waiting, restorePage)
		if err != nil {
			return err
		}
		var g errgroup.Group
		g.SetLimit(maxRestored)
		for _, t := range rows {
			g.Go(func() error {
				return l.Waiting.Restore(ctx, lua.EntryOf(t.Ref(), t.StepIndex, t.Steps[t.StepIndex]), t.CreatedAt, t.DeadlineAt)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		restored += len(rows)
		if done.Restored = len(rows) < restorePage; done.Restored {
			l.Logger.InfoContext(ctx, "waiting tasks entered again", "tasks", restored)
		} else {
			done.Waiting = rows[len(rows)-1].Ref()
		}
		activity.RecordHeartbeat(ctx, *done)
	}
	return nil
}
