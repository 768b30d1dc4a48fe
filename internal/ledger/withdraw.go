package ledger

import "context"

// WithdrawTask deletes a task whose acceptance failed, so that its id can be used again. A task that was begun or has ended
// is not deleted; a task that does not exist is not an error.
func (l *Ledger) WithdrawTask(ctx context.Context, id string) error {
	_, err := l.exec(ctx, "withdraw task", `DELETE FROM tasks WHERE id = $1 AND fence = 0 AND ended_at = 0`, id)
	return err
}
