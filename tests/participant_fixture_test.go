package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"berth/internal/client"
	"berth/internal/freeport"
	"berth/internal/testlivekit"
	"berth/internal/testprocess"
	"berth/internal/unit"
)

// mediaUnit is a LiveKit server with a key of its own and its agent.
type mediaUnit struct {
	*testprocess.Process
	s           *stack
	id          string
	key, secret string
	ports       []int
	agent       *process
	rooms       *unit.LiveKit
}

// ownAddress is an address of this machine that WebRTC uses: it ignores the loopback interface.
func ownAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// withParticipants gives the API the keys of the units that mediaUnit starts.
func withParticipants(settings ...string) option {
	return func(s *stack) {
		file := filepath.Join(s.dir, "livekit-keys")
		require.NoError(s.tb, os.WriteFile(file, []byte("key-u1: secret-of-u1-that-is-long-enough-for-hs256\nkey-u2: secret-of-u2-that-is-long-enough-for-hs256\n"), 0o600))
		s.settings = append(s.settings, "BERTH_LIVEKIT_KEYS_FILE="+file, "BERTH_MEDIA_HOSTS=127.0.0.1")
		s.settings = append(s.settings, settings...)
	}
}

// mediaUnit starts unit u1 or u2.
func (s *stack) mediaUnit(id string, slots int, args ...func(*mediaUnit) []string) *mediaUnit {
	s.tb.Helper()
	ports, err := freeport.Find(3)
	require.NoError(s.tb, err)
	u := &mediaUnit{
		Process: testprocess.New(s.tb, "the LiveKit server "+id), s: s, id: id, key: "key-" + id, secret: "secret-of-" + id + "-that-is-long-enough-for-hs256", ports: ports,
	}
	u.boot()
	u.rooms, err = unit.NewLiveKit(unit.LiveKitOptions{URL: u.url("http"), Key: u.key, Secret: u.secret, Unit: id})
	require.NoError(s.tb, err)
	s.tb.Cleanup(u.rooms.Close)
	flags := []string{
		"media", "--id", id, "--slots", fmt.Sprint(slots), "--driver", "livekit", "--livekit-url", u.url("http"),
		"--livekit-key", u.key, "--livekit-secret", u.secret,
	}
	for _, more := range args {
		flags = append(flags, more(u)...)
	}
	u.agent = s.start("berth", flags, append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("units", "node")}, s.settings...))
	s.awaitNode(id)
	return u
}

func (u *mediaUnit) url(scheme string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, u.ports[0])
}

// boot starts the server, after its end again without its rooms.
func (u *mediaUnit) boot() {
	config := fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\nroom: {auto_create: false}\n"+
		"rtc: {tcp_port: %d, udp_port: %d, node_ip: %s, use_external_ip: false, stun_servers: [\"127.0.0.1:1\"]}\n",
		u.ports[0], u.key, u.secret, u.ports[1], u.ports[2], ownAddress())
	cmd := exec.Command(testlivekit.Binary(u.s.tb))
	cmd.Env = append(os.Environ(), "LIVEKIT_CONFIG="+config)
	u.Start(cmd, time.Minute, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.url("http"), http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		return err
	})
}

// present returns the number of participants of a conference on the unit; -1 when it has no room or does not respond.
func (u *mediaUnit) present(e164 string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, copies, err := u.rooms.List(ctx)
	if err == nil {
		for _, c := range copies {
			if c.E164 == e164 {
				return c.Participants
			}
		}
	}
	return -1
}

// participants is a program with LiveKit clients. It collects what they report.
type participants struct {
	s    *stack
	in   io.WriteCloser
	mu   sync.Mutex
	seen []participantEvent
}

type participantEvent struct {
	Name, Event, From, Reason string
	SilenceMs, Lost           int64
	At                        int64
}

// participants starts the program, which scripts/participant.sh builds.
func (s *stack) participants() *participants {
	s.tb.Helper()
	bin, err := filepath.Abs("../bin/participant")
	require.NoError(s.tb, err)
	if _, err := os.Stat(bin); err != nil {
		s.tb.Fatal("the LiveKit client for tests is not built: run scripts/participant.sh")
	}
	cmd := exec.Command(bin)
	p := &participants{s: s}
	p.in, err = cmd.StdinPipe()
	require.NoError(s.tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.tb, err)
	cmd.Stderr = os.Stderr
	require.NoError(s.tb, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e participantEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				p.mu.Lock()
				p.seen = append(p.seen, e)
				p.mu.Unlock()
			}
		}
	}()
	s.tb.Cleanup(func() {
		_ = p.in.Close()
		<-done
		_ = cmd.Wait()
		if s.tb.Failed() {
			s.tb.Logf("participants: %+v", p.seen)
		}
	})
	return p
}

// join connects a participant with what the API returned for it.
func (p *participants) join(name, url, token string, publish bool) {
	p.s.tb.Helper()
	b, err := json.Marshal(map[string]any{"name": name, "url": url, "token": token, "publish": publish})
	require.NoError(p.s.tb, err)
	_, err = p.in.Write(append(b, '\n'))
	require.NoError(p.s.tb, err)
}

// of returns a participant's events of a kind.
func (p *participants) of(name, kind string) []participantEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.seen), func(e participantEvent) bool { return e.Name != name || e.Event != kind })
}

// await waits until a participant has n events of a kind, and returns them.
func (p *participants) await(name, kind string, n int) []participantEvent {
	p.s.tb.Helper()
	p.s.eventually(fmt.Sprintf("%s: %d events %q", name, n, kind), func() bool { return len(p.of(name, kind)) >= n })
	return p.of(name, kind)
}

// lost returns how many packets a listener missed in pauses.
func (p *participants) lost(name string) (n int64) {
	for _, e := range p.of(name, "silence") {
		n += e.Lost
	}
	return n
}

// forwarder passes TCP connections on to a server, until it is cut.
type forwarder struct {
	l    net.Listener
	to   string
	cut  atomic.Bool
	mu   sync.Mutex
	open []net.Conn
}

func (s *stack) forward(to string) *forwarder {
	s.tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.tb, err)
	f := &forwarder{l: l, to: to}
	s.tb.Cleanup(func() { _ = l.Close(); f.drop() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if f.cut.Load() {
				_ = c.Close()
				continue
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			f.mu.Lock()
			f.open = append(f.open, c, server)
			f.mu.Unlock()
			go func() { _, _ = io.Copy(server, c); _ = server.Close() }()
			go func() { _, _ = io.Copy(c, server); _ = c.Close() }()
		}
	}()
	return f
}

// drop closes all connections.
func (f *forwarder) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
}

// admit admits a participant to a conference of alice.
func (m *conferences) admit(e164, identity string) client.Admission {
	m.s.tb.Helper()
	a, err := m.AddParticipant(context.Background(), e164, client.ParticipantSpec{Identity: identity})
	require.NoError(m.s.tb, err)
	return a
}
