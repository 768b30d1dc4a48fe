package activities

import (
	"context"
	"time"

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
	// replyTime is how long workflows need at least to restore their slots after the last of them was signalled.
	replyTime = 2 * time.Second
)

// signalled is the progress of SignalOpen, in its heartbeats.
type signalled struct {
	Page  []byte // token of the next page
	Count int
	// Waiting is the last task that was entered again, Restored is set once all were.
	Waiting  berth.TaskRef
	Restored bool
	// Licensed is set once all licences are restored.
	Licensed bool
}

// SignalOpen restores in Redis what open workflows have there: the licences of open conferences first, so that no other conference
// gets them. Then it signals the workflows that hold slots, which restore them, and enters the tasks that wait for a model again, in
// the order of their creation and without a signal. The grace of nodes lasts until all were signalled. A retry continues with what
// the last attempt had reached. Idempotent.
func (l *Links) SignalOpen(ctx context.Context, in workflows.RestoreInput) error {
	var done signalled
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = signalled{}
		}
	}
	if err := l.restoreLicences(ctx, &done); err != nil {
		return unavailable("licences not restored", err)
	}
	page, count, waiting, restored := done.Page, done.Count, done.Waiting, done.Restored
	progress := make(chan func())
	g, gctx := errgroup.WithContext(ctx)
	report := func(f func()) {
		select {
		case progress <- f:
		case <-gctx.Done():
		}
	}
	g.Go(func() error {
		return l.signalHolders(gctx, page, count, in, func(page []byte, count int) {
			report(func() { done.Page, done.Count = page, count })
		})
	})
	g.Go(func() error {
		if restored {
			return nil
		}
		return l.restoreWaiting(gctx, waiting, func(last berth.TaskRef, all bool) {
			report(func() { done.Waiting, done.Restored = last, all })
		})
	})
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	for {
		select {
		case f := <-progress:
			f()
			activity.RecordHeartbeat(ctx, done)
		case err := <-ended:
			return err
		}
	}
}

// signalHolders signals the workflows that hold slots from a page on, count of which were signalled before. It reports each page.
func (l *Links) signalHolders(ctx context.Context, page []byte, count int, in workflows.RestoreInput, report func([]byte, int)) error {
	for more := true; more; {
		next, n, err := l.Starter.SignalSlotHolders(ctx, page, workflows.SignalRestore)
		if err != nil {
			return unavailable("open workflows not signalled", err)
		}
		page, count, more = next, count+n, len(next) > 0
		by := replyTime
		if more {
			report(page, count)
			by = lua.NodeGrace
		}
		if _, err := l.Scripts.ExtendGrace(ctx, time.UnixMilli(in.GraceUntil), by); err != nil {
			return unavailable("grace not extended", err)
		}
	}
	l.Logger.InfoContext(ctx, "open workflows signalled to restore their slots", "workflows", count, "graceUntil", in.GraceUntil)
	return nil
}

// restoreWaiting enters the tasks behind the given one that wait. It reports the last one of each page, and when all were entered.
func (l *Links) restoreWaiting(ctx context.Context, last berth.TaskRef, report func(last berth.TaskRef, all bool)) error {
	for restored, more := 0, true; more; {
		rows, err := l.Ledger.WaitingTasks(ctx, last, restorePage)
		if err != nil {
			return unavailable("waiting tasks not restored", err)
		}
		var g errgroup.Group
		g.SetLimit(maxRestored)
		for _, t := range rows {
			g.Go(func() error {
				return l.Waiting.Restore(ctx, lua.ModelWaiterOf(t.Ref(), t.StepIndex, t.Steps[t.StepIndex]), t.CreatedAt, t.DeadlineAt)
			})
		}
		if err := g.Wait(); err != nil {
			return unavailable("waiting tasks not restored", err)
		}
		restored += len(rows)
		if more = len(rows) == restorePage; more {
			last = rows[len(rows)-1].Ref()
		} else {
			l.Logger.InfoContext(ctx, "waiting tasks entered again", "tasks", restored)
		}
		report(last, !more)
	}
	return nil
}
