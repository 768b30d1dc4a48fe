package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"strconv"
	"time"

	"berth"
)

var taskColumns = columns[berth.Task]{
	{"id", func(t *berth.Task) any { return &t.ID }},
	{"user_id", func(t *berth.Task) any { return &t.UserID }},
	{"service_id", func(t *berth.Task) any { return &t.ServiceID }},
	{"team_id", func(t *berth.Task) any { return &t.Team }},
	{"app_id", func(t *berth.Task) any { return &t.App }},
	{"end_user", func(t *berth.Task) any { return &t.EndUser }},
	{"template", func(t *berth.Task) any { return &t.Template }},
	{"template_version", func(t *berth.Task) any { return &t.TemplateVersion }},
	{"locale", func(t *berth.Task) any { return &t.Locale }},
	{"tier", func(t *berth.Task) any { return &t.Tier }},
	{"status", func(t *berth.Task) any { return &t.Status }},
	{"steps", func(t *berth.Task) any { return storedJSON{&t.Steps} }},
	{"step_index", func(t *berth.Task) any { return &t.StepIndex }},
	{"variables", func(t *berth.Task) any { return storedJSON{&t.Variables} }},
	{"price", func(t *berth.Task) any { return &t.Price }},
	{"metered", func(t *berth.Task) any { return &t.Metered }},
	{"unsettled", func(t *berth.Task) any { return &t.Unsettled }},
	{"budgets", func(t *berth.Task) any { return storedJSON{&t.Budgets} }},
	{"forwarded", func(t *berth.Task) any { return storedJSON{&t.Forwarded} }},
	{"title", func(t *berth.Task) any { return &t.Title }},
	{"title_asset", func(t *berth.Task) any { return &t.TitleAsset }},
	{"request_hash", func(t *berth.Task) any { return &t.RequestHash }},
	{"fence", func(t *berth.Task) any { return &t.Fence }},
	{"result_asset_id", func(t *berth.Task) any { return storedReference{&t.ResultAssetID} }},
	{"error_code", func(t *berth.Task) any { return &t.ErrorCode }},
	{"error_message", func(t *berth.Task) any { return &t.ErrorMessage }},
	{"error_detail", func(t *berth.Task) any { return &t.ErrorDetail }},
	{"input_tokens", func(t *berth.Task) any { return &t.Usage.InputTokens }},
	{"output_tokens", func(t *berth.Task) any { return &t.Usage.OutputTokens }},
	{"finish_reason", func(t *berth.Task) any { return &t.FinishReason }},
	{"simulated", func(t *berth.Task) any { return &t.Simulated }},
	{"prompt_truncated", func(t *berth.Task) any { return &t.PromptTruncated }},
	{"trace_id", func(t *berth.Task) any { return &t.TraceID }},
	{"request_id", func(t *berth.Task) any { return &t.RequestID }},
	{"created_at", func(t *berth.Task) any { return storedTime{&t.CreatedAt} }},
	{"updated_at", func(t *berth.Task) any { return storedTime{&t.UpdatedAt} }},
	{"deadline_at", func(t *berth.Task) any { return storedTime{&t.DeadlineAt} }},
	{"ended_at", func(t *berth.Task) any { return storedTime{&t.EndedAt} }},
	{"erased_at", func(t *berth.Task) any { return storedTime{&t.ContentErasedAt} }},
}

var insertTask = taskColumns.insert("tasks", [2]string{"begun_step", "-1"}, [2]string{"called_step", "-1"}, [2]string{"erase_at", "0"},
	[2]string{"title_key", "$" + strconv.Itoa(len(taskColumns)+1)}) +
	` ON CONFLICT (user_id, id) DO NOTHING RETURNING ` + taskColumns.names("")

// CreateTask stores an accepted task with its charge, its idempotency key and its audit row, in one transaction. When the
// price cannot be charged, the task is of the free tier. When the user has a task with the id it changes nothing and returns
// that task, which may be of another request: compare RequestHash.
func (l *Ledger) CreateTask(ctx context.Context, t berth.Task) (task berth.Task, created bool, err error) {
	return l.createTask(ctx, t, 0)
}

func (l *Ledger) createTask(ctx context.Context, t berth.Task, fence int64) (task berth.Task, created bool, err error) {
	if err := prepareNew(&t); err != nil {
		return t, false, err
	}
	t.Fence = fence
	err = l.inTx(ctx, "create task", func(tx *sql.Tx) error {
		task, created, err = l.insertTask(ctx, tx, t)
		return err
	})
	return task, created && err == nil, err
}

// insertTask is CreateTask in a transaction, for a prepared task.
func (l *Ledger) insertTask(ctx context.Context, tx *sql.Tx, t berth.Task) (task berth.Task, created bool, err error) {
	if t.Title, err = titleOf(ctx, tx, t); err != nil {
		return task, false, err
	}
	rows, err := tx.QueryContext(ctx, insertTask, append(taskColumns.values(&t), titleKey(t.Title))...)
	inserted, err := collect("insert task", rows, err, taskColumns.fields)
	if err != nil {
		return task, false, err
	}
	if len(inserted) == 0 {
		task, err = scan(tx.QueryRowContext(ctx, selectTask, t.UserID, t.ID), taskColumns.fields)
		return task, false, err
	}
	if task, err = l.chargeNew(ctx, tx, t, inserted[0]); err != nil {
		return task, false, err
	}
	if err := keepKey(ctx, tx, t); err != nil {
		return task, false, err
	}
	if err := keepAssets(ctx, tx, t); err != nil {
		return task, false, err
	}
	return task, true, writeAudit(ctx, tx, taskEntry(AuditEnqueue, task, 0, map[string]any{
		"template": task.Template, "tier": task.Tier, "price": task.Price, "steps": task.Steps,
	}))
}

// chargeNew charges for a new row. Without enough credits it changes the row to the free tier, which a forwarded request has not.
func (l *Ledger) chargeNew(ctx context.Context, tx *sql.Tx, plan, row berth.Task) (berth.Task, error) {
	if plan.Price == 0 {
		return row, nil
	}
	if f := plan.Forwarded; f != nil {
		p := payer{Ref: row.Ref(), KeyID: f.KeyID, TeamID: row.Team}
		if err := l.take(ctx, tx, &p, row.Price); err != nil {
			return row, err
		}
		row.Budgets = p.Budgets
		_, err := tx.ExecContext(ctx, `UPDATE tasks SET budgets = $3 WHERE user_id = $1 AND id = $2`, row.UserID, row.ID, storedJSON{&row.Budgets})
		return row, err
	}
	if _, paid, err := l.charge(ctx, tx, row.Ref(), row.Price); paid || err != nil {
		return row, err
	}
	row.TaskPlan = plan.Free()
	row.Key, row.Number, row.Unsettled = "", 0, false
	_, err := tx.ExecContext(ctx, `UPDATE tasks SET tier = $3, steps = $4, price = 0, metered = false, unsettled = false WHERE user_id = $1 AND id = $2`,
		row.UserID, row.ID, row.Tier, storedJSON{&row.Steps})
	return row, err
}

// prepareNew checks a new task and sets its initial values.
func prepareNew(t *berth.Task) error {
	switch {
	case !storableID(t.ID):
		return berth.Invalid("taskId", "must not be empty")
	case !storableID(t.UserID):
		return berth.Invalid("userId", "must not be empty")
	case len(t.Steps) == 0:
		return berth.Invalid("template", "has no steps")
	case t.Price < 0 || t.Price > 0 && len(t.FreeSteps) == 0 && t.Forwarded == nil:
		return berth.Invalid("price", "must not be negative, and needs the steps of the free tier")
	case t.Status.Final():
		return berth.Invalid("status", "a new task cannot have ended")
	}
	t.Status = cmp.Or(t.Status, berth.TaskPending)
	now := time.Now()
	if t.CreatedAt.IsZero() {
		t.CreatedAt = now
	}
	t.UpdatedAt, t.EndedAt, t.ContentErasedAt = now, time.Time{}, time.Time{}
	t.StepIndex, t.Fence, t.Usage = 0, 0, berth.Usage{}
	t.Unsettled = t.Metered && t.Price > 0
	t.ResultAssetID, t.ErrorCode, t.ErrorMessage, t.ErrorDetail, t.Budgets = "", "", "", "", nil
	t.Key, t.Number = plain(t.Key), max(t.Number, 0)
	t.FinishReason, t.Simulated, t.PromptTruncated = "", false, false
	t.ServiceID, t.TraceID, t.RequestID = plain(t.ServiceID), plain(t.TraceID), plain(t.RequestID)
	t.Team, t.App, t.EndUser = plain(t.Team), plain(t.App), plain(t.EndUser)
	return nil
}

var (
	selectTask      = `SELECT ` + taskColumns.names("") + ` FROM tasks WHERE user_id = $1 AND id = $2`
	selectTasksByID = `SELECT ` + taskColumns.names("") + ` FROM tasks WHERE id = $1 ORDER BY user_id LIMIT CAST($2 AS BIGINT)`
)

// GetTask returns a task; CodeNotFound when the user has none with this id.
func (l *Ledger) GetTask(ctx context.Context, task berth.TaskRef) (berth.Task, error) {
	return find(ctx, l, "get task", taskColumns.fields, selectTask, task.UserID, task.TaskID)
}

// TasksByID returns the tasks of all users that have this id, ordered by user. limit is at most 100.
func (l *Ledger) TasksByID(ctx context.Context, id string, limit int) ([]berth.Task, error) {
	if !storableID(id) {
		return nil, nil
	}
	return list(ctx, l, "find tasks", taskColumns.fields, selectTasksByID, id, clamp(limit, 100))
}

// TaskQuery selects tasks. Empty fields match all. From is inclusive, To exclusive.
type TaskQuery struct {
	UserID   string
	Status   berth.TaskStatus
	Template berth.Template
	Service  string
	Team     string
	Open     bool // that have not ended
	// Title has words that occur in the title in this order, whatever their case. It needs a UserID: the index has the titles of a user.
	Title    string
	From, To time.Time // of the acceptance
}

// The page is found in an index that has all columns of the filters, then its rows are read: SQLite keeps the order of a cross join.
var selectTasks = `SELECT ` + taskColumns.names("t.") + ` FROM (SELECT user_id, id FROM tasks WHERE `

const (
	withTitle   = `title_key LIKE $%d ESCAPE '\'`
	pageOfTasks = `(created_at, id, user_id) < ($1, $2, $3) ORDER BY created_at DESC, id DESC, user_id DESC LIMIT CAST($4 AS BIGINT)) AS page
	CROSS JOIN tasks t WHERE t.user_id = page.user_id AND t.id = page.id ORDER BY t.created_at DESC, t.id DESC, t.user_id DESC`
)

// ListTasks returns a page of tasks, the newest first, and the cursor of the next page, empty after
// the last. limit is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) ListTasks(ctx context.Context, q TaskQuery, cursor string, limit int) (tasks []berth.Task, next string, err error) {
	at, id, user := int64(math.MaxInt64), "", ""
	p := pageBehind(cursor, limit, &at, &id, &user)
	p.text("user_id", q.UserID)
	p.text("status", string(q.Status))
	p.text("template", string(q.Template))
	p.text("service_id", q.Service)
	p.text("team_id", q.Team)
	if q.Open {
		p.where.WriteString("ended_at = 0 AND ")
	}
	if q.Title != "" {
		p.addAs(withTitle, titlePattern(plain(q.Title)))
	}
	p.between(q.From, q.To)
	return listPage(ctx, l, p, "list tasks", taskColumns.fields, selectTasks, pageOfTasks, func(t berth.Task) []any {
		return []any{millis(t.CreatedAt), t.ID, t.UserID}
	})
}

var waitingTasks = `SELECT ` + taskColumns.names("") + ` FROM tasks
	WHERE ended_at = 0 AND begun_step < step_index AND (user_id, id) > ($1, $2) ORDER BY user_id, id LIMIT $3`

// WaitingTasks returns open tasks whose current step no attempt has begun, ordered by user and id, after the given one. limit is at
// most 1,000.
func (l *Ledger) WaitingTasks(ctx context.Context, after berth.TaskRef, limit int) ([]berth.Task, error) {
	return list(ctx, l, "list waiting tasks", taskColumns.fields, waitingTasks, after.UserID, after.TaskID, clamp(limit, 1000))
}

const openTasks = `SELECT user_id, id FROM tasks WHERE ended_at = 0 AND (user_id, id) > ($1, $2) ORDER BY user_id, id LIMIT $3`

// OpenTasks returns tasks that have not ended, ordered by user and id, after the given one. limit is at most 1,000.
func (l *Ledger) OpenTasks(ctx context.Context, after berth.TaskRef, limit int) ([]berth.TaskRef, error) {
	return list(ctx, l, "list open tasks", refFields, openTasks, after.UserID, after.TaskID, clamp(limit, 1000))
}

func refFields(t *berth.TaskRef) []any { return []any{&t.UserID, &t.TaskID} }
