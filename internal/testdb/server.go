package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"berth/internal/freeport"
	"berth/internal/pause"
	"berth/internal/testcert"
)

// errMissing is the failure on a machine without PostgreSQL.
var errMissing = errors.New("PostgreSQL is not installed: `apt-get install postgresql`")

// keeper runs PostgreSQL while its standard input is open. The test binary holds the other end, so the server stops and its
// directory is deleted even when the test binary is killed.
const keeper = `dir=$1 postgres=$2 keep=$3
shift 3
"$postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off \
	-c full_page_writes=off -c max_connections=200 -c shared_buffers=64MB "$@" </dev/null &
pid=$!
cat >/dev/null
kill -QUIT $pid
wait $pid
[ "$keep" = keep ] || rm -rf "$dir"`

// shared is the server of this test binary, started at first use.
var shared = sync.OnceValues(func() (*Server, error) {
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	return s, s.run("")
})

// Server is one running PostgreSQL on a Unix socket in its own directory, with fsync off.
type Server struct {
	dir      string
	postgres string
	flags    []string
	port     int // of a server with TLS; the name of its socket contains it
	as       *syscall.SysProcAttr
	cmd      *exec.Cmd
	life     *os.File // closing it ends the server
}

// Start runs a server for one test, which may Kill and Restart it, until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := prepareFor(tb)
	if err := s.run("keep"); err != nil {
		tb.Fatal(err)
	}
	return s
}

// StartTLS is Start for a server that also listens on a loopback port, where it requires TLS and a client certificate with
// the common name berth, which is the name of the database user. It presents the given certificate and returns its address.
func StartTLS(tb testing.TB, authority string, own testcert.Pair) (s *Server, addr string) {
	tb.Helper()
	s = prepareFor(tb)
	port, release, err := freeport.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	for name, from := range map[string]string{"ca.pem": authority, "server.pem": own.Cert, "server.key": own.Key} {
		s.copy(tb, name, from)
	}
	rules := []byte("local all all trust\nhostssl all all all cert\n")
	if err := os.WriteFile(filepath.Join(s.dir, "data", "pg_hba.conf"), rules, 0o600); err != nil {
		tb.Fatal(err)
	}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(port), "ssl=on", "ssl_ca_file=ca.pem", "ssl_cert_file=server.pem",
		"ssl_key_file=server.key",
	} {
		s.flags = append(s.flags, "-c", setting)
	}
	s.port = port
	if err := s.run("keep"); err != nil {
		tb.Fatal(err)
	}
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// copy copies a file into the data directory, readable by the server only.
func (s *Server) copy(tb testing.TB, name, from string) {
	tb.Helper()
	b, err := os.ReadFile(from)
	to := filepath.Join(s.dir, "data", name)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if c := s.as.Credential; c != nil && err == nil {
		err = os.Chown(to, int(c.Uid), int(c.Gid))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// prepareFor is prepare for one test, which stops the server and removes its directory.
func prepareFor(tb testing.TB) *Server {
	tb.Helper()
	s, err := prepare()
	if err != nil {
		tb.Fatal(err)
	}
	s.removeAfter(tb)
	return s
}

// removeAfter stops the server and removes its directory at the end of the test.
func (s *Server) removeAfter(tb testing.TB) {
	tb.Cleanup(func() {
		s.Kill()
		if err := os.RemoveAll(s.dir); err != nil {
			tb.Errorf("remove the directory of PostgreSQL: %v", err)
		}
	})
}

// Set starts the server with further settings, such as max_connections=20, at its next Restart.
func (s *Server) Set(settings ...string) {
	for _, setting := range settings {
		s.flags = append(s.flags, "-c", setting)
	}
}

// Kill ends the server immediately, like a crash. It has no effect if the server is not running.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.life.Close() // closed only here
	_ = s.cmd.Wait()   // the keeper's exit code has no meaning
	s.cmd = nil
}

// Restart brings a killed server back with its data, ready when it returns.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	if err := s.run("keep"); err != nil {
		tb.Fatal(err)
	}
}

// Database makes an empty database and names it for ledger.Open; it is dropped with the test.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return s.database(tb, "template1")
}

// database makes a copy of a database to which no client is connected.
func (s *Server) database(tb testing.TB, template string) string {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := s.admin("CREATE DATABASE " + name + " TEMPLATE " + template); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.admin("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
	return s.dsn(name)
}

func (s *Server) admin(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	if _, err := c.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// URLOf returns the address of a database on the server's socket.
func (s *Server) URLOf(database string) string { return s.dsn(database) }

func (s *Server) dsn(database string) string {
	q := url.Values{"host": {s.dir}, "user": {"berth"}, "connect_timeout": {"5"}}
	if s.port != 0 {
		q.Set("port", strconv.Itoa(s.port))
	}
	return "postgres:///" + database + "?" + q.Encode()
}

// StartOnSmallDisk is Start for a server whose data are on a file system of that size, which needs the rights of root.
func StartOnSmallDisk(tb testing.TB, size string) *Server {
	tb.Helper()
	s, err := directory()
	if err != nil {
		tb.Fatal(err)
	}
	s.removeAfter(tb)
	data := s.Data()
	if err := os.Mkdir(data, 0o700); err != nil {
		tb.Fatal(err)
	}
	options := "size=" + size + ",mode=0700"
	if c := s.as.Credential; c != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", c.Uid, c.Gid)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "berth", data).CombinedOutput(); err != nil { //nolint:gosec,noctx // a test's own directory
		tb.Fatalf("mount a small disk: %v: %s", err, out)
	}
	tb.Cleanup(func() {
		s.Kill()
		if out, err := exec.Command("umount", data).CombinedOutput(); err != nil { //nolint:gosec,noctx // mounted above
			tb.Errorf("unmount the small disk: %v: %s", err, out)
		}
	})
	if err := s.initialize(); err != nil {
		tb.Fatal(err)
	}
	if err := s.run("keep"); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Data returns the directory of the server's data.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// prepare creates the directory and an empty database cluster in it.
func prepare() (*Server, error) {
	s, err := directory()
	if err != nil {
		return nil, err
	}
	return s, s.initialize()
}

// initialize creates an empty database cluster.
func (s *Server) initialize() error {
	initdb, err := find("initdb")
	if err != nil {
		return err
	}
	cmd := exec.Command(initdb, "--pgdata", filepath.Join(s.dir, "data"), "--username", "berth", //nolint:gosec // found above
		"--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// directory creates the directory of a server without data.
func directory() (*Server, error) {
	postgres, err := find("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "berth-pg-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for PostgreSQL: %w", err)
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	return &Server{dir: dir, postgres: postgres, as: as}, nil
}

// run starts the keeper and waits until the server accepts connections. dir is "keep" if the caller removes the directory.
func (s *Server) run(dir string) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of PostgreSQL: %w", err)
	}
	defer func() { _ = log.Close() }() // the child process has its own descriptor
	stdin, life, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create a pipe: %w", err)
	}
	defer func() { _ = stdin.Close() }()
	args := append([]string{"-c", keeper, "keeper", s.dir, s.postgres, dir}, s.flags...)
	cmd := exec.Command("/bin/sh", args...) //nolint:gosec // fixed program
	cmd.Dir, cmd.SysProcAttr, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.dir, s.as, stdin, log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.cmd, s.life = cmd, life
	return s.ready()
}

func (s *Server) ready() error {
	err := pause.Until(context.Background(), 30*time.Second, 20*time.Millisecond, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, s.dsn("postgres"))
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // empty if it cannot be read
		return fmt.Errorf("PostgreSQL did not start: %w: %s", err, log)
	}
	return nil
}

// find looks on PATH first, then where Debian puts the newest version.
func find(program string) (string, error) {
	if p, err := exec.LookPath(program); err == nil {
		return p, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if err != nil || len(found) == 0 {
		return "", errMissing
	}
	return slices.Max(found), nil
}

// unprivileged gives the directory to the user postgres if the process runs as root, which PostgreSQL refuses. The
// separate session protects the keeper from a Ctrl-C in the terminal, because it has to remove the directory.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() != 0 {
		return as, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("no user to run PostgreSQL as: %w: %w", err, errMissing)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user id of postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group id of postgres: %w", err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("change the owner of the directory: %w", err)
	}
	as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return as, nil
}

// StartPasswords is Start for a server that also listens on a loopback port, where it requires passwords. It returns its address.
func StartPasswords(tb testing.TB) (s *Server, addr string) {
	tb.Helper()
	s = prepareFor(tb)
	port, release, err := freeport.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	rules := []byte("local all all trust\nhost all all all scram-sha-256\nhost replication all all scram-sha-256\n")
	if err := os.WriteFile(filepath.Join(s.dir, "data", "pg_hba.conf"), rules, 0o600); err != nil {
		tb.Fatal(err)
	}
	s.flags = append(s.flags, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port))
	s.port = port
	if err := s.run("keep"); err != nil {
		tb.Fatal(err)
	}
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
