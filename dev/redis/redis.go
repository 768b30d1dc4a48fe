// Package redis runs a Redis for development: redis-server with an append-only file if it is installed, otherwise an
// embedded server that keeps its data in memory only.
package redis

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"berth/dev/child"
	"berth/internal/pause"
)

const (
	readyTimeout = 10 * time.Second
	pingTimeout  = time.Second
	// stopTimeout bounds the time in which redis-server writes its file before it is killed.
	stopTimeout = 3 * time.Second
	// restartPause is the time between an exit of redis-server and its restart.
	restartPause = 200 * time.Millisecond
)

// Options configure a Redis server.
type Options struct {
	// Addr is host:port; the port may not be 0.
	Addr string
	// Dir is created if it does not exist. It contains the append-only file and the log.
	Dir string
	// Logger logs unexpected exits of redis-server. Nil discards them.
	Logger *slog.Logger
}

// Server is a running Redis. Call Stop once.
type Server struct {
	embedded *miniredis.Miniredis

	cancel context.CancelFunc
	ended  chan struct{}
}

// Start starts Redis and returns when it replies. A redis-server that exits unexpectedly is restarted on the same data.
// It ends with this process; on Linux also when this process is killed.
func Start(ctx context.Context, o Options) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return startEmbedded(o)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("redis directory: %w", err)
	}
	args, err := arguments(o)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{cancel: cancel, ended: make(chan struct{})}
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	go child.Supervise(running, child.Process{ // what it acknowledged is in its file when it is killed
		Name: "redis-server", Binary: binary, Args: args, StopWithin: stopTimeout, RestartAfter: restartPause, Logger: o.Logger,
	}, s.ended, failed)

	// It replies when it has loaded its file.
	if err := pause.Until(ctx, readyTimeout, 5*time.Millisecond, func(ctx context.Context) error { return ping(ctx, o.Addr) }); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start redis-server (log in %s): %w", filepath.Join(o.Dir, "redis.log"), err)
	}
	return s, nil
}

// Embedded reports whether redis-server was not found, so that no data survives a restart.
func (s *Server) Embedded() bool { return s.embedded != nil }

// Stop lets Redis write its file and returns when it has ended, at most three seconds later.
func (s *Server) Stop() {
	if s.embedded != nil {
		s.embedded.Close()
		return
	}
	s.cancel()
	<-s.ended
}

func startEmbedded(o Options) (*Server, error) {
	m := miniredis.NewMiniRedis()
	// By default, keys expire only when a test advances the time.
	m.ClockTTL(true)
	if err := m.StartAddr(o.Addr); err != nil {
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	return &Server{embedded: m}, nil
}

func arguments(o Options) ([]string, error) {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, fmt.Errorf("redis address: %w", err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("redis directory: %w", err)
	}
	return []string{
		"--bind", host, "--port", port,
		"--dir", dir, "--logfile", filepath.Join(dir, "redis.log"),
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
		"--daemonize", "no", "--maxmemory-policy", "noeviction",
	}, nil
}

func ping(ctx context.Context, addr string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(pingTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") {
		return fmt.Errorf("unexpected reply to PING: %q", strings.TrimSpace(line))
	}
	return nil
}
