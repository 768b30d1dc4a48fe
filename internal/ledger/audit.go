package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"berth"
)

// AuditEvent is the event of an audit row: one of a task, or the operation id of an action of an operator or of a team's administrator.
type AuditEvent string

// The events of tasks and accounts. The ledger itself writes all but rate_limited, queue_full and idempotent_replay, in the
// transaction that they describe.
const (
	AuditEnqueue     AuditEvent = "enqueue"
	AuditRateLimited AuditEvent = "rate_limited"
	AuditQueueFull   AuditEvent = "queue_full"
	AuditReplay      AuditEvent = "idempotent_replay"
	AuditStart       AuditEvent = "start"
	AuditDone        AuditEvent = "done"
	AuditError       AuditEvent = "error"
	AuditErase       AuditEvent = "erase"             // of the texts
	AuditBalance     AuditEvent = "balance_corrected" // by the reconciliation
)

// AuditEvents returns all events but actions.
func AuditEvents() []AuditEvent {
	return []AuditEvent{
		AuditEnqueue, AuditRateLimited, AuditQueueFull, AuditReplay, AuditStart, AuditDone, AuditError, AuditErase, AuditBalance,
	}
}

// AuditEntry is one row of the audit log. Detail is JSON without tokens or contents: what the event changed, or what an operator
// sent.
type AuditEntry struct {
	ID int64
	At time.Time
	// UserID is the owner of the task, or who requested an action.
	UserID    string
	Event     AuditEvent
	TaskID    string
	ServiceID string
	TeamID    string // of the task, or of the administrator whose action it is; empty for operators
	Queue     berth.Queue
	Detail    json.RawMessage
	// Target is the path of the request of an action, empty for an event of a task.
	Target    string
	RequestID string
	// Status is the HTTP status of the response to an action; 0 while the request is handled, and if the process ended before it
	// had recorded the result.
	Status int
	// Count is how many equal events the row represents, from At to LastAt; its other fields are those of the first. LastAt is zero for
	// one event.
	Count  int64
	LastAt time.Time

	repeatKey string
}

// auditInterval is the time in which equal events have one row.
const auditInterval = time.Minute

// Audit records an event outside the ledger (rate_limited, queue_full, idempotent_replay). Clients can cause any number of them: those
// of one user with an equal reason have one row in each minute, with their count.
func (l *Ledger) Audit(ctx context.Context, e AuditEntry, reason string) error {
	e = e.row()
	e.repeatKey = berth.DerivedID("", e.UserID, string(e.Event), plain(reason), strconv.FormatInt(e.At.UnixMilli()/auditInterval.Milliseconds(), 10))
	_, err := l.exec(ctx, "write audit", countAudit, auditColumns.values(&e)...)
	return err
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var auditColumns = columns[AuditEntry]{
	{"created_at", func(e *AuditEntry) any { return storedTime{&e.At} }},
	{"user_id", func(e *AuditEntry) any { return &e.UserID }},
	{"event", func(e *AuditEntry) any { return &e.Event }},
	{"task_id", func(e *AuditEntry) any { return &e.TaskID }},
	{"service_id", func(e *AuditEntry) any { return &e.ServiceID }},
	{"team_id", func(e *AuditEntry) any { return &e.TeamID }},
	{"queue_id", func(e *AuditEntry) any { return &e.Queue }},
	{"detail", func(e *AuditEntry) any { return storedJSON{&e.Detail} }},
	{"target", func(e *AuditEntry) any { return &e.Target }},
	{"request_id", func(e *AuditEntry) any { return &e.RequestID }},
	{"status", func(e *AuditEntry) any { return &e.Status }},
	{"count", func(e *AuditEntry) any { return &e.Count }},
	{"last_at", func(e *AuditEntry) any { return storedTime{&e.LastAt} }},
	{"repeat_key", func(e *AuditEntry) any { return &e.repeatKey }},
}

var (
	insertAudit = auditColumns.insert("audit_log")
	countAudit  = insertAudit + ` ON CONFLICT (repeat_key) WHERE repeat_key <> '' DO UPDATE SET
		count = audit_log.count + 1, last_at = excluded.created_at`
	selectAudit = `SELECT ` + auditColumns.names("") + `, id FROM audit_log WHERE `
)

const pageOfAudit = `(created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT $3`

func auditFields(e *AuditEntry) []any { return append(auditColumns.fields(e), &e.ID) }

// row returns the entry as it is stored.
func (e AuditEntry) row() AuditEntry {
	if len(e.Detail) == 0 {
		e.Detail = json.RawMessage("{}")
	}
	e.TaskID, e.ServiceID, e.UserID, e.At = plain(e.TaskID), plain(e.ServiceID), plain(e.UserID), time.Now()
	e.Target, e.RequestID, e.Count = plain(e.Target), plain(e.RequestID), 1
	return e
}

func writeAudit(ctx context.Context, db execer, e AuditEntry) error {
	e = e.row()
	_, err := db.ExecContext(ctx, insertAudit, auditColumns.values(&e)...)
	return err
}

// BeginAction stores an action before it is executed, so that none is missing if the process ends meanwhile, and
// returns its id.
func (l *Ledger) BeginAction(ctx context.Context, e AuditEntry) (id int64, err error) {
	e = e.row()
	err = l.write.QueryRowContext(ctx, insertAudit+` RETURNING id`, auditColumns.values(&e)...).Scan(&id)
	return id, translate("begin action", err)
}

// EndAction stores the result of an action: the HTTP status of the response.
func (l *Ledger) EndAction(ctx context.Context, id int64, status int) error {
	_, err := l.exec(ctx, "end action", `UPDATE audit_log SET status = $1 WHERE id = $2`, status, id)
	return err
}

// AuditQuery selects audit rows. An empty field matches all. From is inclusive, To exclusive.
type AuditQuery struct {
	UserID, TaskID, TeamID string
	Event                  AuditEvent
	From, To               time.Time
}

// AuditLog returns a page of the audit log, the newest rows first, and the cursor of the next page, empty after the last. limit
// is at most 200; CodeInvalid for an invalid cursor.
func (l *Ledger) AuditLog(ctx context.Context, q AuditQuery, cursor string, limit int) (rows []AuditEntry, next string, err error) {
	at, id := int64(math.MaxInt64), int64(0)
	p := pageBehind(cursor, limit, &at, &id)
	p.text("user_id", q.UserID)
	p.text("task_id", q.TaskID)
	p.text("team_id", q.TeamID)
	p.text("event", string(q.Event))
	p.between(q.From, q.To)
	return listPage(ctx, l, p, "read audit", auditFields, selectAudit, pageOfAudit, func(e AuditEntry) []any {
		return []any{millis(e.At), e.ID}
	})
}

// taskEntry returns an audit row about a task at one of its steps.
func taskEntry(ev AuditEvent, t berth.Task, step int, detail map[string]any) AuditEntry {
	b, err := json.Marshal(detail)
	if err != nil {
		panic(fmt.Sprintf("encode audit detail: %v", err)) // strings, numbers and structs of this module only
	}
	e := AuditEntry{Event: ev, TaskID: t.ID, ServiceID: t.ServiceID, TeamID: t.Team, UserID: t.UserID, Detail: b}
	if step >= 0 && step < len(t.Steps) {
		e.Queue = t.Steps[step].Queue
	}
	return e
}
