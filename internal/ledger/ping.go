package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// writeEvery is the time between two writes of Ping, while they succeed.
	writeEvery = 5 * time.Second
	// writeSlots is the number of rows that the pings of all processes write to, at random: one row would have as many versions as there are
	// writes during a long transaction, such as that of a backup.
	writeSlots = 64
	// sqliteProbeTimeout is how long Ping waits for the write of another process, which shows as well that the file can be written.
	sqliteProbeTimeout = 50 * time.Millisecond
)

// Ping returns a *Problem when the database is unavailable or does not accept writes. It has a connection of its own: a database whose
// connections are all in use is slow. It writes at most once in writeEvery, or with each call after a write that failed.
func (l *Ledger) Ping(ctx context.Context) error {
	err := l.ping(ctx)
	if p := Diagnose(err); p != nil {
		err = p
		if !p.Lasting && l.connections != nil {
			l.connections.generation.Add(1) // the others are probably as broken as this one
		}
	}
	return translate("check the database", err)
}

func (l *Ledger) ping(ctx context.Context) error {
	var schema int64
	var readOnly string
	if err := l.probe.QueryRowContext(ctx, l.dialect.state).Scan(&schema, &readOnly); err != nil {
		return err
	}
	now := time.Now()
	if readOnly == "off" && now.UnixNano() < l.writeDue.Load() {
		return nil
	}
	l.writeDue.Store(0)
	if err := l.checkWrite(ctx, (*sql.Tx).Commit); err != nil {
		return err
	}
	l.writeDue.Store(now.Add(writeEvery).UnixNano())
	return nil
}

// checkWrite returns an error if rows cannot be written: the server is read-only, the role lacks a right on a table, or the disk is full.
// end commits the transaction, or rolls it back.
func (l *Ledger) checkWrite(ctx context.Context, end func(*sql.Tx) error) error {
	tx, err := l.probe.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after end
	for _, statement := range l.dialect.allocate {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO write_checks (slot, checked_at) VALUES ($1, `+l.dialect.nowMillis+`)
		ON CONFLICT (slot) DO UPDATE SET checked_at = excluded.checked_at`, rand.IntN(writeSlots))
	if lite, ok := errors.AsType[*sqlite.Error](err); ok && lite.Code()&0xff == sqlite3.SQLITE_BUSY {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.checkRights(ctx, tx); err != nil {
		return err
	}
	return end(tx)
}

// allocatePostgres makes the server write a temporary file for a moment, which fails on a full disk. A row would take the place of an
// earlier one.
var allocatePostgres = []string{
	"SET LOCAL work_mem = '64kB'",
	"SELECT count(*) FROM (SELECT md5(n::text) AS text FROM generate_series(1, 4000) AS n ORDER BY text OFFSET 0) AS sorted",
}

// checkRights returns a missingRight if the role of PostgreSQL may not use one of the tables.
func (l *Ledger) checkRights(ctx context.Context, tx *sql.Tx) error {
	if l.dialect.name != "postgres" {
		return nil
	}
	var role, lacking string
	err := tx.QueryRowContext(ctx, `SELECT current_user, coalesce(string_agg(tablename || ' (' || lacking || ')', ', ' ORDER BY tablename), '') FROM (
		SELECT tablename, string_agg(p, ', ' ORDER BY p) AS lacking
		FROM pg_tables, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
		WHERE schemaname = current_schema() AND tablename = ANY(string_to_array($1, ','))
			AND NOT has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), p)
		GROUP BY tablename) AS t`, strings.Join(tables, ",")).Scan(&role, &lacking)
	if err != nil || lacking == "" {
		return err
	}
	return rightsError(fmt.Errorf("role %s lacks rights on tables: %s", role, lacking))
}

func rightsError(err error) error {
	p := missingRight
	p.Err = err
	return &p
}

// unconnected reports whether an error is that of a connection that was closed.
func unconnected(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, pgconn.ErrConnClosed)
}
