package ledger

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"berth"
)

// priced returns a task of the user in the paid tier, not stored yet.
func priced(user string, price berth.Credits) berth.Task {
	t := chain()
	t.UserID, t.Price = user, price
	for _, s := range t.Steps {
		s.Queue, s.Model = berth.Queue("q_free_"+string(s.Mode)), "free-model"
		t.FreeSteps = append(t.FreeSteps, s)
	}
	return t
}

func grant(tb testing.TB, l *Ledger, user string, amount berth.Credits) {
	tb.Helper()
	_, _, _, err := l.AddCredits(context.Background(), Grant{UserID: user, Amount: amount, Reason: "test", Key: rand.Text()})
	require.NoError(tb, err)
}

// tb is the part of testing.TB that rapid's T has, too.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
}

// balance returns a user's credits, which must be the sum of the entries and never negative, also after each entry.
func balance(t tb, l *Ledger, user string) berth.Credits {
	t.Helper()
	credits, err := l.Credits(context.Background(), user)
	require.NoError(t, err)
	var all []Entry
	for cursor := ""; ; {
		page, next, err := l.Entries(context.Background(), user, cursor, 7)
		require.NoError(t, err)
		all = append(all, page...)
		if cursor = next; cursor == "" {
			break
		}
	}
	var sum berth.Credits
	for i := len(all) - 1; i >= 0; i-- {
		sum += all[i].Amount
		require.GreaterOrEqual(t, sum, berth.Credits(0), "after entry %d", all[i].ID)
	}
	require.Equal(t, sum, credits)
	return credits
}

func TestCreateTask_CreditsDoNotSuffice_FreeTier(t *testing.T) { // T18
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "bob", 5)
		paid := create(t, l, priced("bob", 3))
		require.Equal(t, berth.TierPaid, paid.Tier)
		require.EqualValues(t, 3, paid.Price)
		free := create(t, l, priced("bob", 3))
		require.Equal(t, berth.TierFree, free.Tier)
		require.Zero(t, free.Price)
		require.Equal(t, "free-model", free.Steps[0].Model)
		stored, err := l.GetTask(t.Context(), free.Ref())
		require.NoError(t, err)
		require.Equal(t, free, stored)
		require.EqualValues(t, 2, balance(t, l, "bob"))
		without := create(t, l, priced("carol", 1))
		require.Equal(t, berth.TierFree, without.Tier, "a user without an account")
	})
}

func TestFinishTask_EachOutcome_RefundedUnlessKept(t *testing.T) { // T18
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for name, c := range map[string]struct {
			status    berth.TaskStatus
			streaming bool
			keep      bool
			refunded  bool
		}{
			"failed":                          {berth.TaskFailed, false, false, true},
			"failed while streaming":          {berth.TaskFailed, true, true, true},
			"cancelled":                       {berth.TaskCancelled, false, false, true},
			"cancelled while streaming":       {berth.TaskCancelled, true, false, true},
			"cancelled while streaming, kept": {berth.TaskCancelled, true, true, false},
			"cancelled before, kept":          {berth.TaskCancelled, false, true, true},
		} {
			user := "u " + name
			grant(t, l, user, 3)
			task := create(t, l, priced(user, 3))
			require.Zero(t, balance(t, l, user))
			a := begin(t, l, task, 2)
			if c.streaming {
				require.NoError(t, l.StartCall(ctx, CallStart{TaskRef: task.Ref(), Fence: a.Fence, Status: berth.TaskStreaming}))
			}
			for range 2 { // the reply of the first was lost
				_, _, err := l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: c.status, KeepStreamed: c.keep})
				require.NoError(t, err)
			}
			require.Equal(t, c.refunded, balance(t, l, user) == 3, name)
		}
	})
}

func TestWithdrawTask_AcceptedAgain_ChargedAndRefundedEachTime(t *testing.T) { // T18
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "bob", 3)
		task := priced("bob", 3)
		for range 3 {
			create(t, l, task)
			require.Zero(t, balance(t, l, "bob"))
			for range 2 {
				require.NoError(t, l.WithdrawTask(t.Context(), task.Ref(), task.RequestHash))
			}
			require.EqualValues(t, 3, balance(t, l, "bob"))
		}
		create(t, l, task)
		_, _, err := l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskFailed})
		require.NoError(t, err)
		require.EqualValues(t, 3, balance(t, l, "bob"))
	})
}

func TestAddCredits_InvalidOrRepeated_NoPartialEffect(t *testing.T) { // T18
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		first, credits, created, err := l.AddCredits(ctx, Grant{UserID: "bob", Amount: 5, Reason: "a", Key: "k"})
		require.NoError(t, err)
		require.True(t, created)
		require.EqualValues(t, 5, credits)
		again, credits, created, err := l.AddCredits(ctx, Grant{UserID: "bob", Amount: 5, Reason: "a", Key: "k"})
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, first, again)
		require.EqualValues(t, 5, credits)
		_, _, created, err = l.AddCredits(ctx, Grant{UserID: "carol", Amount: 5, Reason: "a", Key: "k"})
		require.NoError(t, err)
		require.True(t, created, "keys of different users are independent")
		for code, g := range map[berth.Code][]Grant{
			berth.CodeIdempotencyMismatch: {{UserID: "bob", Amount: 6, Reason: "a", Key: "k"}, {UserID: "bob", Amount: 5, Reason: "b", Key: "k"}},
			berth.CodeConflict:            {{UserID: "bob", Amount: -6, Key: "x"}, {UserID: "bob", Amount: berth.MaxCredits, Key: "x"}, {UserID: "dan", Amount: -1, Key: "x"}},
			berth.CodeInvalid:             {{UserID: "bob", Key: "x"}, {UserID: "", Amount: 1, Key: "x"}, {UserID: "bob", Amount: 1}, {UserID: "bob", Amount: berth.MaxCredits + 1, Key: "x"}},
		} {
			for _, bad := range g {
				_, _, _, err := l.AddCredits(ctx, bad)
				requireCode(t, code, err)
			}
		}
		require.EqualValues(t, 5, balance(t, l, "bob"))
		require.Zero(t, balance(t, l, "dan"))
	})
}

func TestCredits_ConcurrentTasks_NeverOverdrawn(t *testing.T) { // T18, P8
	each(t, func(t *testing.T, l *Ledger) {
		grant(t, l, "bob", 10)
		var paid atomic.Int64
		var g errgroup.Group
		for range 40 {
			task := priced("bob", 3)
			for range 2 { // each is submitted twice
				g.Go(func() error {
					row, created, err := l.CreateTask(t.Context(), task)
					if created && row.Tier == berth.TierPaid {
						paid.Add(1)
					}
					return err
				})
			}
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 3, paid.Load())
		require.EqualValues(t, 1, balance(t, l, "bob"))
	})
}

// books is a model of one user's account and tasks, whose calls fail first or are repeated as after a lost reply.
type books struct {
	l       *Ledger
	user    string
	credits berth.Credits
	tasks   []*booked
	grants  []Grant
}

type booked struct {
	berth.Task
	open    bool
	charged berth.Credits
}

// repeat makes a call that may have failed before its effect, then calls until it succeeds, and again as if replies were lost.
func repeat(t *rapid.T, call func(context.Context) error) (err error) {
	if rapid.Bool().Draw(t, "fails first") {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.Error(t, call(ctx))
	}
	for range rapid.IntRange(1, 3).Draw(t, "calls") {
		err = call(context.Background())
	}
	return err
}

func (b *books) Grant(t *rapid.T) {
	g := Grant{UserID: b.user, Amount: berth.Credits(rapid.Int64Range(-10, 20).Filter(func(n int64) bool { return n != 0 }).Draw(t, "amount")), Reason: "r", Key: rand.Text()}
	err := repeat(t, func(ctx context.Context) error { _, _, _, err := b.l.AddCredits(ctx, g); return err })
	if b.credits+g.Amount < 0 {
		require.Equal(t, berth.CodeConflict, berth.CodeOf(err))
		return
	}
	require.NoError(t, err)
	b.credits += g.Amount
	b.grants = append(b.grants, g)
}

func (b *books) GrantAgain(t *rapid.T) {
	if len(b.grants) == 0 {
		t.Skip("no grants")
	}
	g := rapid.SampledFrom(b.grants).Draw(t, "grant")
	_, credits, created, err := b.l.AddCredits(context.Background(), g)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, b.credits, credits)
}

func (b *books) Accept(t *rapid.T) {
	task := &booked{Task: priced(b.user, berth.Credits(rapid.Int64Range(1, 8).Draw(t, "price"))), open: true}
	b.accept(t, task)
	b.tasks = append(b.tasks, task)
}

// accept stores a task that is not stored.
func (b *books) accept(t *rapid.T, task *booked) {
	var row berth.Task
	require.NoError(t, repeat(t, func(ctx context.Context) (err error) { row, _, err = b.l.CreateTask(ctx, task.Task); return err }))
	if task.charged, task.open = 0, true; b.credits >= task.Price {
		task.charged = task.Price
	}
	b.credits -= task.charged
	require.Equal(t, task.charged, row.Price)
	require.Equal(t, task.charged == 0, row.Tier == berth.TierFree)
}

func (b *books) pick(t *rapid.T) *booked {
	if len(b.tasks) == 0 {
		t.Skip("no tasks")
	}
	return rapid.SampledFrom(b.tasks).Draw(t, "task")
}

func (b *books) End(t *rapid.T) {
	task, status := b.pick(t), rapid.SampledFrom(endings).Draw(t, "status")
	require.NoError(t, repeat(t, func(ctx context.Context) error {
		_, _, err := b.l.FinishTask(ctx, End{TaskRef: task.Ref(), Status: status})
		return err
	}))
	if task.open && status != berth.TaskCompleted {
		b.credits += task.charged
	}
	task.open = false
}

func (b *books) WithdrawAndAcceptAgain(t *rapid.T) {
	task := b.pick(t)
	require.NoError(t, repeat(t, func(ctx context.Context) error { return b.l.WithdrawTask(ctx, task.Ref(), task.RequestHash) }))
	if !task.open {
		return // it has ended, and remains
	}
	b.credits += task.charged
	require.Equal(t, b.credits, balance(t, b.l, b.user))
	b.accept(t, task)
}

// Check is called after every action.
func (b *books) Check(t *rapid.T) { require.Equal(t, b.credits, balance(t, b.l, b.user)) }

func TestCredits_RandomActionsWithLostReplies_BalanceIsSumOfEntries(t *testing.T) { // T18, P6, P8
	each(t, func(t *testing.T, l *Ledger) {
		rapid.Check(t, func(t *rapid.T) {
			b := &books{l: l, user: fmt.Sprint("u ", rand.Text())}
			t.Repeat(map[string]func(*rapid.T){
				"grant": b.Grant, "grant again": b.GrantAgain, "accept": b.Accept, "end": b.End, "withdraw": b.WithdrawAndAcceptAgain,
				"": b.Check,
			})
		})
	})
}
