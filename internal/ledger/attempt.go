package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"time"

	"berth"
)

// Attempt is the result of BeginAttempt.
type Attempt struct {
	// Fence owns the task from now on: writes with an older fence are rejected. 0 when Done or Final.
	Fence int64
	// Done: the step is already recorded, with OutputAssetID. The model must not be called again.
	Done          bool
	OutputAssetID string
	// First marks the first attempt of this step. It is reported once, even when that reply is lost.
	First bool
	// Called: an earlier attempt of this step has called a provider, so readers may have a part of its answer.
	Called bool
	// Begun: an earlier attempt has passed on something of the answer to a forwarded request, which a client may have read.
	Begun bool
	// Bought is the number of answers that earlier attempts of this step have bought, with the calls that were interrupted.
	Bought int
	// Final: the task has ended, nothing is left to do.
	Final bool
}

// reached is how far a task has come: the furthest step that had an attempt, and the furthest for which a provider was called.
type reached struct{ begun, called int }

// lockTask reads the task, and locks it against other writers until the transaction ends. Later reads in the transaction are
// therefore current.
func (l *Ledger) lockTask(ctx context.Context, tx *sql.Tx, task berth.TaskRef) (t berth.Task, r reached, err error) {
	row := tx.QueryRowContext(ctx,
		`SELECT `+taskColumns.names("")+`, begun_step, called_step FROM tasks WHERE user_id = $1 AND id = $2`+l.dialect.forUpdate,
		task.UserID, task.TaskID)
	err = row.Scan(append(taskColumns.fields(&t), &r.begun, &r.called)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = berth.Errorf(berth.CodeNotFound, "not found").With(ErrNoTask)
	}
	return t, r, err
}

// BeginAttempt starts an attempt at a step: it raises the fence, moves the status forward to the given one, and reserves the
// row of the usage log.
func (l *Ledger) BeginAttempt(ctx context.Context, task berth.TaskRef, step int, status berth.TaskStatus) (Attempt, error) {
	var a Attempt
	err := l.inTx(ctx, "begin attempt", func(tx *sql.Tx) error {
		t, r, err := l.lockTask(ctx, tx, task)
		if err != nil {
			return err
		}
		if err := checkStep(t, step, status); err != nil {
			return err
		}
		a = Attempt{Final: t.Status.Final()}
		_, a.OutputAssetID, err = finished(ctx, tx, task, step)
		if err != nil {
			return err
		}
		if a.Done = a.OutputAssetID != ""; a.Done || a.Final {
			return nil
		}
		a.Fence, a.First, a.Called = t.Fence+1, step > r.begun, step <= r.called
		a.Begun = t.Forwarded != nil && t.Status == berth.TaskStreaming && !t.Forwarded.MayRepeat()
		if _, err := tx.ExecContext(ctx, `UPDATE tasks SET fence = $2, status = $3, step_index = $4, begun_step = $5,
			updated_at = $6 WHERE id = $1 AND user_id = $7`, task.TaskID, a.Fence, furthest(t, status),
			max(step, t.StepIndex), max(step, r.begun), time.Now().UnixMilli(), task.UserID); err != nil {
			return err
		}
		if _, err := interrupt(ctx, tx, t); err != nil {
			return err
		}
		if t.Forwarded != nil && t.Forwarded.MayRepeat() { // what arrived so far is never delivered
			if _, err := tx.ExecContext(ctx, clearCharged, task.UserID, task.TaskID); err != nil {
				return err
			}
		}
		if err := tx.QueryRowContext(ctx, countBought, task.UserID, task.TaskID, step).Scan(&a.Bought); err != nil {
			return err
		}
		return reserve(ctx, tx, t, CallStart{Step: step, Fence: a.Fence})
	})
	if err != nil {
		return Attempt{}, err
	}
	return a, nil
}

// OwnsTask reports whether the task is open and this fence is its newest.
func (l *Ledger) OwnsTask(ctx context.Context, task berth.TaskRef, fence int64) (bool, error) {
	found, err := list(ctx, l, "check fence", value[string],
		`SELECT id FROM tasks WHERE user_id = $1 AND id = $2 AND fence = $3 AND ended_at = 0`, task.UserID, task.TaskID, fence)
	return len(found) > 0, err
}

// CallStart is the start of a step, or of another model call of it.
type CallStart struct {
	berth.TaskRef
	Step  int
	Fence int64
	// Status is the task's new status; an earlier one has no effect.
	Status berth.TaskStatus
	// Call numbers the model calls of the attempt from 0, and Provider is called, as Upstream of the model. Without a provider, the attempt
	// makes no call: it has the answer of an earlier one.
	Call               int
	Provider, Upstream string
}

// StartCall moves the task's status forward, records in the usage log that a provider is called, and audits the step's first call. It is
// idempotent. CodeConflict when a newer attempt owns the task (ErrStale) or the task has ended (ErrFinal).
func (l *Ledger) StartCall(ctx context.Context, c CallStart) error {
	return l.inTx(ctx, "start call", func(tx *sql.Tx) error {
		t, r, err := l.lockTask(ctx, tx, c.TaskRef)
		if err != nil {
			return err
		}
		if err := checkOwner(t, c.Fence); err != nil {
			return err
		}
		if err := checkStep(t, c.Step, c.Status); err != nil {
			return err
		}
		status, called := furthest(t, c.Status), r.called
		if c.Provider != "" {
			if err := reserve(ctx, tx, t, c); err != nil {
				return err
			}
			called = max(c.Step, r.called)
		}
		if status == t.Status && called == r.called {
			return nil
		}
		if _, err = tx.ExecContext(ctx, `UPDATE tasks SET status = $3, called_step = $4, updated_at = $5 WHERE user_id = $1 AND id = $2`,
			c.UserID, c.TaskID, status, called, time.Now().UnixMilli()); err != nil || called == r.called {
			return err
		}
		s := t.Steps[c.Step]
		return writeAudit(ctx, tx, taskEntry(AuditStart, t, c.Step, map[string]any{
			"step": c.Step, "name": s.Name, "model": s.Model, "fence": c.Fence,
		}))
	})
}

// StepResult is a finished step: the model call that finished it and what it produced.
type StepResult struct {
	ModelCall
	// RecordedBy is the fence of the attempt that records the step, 0 for the one that made the call. Another attempt has adopted
	// the answer: it completes the row of the call in the usage log, and has none itself.
	RecordedBy int64
	// Output is stored as an asset of the task's user.
	Output berth.Asset
	// NextStatus is the task's new status; empty leaves it unchanged.
	NextStatus berth.TaskStatus
	// Completes ends the task: the output of this step is its result.
	Completes bool
}

// owner returns the fence of the attempt that records the step.
func (r StepResult) owner() int64 { return cmp.Or(r.RecordedBy, r.Fence) }

// FinishStep records a step's output, usage and status in one transaction, and the end of the task if the step completes it. A
// repeated call of the same attempt returns the first output and changes nothing. CodeConflict with ErrStale when another attempt recorded the step or the fence is
// old, with ErrFinal when the task has ended.
func (l *Ledger) FinishStep(ctx context.Context, r StepResult) (outputAssetID string, err error) {
	var events added
	err = l.inTx(ctx, "finish step", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, r.Ref())
		if err != nil {
			return err
		}
		if err := checkStep(t, r.Step, r.NextStatus); err != nil {
			return err
		}
		fence, output, err := finished(ctx, tx, r.Ref(), r.Step)
		if err != nil {
			return err
		}
		if output != "" && fence == r.owner() {
			outputAssetID = output
			return nil
		}
		if err := checkOwner(t, r.owner()); err != nil {
			return err
		}
		if output != "" {
			return stale()
		}
		outputAssetID, err = recordStep(ctx, tx, t, r)
		if err != nil || !r.Completes {
			return err
		}
		_, events, err = l.endTask(ctx, tx, t, End{TaskRef: r.Ref(), Status: berth.TaskCompleted, ResultAssetID: outputAssetID})
		return err
	})
	if err != nil {
		return "", err
	}
	l.announce(events)
	return outputAssetID, nil
}

// recordStep writes a step that FinishStep has checked.
func recordStep(ctx context.Context, tx *sql.Tx, t berth.Task, r StepResult) (string, error) {
	r.Output.UserID = t.UserID
	asset, err := putAsset(ctx, tx, r.Output)
	if err != nil {
		return "", err
	}
	now := time.Now().UnixMilli()
	if _, err := tx.ExecContext(ctx, `INSERT INTO steps (user_id, task_id, step, name, fence, output_asset_id, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, t.UserID, t.ID, r.Step, r.Name, r.owner(), asset.ID, now); err != nil {
		return "", err
	}
	r.Success, r.Code, r.Cause = true, "", ""
	fresh, err := writeUsage(ctx, tx, t, r.ModelCall)
	if err != nil {
		return "", err
	}
	if !fresh { // the call was logged as failed, and is in the sums
		r.Usage = berth.Usage{}
	}
	if r.owner() != r.Fence {
		if _, err := tx.ExecContext(ctx, releaseUsage, t.UserID, t.ID, r.Step, r.owner()); err != nil {
			return "", err
		}
	}
	_, err = tx.ExecContext(ctx, `UPDATE tasks SET status = $2, step_index = $3, input_tokens = input_tokens + $4,
		output_tokens = output_tokens + $5, updated_at = $6, finish_reason = $8, simulated = $9,
		prompt_truncated = $10 WHERE id = $1 AND user_id = $7`,
		t.ID, furthest(t, r.NextStatus), max(t.StepIndex, min(r.Step+1, len(t.Steps)-1)),
		r.Usage.InputTokens, r.Usage.OutputTokens, now, t.UserID, finishReason(t, r.FinishReason), t.Simulated || r.Simulated,
		t.PromptTruncated || r.PromptTruncated)
	return asset.ID, err
}

// finishReason returns the task's finish reason after a step: an answer that was truncated in any step stays marked.
func finishReason(t berth.Task, step string) string {
	if t.FinishReason == berth.FinishLength {
		return t.FinishReason
	}
	return plain(step)
}

// finished returns the fence and output of a recorded step, an empty output when it is not recorded.
func finished(ctx context.Context, tx *sql.Tx, task berth.TaskRef, step int) (fence int64, output string, err error) {
	err = tx.QueryRowContext(ctx, `SELECT fence, output_asset_id FROM steps WHERE user_id = $1 AND task_id = $2 AND step = $3`,
		task.UserID, task.TaskID, step).Scan(&fence, &output)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return fence, output, err
}

func checkOwner(t berth.Task, fence int64) error {
	switch {
	case t.Status.Final():
		return final()
	case t.Fence != fence:
		return stale()
	default:
		return nil
	}
}

// checkStep rejects steps that the task does not have and statuses that only FinishTask may set.
func checkStep(t berth.Task, step int, status berth.TaskStatus) error {
	if step < 0 || step >= len(t.Steps) {
		return berth.Invalid("step", "task %s has no step %d", t.ID, step)
	}
	if status != "" && (status.Final() || status != berth.TaskPending && !t.CanBecome(berth.TaskPending, status)) {
		return berth.Invalid("status", "%q is not a status of an open task", status)
	}
	return nil
}

// furthest returns the later status: a status never moves back.
func furthest(t berth.Task, next berth.TaskStatus) berth.TaskStatus {
	now := t.Status
	if t.CanBecome(now, next) {
		return next
	}
	return now
}
