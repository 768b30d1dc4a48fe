package signalling

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"berth"
	"berth/internal/identity"
	"berth/internal/pause"
	"berth/lua"
)

// B9: the unit gets a token of its own key, the client's query without its token, and all messages unchanged.
func TestProxy_Connection_TokenSignedForUnitMessagesUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	f.open(u)
	for _, path := range []string{"/rtc", "/rtc/v1"} {
		token := f.token("ann")
		c, _ := f.dial(token, path)
		require.NotNil(t, c)
		p := u.peer()
		require.Equal(t, path, p.path)
		require.Equal(t, "1", p.query.Get("auto_subscribe"))
		require.Empty(t, p.query.Get("access_token"), "tokens travel in a header")
		require.Equal(t, "127.0.0.1", p.header.Get("X-Forwarded-For"))
		require.Equal(t, "ann", p.claims["sub"])
		require.Equal(t, "Ann", p.claims["name"])
		require.Equal(t, map[string]any{AttributeRole: "participant"}, p.claims["attributes"])
		require.Equal(t, map[string]any{
			"room": number, "roomJoin": true, "canPublish": true, "canSubscribe": true, "canPublishData": true, "canUpdateOwnMetadata": false,
		}, p.claims["video"], "never roomCreate or roomAdmin")
		for _, m := range []frame{{false, []byte{0x12, 2, 0x0a, 0}}, {false, []byte{}}, {false, []byte{0xff}}, {true, []byte(`{"offer":{"sdp":"x"}}`)}, {true, []byte(`no json`)}} {
			put(t, c, m)
			require.Equal(t, string(m.data), string(next(t, p.Conn).data))
			put(t, p.Conn, m)
			got := next(t, c)
			require.Equal(t, string(m.data), string(got.data))
			require.Equal(t, m.text, got.text)
		}
		require.NoError(t, c.Close())
		_, _, err := p.ReadMessage()
		require.Error(t, err, "the unit notices that the client is gone")
	}
	f.connectionsAre(0)
	require.NotContains(t, f.log.String(), "eyJ", "no token is logged")
}

// B9: the other servers that a unit names are removed, and its tokens replaced by berth's own, with the state on the unit.
func TestProxy_ResponsesWithAddressOrToken_Replaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	f.open(u)
	c, p := f.join(u, "ann")

	join := append(text(4, "1.13"), text(joinAlternativeURL, "wss://elsewhere")...)
	put(t, p.Conn, message(fieldJoin, join))
	require.Equal(t, message(fieldJoin, text(4, "1.13")), next(t, c))
	put(t, p.Conn, frame{true, []byte(`{"join":{"alternativeUrl":"wss://elsewhere","serverVersion":"1.13"}}`)})
	require.JSONEq(t, `{"join":{"serverVersion":"1.13"}}`, string(next(t, c).data))

	video := map[string]any{"room": number, "roomJoin": true, "canPublish": false, "roomAdmin": true, "roomCreate": true}
	refreshed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "key-a", "sub": "ann", "name": "Ann B", "metadata": "m", "attributes": map[string]string{"a": "b", AttributeRole: "host"}, "video": video,
		"exp": time.Now().Add(10 * time.Minute).Unix(),
	}).SignedString([]byte("secret-a"))
	require.NoError(t, err)
	check := func(token string) {
		t.Helper()
		require.NotContains(t, token, refreshed)
		of, err := f.tokens.Verify(token)
		require.NoError(t, err)
		require.Equal(t, conference, of.ConferenceID)
		expires := jwt.MapClaims{}
		_, _, err = jwt.NewParser().ParseUnverified(token, expires)
		require.NoError(t, err)
		at, err := expires.GetExpirationTime()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(identity.ParticipantTTL), at.Time, time.Minute, "never the unit's expiry")
	}
	put(t, p.Conn, message(fieldRefreshToken, []byte(refreshed)))
	own := readResponse(next(t, c)).token
	check(own)
	put(t, p.Conn, frame{true, []byte(`{"refreshToken":"` + refreshed + `"}`)})
	m := next(t, c)
	require.True(t, m.text)
	check(readResponse(m).token)
	put(t, p.Conn, message(fieldRoomMoved, append(text(roomMovedToken, refreshed), text(1, "")...)))
	check(readResponse(next(t, c)).token)
	put(t, p.Conn, frame{true, []byte(`{"room_moved":{"token":"` + refreshed + `","room":{}}}`)})
	check(readResponse(next(t, c)).token)

	// What the unit had changed is in the token for the next one; its further grants are not.
	again, _ := f.dial(own, "/rtc")
	require.NotNil(t, again)
	claims := u.peer().claims
	require.Equal(t, "Ann B", claims["name"])
	require.Equal(t, "m", claims["metadata"])
	require.Equal(t, map[string]any{"a": "b", AttributeRole: "participant"}, claims["attributes"])
	require.Equal(t, map[string]any{
		"room": number, "roomJoin": true, "canPublish": false, "canSubscribe": true, "canPublishData": true, "canUpdateOwnMetadata": false,
	}, claims["video"])
}

// FC15: what a unit has changed for a participant just before its death arrives at the client, also if the death is noticed first.
func TestProxy_UnitDiesAfterChange_ClientGetsItsToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.stall, f.proxy.drain = time.Minute, time.Minute // the client reads late
	u := f.unit("u1", "key-a")
	f.open(u)
	c, p := f.join(u, "ann")
	refreshed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "metadata": "seat 4"}).SignedString([]byte("secret-a"))
	require.NoError(t, err)

	// The client reads the beginning of a large message only, so that the proxy has not read the token when it writes to the dead unit.
	put(t, p.Conn, frame{false, bytes.Repeat([]byte{0xff}, 14<<20)})
	require.NoError(t, c.SetReadDeadline(time.Now().Add(waitLimit)))
	_, large, err := c.NextReader()
	require.NoError(t, err)
	_, err = io.ReadFull(large, make([]byte, 1024))
	require.NoError(t, err)
	put(t, p.Conn, message(fieldRefreshToken, []byte(refreshed)))
	tcp, ok := p.NetConn().(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, tcp.SetLinger(0))
	require.NoError(t, tcp.Close())
	for range 20 {
		put(t, c, frame{false, []byte{0xff}})
		pause.For(t.Context(), 5*time.Millisecond) // the proxy notices the death
	}
	_, err = io.Copy(io.Discard, large)
	require.NoError(t, err)
	of, err := f.tokens.Verify(readResponse(next(t, c)).token)
	require.NoError(t, err)
	require.Equal(t, "seat 4", of.Metadata)
}

// B9: while there is no owner the connection is held, and continues as soon as there is one.
func TestProxy_NoOwner_HeldUntilThereIsOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	f.waiting()
	joined := make(chan *websocket.Conn, 1)
	go func() { c, _ := f.dial(f.token("ann"), "/rtc"); joined <- c }()
	f.parkedAre(1)
	f.change(berth.Conference{Status: berth.ConferenceCreating, Owner: berth.ConferenceOwner{NodeID: "u1", Incarnation: incarnation("u1")}})
	select {
	case <-joined:
		require.FailNow(t, "not before the unit has acknowledged the conference")
	case <-time.After(50 * time.Millisecond):
	}
	f.open(b)
	require.NotNil(t, <-joined)
	require.Equal(t, "key-b", b.peer().claims["iss"])
	require.Empty(t, a.joined)
	f.parkedAre(0)
}

// B9: a unit that accepts connections and does not respond is given up as soon as there is another owner.
func TestProxy_UnitHangsWhileConnecting_NextOwnerIsUsed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	f.proxy.units.dialer.HandshakeTimeout = time.Minute
	f.open(a)
	a.hang.Store(true)
	joined := make(chan *websocket.Conn, 1)
	go func() { c, _ := f.dial(f.token("ann"), "/rtc"); joined <- c }()
	require.Eventually(t, func() bool { return a.hanging.Load() == 1 }, waitLimit, time.Millisecond)
	f.open(b)
	require.NotNil(t, <-joined)
	b.peer()
	require.Eventually(t, func() bool { return a.hanging.Load() == 0 }, waitLimit, time.Millisecond, "the connection is closed")
}

// B9: without an owner in time the response is 503, which clients retry; 401 only if the conference has ended or the participant
// removed, or for a token that is not berth's.
func TestProxy_Refusals_401OnlyWhenOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	// connects expects a status. Only 503 may be the end of a short hold; every other one gets the time that it needs.
	connects := func(want int, token, path, why string) {
		t.Helper()
		f.proxy.opt.Hold = ParkFor
		if want == http.StatusServiceUnavailable {
			f.proxy.opt.Hold = 100 * time.Millisecond
		}
		c, res := f.dial(token, path)
		require.Equal(t, want, res.StatusCode, why)
		if c != nil {
			u.peer()
		}
	}
	validate := func(token, path string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.server.URL+path, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	both := func(want int, token, why string) {
		t.Helper()
		for _, path := range []string{"/rtc", "/rtc/v1"} {
			connects(want, token, path, why)
			if want == http.StatusSwitchingProtocols {
				want = http.StatusOK
			}
			require.Equal(t, want, validate(token, path+"/validate"), why)
			if want == http.StatusOK {
				want = http.StatusSwitchingProtocols
			}
		}
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	ann := f.token("ann")
	f.waiting()
	both(http.StatusServiceUnavailable, ann, "no owner")
	open := f.open(u)
	both(http.StatusSwitchingProtocols, ann, "open")
	for _, code := range []int64{401, 403, 404, 500, 503} {
		u.status.Store(code)
		connects(http.StatusServiceUnavailable, ann, "/rtc", http.StatusText(int(code)))
	}
	u.status.Store(http.StatusBadRequest)
	connects(http.StatusBadRequest, ann, "/rtc", "a request that the unit cannot read")
	u.status.Store(http.StatusFound)
	connects(http.StatusServiceUnavailable, ann, "/rtc", "redirects are not followed")
	u.status.Store(0)

	for why, change := range map[string]func(*berth.Node){
		"not registered":     func(n *berth.Node) { n.Incarnation.StartedAt++ },
		"no client URL":      func(n *berth.Node) { n.ClientURL = "" },
		"another host":       func(n *berth.Node) { n.ClientURL = "ws://127.0.0.2:1" },
		"a key of no secret": func(n *berth.Node) { n.KeyID = "key-x" },
	} {
		f.nodes.mu.Lock()
		n := f.nodes.all["u1"]
		change(&n)
		f.nodes.all["u1"] = n
		f.nodes.mu.Unlock()
		connects(http.StatusServiceUnavailable, ann, "/rtc", why)
		if why != "not registered" {
			require.Equal(t, berth.CodeUnavailable, berth.CodeOf(f.proxy.Refuse(t.Context(), open)), why)
		}
		f.register(u)
	}
	require.NoError(t, f.proxy.Refuse(t.Context(), open))

	f.remove("bob")
	require.Eventually(t, func() bool { return validate(f.token("bob"), "/rtc/validate") == http.StatusUnauthorized }, waitLimit, time.Millisecond)
	both(http.StatusUnauthorized, f.token("bob"), "removed")
	both(http.StatusSwitchingProtocols, ann, "others stay")
	unit, err := target{key: "key-a", secret: "secret-a"}.token(identity.Participation{Identity: "ann", E164: number}, time.Now())
	require.NoError(t, err)
	bearer, err := identity.Issue(berthKey, identity.Grant{UserID: "ann", Scopes: []string{"user"}, TTL: time.Hour})
	require.NoError(t, err)
	for _, token := range []string{"", "x", unit, bearer, ann + "x", strings.Repeat("x", maxToken+1)} {
		both(http.StatusUnauthorized, token, "not a participant's token")
	}
	open.Ending = berth.EndTime
	f.change(open)
	require.Eventually(t, func() bool { return validate(ann, "/rtc/validate") == http.StatusUnauthorized }, waitLimit, time.Millisecond)
	f.end()
	both(http.StatusUnauthorized, ann, "ended")
	f.unwatched()
	delete(f.ledger.confs, conference)
	both(http.StatusUnauthorized, ann, "unknown")
	f.unwatched()
	f.ledger.failure = berth.Errorf(berth.CodeUnavailable, "down")
	connects(http.StatusServiceUnavailable, ann, "/rtc", "the database is unavailable")
	require.NotContains(t, f.log.String(), "eyJ", "neither tokens nor the units' messages are logged")
}

// B9, B10: participants follow the owner; a copy that stays under a new epoch is the same place.
func TestProxy_OwnerChanges_ClientsReconnect(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	open := f.open(a)
	c, p := f.join(a, "ann")
	open.Owner.Epoch, open.Owner.Generation = 100, 2
	f.change(open)                                                                                                               // adopted
	f.change(berth.Conference{Status: berth.ConferenceAwaitingConnection, Owner: open.Owner, CopyStartedAt: open.CopyStartedAt}) // Redis lost its data
	f.waiting()                                                                                                                  // its agent is dead, the server is not
	f.change(berth.Conference{Status: berth.ConferenceCreating, Owner: berth.ConferenceOwner{NodeID: "u2", Incarnation: incarnation("u2")}})
	require.NoError(t, f.scripts.AnnounceConference(t.Context(), "another"))
	put(t, p.Conn, frame{false, []byte{1}})
	require.Equal(t, []byte{1}, next(t, c).data, "still connected")
	f.open(b)
	require.Equal(t, leave{actionReconnect, reasonMoved}, leaves(t, c))
	_, _, err := p.ReadMessage()
	require.Error(t, err, "the connection to the former unit is closed")

	c, p = f.join(b, "ann")
	put(t, c, frame{true, []byte(`{"ping":"1"}`)})
	next(t, p.Conn)
	f.open(b) // a new copy on the same unit
	m := next(t, c)
	require.JSONEq(t, `{"leave":{"action":"RECONNECT","canReconnect":true,"reason":8}}`, string(m.data))
	require.True(t, m.text, "in the client's encoding")
}

// B9: when the connection to the unit breaks, the client's stays: it resumes on a unit that responds, and otherwise waits for the
// next owner. Its pings are answered meanwhile.
func TestProxy_UnitConnectionBreaks_ClientResumesOrWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	f.open(a)
	c, p := f.join(a, "ann")
	require.NoError(t, p.Close())
	require.Equal(t, leave{actionResume, reasonShutdown}, leaves(t, c), "the unit responds")

	c, p = f.join(a, "ann")
	a.status.Store(http.StatusNotFound) // it has no such room
	require.NoError(t, p.Close())
	f.waiting()
	var done atomic.Bool
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		for c.WriteMessage(websocket.BinaryMessage, appendVarint(nil, fieldPing, 1)) == nil && !done.Load() {
			pause.For(t.Context(), time.Millisecond)
		}
	}()
	pong, _, n := protowire.ConsumeTag(next(t, c).data)
	require.Positive(t, n)
	require.Equal(t, fieldPong, pong)
	f.connectionsAre(1)
	done.Store(true)
	<-pinging
	f.open(b)
	require.Equal(t, leave{actionReconnect, reasonMoved}, f.last(c))
}

// last reads up to the client's last message.
func (f *fixture) last(c *websocket.Conn) leave {
	f.t.Helper()
	for {
		if r := readResponse(next(f.t, c)); r.field == fieldLeave {
			return r.leave
		}
	}
}

// B9: a unit that stops, or deletes the room, does not end the conference for its clients.
func TestProxy_UnitSendsClientsAway_OnlyEndOfConferenceDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a, b := f.unit("u1", "key-a"), f.unit("u2", "key-b")
	for name, away := range map[string]frame{
		"stops":                leaveFrame(false, leave{actionDisconnect, reasonShutdown}),
		"deletes the room":     leaveFrame(false, leave{actionDisconnect, reasonDeleted}),
		"closes the room":      leaveFrame(false, leave{actionDisconnect, reasonClosed}),
		"deletes it, in JSON":  {true, []byte(`{"leave":{"reason":"ROOM_DELETED"}}`)},
		"stops, with a region": message(fieldLeave, append(appendVarint(nil, leaveReason, uint64(reasonShutdown)), text(4, "x")...)),
	} {
		a.status.Store(0)
		f.open(a)
		c, p := f.join(a, "ann")
		a.status.Store(http.StatusNotFound)
		put(t, p.Conn, away)
		f.open(b)
		require.Equal(t, leave{actionReconnect, reasonMoved}, leaves(t, c), name)

		a.status.Store(0)
		f.open(a)
		c, p = f.join(a, "ann")
		a.status.Store(http.StatusNotFound)
		put(t, p.Conn, away)
		f.end()
		require.Equal(t, leave{actionDisconnect, reasonDeleted}, leaves(t, c), name)
	}
	a.status.Store(0)
	f.open(a)
	c, p := f.join(a, "ann")
	put(t, p.Conn, leaveFrame(false, leave{actionDisconnect, reasonDeleted}))
	require.Equal(t, leave{actionReconnect, reasonMoved}, leaves(t, c), "the room exists again")

	regions := append(appendVarint(nil, leaveAction, uint64(actionReconnect)), text(4, "regions")...)
	for want, m := range map[leave]frame{
		{actionDisconnect, reasonRemoved}: leaveFrame(false, leave{actionDisconnect, reasonRemoved}),
		{actionReconnect, 6}:              message(fieldLeave, append(regions, appendVarint(nil, leaveReason, 6)...)),
		{actionReconnect, 0}:              message(fieldLeave, appendVarint(nil, leaveCanReconnect, 1)),
	} {
		c, p := f.join(a, "ann")
		put(t, p.Conn, m)
		got := next(t, c)
		require.Equal(t, want, readResponse(got).leave)
		require.NotContains(t, string(got.data), "regions", "they name servers that are not berth's")
	}
}

// mutes is a fixture with a conference on u1, on which ann's microphone is muted.
type mutes struct {
	*fixture
	a, b *unit
}

func newMutes(t *testing.T) *mutes {
	f := &mutes{fixture: newFixture(t)}
	f.a, f.b = f.unit("u1", "key-a"), f.unit("u2", "key-b")
	f.row(f.a, 1)
	_, err := f.scripts.PutConferenceInfo(t.Context(), number, berth.ConferenceInfo{NodeID: "u1", Generation: 1, Epoch: 1, Full: true, Live: json.RawMessage(
		`{"participants":[{"identity":"ann","tracks":[{"sid":"TR_1","source":"microphone","muted":true},{"sid":"TR_2","source":"camera","muted":false}]},
			{"identity":"bob","tracks":[{"sid":"TR_3","source":"microphone","muted":false}]}]}`)})
	require.NoError(t, err)
	return f
}

// row makes a unit the owner in Redis.
func (f *mutes) row(u *unit, epoch int64) {
	f.t.Helper()
	code, err := f.scripts.PutConference(f.t.Context(), lua.ConferenceRow{
		E164: number, ConferenceID: conference, NodeID: u.id, Generation: 1, Epoch: epoch, Revision: epoch, Status: berth.ConferenceOpen,
	}, json.RawMessage(`{}`), lua.Licence{})
	require.NoError(f.t, err)
	require.Equal(f.t, lua.ConferenceOK, code)
}

// move makes u2 the owner in the database.
func (f *mutes) move() {
	f.t.Helper()
	moved := f.open(f.b)
	moved.Segments = make([]berth.ConferenceSegment, 2)
	f.change(moved)
}

// publish returns a request to publish a track of a source.
func publish(source uint64, more ...byte) frame {
	return message(fieldAddTrack, append(appendVarint(text(1, "cid"), addTrackSource, source), more...))
}

// published sends a request of a client and returns whether the track is muted in what the unit receives.
func published(t *testing.T, c *websocket.Conn, p *peer, request frame) bool {
	t.Helper()
	put(t, c, request)
	got := next(t, p.Conn)
	_, _, n := protowire.ConsumeTag(got.data)
	body, _ := protowire.ConsumeBytes(got.data[n:])
	require.Equal(t, "cid", string(value(body, 1)), "the rest is unchanged")
	return varint(body, addTrackMuted) == 1
}

const camera, microphone = 1, 2

// B9: a track that was muted on the former unit is muted when its participant publishes it on the next one, once. A participant that
// was on this copy before decides itself.
func TestProxy_TrackMutedOnFormerUnit_PublishedMuted(t *testing.T) {
	t.Parallel()
	f := newMutes(t)
	f.row(f.b, 2)
	f.move()
	ann, p := f.join(f.b, "ann")
	require.False(t, published(t, ann, p, publish(camera)), "the camera was not muted")
	require.False(t, published(t, ann, p, publish(microphone, text(addTrackSID, "TR_9")...)), "another codec of a track")
	require.True(t, published(t, ann, p, publish(microphone)), "the microphone was")
	require.False(t, published(t, ann, p, publish(microphone)), "only once")
	c, p := f.join(f.b, "ann")
	put(t, c, frame{true, []byte(`{"addTrack":{"cid":"cid","source":"MICROPHONE"}}`)})
	require.JSONEq(t, `{"addTrack":{"cid":"cid","source":"MICROPHONE","muted":true}}`, string(next(t, p.Conn).data))
	c, p = f.join(f.b, "bob")
	require.False(t, published(t, c, p, publish(microphone)))
	f.ledger.setLegs("ann")
	c, p = f.join(f.b, "ann")
	require.False(t, published(t, c, p, publish(microphone)), "it had returned before")
}

// B9: a unit may report that a participant has returned before the proxy has the unit's response to the connection.
func TestProxy_ReportedWhileItConnects_PublishedMuted(t *testing.T) {
	t.Parallel()
	f := newMutes(t)
	f.row(f.b, 2)
	f.move()
	f.b.joining = func() { f.ledger.setLegs("ann") }
	ann, p := f.join(f.b, "ann")
	require.True(t, published(t, ann, p, publish(microphone)))
}

// B9: a conference's new owner is in the database before it is in Redis, and a client may connect to it between the two.
func TestProxy_RowNotYetWritten_PublishedMuted(t *testing.T) {
	t.Parallel()
	f := newMutes(t)
	f.move()
	ann, p := f.join(f.b, "ann")
	require.True(t, published(t, ann, p, publish(microphone)))
}

// B9: a removed participant is disconnected by every process, connected or held, and does not come back.
func TestProxy_ParticipantRemoved_DisconnectedEverywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	conf := f.open(u)
	bob, _ := f.join(u, "bob")
	ann, p := f.join(u, "ann")
	f.remove("bob")
	require.Equal(t, leave{actionDisconnect, reasonRemoved}, leaves(t, bob))
	put(t, p.Conn, frame{false, []byte{1}})
	require.Equal(t, []byte{1}, next(t, ann).data)
	_, res := f.dial(f.token("bob"), "/rtc")
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
	require.NoError(t, f.proxy.Remove(t.Context(), conf, "bob"))
	require.Equal(t, "bob", <-u.removed)
	u.status.Store(http.StatusNotFound)
	require.NoError(t, f.proxy.Remove(t.Context(), conf, "bob"), "it is not in the room")
	u.status.Store(http.StatusUnauthorized)
	err := f.proxy.Remove(t.Context(), conf, "bob")
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "eyJ")

	f.waiting()
	refused := make(chan int, 1)
	go func() { _, res := f.dial(f.token("eve"), "/rtc"); refused <- res.StatusCode }()
	f.parkedAre(1)
	f.remove("eve")
	require.Equal(t, http.StatusUnauthorized, <-refused, "also while its connection is held")
	go func() { _, res := f.dial(f.token("ann"), "/rtc"); refused <- res.StatusCode }()
	f.parkedAre(1)
	f.end()
	require.Equal(t, http.StatusUnauthorized, <-refused, "a held connection is refused as soon as the conference has ended")
}

// B9: without the proxy a participant gets the unit's address and a token that the unit accepts.
func TestProxy_Direct_ReturnsUnitAndItsToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	of := identity.Participation{ConferenceID: conference, E164: number, Identity: "ann", Role: berth.RoleListener}
	_, _, err := f.proxy.Direct(t.Context(), berth.Conference{Status: berth.ConferenceAwaitingRecovery}, of)
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	address, token, err := f.proxy.Direct(t.Context(), f.open(u), of)
	require.NoError(t, err)
	require.Equal(t, u.address(), address)
	c, _, err := websocket.DefaultDialer.Dial(address+"/rtc", http.Header{"Authorization": {"Bearer " + token}})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.Equal(t, map[string]any{
		"room": number, "roomJoin": true, "canPublish": false, "canSubscribe": true, "canPublishData": false, "canUpdateOwnMetadata": false,
	}, u.peer().claims["video"], "a listener only receives")
	n := f.nodes.all["u1"]
	n.KeyID = "key-x"
	f.nodes.all["u1"] = n
	_, _, err = f.proxy.Direct(t.Context(), f.open(u), of)
	require.Equal(t, berth.CodeUnavailable, berth.CodeOf(err))
	require.ErrorContains(t, err, "BERTH_LIVEKIT_KEYS_FILE")
}

// B9: a process that stops makes its clients resume on another one.
func TestProxy_Stops_ClientsResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	f.open(u)
	c, _ := f.join(u, "ann")
	go f.stop()
	require.Equal(t, leave{actionResume, reasonShutdown}, leaves(t, c))
	f.stop()
	f.connectionsAre(0)
}

// B9: requests that arrive while the process stops are refused, not half served.
func TestProxy_Stopped_RefusesConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.open(f.unit("u1", "key-a"))
	f.stop()
	for _, path := range []string{"/rtc", "/rtc/validate"} {
		_, r := f.dial(f.token("ann"), path)
		require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	}
}

// A side that sends too much or does not read is disconnected, and others are not affected.
func TestProxy_HugeMessage_Disconnected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	f.open(u)
	c, p := f.join(u, "ann")
	put(t, c, frame{data: make([]byte, maxRequest)})
	require.Len(t, next(t, p.Conn).data, maxRequest)
	put(t, c, frame{data: make([]byte, maxRequest+1)})
	_, _, err := c.ReadMessage()
	require.Error(t, err)
	f.connectionsAre(0)
}

// A client that does not read is disconnected; the others of its conference are not affected, and nothing accumulates.
func TestProxy_ClientDoesNotRead_DisconnectedAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.stall = time.Second
	u := f.unit("u1", "key-a")
	f.open(u)
	_, stalled := f.join(u, "ann")
	bob, other := f.join(u, "bob")
	f.connectionsAre(2)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for stalled.WriteMessage(websocket.BinaryMessage, make([]byte, 1<<20)) == nil {
			n++
		}
		sent <- n
	}()
	f.connectionsAre(1)
	require.Less(t, <-sent, 64, "the unit waits; the proxy keeps nothing")
	put(t, other.Conn, frame{data: []byte{1}})
	require.Equal(t, []byte{1}, next(t, bob).data)
}

// A unit that does not read is disconnected, and its client connects to it again when it responds; nothing accumulates.
func TestProxy_UnitDoesNotRead_ClientResumes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.stall = time.Second
	u := f.unit("u1", "key-a")
	f.open(u)
	c, _ := f.join(u, "ann")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c.WriteMessage(websocket.BinaryMessage, make([]byte, 1<<20)) == nil {
			continue
		}
	}()
	require.Equal(t, leave{actionResume, reasonShutdown}, f.last(c))
	require.NoError(t, c.Close())
	<-ended
	f.connectionsAre(0)
}

// A client that opens a connection and sends half of its request, or announces a message that it does not send, is disconnected.
func TestProxy_HalfOfAMessage_Disconnected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.quiet = 2 * time.Second
	u := f.unit("u1", "key-a")
	f.open(u)
	half, p := f.join(u, "ann")
	pinging := make(chan struct{})
	go func() { // the unit is there
		defer close(pinging)
		for p.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) == nil {
			pause.For(t.Context(), 20*time.Millisecond)
		}
	}()
	_, err := half.NetConn().Write([]byte{0x82, 0xfe, 0x10, 0x00, 0, 0, 0, 0, 'x'}) // 4,096 bytes, of which one follows
	require.NoError(t, err)
	f.connectionsAre(0)
	require.NoError(t, p.Close())
	<-pinging
	huge, _ := f.join(u, "bob")
	_, err = huge.NetConn().Write([]byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	require.NoError(t, err)
	f.connectionsAre(0)
}

// A client whose host is gone is noticed by its missing pongs, and so is a unit's.
func TestProxy_HalfOpenConnection_Ended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.proxy.quiet = 2 * time.Second
	u := f.unit("u1", "key-a")
	f.open(u)
	gone, _ := f.join(u, "ann")
	gone.SetPingHandler(func(string) error { return nil }) // nothing is returned
	c, p := f.join(u, "bob")
	for _, conn := range []*websocket.Conn{gone, c, p.Conn} {
		go func() {
			for {
				if _, _, err := conn.ReadMessage(); err != nil {
					return
				}
			}
		}()
	}
	var stop atomic.Bool
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		for !stop.Load() {
			_ = p.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
			pause.For(t.Context(), 20*time.Millisecond)
		}
	}()
	f.connectionsAre(1)
	pause.For(t.Context(), 2*f.proxy.quiet)
	require.EqualValues(t, 1, f.proxy.connections.Load(), "pongs of the client, and pings of the unit, keep the other open")
	stop.Store(true)
	<-pinging
	f.connectionsAre(0)
}

// A change of the file of secrets applies without a restart; one that cannot be read changes nothing.
func TestKeys_FileChanges_Reloaded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	path := filepath.Join(t.TempDir(), "keys")
	_, err := NewKeys(path, f.proxy.log)
	require.Error(t, err)
	write := func(s string) { require.NoError(t, os.WriteFile(path, []byte(s), 0o600)) }
	write("a: one\nb: \"2\"\n")
	k, err := NewKeys(path, f.proxy.log)
	require.NoError(t, err)
	secret := func(id string) string { s, _ := k.Secret(id); return s }
	require.Equal(t, "one", secret("a"))
	require.Equal(t, "2", secret("b"))
	write("a: another\n")
	require.Eventually(t, func() bool { return secret("a") == "another" && secret("b") == "" }, waitLimit, 10*time.Millisecond)
	write("not: [a map of texts")
	require.Eventually(t, func() bool { secret("a"); return strings.Contains(f.log.String(), "not reloaded") }, waitLimit, 10*time.Millisecond)
	require.Equal(t, "another", secret("a"))
	require.NotContains(t, f.log.String(), "map of texts", "the file's content is not logged")
}

func TestHosts_URLs_AllowedByNameNetworkAndPort(t *testing.T) {
	t.Parallel()
	hosts := Hosts{"media.test", "*.units.test:443", "10.0.0.0/8", "127.0.0.1:7880", "[::1]:7880"}
	require.NoError(t, hosts.Validate())
	for address, want := range map[string]bool{
		"ws://media.test:7880": true, "wss://MEDIA.test": true, "ws://media.test.evil": false, "ws://a.media.test": false,
		"wss://a.units.test": true, "ws://a.units.test": false, "wss://units.test": false, "wss://.units.test": false, "wss://a.units.test:444": false,
		"ws://10.1.2.3:9": true, "ws://11.1.2.3": false, "ws://[::ffff:10.1.2.3]": true,
		"ws://127.0.0.1:7880": true, "ws://127.0.0.1": false, "ws://[::1]:7880": true, "ws://[::2]:7880": false,
	} {
		require.Equal(t, want, hosts.Allow(mustURL(t, address)), address)
	}
	require.False(t, Hosts{}.Allow(mustURL(t, "ws://127.0.0.1")), "none is allowed by default")
	for _, wrong := range []string{"", "*", "a*", "http://a", "user@a", "a b", "a:"} {
		require.Error(t, Hosts{wrong}.Validate(), wrong)
	}
}

func mustURL(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	return u
}

// A unit may send an action that no version of berth knows.
func TestLeave_UnknownAction_SendsTheClientAway(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"3", "-1", `"LATER"`} {
		r := readJSON([]byte(`{"leave":{"action":` + action + `}}`))
		require.Equal(t, actionDisconnect, r.leave.action, action)
		require.Contains(t, string(leaveFrame(true, r.leave).data), "DISCONNECT", action)
	}
}
