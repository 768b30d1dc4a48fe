// Package testlivekit starts LiveKit servers for tests, each on free loopback ports.
package testlivekit

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"berth/internal/freeport"
	"berth/internal/testprocess"
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
	*testprocess.Process
	// AutoCreate lets participants create rooms, from the next start of the server on.
	AutoCreate bool
	// Webhook receives the server's events, from its next start on.
	Webhook string
	// Redis is the address of the server's Redis, from its next start on; empty for none.
	Redis string
	bin   string
	ports []int // HTTP, WebRTC over TCP, WebRTC over UDP
}

// Start runs a server until the test ends. It fails the test if no server is installed.
func Start(tb testing.TB) *Server {
	tb.Helper()
	var ports []int
	for range 2 {
		port, release, err := freeport.Reserve()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(release)
		ports = append(ports, port)
	}
	udp, err := freeport.Find(1) // Reserve holds the UDP port
	if err != nil {
		tb.Fatal(err)
	}
	ports = append(ports, udp...)
	s := &Server{Process: testprocess.New(tb, "the LiveKit server"), bin: Binary(tb), ports: ports}
	s.Restart()
	return s
}

// Binary returns the path of the server's program. It fails the test if no server is installed.
func Binary(tb testing.TB) string {
	tb.Helper()
	_, here, _, ok := runtime.Caller(0)
	if ok {
		built := filepath.Join(filepath.Dir(here), "..", "..", "bin", "tools", "livekit-server-"+Version)
		if _, err := os.Stat(built); err == nil {
			return built
		}
	}
	bin, err := exec.LookPath("livekit-server")
	if err != nil {
		tb.Fatal("LiveKit server not found: build it with scripts/livekit.sh")
	}
	return bin
}

// URL returns the server's address, which restarts keep.
func (s *Server) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[0]) }

// Restart kills a running process, starts a new one on the same ports, and waits until it is ready.
func (s *Server) Restart() {
	config := fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\n"+
		"room: {auto_create: %t}\nrtc: {tcp_port: %d, udp_port: %d, node_ip: 127.0.0.1, use_external_ip: false}\n", s.ports[0], Key, Secret, s.AutoCreate, s.ports[1], s.ports[2])
	if s.Webhook != "" {
		config += fmt.Sprintf("webhook: {api_key: %s, urls: [%q]}\n", Key, s.Webhook)
	}
	if s.Redis != "" {
		config += fmt.Sprintf("redis: {address: %q}\ningress: {rtmp_base_url: \"rtmp://127.0.0.1:1935/live\"}\n", s.Redis)
	}
	cmd := exec.Command(s.bin)
	cmd.Env = append(os.Environ(), "LIVEKIT_CONFIG="+config)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	s.Start(cmd, ready, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	})
}
