package ledger

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testdb"
)

// Processes behind a PgBouncer in transaction mode share a few sessions of the server.
func TestOpen_ThroughPooler_ProcessesMigrateAndWork(t *testing.T) { // FI4
	t.Parallel()
	s := testdb.Start(t)
	cfg, err := pgx.ParseConfig(s.Database(t))
	require.NoError(t, err)
	pooler := testdb.StartPooler(t, s)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			l, err := Open(context.Background(), pooler.URL(cfg.Database), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer func() { _ = l.Close() }() // its tasks are checked below
			if !l.connections.pooled.Load() {
				t.Error("the pooler was not recognised")
			}
			for range 10 {
				task := chain()
				task, _, err := l.CreateTask(context.Background(), task)
				if err == nil {
					_, err = l.BeginAttempt(context.Background(), task.Ref(), 0, "OCR_PENDING")
				}
				if err == nil {
					var resume berth.Asset
					resume, err = l.PutAsset(context.Background(), berth.Asset{UserID: "alice", Kind: berth.AssetText, MediaType: "text/plain", Content: []byte("A cook of ten years.")})
					if err == nil {
						err = l.ClaimAssets(context.Background(), "alice", map[string]string{"resume": resume.ID}, evidence)
					}
				}
				if err == nil {
					_, err = l.GetTask(context.Background(), task.Ref())
				}
				if err != nil {
					t.Errorf("work: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
	l := open(t, s.URLOf(cfg.Database))
	require.False(t, l.connections.pooled.Load(), "direct")
	var tasks, locks int
	require.NoError(t, l.read.QueryRowContext(t.Context(), "SELECT count(*) FROM tasks").Scan(&tasks))
	require.Equal(t, 40, tasks)
	require.NoError(t, l.read.QueryRowContext(t.Context(),
		"SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') + (SELECT count(*) FROM goose_lock WHERE locked)").Scan(&locks))
	require.Zero(t, locks)
	server, err := Inspect(t.Context(), Source{URL: pooler.URL(cfg.Database)})
	require.NoError(t, err)
	require.True(t, server.Pooled)
}

// The lock of a process that was killed while it migrated ends with its lease. One of a process that runs is waited for.
func TestMigrate_LockLeftByDeadProcess_EndsWithItsLease(t *testing.T) { // FI4
	t.Parallel()
	s := testdb.Start(t)
	cfg, err := pgx.ParseConfig(s.Database(t))
	require.NoError(t, err)
	pooler := testdb.StartPooler(t, s)
	before := open(t, s.URLOf(cfg.Database))
	began := time.Now() // before the lease, which may be shorter than the rest takes
	tables, err := before.tables()
	require.NoError(t, err)
	for _, statement := range []string{
		"UPDATE goose_lock SET locked = true, locked_by = 'dead', locked_at = now(), lease_expires_at = now() + interval '3 seconds'",
		"DELETE FROM goose_db_version WHERE version_id > 0", "DROP TABLE " + strings.Join(tables, ", "),
	} {
		_, err := before.write.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	open(t, pooler.URL(cfg.Database))
	require.Greater(t, time.Since(began), 3*time.Second-10*time.Millisecond, "the lock was held")
	require.Less(t, time.Since(began), time.Minute)
}

// The pooler is switched to a server that was promoted.
func TestConnector_PoolerSwitchedToPromotedStandby_FoundWithoutRestart(t *testing.T) { // FI2, FI4
	t.Parallel()
	primary, standby := testdb.StartPrimary(t)
	pooler := testdb.StartPooler(t, primary)
	l := open(t, pooler.URL("postgres"))
	fill4 := func() {
		for range 3 {
			writes(t, l)
		}
	}
	fill4()
	pooler.Target(t, standby)
	awaitProblem(t, l, "read_only")
	primary.Kill()
	standby.Promote(t)
	fill4()
}

// PgBouncer refuses with one SQLSTATE, whatever the cause.
func TestDiagnose_RefusalsOfPooler_NameTheCause(t *testing.T) { // FI4, FI8
	t.Parallel()
	s := testdb.Start(t)
	_, err := Open(t.Context(), testdb.StartPooler(t, s).URL("berht"), slog.New(slog.DiscardHandler))
	require.Equal(t, "no_database", Diagnose(err).Code, "%v", err)
	for text, code := range map[string]string{
		"SASL authentication failed": "login_refused", "no such user: bert": "login_refused", "no such database: berht": "no_database",
		"unsupported startup parameter: search_path":                          "unknown_parameter",
		"server login has been failing, try again later (server_login_retry)": "starting",
		"pgbouncer cannot connect to server":                                  "starting",
		"no more connections allowed (max_client_conn)":                       "too_many_connections",
		"invalid length of startup packet":                                    "unreachable",
	} {
		p := Diagnose(&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: text})
		require.NotNil(t, p, text)
		require.Equal(t, code, p.Code, text)
	}
}
