// Package testredis starts real redis-server processes for tests, each on a free loopback port and with its own directory.
package testredis

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/freeport"
)

// Server is one running redis-server without persistence: after Restart it is empty.
type Server struct {
	tb   testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// Start runs a server until the test ends. extra are further command-line arguments, such as
// "--appendonly", "yes". A machine without redis-server fails the test.
func Start(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	ports, err := freeport.Find(1)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, port: ports[0], dir: tb.TempDir()}
	s.args = append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", s.dir,
	}, extra...)
	tb.Cleanup(s.Kill)
	s.Restart()
	return s
}

// Addr returns host:port; it stays the same across restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Client returns a client that is closed when the test ends.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	s.tb.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			s.tb.Errorf("close redis client: %v", err)
		}
	})
	return c
}

// Kill ends the process with SIGKILL, if it runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have exited already
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Pause suspends the process: connections stay open and get no replies, until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server: %v", err)
	}
}

// Restart kills a running process and starts a new one on the same port, ready when it returns.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is not installed: `apt-get install redis-server`")
	}
	var out bytes.Buffer
	s.cmd = exec.Command(bin, s.args...) //nolint:gosec // fixed program, arguments of the test itself
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = &out, &out, os.Environ()
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatalf("start redis-server: %v", err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			s.tb.Fatalf("redis-server did not start: %s", out.String())
		case <-tick.C:
		}
	}
}

// Cell returns a random key prefix, so that tests can share a server.
func Cell(tb testing.TB) string {
	tb.Helper()
	b := make([]byte, 6)
	if _, err := rand.Read(b); err != nil {
		tb.Fatalf("read randomness: %v", err)
	}
	return fmt.Sprintf("test-%x", b)
}
