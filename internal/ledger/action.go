package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth"
)

var actionColumns = columns[berth.Action]{
	{"created_at", func(a *berth.Action) any { return storedTime{&a.At} }},
	{"user_id", func(a *berth.Action) any { return &a.UserID }},
	{"action", func(a *berth.Action) any { return &a.Name }},
	{"target", func(a *berth.Action) any { return &a.Target }},
	{"request_id", func(a *berth.Action) any { return &a.RequestID }},
	{"status", func(a *berth.Action) any { return &a.Status }},
}

var (
	insertAction  = actionColumns.insert("operator_actions") + ` RETURNING id`
	selectAction  = `SELECT ` + actionColumns.names("") + `, id FROM operator_actions `
	pageOfActions = `id < $1 ORDER BY id DESC LIMIT $2`
)

// BeginAction stores an action before it is executed, so that none is missing if the process ends meanwhile, and returns its
// id.
func (l *Ledger) BeginAction(ctx context.Context, a berth.Action) (id int64, err error) {
	a.UserID, a.Target, a.RequestID, a.Status, a.At = plain(a.UserID), plain(a.Target), plain(a.RequestID), 0, time.Now()
	err = l.write.QueryRowContext(ctx, insertAction, actionColumns.values(&a)...).Scan(&id)
	return id, translate("begin action", err)
}

// EndAction stores the result of an action: the HTTP status of the response.
func (l *Ledger) EndAction(ctx context.Context, id int64, status int) error {
	_, err := l.write.ExecContext(ctx, `UPDATE operator_actions SET status = $1 WHERE id = $2`, status, id)
	return translate("end action", err)
}

// ActionQuery filters actions. An empty field matches all. From is inclusive, To exclusive.
type ActionQuery struct {
	UserID, Name string
	From, To     time.Time
}

// Actions returns a page of actions, the newest first, and the cursor of the next page, empty after the last. limit is at most
// 200; CodeInvalid for an invalid cursor.
func (l *Ledger) Actions(ctx context.Context, q ActionQuery, cursor string, limit int) (out []berth.Action, next string, err error) {
	before := int64(1<<63 - 1)
	if cursor != "" {
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return nil, "", berth.Invalid("cursor", "invalid cursor; use nextCursor of the previous page")
		}
	}
	limit = clamp(limit, 200)
	args := []any{before, limit + 1} // one more shows whether there is a next page
	var where strings.Builder
	filter := func(condition string, value any) {
		args = append(args, value)
		fmt.Fprintf(&where, "%s $%d AND ", condition, len(args))
	}
	if q.UserID != "" {
		filter("user_id =", plain(q.UserID))
	}
	if q.Name != "" {
		filter("action =", plain(q.Name))
	}
	if !q.From.IsZero() {
		filter("created_at >=", millis(q.From))
	}
	if !q.To.IsZero() {
		filter("created_at <", millis(q.To))
	}
	rows, err := l.read.QueryContext(ctx, selectAction+`WHERE `+where.String()+pageOfActions, args...)
	out, err = collect("read actions", rows, err, func(row scanner) (berth.Action, error) {
		var id int64
		a, err := actionColumns.scanWith(row, &id)
		a.ID = id
		return a, err
	})
	if err != nil || len(out) <= limit {
		return out, "", err
	}
	out = out[:limit]
	return out, strconv.FormatInt(out[limit-1].ID, 10), nil
}
