package ledger

import (
	"context"
	"math"
	"time"

	"berth"
)

// OpenWork is how many tasks, executions and conferences have not ended.
type OpenWork struct {
	// TasksWaiting wait for the first call of their current step, TasksRunning have made it.
	TasksWaiting, TasksRunning int
	Executions                 map[berth.ExecutionStatus]int
	Conferences                map[berth.ConferenceStatus]int
}

// CountOpen counts what has not ended.
func (l *Ledger) CountOpen(ctx context.Context) (w OpenWork, err error) {
	tasks, err := count[string](ctx, l, "count open tasks",
		`SELECT CASE WHEN called_step < step_index THEN 'waiting' ELSE 'running' END AS phase, COUNT(*)
		FROM tasks WHERE ended_at = 0 GROUP BY phase`)
	if err != nil {
		return w, err
	}
	w.TasksWaiting, w.TasksRunning = tasks["waiting"], tasks["running"]
	w.Executions, err = count[berth.ExecutionStatus](ctx, l, "count open executions",
		`SELECT status, COUNT(*) FROM executions WHERE ended_at = 0 GROUP BY status`)
	if err != nil {
		return w, err
	}
	w.Conferences, err = l.CountConferences(ctx)
	return w, err
}

// CountConferences counts the conferences that have not ended, by status.
func (l *Ledger) CountConferences(ctx context.Context) (map[berth.ConferenceStatus]int, error) {
	return count[berth.ConferenceStatus](ctx, l, "count open conferences",
		`SELECT status, COUNT(*) FROM conferences WHERE status <> 'ended' AND status <> 'deleted' GROUP BY status`)
}

// count reads a query of values, each with its number of rows.
func count[T ~string](ctx context.Context, l *Ledger, what, query string) (map[T]int, error) {
	type group struct {
		value T
		n     int
	}
	groups, err := list(ctx, l, what, func(g *group) []any { return []any{&g.value, &g.n} }, query)
	counts := make(map[T]int, len(groups))
	for _, g := range groups {
		counts[g.value] = g.n
	}
	return counts, err
}

// maxOverdue is how many rows of a table CountOverdue counts.
const maxOverdue = 1000

// CountOverdue counts the tasks and executions that have not ended and whose deadline was before a time, by the rule of the
// reconciliation that ends them: at most 1,000 of each.
func (l *Ledger) CountOverdue(ctx context.Context, before time.Time) (map[berth.ReconcileRule]int, error) {
	counts := map[berth.ReconcileRule]int{}
	for rule, table := range map[berth.ReconcileRule]string{berth.RuleTaskOverdue: "tasks", berth.RuleExecutionOverdue: "executions"} {
		n, err := list(ctx, l, "count overdue "+table, value[int], `SELECT COUNT(*) FROM (
			SELECT deadline_at FROM `+table+` WHERE ended_at = 0 AND deadline_at < $1 LIMIT CAST($2 AS BIGINT)) AS overdue`,
			millis(before), maxOverdue)
		if err != nil {
			return nil, err
		}
		counts[rule] = n[0]
	}
	return counts, nil
}

// TaskMinute is what happened to tasks in one minute. Lost tasks are among the failed ones.
type TaskMinute struct {
	At                                           time.Time
	Accepted, Completed, Failed, Cancelled, Lost int
}

const minute = 60_000 // ms

const taskMinutes = `SELECT created_at / 60000 AS m, '' AS s, '' AS c, COUNT(*) FROM tasks WHERE created_at >= $1 GROUP BY m
	UNION ALL SELECT ended_at / 60000 AS m, status AS s, CASE WHEN error_code = 'lost' THEN 'lost' ELSE '' END AS c, COUNT(*) FROM tasks
	WHERE ended_at >= $1 AND ended_at > 0 GROUP BY m, s, c`

// TaskMinutes returns the minutes from a time to now, without gaps, in order.
func (l *Ledger) TaskMinutes(ctx context.Context, from, now time.Time) ([]TaskMinute, error) {
	first := from.UnixMilli() / minute
	out := make([]TaskMinute, max(0, now.UnixMilli()/minute-first+1))
	for i := range out {
		out[i].At = time.UnixMilli((first + int64(i)) * minute).UTC()
	}
	type group struct {
		minute       int64
		status, code string
		n            int
	}
	fields := func(g *group) []any { return []any{&g.minute, &g.status, &g.code, &g.n} }
	groups, err := list(ctx, l, "count tasks", fields, taskMinutes, first*minute)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		i := g.minute - first
		if i < 0 || i >= int64(len(out)) {
			continue // of another clock
		}
		switch berth.TaskStatus(g.status) {
		case "":
			out[i].Accepted += g.n
		case berth.TaskCompleted:
			out[i].Completed += g.n
		case berth.TaskCancelled:
			out[i].Cancelled += g.n
		default:
			out[i].Failed += g.n
		}
		if g.code != "" {
			out[i].Lost += g.n
		}
	}
	return out, nil
}

const pageOfExecutions = `(started_at, key) < ($1, $2) ORDER BY started_at DESC, key DESC LIMIT $3`

// ListExecutions returns a page of executions without their outputs, the newest first, of one user if userID is not empty and with
// one status if that is not empty. limit is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) ListExecutions(
	ctx context.Context, userID string, status berth.ExecutionStatus, cursor string, limit int,
) (out []berth.ExecutionRow, next string, err error) {
	at, id := int64(math.MaxInt64), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.text("user_id", userID)
	p.text("status", string(status))
	return listPage(ctx, l, p, "list executions", executionFields, selectExecution+`WHERE `, pageOfExecutions,
		func(e berth.ExecutionRow) []any { return []any{millis(e.StartedAt), e.Key} })
}

var selectSessions = `SELECT ` + sessionColumns.names("") + ` FROM sessions WHERE `

const pageOfSessions = `(updated_at, key) < ($1, $2) ORDER BY updated_at DESC, key DESC LIMIT $3`

// ListSessions returns a page of sessions, the last changed first, of one user if userID is not empty. limit is at most 200; CodeInvalid
// for an invalid cursor.
func (l *Ledger) ListSessions(ctx context.Context, userID, cursor string, limit int) (out []berth.Session, next string, err error) {
	at, id := int64(math.MaxInt64), ""
	p := pageBehind(cursor, limit, &at, &id)
	p.text("user_id", userID)
	return listPage(ctx, l, p, "list sessions", sessionColumns.fields, selectSessions, pageOfSessions,
		func(s berth.Session) []any { return []any{millis(s.UpdatedAt), s.Key} })
}

// Account is the balance of a user.
type Account struct {
	UserID  string
	Credits berth.Credits
}

const (
	selectAccounts = `SELECT user_id, credits FROM accounts WHERE `
	withPrefix     = `SUBSTR(user_id, 1, LENGTH(CAST($3 AS TEXT))) =`
	pageOfAccounts = `user_id > $1 ORDER BY user_id LIMIT CAST($2 AS BIGINT)`
)

// ListAccounts returns a page of accounts by user id, of those that begin with a prefix. limit is at most 200; CodeInvalid for an
// invalid cursor.
func (l *Ledger) ListAccounts(ctx context.Context, prefix, cursor string, limit int) (out []Account, next string, err error) {
	after := ""
	p := pageBehind(cursor, limit, &after)
	p.add(withPrefix, plain(prefix))
	fields := func(a *Account) []any { return []any{&a.UserID, &a.Credits} }
	return listPage(ctx, l, p, "list accounts", fields, selectAccounts, pageOfAccounts, func(a Account) []any { return []any{a.UserID} })
}
