package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"berth"
	"berth/internal/secret"
)

// Reasons why a write is rejected. The first two are wrapped in a berth.Error with CodeConflict.
var (
	// ErrStale: a newer attempt owns the task.
	ErrStale = errors.New("a newer attempt owns the task")
	// ErrFinal: the task has ended.
	ErrFinal = errors.New("the task has ended")
	// ErrNoTask, with CodeNotFound: the task has no row. An accepted task has one until it has ended, unless an older database was
	// restored.
	ErrNoTask = errors.New("the task has no row")
)

func stale() error {
	return berth.Errorf(berth.CodeConflict, "a newer attempt owns the task").With(ErrStale)
}
func final() error { return berth.Errorf(berth.CodeConflict, "the task has ended").With(ErrFinal) }

// translate adds a berth.Code to the errors of the database drivers.
func translate(what string, err error) error {
	var known *berth.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%s: %w", what, berth.Errorf(berth.CodeNotFound, "not found").With(err))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, berth.Errorf(berth.CodeUnavailable, "the call was cancelled").With(err))
	case unreachable(err):
		return fmt.Errorf("%s: %w", what,
			berth.Errorf(berth.CodeUnavailable, "database unavailable; retry").With(err))
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// unreachable reports whether an error is temporary: the database is unavailable, busy or out of space, or the caller's
// time is up.
func unreachable(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || secret.Named(err) {
		return true
	}
	var network net.Error
	var connect *pgconn.ConnectError
	if errors.As(err, &network) || errors.As(err, &connect) {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Connection lost, serialization failure, out of resources, shutting down.
		for _, class := range []string{"08", "40", "53", "57"} {
			if strings.HasPrefix(pg.Code, class) {
				return true
			}
		}
		return false
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff { // the low byte is the primary code
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR,
			sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN:
			return true
		}
	}
	return false
}

// storableID reports whether an id can be stored.
func storableID(id string) bool { return id != "" && plain(id) == id }
