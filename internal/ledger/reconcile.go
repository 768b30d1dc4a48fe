package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"berth"
)

const (
	insertReconciled = `INSERT INTO reconcile_passes (id, kind, status, dry_run, found, left_over, started_at, ended_at, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET status = excluded.status, found = excluded.found,
		left_over = excluded.left_over, ended_at = excluded.ended_at, body = excluded.body`
	deleteQuick = `DELETE FROM reconcile_passes WHERE started_at < $1 AND kind = 'quick'`
	deleteFull  = `DELETE FROM reconcile_passes WHERE started_at < $1`
)

// The passes of a day are kept, and full passes for a month.
const (
	keepPasses     = 24 * time.Hour
	keepFullPasses = 30 * keepPasses
)

// SavePass stores a pass of the reconciliation and removes old ones. Idempotent.
func (l *Ledger) SavePass(ctx context.Context, p berth.ReconcilePass) error {
	if !storableID(p.ID) {
		return berth.Invalid("passId", "must not be empty")
	}
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("save pass: %w", err)
	}
	return l.inTx(ctx, "save pass", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertReconciled, p.ID, p.Kind, p.Status, p.DryRun, p.Found(), p.Left,
			millis(p.StartedAt), millis(p.EndedAt), plain(string(body))); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, deleteQuick, millis(p.StartedAt.Add(-keepPasses))); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, deleteFull, millis(p.StartedAt.Add(-keepFullPasses)))
		return err
	})
}

const selectPass = `SELECT body FROM reconcile_passes `

const selectPasses = selectPass + `WHERE id IN (SELECT id FROM reconcile_passes ORDER BY started_at DESC, id DESC LIMIT CAST($1 AS BIGINT))
	OR id IN (SELECT id FROM reconcile_passes WHERE found > 0 ORDER BY started_at DESC, id DESC LIMIT CAST($1 AS BIGINT))
	ORDER BY started_at DESC, id DESC`

// Passes returns the last passes, and the last that found something, the newest first. limit is of each, at most 100.
func (l *Ledger) Passes(ctx context.Context, limit int) ([]berth.ReconcilePass, error) {
	return list(ctx, l, "list passes", body[berth.ReconcilePass], selectPasses, clamp(limit, 100))
}

// PassHistory is what a pass has to know of earlier ones. Passes that do not exist are zero.
type PassHistory struct {
	// Full is the last full pass, also if it was stopped or is incomplete. Whole is the last full pass that completed, and Completed
	// the last pass of any kind that did.
	Full, Whole, Completed berth.ReconcilePass
	// Unfinished is the last pass since Full, which may be Full itself, that left differences or was incomplete.
	Unfinished berth.ReconcilePass
	// ExpectedSince is since when there is a reconciliation, in the time of the database.
	ExpectedSince time.Time
}

// PassHistory reads the passes that repaired what they found; those of dry runs are not part of it.
func (l *Ledger) PassHistory(ctx context.Context) (h PassHistory, err error) {
	if h.Full, err = l.lastPass(ctx, `kind = 'full' AND status <> 'skipped'`, time.Time{}); err != nil {
		return h, err
	}
	if h.Whole, err = l.lastPass(ctx, `kind = 'full' AND status = 'completed'`, time.Time{}); err != nil {
		return h, err
	}
	if h.Completed, err = l.lastPass(ctx, `status = 'completed'`, time.Time{}); err != nil {
		return h, err
	}
	if h.Unfinished, err = l.lastPass(ctx, `(left_over > 0 OR status = 'incomplete')`, h.Full.StartedAt); err != nil {
		return h, err
	}
	err = l.read.QueryRowContext(ctx, `SELECT since FROM reconcile_since`).Scan(storedTime{&h.ExpectedSince})
	return h, translate("read since when passes are expected", err)
}

// lastPass returns the newest pass since a time that meets a condition, a zero one where there is none.
func (l *Ledger) lastPass(ctx context.Context, condition string, since time.Time) (berth.ReconcilePass, error) {
	p, err := scan(l.read.QueryRowContext(ctx, selectPass+`WHERE NOT dry_run AND started_at >= $1 AND `+condition+
		` ORDER BY started_at DESC, id DESC LIMIT 1`, millis(since)), body[berth.ReconcilePass])
	if errors.Is(err, sql.ErrNoRows) {
		return berth.ReconcilePass{}, nil
	}
	return p, translate("read pass", err)
}

var overdueTasks = `SELECT ` + taskColumns.names("") + ` FROM tasks WHERE ended_at = 0 AND deadline_at < $1
	AND (deadline_at, user_id, id) > ($2, $3, $4) ORDER BY deadline_at, user_id, id LIMIT CAST($5 AS BIGINT)`

// OverdueTasks returns tasks that have not ended and whose deadline was before a time, the oldest deadline first, behind the
// given one. limit is at most 1,000.
func (l *Ledger) OverdueTasks(ctx context.Context, before time.Time, after berth.Task, limit int) ([]berth.Task, error) {
	return list(ctx, l, "list overdue tasks", taskColumns.fields, overdueTasks,
		millis(before), millis(after.DeadlineAt), after.UserID, after.ID, clamp(limit, 1000))
}

// EndedTask is a task that has ended, with what identifies its stream.
type EndedTask struct {
	berth.TaskRef

	ServiceID string
	EndedAt   time.Time
}

const endedTasks = `SELECT user_id, id, service_id, ended_at FROM tasks WHERE ended_at > 0 AND ended_at >= $1
	AND (ended_at, user_id, id) > ($2, $3, $4) ORDER BY ended_at, user_id, id LIMIT CAST($5 AS BIGINT)`

// EndedTasks returns tasks that have ended since a time, the oldest first, behind the given one. limit is at most 1,000.
func (l *Ledger) EndedTasks(ctx context.Context, since time.Time, after EndedTask, limit int) ([]EndedTask, error) {
	return list(ctx, l, "list ended tasks", func(t *EndedTask) []any {
		return []any{&t.UserID, &t.TaskID, &t.ServiceID, storedTime{&t.EndedAt}}
	}, endedTasks, millis(since), millis(after.EndedAt), after.UserID, after.TaskID, clamp(limit, 1000))
}

// OpenConferences returns conferences that have not ended, by id, behind the given one. limit is at most 1,000.
func (l *Ledger) OpenConferences(ctx context.Context, after string, limit int) ([]berth.Conference, error) {
	return list(ctx, l, "open conferences", body[berth.Conference], selectConference+`WHERE status <> 'ended' AND status <> 'deleted' AND id > $1
		ORDER BY id LIMIT CAST($2 AS BIGINT)`, after, clamp(limit, 1000))
}

// RestoreTask stores the row of an accepted task that the database has lost, with its charge. Attempts have at least the given
// fence. If the row exists it changes nothing.
func (l *Ledger) RestoreTask(ctx context.Context, t berth.Task, fence int64) error {
	_, _, err := l.createTask(ctx, t, fence)
	return err
}

// unbalanced selects accounts by user, whose balance is not the sum of their entries.
const unbalanced = `SELECT a.user_id FROM (SELECT user_id, credits FROM accounts WHERE user_id > $1 ORDER BY user_id LIMIT CAST($2 AS BIGINT)) a
	WHERE a.credits <> (SELECT COALESCE(sum(e.amount), 0) FROM credit_entries e WHERE e.user_id = a.user_id) ORDER BY a.user_id`

const lastAccount = `SELECT COALESCE(max(user_id), '') FROM (SELECT user_id FROM accounts WHERE user_id > $1 ORDER BY user_id LIMIT CAST($2 AS BIGINT)) a`

// UnbalancedAccounts examines limit accounts behind a user and returns those whose entries do not sum to the balance, and the last
// account that was examined, empty when there are no more.
func (l *Ledger) UnbalancedAccounts(ctx context.Context, after string, limit int) (users []string, last string, err error) {
	limit = clamp(limit, 1000)
	if err := l.read.QueryRowContext(ctx, lastAccount, after, limit).Scan(&last); err != nil {
		return nil, "", translate("list accounts", err)
	}
	users, err = list(ctx, l, "list unbalanced accounts", value[string], unbalanced, after, limit)
	return users, last, err
}

// Balance compares a balance with the sum of its entries, and corrects it if that is requested. It returns both. CodeConflict when
// the sum is negative, which no balance can be.
func (l *Ledger) Balance(ctx context.Context, userID string, correct bool) (credits, sum berth.Credits, err error) {
	err = l.inTx(ctx, "compare balance", func(tx *sql.Tx) error {
		if credits, err = l.lockAccount(ctx, tx, userID); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, `SELECT CAST(COALESCE(sum(amount), 0) AS BIGINT) FROM credit_entries WHERE user_id = $1`,
			userID).Scan(&sum); err != nil || sum == credits || !correct {
			return err
		}
		if sum < 0 {
			return berth.Errorf(berth.CodeConflict, "the entries sum to %s; add credits to the account", sum)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE accounts SET credits = $2 WHERE user_id = $1`, userID, sum); err != nil {
			return err
		}
		detail, err := json.Marshal(map[string]berth.Credits{"before": credits, "after": sum})
		if err != nil {
			return fmt.Errorf("detail of a correction: %w", err)
		}
		return writeAudit(ctx, tx, AuditEntry{UserID: userID, Event: AuditBalance, Detail: detail})
	})
	return credits, sum, err
}
