package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"berth"
)

const saveExecution = `INSERT INTO executions (id, user_id, status, started_at, deadline_at, ended_at, body)
	VALUES ($1, $2, $3, $4, $5, $6, $7)
	ON CONFLICT (id) DO UPDATE SET user_id = excluded.user_id, status = excluded.status, started_at = excluded.started_at,
		deadline_at = excluded.deadline_at, ended_at = excluded.ended_at, body = excluded.body
	WHERE executions.started_at < excluded.started_at
		OR executions.started_at = excluded.started_at AND executions.ended_at = 0`

// SaveExecution stores an execution without its output, and reports whether it did: one that has ended does not change, and one
// that started later than the given one does not either. Idempotent.
func (l *Ledger) SaveExecution(ctx context.Context, e berth.Execution) (saved bool, err error) {
	if !storableID(e.ID) {
		return false, berth.Invalid("executionId", "must not be empty")
	}
	if e.StartedAt.IsZero() || e.DeadlineAt.IsZero() || e.Status.Final() == e.EndedAt.IsZero() {
		return false, berth.Errorf(berth.CodeInternal, "execution %s has no start, deadline or end", e.ID)
	}
	e.Output = nil
	body, err := json.Marshal(e)
	if err != nil {
		return false, fmt.Errorf("save execution: %w", err)
	}
	n, err := l.exec(ctx, "save execution", saveExecution, e.ID, plain(e.UserID), e.Status, millis(e.StartedAt), millis(e.DeadlineAt),
		millis(e.EndedAt), plain(string(body)))
	return n > 0, err
}

const selectExecution = `SELECT body FROM executions `

// GetExecution returns an execution of any user without its output; CodeNotFound when there is none.
func (l *Ledger) GetExecution(ctx context.Context, id string) (berth.Execution, error) {
	return find(ctx, l, "get execution", body[berth.Execution], selectExecution+`WHERE id = $1`, id)
}

// OpenExecutions returns executions that have not ended, by id, behind the given one. limit is at most 1,000.
func (l *Ledger) OpenExecutions(ctx context.Context, after string, limit int) ([]string, error) {
	return list(ctx, l, "open executions", value[string], `SELECT id FROM executions WHERE ended_at = 0 AND id > $1
		ORDER BY id LIMIT CAST($2 AS BIGINT)`, after, clamp(limit, 1000))
}

// OverdueExecutions returns executions that have not ended and whose deadline was before a time, the oldest deadline first, behind
// the given one. limit is at most 1,000.
func (l *Ledger) OverdueExecutions(ctx context.Context, before time.Time, after berth.Execution, limit int) ([]berth.Execution, error) {
	return list(ctx, l, "overdue executions", body[berth.Execution], selectExecution+`WHERE ended_at = 0 AND deadline_at < $1
		AND (deadline_at, id) > ($2, $3) ORDER BY deadline_at, id LIMIT CAST($4 AS BIGINT)`,
		millis(before), millis(after.DeadlineAt), after.ID, clamp(limit, 1000))
}

const deleteExecutions = `DELETE FROM executions WHERE id IN (SELECT id FROM executions WHERE ended_at > 0 AND ended_at < $1
	ORDER BY ended_at LIMIT CAST($2 AS BIGINT))`
