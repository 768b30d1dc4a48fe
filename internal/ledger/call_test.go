package ledger

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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
			"key":     {99, 1000, 1000, "the budget of key k is 0.099 credits a month, of which 0.099 are left, and the call may cost 0.1, less with a smaller limit of its output tokens; it begins again at " + berth.PeriodMonth.Ends(time.Now()).Format(time.RFC3339)},
			"team":    {100, 99, 1000, "the budget of team t is 0.099 credits in total, of which 0.099 are left, and the call may cost 0.1, less with a smaller limit of its output tokens; an operator can raise it"},
			"account": {100, 100, 99, "your account has less than the 0.1 credits that the call may cost: a smaller limit of its output tokens lowers that"},
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
	retried := retrying(t, link)
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

// O4, G16: the sums of usage have these calls, by what they are.
func TestUsageSums_DirectCalls_CountedByKeyTeamAndModel(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		for i, key := range []string{"key_1", "key_1", "key_2"} {
			d := direct(key, 100)
			d.KeyID, d.Account = key, false
			require.NoError(t, l.ReserveCall(t.Context(), d))
			require.NoError(t, l.EndCall(t.Context(), d, []ModelCall{call("a", ""), call("b", "")}, berth.Credits(10*(i+1))))
		}
		require.NoError(t, l.ReserveCall(t.Context(), func() DirectCall { d := direct("k3", 0); d.Account = false; return d }()), "one that runs is not counted")
		sums, more, err := l.UsageSums(t.Context(), UsageQuery{TeamID: "t"}, []string{"team", "app", "key", "model", "template"})
		require.NoError(t, err)
		require.False(t, more)
		sum := func(key string, calls int64, credits berth.Credits) UsageSum {
			return UsageSum{
				TeamID: "t", AppID: "app", KeyID: key, Model: "m", Calls: calls, Tokens: UsageTokens{Input: 10 * calls, Output: 3 * calls},
				CostMicros: 7 * calls, Credits: credits,
			}
		}
		require.Equal(t, []UsageSum{sum("key_1", 4, 30), sum("key_2", 2, 30)}, sums)
	})
}
