package testdb

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"berth/internal/freeport"
)

// StartPrimary is Start for a server with a standby that replicates it. Both listen on loopback ports. A commit returns when the standby
// has it, so that nothing is lost when the primary is killed and the standby is promoted.
func StartPrimary(tb testing.TB) (primary, standby *Server) {
	tb.Helper()
	primary = prepareFor(tb)
	primary.listen(tb)
	if err := primary.run("keep"); err != nil {
		tb.Fatal(err)
	}
	standby = primary.StartStandby(tb, `pg_basebackup --pgdata="$PGDATA" --host="$PRIMARY_HOST" --port="$PRIMARY_PORT" --username=berth \
		--wal-method=stream --checkpoint=fast --no-sync --write-recovery-conf`)
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if err := primary.admin(statement); err != nil {
			tb.Fatal(err)
		}
	}
	return primary, standby
}

// StartStandby starts a server with the data that a shell script copies to $PGDATA from the primary at $PRIMARY_HOST and $PRIMARY_PORT.
func (s *Server) StartStandby(tb testing.TB, script string) *Server {
	tb.Helper()
	standby, err := directory()
	if err != nil {
		tb.Fatal(err)
	}
	standby.removeAfter(tb)
	standby.listen(tb)
	cmd := exec.Command("/bin/sh", "-e", "-c", script) //nolint:gosec,noctx // of a test
	cmd.Dir, cmd.SysProcAttr = standby.dir, standby.as
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.postgres)+":/usr/bin:/bin", "PGDATA="+filepath.Join(standby.dir, "data"),
		"PRIMARY_HOST=127.0.0.1", "PRIMARY_PORT="+strconv.Itoa(s.port))
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("copy the data to the standby: %v: %s", err, out)
	}
	if err := standby.run("keep"); err != nil {
		tb.Fatal(err)
	}
	return standby
}

// listen makes the server listen on a loopback port.
func (s *Server) listen(tb testing.TB) {
	tb.Helper()
	port, release, err := freeport.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	s.port = port
	s.flags = append(s.flags, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port))
}

// Addr returns the address on a loopback port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address of a database of the server on its loopback port, followed by those of other servers that may have it.
func (s *Server) URL(database string, others ...*Server) string {
	hosts := s.Addr()
	for _, o := range others {
		hosts += "," + o.Addr()
	}
	return fmt.Sprintf("postgres://berth@%s/%s?sslmode=disable", hosts, url.PathEscape(database))
}

// Do runs a statement as the superuser, outside of a transaction.
func (s *Server) Do(tb testing.TB, statement string) {
	tb.Helper()
	if err := s.admin(statement); err != nil {
		tb.Fatal(err)
	}
}

// Promote makes a standby the primary.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.Do(tb, "SELECT pg_promote(true, 60)")
}

// Demote makes a killed primary a standby at its next start.
func (s *Server) Demote(tb testing.TB) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "data", "standby.signal"), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
}
