package testdb

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/freeport"
	"berth/internal/pause"
	"berth/internal/process"
)

// Pooler is a PgBouncer in transaction mode with a few connections to a server. It ends with the test.
type Pooler struct {
	dir, settings string
	port          int
	cmd           *exec.Cmd
}

// StartPooler starts a PgBouncer in front of a server.
func StartPooler(tb testing.TB, s *Server) *Pooler {
	tb.Helper()
	return StartPoolerWith(tb, s, settings, "")
}

// settings have HOST, PORT, LISTEN and DIR in place of the server's address, the pooler's port and its directory.
const settings = `[databases]
* = host=HOST port=PORT user=berth
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = LISTEN
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
server_login_retry = 1
logfile = DIR/log
`

// StartPoolerWith is StartPooler with other settings, and with passwords in DIR/userlist.txt.
func StartPoolerWith(tb testing.TB, s *Server, settings, users string) *Pooler {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; exec.Command(program, "--version").Run() != nil { //nolint:noctx // a moment
			tb.Fatal("PgBouncer is not installed: `apt-get install pgbouncer`")
		}
	}
	d, err := directory()
	if err != nil {
		tb.Fatal(err)
	}
	port, release, err := freeport.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Pooler{dir: d.dir, port: port, settings: settings}
	if err := os.WriteFile(filepath.Join(p.dir, "userlist.txt"), []byte(users), 0o644); err != nil { //nolint:gosec // read by another user
		tb.Fatal(err)
	}
	p.write(tb, s)
	p.cmd = exec.Command(program, filepath.Join(p.dir, "pgbouncer.ini")) //nolint:gosec,noctx // found above; ended below
	p.cmd.Dir, p.cmd.SysProcAttr = p.dir, process.EndWithParent(&syscall.SysProcAttr{Credential: d.as.Credential})
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have exited
		_ = p.cmd.Wait()
		_ = os.RemoveAll(p.dir)
		release()
	})
	p.await(tb)
	return p
}

// URL returns the address of a database of the server.
func (p *Pooler) URL(database string) string {
	return fmt.Sprintf("postgres://berth@127.0.0.1:%d/%s", p.port, url.PathEscape(database))
}

// Addr returns the address at which the pooler listens.
func (p *Pooler) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Target makes the pooler use another server. Transactions in progress end first.
func (p *Pooler) Target(tb testing.TB, s *Server) {
	tb.Helper()
	p.write(tb, s)
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		tb.Fatal(err)
	}
}

func (p *Pooler) write(tb testing.TB, s *Server) {
	tb.Helper()
	port := s.port
	if port == 0 {
		port = 5432
	}
	text := strings.NewReplacer("HOST", s.dir, "PORT", strconv.Itoa(port), "LISTEN", strconv.Itoa(p.port), "DIR", p.dir).Replace(p.settings)
	if err := os.WriteFile(filepath.Join(p.dir, "pgbouncer.ini"), []byte(text), 0o644); err != nil { //nolint:gosec // read by another user
		tb.Fatal(err)
	}
}

func (p *Pooler) await(tb testing.TB) {
	tb.Helper()
	err := pause.Until(context.Background(), 30*time.Second, 20*time.Millisecond, func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)))
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(p.dir, "log")) // empty if it cannot be read
		tb.Fatalf("PgBouncer did not start: %v: %s", err, log)
	}
}
