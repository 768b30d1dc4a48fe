package ledger

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

// spending is a model of one user's direct and durable calls with the keys of a team, of their budgets, and of what they cost.
type spending struct {
	l               *Ledger
	user, key, team string
	deposits        berth.Credits
	budgets         map[berth.BudgetKind]*berth.Budget // of the present key and the team
	former          []*berth.Budget                    // of revoked keys
	payments        []*payment
	calls           []*modelCall
	durable         []*durableCall
	alive           map[string]bool // processes
}

// payment is what a call takes from its user and budgets.
type payment struct {
	reserved, settled berth.Credits
	account           bool
	open              bool            // not settled
	unlogged          bool            // the retention has removed what the usage log had of it
	counted           []*berth.Budget // those that it was taken from, each in one period
}

// costs is what is taken now.
func (p *payment) costs() berth.Credits {
	if p.open {
		return p.reserved
	}
	return p.settled
}

func (p *payment) settle(amount berth.Credits) { p.open, p.settled = false, amount }

// modelCall is a call with what its user has to pay.
type modelCall struct {
	DirectCall
	payment
	ended bool // by its process
	usage []string
}

// present returns the budgets in the order in which they are checked.
func (s *spending) present() (all []*berth.Budget) {
	for _, kind := range []berth.BudgetKind{berth.BudgetKey, berth.BudgetTeam} {
		if b := s.budgets[kind]; b != nil {
			all = append(all, b)
		}
	}
	return all
}

func (s *spending) left() berth.Credits {
	left := s.deposits
	for _, p := range s.payments {
		if p.account {
			left -= p.costs()
		}
	}
	return left
}

// used is what the payments take from a budget in its period.
func (s *spending) used(b *berth.Budget) (sum berth.Credits) {
	for _, p := range s.payments {
		if slices.Contains(p.counted, b) {
			sum += p.costs()
		}
	}
	return sum
}

// pay takes what is reserved, or returns false if the account or a budget has less.
func (s *spending) pay(p *payment) bool {
	if p.reserved > 0 {
		if p.account && s.left() < p.reserved {
			return false
		}
		for _, b := range s.present() {
			if s.used(b)+p.reserved > b.Credits {
				return false
			}
		}
		p.counted = s.present()
	}
	p.open = true
	s.payments = append(s.payments, p)
	return true
}

func (s *spending) Deposit(t *rapid.T) {
	g := Grant{UserID: s.user, Amount: berth.Credits(rapid.Int64Range(1, 300).Draw(t, "amount")), Reason: "test", Key: rand.Text()}
	require.NoError(t, repeat(t, func(ctx context.Context) error { _, _, _, err := s.l.AddCredits(ctx, g); return err }))
	s.deposits += g.Amount
}

func (s *spending) kind(t *rapid.T) (berth.BudgetKind, string) {
	kind := rapid.SampledFrom([]berth.BudgetKind{berth.BudgetKey, berth.BudgetTeam}).Draw(t, "kind")
	return kind, map[berth.BudgetKind]string{berth.BudgetKey: s.key, berth.BudgetTeam: s.team}[kind]
}

func (s *spending) PutBudget(t *rapid.T) {
	kind, id := s.kind(t)
	b := berth.Budget{
		Kind: kind, ID: id, Credits: berth.Credits(rapid.Int64Range(0, 500).Draw(t, "credits")),
		Period: rapid.SampledFrom([]berth.BudgetPeriod{berth.PeriodDay, berth.PeriodMonth, berth.PeriodTotal}).Draw(t, "period"),
	}
	require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.PutBudget(ctx, b, "olga") }))
	if old := s.budgets[kind]; old != nil && old.Period == b.Period {
		old.Credits = b.Credits
		return
	}
	s.budgets[kind] = &b
}

func (s *spending) DeleteBudget(t *rapid.T) {
	kind, id := s.kind(t)
	err := s.l.DeleteBudget(context.Background(), kind, id)
	require.Equal(t, s.budgets[kind] == nil, berth.CodeOf(err) == berth.CodeNotFound, err)
	delete(s.budgets, kind)
}

func (s *spending) PeriodEnds(t *rapid.T) {
	kind, id := s.kind(t)
	b := s.budgets[kind]
	if b == nil || b.Period == berth.PeriodTotal {
		t.Skip("it never ends")
	}
	endPeriod(t, s.l, kind, id)
	next := *b
	s.budgets[kind] = &next
}

// Revoke replaces the key by another one of its team. Its calls continue, and are settled with its own budget.
func (s *spending) Revoke(t *rapid.T) {
	require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.RevokeKey(ctx, s.key, "olga") }))
	if b := s.budgets[berth.BudgetKey]; b != nil {
		s.former = append(s.former, b)
		delete(s.budgets, berth.BudgetKey)
	}
	s.newKey(t)
}

func (s *spending) newKey(t *rapid.T) {
	s.key = berth.NewID("k-")
	_, err := s.l.exec(context.Background(), "add key", insertTestKey, s.key, s.team)
	require.NoError(t, err)
}

func (s *spending) Reserve(t *rapid.T) {
	c := &modelCall{DirectCall: DirectCall{
		ID: berth.NewID("c-"), UserID: s.user, KeyID: s.key, TeamID: s.team, Model: "m", Queue: "q", Operation: "chat", Timeout: time.Hour,
		Process:  rapid.SampledFrom([]string{s.user + "-1", s.user + "-2"}).Draw(t, "process"),
		Reserved: berth.Credits(rapid.Int64Range(0, 200).Draw(t, "reserved")), Account: rapid.Bool().Draw(t, "account"),
	}, usage: []string{OutcomeWaiting}}
	if !s.alive[c.Process] {
		t.Skip("it is dead")
	}
	c.reserved, c.account = c.Reserved, c.Account
	err := repeat(t, func(ctx context.Context) error { return s.l.ReserveCall(ctx, c.DirectCall) })
	if !s.pay(&c.payment) {
		require.Equal(t, berth.CodeBudgetExceeded, berth.CodeOf(err), err)
		return
	}
	require.NoError(t, err)
	s.calls = append(s.calls, c)
}

// End is reported by a process that lives, or late by one whose calls the reconciliation may have settled.
func (s *spending) End(t *rapid.T) {
	var running []*modelCall
	for _, c := range s.calls {
		if !c.ended {
			running = append(running, c)
		}
	}
	if len(running) == 0 {
		t.Skip("none runs")
	}
	c, cost := rapid.SampledFrom(running).Draw(t, "call"), berth.Credits(rapid.Int64Range(0, 250).Draw(t, "cost"))
	outcomes := rapid.SampledFrom([][]ModelCall{
		nil,
		{call("a", "")},
		{call("a", berth.CodeCancelled)},
		{call("a", berth.CodeProviderRejected)},
		{call("a", berth.CodeInterrupted)},
		{call("a", berth.CodeProviderUnavailable), call("b", berth.CodeProviderUnavailable), call("c", "")},
	}).Draw(t, "outcomes")
	if n := len(outcomes); n > 0 && outcomes[0].Code == "" {
		outcomes[0].FinishReason = rapid.SampledFrom([]string{berth.FinishStop, berth.FinishLength}).Draw(t, "finish")
	}
	require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.EndCall(ctx, c.DirectCall, outcomes, cost) }))
	if c.ended = true; c.open {
		amount := min(cost, c.Reserved)
		if len(outcomes) == 0 {
			amount = 0
		}
		c.settle(amount)
	}
	c.usage = nil
	for _, o := range outcomes {
		o.FinishedAt = time.Now()
		c.usage = append(c.usage, o.Outcome())
	}
}

func (s *spending) Crash(t *rapid.T) {
	process := rapid.SampledFrom([]string{s.user + "-1", s.user + "-2"}).Draw(t, "process")
	vanish(t, s.l, process)
	s.alive[process] = false
}

func (s *spending) LiveAgain(t *rapid.T) {
	process := rapid.SampledFrom([]string{s.user + "-1", s.user + "-2"}).Draw(t, "process")
	require.NoError(t, s.l.MarkProcess(context.Background(), process))
	s.alive[process] = true
}

func (s *spending) Reconcile(t *rapid.T) {
	for _, c := range s.calls {
		require.NoError(t, repeat(t, func(ctx context.Context) error { return s.l.SettleAbandoned(ctx, c.ID, unseen) }))
		if c.open && !s.alive[c.Process] {
			c.settle(0)
			c.usage = []string{string(berth.CodeInterrupted)}
		}
	}
}

// Check is called after every action.
func (s *spending) Check(t *rapid.T) {
	require.Equal(t, s.left(), balance(t, s.l, s.user), "balance = deposits - settled - reserved")
	var settled berth.Credits
	open := map[string]int{}
	for _, c := range s.calls {
		require.Equal(t, c.usage, attempts(t, s.l, c.DirectCall))
		if !c.unlogged {
			settled += c.settled
		}
		if c.open {
			open[c.Process]++
		}
	}
	settled += s.checkDurable(t)
	require.Equal(t, settled, charged(t, s.l, s.user), "what the usage log states")
	for _, b := range append(s.present(), s.former...) {
		require.Equal(t, s.used(b), spent(t, s.l, b.Kind, b.ID), "%s: settled + reserved in its period", b.Kind)
	}
	for process := range s.alive {
		rows, err := s.l.AbandonedCalls(context.Background(), process, -2*time.Hour, 0)
		require.NoError(t, err)
		require.Len(t, rows, open[process])
	}
}

// Finish ends and settles all calls, as the reconciliation does in the end: nothing remains reserved.
func (s *spending) Finish(t *rapid.T) {
	for process := range s.alive {
		vanish(t, s.l, process)
		s.alive[process] = false
	}
	s.Reconcile(t)
	for _, d := range s.durable {
		if !d.status.Final() {
			s.finish(t, d, berth.TaskFailed)
		}
	}
	s.Settle(t)
	s.Check(t)
	for _, p := range s.payments {
		require.False(t, p.open)
	}
}

// checkSpending makes random actions, each followed by Check, then Finish.
func checkSpending(t *testing.T, actions func(s *spending) map[string]func(*rapid.T)) {
	t.Helper()
	each(t, func(t *testing.T, l *Ledger) {
		rapid.Check(t, func(t *rapid.T) {
			id := berth.NewID("k-")
			s := &spending{
				l: l, user: id, team: "team-" + id, budgets: map[berth.BudgetKind]*berth.Budget{},
				alive: map[string]bool{id + "-1": true, id + "-2": true},
			}
			require.NoError(t, l.AddTeam(context.Background(), s.team))
			s.newKey(t)
			s.Deposit(t)
			all := actions(s)
			all["put budget"], all["delete budget"], all["period ends"], all["revoke"], all[""] = s.PutBudget, s.DeleteBudget, s.PeriodEnds, s.Revoke, s.Check
			all["reserve"], all["end"] = s.Reserve, s.End
			t.Repeat(all)
			s.Finish(t)
		})
	})
}

func TestCalls_RandomEndsCrashesAndPeriodsWithLostReplies_BalanceAndBudgetsExact(t *testing.T) { // G16, O4, P8
	checkSpending(t, func(s *spending) map[string]func(*rapid.T) {
		return map[string]func(*rapid.T){
			"deposit": s.Deposit, "reserve another": s.Reserve, "crash": s.Crash, "live again": s.LiveAgain, "reconcile": s.Reconcile,
		}
	})
}

// Durable calls share the budgets with direct ones.
func TestDurableCalls_RandomEndsCrashesAndRetriesWithLostReplies_BalanceAndBudgetsExact(t *testing.T) { // O4, O6, P8
	checkSpending(t, func(s *spending) map[string]func(*rapid.T) {
		return map[string]func(*rapid.T){
			"submit": s.Submit, "submit another": s.Submit, "withdraw": s.Withdraw, "begin": s.Begin, "begin another": s.Begin, "work": s.Work,
			"work more": s.Work, "work most": s.Work, "end durable": s.EndDurable, "settle": s.Settle, "time passes": s.TimePasses,
			"retention": s.Retention,
		}
	})
}
