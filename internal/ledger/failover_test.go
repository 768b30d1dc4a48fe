package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/health"
	"berth/internal/testdb"
)

// awaitProblem waits until Ping returns a problem with a code, and requires that a write fails then with CodeUnavailable.
func awaitProblem(t *testing.T, l *Ledger, code string) *health.Problem {
	t.Helper()
	var p *health.Problem
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // of a gate
		defer cancel()
		err := l.Ping(ctx)
		p = Diagnose(err)
		return err != nil && p != nil && p.Code == code
	}, 30*time.Second, 10*time.Millisecond)
	_, _, err := l.CreateTask(t.Context(), chain())
	requireCode(t, berth.CodeUnavailable, err)
	return p
}

// writes waits until Ping succeeds. All connections must accept writes then, but for those whose end is noticed at their next use.
func writes(t *testing.T, l *Ledger) {
	t.Helper()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return l.Ping(ctx) == nil
	}, 30*time.Second, 10*time.Millisecond)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			_, _, err := l.CreateTask(context.Background(), chain())
			if err != nil {
				t.Errorf("a write after the database accepts them: %v", err)
			}
		})
	}
	running.Wait()
}

// fill opens several connections of the pool.
func fill(t *testing.T, l *Ledger) {
	t.Helper()
	for range 5 {
		tx, err := l.write.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
	}
}

func TestPing_ServerBecomesReadOnly_UnavailableUntilItIsWritable(t *testing.T) { // FI2
	t.Parallel()
	for name, c := range map[string]struct{ on, off []string }{
		"setting of the server": {
			[]string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"},
			[]string{"ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"},
		},
		"setting of the database, for sessions that begin then": {
			[]string{"ALTER DATABASE %s SET default_transaction_read_only = on", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'"},
			[]string{"ALTER DATABASE %s RESET default_transaction_read_only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testdb.Start(t)
			dsn := s.Database(t)
			cfg, err := pgx.ParseConfig(dsn)
			require.NoError(t, err)
			do := func(statements []string) {
				for _, statement := range statements {
					s.Do(t, strings.ReplaceAll(statement, "%s", cfg.Database))
				}
			}
			l := open(t, dsn)
			fill(t, l)
			do(c.on)
			p := awaitProblem(t, l, "read_only")
			require.Contains(t, p.Error(), "read")
			require.Equal(t, "BERTH_DATABASE", p.Setting)
			require.False(t, p.Lasting)
			do(c.off)
			writes(t, l)
		})
	}
}

func TestConnector_StandbyPromoted_FoundWithoutRestart(t *testing.T) { // FI2
	t.Parallel()
	primary, standby := testdb.StartPrimary(t)
	l := open(t, primary.URL("postgres", standby))
	fill(t, l)
	writes(t, l)

	_, err := Open(t.Context(), standby.URL("postgres"), slog.New(slog.DiscardHandler))
	require.Equal(t, "read_only", Diagnose(err).Code, err)

	primary.Kill()
	p := awaitProblem(t, l, "read_only")
	require.Contains(t, p.Error(), primary.Addr()+": dial tcp "+primary.Addr()+": connect: connection refused; "+standby.Addr()+": read only connection: the database is read-only")
	standby.Promote(t)
	writes(t, l)

	primary.Demote(t)
	primary.Restart(t)
	writes(t, l)
	writes(t, open(t, primary.URL("postgres", standby)))
}

// A host that has lost its power does not reply. The time of a check must be enough for the next one.
func TestConnector_FirstHostHangs_NextIsFoundInTime(t *testing.T) { // FI2
	t.Parallel()
	s, addr := testdb.StartPasswords(t)
	cfg, err := pgx.ParseConfig(s.Database(t))
	require.NoError(t, err)
	s.Do(t, "CREATE ROLE app SUPERUSER LOGIN PASSWORD 'hidden'")
	hanging, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = hanging.Close() }()
	l, err := Open(t.Context(), fmt.Sprintf("postgres://app:hidden@%s,%s/%s?connect_timeout=2", hanging.Addr(), addr, cfg.Database), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	require.NoError(t, l.probe.Close())
	fresh, err := connect(Source{URL: fmt.Sprintf("postgres://app:hidden@%s,%s/%s", hanging.Addr(), addr, cfg.Database)})
	require.NoError(t, err)
	defer func() { require.NoError(t, fresh.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	require.NoError(t, fresh.Ping(ctx), "a host gets its part of the time only")
}

// Each error of the server has one effect for callers, and names what to change.
func TestTranslate_ErrorsOfPostgres_AreClassified(t *testing.T) { // FI2, FI8
	t.Parallel()
	for state, c := range map[string]struct {
		code    berth.Code
		problem string
		lasting bool
	}{
		"25006": {berth.CodeUnavailable, "read_only", false},
		"57P01": {berth.CodeUnavailable, "shutting_down", false},
		"57P02": {berth.CodeUnavailable, "shutting_down", false},
		"57P03": {berth.CodeUnavailable, "starting", false},
		"57014": {berth.CodeUnavailable, "shutting_down", false},
		"53300": {berth.CodeUnavailable, "too_many_connections", false},
		"53100": {berth.CodeUnavailable, "disk_full", false},
		"53200": {berth.CodeUnavailable, "out_of_resources", false},
		"53400": {berth.CodeUnavailable, "out_of_resources", false},
		"08006": {berth.CodeUnavailable, "unreachable", false},
		"08P01": {berth.CodeUnavailable, "unreachable", false},
		"40001": {berth.CodeUnavailable, "busy", false},
		"40P01": {berth.CodeUnavailable, "busy", false},
		"42P05": {berth.CodeUnavailable, "pooler", true},
		"26000": {berth.CodeUnavailable, "pooler", true},
		"42501": {berth.CodeUnavailable, "missing_right", true},
		"28P01": {berth.CodeUnavailable, "login_refused", true},
		"28000": {berth.CodeUnavailable, "login_refused", true},
		"3D000": {berth.CodeUnavailable, "no_database", true},
		"3F000": {berth.CodeUnavailable, "no_schema", true},
		"42P01": {berth.CodeInternal, "no_schema", true},
		"23505": {berth.CodeInternal, "", false},
		"":      {berth.CodeInternal, "", false},
	} {
		err := translate("test", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: state, Message: "words of the server"}))
		requireCode(t, c.code, err)
		p := Diagnose(err)
		if c.problem == "" {
			require.Nil(t, p, state)
			continue
		}
		require.Equal(t, c.problem, p.Code, state)
		require.Equal(t, c.lasting, p.Lasting, state)
		require.True(t, strings.HasPrefix(p.Error(), "words of the server (SQLSTATE "+state+"): "), p.Error())
		require.NotEmpty(t, p.Advice)
		require.Contains(t, p.Setting, "BERTH_DATABASE")
		require.Equal(t, p.Advice, p.Text)
	}
}

// FI9: commits that wait for a standby which is down are that, and not a server out of reach.
func TestPing_SynchronousStandbyDown_IsNamed(t *testing.T) {
	t.Parallel()
	primary, standby := testdb.StartPrimary(t)
	l := open(t, primary.URL("postgres"))
	require.NoError(t, l.Ping(t.Context()))
	standby.Kill()
	require.Eventually(t, func() bool {
		p := Diagnose(l.Ping(t.Context()))
		return p != nil && p.Code == "standby_awaited" && !p.Lasting
	}, time.Minute, 100*time.Millisecond)
	_, err := Inspect(t.Context(), Source{URL: primary.URL("postgres")})
	require.Equal(t, "standby_awaited", Diagnose(err).Code, "%v", err)
	primary.Do(t, "ALTER SYSTEM SET synchronous_standby_names = ''")
	primary.Do(t, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil }, time.Minute, 100*time.Millisecond)
}
