package signalling

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/identity"
	"berth/internal/testlivekit"
)

// liveKit makes a LiveKit server with a room for max participants the owner of the conference. Nothing is held for less than a minute, so
// that what is held and what is answered immediately differ. secret is what the proxy has for the server.
func liveKit(t *testing.T, max int, secret string) (*fixture, *realUnit) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(testlivekit.Key+": "+secret+"\n"), 0o600))
	keys, err := NewKeys(file, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	f := newFixture(t, func(o *Options) { o.Hold, o.Keys = time.Minute, keys })
	u := &realUnit{t: t, Server: testlivekit.Start(t)}
	f.nodes.mu.Lock()
	f.nodes.all["u1"] = berth.Node{NodeSpec: berth.NodeSpec{
		ID: "u1", Kind: berth.NodeMedia, ClientURL: "ws" + strings.TrimPrefix(u.URL(), "http"), KeyID: testlivekit.Key, Incarnation: incarnation("u1"),
	}, Generation: 1}
	f.nodes.mu.Unlock()
	f.change(berth.Conference{
		ConferenceSpec: berth.ConferenceSpec{MaxParticipants: max}, Status: berth.ConferenceOpen,
		Owner: berth.ConferenceOwner{NodeID: "u1", Generation: 1, Incarnation: incarnation("u1"), Epoch: 1}, CopyStartedAt: time.UnixMilli(1),
	})
	u.create(max)
	return f, u
}

type realUnit struct {
	t *testing.T
	*testlivekit.Server
}

// create creates the room of the conference.
func (u *realUnit) create(max int) {
	u.t.Helper()
	token, err := target{key: testlivekit.Key, secret: testlivekit.Secret}.sign(map[string]any{"video": map[string]any{"roomCreate": true}}, time.Now(), time.Minute)
	require.NoError(u.t, err)
	body, err := json.Marshal(map[string]any{"name": number, "max_participants": max})
	require.NoError(u.t, err)
	req, err := http.NewRequestWithContext(u.t.Context(), http.MethodPost, u.URL()+"/twirp/livekit.RoomService/CreateRoom", bytes.NewReader(body))
	require.NoError(u.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(u.t, err)
	require.NoError(u.t, res.Body.Close())
	require.Equal(u.t, http.StatusOK, res.StatusCode)
}

// attempt connects and returns how that ended: the first message, or the status and text of a refusal.
func (f *fixture) attempt(token, path, query string) (c *websocket.Conn, first response, status int, message string) {
	f.t.Helper()
	d := websocket.Dialer{HandshakeTimeout: waitLimit}
	c, res, err := d.Dial("ws"+strings.TrimPrefix(f.server.URL, "http")+path+"?"+query+"&access_token="+token, nil)
	if err != nil {
		require.NotNil(f.t, res, "%v", err)
		b, err := io.ReadAll(res.Body)
		require.NoError(f.t, err)
		return nil, response{}, res.StatusCode, string(b)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c, readResponse(next(f.t, c)), http.StatusSwitchingProtocols, ""
}

// FR4: what a LiveKit server refuses for good is answered immediately with its reason, and what may change is waited for.
func TestProxy_LiveKitRefuses_ReasonImmediately(t *testing.T) {
	t.Parallel()
	const query = "auto_subscribe=1&protocol=15"
	joined := func(t *testing.T, f *fixture, who string) *websocket.Conn {
		t.Helper()
		c, first, status, message := f.attempt(f.token(who), "/rtc", query)
		require.Equal(t, fieldJoin, first.field, "%d %s", status, message)
		return c
	}
	full := func(t *testing.T, f *fixture, token, query string) {
		t.Helper()
		c, first, status, message := f.attempt(token, "/rtc", query)
		require.Equal(t, leave{actionDisconnect, reasonJoin}, first.leave, "%d %s", status, message)
		_, _, err := c.ReadMessage()
		require.Error(t, err, "the connection is closed after it")
	}
	for name, refuses := range map[string]struct {
		max    int
		secret string
		then   func(*testing.T, *fixture, *realUnit)
	}{
		"a full room": {max: 1, then: func(t *testing.T, f *fixture, _ *realUnit) {
			joined(t, f, "ann")
			full(t, f, f.token("bob"), query)
			full(t, f, f.token("bob"), query+"&sdk=js&version=2.23.0")
		}},
		"an identity that is in a full room": {max: 1, then: func(t *testing.T, f *fixture, _ *realUnit) {
			first := joined(t, f, "ann")
			joined(t, f, "ann")
			const duplicate = 2
			for {
				if r := readResponse(next(t, first)); r.field == fieldLeave {
					require.Equal(t, leave{actionDisconnect, duplicate}, r.leave)
					return
				}
			}
		}},
		"a place that becomes free": {max: 1, then: func(t *testing.T, f *fixture, _ *realUnit) {
			first := joined(t, f, "ann")
			full(t, f, f.token("bob"), query)
			put(t, first, leaveFrame(false, leave{actionDisconnect, reasonClient}))
			require.NoError(t, first.Close())
			require.Eventually(t, func() bool {
				_, got, _, _ := f.attempt(f.token("bob"), "/rtc", query)
				return got.field == fieldJoin
			}, waitLimit, 20*time.Millisecond)
		}},
		"a room without a limit": {then: func(t *testing.T, f *fixture, _ *realUnit) {
			joined(t, f, "ann")
			joined(t, f, "bob")
		}},
		"another secret": {secret: strings.Repeat("x", 40), then: func(t *testing.T, f *fixture, _ *realUnit) {
			_, _, status, message := f.attempt(f.token("ann"), "/rtc", query)
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, message, "does not accept the key")
			require.NotContains(t, f.log.String()+message, "eyJ")
		}},
		"a request that cannot be read": {then: func(t *testing.T, f *fixture, _ *realUnit) {
			_, _, status, message := f.attempt(f.token("ann"), "/rtc/v1", "join_request=x")
			require.Equal(t, http.StatusBadRequest, status, message)
		}},
		"a token that has expired": {then: func(t *testing.T, f *fixture, _ *realUnit) {
			expired := identity.Participants{Secrets: f.tokens.Secrets, Clock: func() time.Time { return time.Now().Add(-2 * identity.ParticipantTTL) }}
			token, err := expired.Issue(identity.Participation{ConferenceID: conference, E164: number, Identity: "ann"})
			require.NoError(t, err)
			_, _, status, _ := f.attempt(token, "/rtc", query)
			require.Equal(t, http.StatusUnauthorized, status)
		}},
		"a token of another conference": {then: func(t *testing.T, f *fixture, _ *realUnit) {
			token, err := f.tokens.Issue(identity.Participation{ConferenceID: "c-2", E164: number, Identity: "ann"})
			require.NoError(t, err)
			_, _, status, _ := f.attempt(token, "/rtc", query)
			require.Equal(t, http.StatusUnauthorized, status)
		}},
		"a room that is created late": {then: func(t *testing.T, f *fixture, u *realUnit) {
			u.Restart()
			done := make(chan struct{})
			go func() { defer close(done); joined(t, f, "ann") }()
			f.parkedAre(1)
			u.create(0)
			<-done
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := refuses.secret
			if secret == "" {
				secret = testlivekit.Secret
			}
			f, u := liveKit(t, refuses.max, secret)
			refuses.then(t, f, u)
		})
	}
}

// FR4: the status of a unit, or of what is between it and berth, which LiveKit itself does not return.
func TestProxy_UnitStatus_PermanentImmediatelyOthersHeld(t *testing.T) {
	t.Parallel()
	for status, want := range map[int64]int{
		http.StatusBadRequest: http.StatusBadRequest, http.StatusUnauthorized: http.StatusServiceUnavailable, http.StatusForbidden: http.StatusServiceUnavailable,
		http.StatusFound: 0, http.StatusNotFound: 0, http.StatusTooManyRequests: 0, http.StatusInternalServerError: 0, http.StatusBadGateway: 0,
		http.StatusServiceUnavailable: 0, http.StatusGatewayTimeout: 0,
	} {
		t.Run(http.StatusText(int(status)), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(o *Options) { o.Hold = time.Minute })
			u := f.unit("u1", "key-a")
			f.open(u)
			u.status.Store(status)
			if want != 0 {
				c, res := f.dial(f.token("ann"), "/rtc")
				require.Nil(t, c)
				require.Equal(t, want, res.StatusCode)
				return
			}
			done := make(chan struct{})
			go func() { defer close(done); f.join(u, "ann") }()
			f.parkedAre(1)
			u.status.Store(0)
			<-done
		})
	}
}

// FR9: of what a unit has changed for a participant, what fits moves along, and the log names the rest.
func TestUpdated_StateTooLarge_RestIsNamed(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", maxState)
	before := identity.Participation{ConferenceID: conference, E164: number, Identity: "ann", Name: "Ann", Metadata: "old"}
	for name, c := range map[string]struct {
		claims   map[string]any
		name     string
		metadata string
		left     []string
	}{
		"all fits":          {map[string]any{"name": "田中", "metadata": "new", "attributes": map[string]string{"a": "b"}}, "田中", "new", nil},
		"large metadata":    {map[string]any{"name": "田中", "metadata": large, "attributes": map[string]string{"a": "b"}}, "田中", "old", []string{"metadata"}},
		"large attributes":  {map[string]any{"name": "田中", "metadata": "new", "attributes": map[string]string{"a": large}}, "田中", "new", []string{"attributes"}},
		"everything large":  {map[string]any{"name": large, "metadata": large, "attributes": map[string]string{"a": large}}, "Ann", "old", []string{"name", "attributes", "metadata"}},
		"of another one":    {map[string]any{"sub": "bob", "metadata": "new"}, "Ann", "old", nil},
		"permissions alone": {map[string]any{"name": "Ann", "metadata": large, "video": map[string]any{"canPublish": false}}, "Ann", "old", []string{"metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.claims["sub"] == nil {
				c.claims["sub"] = "ann"
			}
			token, err := target{key: "k", secret: "s"}.sign(c.claims, time.Now(), time.Minute)
			require.NoError(t, err)
			next, left := updated(before, token)
			require.Equal(t, c.left, left)
			require.Equal(t, c.name, next.Name)
			require.Equal(t, c.metadata, next.Metadata)
			if c.claims["video"] != nil {
				require.JSONEq(t, `{"canPublish":false}`, string(next.Permissions))
			}
		})
	}
}

// FR9: the log names the participant whose state does not move along.
func TestProxy_RefreshedStateTooLarge_IsLogged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	u := f.unit("u1", "key-a")
	f.open(u)
	c, p := f.join(u, "ann")
	token, err := target{key: "key-a", secret: "secret-a"}.sign(map[string]any{"sub": "ann", "metadata": strings.Repeat("x", maxState)}, time.Now(), time.Minute)
	require.NoError(t, err)
	put(t, p.Conn, message(fieldRefreshToken, []byte(token)))
	next(t, c)
	require.Contains(t, f.log.String(), "too large to follow it to another unit")
	require.Contains(t, f.log.String(), "participant=ann")
}
