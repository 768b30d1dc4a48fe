package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

// ModelCall is one row of the usage log (T19). Task, step, fence and call name it: the row is written once.
type ModelCall struct {
	TaskID string
	Step   int
	Name   berth.StepName
	Fence  int64
	// Call counts the model calls of one attempt from 0: a repair (T9) is call 1.
	Call     int
	Queue    berth.Queue
	Model    string
	Provider string
	Usage    berth.Usage
	// LatencyMs is from sending the request to the end of the answer, FirstTokenMs to its first token, 0 without one.
	LatencyMs    int64
	FirstTokenMs int64
	// CostMicros is the price in millionths of the catalogue's currency.
	CostMicros int64
	Success    bool
	Code       berth.Code // why it failed
	At         time.Time
}

// FailedCall logs a model call that gave no usable answer. Unlike FinishStep it is never refused for coming late, for
// the money is spent; a task that has ended keeps its sums, though. Repeating it changes nothing.
func (l *Ledger) FailedCall(ctx context.Context, c ModelCall) error {
	c.Success = false
	return l.inTx(ctx, "log failed call", func(tx *sql.Tx) error {
		t, _, err := l.lockTask(ctx, tx, c.TaskID)
		if err != nil {
			return err
		}
		fresh, err := writeUsage(ctx, tx, t, c)
		if err != nil || !fresh || t.Status.Final() {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE tasks SET input_tokens = input_tokens + $2,
			output_tokens = output_tokens + $3, updated_at = $4 WHERE id = $1`,
			t.ID, c.Usage.InputTokens, c.Usage.OutputTokens, time.Now().UnixMilli())
		return err
	})
}

const insertUsage = `INSERT INTO usage_log (task_id, step, fence, call_no, name, user_id, service_id, queue_id, model,
	provider, input_tokens, output_tokens, latency_ms, first_token_ms, cost_micros, success, error_code, created_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
	ON CONFLICT (task_id, step, fence, call_no) DO NOTHING`

// writeUsage tells whether the row is new.
func writeUsage(ctx context.Context, tx *sql.Tx, t berth.Task, c ModelCall) (bool, error) {
	res, err := tx.ExecContext(ctx, insertUsage, t.ID, c.Step, c.Fence, c.Call, c.Name, t.UserID, t.ServiceID, c.Queue,
		c.Model, c.Provider, c.Usage.InputTokens, c.Usage.OutputTokens, c.LatencyMs, c.FirstTokenMs, c.CostMicros,
		c.Success, c.Code, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

const selectUsage = `SELECT task_id, step, fence, call_no, name, queue_id, model, provider, input_tokens,
	output_tokens, latency_ms, first_token_ms, cost_micros, success, error_code, created_at
	FROM usage_log WHERE task_id = $1 ORDER BY step, fence, call_no`

// ModelCalls answers the usage log of a task in the order of its calls.
func (l *Ledger) ModelCalls(ctx context.Context, taskID string) ([]ModelCall, error) {
	rows, err := l.read.QueryContext(ctx, selectUsage, taskID)
	return collect("read usage", rows, err, func(row scanner) (ModelCall, error) {
		var c ModelCall
		var at int64
		err := row.Scan(&c.TaskID, &c.Step, &c.Fence, &c.Call, &c.Name, &c.Queue, &c.Model, &c.Provider,
			&c.Usage.InputTokens, &c.Usage.OutputTokens, &c.LatencyMs, &c.FirstTokenMs, &c.CostMicros, &c.Success,
			&c.Code, &at)
		c.At = fromMillis(at)
		return c, err
	})
}
