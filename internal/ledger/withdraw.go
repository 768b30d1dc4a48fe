package ledger

import (
	"context"
	"database/sql"

	"berth"
)

var deleteUnbegun = `DELETE FROM tasks WHERE user_id = $1 AND id = $2 AND request_hash = $3 AND fence = 0 AND ended_at = 0
	RETURNING ` + taskColumns.names("")

// WithdrawTask deletes a task whose acceptance failed and refunds its charge, so that its id can be used again. A task of
// another request, or one that was begun or has ended, is not deleted; a task that does not exist is not an error.
func (l *Ledger) WithdrawTask(ctx context.Context, task berth.TaskRef, requestHash string) error {
	return l.inTx(ctx, "withdraw task", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, deleteUnbegun, task.UserID, task.TaskID, requestHash)
		deleted, err := collect("delete task", rows, err, taskColumns.fields)
		if err != nil || len(deleted) == 0 {
			return err
		}
		t := deleted[0]
		if err := refund(ctx, tx, t, t.Price); err != nil {
			return err
		}
		return writeAudit(ctx, tx, taskEntry(AuditError, t, 0, map[string]any{"withdrawn": true, "refunded": t.Price}))
	})
}
