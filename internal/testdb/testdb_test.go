package testdb_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth/internal/testdb"
)

func TestEach_EveryKind_OwnDataSourceName(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, dsn string) {
		_, kind, _ := strings.Cut(t.Name(), "/")
		require.True(t, strings.HasPrefix(dsn, kind), dsn)
	})
}

func TestPostgres_TwoDatabases_Separate(t *testing.T) {
	t.Parallel()
	one, other := connect(t, testdb.Postgres(t)), connect(t, testdb.Postgres(t))
	_, err := one.Exec(t.Context(), "CREATE TABLE mark (n INTEGER)")
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "SELECT n FROM mark")
	require.ErrorContains(t, err, "does not exist")
}

func TestServer_KilledAndRestarted_DataKept(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t)
	dsn := s.Database(t)
	_, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE mark (n INTEGER)")
	require.NoError(t, err)

	s.Kill()
	_, err = pgx.Connect(t.Context(), dsn)
	require.Error(t, err)

	s.Restart(t)
	_, err = connect(t, dsn).Exec(t.Context(), "INSERT INTO mark VALUES (1)")
	require.NoError(t, err)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}
