package ledger

import (
	"context"

	"berth"
)

// WithdrawTask deletes a task whose acceptance failed, so that its id can be used again. A task of another request, or one
// that was begun or has ended, is not deleted; a task that does not exist is not an error.
func (l *Ledger) WithdrawTask(ctx context.Context, task berth.TaskRef, requestHash string) error {
	_, err := l.exec(ctx, "withdraw task", `DELETE FROM tasks WHERE user_id = $1 AND id = $2 AND request_hash = $3
		AND fence = 0 AND ended_at = 0`, task.UserID, task.TaskID, requestHash)
	return err
}
