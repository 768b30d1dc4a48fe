// Package testredis starts real redis-server processes for tests: single servers, a Cluster, servers with Sentinels, each on
// free loopback ports and with its own directory.
package testredis

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/freeport"
	"berth/internal/pause"
	"berth/internal/testprocess"
)

// startTimeout bounds the start of a server, and of a Cluster or Sentinels.
const (
	startTimeout = 20 * time.Second
	pauseTime    = 10 * time.Millisecond // between two attempts
)

// Server is one running redis-server without persistence: after Restart it is empty.
type Server struct {
	*testprocess.Process
	tb   testing.TB
	port int
	args []string
	tls  *tls.Config // nil: none
	// password is that of the default user.
	password string
}

// Start runs a server until the test ends. extra are further command-line arguments, such as
// "--appendonly", "yes". A machine without redis-server fails the test.
func Start(tb testing.TB, extra ...string) *Server {
	tb.Helper()
	s := newServer(tb, findPorts(tb, 1)[0], tb.TempDir(), extra...)
	s.Restart()
	return s
}

// findPorts returns ports that no other test gets before this one ends: a server may be down for a while.
func findPorts(tb testing.TB, n int) (ports []int) {
	tb.Helper()
	for range n {
		port, release, err := freeport.Reserve()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(release)
		ports = append(ports, port)
	}
	return ports
}

// newServer returns a server that is not started.
func newServer(tb testing.TB, port int, dir string, extra ...string) *Server {
	return &Server{Process: testprocess.New(tb, "redis-server"), tb: tb, port: port, args: append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--appendonly", "no", "--dir", dir,
	}, extra...)}
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

// Do runs a command, such as one that configures the server, and returns its result as text.
func (s *Server) Do(args ...any) string {
	s.tb.Helper()
	c := s.connect()
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	out, err := c.Do(ctx, args...).Result()
	if err != nil {
		s.tb.Fatalf("redis-server %s: %v: %v", s.Addr(), args, err)
	}
	return fmt.Sprint(out)
}

// await retries f until it returns nil.
func (s *Server) await(what string, f func(ctx context.Context, c *redis.Client) error) {
	s.tb.Helper()
	c := s.connect()
	defer func() { _ = c.Close() }()
	err := pause.Until(context.Background(), startTimeout, pauseTime, func(ctx context.Context) error { return f(ctx, c) })
	if err != nil {
		s.tb.Fatalf("wait for %s: %v", what, err)
	}
}

func (s *Server) connect() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, TLSConfig: s.tls, Password: s.password})
}

// Restart kills a running process and starts a new one on the same port, ready when it returns.
func (s *Server) Restart() {
	s.tb.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is not installed: `apt-get install redis-server`")
	}
	c := s.connect()
	defer func() { _ = c.Close() }()
	cmd := exec.Command(bin, s.args...) //nolint:gosec // fixed program, arguments of the test itself
	s.Start(cmd, startTimeout, func(ctx context.Context) error { return c.Ping(ctx).Err() })
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
