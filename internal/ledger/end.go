package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"berth"
)

// End is the outcome of a task. ResultAssetID belongs to TaskCompleted, Code and Message to the other final statuses.
type End struct {
	berth.TaskRef
	Status        berth.TaskStatus
	ResultAssetID string
	Code          berth.Code
	Message       string
	Detail        json.RawMessage // see berth.Task
	// KeepStreamed keeps the charge of a task that is cancelled after its answer has begun; a metered one is charged for what was used then.
	// A forwarded request is charged for what was passed on, however it ends. Other charges of tasks that did not complete are refunded.
	KeepStreamed bool
	// Unchanged, if set, is UpdatedAt of the row at which the task may be ended. ErrStale when the row has changed since.
	Unchanged time.Time
	// Replacement is the plan of the response that replaces one that fails, nil for none. Its task is created by the same transaction, unless the key
	// is no longer valid or has too little budget.
	Replacement *berth.TaskPlan
}

var setEnd = `UPDATE tasks SET status = $2, result_asset_id = CAST(NULLIF($3, '') AS TEXT), error_code = $4,
	error_message = $5, error_detail = $8, erase_at = $9, updated_at = $6, ended_at = $6 WHERE id = $1 AND user_id = $7 AND ended_at = 0 RETURNING ` + taskColumns.names("")

// FinishTask ends a task by one compare-and-set: the first of all calls decides, and later calls change nothing. All return
// the row. won is true for the deciding call only, and false when that call is repeated because its reply was lost:
// callers must act on the row, not on won.
func (l *Ledger) FinishTask(ctx context.Context, e End) (t berth.Task, won bool, err error) {
	if !e.Status.Final() {
		return t, false, berth.Invalid("status", "%q does not end a task", e.Status)
	}
	var events added
	err = l.inTx(ctx, "finish task", func(tx *sql.Tx) error {
		before, _, err := l.lockTask(ctx, tx, e.TaskRef)
		if err != nil {
			return err
		}
		if !before.CanBecome(before.Status, e.Status) {
			t = before
			return nil
		}
		if !e.Unchanged.IsZero() && !e.Unchanged.Equal(before.UpdatedAt) {
			return stale()
		}
		t, events, err = l.endTask(ctx, tx, before, e)
		won = true
		return err
	})
	if err == nil {
		l.announce(events)
	}
	return t, won && err == nil, err
}

// endTask ends an open task, which is locked and had the state before, and returns its row, with the deliveries of the event.
func (l *Ledger) endTask(ctx context.Context, tx *sql.Tx, before berth.Task, e End) (t berth.Task, events added, err error) {
	now, eraseAt := time.Now(), time.Time{}
	if f := before.Forwarded; f != nil {
		kept, limited := f.Retention.Keeps(e.Status == berth.TaskFailed)
		if f.Response != nil && !f.Response.Store {
			kept, limited = 0, true
		}
		if limited {
			eraseAt = now.Add(max(kept, JoinWithin))
		}
	}
	rows, err := tx.QueryContext(ctx, setEnd, e.TaskID, e.Status, e.ResultAssetID, e.Code, plain(e.Message),
		now.UnixMilli(), e.UserID, string(e.Detail), millis(eraseAt))
	ended, err := collect("end task", rows, err, taskColumns.fields)
	if err != nil {
		return t, nil, err
	}
	t = ended[0]
	interrupted, err := interrupt(ctx, tx, t)
	if err != nil {
		return t, nil, err
	}
	begun := before.Status == berth.TaskStreaming
	kept := t.Status == berth.TaskCompleted || begun && (t.Forwarded != nil && !t.Forwarded.Unread() || (e.KeepStreamed || t.Metered) && t.Status == berth.TaskCancelled)
	refunded, err := settleEnd(ctx, tx, &t, kept)
	if err != nil {
		return t, nil, err
	}
	if e.Replacement != nil && t.Status == berth.TaskFailed {
		if err := l.replace(ctx, tx, &t, *e.Replacement); err != nil {
			return t, nil, err
		}
	}
	if events, err = addTaskEnd(ctx, tx, t); err != nil {
		return t, nil, err
	}
	return t, events, writeAudit(ctx, tx, endEntry(t, refunded, interrupted))
}

// endEntry returns the audit row of an end. What an interrupted call used is not known yet, so the row has no usage then.
func endEntry(t berth.Task, refunded berth.Credits, interrupted bool) AuditEntry {
	detail := map[string]any{"status": t.Status}
	if !interrupted {
		detail["usage"] = t.Usage
	}
	if t.Status == berth.TaskCompleted {
		detail["resultAssetId"] = t.ResultAssetID
		return taskEntry(AuditDone, t, t.StepIndex, detail)
	}
	detail["code"], detail["message"], detail["refunded"] = t.ErrorCode, t.ErrorMessage, refunded
	return taskEntry(AuditError, t, t.StepIndex, detail)
}
