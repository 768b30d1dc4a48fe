package ledger

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth"
)

// limited opens a migrated database as a role that may only log in.
func limited(t *testing.T) (s *server, as func() (*Ledger, error), inspect func() (Server, error)) {
	s = newServer(t)
	open(t, s.admin)
	s.do("CREATE ROLE app LOGIN PASSWORD 'hidden'")
	src := Source{URL: s.url("app", "hidden")}
	return s, func() (*Ledger, error) { return OpenSource(t.Context(), src, slog.New(slog.DiscardHandler)) },
		func() (Server, error) { return Inspect(t.Context(), src) }
}

// A process and the doctor state the same about a role that lacks rights.
func TestOpen_RoleWithoutRights_IsLastingAndNamesThem(t *testing.T) { // FI2, FI8
	t.Parallel()
	s, as, inspect := limited(t)
	both := func(want string) {
		t.Helper()
		_, opened := as()
		p := Diagnose(opened)
		require.NotNil(t, p, "%v", opened)
		require.Equal(t, "missing_right", p.Code)
		require.True(t, p.Lasting)
		require.Contains(t, p.Error(), want)
		require.Contains(t, p.Advice, "GRANT")
		_, err := inspect()
		require.Equal(t, p.Error(), Diagnose(err).Error())
	}
	both("permission denied for table goose_db_version (SQLSTATE 42501)")
	s.do("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app")
	both("permission denied for table write_checks")
	s.do("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO app", "REVOKE UPDATE ON tasks FROM app", "GRANT DELETE ON tasks TO app")
	both("role app lacks rights on tables: accounts (DELETE), ")
	both("tasks (UPDATE)")
	s.do("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app")
	l, err := as()
	require.NoError(t, err, "no right to change the schema is needed")
	defer func() { require.NoError(t, l.Close()) }()
	_, err = inspect()
	require.NoError(t, err)
	create(t, l, chain())

	s.do("REVOKE INSERT ON assets FROM app")
	require.Eventually(t, func() bool { p := Diagnose(l.Ping(t.Context())); return p != nil && p.Code == "missing_right" }, 30*time.Second, 100*time.Millisecond)
	s.do("GRANT INSERT ON assets TO app")
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
}

func TestInspect_SchemaToMigrate_MissingRightsAreNamed(t *testing.T) { // FI8
	t.Parallel()
	s := newServer(t)
	s.do("CREATE ROLE app LOGIN PASSWORD 'hidden'")
	_, err := Inspect(t.Context(), Source{URL: s.url("app", "hidden")})
	require.ErrorContains(t, err, "permission denied for schema public: role app may not create tables: ")
	_, err = Open(t.Context(), s.url("app", "hidden"), slog.New(slog.DiscardHandler))
	require.Equal(t, "missing_right", Diagnose(err).Code)
	s.do("GRANT CREATE ON SCHEMA public TO app")
	_, err = Inspect(t.Context(), Source{URL: s.url("app", "hidden")})
	require.NoError(t, err)
	s.do("CREATE TABLE tasks (id TEXT)")
	_, err = Inspect(t.Context(), Source{URL: s.url("app", "hidden")})
	require.ErrorContains(t, err, "role app is not an owner of tables that have to be changed: tasks")
}

func TestOpen_TooFewConnections_WaitsWithNumbers(t *testing.T) { // FI9
	t.Parallel()
	s := newServer(t)
	s.do("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'hidden' CONNECTION LIMIT 4", "ALTER ROLE app NOSUPERUSER", "GRANT CREATE ON SCHEMA public TO app")
	src := Source{URL: s.url("app", "hidden"), Connections: 2}
	l, err := OpenSource(t.Context(), src, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	require.Equal(t, 2, l.write.Stats().MaxOpenConnections)
	server, err := l.server(t.Context())
	require.NoError(t, err)
	require.Len(t, server.Warnings(), 1)
	require.Equal(t, "BERTH_DATABASE_CONNECTIONS", server.Warnings()[0].Setting)
	require.Contains(t, server.Warnings()[0].Error(), "the server permits 4 connections to this role and database, and each process of berth uses up to 4")
	fillTwo := func() {
		for range 2 {
			tx, err := l.write.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
		}
	}
	fillTwo()
	_, err = OpenSource(t.Context(), src, slog.New(slog.DiscardHandler))
	requireCode(t, berth.CodeUnavailable, err)
	p := Diagnose(err)
	require.False(t, p.Lasting)
	require.Equal(t, "too_many_connections", p.Code)
	require.Contains(t, p.Error(), `too many connections for role "app" (SQLSTATE 53300)`)
	require.Contains(t, p.Error(), "this process uses up to 4 connections, of max_connections=")
}

// D10: a server that accepts no more connections does not end the use of those that a process has. Once there are free ones, the process works
// again at the next checks.
func TestPing_TooFewConnections_WorkKeepsItsOwn(t *testing.T) { // L11
	t.Parallel()
	s := newServer(t)
	s.do("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'hidden' CONNECTION LIMIT 6", "ALTER ROLE app NOSUPERUSER", "GRANT CREATE ON SCHEMA public TO app")
	l, err := OpenSource(t.Context(), Source{URL: s.url("app", "hidden"), Connections: 2}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	l.probe.SetMaxIdleConns(0) // its next connection is a new one
	l.write.SetMaxOpenConns(1)
	session := func() (pid int) {
		require.NoError(t, l.write.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
		return pid
	}
	own := session()
	require.Eventually(t, func() bool { // the server has noticed that the others were closed
		var n int
		err := l.write.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").Scan(&n)
		return err == nil && n == 1
	}, 30*time.Second, 10*time.Millisecond)
	var others []*pgx.Conn
	for range 5 {
		conn, err := pgx.Connect(t.Context(), s.url("app", "hidden"))
		require.NoError(t, err)
		others = append(others, conn)
	}
	for range 5 {
		p := Diagnose(l.Ping(t.Context()))
		require.NotNil(t, p)
		require.Equal(t, "too_many_connections", p.Code)
		require.Equal(t, "BERTH_DATABASE_CONNECTIONS", p.Setting)
		require.Contains(t, p.Text, "max_connections")
		require.Equal(t, own, session(), "the connection of the work is kept")
	}
	for _, conn := range others {
		require.NoError(t, conn.Close(t.Context()))
	}
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, own, session())
}

// The rights of all tables are checked, and of no others.
func TestTables_Migrations_AreThoseOfTheSchema(t *testing.T) { // FI8
	t.Parallel()
	l := open(t, migrated.Postgres(t))
	there, err := l.tables()
	require.NoError(t, err)
	require.ElementsMatch(t, there, tables)
}
