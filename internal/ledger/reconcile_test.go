package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestPassHistory_Passes_LastOfEachKind(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		h, err := l.PassHistory(t.Context())
		require.NoError(t, err)
		since := h.ExpectedSince
		require.Equal(t, PassHistory{ExpectedSince: since}, h)
		start := time.Now().Add(-time.Hour).Truncate(time.Millisecond).UTC()
		at := start
		save := func(id string, kind berth.ReconcileKind, status berth.ReconcileStatus, left int, dry bool) berth.ReconcilePass {
			at = at.Add(time.Second)
			p := berth.ReconcilePass{
				ID: id, Kind: kind, Status: status, DryRun: dry, Left: left, StartedAt: at, EndedAt: at.Add(time.Millisecond),
				Counts: []berth.ReconcileCount{}, Findings: []berth.ReconcileFinding{},
			}
			require.NoError(t, l.SavePass(t.Context(), p))
			return p
		}
		save("early", berth.ReconcileQuick, berth.ReconcileCompleted, 3, false)
		full := save("full", berth.ReconcileFull, berth.ReconcileStopped, 5, false)
		h, err = l.PassHistory(t.Context())
		require.NoError(t, err)
		require.Equal(t, full, h.Full)
		require.Equal(t, full, h.Unfinished, "a stopped full pass left something")
		require.Equal(t, "early", h.Completed.ID)
		require.Zero(t, h.Whole)

		full = save("full-2", berth.ReconcileFull, berth.ReconcileCompleted, 0, false)
		quick := save("quick", berth.ReconcileQuick, berth.ReconcileCompleted, 0, false)
		save("skipped", berth.ReconcileFull, berth.ReconcileSkipped, 0, false)
		save("dry", berth.ReconcileFull, berth.ReconcileCompleted, 7, true)
		h, err = l.PassHistory(t.Context())
		require.NoError(t, err)
		require.Equal(t, PassHistory{Full: full, Whole: full, Completed: quick, ExpectedSince: since}, h)
		passes, err := l.Passes(t.Context(), 3)
		require.NoError(t, err)
		require.Len(t, passes, 3)
		require.Equal(t, "dry", passes[0].ID)

		found := save("found", berth.ReconcileFull, berth.ReconcileCompleted, 0, false)
		found.Counts = []berth.ReconcileCount{{Rule: berth.RuleBalance, Found: 1}}
		require.NoError(t, l.SavePass(t.Context(), found))
		for _, id := range []string{"later-1", "later-2"} {
			quick = save(id, berth.ReconcileQuick, berth.ReconcileCompleted, 0, false)
		}
		passes, err = l.Passes(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, []string{"later-2", "later-1", "found"}, []string{passes[0].ID, passes[1].ID, passes[2].ID})
		full = found

		incomplete := save("full-3", berth.ReconcileFull, berth.ReconcileIncomplete, 0, false)
		h, err = l.PassHistory(t.Context())
		require.NoError(t, err)
		require.Equal(t, PassHistory{Full: incomplete, Whole: full, Completed: quick, Unfinished: incomplete, ExpectedSince: since}, h)

		require.NoError(t, l.SavePass(t.Context(), berth.ReconcilePass{ID: "tomorrow", Kind: berth.ReconcileQuick, StartedAt: start.Add(25 * time.Hour)}))
		passes, err = l.Passes(t.Context(), 0)
		require.NoError(t, err)
		for _, p := range passes {
			require.True(t, p.ID == "tomorrow" || p.Kind == berth.ReconcileFull, "quick passes are kept for a day, not %s", p.ID)
		}
		require.Error(t, l.SavePass(t.Context(), berth.ReconcilePass{}))
	})
}

func TestRestoreTask_RowLost_ChargedOnceWithItsFence(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		_, _, _, err := l.AddCredits(t.Context(), Grant{UserID: "alice", Amount: 10, Reason: "test", Key: "k"})
		require.NoError(t, err)
		task := chain()
		task.Price, task.FreeSteps = 4, task.Steps
		for range 2 {
			require.NoError(t, l.RestoreTask(t.Context(), task, 7))
		}
		credits, err := l.Credits(t.Context(), "alice")
		require.NoError(t, err)
		require.EqualValues(t, 6, credits)
		a, err := l.BeginAttempt(t.Context(), task.Ref(), 0, "OCR_PENDING")
		require.NoError(t, err)
		require.EqualValues(t, 8, a.Fence)
	})
}

func TestFinishTask_RowChanged_Stale(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		task, _, err := l.CreateTask(t.Context(), chain())
		require.NoError(t, err)
		end := End{TaskRef: task.Ref(), Status: berth.TaskFailed, Code: berth.CodeLost, Unchanged: task.UpdatedAt.Add(-time.Millisecond)}
		_, _, err = l.FinishTask(t.Context(), end)
		require.ErrorIs(t, err, ErrStale)
		end.Unchanged = task.UpdatedAt.Truncate(time.Millisecond)
		row, won, err := l.FinishTask(t.Context(), end)
		require.NoError(t, err)
		require.True(t, won)
		require.Equal(t, berth.CodeLost, row.ErrorCode)
	})
}

func TestOverdueAndEndedTasks_Pages_EveryTaskOnce(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		now, want := time.Now(), map[string]bool{}
		for i := range 5 {
			task := chain()
			task.DeadlineAt = now.Add(-time.Minute)
			if i == 4 {
				task.DeadlineAt = now.Add(time.Minute)
			} else {
				want[task.ID] = true
			}
			_, _, err := l.CreateTask(t.Context(), task)
			require.NoError(t, err)
		}
		counts, err := l.CountOverdue(t.Context(), now)
		require.NoError(t, err)
		require.Equal(t, map[berth.ReconcileRule]int{berth.RuleTaskOverdue: 4, berth.RuleExecutionOverdue: 0}, counts)
		var after berth.Task
		for {
			page, err := l.OverdueTasks(t.Context(), now, after, 2)
			require.NoError(t, err)
			for _, after = range page {
				require.True(t, want[after.ID])
				delete(want, after.ID)
				_, _, err := l.FinishTask(t.Context(), End{TaskRef: after.Ref(), Status: berth.TaskFailed, Code: berth.CodeLost})
				require.NoError(t, err)
			}
			if len(page) < 2 {
				break
			}
		}
		require.Empty(t, want)
		ended := map[string]bool{}
		for last := (EndedTask{}); ; {
			page, err := l.EndedTasks(t.Context(), now.Add(-time.Second), last, 3)
			require.NoError(t, err)
			for _, last = range page {
				ended[last.TaskID] = true
				require.Equal(t, "jobs", last.ServiceID)
			}
			if len(page) < 3 {
				break
			}
		}
		require.Len(t, ended, 4)
		none, err := l.EndedTasks(t.Context(), now.Add(time.Hour), EndedTask{}, 0)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestBalance_EntriesDiffer_CorrectedUnlessNegative(t *testing.T) { // B4
	each(t, func(t *testing.T, l *Ledger) {
		for _, user := range []string{"alice", "bob", "carol"} {
			_, _, _, err := l.AddCredits(t.Context(), Grant{UserID: user, Amount: 10 * berth.Credit, Reason: "test", Key: "k"})
			require.NoError(t, err)
		}
		_, err := l.exec(t.Context(), "fault", `UPDATE accounts SET credits = 3500 WHERE user_id = 'bob'`)
		require.NoError(t, err)
		var found []string
		for after := ""; ; {
			users, last, err := l.UnbalancedAccounts(t.Context(), after, 2)
			require.NoError(t, err)
			found = append(found, users...)
			if after = last; last == "" {
				break
			}
		}
		require.Equal(t, []string{"bob"}, found)
		credits, sum, err := l.Balance(t.Context(), "bob", false)
		require.NoError(t, err)
		require.Equal(t, []berth.Credits{3500, 10_000}, []berth.Credits{credits, sum})
		_, _, err = l.Balance(t.Context(), "bob", true)
		require.NoError(t, err)
		credits, err = l.Credits(t.Context(), "bob")
		require.NoError(t, err)
		require.Equal(t, 10*berth.Credit, credits)
		entries, _, err := l.AuditLog(t.Context(), AuditQuery{Event: AuditBalance}, "", 0)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.JSONEq(t, `{"before":3.5,"after":10}`, string(entries[0].Detail))

		_, err = l.exec(t.Context(), "fault", `UPDATE credit_entries SET amount = -1 WHERE user_id = 'carol'`)
		require.NoError(t, err)
		_, _, err = l.Balance(t.Context(), "carol", true)
		require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
		credits, err = l.Credits(t.Context(), "carol")
		require.NoError(t, err)
		require.Equal(t, 10*berth.Credit, credits)
	})
}

func TestPassHistory_NoPassEver_StatesSinceWhenTheyAreExpected(t *testing.T) { // FA2
	each(t, func(t *testing.T, l *Ledger) {
		h, err := l.PassHistory(t.Context())
		require.NoError(t, err)
		require.Zero(t, h.Completed)
		require.WithinDuration(t, time.Now(), h.ExpectedSince, time.Hour)
	})
}
