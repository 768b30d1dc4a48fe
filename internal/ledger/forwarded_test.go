package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

// forwarded returns a task that forwards a request with a key of team t, not stored yet. What is reserved is 1,000.
func forwarded(user string) berth.Task {
	t := metered(user, 1000)
	t.Steps = []berth.Step{{Name: berth.StepChat, Mode: berth.ModeStream, Queue: "q", Model: "m", Status: berth.TaskPending}}
	t.Template, t.FreeSteps = berth.TemplateChat, nil
	t.Team, t.RequestHash, t.Forwarded = "t", "hash", &berth.Forwarded{KeyID: user, Stream: true}
	return t
}

// withBudget defines the budget of team t.
func withBudget(t *testing.T, l *Ledger, credits berth.Credits) {
	t.Helper()
	require.NoError(t, l.PutTeam(t.Context(), berth.Team{ID: "t", LevelSettings: berth.DefaultLevel()}, "op"))
	require.NoError(t, l.PutBudget(t.Context(), berth.Budget{Kind: berth.BudgetTeam, ID: "t", Credits: credits, Period: berth.PeriodTotal}, "op"))
}

func used(t *testing.T, l *Ledger) berth.Credits {
	t.Helper()
	b, err := l.Budget(t.Context(), berth.BudgetTeam, "t")
	require.NoError(t, err)
	return b.Used
}

// A forwarded request is charged for what was passed on, however its task ends, and the rest returns to the budgets.
func TestForwarded_EachEnd_BudgetHasWhatWasPassedOn(t *testing.T) { // O4
	end := func(status berth.TaskStatus) func(*Ledger, berth.Task) error {
		return func(l *Ledger, task berth.Task) error {
			_, _, err := l.FinishTask(context.Background(), End{TaskRef: task.Ref(), Status: status, Detail: json.RawMessage(`{"status":502}`)})
			return err
		}
	}
	starts := func(status berth.TaskStatus) func(*Ledger, berth.Task, int64) error {
		return func(l *Ledger, task berth.Task, fence int64) error {
			return l.StartCall(context.Background(), CallStart{TaskRef: task.Ref(), Fence: fence, Provider: "p", Upstream: "u", Status: status})
		}
	}
	reports := func(l *Ledger, task berth.Task, fence int64, used berth.Credits) error {
		return l.FailedCall(context.Background(), failed(task, 0, fence, berth.CodeUnavailable, used))
	}
	for name, c := range map[string]struct {
		run  func(l *Ledger, task berth.Task, fence int64) []error
		used berth.Credits
	}{
		"withdrawn": {run: func(l *Ledger, task berth.Task, _ int64) []error {
			return nil // see below
		}},
		"nothing arrived, failed": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts("")(l, task, fence), reports(l, task, fence, 0), end(berth.TaskFailed)(l, task)}
		}},
		"nothing arrived, cancelled": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts("")(l, task, fence), end(berth.TaskCancelled)(l, task), reports(l, task, fence, 40)}
		}},
		"a part arrived, failed": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts(berth.TaskStreaming)(l, task, fence), reports(l, task, fence, 40), end(berth.TaskFailed)(l, task)}
		}, used: 40},
		"a part arrived, cancelled, reported later": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts(berth.TaskStreaming)(l, task, fence), end(berth.TaskCancelled)(l, task), reports(l, task, fence, 40), reports(l, task, fence, 40)}
		}, used: 40},
		"a part arrived, cancelled, never reported": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts(berth.TaskStreaming)(l, task, fence), end(berth.TaskCancelled)(l, task), l.SettleTask(context.Background(), task.Ref())}
		}},
		"a part arrived, more than was reserved": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			return []error{starts(berth.TaskStreaming)(l, task, fence), reports(l, task, fence, 4000), end(berth.TaskFailed)(l, task)}
		}, used: 1000},
		"a part arrived, reported by the next attempt": {run: func(l *Ledger, task berth.Task, fence int64) []error {
			err := starts(berth.TaskStreaming)(l, task, fence)
			next, failed := l.BeginAttempt(context.Background(), task.Ref(), 0, berth.TaskPending)
			if !next.Begun {
				return []error{fmt.Errorf("%+v", next)}
			}
			return []error{err, failed, reports(l, task, fence, 40), end(berth.TaskFailed)(l, task)}
		}, used: 40},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withBudget(t, l, 1500)
				task, created, err := l.CreateTask(t.Context(), forwarded("key"))
				require.NoError(t, err)
				require.True(t, created)
				require.EqualValues(t, 1000, used(t, l))
				if name == "withdrawn" {
					for range 2 {
						require.NoError(t, l.WithdrawTask(t.Context(), task.Ref(), task.RequestHash))
					}
				} else {
					attempt := begin(t, l, task, 0)
					require.False(t, attempt.Begun)
					for _, err := range c.run(l, task, attempt.Fence) {
						require.NoError(t, err)
					}
				}
				require.Equal(t, c.used, used(t, l))
				require.Equal(t, c.used, charged(t, l, "key"))
			})
		})
	}
	t.Run("completed", func(t *testing.T) {
		each(t, func(t *testing.T, l *Ledger) {
			withBudget(t, l, 1500)
			task, _, err := l.CreateTask(t.Context(), forwarded("key"))
			require.NoError(t, err)
			answered(t, l, task, 0, begin(t, l, task, 0).Fence, 300)
			require.EqualValues(t, 300, used(t, l))
			require.EqualValues(t, 300, charged(t, l, "key"))
		})
	})
}

// Of forwarded requests that together exceed a budget, as many are accepted as it allows, and the others leave nothing.
func TestForwarded_BudgetForOne_OneIsAccepted(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		withBudget(t, l, 1500)
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() { _, _, errs[i] = l.CreateTask(t.Context(), forwarded("key")) })
		}
		all.Wait()
		accepted := 0
		for _, err := range errs {
			if err == nil {
				accepted++
				continue
			}
			require.Equal(t, berth.CodeBudgetExceeded, berth.CodeOf(err))
		}
		require.Equal(t, 1, accepted)
		require.EqualValues(t, 1000, used(t, l))
		open, err := l.OpenTasks(t.Context(), berth.TaskRef{}, 10)
		require.NoError(t, err)
		require.Len(t, open, 1)
	})
}

// The texts of a forwarded request are kept as long as its key says, and those that a retry can join can be found.
func TestForwarded_Retention_TextsErasedInTime(t *testing.T) { // O3, O6
	for _, c := range []struct {
		retention         berth.KeyRetention
		completed, failed time.Duration // until the texts are erased, 0 for as those of tasks
	}{
		{"", 0, 0},
		{berth.RetentionAll, 0, 0},
		{berth.RetentionErrors, JoinWithin, 0},
		{berth.RetentionMetadata, JoinWithin, JoinWithin},
		{"1s", JoinWithin, JoinWithin},
		{"24h", 24 * time.Hour, 24 * time.Hour},
	} {
		t.Run(string(c.retention), func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withBudget(t, l, 10000)
				for _, fails := range []bool{false, true} {
					plan := forwarded("key")
					plan.Forwarded.Retention = c.retention
					body, err := l.PutAsset(t.Context(), berth.Asset{UserID: "key", Kind: berth.AssetText, Content: []byte(plan.ID)})
					require.NoError(t, err)
					plan.Variables = map[string]string{berth.VariableRequest: body.ID}
					task, _, err := l.CreateTask(t.Context(), plan)
					require.NoError(t, err)
					fence := begin(t, l, task, 0).Fence
					want := c.completed
					if fails {
						want = c.failed
						_, _, err = l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskFailed})
						require.NoError(t, err)
					} else {
						answered(t, l, task, 0, fence, 1)
					}
					joinable, err := l.ForwardedTasks(t.Context(), "key", task.RequestHash)
					require.NoError(t, err)
					require.Equal(t, !fails, len(joinable) > 0 && joinable[0] == task.Ref())
					erased := func(after time.Duration) bool {
						_, _, err := l.eraseTasks(t.Context(), selectErasable, time.Now().Add(after), 10)
						require.NoError(t, err)
						row, err := l.GetTask(t.Context(), task.Ref())
						require.NoError(t, err)
						_, err = l.GetAsset(t.Context(), "key", body.ID)
						require.Equal(t, !row.ContentErasedAt.IsZero(), berth.CodeOf(err) == berth.CodeErased)
						return !row.ContentErasedAt.IsZero()
					}
					if want == 0 {
						require.False(t, erased(1000*time.Hour))
						continue
					}
					require.False(t, erased(want-10*time.Second))
					require.True(t, erased(want+10*time.Second))
				}
			})
		})
	}
}
