package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/identity"
)

// member is what a LiveKit server knows of a participant.
type member struct {
	Identity, Name, Metadata string
	Attributes               map[string]string
	Permission               map[string]any
	Tracks                   []memberTrack
}

type memberTrack struct {
	SID, Source string
	Muted       bool
}

// members returns the participants of a conference on the LiveKit server, by identity. Their tracks have no ids.
func (u *mediaUnit) members(e164 string) map[string]member {
	var in struct{ Participants []member }
	if u.call("ListParticipants", map[string]any{"room": e164}, &in) != nil {
		return nil
	}
	out := map[string]member{}
	for _, m := range in.Participants {
		for i := range m.Tracks {
			m.Tracks[i].SID = ""
		}
		out[m.Identity] = m
	}
	return out
}

// mute mutes a participant's tracks on the LiveKit server.
func (u *mediaUnit) mute(e164, identity string) { u.muteSource(e164, identity, "") }

// muteSource mutes a participant's tracks of a source; of any source if it is empty.
func (u *mediaUnit) muteSource(e164, identity, source string) {
	u.s.tb.Helper()
	var in struct{ Participants []member }
	require.NoError(u.s.tb, u.call("ListParticipants", map[string]any{"room": e164}, &in))
	for _, m := range in.Participants {
		if m.Identity != identity {
			continue
		}
		require.NotEmpty(u.s.tb, m.Tracks)
		for _, t := range m.Tracks {
			if source != "" && !strings.EqualFold(t.Source, source) {
				continue
			}
			require.NoError(u.s.tb, u.rooms.Mute(context.Background(), e164, identity, t.SID))
		}
	}
}

// B9, B10, FC14: what a LiveKit server has changed for participants is the same on the next one, after the server was killed and after
// a planned move: mutes before any audio is received, roles, permissions and metadata. A participant that was removed stays away, also
// when its unit did not receive the removal and after a restart of the API.
func TestParticipants_RecoveryAndMove_KeepTheirState(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := map[string]*mediaUnit{}
	between := map[string]*forwarder{}
	for _, id := range []string{"u1", "u2"} {
		units[id] = s.mediaUnit(id, 5, func(u *mediaUnit) []string {
			between[id] = s.forward(strings.TrimPrefix(u.url("tcp"), "tcp://"))
			return []string{"--client-url", "ws://" + between[id].l.Addr().String()}
		})
	}
	const number = "8636000001"
	m.open(number)
	c := &call{participants: s.participants(), m: m, number: number, listeners: []string{"listener"}, units: units}
	tokens := map[string]string{}
	for name, role := range map[string]berth.ParticipantRole{"speaker": "host", "quiet": "participant", "listener": "listener", "guest": "participant"} {
		a, err := m.AddParticipant(t.Context(), number, client.ParticipantSpec{Identity: name, Name: name, Role: role})
		require.NoError(t, err)
		tokens[name] = a.Token
		c.join(name, a.URL, a.Token, name == "speaker" || name == "quiet")
	}
	s.eventually("the listener to receive both", func() bool { return len(c.of("listener", "received")) == 2 })
	owner := units[m.current(number).Owner.NodeID]

	// The unit does not receive the removal; berth disconnects the guest.
	between[owner.id].cut.Store(true)
	err := m.RemoveParticipant(t.Context(), number, "guest")
	require.Equal(t, http.StatusServiceUnavailable, problem(t, err).Status)
	c.await("guest", "disconnected", 1)
	between[owner.id].cut.Store(false)
	away := func() {
		t.Helper()
		s.eventually("the guest's token to be refused", func() bool {
			return s.validate("http://"+s.httpAddr, tokens["guest"]) == http.StatusUnauthorized
		})
		s.eventually("the guest to be gone", func() bool { _, there := owner.members(number)["guest"]; return !there })
	}
	away()

	owner.mute(number, "quiet")
	var none struct{}
	require.NoError(t, owner.call("UpdateParticipant", map[string]any{
		"room": number, "identity": "quiet", "metadata": "hand raised", "permission": map[string]any{"canSubscribe": true, "canPublish": true, "canPublishData": false},
	}, &none))
	s.eventually("the state to be known", func() bool {
		got, err := m.Conference(t.Context(), number, "")
		return err == nil && got.Info != nil && bytes.Contains(got.Info.Live, []byte(`"muted":true`)) && owner.members(number)["quiet"].Metadata == "hand raised"
	})
	before := owner.members(number)
	require.Len(t, before, 3)
	require.Equal(t, "host", before["speaker"].Attributes["berth.role"])
	require.True(t, before["quiet"].Tracks[0].Muted)
	operator := s.user("op", "operator")
	for what, change := range map[string]func(*mediaUnit){
		"recovery": func(u *mediaUnit) { u.Kill() },
		"planned move": func(*mediaUnit) {
			_, err := operator.MoveConference(t.Context(), number, "")
			require.NoError(t, err)
		},
	} {
		fromQuiet := func() int {
			return len(slices.DeleteFunc(c.of("listener", "silence"), func(e participantEvent) bool { return e.From != "quiet" }))
		}
		quiet, resumed := fromQuiet(), len(c.of("listener", "silence"))
		former := owner
		change(former)
		s.eventually("the listener to receive audio after the "+what, func() bool { return len(c.of("listener", "silence")) > resumed })
		owner = units[m.await(number, "on the other unit", func(c berth.Conference) bool { return on(c.Owner.NodeID)(c) && c.Owner.NodeID != former.id }).Owner.NodeID]
		s.eventually("all to have the same state after the "+what, func() bool { return equalMembers(before, owner.members(number)) })
		require.Equal(t, quiet, fromQuiet(), "no audio of a muted participant after the "+what)
		if what == "recovery" {
			former.boot()
			s.awaitNode(former.id)
		}
		away()
	}
	s.api.kill()
	s.startAPI()
	away()
	require.Empty(t, c.of("listener", "disconnected"))
}

// equalMembers reports whether two servers have the same participants in the same state.
func equalMembers(a, b map[string]member) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// C5, B9: a conference that is extended past its first end keeps all participants. Once it has ended, its tokens are refused.
func TestParticipants_ConferenceExtended_AllStay(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	u := s.mediaUnit("u1", 5)
	const number = "8637000001"
	first := m.open(number, func(c *client.ConferenceSpec) { c.DurationMs = (15 * time.Second).Milliseconds() })
	p := s.participants()
	token := ""
	for _, name := range []string{"speaker", "listener"} {
		a := m.admit(number, name)
		token = a.Token
		p.join(name, a.URL, a.Token, name == "speaker")
	}
	p.await("listener", "received", 1)
	_, err := m.ExtendConference(t.Context(), number, time.Now().Add(time.Hour))
	require.NoError(t, err)
	pause(t.Context(), time.Until(first.EndAt.Add(8*time.Second))) // longer than the unit waits before it ends the room itself
	require.Equal(t, 2, u.present(number))
	require.Zero(t, p.lost("listener"))
	for _, what := range []string{"reconnecting", "reconnected", "disconnected"} {
		require.Empty(t, p.of("listener", what))
	}
	_, err = m.EndConference(t.Context(), number)
	require.NoError(t, err)
	ended := time.Now()
	s.eventually("the token to be refused", func() bool { return s.validate("http://"+s.httpAddr, token) == http.StatusUnauthorized })
	t.Logf("the token was refused %s after the end", time.Since(ended).Round(time.Millisecond))
	p.await("listener", "disconnected", 1)
	p.await("speaker", "disconnected", 1)
}

// B9: a participant whose program has ended without leaving returns with its first token, after its unit has given it up. From then on
// nothing depends on how long it stays offline: the token and the room last as long as the conference.
func TestParticipants_ClientOffline_ReturnsWithItsToken(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	u := s.mediaUnit("u1", 5)
	const number = "8640000901"
	m.open(number)
	p, offline := s.participants(), s.participants()
	speaker, listener := m.admit(number, "speaker"), m.admit(number, "listener")
	p.join("speaker", speaker.URL, speaker.Token, true)
	offline.join("listener", listener.URL, listener.Token, false)
	offline.await("listener", "received", 1)
	require.NoError(t, syscall.Kill(offline.pid, syscall.SIGKILL))
	s.eventually("the unit to give it up", func() bool { return u.present(number) == 1 })
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(listener.Token, &claims)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(identity.ParticipantTTL), claims.ExpiresAt.Time, time.Hour)
	p.join("listener", listener.URL, listener.Token, false)
	p.await("listener", "received", 1)
	require.Empty(t, p.of("speaker", "disconnected"))
}
