package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

// metered returns a metered task of the user, not stored yet, for which an amount is reserved.
func metered(user string, reserved berth.Credits) berth.Task {
	t := priced(user, reserved)
	t.Metered = true
	return t
}

// answered finishes a step with a call that used some credits.
func answered(tb testing.TB, l *Ledger, t berth.Task, step int, fence int64, used berth.Credits) {
	tb.Helper()
	_, err := l.FinishStep(tb.Context(), StepResult{
		ModelCall: ModelCall{UserID: t.UserID, TaskID: t.ID, Step: step, Name: t.Steps[step].Name, Fence: fence, Credits: used},
		Output:    berth.Asset{Kind: berth.AssetResult, Content: []byte(fmt.Sprint("output ", step))}, Completes: step == len(t.Steps)-1,
	})
	require.NoError(tb, err)
}

func failed(t berth.Task, step int, fence int64, code berth.Code, used berth.Credits) ModelCall {
	return ModelCall{UserID: t.UserID, TaskID: t.ID, Step: step, Name: t.Steps[step].Name, Fence: fence, Code: code, Credits: used}
}

func TestSettle_EachEnd_ChargedForWhatWasUsed(t *testing.T) { // G16, O4
	cancelled := func(l *Ledger, task berth.Task, keep bool) error {
		_, _, err := l.FinishTask(context.Background(), End{TaskRef: task.Ref(), Status: berth.TaskCancelled, KeepStreamed: keep})
		return err
	}
	for name, c := range map[string]struct {
		run   func(t *testing.T, l *Ledger, task berth.Task)
		price berth.Credits
		open  bool // not settled yet
	}{
		"completed": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			for step := range task.Steps {
				answered(t, l, task, step, begin(t, l, task, step).Fence, 100)
			}
		}, price: 300},
		"nothing used": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			for step := range task.Steps {
				answered(t, l, task, step, begin(t, l, task, step).Fence, 0)
			}
		}},
		"more used than reserved": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			for step := range task.Steps {
				answered(t, l, task, step, begin(t, l, task, step).Fence, 700)
			}
		}, price: 1000},
		"failed": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			answered(t, l, task, 0, begin(t, l, task, 0).Fence, 100)
			_, _, err := l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskFailed})
			require.NoError(t, err)
		}},
		"calls that failed or were repeated": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			a := begin(t, l, task, 0)
			require.NoError(t, l.FailedCall(t.Context(), failed(task, 0, a.Fence, berth.CodeProviderUnavailable, 50)))
			for step := range task.Steps {
				answered(t, l, task, step, begin(t, l, task, step).Fence, 100)
			}
		}, price: 300},
		"worker killed in a call": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			lost := begin(t, l, task, 0)
			require.NoError(t, l.StartCall(t.Context(), CallStart{TaskRef: task.Ref(), Fence: lost.Fence, Provider: "p"}))
			for step := range task.Steps {
				answered(t, l, task, step, begin(t, l, task, step).Fence, 100)
			}
			require.NoError(t, l.FailedCall(t.Context(), failed(task, 0, lost.Fence, berth.CodeInterrupted, 80)), "it lives again")
		}, price: 300},
		"cancelled before the answer": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			answered(t, l, task, 0, begin(t, l, task, 0).Fence, 100)
			require.NoError(t, cancelled(l, task, true))
		}},
		"cancelled within the answer": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			streaming(t, l, task)
			require.NoError(t, cancelled(l, task, true))
		}, price: 1000, open: true},
		"cancelled within the answer, then reported": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			fence := streaming(t, l, task)
			require.NoError(t, cancelled(l, task, true))
			for range 2 {
				require.NoError(t, l.FailedCall(t.Context(), failed(task, 2, fence, berth.CodeCancelled, 40)))
			}
		}, price: 240},
		"cancelled within the answer, reported as more than was reserved": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			fence := streaming(t, l, task)
			require.NoError(t, cancelled(l, task, true))
			require.NoError(t, l.FailedCall(t.Context(), failed(task, 2, fence, berth.CodeCancelled, 4000)))
		}, price: 1000},
		"cancelled within the answer, where other charges are refunded": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			fence := streaming(t, l, task)
			require.NoError(t, cancelled(l, task, false))
			require.NoError(t, l.FailedCall(t.Context(), failed(task, 2, fence, berth.CodeCancelled, 40)))
		}, price: 240},
		"cancelled within the answer, never reported": {run: func(t *testing.T, l *Ledger, task berth.Task) {
			fence := streaming(t, l, task)
			require.NoError(t, cancelled(l, task, true))
			found, err := l.UnsettledTasks(t.Context(), time.Now().Add(time.Minute), berth.TaskRef{}, 10)
			require.NoError(t, err)
			require.Contains(t, found, task.Ref())
			for range 2 {
				require.NoError(t, l.SettleTask(t.Context(), task.Ref()))
			}
			require.NoError(t, l.FailedCall(t.Context(), failed(task, 2, fence, berth.CodeCancelled, 40)), "too late")
		}, price: 200},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				user := rand.Text()
				grant(t, l, user, 5000)
				task := create(t, l, metered(user, 1000))
				require.True(t, task.Unsettled)
				require.Equal(t, berth.Credits(4000), balance(t, l, user), "reserved")
				c.run(t, l, task)
				row, err := l.GetTask(t.Context(), task.Ref())
				require.NoError(t, err)
				require.Equal(t, c.price, row.Price)
				require.Equal(t, c.open, row.Unsettled)
				require.Equal(t, 5000-c.price, balance(t, l, user))
				found, err := l.UnsettledTasks(t.Context(), time.Now().Add(time.Minute), berth.TaskRef{}, 1000)
				require.NoError(t, err)
				require.Equal(t, c.open, len(found) > 0)
				if !c.open {
					sums, _, err := l.UsageSums(t.Context(), UsageQuery{UserID: user}, []string{"user"})
					require.NoError(t, err)
					require.Len(t, sums, 1)
					require.Equal(t, c.price, sums[0].Credits, "the usage states what was charged")
				}
			})
		})
	}
}

// streaming begins the last step of a task and returns its fence, the other steps having used 100 each.
func streaming(tb testing.TB, l *Ledger, t berth.Task) int64 {
	tb.Helper()
	last := len(t.Steps) - 1
	for step := range last {
		answered(tb, l, t, step, begin(tb, l, t, step).Fence, 100)
	}
	a := begin(tb, l, t, last)
	require.NoError(tb, l.StartCall(tb.Context(), CallStart{TaskRef: t.Ref(), Step: last, Fence: a.Fence, Status: berth.TaskStreaming, Provider: "p"}))
	return a.Fence
}

func TestSettle_FixedPrice_UsageStatesItOnce(t *testing.T) { // G16
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "bob", 500)
		task := create(t, l, priced("bob", 250))
		for step := range task.Steps {
			answered(t, l, task, step, begin(t, l, task, step).Fence, 100)
		}
		sums, _, err := l.UsageSums(t.Context(), UsageQuery{UserID: "bob"}, []string{"template", "day"})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		require.Equal(t, berth.Credits(250), sums[0].Credits)
		require.Equal(t, berth.Credits(250), balance(t, l, "bob"))
	})
}

func TestSettle_NotSettledYet_RetentionKeepsCharge(t *testing.T) { // G16, T18
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "bob", 5000)
		task := create(t, l, metered("bob", 1000))
		streaming(t, l, task)
		_, _, err := l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskCancelled, KeepStreamed: true})
		require.NoError(t, err)
		_, _, err = l.sumEntries(t.Context(), time.Now().Add(time.Hour), 100)
		require.NoError(t, err)
		require.NoError(t, l.SettleTask(t.Context(), task.Ref()))
		require.Equal(t, berth.Credits(4800), balance(t, l, "bob"))
	})
}

// meters is a model of one user's metered tasks, whose calls end in any order, with lost replies.
type meters struct {
	l       *Ledger
	user    string
	granted berth.Credits
	tasks   []*metering
}

// metering is a task with what its user has to pay at the end.
type metering struct {
	berth.Task
	step      int
	fences    []int64 // of attempts whose outcome was not reported
	newest    int64
	used      berth.Credits
	reserved  berth.Credits
	open      bool
	waits     bool // for the outcome of the last call
	answering bool // the last step streams
}

func (m *meters) Accept(t *rapid.T) {
	left := m.granted
	for _, task := range m.tasks {
		left -= task.owes()
	}
	task := &metering{Task: metered(m.user, berth.Credits(rapid.Int64Range(1, 400).Draw(t, "reserved"))), open: true}
	var row berth.Task
	require.NoError(t, repeat(t, func(ctx context.Context) (err error) { row, _, err = m.l.CreateTask(ctx, task.Task); return err }))
	if left >= task.Price {
		task.reserved = task.Price
	}
	require.Equal(t, task.reserved, row.Price)
	require.Equal(t, task.reserved > 0, row.Metered)
	m.tasks = append(m.tasks, task)
}

// owes is what the account has less because of the task.
func (m *metering) owes() berth.Credits {
	if m.open || m.waits {
		return m.reserved
	}
	return min(m.used, m.reserved)
}

// calls reports whether the newest attempt makes its call.
func (m *metering) calls() bool { return len(m.fences) > 0 && m.fences[len(m.fences)-1] == m.newest }

func (m *meters) pick(t *rapid.T, open bool) *metering {
	var found []*metering
	for _, task := range m.tasks {
		if task.open == open {
			found = append(found, task)
		}
	}
	if len(found) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(found).Draw(t, "task")
}

func (m *meters) Begin(t *rapid.T) {
	task := m.pick(t, true)
	a, err := m.l.BeginAttempt(context.Background(), task.Ref(), task.step, "")
	require.NoError(t, err)
	task.fences, task.newest = append(task.fences, a.Fence), a.Fence
	status := berth.TaskStatus("")
	if task.Steps[task.step].Mode == berth.ModeStream {
		status = berth.TaskStreaming
	}
	require.NoError(t, repeat(t, func(ctx context.Context) error {
		return m.l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Step: task.step, Fence: a.Fence, Status: status, Provider: "p"})
	}))
	task.answering = task.answering || status == berth.TaskStreaming
}

func (m *meters) Answer(t *rapid.T) {
	task := m.pick(t, true)
	if !task.calls() {
		t.Skip("no attempt")
	}
	used, fence := berth.Credits(rapid.Int64Range(0, 200).Draw(t, "used")), task.newest
	require.NoError(t, repeat(t, func(ctx context.Context) error {
		_, err := m.l.FinishStep(ctx, StepResult{
			ModelCall: ModelCall{UserID: m.user, TaskID: task.ID, Step: task.step, Name: task.Steps[task.step].Name, Fence: fence, Credits: used},
			Output:    berth.Asset{Kind: berth.AssetResult, Content: []byte("output")}, Completes: task.step == len(task.Steps)-1,
		})
		return err
	}))
	task.used += used
	task.fences = task.fences[:len(task.fences)-1]
	if task.step++; task.step == len(task.Steps) {
		task.open = false
	}
}

// Fail reports the failure of any attempt, also of a worker that was thought to be dead, and after the end.
func (m *meters) Fail(t *rapid.T) {
	task := m.pick(t, rapid.Bool().Draw(t, "open"))
	if len(task.fences) == 0 {
		t.Skip("no attempt")
	}
	i := rapid.IntRange(0, len(task.fences)-1).Draw(t, "attempt")
	used := berth.Credits(rapid.Int64Range(0, 200).Draw(t, "used"))
	last := task.fences[i] == task.newest
	require.NoError(t, repeat(t, func(ctx context.Context) error {
		return m.l.FailedCall(ctx, failed(task.Task, min(task.step, len(task.Steps)-1), task.fences[i], berth.CodeCancelled, used))
	}))
	if task.waits && last {
		task.waits, task.used = false, task.used+used
	}
	task.fences = append(task.fences[:i:i], task.fences[i+1:]...)
}

func (m *meters) End(t *rapid.T) {
	task, status := m.pick(t, true), rapid.SampledFrom([]berth.TaskStatus{berth.TaskFailed, berth.TaskCancelled}).Draw(t, "status")
	require.NoError(t, repeat(t, func(ctx context.Context) error {
		_, _, err := m.l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: status, KeepStreamed: true})
		return err
	}))
	task.open = false
	if status == berth.TaskFailed || !task.answering {
		task.used = 0
		return
	}
	task.waits = task.reserved > 0 && task.calls()
}

func (m *meters) Settle(t *rapid.T) {
	task := m.pick(t, false)
	require.NoError(t, repeat(t, func(ctx context.Context) error { return m.l.SettleTask(ctx, task.Ref()) }))
	task.waits = false
}

// Check is called after every action.
func (m *meters) Check(t *rapid.T) {
	left := m.granted
	for _, task := range m.tasks {
		left -= task.owes()
	}
	require.Equal(t, left, balance(t, m.l, m.user))
}

func TestSettle_RandomCallsWithLostReplies_BalanceIsDepositsLessSettled(t *testing.T) { // G16, O4, P8
	each(t, func(t *testing.T, l *Ledger) {
		rapid.Check(t, func(t *rapid.T) {
			m := &meters{l: l, user: fmt.Sprint("u ", rand.Text()), granted: 1000}
			_, _, _, err := l.AddCredits(context.Background(), Grant{UserID: m.user, Amount: m.granted, Reason: "test", Key: "k"})
			require.NoError(t, err)
			t.Repeat(map[string]func(*rapid.T){
				"accept": m.Accept, "begin": m.Begin, "answer": m.Answer, "fail": m.Fail, "end": m.End, "settle": m.Settle, "": m.Check,
			})
		})
	})
}
