package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Server is what a database reports about itself.
type Server struct {
	Name, Version string
	// Schema is the version of its schema, 0 for a new database; Latest is the one to which Open brings it.
	Schema, Latest int64
	// Now is its clock; zero for SQLite.
	Now time.Time
}

// Inspect reads what a database reports, and does not change it. The error of a SQLite file that does not exist wraps
// fs.ErrNotExist.
func Inspect(ctx context.Context, src Source) (s Server, err error) {
	dsn, err := src.Address()
	if err != nil {
		return s, err
	}
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		if _, err := os.Stat(file); err != nil {
			return s, err
		}
	}
	l, err := connect(src)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	s.Name = l.dialect.name
	if s.Latest, err = latestMigration(s.Name); err != nil {
		return s, err
	}
	version := "SELECT sqlite_version()"
	if s.Name == "postgres" {
		version = "SHOW server_version"
	}
	if err := l.read.QueryRowContext(ctx, version).Scan(&s.Version); err != nil {
		return s, translate("read the version of the database", unverified(err))
	}
	_ = l.read.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&s.Schema) // a new database has no such table
	if s.Name == "postgres" {
		err = l.read.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&s.Now)
	}
	return s, translate("read the clock of the database", err)
}

// latestMigration returns the number of the last migration of a dialect.
func latestMigration(dialect string) (latest int64, err error) {
	files, err := fs.Glob(migrations, "migrations/"+dialect+"/*.sql")
	if err != nil {
		return 0, fmt.Errorf("list migrations: %w", err)
	}
	for _, file := range files {
		number, _, _ := strings.Cut(file[strings.LastIndexByte(file, '/')+1:], "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, berth.Errorf(berth.CodeInternal, "migration %s has no number", file).With(err)
		}
		latest = max(latest, n)
	}
	return latest, nil
}
