package activities

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"berth"
	"berth/internal/ledger"
	"berth/internal/testledger"
)

// O4, P8: of two processes with calls one is killed. Its calls, more than a page of them, are one difference; afterwards balance and budget have
// only what the other one reserves.
func TestReconciler_ProcessKilledWithCalls_AllReservedReturned(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "berth.db")
	l := testledger.Open(t, "sqlite:"+path)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, _, _, err = l.AddCredits(ctx, ledger.Grant{UserID: "bob", Amount: 10_000, Reason: "test", Key: "k"})
	require.NoError(t, err)
	require.NoError(t, l.AddTeam(ctx, "t"))
	require.NoError(t, l.PutBudget(ctx, berth.Budget{Kind: berth.BudgetTeam, ID: "t", Credits: 20_000, Period: berth.PeriodMonth}, "olga"))
	reserve := func(process string, credits berth.Credits) {
		require.NoError(t, l.ReserveCall(ctx, ledger.DirectCall{
			ID: berth.NewID("c-"), UserID: "bob", TeamID: "t", Model: "m", Queue: "q", Operation: "chat", Process: process, Timeout: time.Hour,
			Reserved: credits, Account: true,
		}))
	}
	require.NoError(t, l.MarkProcess(ctx, "lives"))
	require.NoError(t, l.MarkProcess(ctx, "killed"))
	reserve("lives", 70)
	for range reconcilePage + 1 {
		reserve("killed", 3)
	}
	r := &Reconciler{Ledger: l, Options: ReconcileOptions{MaxFindings: 1}, Logger: slog.New(slog.DiscardHandler)}
	find := func() []berth.ReconcileFinding {
		p := &pass{r: r, rules: r.rules(), seen: map[berth.ReconcileFinding]struct{}{}}
		require.NoError(t, p.abandonedCalls(ctx))
		return p.found
	}
	left := func() (balance, used berth.Credits) {
		balance, err := l.Credits(ctx, "bob")
		require.NoError(t, err)
		b, err := l.Budget(ctx, berth.BudgetTeam, "t")
		require.NoError(t, err)
		return balance, b.Used
	}
	require.Empty(t, find(), "both were seen")
	balance, used := left()
	require.Equal(t, berth.Credits(70+3*(reconcilePage+1)), used)
	require.Equal(t, 10_000-used, balance)

	_, err = db.ExecContext(ctx, `UPDATE call_processes SET seen_at = seen_at - ? WHERE id = 'killed'`, (2 * unseenAfter).Milliseconds())
	require.NoError(t, err)
	found := find()
	require.Equal(t, []berth.ReconcileFinding{{Rule: berth.RuleCallUnsettled, Subject: "killed", Outcome: berth.FindingFound}}, found)
	require.NoError(t, l.MarkProcess(ctx, "killed"))
	require.Equal(t, berth.FindingGone, r.settle(ctx, r.rules()[berth.RuleCallUnsettled], found[0], true).Outcome, "it was seen again")
	_, err = db.ExecContext(ctx, `DELETE FROM call_processes WHERE id = 'killed'`)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, `UPDATE calls SET created_at = created_at - ?`, (2 * unseenAfter).Milliseconds())
	require.NoError(t, err)
	require.Equal(t, berth.FindingHolds, r.settle(ctx, r.rules()[berth.RuleCallUnsettled], found[0], false).Outcome, "a dry run")
	require.Equal(t, berth.FindingRepaired, r.settle(ctx, r.rules()[berth.RuleCallUnsettled], found[0], true).Outcome)
	require.Empty(t, find())
	balance, used = left()
	require.Equal(t, berth.Credits(70), used)
	require.Equal(t, berth.Credits(10_000-70), balance)
	sums, _, err := l.UsageSums(ctx, ledger.UsageQuery{UserID: "bob"}, []string{"outcome"})
	require.NoError(t, err)
	require.Len(t, sums, 1)
	require.Equal(t, string(berth.CodeInterrupted), sums[0].Outcome)
	require.EqualValues(t, reconcilePage+1, sums[0].Calls)
}
