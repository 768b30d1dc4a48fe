package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations
var migrations embed.FS

const (
	// lockLease is how long the lock of a process that has died remains, by the clock of the database. lockRenew is the time between two
	// renewals of it.
	lockLease, lockRenew = 10 * time.Second, 2 * time.Second
	// lockRetry is the time between two attempts to take it, and lockTries their number: as long as other processes migrate.
	lockRetry, lockTries = 250 * time.Millisecond, 2400
)

// migrate applies the missing migrations of migrations/{dialect}. From the first release on, existing migrations never change.
func (l *Ledger) migrate(ctx context.Context) error {
	files, err := fs.Sub(migrations, "migrations/"+l.dialect.name)
	if err != nil {
		return err
	}
	if l.dialect.name == "sqlite" {
		// goose has no lock for SQLite: when two processes open a new file at the same time, one fails because of the
		// other's changes, and finds them applied when it retries.
		for range 3 {
			if err = l.up(ctx, goose.DialectSQLite3, files); err == nil {
				return nil
			}
		}
		return err
	}
	if migrated, err := l.migrated(ctx); migrated || err != nil {
		return err // no right to change the schema is needed
	}
	// A row with a lease, which a connection pooler does not affect. The lock of a session would stay with a session that others use.
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLeaseDuration(lockLease), lock.WithTableHeartbeatInterval(lockRenew),
		lock.WithTableLockTimeout(lockRetry, lockTries), lock.WithTableRetryPolicy(isHeld), lock.WithTableLogger(l.logger))
	if err != nil {
		return fmt.Errorf("create the migration lock: %w", err)
	}
	return l.up(ctx, goose.DialectPostgres, files, goose.WithLocker(locker))
}

// isHeld reports whether another process holds the migration lock: the error has no cause in the server or the connection.
func isHeld(err error) bool {
	_, ofServer := errors.AsType[*pgconn.PgError](err)
	return !ofServer && Diagnose(err) == nil && !errors.Is(err, context.Canceled)
}

// migrated reports whether all migrations of this program have been applied.
func (l *Ledger) migrated(ctx context.Context) (bool, error) {
	applied, err := l.applied(ctx)
	if err != nil {
		return false, err
	}
	known, err := versions(l.dialect.name)
	return !slices.ContainsFunc(known, func(v int64) bool { return !slices.Contains(applied, v) }), err
}

// applied returns the numbers of the migrations that were applied to PostgreSQL, none for a new database.
func (l *Ledger) applied(ctx context.Context) ([]int64, error) {
	rows, err := l.write.QueryContext(ctx, "SELECT version_id FROM goose_db_version WHERE is_applied")
	applied, err := collect("read the version of the schema", rows, err, value[int64])
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == stateNoTable {
		return nil, nil
	}
	return applied, err
}

func (l *Ledger) up(ctx context.Context, d goose.Dialect, files fs.FS, opts ...goose.ProviderOption) error {
	p, err := goose.NewProvider(d, l.write, files, append(opts, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	applied, err := p.Up(ctx)
	if err != nil {
		return err
	}
	for _, m := range applied {
		l.logger.InfoContext(ctx, "database migrated", "dialect", l.dialect.name, "migration", m.Source.Path)
	}
	return nil
}

// tables are the tables that the migrations leave.
var tables = func() []string {
	left := map[string]bool{}
	files, _ := fs.Glob(migrations, "migrations/postgres/*.sql") // sorted; a pattern without an error
	for _, file := range files {
		text, _ := fs.ReadFile(migrations, file) // embedded
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		for _, m := range aboutTable.FindAllStringSubmatch(up, -1) {
			left[m[2]] = m[1] == "CREATE"
		}
	}
	maps.DeleteFunc(left, func(_ string, exists bool) bool { return !exists })
	return slices.Sorted(maps.Keys(left))
}()

var aboutTable = regexp.MustCompile(`(?m)^(CREATE|DROP) TABLE (\w+)`)
