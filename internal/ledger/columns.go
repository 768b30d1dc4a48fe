package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// columns lists a table's columns with the field of T that each belongs to. Insert, select and scan all follow this one
// list, so a new column is one entry here beside its migration.
type columns[T any] []column[T]

type column[T any] struct {
	name string
	// field returns a pointer to the field, wrapped in a stored where the database's form differs.
	field func(*T) any
}

// stored converts between a field and the form in which the database keeps it.
type stored interface {
	driver.Valuer
	sql.Scanner
}

// names returns the columns for a SELECT, each with the prefix of its table's alias.
func (cs columns[T]) names(prefix string) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = prefix + c.name
	}
	return strings.Join(names, ", ")
}

// insert returns the INSERT of one row with values as its arguments. constants are further columns with fixed values.
func (cs columns[T]) insert(table string, constants ...[2]string) string {
	names, places := cs.names(""), make([]string, 0, len(cs)+len(constants))
	for i := range cs {
		places = append(places, "$"+strconv.Itoa(i+1))
	}
	for _, c := range constants {
		names += ", " + c[0]
		places = append(places, c[1])
	}
	return "INSERT INTO " + table + " (" + names + ") VALUES (" + strings.Join(places, ", ") + ")"
}

// values returns the arguments of insert.
func (cs columns[T]) values(v *T) []any {
	args := cs.fields(v)
	for i, field := range args {
		if _, ok := field.(stored); !ok {
			args[i] = reflect.ValueOf(field).Elem().Interface()
		}
	}
	return args
}

// fields returns where the columns of a SELECT of names belong.
func (cs columns[T]) fields(v *T) []any {
	fields := make([]any, len(cs))
	for i, c := range cs {
		fields[i] = c.field(v)
	}
	return fields
}

// value is where the only column of a row belongs.
func value[T any](v *T) []any { return []any{v} }

// body is where the only column of a row belongs if it is all of v as JSON.
func body[T any](v *T) []any { return []any{storedJSON{v}} }

// scanner is a row, or the current one of several.
type scanner interface{ Scan(dest ...any) error }

// scan reads a row, each column into the pointer at its place in fields.
func scan[T any](row scanner, fields func(*T) []any) (v T, err error) {
	err = row.Scan(fields(&v)...)
	return v, err
}

// storedTime keeps a time as Unix milliseconds, 0 for the zero time.
type storedTime struct{ t *time.Time }

func (s storedTime) Value() (driver.Value, error) { return millis(*s.t), nil }

func (s storedTime) Scan(src any) error {
	ms, ok := src.(int64)
	if !ok {
		return fmt.Errorf("time is a %T, not an integer", src)
	}
	*s.t = fromMillis(ms)
	return nil
}

// storedJSON keeps what v points to as JSON text.
type storedJSON struct{ v any }

func (s storedJSON) Value() (driver.Value, error) {
	b, err := json.Marshal(s.v)
	return string(b), err
}

func (s storedJSON) Scan(src any) error {
	switch src := src.(type) {
	case string:
		return json.Unmarshal([]byte(src), s.v)
	case []byte:
		return json.Unmarshal(src, s.v)
	default:
		return fmt.Errorf("JSON is a %T, not text", src)
	}
}

// storedReference keeps an empty id as NULL.
type storedReference struct{ id *string }

func (s storedReference) Value() (driver.Value, error) {
	if *s.id == "" {
		return nil, nil
	}
	return *s.id, nil
}

func (s storedReference) Scan(src any) error {
	var id sql.NullString
	err := id.Scan(src)
	*s.id = id.String
	return err
}

// find reads the one row of a query for ids; CodeNotFound where there is none.
func find[T any](ctx context.Context, l *Ledger, what string, fields func(*T) []any, query string, ids ...string) (v T, err error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		if !storableID(id) {
			return v, translate(what, sql.ErrNoRows)
		}
		args[i] = id
	}
	v, err = scan(l.read.QueryRowContext(ctx, query, args...), fields)
	return v, translate(what, err)
}

// list reads all rows of a query.
func list[T any](ctx context.Context, l *Ledger, what string, fields func(*T) []any, query string, args ...any) ([]T, error) {
	rows, err := l.read.QueryContext(ctx, query, args...)
	return collect(what, rows, err, fields)
}

// collect reads all rows of a query.
func collect[T any](what string, rows *sql.Rows, err error, fields func(*T) []any) ([]T, error) {
	if err != nil {
		return nil, translate(what, err)
	}
	defer func() { _ = rows.Close() }() // rows.Err reports it
	var all []T
	for rows.Next() {
		v, err := scan(rows, fields)
		if err != nil {
			return nil, translate(what, err)
		}
		all = append(all, v)
	}
	return all, translate(what, rows.Err())
}

// clamp returns limit, at most max; max when limit is not positive.
func clamp(limit, maxLimit int) int {
	if limit <= 0 {
		return maxLimit
	}
	return min(limit, maxLimit)
}
