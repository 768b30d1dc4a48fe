// Package testlivekit starts real LiveKit servers for tests, each on free loopback ports and with rooms of its own.
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

// Version is the server's, as scripts/livekit.sh builds it.
const Version = "v1.13.5"

// Key and Secret are what every server of a test takes.
const (
	Key    = "testkey"
	Secret = "a-secret-for-tests-and-nothing-else" //nolint:gosec // of servers that live as long as a test
)

// ready bounds the wait for a server's first answer: machines that run many tests at once are slow.
const ready = 60 * time.Second

// Server is one LiveKit process; Restart brings it back without its rooms.
type Server struct {
	tb    testing.TB
	bin   string
	ports []int // HTTP, WebRTC over TCP, WebRTC over UDP
	cmd   *exec.Cmd
	out   bytes.Buffer
}

// Start runs a server until the test ends. A machine without one fails the test.
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
	return "", errors.New("no LiveKit server: scripts/livekit.sh builds one")
}

// URL is where the server answers; it stays the same over restarts.
func (s *Server) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[0]) }

// PID is the process id; 0 when none runs.
func (s *Server) PID() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Kill ends the process with SIGKILL; it does nothing when none runs.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself: Wait tells nothing more
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Pause stops the process, Continue has it go on where it was, with its rooms.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Continue has a paused process go on.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal the LiveKit server: %v", err)
	}
}

// Restart kills a running process and starts a new one on the same ports, ready when it returns.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	s.out.Reset()
	config := fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\n"+
		"rtc: {tcp_port: %d, udp_port: %d, node_ip: 127.0.0.1, use_external_ip: false}\n", s.ports[0], Key, Secret, s.ports[1], s.ports[2])
	s.cmd = exec.Command(s.bin)
	s.cmd.Env = append(os.Environ(), "LIVEKIT_CONFIG="+config)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = endWithUs()
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		s.tb.Fatalf("start the LiveKit server: %v", err)
	}
	s.await()
}

// await returns when the server answers; with what it said when it does not.
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
			s.tb.Fatalf("ask the LiveKit server: %v", err)
		}
		if res, err := http1.Do(req); err == nil {
			_ = res.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			s.Kill() // what it said is complete then
			s.tb.Fatalf("the LiveKit server did not come up: %s", s.out.String())
		case <-tick.C:
		}
	}
}
