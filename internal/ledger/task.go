package ledger

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"berth"
)

const taskColumns = `id, user_id, service_id, template, locale, tier, status, steps, step_index, variables,
	request_hash, fence, COALESCE(result_asset_id, ''), error_code, error_message, input_tokens, output_tokens,
	trace_id, request_id, run_id, created_at, updated_at, deadline_at, ended_at`

const insertTask = `INSERT INTO tasks (id, user_id, service_id, template, locale, tier, status, steps, step_index,
	begun_step, variables, request_hash, fence, error_code, error_message, input_tokens, output_tokens,
	trace_id, request_id, run_id, created_at, updated_at, deadline_at, ended_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, -1, $9, $10, 0, '', '', 0, 0, $11, $12, $13, $14, $15, $16, 0)
	ON CONFLICT (id) DO NOTHING RETURNING ` + taskColumns

// CreateTask stores a task that was accepted, with its audit row. When the id is taken it changes nothing and answers
// the task that has it, whoever's that is: compare UserID and RequestHash before showing it (T7).
func (l *Ledger) CreateTask(ctx context.Context, t berth.Task) (task berth.Task, created bool, err error) {
	if err := checkNew(&t); err != nil {
		return t, false, err
	}
	steps, err := json.Marshal(t.Steps)
	if err != nil {
		return t, false, fmt.Errorf("encode steps: %w", err)
	}
	variables, err := json.Marshal(t.Variables)
	if err != nil {
		return t, false, fmt.Errorf("encode variables: %w", err)
	}
	err = l.inTx(ctx, "create task", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, insertTask, t.ID, t.UserID, t.ServiceID, t.Template, t.Locale, t.Tier,
			t.Status, string(steps), string(variables), t.RequestHash, t.TraceID, t.RequestID, t.RunID,
			millis(t.CreatedAt), time.Now().UnixMilli(), millis(t.DeadlineAt))
		made, err := collect("insert task", rows, err, scanTask)
		if err != nil {
			return err
		}
		if len(made) == 0 {
			task, err = scanTask(tx.QueryRowContext(ctx, selectTask, t.ID))
			return err
		}
		task, created = made[0], true
		return writeAudit(ctx, tx, taskEntry(AuditEnqueue, task, 0, map[string]any{
			"template": task.Template, "tier": task.Tier, "steps": task.Steps,
		}))
	})
	return task, created && err == nil, err
}

func checkNew(t *berth.Task) error {
	switch {
	case !storableID(t.ID):
		return berth.Invalid("taskId", "must not be empty")
	case !storableID(t.UserID):
		return berth.Invalid("userId", "must not be empty")
	case len(t.Steps) == 0:
		return berth.Invalid("template", "has no steps")
	case t.Status.Final():
		return berth.Invalid("status", "a new task cannot have ended")
	}
	if t.Status == "" {
		t.Status = berth.TaskPending
	}
	if t.CreatedAt.IsZero() {
		t.CreatedAt = time.Now()
	}
	t.ServiceID, t.TraceID, t.RequestID = plain(t.ServiceID), plain(t.TraceID), plain(t.RequestID)
	return nil
}

const (
	selectTask     = `SELECT ` + taskColumns + ` FROM tasks WHERE id = $1`
	selectUserTask = selectTask + ` AND user_id = $2`
)

// GetTask answers a task, whoever's it is; CodeNotFound when there is none.
func (l *Ledger) GetTask(ctx context.Context, id string) (berth.Task, error) {
	if !storableID(id) {
		return berth.Task{}, translate("get task", sql.ErrNoRows)
	}
	t, err := scanTask(l.read.QueryRowContext(ctx, selectTask, id))
	return t, translate("get task", err)
}

// GetUserTask answers a task of this user; CodeNotFound when there is none or it is another user's.
func (l *Ledger) GetUserTask(ctx context.Context, userID, id string) (berth.Task, error) {
	if !storableID(id) || !storableID(userID) {
		return berth.Task{}, translate("get task", sql.ErrNoRows)
	}
	t, err := scanTask(l.read.QueryRowContext(ctx, selectUserTask, id, userID))
	return t, translate("get task", err)
}

const listTasks = `SELECT ` + taskColumns + ` FROM tasks
	WHERE user_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4`

// ListTasks answers a page of the user's tasks, the newest first, and the cursor of the next page, empty after
// the last. limit is at most 200; a cursor that is none is CodeInvalid.
func (l *Ledger) ListTasks(ctx context.Context, userID, cursor string, limit int) (tasks []berth.Task, next string, err error) {
	at, id, err := readCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	limit = clamp(limit, 200)
	rows, err := l.read.QueryContext(ctx, listTasks, userID, at, id, limit+1) // one more tells whether there is a next page
	tasks, err = collect("list tasks", rows, err, scanTask)
	if err != nil || len(tasks) <= limit {
		return tasks, "", err
	}
	tasks = tasks[:limit]
	last := tasks[limit-1]
	return tasks, writeCursor(millis(last.CreatedAt), last.ID), nil
}

func writeCursor(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 10) + " " + id))
}

// readCursor is the place after which a page begins; an empty cursor stands before the newest task.
func readCursor(cursor string) (at int64, id string, err error) {
	if cursor == "" {
		return math.MaxInt64, "", nil
	}
	bad := berth.Invalid("cursor", "is not one that a list answered")
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, "", bad.With(err)
	}
	head, id, ok := strings.Cut(string(b), " ")
	at, err = strconv.ParseInt(head, 10, 64)
	if err != nil || !ok || !storableID(id) {
		return 0, "", bad.With(err)
	}
	return at, id, nil
}

const openTasks = `SELECT ` + taskColumns + ` FROM tasks WHERE ended_at = 0 AND id > $1 ORDER BY id LIMIT $2`

// OpenTasks answers tasks that have not ended, in the order of their ids, beginning after the id given: a sweep
// passes the last id it saw. limit is at most 1,000.
func (l *Ledger) OpenTasks(ctx context.Context, after string, limit int) ([]berth.Task, error) {
	rows, err := l.read.QueryContext(ctx, openTasks, after, clamp(limit, 1000))
	return collect("list open tasks", rows, err, scanTask)
}

// SetRun notes the Temporal run that carries the task out.
func (l *Ledger) SetRun(ctx context.Context, id, runID string) error {
	res, err := l.write.ExecContext(ctx, `UPDATE tasks SET run_id = $2 WHERE id = $1`, id, runID)
	if err != nil {
		return translate("set run", err)
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return translate("set run", err)
	}
	return translate("set run", sql.ErrNoRows)
}

func scanTask(row scanner) (berth.Task, error) { return scanTaskAnd(row) }

// scanTaskAnd reads taskColumns and what the query has behind them.
func scanTaskAnd(row scanner, more ...any) (berth.Task, error) {
	var t berth.Task
	var steps, variables string
	var created, updated, deadline, ended int64
	err := row.Scan(append([]any{
		&t.ID, &t.UserID, &t.ServiceID, &t.Template, &t.Locale, &t.Tier, &t.Status, &steps, &t.StepIndex, &variables,
		&t.RequestHash, &t.Fence, &t.ResultAssetID, &t.ErrorCode, &t.ErrorMessage, &t.Usage.InputTokens,
		&t.Usage.OutputTokens, &t.TraceID, &t.RequestID, &t.RunID, &created, &updated, &deadline, &ended,
	}, more...)...)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal([]byte(steps), &t.Steps); err != nil {
		return t, fmt.Errorf("steps of task %s: %w", t.ID, err)
	}
	if err := json.Unmarshal([]byte(variables), &t.Variables); err != nil {
		return t, fmt.Errorf("variables of task %s: %w", t.ID, err)
	}
	t.CreatedAt, t.UpdatedAt = fromMillis(created), fromMillis(updated)
	t.DeadlineAt, t.EndedAt = fromMillis(deadline), fromMillis(ended)
	return t, nil
}
