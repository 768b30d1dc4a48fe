package unit

import (
	"context"
	"encoding/json"
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
	require.NoError(t, berth.NodeSpec{ID: "u1", Kind: berth.NodeMedia, Incarnation: previous}.Validate())

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
	require.InDelta(t, 3602, out.Rooms[0].EmptyTimeout, 60)
	require.InDelta(t, 3602, out.Rooms[0].DepartureTimeout, 60)
	require.Equal(t, 5, out.Rooms[0].MaxParticipants)
}

func TestLiveKit_ServerRestarts_IncarnationChanges(t *testing.T) { // C23
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	l := alive(t, d, func(o *Options) { o.UnreachableAfter = time.Second })
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
	require.ErrorIs(t, third.linkEnd(t), errUnreachable)
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
	require.WithinDuration(t, time.Now(), participants[0].JoinedAt, time.Minute)
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
