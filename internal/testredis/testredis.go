// Package testredis starts real redis-server processes for tests, each on a free loopback port and with its own directory.
package testredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/freeport"
	"berth/internal/testprocess"
)

// Server is one running redis-server without persistence: after Restart it is empty.
type Server struct {
	*testprocess.Process
	tb   testing.TB
	port int
	args []string
}

// Start runs a server until the test ends. extra are further command-line arguments, such as
// "--appendonly", "yes". A machine without redis-server fails the test.
func Start(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	ports, err := freeport.Find(1)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, port: ports[0]}
	s.args = append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", tb.TempDir(),
	}, extra...)
	s.Process = testprocess.New(tb, "redis-server")
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

// Restart kills a running process and starts a new one on the same port, ready when it returns.
func (s *Server) Restart() {
	s.tb.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is not installed: `apt-get install redis-server`")
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	cmd := exec.Command(bin, s.args...) //nolint:gosec // fixed program, arguments of the test itself
	s.Start(cmd, 10*time.Second, func(ctx context.Context) error { return c.Ping(ctx).Err() })
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
