// Package testlivekit starts LiveKit servers for tests, each on free loopback ports.
package testlivekit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"berth/internal/freeport"
)

// Version is the server version that scripts/livekit.sh builds.
const Version = "v1.13.5"

// Key and Secret are the credentials of every server.
const (
	Key    = "testkey"
	Secret = "a-secret-for-tests-and-nothing-else" //nolint:gosec // of servers that run only during a test
)

// ready is the timeout for a server's first response, generous for machines that run many tests concurrently.
const ready = 60 * time.Second

// Server is one LiveKit process. Restart loses its rooms.
type Server struct {
	tb    testing.TB
	bin   string
	ports []int // HTTP, WebRTC over TCP, WebRTC over UDP
	cmd   *exec.Cmd
	out   bytes.Buffer
}

// Start runs a server until the test ends. It fails the test if no server is installed.
func Start(tb testing.TB) *Server {
	tb.Helper()
	bin, err := find()
	if err != nil {
		tb.Fatal(err)
	}
	ports, err := freeport.Find(3)
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, bin: bin, ports: ports}
	tb.Cleanup(s.Kill)
	s.Restart()
	return s
}

func find() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	if ok {
		built := filepath.Join(filepath.Dir(here), "..", "..", "bin", "tools", "livekit-server-"+Version)
		if _, err := os.Stat(built); err == nil {
			return built, nil
		}
	}
	if bin, err := exec.LookPath("livekit-server"); err == nil {
		return bin, nil
	}
	return "", errors.New("LiveKit server not found: build it with scripts/livekit.sh")
}

// URL returns the server's address, which restarts keep.
func (s *Server) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[0]) }

// PID returns the process id, 0 if no process runs.
func (s *Server) PID() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Kill kills the process, if one runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have exited already
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Pause suspends the process; Continue resumes it with its rooms.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue resumes a paused process.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal the LiveKit server: %v", err)
	}
}

// Restart kills a running process, starts a new one on the same ports, and waits until it is ready.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	s.out.Reset()
	config := fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\n"+
		"rtc: {tcp_port: %d, udp_port: %d, node_ip: 127.0.0.1, use_external_ip: false}\n", s.ports[0], Key, Secret, s.ports[1], s.ports[2])
	s.cmd = exec.Command(s.bin)
	s.cmd.Env = append(os.Environ(), "LIVEKIT_CONFIG="+config)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = killWithParent()
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.tb.Fatalf("start the LiveKit server: %v", err)
	}
	s.await()
}

// await returns when the server responds, or fails the test with the server's output.
func (s *Server) await() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ready)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	http1 := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), http.NoBody)
		if err != nil {
			s.tb.Fatalf("call the LiveKit server: %v", err)
		}
		if res, err := http1.Do(req); err == nil {
			_ = res.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			s.Kill() // completes its output
			s.tb.Fatalf("the LiveKit server did not start: %s", s.out.String())
		case <-tick.C:
		}
	}
}
