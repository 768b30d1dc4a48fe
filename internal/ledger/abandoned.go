package ledger

import (
	"context"
	"database/sql"
	"time"

	"berth"
)

// keepProcess is how long the row of a process without calls is kept after the process was seen.
const keepProcess = 24 * time.Hour

// MarkProcess records that a process lives, and removes the rows of those that have ended long ago. Processes that make direct calls do so every
// few seconds.
func (l *Ledger) MarkProcess(ctx context.Context, id string) error {
	mark := `INSERT INTO call_processes (id, seen_at) VALUES ($1, ` + l.dialect.nowMillis + `) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at`
	if _, err := l.exec(ctx, "mark process", mark, id); err != nil {
		return err
	}
	_, err := l.exec(ctx, "remove processes", `DELETE FROM call_processes WHERE seen_at < `+l.dialect.nowMillis+` - $1
		AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.process = call_processes.id)`, keepProcess.Milliseconds())
	return err
}

// ForgetProcess removes the row of a process that has ended its calls and stops.
func (l *Ledger) ForgetProcess(ctx context.Context, id string) error {
	_, err := l.exec(ctx, "forget process", `DELETE FROM call_processes WHERE id = $1`, id)
	return err
}

// abandoned is the condition of calls whose process was not seen for $1 milliseconds, or that had to end as long ago.
func (l *Ledger) abandoned() string {
	limit := `(` + l.dialect.nowMillis + ` - $1)`
	return `(deadline_at < ` + limit + ` OR COALESCE((SELECT p.seen_at FROM call_processes p WHERE p.id = calls.process), created_at) < ` + limit + `)`
}

// AbandonedProcesses returns processes with calls that no process will end: their own was not seen for a time, or they had to end as long
// ago. The processes are ordered by id, behind the given one. limit is at most 1,000.
func (l *Ledger) AbandonedProcesses(ctx context.Context, unseen time.Duration, after string, limit int) ([]string, error) {
	return list(ctx, l, "list processes with abandoned calls", value[string], `SELECT DISTINCT process FROM calls WHERE `+l.abandoned()+
		` AND process > $2 ORDER BY process LIMIT CAST($3 AS BIGINT)`, unseen.Milliseconds(), after, clamp(limit, 1000))
}

// AbandonedCalls is AbandonedProcesses for the calls of one process.
func (l *Ledger) AbandonedCalls(ctx context.Context, process string, unseen time.Duration, limit int) ([]string, error) {
	return list(ctx, l, "list abandoned calls", value[string], `SELECT id FROM calls WHERE `+l.abandoned()+
		` AND process = $2 ORDER BY id LIMIT CAST($3 AS BIGINT)`, unseen.Milliseconds(), process, clamp(limit, 1000))
}

const interruptCall = `UPDATE usage_log SET finished_at = $3, error_code = '` + string(berth.CodeInterrupted) + `'
	WHERE user_id = $1 AND task_id = $2 AND finished_at = 0`

// SettleAbandoned settles an abandoned call: everything that was reserved is returned, because it is not known what was used, and the usage
// log has it as interrupted. A call that has ended, or whose process was seen meanwhile, is not changed.
func (l *Ledger) SettleAbandoned(ctx context.Context, id string, unseen time.Duration) error {
	return l.inTx(ctx, "settle abandoned call", func(tx *sql.Tx) error {
		r, ok, err := takeCall(ctx, tx, l.abandoned()+` AND id = $2`, unseen.Milliseconds(), id)
		if err != nil || !ok {
			return err
		}
		if _, err := tx.ExecContext(ctx, interruptCall, r.Ref().UserID, r.Ref().TaskID, time.Now().UnixMilli()); err != nil {
			return err
		}
		return r.giveBack(ctx, tx, r.Reserved)
	})
}
