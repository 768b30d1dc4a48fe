package ledger

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"berth"
)

func TestFinishStep_CompletesTask_OneEndInTheSameTransaction(t *testing.T) { // T13, B2
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		last := result(task, 0, begin(t, l, task, 0).Fence, "result")
		last.Completes = true
		out, err := l.FinishStep(ctx, last)
		require.NoError(t, err)
		row, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.TaskCompleted, row.Status)
		require.Equal(t, out, row.ResultAssetID)
		require.False(t, row.EndedAt.IsZero())
		require.Equal(t, AuditDone, events(t, l, task.ID)[1])

		again, err := l.FinishStep(ctx, last)
		require.NoError(t, err, "the reply of the first call was lost")
		require.Equal(t, out, again)
		later, won, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		require.False(t, won)
		require.Equal(t, berth.TaskCompleted, later.Status)
		require.Len(t, events(t, l, task.ID), 2, "enqueue, one end")
	})
}

func TestFinishStep_TaskCancelledBefore_NothingRecorded(t *testing.T) { // T13
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		last := result(task, 0, begin(t, l, task, 0).Fence, "result")
		last.Completes = true
		_, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: berth.TaskCancelled, Code: berth.CodeCancelled})
		require.NoError(t, err)
		_, err = l.FinishStep(ctx, last)
		require.ErrorIs(t, err, ErrFinal)
		row, err := l.GetTask(ctx, task.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.TaskCancelled, row.Status)
		steps, err := l.FinishedSteps(ctx, task.Ref())
		require.NoError(t, err)
		require.Empty(t, steps)
	})
}

func TestFinishTask_ConcurrentEnds_OneWins(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		task := create(t, l, chain())
		a := begin(t, l, task, 0)
		out, err := l.FinishStep(ctx, result(task, 0, a.Fence, "result"))
		require.NoError(t, err)
		ends := []End{
			{Status: berth.TaskCompleted, ResultAssetID: out},
			{Status: berth.TaskCancelled, Code: berth.CodeCancelled, Message: "cancelled by alice"},
			{Status: berth.TaskFailed, Code: berth.CodeDeadlineExceeded, Message: "zu spät \x00"},
		}
		rows := make([]berth.Task, 50)
		var winners atomic.Int64
		var g errgroup.Group
		for i := range rows {
			g.Go(func() error {
				e := ends[i%len(ends)]
				e.TaskRef = task.Ref()
				row, won, err := l.FinishTask(ctx, e)
				rows[i] = row
				if won {
					winners.Add(1)
					if row.Status != e.Status || row.ErrorCode != e.Code {
						return fmt.Errorf("won with %v, the row is %v", e, row)
					}
				}
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, winners.Load())
		for _, row := range rows {
			require.Equal(t, rows[0], row, "every call returns the winner's row")
		}
		trail := events(t, l, task.ID)
		require.Len(t, trail, 2, "enqueue, one end")
		want := AuditError
		if rows[0].Status == berth.TaskCompleted {
			want = AuditDone
		}
		require.Equal(t, want, trail[1])
	})
}

func TestFinishTask_InvalidEnd_TaskUnchanged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		task := create(t, l, chain())
		_, _, err := l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskStreaming})
		requireCode(t, berth.CodeInvalid, err)
		_, won, err := l.FinishTask(t.Context(), End{TaskRef: ref("t_none"), Status: berth.TaskFailed})
		requireCode(t, berth.CodeNotFound, err)
		require.False(t, won)
		_, won, err = l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskCompleted, ResultAssetID: "a_none"})
		require.Error(t, err, "the result is not stored")
		require.False(t, won)
		now, err := l.GetTask(t.Context(), task.Ref())
		require.NoError(t, err)
		require.Equal(t, berth.TaskPending, now.Status)
	})
}

// life is one task with concurrent actors that take random actions (T13, T17).
type life struct {
	l      *Ledger
	task   berth.Task
	fences chan int64
	ends   chan berth.Task
	wins   atomic.Int64
}

// act is one random action. Programs of actions are generated beforehand, because rapid's T belongs to one goroutine.
type act struct {
	Do     string
	Step   int
	Status berth.TaskStatus
}

func (f *life) run(ctx context.Context, program []act) error {
	var mine Attempt
	var at int
	for _, a := range program {
		var err error
		switch a.Do {
		case "begin":
			at = a.Step
			if mine, err = f.l.BeginAttempt(ctx, f.task.Ref(), at, f.task.Steps[at].Status); err != nil {
				return err
			}
			if mine.Fence > 0 {
				f.fences <- mine.Fence
			}
		case "finish":
			r := result(f.task, at, mine.Fence, fmt.Sprintf("%d by %d", at, mine.Fence))
			r.NextStatus = a.Status
			_, err = f.l.FinishStep(ctx, r)
		case "status":
			err = f.l.StartCall(ctx, CallStart{TaskRef: f.task.Ref(), Step: at, Fence: mine.Fence, Status: a.Status, Provider: "p"})
		case "fail":
			err = f.l.FailedCall(ctx, ModelCall{
				UserID: f.task.UserID, TaskID: f.task.ID, Step: at, Fence: mine.Fence, Call: 1, Usage: berth.Usage{InputTokens: 1},
			})
		default: // "end"
			var row berth.Task
			var won bool
			row, won, err = f.l.FinishTask(ctx, End{TaskRef: f.task.Ref(), Status: a.Status, Code: berth.CodeInternal})
			f.ends <- row
			if won {
				f.wins.Add(1)
			}
		}
		if err != nil && berth.CodeOf(err) != berth.CodeConflict {
			return fmt.Errorf("%s: %w", a.Do, err)
		}
	}
	return nil
}

// watch reads the row until stop is closed, and returns an error if the row ever moves back.
func (f *life) watch(ctx context.Context, stop <-chan struct{}) error {
	seen := f.task
	for {
		now, err := f.l.GetTask(ctx, f.task.Ref())
		switch {
		case err != nil:
			return err
		case now.Status != seen.Status && !f.task.CanBecome(seen.Status, now.Status), now.Fence < seen.Fence, now.StepIndex < seen.StepIndex,
			seen.Status.Final() && ending(seen) != ending(now), now.Status.Final() == now.EndedAt.IsZero():
			return fmt.Errorf("went from %+v to %+v", seen, now)
		}
		seen = now
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// ending returns the row of an ended task without what calls add whose outcome is recorded after the end.
func ending(t berth.Task) string {
	t.Usage, t.UpdatedAt = berth.Usage{}, t.EndedAt
	return fmt.Sprint(t)
}

func drawAct() *rapid.Generator[act] {
	return rapid.Custom(func(t *rapid.T) act {
		a := act{
			Do:     rapid.SampledFrom([]string{"begin", "begin", "begin", "finish", "finish", "status", "fail", "end"}).Draw(t, "do"),
			Step:   rapid.IntRange(0, 2).Draw(t, "step"),
			Status: rapid.SampledFrom(openStatuses).Draw(t, "status"),
		}
		if a.Do == "end" {
			a.Status = rapid.SampledFrom(endings).Draw(t, "end")
		}
		return a
	})
}

// The statuses of tasks that run, and of those that have ended.
var (
	openStatuses = []berth.TaskStatus{berth.TaskPending, "OCR_PENDING", "SUMMARY_PENDING", "MATCH_PENDING", berth.TaskStreaming}
	endings      = []berth.TaskStatus{berth.TaskCompleted, berth.TaskFailed, berth.TaskCancelled}
)

func TestTask_RandomConcurrentActions_InvariantsHold(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		rapid.Check(t, func(rt *rapid.T) {
			f := &life{l: l, task: create(t, l, chain()), fences: make(chan int64, 200), ends: make(chan berth.Task, 200)}
			programs := rapid.SliceOfN(rapid.SliceOfN(drawAct(), 1, 12), 1, 4).Draw(rt, "programs")
			stop := make(chan struct{})
			var actors, watcher errgroup.Group
			watcher.Go(func() error { return f.watch(ctx, stop) })
			for _, p := range programs {
				actors.Go(func() error { return f.run(ctx, p) })
			}
			require.NoError(rt, actors.Wait())
			close(stop)
			require.NoError(rt, watcher.Wait())
			f.check(rt)
		})
	})
}

func (f *life) check(t *rapid.T) {
	ctx := context.Background()
	now, err := f.l.GetTask(ctx, f.task.Ref())
	require.NoError(t, err)
	close(f.fences)
	close(f.ends)
	seen := map[int64]bool{}
	for fence := range f.fences {
		require.False(t, seen[fence], "fence %d was issued twice", fence)
		seen[fence] = true
	}
	require.EqualValues(t, len(seen), now.Fence, "fences rise by one")
	ends := 0
	for row := range f.ends {
		ends++
		require.Equal(t, ending(now), ending(row), "every call returns the same end")
	}
	require.EqualValues(t, min(ends, 1), f.wins.Load())

	calls, err := f.l.ModelCalls(ctx, f.task.Ref())
	require.NoError(t, err)
	finished, spent := map[int]int{}, berth.Usage{}
	for _, c := range calls {
		spent = spent.Add(c.Usage)
		if c.Success {
			finished[c.Step]++
			require.Equal(t, 1, finished[c.Step], "step %d was finished twice", c.Step)
		}
	}
	require.Equal(t, spent, now.Usage)
	trail := trail(t, f.l, f.task.Ref())
	count := map[AuditEvent]int{}
	for _, e := range trail {
		count[e.Event]++
	}
	require.Equal(t, 1, count[AuditEnqueue])
	require.LessOrEqual(t, count[AuditStart], 3)
	require.Equal(t, min(ends, 1), count[AuditDone]+count[AuditError])
}
