package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

// Submission is the newest task that was accepted for an idempotency key of a user.
type Submission struct {
	// Number counts the tasks of the key from 0.
	Number      int64
	TaskID      string
	RequestHash string
	AcceptedAt  time.Time
	// Status is that of the task; empty when it was withdrawn or removed.
	Status berth.TaskStatus
	// Erased: the texts of the task, or its result, were erased.
	Erased bool
}

// Next returns the number of the task that a request with the key means, and whether that is the newest one. Its request leads to another task if the
// newest one can be repeated, or has expired.
func (s Submission) Next(expired bool) (number int64, newest bool) {
	switch {
	case s.Status == "":
		return s.Number, false
	case expired || s.Status.Repeatable():
		return s.Number + 1, false
	default:
		return s.Number, true
	}
}

// FindSubmission returns the newest task of a key; CodeNotFound for a key that is not in use.
func (l *Ledger) FindSubmission(ctx context.Context, userID, key string) (Submission, error) {
	return find(ctx, l, "find submission", func(s *Submission) []any {
		return []any{&s.Number, &s.TaskID, &s.RequestHash, storedTime{&s.AcceptedAt}, &s.Status, &s.Erased}
	}, `SELECT k.number, k.task_id, k.request_hash, k.accepted_at, COALESCE(t.status, ''),
		COALESCE(t.erased_at, 0) > 0 OR EXISTS (SELECT 1 FROM assets a WHERE a.id = t.result_asset_id AND a.erased_at > 0)
		FROM idempotency_keys k LEFT JOIN tasks t ON t.user_id = k.user_id AND t.id = k.task_id
		WHERE k.user_id = $1 AND k.key = $2`, userID, key)
}

// keepKey makes an accepted task the newest of its key, if it has one. A task with a lower number is late and changes nothing.
func keepKey(ctx context.Context, tx *sql.Tx, t berth.Task) error {
	if t.Key == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO idempotency_keys (user_id, key, number, task_id, request_hash, accepted_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (user_id, key) DO UPDATE SET number = excluded.number,
			task_id = excluded.task_id, request_hash = excluded.request_hash, accepted_at = excluded.accepted_at
		WHERE idempotency_keys.number <= excluded.number`,
		t.UserID, t.Key, t.Number, t.ID, t.RequestHash, millis(t.CreatedAt))
	return err
}

// JoinWithin is how long the answer to a forwarded request can be sent to a retry of its client.
const JoinWithin = 2 * time.Minute

const selectForwarded = `SELECT user_id, id FROM tasks WHERE user_id = $1 AND request_hash = $2 AND forwarded <> 'null' AND erased_at = 0
	AND (ended_at = 0 OR status = 'COMPLETED' AND ended_at > $3) ORDER BY created_at DESC, id DESC LIMIT 100`

// ForwardedTasks returns the newest tasks of a user that forward a request, and have not ended or have completed within JoinWithin. At most 100.
func (l *Ledger) ForwardedTasks(ctx context.Context, userID, requestHash string) ([]berth.TaskRef, error) {
	return list(ctx, l, "find forwarded tasks", refFields, selectForwarded, userID, requestHash, time.Now().Add(-JoinWithin).UnixMilli())
}
