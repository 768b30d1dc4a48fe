package ledger

import (
	"context"
	"database/sql"

	"berth"
)

const (
	setForwarded = `UPDATE tasks SET forwarded = $3 WHERE user_id = $1 AND id = $2`
	setEvents    = `UPDATE tasks SET result_asset_id = $3 WHERE user_id = $1 AND id = $2`
)

// FollowResponse records that a client reads the events of a response that has not ended, and returns the task: text of attempts before its fence is not
// a part of the answer. CodeNotFound if the task is none of a response.
func (l *Ledger) FollowResponse(ctx context.Context, task berth.TaskRef) (t berth.Task, err error) {
	err = l.inTx(ctx, "follow response", func(tx *sql.Tx) error {
		if t, _, err = l.lockTask(ctx, tx, task); err != nil {
			return err
		}
		switch {
		case t.Response() == nil:
			return berth.Errorf(berth.CodeNotFound, "not found").With(ErrNoTask)
		case t.Status.Final() || !t.Forwarded.MayRepeat():
			return nil
		}
		t.Response().Followed = true
		_, err = tx.ExecContext(ctx, setForwarded, t.UserID, t.ID, storedJSON{t.Forwarded})
		return err
	})
	return t, err
}

const (
	selectKeyValid = `SELECT EXISTS (SELECT 1 FROM api_keys WHERE id = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2))`
	beforeReplaced = `SAVEPOINT before_replaced`
	notReplaced    = `ROLLBACK TO SAVEPOINT before_replaced`
)

// replace creates the task of a response that replaces t, which has just failed.
func (l *Ledger) replace(ctx context.Context, tx *sql.Tx, t *berth.Task, plan berth.TaskPlan) error {
	var valid bool
	if err := tx.QueryRowContext(ctx, selectKeyValid, t.Forwarded.KeyID, t.EndedAt.UnixMilli()).Scan(&valid); err != nil || !valid {
		return err
	}
	replacement := berth.Task{TaskPlan: plan, CreatedAt: t.EndedAt, DeadlineAt: t.EndedAt.Add(t.DeadlineAt.Sub(t.CreatedAt))}
	if err := prepareNew(&replacement); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, beforeReplaced); err != nil {
		return err
	}
	if _, _, err := l.insertTask(ctx, tx, replacement); berth.CodeOf(err) == berth.CodeBudgetExceeded {
		_, err = tx.ExecContext(ctx, notReplaced)
		return err
	} else if err != nil {
		return err
	}
	t.Response().ReplacedBy = plan.ID
	_, err := tx.ExecContext(ctx, setForwarded, t.UserID, t.ID, storedJSON{t.Forwarded})
	return err
}

// SaveEvents stores the events of a response that has failed or was cancelled, with the last one. The first call decides.
func (l *Ledger) SaveEvents(ctx context.Context, task berth.TaskRef, events berth.Asset) error {
	return l.inTx(ctx, "save events", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, task)
		if err != nil || !t.Status.Final() || t.ResultAssetID != "" || !t.ContentErasedAt.IsZero() {
			return err
		}
		events.UserID = t.UserID
		asset, err := putAsset(ctx, tx, events)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, setEvents, t.UserID, t.ID, asset.ID)
		return err
	})
}
