package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"berth"
)

// budget is a row of a budget, as it is stored, with the time of the database.
type budget struct {
	berth.Budget

	began   time.Time // of the period that Used is about
	counter string
	now     time.Time
}

func budgetFields(b *budget) []any {
	return []any{
		&b.Kind, &b.ID, &b.Credits, &b.Period, storedTime{&b.began}, &b.Used, &b.counter, storedTime{&b.UpdatedAt}, &b.UpdatedBy, storedTime{&b.now},
	}
}

// selectBudgets precedes the conditions. The database's time decides when a period ends, so that it ends for all processes together.
func (l *Ledger) selectBudgets() string {
	return `SELECT kind, id, credits, period, began_at, used, counter, updated_at, updated_by, ` + l.dialect.nowMillis + ` FROM budgets WHERE `
}

// begin begins the present period with 0, unless it has begun.
func (b *budget) begin() {
	if began := b.Period.Began(b.now); began.After(b.began) {
		b.began, b.Used, b.counter = began, 0, rand.Text()
	}
}

// present returns the budget with its use in the present period.
func (b budget) present() berth.Budget {
	b.begin()
	return b.Budget
}

// Other credits keep the use, another period begins with 0.
const putBudget = `INSERT INTO budgets (kind, id, credits, period, began_at, used, counter, updated_at, updated_by)
	VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8) ON CONFLICT (kind, id) DO UPDATE SET
	credits = excluded.credits, period = excluded.period, updated_at = excluded.updated_at, updated_by = excluded.updated_by,
	began_at = CASE WHEN budgets.period = excluded.period THEN budgets.began_at ELSE excluded.began_at END,
	used = CASE WHEN budgets.period = excluded.period THEN budgets.used ELSE 0 END,
	counter = CASE WHEN budgets.period = excluded.period THEN budgets.counter ELSE excluded.counter END`

// PutBudget defines the budget of a key or a team, or replaces its credits and its period. Used is not read: other credits keep the use, and
// another period begins with 0. CodeNotFound for a key or a team that does not exist, CodeInvalid names the first invalid field.
func (l *Ledger) PutBudget(ctx context.Context, b berth.Budget, by string) error {
	if err := b.Validate(); err != nil {
		return err
	}
	return l.inTx(ctx, "put budget", func(tx *sql.Tx) error {
		now, err := l.lockOwner(ctx, tx, b.Kind, b.ID)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, putBudget, b.Kind, b.ID, b.Credits, b.Period, millis(b.Period.Began(now)), rand.Text(), millis(now), plain(by))
		return err
	})
}

// lockOwner locks the row of a key or a team, so that it is not deleted meanwhile, and returns the time of the database.
func (l *Ledger) lockOwner(ctx context.Context, tx *sql.Tx, kind berth.BudgetKind, id string) (now time.Time, err error) {
	from := map[berth.BudgetKind]string{
		berth.BudgetKey:  `api_keys WHERE id = $1`,
		berth.BudgetTeam: `settings WHERE kind = '` + string(SettingTeam) + `' AND id = $1 AND body <> ''`,
	}[kind]
	err = tx.QueryRowContext(ctx, `SELECT `+l.dialect.nowMillis+` FROM `+from+l.dialect.forUpdate, id).Scan(storedTime{&now})
	if errors.Is(err, sql.ErrNoRows) {
		err = berth.Errorf(berth.CodeNotFound, "%s %q not found", kind, id)
	}
	return now, err
}

// Budget returns the budget of a key or a team, with its use in the present period; CodeNotFound where there is none.
func (l *Ledger) Budget(ctx context.Context, kind berth.BudgetKind, id string) (berth.Budget, error) {
	b, err := find(ctx, l, "read budget", budgetFields, l.selectBudgets()+`kind = $1 AND id = $2`, string(kind), id)
	return b.present(), err
}

// BudgetQuery selects budgets. An empty field matches all.
type BudgetQuery struct {
	Kind berth.BudgetKind
	ID   string
	Team string // selects its budget and those of its keys
}

// Budgets returns a page of the budgets by kind and id, with their use in the present period, and the cursor of the next page, empty after the
// last. limit is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) Budgets(ctx context.Context, q BudgetQuery, cursor string, limit int) (out []berth.Budget, next string, err error) {
	afterKind, afterID := "", ""
	p := pageBehind(cursor, limit, &afterKind, &afterID)
	p.text("kind", string(q.Kind))
	p.text("id", q.ID)
	if q.Team != "" {
		p.addAs(`(kind = '`+string(berth.BudgetTeam)+`' AND id = $%[1]d OR
			kind = '`+string(berth.BudgetKey)+`' AND id IN (SELECT k.id FROM api_keys k WHERE k.team_id = $%[1]d))`, plain(q.Team))
	}
	rows, next, err := listPage(ctx, l, p, "list budgets", budgetFields, l.selectBudgets(),
		`(kind, id) > ($1, $2) ORDER BY kind, id LIMIT CAST($3 AS BIGINT)`, func(b budget) []any { return []any{b.Kind, b.ID} })
	for _, b := range rows {
		out = append(out, b.present())
	}
	return out, next, err
}

// FullestBudgets returns the budgets of which the largest part is used in the present period, the fullest first. One without credits is not
// among them. limit is at most 200.
func (l *Ledger) FullestBudgets(ctx context.Context, limit int) (out []berth.Budget, err error) {
	now := time.Now()
	began := func(p berth.BudgetPeriod) int64 { return millis(p.Began(now)) }
	rows, err := list(ctx, l, "list the fullest budgets", budgetFields, l.selectBudgets()+`used > 0 AND credits > 0
		AND began_at >= CASE period WHEN 'day' THEN CAST($1 AS BIGINT) WHEN 'week' THEN CAST($2 AS BIGINT) WHEN 'month' THEN CAST($3 AS BIGINT) ELSE began_at END
		ORDER BY CAST(used AS DOUBLE PRECISION) / credits DESC, kind, id LIMIT CAST($4 AS BIGINT)`,
		began(berth.PeriodDay), began(berth.PeriodWeek), began(berth.PeriodMonth), clamp(limit, maxPage))
	for _, b := range rows {
		out = append(out, b.present())
	}
	return out, err
}

const deleteBudget = `DELETE FROM budgets WHERE kind = $1 AND id = $2`

// DeleteBudget deletes the budget of a key or a team: its calls are no longer limited. What runs returns nothing to one that is defined later.
// CodeNotFound where there is none.
func (l *Ledger) DeleteBudget(ctx context.Context, kind berth.BudgetKind, id string) error {
	n, err := l.exec(ctx, "delete budget", deleteBudget, kind, plain(id))
	if err == nil && n == 0 {
		err = berth.Errorf(berth.CodeNotFound, "%s %q has no budget", kind, id)
	}
	return err
}
