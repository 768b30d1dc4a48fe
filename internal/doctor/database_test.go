package doctor_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/doctor"
	"berth/internal/ledger"
	"berth/internal/testdb"
)

// The doctor states what a process that starts with the same settings states, the words of the server first.
func TestRun_WrongPostgres_IsNamedAsByAProcess(t *testing.T) { // FI2, FI4, FI8, FI9
	t.Parallel()
	server, addr := testdb.StartPasswords(t)
	fresh := func(statements ...string) string {
		cfg, err := pgx.ParseConfig(server.Database(t))
		require.NoError(t, err)
		conn, err := pgx.Connect(t.Context(), server.URLOf(cfg.Database))
		require.NoError(t, err)
		for _, statement := range append(statements, "GRANT CREATE ON SCHEMA public TO app") {
			_, err := conn.Exec(t.Context(), strings.ReplaceAll(statement, "DB", cfg.Database))
			require.NoError(t, err, statement)
		}
		require.NoError(t, conn.Close(t.Context()))
		return cfg.Database
	}
	at := func(user, password, database string, parameters ...string) string {
		u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: addr, Path: database, RawQuery: strings.Join(parameters, "&")}
		return u.String()
	}
	for _, role := range []string{"app", "full", "lost"} {
		server.Do(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'hidden'")
	}
	server.Do(t, "ALTER ROLE full CONNECTION LIMIT 0")
	server.Do(t, "ALTER ROLE lost SET search_path = nowhere")
	migrated := fresh()
	l, err := ledger.Open(t.Context(), server.URLOf(migrated), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, l.Close())

	for name, c := range map[string]struct{ dsn, text, advice string }{
		"no server":                {"postgres://app@127.0.0.1:1/berth", "127.0.0.1:1: connect: connection refused", "host and port in BERTH_DATABASE"},
		"no such host":             {"postgres://app@nowhere.invalid/berth", "nowhere.invalid", "host and port in BERTH_DATABASE"},
		"password with a percent":  {"postgres://app:hid%zz@" + addr + "/berth", "invalid percent-encoded token in password", "%25 for %"},
		"wrong password":           {at("app", "wrong", fresh()), `password authentication failed for user "app" (SQLSTATE 28P01)`, "BERTH_DATABASE: the server refused this secret"},
		"no such role":             {at("unknown", "hidden", fresh()), `password authentication failed for user "unknown"`, "BERTH_DATABASE"},
		"no such database":         {at("app", "hidden", "nowhere"), `database "nowhere" does not exist (SQLSTATE 3D000)`, "create it, or correct its name in BERTH_DATABASE"},
		"a server without TLS":     {at("app", "hidden", fresh(), "sslmode=require"), "server refused TLS connection", "sslmode"},
		"no file of authorities":   {at("app", "hidden", fresh(), "sslmode=verify-full", "sslrootcert=/none.pem"), "open /none.pem: no such file or directory", "sslrootcert"},
		"unknown sslmode":          {at("app", "hidden", fresh(), "sslmode=on"), "sslmode is invalid", "BERTH_DATABASE"},
		"unknown parameter":        {at("app", "hidden", fresh(), "pool_max_conns=4"), `unrecognized configuration parameter "pool_max_conns" (SQLSTATE 42704)`, "parameters of BERTH_DATABASE"},
		"read-only":                {at("app", "hidden", fresh("ALTER DATABASE DB SET default_transaction_read_only = on")), "read only connection", "the database is read-only"},
		"no right to connect":      {at("app", "hidden", fresh("REVOKE CONNECT ON DATABASE DB FROM PUBLIC")), "permission denied for database", "lacks a right"},
		"no rights on tables":      {at("app", "hidden", migrated), "permission denied for table goose_db_version (SQLSTATE 42501)", "SELECT, INSERT, UPDATE, DELETE"},
		"no schema in search_path": {at("lost", "hidden", fresh()), "no schema has been selected to create in", "search_path"},
		"too many connections":     {at("full", "hidden", fresh()), `too many connections for role "full" (SQLSTATE 53300)`, "BERTH_DATABASE_CONNECTIONS"},
	} {
		t.Run(name, func(t *testing.T) {
			found := run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database="+c.dsn)
			has(t, found, doctor.Error, c.text, c.advice)
			_, err := ledger.OpenSource(t.Context(), ledger.Source{URL: c.dsn}, slog.New(slog.DiscardHandler))
			p := ledger.Diagnose(err)
			require.NotNil(t, p, "%v", err)
			has(t, found, doctor.Error, p.Said, p.Advice)
			require.Contains(t, p.Error(), "BERTH_DATABASE")
			require.NotContains(t, p.Error(), "hid")
			t.Logf("%s -> %s (lasting: %v)", p.Said, p.Advice, p.Lasting)
		})
	}

	newer := fresh()
	l, err = ledger.Open(t.Context(), server.URLOf(newer), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	conn, err := pgx.Connect(t.Context(), server.URLOf(newer))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, TRUE)")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	found := run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database="+server.URLOf(newer))
	require.False(t, doctor.Failed(found))
	has(t, found, doctor.Warning, "the schema has version 99999", "upgrade berth")

	pooler := testdb.StartPooler(t, server)
	found = run(t, "database", time.Now, "--redis-addr=127.0.0.1:1", "--database="+pooler.URL(migrated))
	has(t, found, doctor.OK, "accepts writes", "")
	has(t, found, doctor.OK, "connections pass through a pooler", "")
}
