package ledger

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testdb"
)

// server is a PostgreSQL that requires passwords, with a role per user.
type server struct {
	t     *testing.T
	admin string // address with all permissions
	addr  string
}

func newServer(t *testing.T) *server {
	t.Helper()
	db, addr := testdb.StartPasswords(t)
	return &server{t: t, admin: db.Database(t), addr: addr}
}

// do runs statements as the superuser.
func (s *server) do(statements ...string) {
	s.t.Helper()
	c, err := pgx.Connect(s.t.Context(), s.admin)
	require.NoError(s.t, err)
	for _, statement := range statements {
		_, err := c.Exec(s.t.Context(), statement)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, c.Close(s.t.Context()))
}

// url returns the address for a user with a password, which may be empty.
func (s *server) url(user, password string) string {
	u, err := url.Parse(s.admin)
	require.NoError(s.t, err)
	credentials := url.User(user)
	if password != "" {
		credentials = url.UserPassword(user, password)
	}
	return (&url.URL{Scheme: "postgres", User: credentials, Host: s.addr, Path: u.Path}).String()
}

// replaceConnections makes the next statement of every ledger use a new connection.
func (s *server) replaceConnections() {
	s.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
}

func secretFile(t *testing.T) (path string, write func(text string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	return path, func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
}

// works waits for a connection: the first statements notice that theirs were ended.
func works(t *testing.T, l *Ledger) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil && l.read.PingContext(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
}

func fails(t *testing.T, l *Ledger, setting string) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool { err = l.Ping(t.Context()); return err != nil && strings.Contains(err.Error(), setting) }, 10*time.Second, 10*time.Millisecond)
	requireCode(t, berth.CodeUnavailable, err)
	require.NotContains(t, err.Error(), "hidden")
}

// A role has one password, which changes in the file and in the server one after the other.
func TestOpenSource_PasswordFileChanges_NewConnectionsUseIt(t *testing.T) { // FM6
	t.Parallel()
	s := newServer(t)
	s.do("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'hidden1'")
	file, write := secretFile(t)
	write("hidden1\n")
	l, err := OpenSource(t.Context(), Source{URL: s.url("app", ""), PasswordFile: file}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()

	write("hidden2\n")
	s.replaceConnections()
	works(t, l) // with the former one, until the server has the new one
	s.do("ALTER ROLE app PASSWORD 'hidden2'")
	require.NoError(t, l.Ping(t.Context()), "existing connections stay")
	s.replaceConnections()
	works(t, l)

	s.do("ALTER ROLE app PASSWORD 'hidden3'")
	s.replaceConnections()
	fails(t, l, "BERTH_DATABASE_PASSWORD_FILE: the server refused this secret")
	write("")
	fails(t, l, "BERTH_DATABASE_PASSWORD_FILE: the secret cannot be read: the file is empty")
	write("hidden3")
	works(t, l)
}

// Two roles take turns: both passwords are valid while the file changes.
func TestOpenSource_URLFileChanges_NewConnectionsUseIt(t *testing.T) { // FM6
	t.Parallel()
	s := newServer(t)
	s.do("CREATE ROLE one SUPERUSER LOGIN PASSWORD 'hidden1'", "CREATE ROLE two SUPERUSER LOGIN PASSWORD 'hidden2'")
	file, write := secretFile(t)
	write(s.url("one", "hidden1") + "\n")
	l, err := OpenSource(t.Context(), Source{URLFile: file}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	user := func() (name string) {
		require.Eventually(t, func() bool { // each of the connections that were ended fails once
			return l.read.QueryRowContext(t.Context(), "SELECT current_user").Scan(&name) == nil
		}, 10*time.Second, 10*time.Millisecond)
		return name
	}
	require.Equal(t, "one", user())

	write(s.url("two", "hidden2"))
	require.Equal(t, "one", user(), "existing connections stay")
	s.do("ALTER ROLE one NOLOGIN")
	s.replaceConnections()
	works(t, l)
	require.Equal(t, "two", user())

	write("postgres://%zz:hidden@x")
	s.replaceConnections()
	fails(t, l, "BERTH_DATABASE_FILE: invalid PostgreSQL address")
	s.do("ALTER ROLE two PASSWORD 'hidden4'")
	write(s.url("two", "hidden2"))
	fails(t, l, "BERTH_DATABASE_FILE: the server refused this secret")
	read, err := Inspect(t.Context(), Source{URLFile: file})
	require.ErrorContains(t, err, "BERTH_DATABASE_FILE", "%v", read)
}

func TestSource_Settings_ErrorNamesThem(t *testing.T) { // FM6
	t.Parallel()
	put := func(text string) string {
		file, write := secretFile(t)
		write(text)
		return file
	}
	good := put("hidden")
	for name, c := range map[string]struct {
		source Source
		want   string
	}{
		"URL twice":           {Source{URL: "postgres://h/d", URLFile: put("postgres://h/d")}, "set one of BERTH_DATABASE and BERTH_DATABASE_FILE, not both"},
		"password twice":      {Source{URL: "postgres://u:hidden@h/d", PasswordFile: good}, "BERTH_DATABASE_PASSWORD_FILE: BERTH_DATABASE already has a password"},
		"password as a param": {Source{URLFile: put("postgres://h/d?password=hidden"), PasswordFile: good}, "BERTH_DATABASE_FILE already has a password"},
		"password of SQLite":  {Source{URL: "sqlite:x", PasswordFile: good}, "BERTH_DATABASE_PASSWORD_FILE: SQLite has no password"},
		"scheme":              {Source{URLFile: put("mysql://hidden")}, "BERTH_DATABASE_FILE: must start with"},
		"no scheme":           {Source{URL: "hidden"}, "BERTH_DATABASE: must start with"},
		"missing URL":         {Source{URLFile: "/none"}, "BERTH_DATABASE_FILE: the secret cannot be read"},
		"missing password":    {Source{URL: "postgres://h/d", PasswordFile: "/none"}, "BERTH_DATABASE_PASSWORD_FILE: the secret cannot be read"},
	} {
		err := c.source.Validate()
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "hidden", name)
	}
	for _, ok := range []Source{{URL: "sqlite:x"}, {URLFile: put("sqlite:x\n")}, {URL: "postgresql://u@h/d", PasswordFile: good}} {
		require.NoError(t, ok.Validate(), fmt.Sprint(ok))
	}
}
