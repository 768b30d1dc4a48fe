package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// writeEvery is the time between two writes of Ping, while they succeed.
	writeEvery = 5 * time.Second
	// writeTimeout is how long a write may take.
	writeTimeout = 5 * time.Second
	// writeSlots is the number of rows that the pings of all processes write to, at random: one row would have as many versions as there are
	// writes during a long transaction, such as that of a backup.
	writeSlots = 64
	// sqliteProbeTimeout is how long Ping waits for the write of another process, which shows as well that the file can be written.
	sqliteProbeTimeout = 50 * time.Millisecond
)

// Ping returns a *health.Problem when the database is unavailable or does not accept writes. It has connections of its own, and does not wait for
// the write that it starts once in writeEvery, or with each call after one that failed: a database that is slow, or whose connections are all
// in use, is not unavailable. The next call returns the outcome.
func (l *Ledger) Ping(ctx context.Context) error {
	err := l.ping(ctx)
	if p := Diagnose(err); p != nil {
		err = p
		if slices.Contains(broken, p.Code) && l.connections != nil {
			l.connections.generation.Add(1) // the others are probably as broken as this one
		}
	}
	return translate("check the database", err)
}

// broken are the codes of problems of a server or of the way to it. Where only one more connection is refused, the others work, and would not
// be replaced: a server counts those that were closed a moment ago.
var broken = []string{unreached.Code, readOnly.Code, problems["57"].Code, problems["57P03"].Code}

func (l *Ledger) ping(ctx context.Context) error {
	var schema int64
	var only string
	if err := l.probe.QueryRowContext(ctx, l.dialect.state).Scan(&schema, &only); err != nil {
		return err
	}
	if only == "on" {
		return pgconn.ErrReadOnlyConnection
	}
	w := &l.writing
	last := w.last.Load()
	if (last == nil || last.err != nil || time.Since(last.at) > writeEvery) && w.running.CompareAndSwap(false, true) {
		w.wait.Go(func() {
			defer w.running.Store(false)
			l.tryWrite(w.until)
		})
	}
	if last == nil {
		return nil
	}
	return last.err
}

// writing has the writes of Ping, of which one runs at a time.
type writing struct {
	last    atomic.Pointer[written]
	running atomic.Bool
	wait    sync.WaitGroup
	until   context.Context //nolint:containedctx // of writes that a call does not wait for; it ends with Close
	stop    context.CancelFunc
}

func (w *writing) begin() { w.until, w.stop = context.WithCancel(context.Background()) }

// written is the outcome of a write.
type written struct {
	at  time.Time
	err error
}

// tryWrite writes, and keeps the outcome for Ping.
func (l *Ledger) tryWrite(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := l.checkWrite(ctx)
	l.writing.last.Store(&written{time.Now(), err})
}

// checkWrite writes a row. It returns an error if that is not possible: the server is read-only, the role lacks a right on a table, the disk is
// full, or the commit waits for a standby.
func (l *Ledger) checkWrite(ctx context.Context) error {
	err := l.writeRow(ctx)
	if err == nil || ctx.Err() == nil || l.dialect.name != "postgres" {
		return err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var standbys string
	if l.probe.QueryRowContext(asking, "SELECT current_setting('synchronous_standby_names')").Scan(&standbys) == nil && standbys != "" {
		return problem(standbyAwaited, fmt.Errorf("a commit did not end within %s, and synchronous_standby_names is set: %w", writeTimeout, err))
	}
	return err
}

func (l *Ledger) writeRow(ctx context.Context) error {
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
	return tx.Commit()
}

// allocatePostgres makes the server write a temporary file for a moment, which fails on a full disk. A row would take the place of an
// earlier one.
var allocatePostgres = []string{
	"SET LOCAL work_mem = '64kB'",
	"SELECT count(*) FROM (SELECT md5(n::text) AS text FROM generate_series(1, 4000) AS n ORDER BY text OFFSET 0) AS sorted",
}

// checkRights returns the problem missingRight if the role of PostgreSQL may not use one of the tables.
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
	return problem(missingRight, fmt.Errorf("role %s lacks rights on tables: %s", role, lacking))
}

// unconnected reports whether an error is that of a connection that was closed.
func unconnected(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, pgconn.ErrConnClosed)
}
