package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

const insertTestKey = `INSERT INTO api_keys (id, secret, team_id, app_id, body, created_at, created_by, expires_at, revoked_at, revoked_by)
	VALUES ($1, $1, $2, '', '{}', 1, '', 0, 0, '')`

// withKey stores a key of team t, which it defines.
func withKey(tb testing.TB, l *Ledger, id string) {
	tb.Helper()
	require.NoError(tb, l.AddTeam(context.Background(), "t"))
	_, err := l.exec(context.Background(), "add key", insertTestKey, id, "t")
	require.NoError(tb, err)
}

// putBudgetOf defines a budget and returns it as it is read.
func putBudgetOf(tb testing.TB, l *Ledger, kind berth.BudgetKind, id string, credits berth.Credits, period berth.BudgetPeriod) {
	tb.Helper()
	require.NoError(tb, l.PutBudget(context.Background(), berth.Budget{Kind: kind, ID: id, Credits: credits, Period: period}, "olga"))
}

// spent returns what is used of a budget.
func spent(t tb, l *Ledger, kind berth.BudgetKind, id string) berth.Credits {
	t.Helper()
	b, err := l.Budget(context.Background(), kind, id)
	require.NoError(t, err)
	return b.Used
}

// endPeriod makes the present period of a budget an earlier one, as if time had passed.
func endPeriod(t tb, l *Ledger, kind berth.BudgetKind, id string) {
	t.Helper()
	_, err := l.exec(context.Background(), "end period", `UPDATE budgets SET began_at = began_at - $3 WHERE kind = $1 AND id = $2`,
		kind, id, (40 * 24 * time.Hour).Milliseconds())
	require.NoError(t, err)
}

func TestPutBudget_ChangedOrPassed_UseOfThePresentPeriod(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		withKey(t, l, "k")
		putBudgetOf(t, l, berth.BudgetKey, "k", 500, berth.PeriodMonth)
		b, err := l.Budget(ctx, berth.BudgetKey, "k")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), b.UpdatedAt, time.Minute)
		b.UpdatedAt = time.Time{}
		require.Equal(t, berth.Budget{Kind: berth.BudgetKey, ID: "k", Credits: 500, Period: berth.PeriodMonth, UpdatedBy: "olga"}, b)
		for _, c := range []struct {
			name   string
			change func()
			used   berth.Credits
		}{
			{"more credits", func() { putBudgetOf(t, l, berth.BudgetKey, "k", 900, berth.PeriodMonth) }, 70},
			{"fewer than are used", func() { putBudgetOf(t, l, berth.BudgetKey, "k", 50, berth.PeriodMonth) }, 70},
			{"another period", func() { putBudgetOf(t, l, berth.BudgetKey, "k", 50, berth.PeriodDay) }, 0},
			{"no period", func() { putBudgetOf(t, l, berth.BudgetKey, "k", 50, berth.PeriodTotal) }, 0},
			{"a total never ends", func() { endPeriod(t, l, berth.BudgetKey, "k") }, 70},
			{"a week", func() { putBudgetOf(t, l, berth.BudgetKey, "k", 50, berth.PeriodWeek) }, 0},
			{"the week has passed", func() { endPeriod(t, l, berth.BudgetKey, "k") }, 0},
		} {
			_, err := l.exec(ctx, "use", `UPDATE budgets SET used = 70`)
			require.NoError(t, err)
			c.change()
			require.Equal(t, c.used, spent(t, l, berth.BudgetKey, "k"), c.name)
		}
	})
}

func TestPutBudget_InvalidOrUnknown_NothingStored(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		withKey(t, l, "k")
		valid := berth.Budget{Kind: berth.BudgetKey, ID: "k", Credits: 1, Period: berth.PeriodDay}
		for name, c := range map[string]struct {
			set   func(*berth.Budget)
			field string
			code  berth.Code
		}{
			"kind":         {func(b *berth.Budget) { b.Kind = "user" }, "kind", berth.CodeInvalid},
			"negative":     {func(b *berth.Budget) { b.Credits = -1 }, "credits", berth.CodeInvalid},
			"too many":     {func(b *berth.Budget) { b.Credits = berth.MaxCredits + 1 }, "credits", berth.CodeInvalid},
			"period":       {func(b *berth.Budget) { b.Period = "year" }, "period", berth.CodeInvalid},
			"id":           {func(b *berth.Budget) { b.ID = "" }, "id", berth.CodeInvalid},
			"unknown key":  {func(b *berth.Budget) { b.ID = "t" }, "", berth.CodeNotFound},
			"unknown team": {func(b *berth.Budget) { b.Kind, b.ID = berth.BudgetTeam, "k" }, "", berth.CodeNotFound},
		} {
			b := valid
			c.set(&b)
			err := l.PutBudget(t.Context(), b, "olga")
			requireCode(t, c.code, err)
			require.ErrorContains(t, err, c.field, name)
		}
		all, next, err := l.Budgets(t.Context(), BudgetQuery{}, "", 0)
		require.NoError(t, err)
		require.Empty(t, all)
		require.Empty(t, next)
		requireCode(t, berth.CodeNotFound, l.DeleteBudget(t.Context(), berth.BudgetKey, "k"))
		_, err = l.Budget(t.Context(), berth.BudgetKey, "k")
		requireCode(t, berth.CodeNotFound, err)
	})
}

func TestBudgets_OfKeysAndTeams_PagesByKindAndID(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		for _, key := range []string{"b", "a", "c"} {
			withKey(t, l, key)
			putBudgetOf(t, l, berth.BudgetKey, key, 5, berth.PeriodDay)
		}
		putBudgetOf(t, l, berth.BudgetTeam, "t", 5, berth.PeriodDay)
		require.NoError(t, l.DeleteBudget(t.Context(), berth.BudgetKey, "b"))
		ids := func(kind berth.BudgetKind, limit int) (found []string) {
			for cursor := ""; ; {
				page, next, err := l.Budgets(t.Context(), BudgetQuery{Kind: kind}, cursor, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				for _, b := range page {
					found = append(found, string(b.Kind)+" "+b.ID)
				}
				if cursor = next; cursor == "" {
					return found
				}
			}
		}
		require.Equal(t, []string{"key a", "key c", "team t"}, ids("", 1))
		require.Equal(t, []string{"key a", "key c"}, ids(berth.BudgetKey, 2))
		require.Equal(t, []string{"team t"}, ids(berth.BudgetTeam, 2))

		for _, key := range []string{"a", "b", "c"} {
			require.NoError(t, l.RevokeKey(t.Context(), key, "olga"))
		}
		require.NoError(t, l.DeleteTeam(t.Context(), "t", "olga"))
		require.Empty(t, ids(berth.BudgetTeam, 2), "a team that is defined again begins without a budget")
	})
}

func TestFullestBudgets_OfAnyPeriod_LargestPartOfThePresentOneFirst(t *testing.T) { // O4
	each(t, func(t *testing.T, l *Ledger) {
		for _, b := range []struct {
			key           string
			credits, used berth.Credits
			period        berth.BudgetPeriod
		}{
			{"half", 100, 50, berth.PeriodTotal},
			{"full", 1000, 1000, berth.PeriodMonth},
			{"over", 10, 11, berth.PeriodWeek},
			{"most", 10_000, 9000, berth.PeriodDay},
			{"passed", 100, 100, berth.PeriodDay},
			{"unused", 100, 0, berth.PeriodDay},
			{"forbidden", 0, 5, berth.PeriodDay},
		} {
			withKey(t, l, b.key)
			putBudgetOf(t, l, berth.BudgetKey, b.key, b.credits, b.period)
			_, err := l.exec(t.Context(), "use", `UPDATE budgets SET used = $2 WHERE id = $1`, b.key, b.used)
			require.NoError(t, err)
		}
		endPeriod(t, l, berth.BudgetKey, "passed")
		ids := func(limit int) (ids []string) {
			all, err := l.FullestBudgets(t.Context(), limit)
			require.NoError(t, err)
			for _, b := range all {
				ids = append(ids, b.ID)
				require.NotZero(t, b.Used)
			}
			return ids
		}
		require.Equal(t, []string{"over", "full", "most", "half"}, ids(100))
		require.Equal(t, []string{"over", "full"}, ids(2))
	})
}
