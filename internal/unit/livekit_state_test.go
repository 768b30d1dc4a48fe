package unit

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testlivekit"
	"berth/internal/testredis"
)

// application calls a LiveKit server as a user's own backend does.
type application struct {
	t *testing.T
	d *LiveKit
}

func (a application) call(method, asAdmin string, in map[string]any) {
	a.t.Helper()
	require.NoError(a.t, a.d.api.call(a.t.Context(), method, asAdmin, in, &struct{}{}), "%s %v", method, in)
}

func (a application) writes(room, metadata string) {
	a.t.Helper()
	a.call("UpdateRoomMetadata", room, map[string]any{"room": room, "metadata": metadata})
	require.Eventually(a.t, func() bool { // LiveKit lists them a moment later
		found, err := a.d.api.list(a.t.Context(), room)
		return err == nil && len(found) == 1 && found[0].Metadata == metadata
	}, 10*time.Second, 5*time.Millisecond)
}

func (a application) deletes(room string) {
	a.t.Helper()
	a.call("DeleteRoom", "", map[string]any{"room": room})
}

func (a application) creates(room string, options map[string]any) {
	a.t.Helper()
	options["name"] = room
	a.call("CreateRoom", "", options)
}

// FR1: whatever an application writes to a conference's room, and whichever of berth's own rooms it deletes or writes to, the conference
// stays the unit's, under its epoch and the same incarnation, also for an agent that is restarted.
func TestLiveKit_ApplicationChangesRooms_ConferenceStays(t *testing.T) {
	t.Parallel()
	const state, sentinel = "berth.conference." + number, "berth.unit.u1"
	for name, changes := range map[string]func(application){
		"metadata as text":            func(a application) { a.writes(number, "agenda: budget") },
		"metadata as JSON":            func(a application) { a.writes(number, `{"topic":"budget","epoch":9,"conferenceId":"x"}`) },
		"metadata that are empty":     func(a application) { a.writes(number, "") },
		"metadata twice":              func(a application) { a.writes(number, "first"); a.writes(number, "second") },
		"metadata of all rooms":       func(a application) { a.writes(number, "all"); a.writes(state, "all"); a.writes(sentinel, "all") },
		"a state that is deleted":     func(a application) { a.deletes(state) },
		"a sentinel that is deleted":  func(a application) { a.deletes(sentinel) },
		"all empty rooms are deleted": func(a application) { a.deletes(state); a.deletes(sentinel) },
		"the room with other options": func(a application) {
			a.creates(number, map[string]any{"empty_timeout": 5, "departure_timeout": 5, "max_participants": 2, "metadata": "other"})
		},
		"the room again": func(a application) { a.deletes(number); a.creates(number, map[string]any{"empty_timeout": 600}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testlivekit.Start(t)
			d := liveKitOf(t, server, "u1")
			c := newConsole(t, d)
			begun := time.Now().UTC().Truncate(time.Millisecond)
			c.does(berth.ActivityCreateConference, requested("c1", 3, begun))
			require.Equal(t, listed("c1", 3, begun), c.copies())
			changes(application{t, d})
			same := func(d *LiveKit) {
				t.Helper()
				inc, err := d.Incarnation(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.commands.incarnation, inc)
				now, copies, err := d.List(t.Context())
				require.NoError(t, err)
				require.Equal(t, inc, now)
				require.Len(t, copies, 1)
				require.Equal(t, listed("c1", 3, begun)[0], copies[0].UnitCopy)
				foreign, err := d.Foreign(t.Context())
				require.NoError(t, err)
				require.Empty(t, foreign)
			}
			same(d)
			same(liveKitOf(t, server, "u1"))
			c.does(berth.ActivityAdoptConference, requested("c1", 4, begun))
			require.Equal(t, int64(4), c.copies()[0].Epoch)
			c.does(berth.ActivityReleaseConference, release(4))
			require.Empty(t, c.copies())
		})
	}
}

// FR1: a room that an application has deleted has ended. Its state is removed, so that a later room of the number is the application's.
func TestGuard_ApplicationDeletesRoom_StateIsRemoved(t *testing.T) {
	t.Parallel()
	d := liveKitOf(t, testlivekit.Start(t), "u1")
	c := newConsole(t, d)
	c.does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	g := &guard{commands: c.commands, driver: d, log: quietLog}
	app := application{t, d}
	app.deletes(number)
	require.Empty(t, c.copies())
	g.removeAbandoned(t.Context())
	require.Len(t, roomsOf(t, d), 2, "it may be one that is being created")
	g.removeAbandoned(t.Context())
	require.Len(t, roomsOf(t, d), 1)
	app.creates(number, map[string]any{"empty_timeout": 600})
	require.Empty(t, c.copies())
	c.refuses(berth.ActivityCreateConference, requested("c1", 4, time.Now()), "not the unit's")
}

func roomsOf(t *testing.T, d *LiveKit) []room {
	t.Helper()
	all, err := d.api.list(t.Context())
	require.NoError(t, err)
	return all
}

// FR1: the metadata that an application has written are reported, and written to the room of the next unit unless that has others.
func TestReporter_RoomMetadata_FollowTheConference(t *testing.T) {
	t.Parallel()
	for name, has := range map[string]struct{ room, want string }{
		"a room without metadata": {"", "of the former room"},
		"a room with others":      {"written since", "written since"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := liveKitOf(t, testlivekit.Start(t), "u1")
			newConsole(t, d).does(berth.ActivityRecoverConference, requested("c1", 3, time.Now()))
			if has.room != "" {
				application{t, d}.writes(number, has.room)
			}
			inc, err := d.Incarnation(t.Context())
			require.NoError(t, err)
			p := newProxy(t)
			p.do(func(s *proxyState) { s.former = client.FormerState{RoomMetadata: "of the former room"} })
			r := newReporter("u1", d, inc, p, quietLog)
			r.generation.Store(7)
			r.begun(number, 3)
			reported := func() (last string) {
				r.round(t.Context())
				p.do(func(s *proxyState) {
					for _, sent := range s.reports {
						last = string(sent.Live)
					}
				})
				return last
			}
			require.NotContains(t, reported(), "roomMetadata", "before they are restored")
			require.Contains(t, reported(), `"roomMetadata":"`+has.want+`"`)
			metadata := func() string {
				found, err := d.api.list(t.Context(), number)
				require.NoError(t, err)
				return found[0].Metadata
			}
			require.Equal(t, has.want, metadata())
			application{t, d}.writes(number, "")
			require.JSONEq(t, `{"roomMetadata":""}`, reported(), "cleared")
			application{t, d}.writes(number, string(make([]byte, maxRoomMetadata)))
			require.JSONEq(t, `{"roomMetadata":""}`, reported(), "too large")
			application{t, d}.writes(number, "later")
			require.JSONEq(t, `{"roomMetadata":"later"}`, reported())
			require.Equal(t, 1, func() (n int) { p.do(func(s *proxyState) { n = s.reads }); return n }(), "the former state is read once")
		})
	}
}

// FR5: a server with a Redis of its own has the egress API. Its rooms must not outlive its process there: they are recovered elsewhere, and
// would be kept because they began earlier.
func TestLiveKit_PrivateRedis_IsEmptiedBeforeEachStart(t *testing.T) {
	t.Parallel()
	server := testlivekit.Start(t)
	d := liveKitOf(t, server, "u1")
	egress := func() error {
		token, err := d.api.token(map[string]any{"roomRecord": true})
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+"/twirp/livekit.Egress/ListEgress", strings.NewReader(`{}`))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := d.api.send(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		if res.StatusCode != http.StatusOK {
			return responseError(res.StatusCode, body)
		}
		return nil
	}
	require.ErrorContains(t, egress(), "redis required")
	private := testredis.Start(t)
	server.Redis = private.Addr()
	server.Restart()
	require.NoError(t, egress())
	l := alive(t, d, patient)
	first := l.member()
	newConsole(t, d).does(berth.ActivityCreateConference, requested("c1", 3, time.Now()))
	server.Kill()
	require.ErrorIs(t, first.linkEnd(t), ErrStopped)
	server.Restart()
	select {
	case <-l.members:
		t.Fatal("registered with the rooms of an earlier process")
	case <-time.After(time.Second):
	}
	server.Kill()
	require.Equal(t, "OK", private.Do("FLUSHALL"))
	server.Restart()
	second := l.member()
	require.NotEqual(t, first.Spec.Incarnation, second.Spec.Incarnation)
	require.Empty(t, newConsole(t, d).copies())
	require.NoError(t, egress())
}
