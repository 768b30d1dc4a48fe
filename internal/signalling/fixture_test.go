package signalling

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"berth"
	"berth/internal/fleet"
	"berth/internal/identity"
	"berth/internal/testredis"
	"berth/lua"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	waitLimit  = 20 * time.Second // for conditions that normally hold much sooner
	berthKey   = "a secret of the tests that is long enough for HS256"
	number     = "8613800138000"
	conference = "c-1"
)

// ledger is what the proxy reads, without a database.
type ledger struct {
	mu      sync.Mutex
	confs   map[string]berth.Conference
	removed map[string][]string
	legs    []string // identities that were on the current copy
	failure error
}

func (l *ledger) setLegs(identities ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.legs = identities
}

func (l *ledger) GetConference(_ context.Context, id string) (berth.Conference, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.confs[id]
	if !ok && l.failure == nil {
		return c, berth.Errorf(berth.CodeNotFound, "not found")
	}
	return c, l.failure
}

func (l *ledger) RemovedParticipants(_ context.Context, id string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.removed[id], l.failure
}

func (l *ledger) HasLeg(_ context.Context, _, identity string, _ int64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.legs, identity), l.failure
}

// nodes are the registered nodes.
type nodes struct {
	mu  sync.Mutex
	all map[string]berth.Node
}

func (n *nodes) ReadNodes(_ context.Context, ids ...string) (map[string]berth.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]berth.Node{}
	for _, id := range ids {
		if node, ok := n.all[id]; ok {
			out[id] = node
		}
	}
	return out, nil
}

func (n *nodes) Snapshot() *fleet.Snapshot { return &fleet.Snapshot{} }

// fixture is a proxy behind an HTTP server, with a real Redis and fake units.
type fixture struct {
	t       *testing.T
	ledger  *ledger
	nodes   *nodes
	scripts *lua.Scripts
	proxy   *Proxy
	server  *httptest.Server
	tokens  identity.Participants
	log     *lockedBuffer
	stop    func()
	epoch   int64
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	*bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{
		t: t, ledger: &ledger{confs: map[string]berth.Conference{}, removed: map[string][]string{}}, nodes: &nodes{all: map[string]berth.Node{}},
		tokens: identity.Participants{Secrets: identity.Secrets{berthKey}}, log: &lockedBuffer{Buffer: &bytes.Buffer{}},
	}
	logger := slog.New(slog.NewTextHandler(f.log, nil))
	f.scripts = lua.New(testredis.Start(t).Client(), lua.Keys{Cell: testredis.Cell(t)})
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte("key-a: secret-a\nkey-b: secret-b\n"), 0o600))
	keys, err := NewKeys(file, logger)
	require.NoError(t, err)
	o := Options{
		Ledger: f.ledger, Nodes: f.nodes, Fleet: f.nodes, Infos: f.scripts, Redis: f.scripts, Channel: f.scripts.Keys().ConferenceUpdated(),
		Tokens: f.tokens, Keys: keys, Hosts: Hosts{"127.0.0.1"}, Logger: logger,
	}
	for _, c := range change {
		c(&o)
	}
	f.proxy = New(o)
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := f.proxy.Serve(w, r); err != nil {
			http.Error(w, err.Error(), berth.CodeOf(err).Info().Status)
		}
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.proxy.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(func() {
		f.stop()
		f.server.Close()
	})
	return f
}

// unit is a media server that speaks the signalling protocol as far as the proxy reads it.
type unit struct {
	t      *testing.T
	id     string
	key    string
	secret string
	server *httptest.Server
	// status is what connections and probes get instead of being accepted; 0 for none.
	status  atomic.Int64
	hang    atomic.Bool // connections get no response
	hanging atomic.Int64
	// joining is called before a connection is accepted; nil for nothing.
	joining func()
	joined  chan *peer
	removed chan string
}

// peer is one participant's connection at a unit.
type peer struct {
	*websocket.Conn
	claims jwt.MapClaims
	header http.Header
	query  url.Values
	path   string
}

// unit registers a unit.
func (f *fixture) unit(id, key string) *unit {
	u := &unit{t: f.t, id: id, key: key, secret: "secret-" + strings.TrimPrefix(key, "key-"), joined: make(chan *peer, 100), removed: make(chan string, 10)}
	up := websocket.Upgrader{}
	u.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims := jwt.MapClaims{}
		if _, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return []byte(u.secret), nil }); !ok || err != nil || claims["iss"] != u.key {
			http.Error(w, "invalid token: "+token, http.StatusUnauthorized)
			return
		}
		if u.hang.Load() {
			u.hanging.Add(1)
			<-r.Context().Done()
			u.hanging.Add(-1)
			return
		}
		if code := u.status.Load(); code != 0 {
			http.Error(w, "refused: "+token, int(code))
			return
		}
		switch r.URL.Path {
		case "/rtc/validate":
		case "/twirp/livekit.RoomService/RemoveParticipant":
			var in struct{ Room, Identity string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			u.removed <- in.Identity
		case "/rtc", "/rtc/v1":
			if u.joining != nil {
				u.joining()
			}
			c, err := up.Upgrade(w, r, nil)
			if err != nil {
				return
			}
			u.joined <- &peer{c, claims, r.Header, r.URL.Query(), r.URL.Path}
		default:
			http.NotFound(w, r)
		}
	}))
	f.t.Cleanup(u.server.Close)
	f.register(u)
	return u
}

func (u *unit) address() string { return "ws" + strings.TrimPrefix(u.server.URL, "http") }

func (f *fixture) register(u *unit) {
	f.nodes.mu.Lock()
	defer f.nodes.mu.Unlock()
	f.nodes.all[u.id] = berth.Node{NodeSpec: berth.NodeSpec{ID: u.id, Kind: berth.NodeMedia, ClientURL: u.address(), KeyID: u.key, Incarnation: incarnation(u.id)}, Generation: 1}
}

func incarnation(id string) berth.Incarnation {
	return berth.Incarnation{Host: id, PID: 1, StartedAt: 1}
}

// change stores the conference and announces the change.
func (f *fixture) change(c berth.Conference) berth.Conference {
	f.t.Helper()
	c.ID, c.E164 = conference, number
	f.ledger.mu.Lock()
	f.ledger.confs[c.ID] = c
	f.ledger.mu.Unlock()
	require.NoError(f.t, f.scripts.AnnounceConference(f.t.Context(), c.ID))
	return c
}

// open makes a unit the owner of a new copy.
func (f *fixture) open(u *unit) berth.Conference {
	f.epoch++
	return f.change(berth.Conference{
		Status: berth.ConferenceOpen, Owner: berth.ConferenceOwner{NodeID: u.id, Generation: 1, Incarnation: incarnation(u.id), Epoch: f.epoch},
		CopyStartedAt: time.UnixMilli(f.epoch),
	})
}

// waiting takes the conference from its unit, and returns once the proxy knows: until then it connects participants to that unit.
func (f *fixture) waiting() {
	f.t.Helper()
	f.change(berth.Conference{Status: berth.ConferenceAwaitingRecovery})
	w, release := f.proxy.conferences.watch(conference)
	defer release()
	require.Eventually(f.t, func() bool { return w.now.Load().conf.Status == berth.ConferenceAwaitingRecovery }, waitLimit, time.Millisecond)
}

func (f *fixture) end() { f.change(berth.Conference{Status: berth.ConferenceEnded}) }

func (f *fixture) remove(identity string) {
	f.ledger.mu.Lock()
	f.ledger.removed[conference] = append(f.ledger.removed[conference], identity)
	f.ledger.mu.Unlock()
	require.NoError(f.t, f.scripts.AnnounceConference(f.t.Context(), conference))
}

func (f *fixture) token(identity_ string) string {
	token, err := f.tokens.Issue(identity.Participation{ConferenceID: conference, E164: number, Identity: identity_, Name: "Ann", Role: berth.RoleParticipant})
	require.NoError(f.t, err)
	return token
}

// dial connects a participant and returns the response when it was refused.
func (f *fixture) dial(token, path string) (*websocket.Conn, *http.Response) {
	f.t.Helper()
	d := websocket.Dialer{HandshakeTimeout: waitLimit}
	conn, res, err := d.Dial("ws"+strings.TrimPrefix(f.server.URL, "http")+path+"?auto_subscribe=1&access_token="+token, nil)
	if err != nil {
		require.NotNil(f.t, res, "%v", err)
		_ = res.Body.Close()
		return nil, res
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn, res
}

// join connects a participant to a unit, once connections that are not closed yet no longer keep an earlier state.
func (f *fixture) join(u *unit, who string) (*websocket.Conn, *peer) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		all := f.proxy.conferences
		all.mu.Lock()
		w := all.watches[conference]
		all.mu.Unlock()
		if w == nil {
			return true
		}
		at, _ := w.now.Load().place()
		return at.nodeID == u.id
	}, waitLimit, time.Millisecond)
	c, res := f.dial(f.token(who), "/rtc")
	require.NotNil(f.t, c, "%v", res)
	return c, u.peer()
}

func (u *unit) peer() *peer {
	u.t.Helper()
	select {
	case p := <-u.joined:
		u.t.Cleanup(func() { _ = p.Close() })
		return p
	case <-time.After(waitLimit):
		require.FailNow(u.t, "no connection at the unit")
		return nil
	}
}

// next reads one message.
func next(t *testing.T, c *websocket.Conn) frame {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(waitLimit)))
	kind, data, err := c.ReadMessage()
	require.NoError(t, err)
	return frame{kind == websocket.TextMessage, data}
}

func put(t *testing.T, c *websocket.Conn, f frame) {
	t.Helper()
	kind := websocket.BinaryMessage
	if f.text {
		kind = websocket.TextMessage
	}
	require.NoError(t, c.WriteMessage(kind, f.data))
}

// dismissal reads a message that sends the client away.
func dismissal(t *testing.T, c *websocket.Conn) leave {
	t.Helper()
	r := readResponse(next(t, c))
	require.Equal(t, fieldLeave, r.field)
	return r.leave
}

// leaves reads the client's last message, and does as a client does that is to connect again: it leaves.
func leaves(t *testing.T, c *websocket.Conn) leave {
	t.Helper()
	l := dismissal(t, c)
	if l.action != actionDisconnect {
		put(t, c, leaveFrame(false, leave{actionDisconnect, reasonClient}))
	}
	_, _, err := c.ReadMessage()
	require.Error(t, err, "the connection is closed after it")
	return l
}

// unwatched waits until the proxy keeps no state of the conference: until then it does not read it again for the next connection.
func (f *fixture) unwatched() {
	f.t.Helper()
	all := f.proxy.conferences
	require.Eventually(f.t, func() bool {
		all.mu.Lock()
		defer all.mu.Unlock()
		return all.watches[conference] == nil
	}, waitLimit, time.Millisecond)
	all.running.Wait()
}

// connectionsAre waits for the number of open connections.
func (f *fixture) connectionsAre(n int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.proxy.connections.Load() == n }, waitLimit, time.Millisecond)
}

// parkedAre waits for the number of connections that wait for a unit.
func (f *fixture) parkedAre(n int64) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return f.proxy.parked.Load() == n }, waitLimit, time.Millisecond)
}

func text(field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value)
}
