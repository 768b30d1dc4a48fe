// Package testdb provides empty databases for tests: a SQLite file, and a database of a PostgreSQL server that is started
// from the installed binaries for the test binary.
package testdb

import (
	"path/filepath"
	"testing"
)

// Each runs f as one parallel subtest per kind of database, each with a data source name for ledger.Open that
// leads to an empty database.
func Each(t *testing.T, f func(t *testing.T, dsn string)) {
	t.Helper()
	each(t, Kinds(), f)
}

func each(t *testing.T, kinds map[string]func(testing.TB) string, f func(t *testing.T, dsn string)) {
	t.Helper()
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// Kinds returns a constructor of an empty database for each kind, by name.
func Kinds() map[string]func(testing.TB) string {
	return map[string]func(testing.TB) string{"sqlite": SQLite, "postgres": Postgres}
}

// SQLite returns the name of a database file that does not exist yet, in the test's temporary directory.
func SQLite(tb testing.TB) string {
	tb.Helper()
	return "sqlite:" + filepath.Join(tb.TempDir(), "berth.db")
}

// Postgres creates an empty database on the server that all tests of the binary share, and drops it after the test.
// A machine without PostgreSQL fails the test.
func Postgres(tb testing.TB) string {
	tb.Helper()
	return sharedServer(tb).Database(tb)
}

func sharedServer(tb testing.TB) *Server {
	tb.Helper()
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
