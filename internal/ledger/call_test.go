package ledger

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"berth"
	"berth/internal/testdb"
)

// unseen is how long the processes of these tests were not seen when their calls are abandoned.
const unseen = time.Minute

// direct returns a call of a user with key k of team t, not reserved yet.
func direct(user string, reserved berth.Credits) DirectCall {
	return DirectCall{
		ID: berth.NewID("c-"), UserID: user, KeyID: "k", TeamID: "t", AppID: "app", Model: "m", Queue: "q", Operation: "chat",
		Process: "p", Timeout: time.Hour, Reserved: reserved, Account: true,
	}
}

// call returns the outcome of an upstream's call.
func call(upstream string, code berth.Code) ModelCall {
	return ModelCall{
		Provider: "local", Upstream: upstream, Usage: berth.Usage{InputTokens: 10, OutputTokens: 3}, CostMicros: 7, Code: code, Success: code == "",
		Credits: 12345, // is not what counts
	}
}

// vanish makes a process one that was last seen some minutes ago.
func vanish(t tb, l *Ledger, process string) {
	t.Helper()
	require.NoError(t, l.MarkProcess(context.Background(), process))
	_, err := l.exec(context.Background(), "vanish", `UPDATE call_processes SET seen_at = seen_at - $2 WHERE id = $1`, process, (2 * unseen).Milliseconds())
	require.NoError(t, err)
}

// attempts returns the outcomes of a call in the usage log.
func attempts(t tb, l *Ledger, c DirectCall) (outcomes []string) {
	t.Helper()
	rows, err := l.ModelCalls(context.Background(), c.Ref())
	require.NoError(t, err)
	for i, row := range rows {
		require.Equal(t, i, row.Call)
		outcomes = append(outcomes, row.Outcome())
	}
	return outcomes
}

// charged returns what the usage log states for a user.
func charged(t tb, l *Ledger, user string) berth.Credits {
	t.Helper()
	sums, _, err := l.UsageSums(context.Background(), UsageQuery{UserID: user}, nil)
	require.NoError(t, err)
	return sums[0].Credits
}

func TestEndCall_EachEnd_SettledOnceAndTheRestReturned(t *testing.T) { // G16, O4, O9
	const interrupted = string(berth.CodeInterrupted)
	unavailable := call("a", berth.CodeProviderUnavailable)
	for name, c := range map[string]struct {
		outcomes []ModelCall
		charged  berth.Credits
		lost     bool // the reconciliation settles it before its process reports the end
		settled  berth.Credits
		usage    []string
	}{
		"an answer":               {outcomes: []ModelCall{call("a", "")}, charged: 40, settled: 40, usage: []string{"success"}},
		"nothing used":            {outcomes: []ModelCall{call("a", "")}, usage: []string{"success"}},
		"all that is reserved":    {outcomes: []ModelCall{call("a", "")}, charged: 100, settled: 100, usage: []string{"success"}},
		"more than is reserved":   {outcomes: []ModelCall{call("a", "")}, charged: 4000, settled: 100, usage: []string{"success"}},
		"less than nothing":       {outcomes: []ModelCall{call("a", "")}, charged: -5, usage: []string{"success"}},
		"cancelled in the answer": {outcomes: []ModelCall{call("a", berth.CodeCancelled)}, charged: 30, settled: 30, usage: []string{"cancelled"}},
		"failover": {
			outcomes: []ModelCall{unavailable, unavailable, call("b", "")}, charged: 40, settled: 40,
			usage: []string{"provider_unavailable", "provider_unavailable", "success"},
		},
		"refused by the provider":     {outcomes: []ModelCall{call("a", berth.CodeProviderRejected)}, usage: []string{"provider_rejected"}},
		"no upstream called":          {charged: 40},
		"lost":                        {lost: true, usage: []string{interrupted}},
		"lost, then an answer":        {lost: true, outcomes: []ModelCall{unavailable, call("b", "")}, charged: 40, usage: []string{"provider_unavailable", "success"}},
		"lost, then no call was made": {lost: true, outcomes: []ModelCall{}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				ctx := t.Context()
				withKey(t, l, "k")
				putBudgetOf(t, l, berth.BudgetKey, "k", 1000, berth.PeriodMonth)
				putBudgetOf(t, l, berth.BudgetTeam, "t", 2000, berth.PeriodTotal)
				grant(t, l, "bob", 500)
				d := direct("bob", 100)
				for range 2 {
					require.NoError(t, l.ReserveCall(ctx, d))
				}
				require.Equal(t, berth.Credits(400), balance(t, l, "bob"))
				require.Equal(t, berth.Credits(100), spent(t, l, berth.BudgetKey, "k"))
				require.Equal(t, berth.Credits(100), spent(t, l, berth.BudgetTeam, "t"))
				require.Equal(t, []string{OutcomeWaiting}, attempts(t, l, d))
				if c.lost {
					vanish(t, l, d.Process)
					for range 2 {
						require.NoError(t, l.SettleAbandoned(ctx, d.ID, unseen))
					}
					require.Equal(t, []string{interrupted}, attempts(t, l, d))
				}
				for range 2 {
					if !c.lost || c.outcomes != nil {
						require.NoError(t, l.EndCall(ctx, d, c.outcomes, c.charged))
					}
					require.Equal(t, 500-c.settled, balance(t, l, "bob"))
					require.Equal(t, c.settled, spent(t, l, berth.BudgetKey, "k"))
					require.Equal(t, c.settled, spent(t, l, berth.BudgetTeam, "t"))
					require.Equal(t, c.usage, attempts(t, l, d))
					require.Equal(t, c.settled, charged(t, l, "bob"), "the usage states what was charged")
				}
				rows, err := l.ModelCalls(ctx, d.Ref())
				require.NoError(t, err)
				for i, row := range rows {
					require.WithinDuration(t, time.Now(), row.At, time.Minute)
					require.WithinDuration(t, time.Now(), row.FinishedAt, time.Minute)
					row.At, row.FinishedAt = time.Time{}, time.Time{}
					want := ModelCall{
						UserID: "bob", TaskID: "call:" + d.ID, Name: "chat", Fence: 1, Call: i, Queue: "q", Model: "m", TeamID: "t", AppID: "app", Code: berth.CodeInterrupted,
					}
					if i < len(c.outcomes) {
						o := c.outcomes[i]
						want.Provider, want.Upstream, want.Usage, want.CostMicros, want.Success, want.Code = o.Provider, o.Upstream, o.Usage, o.CostMicros, o.Success, o.Code
					}
					if i == len(rows)-1 {
						want.Credits = c.settled
					}
					require.Equal(t, want, row)
				}
			})
		})
	}
}

// O4, O5: the message names what has too little. A call that is refused because of one of the three leaves the others as they are.
func TestReserveCall_OneHasTooLittle_NothingChanged(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withKey(t, l, "k")
		for name, c := range map[string]struct {
			key, team, account berth.Credits
			message            string
		}{
			"key":     {99, 1000, 1000, "the budget of key k is 0.099 credits a month, of which 0.099 are left, and the call may cost 0.1; it begins again at " + berth.PeriodMonth.Ends(time.Now()).Format(time.RFC3339)},
			"team":    {100, 99, 1000, "the budget of team t is 0.099 credits in total, of which 0.099 are left, and the call may cost 0.1; an operator can raise it"},
			"account": {100, 100, 99, "your account has less than the 0.1 credits that the call may cost"},
		} {
			user := "u " + name
			putBudgetOf(t, l, berth.BudgetKey, "k", c.key, berth.PeriodMonth)
			putBudgetOf(t, l, berth.BudgetTeam, "t", c.team, berth.PeriodTotal)
			grant(t, l, user, c.account)
			d := direct(user, 100)
			for range 2 {
				err := l.ReserveCall(ctx, d)
				requireCode(t, berth.CodeBudgetExceeded, err)
				require.ErrorContains(t, err, c.message)
				require.Equal(t, c.account, balance(t, l, user))
				require.Zero(t, spent(t, l, berth.BudgetKey, "k"))
				require.Zero(t, spent(t, l, berth.BudgetTeam, "t"))
				require.Empty(t, attempts(t, l, d))
			}
			require.NoError(t, l.EndCall(ctx, d, nil, 0), "a caller that does not know the result")
			require.Equal(t, c.account, balance(t, l, user))
		}
		d := direct("carol", 100)
		requireCode(t, berth.CodeBudgetExceeded, l.ReserveCall(ctx, d))
		d.Reserved = 0
		require.NoError(t, l.ReserveCall(ctx, d), "a call that costs nothing needs no account")
		putBudgetOf(t, l, berth.BudgetKey, "k", 100, berth.PeriodMonth)
		putBudgetOf(t, l, berth.BudgetTeam, "t", 100, berth.PeriodTotal)
		d = direct("k", 100)
		d.Account = false
		require.NoError(t, l.ReserveCall(ctx, d), "keys have no account")
		require.Equal(t, berth.Credits(100), spent(t, l, berth.BudgetKey, "k"))
		for field, set := range map[string]func(*DirectCall){
			"callId": func(c *DirectCall) { c.ID = "a:b" }, "userId": func(c *DirectCall) { c.UserID = "" }, "process": func(c *DirectCall) { c.Process = "" },
			"timeout": func(c *DirectCall) { c.Timeout = 0 }, "reserved": func(c *DirectCall) { c.Reserved = -1 },
		} {
			d := direct("bob", 0)
			set(&d)
			for _, err := range []error{l.ReserveCall(ctx, d), l.EndCall(ctx, d, nil, 0)} {
				requireCode(t, berth.CodeInvalid, err)
				require.ErrorContains(t, err, field)
			}
		}
	})
}

// O4, openai.md complaint 11: of eight calls at a barrier with a budget for one, one is admitted.
func TestReserveCall_EightAtOnceWithBudgetForOne_OneAdmitted(t *testing.T) {
	for name, limit := range map[string]func(t *testing.T, l *Ledger){
		"key": func(t *testing.T, l *Ledger) {
			t.Helper()
			putBudgetOf(t, l, berth.BudgetKey, "k", 150, berth.PeriodDay)
			grant(t, l, "bob", 800)
		},
		"team": func(t *testing.T, l *Ledger) {
			t.Helper()
			putBudgetOf(t, l, berth.BudgetTeam, "t", 150, berth.PeriodDay)
			grant(t, l, "bob", 800)
		},
		"account": func(t *testing.T, l *Ledger) {
			t.Helper()
			grant(t, l, "bob", 150)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withKey(t, l, "k")
				limit(t, l)
				before := balance(t, l, "bob")
				barrier := make(chan struct{})
				errs := make([]error, 8)
				var all sync.WaitGroup
				for i := range errs {
					all.Go(func() {
						<-barrier
						errs[i] = l.ReserveCall(t.Context(), direct("bob", 100))
					})
				}
				close(barrier)
				all.Wait()
				admitted := 0
				for _, err := range errs {
					if err == nil {
						admitted++
						continue
					}
					requireCode(t, berth.CodeBudgetExceeded, err)
				}
				require.Equal(t, 1, admitted)
				require.Equal(t, before-100, balance(t, l, "bob"))
			})
		})
	}
}

// O4: many processes begin and end calls of two keys of a team concurrently, while the reconciliation settles some of them.
func TestCalls_BeginEndAndAreSettledAtOnce_SumsAreExact(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		keys := []string{"k1", "k2"}
		for _, k := range keys {
			withKey(t, l, k)
			putBudgetOf(t, l, berth.BudgetKey, k, 100_000, berth.PeriodMonth)
		}
		putBudgetOf(t, l, berth.BudgetTeam, "t", 100_000, berth.PeriodWeek)
		grant(t, l, "bob", 100_000)
		vanish(t, l, "gone")
		var g errgroup.Group
		for worker := range 8 {
			g.Go(func() error {
				for i := range 15 {
					d := direct("bob", 100)
					d.KeyID = keys[(worker+i)%2]
					if i%3 == 0 {
						d.Process = "gone"
					}
					if err := l.ReserveCall(ctx, d); err != nil {
						return err
					}
					var both errgroup.Group
					both.Go(func() error { return l.EndCall(ctx, d, []ModelCall{call("a", "")}, 10) })
					both.Go(func() error { return l.SettleAbandoned(ctx, d.ID, unseen) })
					if err := both.Wait(); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		used := 100_000 - balance(t, l, "bob")
		require.Equal(t, used, charged(t, l, "bob"))
		require.Equal(t, used, spent(t, l, berth.BudgetTeam, "t"))
		require.Equal(t, used, spent(t, l, berth.BudgetKey, "k1")+spent(t, l, berth.BudgetKey, "k2"))
		require.GreaterOrEqual(t, used, berth.Credits(8*10*10), "calls of a process that lives are charged")
		sums, _, err := l.UsageSums(ctx, UsageQuery{}, []string{"outcome"})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		require.EqualValues(t, 8*15, sums[0].Calls, "each has its own outcome")
	})
}

func TestSettleAbandoned_ProcessOrTimeEnded_ThoseCallsOnly(t *testing.T) { // O4, P8
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		reserve := func(process string, timeout, age time.Duration) DirectCall {
			d := direct("k", 0)
			d.Process, d.Timeout, d.Account = process, timeout, false
			require.NoError(t, l.ReserveCall(ctx, d))
			_, err := l.exec(ctx, "age", `UPDATE calls SET created_at = created_at - $2, deadline_at = deadline_at - $2 WHERE id = $1`, d.ID, age.Milliseconds())
			require.NoError(t, err)
			return d
		}
		vanish(t, l, "gone")
		require.NoError(t, l.MarkProcess(ctx, "lives"))
		require.NoError(t, l.MarkProcess(ctx, "stopped"))
		require.NoError(t, l.ForgetProcess(ctx, "stopped"))
		var open, lost []string
		for _, c := range []struct {
			process      string
			timeout, age time.Duration
			lost         bool
		}{
			{"lives", time.Hour, 30 * time.Minute, false},
			{"lives", time.Hour, time.Hour + unseen/2, false},
			{"lives", time.Hour, time.Hour + 2*unseen, true},
			{"gone", time.Hour, 0, true},
			{"gone", time.Hour, 0, true},
			{"never-marked", time.Hour, 0, false},
			{"never-marked", time.Hour, 2 * unseen, true},
			{"stopped", time.Hour, 2 * unseen, true},
		} {
			d := reserve(c.process, c.timeout, c.age)
			if open = append(open, d.ID); c.lost {
				open, lost = open[:len(open)-1], append(lost, d.ID)
			}
		}
		first, err := l.AbandonedProcesses(ctx, unseen, "", 2)
		require.NoError(t, err)
		require.Equal(t, []string{"gone", "lives"}, first)
		rest, err := l.AbandonedProcesses(ctx, unseen, "lives", 5)
		require.NoError(t, err)
		require.Equal(t, []string{"never-marked", "stopped"}, rest)
		of, err := l.AbandonedCalls(ctx, "gone", unseen, 5)
		require.NoError(t, err)
		require.ElementsMatch(t, lost[1:3], of)
		of, err = l.AbandonedCalls(ctx, "gone", unseen, 1)
		require.NoError(t, err)
		require.Len(t, of, 1)

		require.NoError(t, l.MarkProcess(ctx, "gone"))
		require.NoError(t, l.SettleAbandoned(ctx, lost[1], unseen))
		of, err = l.AbandonedCalls(ctx, "gone", -unseen, 5)
		require.NoError(t, err)
		require.Len(t, of, 2, "it was seen again")
		vanish(t, l, "gone")
		for _, id := range append(open, lost...) {
			require.NoError(t, l.SettleAbandoned(ctx, id, unseen))
		}
		left, err := list(ctx, l, "read calls", value[string], `SELECT id FROM calls`)
		require.NoError(t, err)
		require.ElementsMatch(t, open, left)
	})
}

func TestMarkProcess_OldRows_RemovedWithoutCalls(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for _, p := range []string{"idle", "with a call", "recent"} {
			require.NoError(t, l.MarkProcess(ctx, p))
		}
		_, err := l.exec(ctx, "age", `UPDATE call_processes SET seen_at = seen_at - $1 WHERE id <> 'recent'`, (keepProcess + time.Minute).Milliseconds())
		require.NoError(t, err)
		_, err = l.exec(ctx, "add call", `INSERT INTO calls (id, process, reserved, body, created_at, deadline_at) VALUES ('c', 'with a call', 0, '{}', 1, 1)`)
		require.NoError(t, err)
		require.NoError(t, l.MarkProcess(ctx, "now"))
		left, err := list(ctx, l, "read processes", value[string], `SELECT id FROM call_processes ORDER BY id`)
		require.NoError(t, err)
		require.Equal(t, []string{"now", "recent", "with a call"}, left)
	})
}

func TestReserveCall_PeriodEnds_LateEndReturnsNothingToTheNext(t *testing.T) { // O4
	for name, next := range map[string]func(t *testing.T, l *Ledger){
		"time": func(t *testing.T, l *Ledger) { t.Helper(); endPeriod(t, l, berth.BudgetKey, "k") },
		"changed": func(t *testing.T, l *Ledger) {
			t.Helper()
			putBudgetOf(t, l, berth.BudgetKey, "k", 200, berth.PeriodWeek)
		},
		"changed there and back": func(t *testing.T, l *Ledger) {
			t.Helper()
			putBudgetOf(t, l, berth.BudgetKey, "k", 200, berth.PeriodWeek)
			putBudgetOf(t, l, berth.BudgetKey, "k", 200, berth.PeriodMonth)
		},
		"deleted and defined again": func(t *testing.T, l *Ledger) {
			t.Helper()
			require.NoError(t, l.DeleteBudget(t.Context(), berth.BudgetKey, "k"))
			putBudgetOf(t, l, berth.BudgetKey, "k", 200, berth.PeriodMonth)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *Ledger) {
				withKey(t, l, "k")
				putBudgetOf(t, l, berth.BudgetKey, "k", 200, berth.PeriodMonth)
				grant(t, l, "bob", 1000)
				old, other, present := direct("bob", 150), direct("bob", 50), direct("bob", 200)
				require.NoError(t, l.ReserveCall(t.Context(), old))
				require.NoError(t, l.ReserveCall(t.Context(), other))
				next(t, l)
				require.NoError(t, l.EndCall(t.Context(), old, []ModelCall{call("a", "")}, 20))
				require.Zero(t, spent(t, l, berth.BudgetKey, "k"))
				require.NoError(t, l.ReserveCall(t.Context(), present))
				require.NoError(t, l.EndCall(t.Context(), other, nil, 0))
				require.Equal(t, berth.Credits(200), spent(t, l, berth.BudgetKey, "k"))
				requireCode(t, berth.CodeBudgetExceeded, l.ReserveCall(t.Context(), direct("bob", 1)))
				require.Equal(t, berth.Credits(1000-20-200), balance(t, l, "bob"))
			})
		})
	}
}

// The charge of a call may have been summed up by the retention when the call ends, and a user may name a task like a call.
func TestEndCall_EntriesSummedUpOrTaskOfTheSameName_RefundedOnce(t *testing.T) { // O4, T18
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		grant(t, l, "bob", 1000)
		d := direct("bob", 100)
		require.NoError(t, l.ReserveCall(ctx, d))
		task := metered("bob", 500)
		task.ID = d.ID
		create(t, l, task)
		_, _, err := l.sumEntries(ctx, time.Now().Add(time.Hour), 100)
		require.NoError(t, err)
		require.NoError(t, l.EndCall(ctx, d, []ModelCall{call("a", "")}, 30))
		require.Equal(t, berth.Credits(470), balance(t, l, "bob"))
		for step := range task.Steps {
			answered(t, l, task, step, begin(t, l, task, step).Fence, 100)
		}
		require.Equal(t, berth.Credits(670), balance(t, l, "bob"))
		require.Equal(t, berth.Credits(330), charged(t, l, "bob"))
	})
}

// O4, P8: the reply to each commit in the life of a call is lost once.
func TestCall_ReplyToEachCommitLost_EffectsOnce(t *testing.T) {
	t.Parallel()
	link, dsn := behind(t, testdb.Postgres(t))
	l := open(t, dsn)
	ctx := t.Context()
	withKey(t, l, "k")
	putBudgetOf(t, l, berth.BudgetKey, "k", 1000, berth.PeriodDay)
	grant(t, l, "bob", 1000)
	lost := 0
	retried := func(call func() error) {
		t.Helper()
		link.armed.Store(true)
		requireCode(t, berth.CodeUnavailable, call())
		lost++
		require.EqualValues(t, lost, link.cuts.Load(), "the reply of a commit was lost")
		require.NoError(t, call())
	}
	ended, gone := direct("bob", 100), direct("bob", 300)
	retried(func() error { return l.ReserveCall(ctx, ended) })
	retried(func() error { return l.ReserveCall(ctx, gone) })
	require.Equal(t, berth.Credits(600), balance(t, l, "bob"))
	require.Equal(t, berth.Credits(400), spent(t, l, berth.BudgetKey, "k"))
	retried(func() error { return l.EndCall(ctx, ended, []ModelCall{call("a", ""), call("b", "")}, 10) })
	vanish(t, l, gone.Process)
	retried(func() error { return l.SettleAbandoned(ctx, gone.ID, unseen) })
	require.Equal(t, berth.Credits(990), balance(t, l, "bob"))
	require.Equal(t, berth.Credits(10), spent(t, l, berth.BudgetKey, "k"))
	require.Equal(t, berth.Credits(10), charged(t, l, "bob"))
}

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

// O4, G16: the sums of usage have these calls, by what they are.
func TestUsageSums_DirectCalls_CountedByKeyTeamAndModel(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for i, key := range []string{"k1", "k1", "k2"} {
			d := direct(key, 100)
			d.KeyID, d.Account = key, false
			require.NoError(t, l.ReserveCall(t.Context(), d))
			require.NoError(t, l.EndCall(t.Context(), d, []ModelCall{call("a", ""), call("b", "")}, berth.Credits(10*(i+1))))
		}
		require.NoError(t, l.ReserveCall(t.Context(), func() DirectCall { d := direct("k3", 0); d.Account = false; return d }()), "one that runs is not counted")
		sums, more, err := l.UsageSums(t.Context(), UsageQuery{TeamID: "t"}, []string{"team", "app", "user", "model", "template"})
		require.NoError(t, err)
		require.False(t, more)
		sum := func(key string, calls int64, credits berth.Credits) UsageSum {
			return UsageSum{
				TeamID: "t", AppID: "app", UserID: key, Model: "m", Calls: calls, Tokens: UsageTokens{Input: 10 * calls, Output: 3 * calls},
				CostMicros: 7 * calls, Credits: credits,
			}
		}
		require.Equal(t, []UsageSum{sum("k1", 4, 30), sum("k2", 2, 30)}, sums)
	})
}
