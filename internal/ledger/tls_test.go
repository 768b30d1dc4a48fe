package ledger

import (
	"log/slog"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/testcert"
	"berth/internal/testdb"
)

func TestOpen_PostgresWithTLS_BothSidesAreVerified(t *testing.T) { // B7
	t.Parallel()
	ca, other := testcert.New(t), testcert.New(t)
	server, addr := testdb.StartTLS(t, ca.File, ca.Issue(t, "postgres.test"))
	database, err := url.Parse(server.Database(t))
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	client := ca.Issue(t, "berth")
	open := func(host string, parameters map[string]string) (*Ledger, error) {
		q := url.Values{}
		for k, v := range parameters {
			q.Set(k, v)
		}
		u := url.URL{Scheme: "postgres", User: url.User("berth"), Host: net.JoinHostPort(host, port), Path: database.Path, RawQuery: q.Encode()}
		return Open(t.Context(), u.String(), slog.New(slog.DiscardHandler))
	}
	full := func(changes ...string) map[string]string {
		m := map[string]string{
			"sslmode": "verify-full", "sslrootcert": ca.File, "sslcert": client.Cert, "sslkey": client.Key,
		}
		for i := 0; i < len(changes); i += 2 {
			m[changes[i]] = changes[i+1]
		}
		return m
	}

	t.Run("both certificates are valid", func(t *testing.T) {
		l, err := open("127.0.0.1", full())
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		var encrypted bool
		require.NoError(t, l.read.QueryRowContext(t.Context(),
			"SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted))
		require.True(t, encrypted)
		task := create(t, l, chain())
		got, err := l.GetTask(t.Context(), task.Ref())
		require.NoError(t, err)
		require.Equal(t, task, got)
	})
	t.Run("the server's certificate is of another authority", func(t *testing.T) {
		_, err := open("127.0.0.1", full("sslrootcert", other.File))
		require.True(t, Diagnose(err).Lasting)
		require.ErrorContains(t, err, "the certificate of PostgreSQL could not be verified; check sslrootcert")
		require.ErrorContains(t, err, "signed by unknown authority")
	})
	t.Run("the server's certificate has another name", func(t *testing.T) {
		_, err := open("localhost", full())
		require.True(t, Diagnose(err).Lasting)
		require.ErrorContains(t, err, "not localhost")
	})
	t.Run("no client certificate", func(t *testing.T) {
		_, err := open("127.0.0.1", map[string]string{"sslmode": "verify-full", "sslrootcert": ca.File})
		require.ErrorContains(t, err, "certificate")
	})
	t.Run("no TLS", func(t *testing.T) {
		_, err := open("127.0.0.1", map[string]string{"sslmode": "disable"})
		require.ErrorContains(t, err, "no encryption")
	})
	t.Run("no file of authorities", func(t *testing.T) {
		_, err := open("127.0.0.1", full("sslrootcert", "/nonexistent/ca.pem"))
		require.Equal(t, "open /nonexistent/ca.pem: no such file or directory: correct sslrootcert, sslcert or sslkey in BERTH_DATABASE", Diagnose(err).Error())
	})
}
