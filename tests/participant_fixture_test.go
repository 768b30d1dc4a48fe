package tests

import (
	"bufio"
	"bytes"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth/client"
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
	autoCreate  bool   // rooms, for participants; from the next start on
	redis       string // address of its Redis; from the next start on
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
	u := s.mediaServer(id, false)
	var err error
	u.rooms, err = unit.NewLiveKit(unit.LiveKitOptions{URL: u.url("http"), Key: u.key, Secret: u.secret, Unit: id})
	require.NoError(s.tb, err)
	s.tb.Cleanup(u.rooms.Close)
	flags := []string{
		"media", "--id", id, "--slots", fmt.Sprint(slots), "--livekit-url", u.url("http"),
		"--livekit-key", u.key, "--livekit-secret", u.secret,
	}
	for _, more := range args {
		flags = append(flags, more(u)...)
	}
	u.agent = s.start("berth", flags, append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("units", "node")}, s.settings...))
	s.awaitNode(id)
	return u
}

// mediaServer starts the LiveKit server of unit u1 or u2 without its agent.
func (s *stack) mediaServer(id string, autoCreate bool) *mediaUnit {
	s.tb.Helper()
	ports, err := freeport.Find(3)
	require.NoError(s.tb, err)
	u := &mediaUnit{
		Process: testprocess.New(s.tb, "the LiveKit server "+id), s: s, id: id, key: "key-" + id, secret: "secret-of-" + id + "-that-is-long-enough-for-hs256",
		ports: ports, autoCreate: autoCreate,
	}
	u.boot()
	return u
}

// otherUnit is the second one of two units, by the first one's id.
var otherUnit = map[string]string{"u1": "u2", "u2": "u1"}

// mediaUnits starts u1 and u2.
func (s *stack) mediaUnits(slots int) map[string]*mediaUnit {
	s.tb.Helper()
	return map[string]*mediaUnit{"u1": s.mediaUnit("u1", slots), "u2": s.mediaUnit("u2", slots)}
}

func (u *mediaUnit) url(scheme string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, u.ports[0])
}

// boot starts the server, after its end again without its rooms.
func (u *mediaUnit) boot() {
	config := fmt.Sprintf("port: %d\nbind_addresses: [127.0.0.1]\nkeys: {%s: %s}\nlogging: {level: warn}\nroom: {auto_create: %t}\n"+
		"rtc: {tcp_port: %d, udp_port: %d, node_ip: %s, use_external_ip: false, stun_servers: [\"127.0.0.1:1\"]}\n",
		u.ports[0], u.key, u.secret, u.autoCreate, u.ports[1], u.ports[2], ownAddress())
	if u.redis != "" {
		config += fmt.Sprintf("redis: {address: %q}\n", u.redis)
	}
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

// call calls the room service of the LiveKit server, as an operator's program does.
func (u *mediaUnit) call(method string, in map[string]any, out any) error {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": u.key, "exp": time.Now().Add(time.Minute).Unix(), "video": map[string]any{
			"roomAdmin": true, "room": in["room"], "roomRecord": true, "roomCreate": true, "roomList": true, "destinationRoom": in["destination_room"],
		},
	}).SignedString([]byte(u.secret))
	require.NoError(u.s.tb, err)
	body, err := json.Marshal(in)
	require.NoError(u.s.tb, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	service := "RoomService/"
	if strings.Contains(method, "/") {
		service = ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url("http")+"/twirp/livekit."+service+method, bytes.NewReader(body))
	require.NoError(u.s.tb, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("%s: %s %s", method, res.Status, b)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// participants is a program with LiveKit clients. It collects what they report.
type participants struct {
	s    *stack
	in   io.WriteCloser
	pid  int
	mu   sync.Mutex
	seen []participantEvent
}

type participantEvent struct {
	Name, Event, From, Reason string
	SilenceMs, Lost           int64
	At                        int64
}

// participants starts the program, which scripts/participant.sh builds, with variables besides those of the test.
func (s *stack) participants(env ...string) *participants {
	s.tb.Helper()
	bin, err := filepath.Abs("../bin/participant")
	require.NoError(s.tb, err)
	if _, err := os.Stat(bin); err != nil {
		s.tb.Fatal("the LiveKit client for tests is not built: run scripts/participant.sh")
	}
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), env...)
	p := &participants{s: s}
	p.in, err = cmd.StdinPipe()
	require.NoError(s.tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.tb, err)
	cmd.Stderr = os.Stderr
	require.NoError(s.tb, cmd.Start())
	p.pid = cmd.Process.Pid
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

// forget drops all events.
func (p *participants) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// all returns all participants' events of a kind.
func (p *participants) all(kind string) []participantEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.seen), func(e participantEvent) bool { return e.Event != kind })
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

// call is a conference on one of two media units, with a speaker and listeners.
type call struct {
	*participants
	m         *conferences
	number    string
	listeners []string
	units     map[string]*mediaUnit
}

// call opens a conference and connects its participants.
func (s *stack) call(number string, units map[string]*mediaUnit, listeners ...string) *call {
	s.tb.Helper()
	c := &call{participants: s.participants(), m: s.conferences(), number: number, listeners: listeners, units: units}
	c.m.open(number)
	for _, name := range append([]string{"speaker"}, listeners...) {
		a := c.m.admit(number, name)
		c.join(name, a.URL, a.Token, name == "speaker")
	}
	for _, name := range listeners {
		c.await(name, "received", 1)
	}
	return c
}

// owner waits until all participants are on the owner, and returns it.
func (c *call) owner() (u *mediaUnit) {
	c.s.tb.Helper()
	c.s.eventually("all to be on the owner", func() bool {
		u = c.units[c.m.current(c.number).Owner.NodeID]
		return u != nil && u.present(c.number) == 1+len(c.listeners)
	})
	return u
}

// round makes the conference change its unit, and returns the former one and for how long each listener received nothing.
func (c *call) round(change func(owner *mediaUnit)) (former *mediaUnit, silences []int64) {
	c.s.tb.Helper()
	former = c.owner()
	subscribed, before := map[string]int{}, map[string]int{}
	for _, name := range c.listeners {
		subscribed[name], before[name] = len(c.of(name, "subscribed")), len(c.of(name, "silence"))
	}
	change(former)
	for _, name := range c.listeners {
		silences = append(silences, c.silence(name, subscribed[name], before[name]))
	}
	return former, silences
}

// silence waits until a listener that has subscribed the given number of times receives audio in another subscription, and returns
// its longest pause, without the first ones.
func (p *participants) silence(name string, subscribed, before int) (longest int64) {
	p.s.tb.Helper()
	at := p.await(name, "subscribed", subscribed+1)[subscribed].At
	p.s.eventually("packets after the change", func() bool {
		return slices.ContainsFunc(p.of(name, "silence"), func(e participantEvent) bool { return e.At >= at })
	})
	for _, e := range p.of(name, "silence")[before:] {
		longest = max(longest, e.SilenceMs)
	}
	return longest
}

// reportSilence logs the distribution of silences.
func (c *call) reportSilence(what string, all []int64) {
	c.s.tb.Helper()
	slices.Sort(all)
	c.s.tb.Logf("%s: silence p50 %d ms, p99 %d ms, max %d ms, of %d", what, all[len(all)/2], all[len(all)*99/100], all[len(all)-1], len(all))
}

// connected requires that no listener was ever disconnected or refused.
func (c *call) connected() {
	c.s.tb.Helper()
	for _, name := range append([]string{"speaker"}, c.listeners...) {
		require.Empty(c.s.tb, c.of(name, "disconnected"))
		require.Empty(c.s.tb, c.of(name, "refused"))
	}
}
