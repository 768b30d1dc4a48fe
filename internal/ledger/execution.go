package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"berth"
)

const saveExecution = `INSERT INTO executions (key, id, user_id, status, started_at, deadline_at, ended_at, body)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
	ON CONFLICT (key) DO UPDATE SET status = excluded.status, started_at = excluded.started_at,
		deadline_at = excluded.deadline_at, ended_at = excluded.ended_at, body = excluded.body
	WHERE executions.started_at < excluded.started_at OR executions.started_at = excluded.started_at AND executions.ended_at = 0`

// SaveExecution stores an execution without its output, and reports whether it did: one that has ended does not change, and one
// that started later than the given one does not either. Idempotent.
func (l *Ledger) SaveExecution(ctx context.Context, e berth.ExecutionRow) (saved bool, err error) {
	if !storableID(e.ID) || !storableID(e.Key) {
		return false, berth.Invalid("executionId", "must not be empty")
	}
	if e.StartedAt.IsZero() || e.DeadlineAt.IsZero() || e.Status.Final() == e.EndedAt.IsZero() {
		return false, berth.Errorf(berth.CodeInternal, "execution %s has no start, deadline or end", e.Key)
	}
	e.Output = nil
	body, err := json.Marshal(e.Execution)
	if err != nil {
		return false, fmt.Errorf("save execution: %w", err)
	}
	args := []any{
		e.Key, e.ID, plain(e.UserID), e.Status, millis(e.StartedAt), millis(e.DeadlineAt), millis(e.EndedAt), plain(string(body)),
	}
	if !e.Status.Final() {
		n, err := l.exec(ctx, "save execution", saveExecution, args...)
		return n > 0, err
	}
	var events added
	err = l.inTx(ctx, "save execution", func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, saveExecution, args...)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		saved = true
		events, err = addExecutionEnd(ctx, tx, e.Execution)
		return err
	})
	if err != nil {
		return false, err
	}
	l.announce(events)
	return saved, nil
}

const (
	selectExecution      = `SELECT key, body FROM executions `
	selectExecutionsByID = selectExecution + `WHERE id = $1` // of all users
)

func executionFields(e *berth.ExecutionRow) []any { return []any{&e.Key, storedJSON{&e.Execution}} }

// GetExecution returns the execution with a key without its output; CodeNotFound when there is none.
func (l *Ledger) GetExecution(ctx context.Context, key string) (berth.ExecutionRow, error) {
	return find(ctx, l, "get execution", executionFields, selectExecution+`WHERE key = $1`, key)
}

// FindExecution returns a user's execution without its output; CodeNotFound when there is none.
func (l *Ledger) FindExecution(ctx context.Context, ref berth.ExecutionRef) (berth.ExecutionRow, error) {
	return find(ctx, l, "find execution", executionFields, selectExecutionsByID+` AND user_id = $2`, ref.ExecutionID, ref.UserID)
}

// ExecutionsByID returns the executions of all users that have an id, without their outputs.
func (l *Ledger) ExecutionsByID(ctx context.Context, id string, limit int) ([]berth.ExecutionRow, error) {
	if !storableID(id) {
		return nil, nil
	}
	return list(ctx, l, "find executions", executionFields, selectExecutionsByID+` LIMIT CAST($2 AS BIGINT)`, id, limit)
}

// OpenExecutions returns the keys of executions that have not ended, in order, behind the given one. limit is at most 1,000.
func (l *Ledger) OpenExecutions(ctx context.Context, after string, limit int) ([]string, error) {
	return list(ctx, l, "open executions", value[string], `SELECT key FROM executions WHERE ended_at = 0 AND key > $1
		ORDER BY key LIMIT CAST($2 AS BIGINT)`, after, clamp(limit, 1000))
}

// OverdueExecutions returns executions that have not ended and whose deadline was before a time, the oldest deadline first, behind
// the given one. limit is at most 1,000.
func (l *Ledger) OverdueExecutions(ctx context.Context, before time.Time, after berth.ExecutionRow, limit int) ([]berth.ExecutionRow, error) {
	return list(ctx, l, "overdue executions", executionFields, selectExecution+`WHERE ended_at = 0 AND deadline_at < $1
		AND (deadline_at, key) > ($2, $3) ORDER BY deadline_at, key LIMIT CAST($4 AS BIGINT)`,
		millis(before), millis(after.DeadlineAt), after.Key, clamp(limit, 1000))
}

const deleteExecutions = `DELETE FROM executions WHERE key IN (SELECT key FROM executions WHERE ended_at > 0 AND ended_at < $1
	ORDER BY ended_at LIMIT CAST($2 AS BIGINT))`
