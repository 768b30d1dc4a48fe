package ledger

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth"
)

// spending is a model of one user's direct calls with a key of a team, of their budgets, and of what they cost.
type spending struct {
	l               *Ledger
	user, key, team string
	deposits        berth.Credits
	budgets         map[berth.BudgetKind]*berth.Budget
	calls           []*modelCall
	alive           map[string]bool // processes
}

// modelCall is a call with what its user has to pay.
type modelCall struct {
	DirectCall
	open, ended bool // not settled; ended by its process
	settled     berth.Credits
	counted     []*berth.Budget // those that it was taken from, each in one period
	usage       []string
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
	for _, c := range s.calls {
		if c.Account {
			left -= c.costs()
		}
	}
	return left
}

// costs is what the call takes from the account now.
func (c *modelCall) costs() berth.Credits {
	if c.open {
		return c.Reserved
	}
	return c.settled
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
	next.Used = 0
	s.budgets[kind] = &next
}

func (s *spending) Reserve(t *rapid.T) {
	c := &modelCall{DirectCall: DirectCall{
		ID: berth.NewID("c-"), UserID: s.user, KeyID: s.key, TeamID: s.team, Model: "m", Queue: "q", Operation: "chat", Timeout: time.Hour,
		Process:  rapid.SampledFrom([]string{s.user + "-1", s.user + "-2"}).Draw(t, "process"),
		Reserved: berth.Credits(rapid.Int64Range(0, 200).Draw(t, "reserved")), Account: rapid.Bool().Draw(t, "account"),
	}, open: true, usage: []string{OutcomeWaiting}}
	if !s.alive[c.Process] {
		t.Skip("it is dead")
	}
	allowed := c.Reserved == 0 || !c.Account || s.left() >= c.Reserved
	for _, b := range s.present() {
		allowed = allowed && (c.Reserved == 0 || b.Used+c.Reserved <= b.Credits)
	}
	err := repeat(t, func(ctx context.Context) error { return s.l.ReserveCall(ctx, c.DirectCall) })
	if !allowed {
		require.Equal(t, berth.CodeBudgetExceeded, berth.CodeOf(err), err)
		return
	}
	require.NoError(t, err)
	if c.Reserved > 0 {
		c.counted = s.present()
	}
	for _, b := range c.counted {
		b.Used += c.Reserved
	}
	s.calls = append(s.calls, c)
}

// settle settles a call of the model.
func (c *modelCall) settle(amount berth.Credits) {
	for _, b := range c.counted {
		b.Used -= c.Reserved - amount
	}
	c.open, c.settled = false, amount
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
		if settled += c.settled; c.open {
			open[c.Process]++
		}
	}
	require.Equal(t, settled, charged(t, s.l, s.user), "what the usage log states")
	for _, b := range s.present() {
		require.Equal(t, b.Used, spent(t, s.l, b.Kind, b.ID), "%s: settled + reserved in its period", b.Kind)
	}
	for process := range s.alive {
		rows, err := s.l.AbandonedCalls(context.Background(), process, -2*time.Hour, 0)
		require.NoError(t, err)
		require.Len(t, rows, open[process])
	}
}

func TestCalls_RandomEndsCrashesAndPeriodsWithLostReplies_BalanceAndBudgetsExact(t *testing.T) { // G16, O4, P8
	each(t, func(t *testing.T, l *Ledger) {
		rapid.Check(t, func(t *rapid.T) {
			id := berth.NewID("k-")
			s := &spending{
				l: l, user: id, key: id, team: "team-" + id, budgets: map[berth.BudgetKind]*berth.Budget{},
				alive: map[string]bool{id + "-1": true, id + "-2": true},
			}
			require.NoError(t, l.AddTeam(context.Background(), s.team))
			_, err := l.exec(context.Background(), "add key", insertTestKey, s.key, s.team)
			require.NoError(t, err)
			s.Deposit(t)
			t.Repeat(map[string]func(*rapid.T){
				"deposit": s.Deposit, "put budget": s.PutBudget, "delete budget": s.DeleteBudget, "period ends": s.PeriodEnds,
				"reserve": s.Reserve, "reserve another": s.Reserve, "end": s.End, "crash": s.Crash, "live again": s.LiveAgain, "reconcile": s.Reconcile,
				"": s.Check,
			})
		})
	})
}
