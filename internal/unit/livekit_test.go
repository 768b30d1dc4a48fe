package unit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/internal/testlivekit"
)

func liveKitOf(t *testing.T, s *testlivekit.Server, unit string) *LiveKit {
	t.Helper()
	d, err := NewLiveKit(LiveKitOptions{URL: s.URL(), Key: testlivekit.Key, Secret: testlivekit.Secret, Unit: unit})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func TestCommands_LiveKit_FollowTheEpochs(t *testing.T) {
	t.Parallel()
	testCommands(t, func(t *testing.T) Driver {
		t.Helper()
		return liveKitOf(t, testlivekit.Start(t), "u1")
	})
}

// The rooms hold all state: another agent of the same unit finds the same copies.
func TestLiveKit_AgentRestarts_RoomsKeepTheirEpochs(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	before := liveKitOf(t, server, "u1")
	begun := time.Now().UTC().Truncate(time.Millisecond)
	newConsole(t, before).does(berth.ActivityCreateConference, requested("c1", 3, begun))
	previous, err := before.Incarnation(t.Context())
	require.NoError(t, err)
	spec := berth.NodeSpec{ID: "u1", Kind: berth.NodeMedia, Incarnation: previous}
	require.NoError(t, spec.Normalize())

	after := newConsole(t, liveKitOf(t, server, "u1"))
	require.Equal(t, previous, after.commands.incarnation)
	require.Equal(t, listed("c1", 3, begun), after.copies())

	other := newConsole(t, liveKitOf(t, server, "u2"))
	require.NotEqual(t, previous, other.commands.incarnation)
	require.Empty(t, other.copies())
	other.refuses(berth.ActivityCreateConference, requested("c1", 4, begun), "not the unit's")
	other.does(berth.ActivityReleaseConference, release(9))
	require.Len(t, after.copies(), 1)
}

func TestLiveKit_EmptyRoom_StaysUntilTheEndTime(t *testing.T) { // C6
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	newConsole(t, d).does(berth.ActivityRecoverConference, requested("c1", 3, time.Now()))
	var out struct {
		Rooms []struct {
			EmptyTimeout     float64 `json:"empty_timeout"`
			DepartureTimeout float64 `json:"departure_timeout"`
			MaxParticipants  int     `json:"max_participants"`
		} `json:"rooms"`
	}
	require.NoError(t, d.api.call(t.Context(), "ListRooms", "", map[string]any{"names": []string{number}}, &out))
	require.Len(t, out.Rooms, 1)
	longest := (30 * 24 * time.Hour).Seconds() // the end time may be extended, the timeouts cannot
	require.Greater(t, out.Rooms[0].EmptyTimeout, longest)
	require.Greater(t, out.Rooms[0].DepartureTimeout, longest)
	require.Equal(t, 5, out.Rooms[0].MaxParticipants)
}

func TestLiveKit_ServerRestarts_IncarnationChanges(t *testing.T) { // C23
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	l := alive(t, d, func(o *Options) { o.UnreachableAfter = 3 * time.Second })
	first := l.member()
	newConsole(t, d).does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))

	// A suspended server is unreachable. When it is resumed, it is the same run with all its rooms.
	server.Pause()
	require.ErrorIs(t, first.linkEnd(t), errUnreachable)
	server.Resume()
	second := l.member()
	require.Equal(t, first.Spec.Incarnation, second.Spec.Incarnation)
	require.Len(t, newConsole(t, d).copies(), 1)

	// A restarted server has no rooms.
	server.Restart()
	require.Error(t, second.linkEnd(t))
	third := l.member()
	require.NotEqual(t, second.Spec.Incarnation, third.Spec.Incarnation)
	require.Greater(t, third.Spec.Incarnation.StartedAt, second.Spec.Incarnation.StartedAt)
	require.Empty(t, newConsole(t, d).copies())

	// The unit waits for a killed server.
	server.Kill()
	require.ErrorIs(t, third.linkEnd(t), ErrStopped)
	server.Restart()
	require.NotEqual(t, third.Spec.Incarnation, l.member().Spec.Incarnation)
}

// Between a restart and its first sentinel, the rooms must not be treated as ended.
func TestLiveKit_ListWithoutSentinel_Fails(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	_, _, err := d.List(t.Context())
	require.ErrorIs(t, err, errNoSentinel)
	_, err = d.Incarnation(t.Context())
	require.NoError(t, err)
	_, _, err = d.List(t.Context())
	require.NoError(t, err)
}

func TestLiveKit_Participants_AreTheLiveInformation(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	newConsole(t, d).does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	empty, err := d.Live(t.Context(), number)
	require.NoError(t, err)
	require.JSONEq(t, `[]`, string(empty["participants"]))

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	began := time.Now().Truncate(time.Millisecond)
	join(ctx, t, server, "anna")
	var participants []struct {
		Identity string    `json:"identity"`
		State    string    `json:"state"`
		JoinedAt time.Time `json:"joinedAt"`
	}
	require.Eventually(t, func() bool {
		now, err := d.Live(t.Context(), number)
		if err != nil || json.Unmarshal(now["participants"], &participants) != nil {
			return false
		}
		return len(participants) == 1 && string(now["participantCount"]) == "1"
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "anna", participants[0].Identity)
	require.NotEmpty(t, participants[0].State)
	require.WithinRange(t, participants[0].JoinedAt, began, time.Now())
	require.Eventually(t, func() bool {
		_, copies, err := d.List(t.Context())
		return err == nil && len(copies) == 1 && copies[0].Participants == 1
	}, 20*time.Second, 10*time.Millisecond)
}

// join opens the signal connection of a participant, which stays until ctx ends or LiveKit times out without media.
func join(ctx context.Context, t *testing.T, s *testlivekit.Server, identity string) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": testlivekit.Key, "sub": identity, "exp": time.Now().Add(time.Hour).Unix(), "video": map[string]any{"roomJoin": true, "room": number},
	}).SignedString([]byte(testlivekit.Secret))
	require.NoError(t, err)
	c, _, err := websocket.Dial(ctx, strings.Replace(s.URL(), "http", "ws", 1)+"/rtc?protocol=15&auto_subscribe=1&access_token="+token, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	_, _, err = c.Read(ctx) // the join response
	require.NoError(t, err)
}

func TestNewLiveKit_InvalidSettings_Fails(t *testing.T) {
	t.Parallel()
	for _, o := range []LiveKitOptions{
		{URL: "", Key: "k", Secret: "s"}, {URL: "redis://x", Key: "k", Secret: "s"}, {URL: "http://x", Secret: "s"}, {URL: "http://x", Key: "k"},
	} {
		_, err := NewLiveKit(o)
		require.Error(t, err)
	}
	d, err := NewLiveKit(LiveKitOptions{URL: "wss://media.example:7443/", Key: "k", Secret: "s"})
	require.NoError(t, err)
	require.Equal(t, "https://media.example:7443/twirp/livekit.RoomService/", d.api.base)
	require.Equal(t, "media.example:7443", d.host)
}

func TestLiveKit_WrongKey_FailsPermanently(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	for name, o := range map[string]LiveKitOptions{
		"another key":    {URL: server.URL(), Key: "other", Secret: testlivekit.Secret},
		"another secret": {URL: server.URL(), Key: testlivekit.Key, Secret: strings.Repeat("x", 32)},
		"another path":   {URL: server.URL() + "/elsewhere", Key: testlivekit.Key, Secret: testlivekit.Secret},
	} {
		d, err := NewLiveKit(o)
		require.NoError(t, err)
		_, err = d.Incarnation(t.Context())
		var wrong *Misconfigured
		require.ErrorAs(t, err, &wrong, name)
		require.NotContains(t, err.Error(), "eyJ", "the error contains no token")
		d.Close()
	}
}

// An unreachable server has started nothing, so another unit may run the conference immediately.
func TestLiveKit_ServerUnreachable_RefusesCommands(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	c := newConsole(t, liveKitOf(t, server, "u1"))
	server.Kill()
	c.refuses(berth.ActivityCreateConference, requested("c1", 1, time.Now()), "is unreachable")
	_, err := c.commands.driver.(*LiveKit).api.create(t.Context(), createRoom{Name: number})
	var no *Refusal
	require.ErrorAs(t, err, &no)
}

// C23, B9, FC1: a server that creates rooms for participants is refused, because old tokens would re-create lost rooms on it.
func TestLiveKit_AutoCreate_IsRefused(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	require.NoError(t, liveKitOf(t, server, "u1").Check(t.Context()))
	server.AutoCreate = true
	server.Restart()
	require.ErrorContains(t, alive(t, liveKitOf(t, server, "u1"), patient).end(), "auto_create")

	// One that is restarted with that setting is not registered again until it is restarted without it.
	server.AutoCreate = false
	server.Restart()
	l := alive(t, liveKitOf(t, server, "u1"), patient)
	first := l.member()
	first.Work.(*commands).report.generation.Store(1) // it was registered
	server.AutoCreate = true
	server.Restart()
	_ = first.linkEnd(t)
	select {
	case <-l.members:
		t.Fatal("registered with auto_create")
	case <-time.After(time.Second):
	}
	server.AutoCreate = false
	server.Restart()
	require.NotEqual(t, first.Spec.Incarnation, l.member().Spec.Incarnation)
}

// A conference that may end when it is empty ends some time after the last participant has left. One that was recovered waits
// for its participants first.
func TestLiveKit_EmptyAfter_SetsTheTimeouts(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	in := requested("c1", 3, time.Now())
	in.EmptyAfterMs = 60_000
	timeouts := func(command string) (empty, left float64) {
		c := newConsole(t, d)
		c.does(berth.ActivityReleaseConference, release(3))
		c.does(command, in)
		var out struct {
			Rooms []struct {
				EmptyTimeout     float64 `json:"empty_timeout"`
				DepartureTimeout float64 `json:"departure_timeout"`
			} `json:"rooms"`
		}
		require.NoError(t, d.api.call(t.Context(), "ListRooms", "", map[string]any{"names": []string{number}}, &out))
		return out.Rooms[0].EmptyTimeout, out.Rooms[0].DepartureTimeout
	}
	empty, left := timeouts(berth.ActivityCreateConference)
	require.Equal(t, []float64{60, 60}, []float64{empty, left})
	empty, left = timeouts(berth.ActivityRecoverConference)
	require.Equal(t, []float64{roomSeconds, 60}, []float64{empty, left})
}

// FC1: the creation of an existing room returns it unchanged, so that a room that another process created is detected.
func TestLiveKit_RoomExists_CreationLeavesItUnchanged(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	_, err := d.api.create(t.Context(), createRoom{Name: number, EmptyTimeout: 600, Metadata: "of another application"})
	require.NoError(t, err)
	require.ErrorIs(t, d.Create(t.Context(), requested("c1", 3, time.Now()), false), ErrForeign)
	rooms, err := d.api.list(t.Context(), number)
	require.NoError(t, err)
	require.Equal(t, "of another application", rooms[0].Metadata)
	require.Empty(t, newConsole(t, d).copies())
}

// FC1: rooms that no unit created are removed from a dedicated server once two lists have shown them; others stay.
func TestGuard_DedicatedServer_RemovesForeignRooms(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d, other := liveKitOf(t, server, "u1"), liveKitOf(t, server, "u2")
	c := newConsole(t, d)
	c.does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	of := requested("c2", 3, time.Now())
	of.E164 = "8699000002"
	newConsole(t, other).does(berth.ActivityCreateConference, of)
	for _, name := range []string{"8699000001", "lobby"} {
		_, err := d.api.create(t.Context(), createRoom{Name: name, EmptyTimeout: 600})
		require.NoError(t, err)
	}
	names := func() (out []string) {
		rooms, err := d.api.list(t.Context())
		require.NoError(t, err)
		for _, r := range rooms {
			out = append(out, r.Name)
		}
		return out
	}
	g := &guard{commands: c.commands, driver: d, dedicated: true, log: quietLog}
	g.removeForeign(t.Context())
	require.Contains(t, names(), "8699000001", "it may be one that is being created")
	g.removeForeign(t.Context())
	require.ElementsMatch(t, []string{
		number, "8699000002", "lobby", "berth.unit.u1", "berth.unit.u2", "berth.conference." + number, "berth.conference.8699000002",
	}, names())
}

// C5, FC10: the end time is in the conference's state. A unit that is cut off from berth ends the conference itself.
func TestGuard_EndTimePasses_RoomIsEnded(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	c := newConsole(t, d)
	in := requested("c1", 3, time.Now())
	c.does(berth.ActivityCreateConference, in)
	g := &guard{commands: c.commands, driver: d, log: quietLog}
	until := func(end time.Time) {
		in.Epoch, in.EndAt = in.Epoch+1, end // under one epoch, the end time only rises
		c.does(berth.ActivityAdoptConference, in)
		g.endExpired(t.Context())
	}
	until(time.Now().Add(-endGrace / 2)) // berth has time to release it
	until(time.Now().Add(time.Hour))     // extended
	require.Len(t, c.copies(), 1)
	until(time.Now().Add(-time.Minute))
	require.Empty(t, c.copies())
}

// FC10: a fenced unit has no rooms, and another incarnation: its conferences were lost, not ended on purpose.
func TestLiveKit_Fence_EndsAllRoomsAndTheIncarnation(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	newConsole(t, d).does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	l := alive(t, d, patient, func(o *Options) { o.FenceAfter = 50 * time.Millisecond })
	first := l.member()
	first.Accepted()
	require.ErrorIs(t, first.linkEnd(t), errFenced)
	second := l.member()
	require.NotEqual(t, first.Spec.Incarnation, second.Spec.Incarnation)
	require.Empty(t, newConsole(t, d).copies())
	require.NoError(t, second.ctx.Err(), "the time starts with the next heartbeat")
}

// Joins are reported by the server's webhook, not by its list, which is late.
func TestLiveKit_Webhooks_ReportChanges(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	handler, changes := d.Webhooks()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	server.Webhook = web.URL
	server.Restart()
	newConsole(t, d).does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	join(ctx, t, server, "anna")
	next := func() string {
		select {
		case e164 := <-changes:
			return e164
		case <-time.After(60 * time.Second):
			return "no event"
		}
	}
	// Without media, the server reports only the end of the connection.
	require.NoError(t, d.api.call(t.Context(), "RemoveParticipant", number, map[string]string{"room": number, "identity": "anna"}, &struct{}{}))
	require.Equal(t, number, next())
	for name, token := range map[string]string{"without a token": "", "of another body": "Bearer " + webhookToken(t, []byte("{}"))} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader(`{"event":"participant_left","room":{"name":"8699000009"}}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", token)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusUnauthorized, res.StatusCode, name)
	}
}

// webhookToken signs the hash of a body as LiveKit does.
func webhookToken(t *testing.T, body []byte) string {
	t.Helper()
	sum := sha256.Sum256(body)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": testlivekit.Key, "exp": time.Now().Add(time.Minute).Unix(), "sha256": base64.StdEncoding.EncodeToString(sum[:]),
	}).SignedString([]byte(testlivekit.Secret))
	require.NoError(t, err)
	return token
}

// The death of the server's process is detected by its closed connection and port, without waiting for UnreachableAfter.
func TestUnit_ServerKilled_LinkIsLostImmediately(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	m := alive(t, d, func(o *Options) { o.Check, o.UnreachableAfter = 200*time.Millisecond, time.Hour }).member()
	server.Kill()
	require.ErrorIs(t, m.linkEnd(t), ErrStopped)
}

// FM6: the address of a media server may have a key, as that of a proxy in front of it has.
func TestDriver_ServerNotReachable_ErrorHasNoAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"http://pL4nt3d@127.0.0.1:1", "http://user:pL4nt3d@127.0.0.1:1", "http://127.0.0.1:1/?key=pL4nt3d", "http://127.0.0.1:1/pL4nt3d",
		"http://pL4nt3d@no-such-host.invalid",
	} {
		u, err := url.Parse(address)
		require.NoError(t, err)
		api := newRoomService(u, "key", "secret")
		_, err = api.createsRooms(t.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "pL4nt3d", address)
		err = api.call(t.Context(), "ListRooms", "", nil, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "pL4nt3d", address)
	}
}
