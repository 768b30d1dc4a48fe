// Package ledger stores durable data in SQL: tasks, assets and their passages, conferences, sessions, settings, the audit
// log and the usage log. The same statements run on SQLite and PostgreSQL.
//
// Errors have a berth.Code: CodeNotFound for rows that do not exist or belong to another user, CodeConflict (with ErrStale
// or ErrFinal) for writes that come too late, CodeUnavailable for a database that cannot be reached. Every write is
// idempotent and can be retried after CodeUnavailable.
package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"berth"
)

const (
	// DefaultConnections is the maximum number of connections to PostgreSQL for work.
	DefaultConnections = 20

	// probeConnections are those for Ping: one for its write.
	probeConnections = 2

	postgresDial      = 5 * time.Second
	sqliteBusyTimeout = 10 * time.Second
)

// Ledger is an open database. All methods are safe for concurrent use, by any number of processes.
type Ledger struct {
	write *sql.DB
	read  *sql.DB // the same as write on PostgreSQL
	probe *sql.DB // has one connection, for Ping
	// connections are those to PostgreSQL, nil for SQLite.
	connections *connections
	writing     writing
	dialect     dialect
	logger      *slog.Logger
	// onDeliveries is nil where deliveries are not sent.
	onDeliveries func(ids []string)
}

// dialect holds the differences between the two databases.
type dialect struct {
	name      string
	forUpdate string // makes a SELECT lock its row
	nowMillis string // the database's time in Unix ms
	search    string
	match     func(userID string, terms []string) string
	state     string   // reads the version of the schema, and whether transactions are read-only: on or off
	allocate  []string // need space on the disk for a moment
}

// Open opens `sqlite:path/to/file.db` or `postgres://…`, see OpenSource.
func Open(ctx context.Context, dsn string, logger *slog.Logger) (*Ledger, error) {
	return OpenSource(ctx, Source{URL: dsn}, logger)
}

// OpenSource opens a database and brings its schema up to date. An error has a *health.Problem, see Diagnose, unless settings
// are invalid. Any number of processes may open one database at the same time. The URL of PostgreSQL accepts the TLS parameters of libpq:
// sslmode, sslrootcert, sslcert and sslkey. SQLite runs in WAL mode with synchronous=FULL: acknowledged writes survive a power failure.
func OpenSource(ctx context.Context, src Source, logger *slog.Logger) (*Ledger, error) {
	l, err := connect(src)
	if err != nil {
		return nil, err
	}
	l.logger = logger
	if err := l.migrate(ctx); err != nil {
		return nil, errors.Join(translate("migrate the database", err), l.Close())
	}
	l.tryWrite(ctx)
	if err := l.Ping(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	server, err := l.server(ctx)
	if err != nil {
		return nil, errors.Join(translate("inspect the database", err), l.Close())
	}
	for _, p := range server.Warnings() {
		logger.WarnContext(ctx, "the database is not set up well", "problem", p, "setting", p.Setting)
	}
	return l, nil
}

// connect opens a database without reading or changing it.
func connect(src Source) (l *Ledger, err error) {
	dsn, err := src.Address()
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(dsn, "sqlite:"):
		l, err = openSQLite(strings.TrimPrefix(dsn, "sqlite:"))
	case isPostgres(dsn):
		l, err = openPostgres(dsn, src)
	default:
		return nil, berth.Invalid("database", "must begin with sqlite: or postgres://")
	}
	if err == nil {
		l.writing.begin()
	}
	return l, err
}

// openSQLite opens one connection for writes, so that they queue in this process instead of failing with SQLITE_BUSY, and a
// pool for reads. It does not access the file yet.
func openSQLite(path string) (*Ledger, error) {
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, berth.Invalid("database", "sqlite needs the path of a file")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of the database: %w", err)
	}
	// Immediate: a deferred transaction that reads before it writes cannot wait for another process.
	write, err := openPrepared(
		sqliteName(path, sqliteBusyTimeout, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "secure_delete(1)") + "&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	read, err := openPrepared(sqliteName(path, sqliteBusyTimeout, "query_only(1)"))
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	conns := max(4, runtime.NumCPU())
	read.SetMaxOpenConns(conns)
	read.SetMaxIdleConns(conns)
	probe, err := openPrepared(sqliteName(path, sqliteProbeTimeout))
	if err != nil {
		return nil, errors.Join(err, read.Close(), write.Close())
	}
	probe.SetMaxOpenConns(probeConnections)
	return &Ledger{write: write, read: read, probe: probe, dialect: dialect{
		name: "sqlite", nowMillis: "CAST(unixepoch('subsec') * 1000 AS INTEGER)", search: searchSQLite, match: matchSQLite,
		state: "SELECT max(version_id), 'off' FROM goose_db_version",
	}}, nil
}

func sqliteName(path string, busyTimeout time.Duration, pragmas ...string) string {
	q := url.Values{}
	for _, p := range append(pragmas, fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())) {
		q.Add("_pragma", p)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

func openPostgres(dsn string, src Source) (*Ledger, error) {
	cfg, err := parseAddress(dsn)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, postgresDial)
	connector := src.connector(*cfg)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(src.connections())
	db.SetMaxIdleConns(src.connections())
	db.SetConnMaxIdleTime(5 * time.Minute)
	probe := sql.OpenDB(connector)
	probe.SetMaxOpenConns(probeConnections)
	return &Ledger{write: db, read: db, probe: probe, connections: connector.connections, dialect: dialect{
		name: "postgres", forUpdate: " FOR UPDATE", nowMillis: "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
		search: searchPostgres, match: matchPostgres,
		state: "SELECT max(version_id), current_setting('transaction_read_only') FROM goose_db_version", allocate: allocatePostgres,
	}}, nil
}

// Close waits for running statements and closes the database.
func (l *Ledger) Close() error {
	l.writing.stop()
	l.writing.wait.Wait()
	err := errors.Join(l.probe.Close(), l.read.Close())
	if l.write != l.read {
		err = errors.Join(err, l.write.Close()) // last, so that it can fold the WAL into the file
	}
	return err
}

// inTx runs f in one transaction. On SQLite transactions are serial; on PostgreSQL they are READ COMMITTED, and lockTask
// serializes those of one task.
func (l *Ledger) inTx(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	tx, err := l.write.BeginTx(ctx, nil)
	if err != nil {
		return translate(what, err)
	}
	if err := f(tx); err != nil {
		if rerr := tx.Rollback(); rerr != nil && !unconnected(rerr) {
			l.logger.WarnContext(ctx, "rollback failed", "what", what, "error", rerr)
		}
		return translate(what, err)
	}
	return translate(what, tx.Commit())
}

// exec runs one statement and returns the number of rows that it changed.
func (l *Ledger) exec(ctx context.Context, what, query string, args ...any) (changed int64, err error) {
	res, err := l.write.ExecContext(ctx, query, args...)
	if err == nil {
		changed, err = res.RowsAffected()
	}
	return changed, translate(what, err)
}

// millis returns the stored form of a time: Unix milliseconds, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// bit returns the stored form of a condition.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// plain makes text storable: PostgreSQL accepts neither NUL nor invalid UTF-8.
func plain(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
