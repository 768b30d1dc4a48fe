package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

const (
	sumCharged = `SELECT CAST(COALESCE(SUM(credits), 0) AS BIGINT) FROM usage_log WHERE user_id = $1 AND task_id = $2`
	// clearCharged: nothing is charged for the calls of a task that is refunded.
	clearCharged = `UPDATE usage_log SET credits = 0 WHERE user_id = $1 AND task_id = $2`
	// chargeLastCall charges the price of a task with its last call.
	chargeLastCall = `UPDATE usage_log SET credits = $3 WHERE user_id = $1 AND task_id = $2 AND (step, fence, call_no) = (SELECT step, fence, call_no
		FROM usage_log WHERE user_id = $1 AND task_id = $2 ORDER BY step DESC, fence DESC, call_no DESC LIMIT 1)`
	setSettled = `UPDATE tasks SET price = $3, unsettled = false WHERE user_id = $1 AND id = $2`
	// outcomeUnknown counts the calls of the last attempt that were interrupted by the end of their task: their worker knows what they used.
	outcomeUnknown = `SELECT COUNT(*) FROM usage_log WHERE user_id = $1 AND task_id = $2 AND fence = $3
		AND error_code = '` + string(berth.CodeInterrupted) + `'`
	selectUnsettled = `SELECT user_id, id FROM tasks WHERE unsettled AND ended_at > 0 AND ended_at < $1 AND (user_id, id) > ($2, $3)
		ORDER BY user_id, id LIMIT CAST($4 AS BIGINT)`
)

// creditsOf returns what the user of a task is charged for a call: only calls of metered tasks cost something by themselves, and only those
// whose answer is used, or was being read when the task was cancelled. Of a forwarded request, an answer of which something was passed on is used, and its
// worker states credits for no other one; but of one that may be made again, only the last. All together never exceed what is reserved.
func creditsOf(ctx context.Context, tx *sql.Tx, t berth.Task, c ModelCall) (berth.Credits, error) {
	read := c.Fence == t.Fence && (t.Status == berth.TaskCancelled || t.Forwarded != nil) || t.Forwarded != nil && !t.Forwarded.MayRepeat()
	if !t.Unsettled || !c.Success && !read || c.Credits <= 0 {
		return 0, nil
	}
	var used berth.Credits
	err := tx.QueryRowContext(ctx, sumCharged, t.UserID, t.ID).Scan(&used)
	return min(c.Credits, t.Price-used), err
}

// settleEnd charges a task that has just ended, or refunds it, and returns what was refunded. A metered task whose last call was interrupted
// by the end is settled when the outcome of that call is recorded.
func settleEnd(ctx context.Context, tx *sql.Tx, t *berth.Task, charged bool) (refunded berth.Credits, err error) {
	switch {
	case t.Price == 0 || t.Metered && !t.Unsettled:
		return 0, nil
	case !charged:
		refunded = t.Price
		if err := refund(ctx, tx, *t, refunded); err != nil || !t.Metered {
			return refunded, err
		}
		if _, err := tx.ExecContext(ctx, clearCharged, t.UserID, t.ID); err != nil {
			return 0, err
		}
		return refunded, setPrice(ctx, tx, t, 0)
	case !t.Metered:
		_, err = tx.ExecContext(ctx, chargeLastCall, t.UserID, t.ID, t.Price)
		return 0, err
	}
	unknown := 0
	if err := tx.QueryRowContext(ctx, outcomeUnknown, t.UserID, t.ID, t.Fence).Scan(&unknown); err != nil || unknown > 0 {
		return 0, err
	}
	return settle(ctx, tx, t)
}

// settle charges a metered task for its calls, and returns the rest of what was reserved.
func settle(ctx context.Context, tx *sql.Tx, t *berth.Task) (refunded berth.Credits, err error) {
	var used berth.Credits
	if err := tx.QueryRowContext(ctx, sumCharged, t.UserID, t.ID).Scan(&used); err != nil {
		return 0, err
	}
	refunded = t.Price - used
	if err := refund(ctx, tx, *t, refunded); err != nil {
		return 0, err
	}
	return refunded, setPrice(ctx, tx, t, used)
}

func setPrice(ctx context.Context, tx *sql.Tx, t *berth.Task, price berth.Credits) error {
	t.Price, t.Unsettled = price, false
	_, err := tx.ExecContext(ctx, setSettled, t.UserID, t.ID, price)
	return err
}

// SettleTask settles a metered task that has ended, by the calls whose outcome is recorded. It is idempotent.
func (l *Ledger) SettleTask(ctx context.Context, task berth.TaskRef) error {
	return l.inTx(ctx, "settle task", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, task)
		if err != nil || !t.Status.Final() || !t.Unsettled {
			return err
		}
		_, err = settle(ctx, tx, &t)
		return err
	})
}

// UnsettledTasks returns a page of the metered tasks that ended before a time and are not settled, ordered by user and id. limit is at most
// 1,000.
func (l *Ledger) UnsettledTasks(ctx context.Context, before time.Time, after berth.TaskRef, limit int) ([]berth.TaskRef, error) {
	return list(ctx, l, "list unsettled tasks", refFields, selectUnsettled, before.UnixMilli(), after.UserID, after.TaskID, clamp(limit, 1000))
}
