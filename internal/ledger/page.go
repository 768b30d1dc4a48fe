package ledger

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"berth"
)

// writeCursor returns the cursor of the page behind a row, from the values that order the rows.
func writeCursor(fields ...any) string {
	b, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("encode cursor: %v", err)) // numbers and texts only
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// readCursor sets the fields to the values from which writeCursor made the cursor. An empty one changes nothing.
func readCursor(cursor string, fields ...any) error {
	if cursor == "" {
		return nil
	}
	bad := berth.Invalid("cursor", "invalid cursor; use nextCursor of the previous page")
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return bad.With(err)
	}
	read := append([]any{}, fields...) // each a pointer, which json.Unmarshal follows
	if err := json.Unmarshal(b, &read); err != nil || len(read) != len(fields) {
		return bad.With(err)
	}
	for _, f := range fields {
		if s, ok := f.(*string); ok && plain(*s) != *s {
			return bad
		}
	}
	return nil
}

// maxPage is how many rows a page has at most.
const maxPage = 200

// page collects the conditions of the query for one page of a list.
type page struct {
	where strings.Builder // of the filters
	args  []any
	limit int
	err   error // CodeInvalid for an invalid cursor
}

// pageBehind returns the page behind a cursor. position points to the values that order the rows: those before all rows, which the
// cursor replaces. They are the first arguments of the query, and the limit, which is at most maxPage, follows them.
func pageBehind(cursor string, limit int, position ...any) *page {
	p := &page{limit: clamp(limit, maxPage), err: readCursor(cursor, position...)}
	for _, value := range position {
		p.args = append(p.args, reflect.ValueOf(value).Elem().Interface())
	}
	p.args = append(p.args, p.limit+1) // one more shows whether there is a next page
	return p
}

// add appends a condition, which ends where its argument follows.
func (p *page) add(condition string, value any) { p.addAs(condition+" $%d", value) }

// addAs is add for a condition that has the number of its argument in the place of %d.
func (p *page) addAs(condition string, value any) {
	p.args = append(p.args, value)
	fmt.Fprintf(&p.where, condition+" AND ", len(p.args))
}

// text is add for a text; an empty one matches all rows.
func (p *page) text(column, value string) {
	if value != "" {
		p.add(column+" =", plain(value))
	}
}

// between limits created_at to a period. from is inclusive, to exclusive; a zero time is no limit.
func (p *page) between(from, to time.Time) { p.period("created_at", from, to) }

// period is between for another column.
func (p *page) period(column string, from, to time.Time) {
	if !from.IsZero() {
		p.add(column+" >=", millis(from))
	}
	if !to.IsZero() {
		p.add(column+" <", millis(to))
	}
}

// listPage reads a page and returns the cursor of the next one, empty after the last. The query consists of what precedes the
// conditions, and of the condition and order of the position; position returns the values that order the rows.
func listPage[T any](
	ctx context.Context, l *Ledger, p *page, what string, fields func(*T) []any, before, order string, position func(T) []any,
) (rows []T, next string, err error) {
	if p.err != nil {
		return nil, "", p.err
	}
	rows, err = list(ctx, l, what, fields, before+p.where.String()+order, p.args...)
	if len(rows) <= p.limit {
		return rows, "", err
	}
	rows = rows[:p.limit]
	return rows, writeCursor(position(rows[p.limit-1])...), err
}
