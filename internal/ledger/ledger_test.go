package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/testdb"
)

func TestOpen_InvalidName_Rejected(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:"} {
		_, err := Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		requireCode(t, berth.CodeInvalid, err)
	}
	for _, dsn := range []string{
		"postgres://%zz", "postgres://u:ge%zzheim@h/x", "postgres://u@h:geheim/x", "postgres://u@h/x?sslmode=geheim", "postgres://u@h/x?port=geheim",
		"postgres://u:x@geheim@h/x", "postgres://u:x@geheim/y@h/x", "postgres://u:x y@geheim/x",
	} {
		_, err := Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		problem := Diagnose(err)
		require.NotNil(t, problem, "%v", err)
		require.Equal(t, "invalid_address", problem.Code)
		require.NotContains(t, err.Error(), "zz")
		require.NotContains(t, err.Error(), "geheim")
	}
}

func TestOpen_Failure_ErrorOmitsPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://u:geheim@127.0.0.1:1/x", "postgres://u:geheim@[x"} {
		_, err := Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "geheim")
	}
}

func TestOpen_ConcurrentAndRepeated_Succeeds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, dsn string) {
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				l, err := Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
				if err != nil {
					return err
				}
				return l.Close()
			})
		}
		require.NoError(t, g.Wait())
		require.NoError(t, open(t, dsn).Ping(t.Context()))
	})
}

func TestOpen_ExistingDatabase_DataKept(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, dsn string) {
		l, err := Open(t.Context(), dsn, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		want := create(t, l, chain())
		require.NoError(t, l.Close())
		got, err := open(t, dsn).GetTask(t.Context(), want.Ref())
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// A test cannot crash the machine, but it can read the settings that make commits durable.
func TestOpen_SQLite_DurablePragmasSet(t *testing.T) {
	t.Parallel()
	l := open(t, "sqlite:"+filepath.Join(t.TempDir(), "odd name%20?#", "berth.db"))
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000", "query_only": "0",
	} {
		var got string
		require.NoError(t, l.write.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, pragma)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "10000", "query_only": "1"} {
		var got string
		require.NoError(t, l.read.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, "reader: "+pragma)
	}
}

func TestLedger_DatabaseUnreachable_Unavailable(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s := testdb.Start(t)
		l := open(t, s.Database(t))
		task := create(t, l, chain())
		s.Kill()
		_, err := l.GetTask(t.Context(), task.Ref())
		requireCode(t, berth.CodeUnavailable, err)
		_, _, err = l.FinishTask(t.Context(), End{TaskRef: task.Ref(), Status: berth.TaskFailed})
		requireCode(t, berth.CodeUnavailable, err)
		requireCode(t, berth.CodeUnavailable, l.Ping(t.Context()))
		s.Restart(t)
		got, err := l.GetTask(t.Context(), task.Ref())
		require.NoError(t, err, "the connection pool reconnects without help")
		require.Equal(t, task, got)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "berth.db")
		require.NoError(t, os.Mkdir(dir, 0o700))
		_, err := Open(t.Context(), "sqlite:"+dir, slog.New(slog.DiscardHandler))
		requireCode(t, berth.CodeUnavailable, err)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		testdb.Each(t, func(t *testing.T, dsn string) {
			l := open(t, dsn)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := l.GetTask(ctx, ref("t"))
			requireCode(t, berth.CodeUnavailable, err)
			require.ErrorIs(t, err, context.Canceled)
			require.NotContains(t, err.Error(), "database unavailable")
		})
	})
}

// Each database has its own migrations: their tables must match.
func TestMigrations_BothDatabases_SameColumns(t *testing.T) {
	t.Parallel()
	type name struct{ table, column string }
	columns := func(l *Ledger, query string) []name {
		rows, err := l.read.QueryContext(t.Context(), query)
		all, err := collect("columns", rows, err, func(n *name) []any { return []any{&n.table, &n.column} })
		require.NoError(t, err)
		return all
	}
	lite := columns(open(t, testdb.SQLite(t)), `SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c
		WHERE t.type = 'table' AND t.name NOT LIKE 'passage_index%' AND t.name NOT LIKE 'sqlite_%'
		AND t.name NOT LIKE 'goose_%' ORDER BY 1, 2`)
	post := columns(open(t, testdb.Postgres(t)), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name NOT LIKE 'goose_%' ORDER BY table_name COLLATE "C", column_name COLLATE "C"`)
	require.Equal(t, lite, post)
	require.Contains(t, lite, name{"tasks", "fence"})
}

// Frequent queries must never scan a whole table: the design expects millions of rows.
func TestQueries_FrequentOnes_UseIndexes(t *testing.T) {
	each(t, func(t *testing.T, l *Ledger) {
		explain := "EXPLAIN QUERY PLAN "
		tx, err := l.read.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if l.dialect.name == "postgres" {
			explain = "EXPLAIN "
			_, err := tx.ExecContext(t.Context(), "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off") // the tables are empty
			require.NoError(t, err)
		}
		for name, q := range map[string]struct {
			sql  string
			args []any
		}{
			"task":        {selectTask, []any{"u", "t"}},
			"tasks by id": {selectTasksByID, []any{"t", 2}},
			"list":        {selectTasks + `user_id = $5 AND ` + pageOfTasks, []any{int64(5), "t", "u", 10, "u"}},
			"filtered list": {
				selectTasks + `user_id = $5 AND status = $6 AND template = $7 AND service_id = $8 AND ` + fmt.Sprintf(withTitle, 9) + ` AND created_at >= $10 AND ` + pageOfTasks,
				[]any{int64(5), "t", "u", 10, "u", "FAILED", "t", "s", "%a%", int64(1)},
			},
			"all tasks":       {selectTasks + pageOfTasks, []any{int64(5), "t", "u", 10}},
			"filtered tasks":  {selectTasks + `status = $5 AND template = $6 AND service_id = $7 AND ` + pageOfTasks, []any{int64(5), "t", "u", 10, "FAILED", "t", "s"}},
			"open tasks":      {selectTasks + `ended_at = 0 AND ` + pageOfTasks, []any{int64(5), "t", "u", 10}},
			"failed tasks":    {selectTasks + `status = $5 AND ` + pageOfTasks, []any{int64(5), "t", "u", 10, "FAILED"}},
			"task minutes":    {taskMinutes, []any{int64(5)}},
			"executions":      {selectExecution + `WHERE ` + pageOfExecutions, []any{int64(5), "x", 10}},
			"execution":       {selectExecutionsByID + ` AND user_id = $2`, []any{"x", "u"}},
			"by execution":    {selectExecutionsByID, []any{"x"}},
			"sessions":        {selectSessions + pageOfSessions, []any{int64(5), "s", 10}},
			"user's sessions": {selectSessions + `user_id = $4 AND ` + pageOfSessions, []any{int64(5), "s", 10, "u"}},
			"accounts":        {selectAccounts + withPrefix + ` $3 AND ` + pageOfAccounts, []any{"", 10, ""}},
			"open":            {openTasks, []any{"", "", 10}},
			"end":             {setEnd, []any{"t", "FAILED", "", "", "", int64(1), "u", "", int64(0)}},
			"forwarded":       {selectForwarded, []any{"u", "hash", int64(5)}},
			"webhooks of":     {selectWebhooksOf, []any{"t", "a", "u"}},
			"deliveries":      {selectDeliveries + `webhook_id = $4 AND ` + pageOfDeliveries, []any{int64(5), "d", 10, "w"}},
			"unsent":          {unsentDeliveries, []any{int64(5), int64(5), 10}},
			"old deliveries":  {deleteWebhookDeliveries, []any{int64(5), 10}},
			"erasable":        {selectErasable, []any{int64(5), 10}},
			"asset":           {selectAsset, []any{"a", "u"}},
			"results":         {selectResults, []any{"u", "job_summary", 5}},
			"audit":           {selectAudit + pageOfAudit, []any{int64(5), int64(1), 10}},
			"user's audit":    {selectAudit + `user_id = $4 AND ` + pageOfAudit, []any{int64(5), int64(1), 10, "u"}},
			"audit event":     {selectAudit + `event = $4 AND ` + pageOfAudit, []any{int64(5), int64(1), 10, "done"}},
			"task's audit":    {selectAudit + `user_id = $4 AND task_id = $5 AND ` + pageOfAudit, []any{int64(5), int64(1), 10, "u", "t"}},
			"calls":           {selectCalls + pageOfCalls, []any{int64(5), "u", "t", 1, int64(1), 1, 10}},
			"user's calls":    {selectCalls + `user_id = $8 AND ` + pageOfCalls, []any{int64(5), "u", "t", 1, int64(1), 1, 10, "u"}},
			"model calls":     {selectCalls + `model = $8 AND ` + pageOfCalls, []any{int64(5), "u", "t", 1, int64(1), 1, 10, "m"}},
			"task's texts":    {selectTaskAssets, []any{"u", "t"}},
			"asset in use":    {selectAssetInUse, []any{"a"}},
			"asset runs":      {selectAssetRuns, []any{"a"}},
			"expired tasks":   {selectExpiredTasks, []any{int64(5), 10}},
			"expired texts":   {selectExpiredAssets, []any{int64(5), int64(0), "", 10}},
			"old entries":     {selectOldEntries, []any{int64(5), 10}},
			"old tasks":       {deleteTasks, []any{int64(5), 10}},
			"empty assets":    {deleteAssets, []any{int64(5), 10}},
			"old keys":        {deleteKeys, []any{int64(5), 10}},
			"old usage":       {deleteUsage, []any{int64(5), 10}},
			"old audit":       {deleteAudit, []any{int64(5), 10}},
			"usage":           {selectUsage, []any{"u", "t"}},
			"search":          {l.dialect.search, []any{l.dialect.match("u", []string{"go"}), "u", 5}},
			"step":            {`SELECT fence, output_asset_id FROM steps WHERE user_id = $1 AND task_id = $2 AND step = $3`, []any{"u", "t", 1}},
			"owns task":       {`SELECT 1 FROM tasks WHERE user_id = $1 AND id = $2 AND fence = $3 AND ended_at = 0`, []any{"u", "t", int64(1)}},
			"broken query":    {`SELECT id FROM tasks WHERE trace_id = $1`, []any{"t"}},
		} {
			rows, err := tx.QueryContext(t.Context(), explain+q.sql, q.args...)
			plan, err := collect(name, rows, err, func(line *string) []any {
				if l.dialect.name == "postgres" {
					return []any{line}
				}
				var a, b, c int
				return []any{&a, &b, &c, line}
			})
			require.NoError(t, err)
			text := strings.Join(plan, "\n")
			scans := strings.Contains(text, "Seq Scan") ||
				strings.Contains(strings.NewReplacer("SCAN passage_index VIRTUAL TABLE", "", "SCAN page", "").Replace(text), "SCAN ")
			if name == "broken query" {
				require.True(t, scans, "the test does not detect a scan: %s", text)
				continue
			}
			require.False(t, scans, "%s:\n%s", name, text)
			switch name {
			case "open":
				require.NotContains(t, text, "TEMP B-TREE", name)
			case "list", "filtered list", "all tasks", "filtered tasks", "failed tasks":
				require.Regexp(t, `Index Only Scan Backward using tasks_by_|Index Scan Backward using tasks_by_status|SEARCH tasks USING COVERING INDEX tasks_by_`, text, name)
				require.NotContains(t, text, "SCAN t ", name)
			}
		}
	})
}

// API and worker are separate processes on one database.
func TestLedger_TwoOnOneDatabase_TasksComplete(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, dsn string) {
		var g errgroup.Group
		for _, l := range []*Ledger{open(t, dsn), open(t, dsn)} {
			for range 4 {
				g.Go(func() error {
					for range 10 {
						if err := oneLife(t.Context(), l); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		require.NoError(t, g.Wait())
	})
}
