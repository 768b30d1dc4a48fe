package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth"
)

// keepAssets records which assets the variables and the title of a new task use.
func keepAssets(ctx context.Context, tx *sql.Tx, t berth.Task) error {
	ids := slices.Collect(maps.Values(t.Variables))
	if t.TitleAsset != "" {
		ids = append(ids, t.TitleAsset)
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	args, places := []any{t.UserID, t.ID}, make([]string, len(ids))
	for i, id := range ids {
		args = append(args, id)
		places[i] = fmt.Sprintf("($1, $2, $%d)", len(args))
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO task_assets (user_id, task_id, asset_id) VALUES `+strings.Join(places, ", "), args...)
	return err
}

// assetInUse is true for an asset a of a task that meets a condition, as variable, output or result.
func assetInUse(condition string) string {
	return `(EXISTS (SELECT 1 FROM task_assets u JOIN tasks t ON t.user_id = u.user_id AND t.id = u.task_id
			WHERE u.asset_id = a.id AND t.` + condition + `)
		OR EXISTS (SELECT 1 FROM steps s JOIN tasks t ON t.user_id = s.user_id AND t.id = s.task_id
			WHERE s.output_asset_id = a.id AND t.` + condition + `)
		OR EXISTS (SELECT 1 FROM tasks t WHERE t.result_asset_id = a.id AND t.` + condition + `))`
}

var (
	selectTaskAssets = `SELECT a.id FROM assets a WHERE a.user_id = $1 AND a.erased_at = 0 AND a.id IN (
		SELECT asset_id FROM task_assets WHERE user_id = $1 AND task_id = $2
		UNION SELECT output_asset_id FROM steps WHERE user_id = $1 AND task_id = $2
		UNION SELECT result_asset_id FROM tasks WHERE user_id = $1 AND id = $2) ORDER BY a.id`
	selectAssetInUse = `SELECT ` + assetInUse("erased_at = 0") + ` FROM assets a WHERE a.id = $1`
	selectAssetTasks = `SELECT user_id, id, service_id FROM tasks WHERE user_id = $1 AND result_asset_id = $2
		UNION SELECT t.user_id, t.id, t.service_id FROM steps s JOIN tasks t ON t.user_id = s.user_id AND t.id = s.task_id
		WHERE s.user_id = $1 AND s.output_asset_id = $2`
	selectAssetRuns = `SELECT ` + assetInUse("ended_at = 0") + ` FROM assets a WHERE a.id = $1`
)

// EraseTask erases the texts of a task that has ended: its variables, outputs, result and title, except those that another task of
// the user has, too. The row remains. It is idempotent; CodeConflict while the task runs.
func (l *Ledger) EraseTask(ctx context.Context, task berth.TaskRef) error {
	return l.inTx(ctx, "erase task", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, task)
		if err != nil || !t.ContentErasedAt.IsZero() {
			return err
		}
		if !t.Status.Final() {
			return berth.Errorf(berth.CodeConflict, "the task is running (status %s); cancel it first", t.Status)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE tasks SET erased_at = $3, title = '', title_key = '' WHERE user_id = $1 AND id = $2`,
			t.UserID, t.ID, time.Now().UnixMilli()); err != nil {
			return err
		}
		// The locks order tasks that share an asset and are erased at the same time: the last of them erases it.
		rows, err := tx.QueryContext(ctx, selectTaskAssets+l.dialect.forUpdate, t.UserID, t.ID)
		ids, err := collect("read the task's assets", rows, err, value[string])
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := eraseUnused(ctx, tx, id); err != nil {
				return err
			}
		}
		return writeAudit(ctx, tx, taskEntry(AuditErase, t, t.StepIndex, nil))
	})
}

// eraseUnused erases a content unless a task needs it whose texts are not erased.
func eraseUnused(ctx context.Context, tx *sql.Tx, id string) error {
	var used bool
	if err := tx.QueryRowContext(ctx, selectAssetInUse, id).Scan(&used); err != nil || used {
		return err
	}
	return eraseContent(ctx, tx, id)
}

// eraseContent makes an asset an empty row without passages.
func eraseContent(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM passages WHERE asset_id = $1`, id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE assets SET content = $2, name = '', erased_at = $3 WHERE id = $1`,
		id, []byte{}, time.Now().UnixMilli())
	return err
}

// TaskStream identifies the events of a task.
type TaskStream struct {
	berth.TaskRef
	ServiceID string
}

const eraseTitles = `UPDATE tasks SET title = '', title_key = '' WHERE title_asset = $2 AND title <> ''
	AND user_id = $1 AND id IN (SELECT u.task_id FROM task_assets u WHERE u.asset_id = $2 AND u.user_id = $1)`

// EraseAsset erases the content of an asset, whichever ended tasks have it, with their titles that are taken from it, and returns the
// tasks that produced it: their events have the content, too. It is idempotent; CodeConflict while a task that uses it runs, CodeNotFound when it does not exist or belongs to
// another user.
func (l *Ledger) EraseAsset(ctx context.Context, userID, id string) (producers []TaskStream, err error) {
	err = l.inTx(ctx, "erase asset", func(tx *sql.Tx) error {
		if !storableID(id) {
			return sql.ErrNoRows
		}
		// Before the asset is locked, as EraseTask locks its task first.
		if _, err := tx.ExecContext(ctx, eraseTitles, userID, id); err != nil {
			return err
		}
		var erasedAt int64
		err := tx.QueryRowContext(ctx, `SELECT erased_at FROM assets WHERE id = $1 AND user_id = $2`+l.dialect.forUpdate, id, userID).Scan(&erasedAt)
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, selectAssetTasks, userID, id)
		producers, err = collect("read the asset's tasks", rows, err, func(s *TaskStream) []any {
			return []any{&s.UserID, &s.TaskID, &s.ServiceID}
		})
		if err != nil || erasedAt > 0 {
			return err
		}
		var runs bool
		if err := tx.QueryRowContext(ctx, selectAssetRuns, id).Scan(&runs); err != nil {
			return err
		}
		if runs {
			return berth.Errorf(berth.CodeConflict, "a running task uses the asset; cancel the task first")
		}
		return eraseContent(ctx, tx, id)
	})
	return producers, err
}
