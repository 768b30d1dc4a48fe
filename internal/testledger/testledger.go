// Package testledger opens ledgers on empty databases for tests. The databases are copies of one that is migrated once per
// test binary.
package testledger

import (
	"context"
	"log/slog"
	"testing"

	"berth/internal/ledger"
	"berth/internal/testdb"
)

// Migrated makes migrated databases.
var Migrated = testdb.NewTemplate(func(dsn string) error {
	l, err := ledger.Open(context.Background(), dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return l.Close()
})

// Open opens a database until the test ends.
func Open(tb testing.TB, dsn string) *ledger.Ledger {
	tb.Helper()
	l, err := ledger.Open(context.Background(), dsn, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Errorf("close the database: %v", err)
		}
	})
	return l
}
