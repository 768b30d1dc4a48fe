package ledger

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	sqlite3 "modernc.org/sqlite/lib"

	"berth/internal/health"
)

// SQLite reports a full disk in several ways: for its file, for the log beside it, and for the memory that connections share.
func TestDiagnose_CodesOfSQLite_NameTheCause(t *testing.T) { // FI9
	t.Parallel()
	known := func(r health.Reason) *health.Problem { return problem(r, errors.New("disk I/O error")) }
	for code, want := range map[int]string{
		sqlite3.SQLITE_FULL: "disk_full", sqlite3.SQLITE_IOERR_WRITE: "disk_full", sqlite3.SQLITE_IOERR_SHMSIZE: "disk_full",
		sqlite3.SQLITE_IOERR: "unreachable", sqlite3.SQLITE_IOERR_READ: "unreachable", sqlite3.SQLITE_CANTOPEN: "unreachable",
		sqlite3.SQLITE_CANTOPEN_ISDIR: "unreachable", sqlite3.SQLITE_READONLY_DIRECTORY: "read_only", sqlite3.SQLITE_CORRUPT_INDEX: "damaged",
		sqlite3.SQLITE_BUSY_SNAPSHOT: "busy",
	} {
		p := diagnoseSQLite(code, known)
		require.NotNil(t, p, code)
		require.Equal(t, want, p.Code, code)
	}
	require.Nil(t, diagnoseSQLite(sqlite3.SQLITE_CONSTRAINT_UNIQUE, known))
}
