package activities

import (
	"context"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/lua"
	"berth/workflows"
)

const (
	// restorePage is how many rows are restored in one page, maxRestored how many of them concurrently.
	restorePage = 500
	maxRestored = 16
	// replyTime is how long workflows need at least to restore their slots after the last of them was signalled.
	replyTime = 2 * time.Second
)

// restoration is how one kind of lua.States returns to a Redis that lost its data.
type restoration struct {
	state string
	// page restores what follows a position, nil for the beginning. It returns the next position, nil at the end, and how much it
	// restored. It is idempotent.
	page func(ctx context.Context, after []byte) (next []byte, restored int, err error)
}

// restorations returns the kinds of state that neither every process nor the next call of an owner restores, in stages. The licences
// of open conferences return before anything is granted. The kinds of the last stage return concurrently, because both take long.
func (r *Reconciler) restorations(graceUntil time.Time) [][]restoration {
	return [][]restoration{
		{{lua.StateConferences, restoreRows(r.Ledger.OpenConferences, func(c berth.Conference) string { return c.ID }, r.restoreConference)}},
		{
			{lua.StateHeld, func(ctx context.Context, after []byte) ([]byte, int, error) {
				return r.signalOwners(ctx, after, graceUntil)
			}},
			{lua.StateTasks, restoreRows(r.Ledger.WaitingTasks, berth.Task.Ref, r.restoreWaiting)},
		},
	}
}

// restored is how much of a kind of state was restored. It is kept in heartbeats.
type restored struct {
	Next  []byte
	Count int
	Done  bool
}

// RestoreState restores what Redis had before it lost its data, except for what returns with the next call of its owner. A retry
// continues with what the last attempt had reached. Idempotent.
func (r *Reconciler) RestoreState(ctx context.Context, in workflows.PassInput) error {
	done := map[string]restored{}
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = map[string]restored{}
		}
	}
	for _, stage := range r.restorations(time.UnixMilli(in.GraceUntil)) {
		for {
			more, err := r.restoreStage(ctx, stage, done)
			activity.RecordHeartbeat(ctx, done)
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
	}
	return nil
}

// restoreStage restores the next page of each kind of a stage.
func (r *Reconciler) restoreStage(ctx context.Context, stage []restoration, done map[string]restored) (more bool, err error) {
	pages := make([]restored, len(stage))
	var g errgroup.Group
	for i, kind := range stage {
		if pages[i] = done[kind.state]; pages[i].Done {
			continue
		}
		more = true
		g.Go(func() error {
			next, n, err := kind.page(ctx, pages[i].Next)
			if err != nil {
				return unavailable(kind.state+": not restored", err)
			}
			pages[i] = restored{Next: next, Count: pages[i].Count + n, Done: next == nil}
			if pages[i].Done {
				r.Logger.InfoContext(ctx, "state restored to Redis", "state", kind.state, "count", pages[i].Count)
			}
			return nil
		})
	}
	err = g.Wait()
	for i, kind := range stage {
		done[kind.state] = pages[i]
	}
	return more, err
}

// restoreRows restores rows of the database page by page, each page behind the position of the last row before.
func restoreRows[T, P any](
	read func(_ context.Context, after P, limit int) ([]T, error), position func(T) P, restore func(context.Context, T) error,
) func(ctx context.Context, after []byte) ([]byte, int, error) {
	return func(ctx context.Context, after []byte) ([]byte, int, error) {
		var last P
		if after != nil && json.Unmarshal(after, &last) != nil {
			last = *new(P) // the position of another version: all rows are restored again
		}
		rows, err := read(ctx, last, restorePage)
		if err != nil {
			return nil, 0, err
		}
		var g errgroup.Group
		g.SetLimit(maxRestored)
		for _, row := range rows {
			g.Go(func() error { return restore(ctx, row) })
		}
		if err := g.Wait(); err != nil || len(rows) < restorePage {
			return nil, len(rows), err
		}
		next, err := json.Marshal(position(rows[len(rows)-1]))
		return next, len(rows), err
	}
}

func (r *Reconciler) restoreConference(ctx context.Context, c berth.Conference) error {
	_, err := r.Conferences.writeRow(ctx, c, r.Conferences.licence(c))
	return err
}

func (r *Reconciler) restoreWaiting(ctx context.Context, t berth.Task) error {
	_, err := r.Tasks.Waiting.Enter(ctx, lua.ModelWaiterOf(t.Ref(), t.Group, t.StepIndex, t.Steps[t.StepIndex]), t.CreatedAt, t.DeadlineAt)
	return err
}

// signalOwners signals a page of the workflows that hold slots or wait for one. The grace of nodes lasts until all were signalled.
func (r *Reconciler) signalOwners(ctx context.Context, page []byte, graceUntil time.Time) (next []byte, signalled int, err error) {
	next, signalled, err = r.Starter.SignalSlotHolders(ctx, page, workflows.SignalRestore)
	if err != nil {
		return nil, 0, err
	}
	by := lua.NodeGrace
	if len(next) == 0 {
		next, by = nil, replyTime
	}
	_, err = r.Scripts.ExtendGrace(ctx, graceUntil, by)
	return next, signalled, err
}
