package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
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

// page returns the rows of a page, and its cursor if there is a row behind them: the query had a limit of one more.
func page[T any](rows []T, limit int, cursor func(T) string) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], cursor(rows[limit-1])
}

// pageBefore starts the conditions of a page that is ordered by a time and an id, the latest first: $1 and $2 are those of the last
// row of the page before, $3 is the limit.
func pageBefore(cursor string, limit int) (*filters, int, error) {
	at, id := int64(math.MaxInt64), ""
	err := readCursor(cursor, &at, &id)
	limit = clamp(limit, 200)
	return &filters{args: []any{at, id, limit + 1}}, limit, err
}

// filters collects the conditions of a WHERE clause with their arguments.
type filters struct {
	where strings.Builder
	args  []any
}

// add appends a condition, which ends where its argument follows.
func (f *filters) add(condition string, value any) {
	f.args = append(f.args, value)
	fmt.Fprintf(&f.where, "%s $%d AND ", condition, len(f.args))
}

// text is add for a text; an empty one matches all rows.
func (f *filters) text(column, value string) {
	if value != "" {
		f.add(column+" =", plain(value))
	}
}

// between limits created_at to a period. from is inclusive, to exclusive; a zero time is no limit.
func (f *filters) between(from, to time.Time) {
	if !from.IsZero() {
		f.add("created_at >=", millis(from))
	}
	if !to.IsZero() {
		f.add("created_at <", millis(to))
	}
}
