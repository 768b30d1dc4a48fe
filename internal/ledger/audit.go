package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"berth"
)

// AuditEvent is the kind of an audit row.
type AuditEvent string

// The audit events. The ledger itself writes enqueue, start, done and error, in the transaction that they describe.
const (
	AuditEnqueue     AuditEvent = "enqueue"
	AuditRateLimited AuditEvent = "rate_limited"
	AuditReplay      AuditEvent = "idempotent_replay"
	AuditStart       AuditEvent = "start"
	AuditDone        AuditEvent = "done"
	AuditError       AuditEvent = "error"
)

// AuditEntry is one row of the audit log. Detail is JSON without tokens or contents.
type AuditEntry struct {
	Event     AuditEvent
	TaskID    string
	ServiceID string
	Queue     berth.Queue
	UserID    string
	Detail    json.RawMessage
	At        time.Time
}

// Audit writes a row for an event outside the ledger (rate_limited, idempotent_replay).
func (l *Ledger) Audit(ctx context.Context, e AuditEntry) error {
	return translate("write audit", writeAudit(ctx, l.write, e))
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var auditColumns = columns[AuditEntry]{
	{"event", func(e *AuditEntry) any { return &e.Event }},
	{"task_id", func(e *AuditEntry) any { return &e.TaskID }},
	{"service_id", func(e *AuditEntry) any { return &e.ServiceID }},
	{"queue_id", func(e *AuditEntry) any { return &e.Queue }},
	{"user_id", func(e *AuditEntry) any { return &e.UserID }},
	{"detail", func(e *AuditEntry) any { return storedJSON{&e.Detail} }},
	{"created_at", func(e *AuditEntry) any { return storedTime{&e.At} }},
}

var (
	insertAudit = auditColumns.insert("audit_log")
	selectAudit = `SELECT ` + auditColumns.names("") + ` FROM audit_log WHERE user_id = $1 AND task_id = $2 ORDER BY id`
)

func writeAudit(ctx context.Context, db execer, e AuditEntry) error {
	if len(e.Detail) == 0 {
		e.Detail = json.RawMessage("{}")
	}
	e.TaskID, e.ServiceID, e.UserID, e.At = plain(e.TaskID), plain(e.ServiceID), plain(e.UserID), time.Now()
	_, err := db.ExecContext(ctx, insertAudit, auditColumns.values(&e)...)
	return err
}

// taskEntry returns an audit row about a task at one of its steps.
func taskEntry(ev AuditEvent, t berth.Task, step int, detail map[string]any) AuditEntry {
	b, err := json.Marshal(detail)
	if err != nil {
		panic(fmt.Sprintf("encode audit detail: %v", err)) // strings, numbers and structs of this module only
	}
	e := AuditEntry{Event: ev, TaskID: t.ID, ServiceID: t.ServiceID, UserID: t.UserID, Detail: b}
	if step >= 0 && step < len(t.Steps) {
		e.Queue = t.Steps[step].Queue
	}
	return e
}

// AuditTrail returns the audit rows of a task, the oldest first.
func (l *Ledger) AuditTrail(ctx context.Context, task berth.TaskRef) ([]AuditEntry, error) {
	return list(ctx, l, "read audit", auditColumns.scan, selectAudit, task.UserID, task.TaskID)
}
