package tests

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// validate returns the status with which a server would answer a participant's connection.
func (s *stack) validate(base, token string) int {
	s.tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, base+"/rtc/validate", http.NoBody)
	require.NoError(s.tb, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	require.NoError(s.tb, res.Body.Close())
	return res.StatusCode
}

// B9, FC1, FC14: participants are connected to the unit that owns their conference, and after it was killed to the next one, with
// tokens that no unit accepts; one that was removed stays away.
func TestParticipants_ServerKilled_MediaContinuesOnAnotherUnit(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := s.mediaUnits(5)
	const number = "8631000001"
	first := m.open(number)
	owner := units[first.Owner.NodeID]
	other := units[otherUnit[owner.id]]
	base := "http://" + s.httpAddr

	p := s.participants()
	tokens := map[string]string{}
	for _, name := range []string{"speaker", "listener", "guest"} {
		a := m.admit(number, name)
		require.Equal(t, "ws://"+s.httpAddr, a.URL)
		tokens[name] = a.Token
		require.Equal(t, http.StatusUnauthorized, s.validate(owner.url("http"), a.Token), "a unit accepts no token of berth")
		p.join(name, a.URL, a.Token, name == "speaker")
	}
	p.await("listener", "received", 1)
	p.await("guest", "received", 1)
	s.eventually("all to be on the unit", func() bool { return owner.present(number) == 3 })

	require.NoError(t, m.RemoveParticipant(t.Context(), number, "guest"))
	p.await("guest", "disconnected", 1)
	s.eventually("the guest to be gone", func() bool { return owner.present(number) == 2 })
	require.Equal(t, http.StatusUnauthorized, s.validate(base, tokens["guest"]))

	owner.Kill()
	silences := p.await("listener", "silence", 1)
	moved := m.await(number, "on the other unit", on(other.id))
	require.Greater(t, moved.Owner.Epoch, first.Owner.Epoch)
	t.Logf("silence after kill -9: %d ms, %d packets lost", silences[0].SilenceMs, silences[0].Lost)
	s.eventually("both to be on the other unit", func() bool { return other.present(number) == 2 })

	// The killed server returns, with the same key: no participant is on it, and no token opens the room.
	owner.boot()
	s.awaitNode(owner.id)
	require.Equal(t, -1, owner.present(number))
	for name, token := range tokens {
		require.Equal(t, http.StatusUnauthorized, s.validate(owner.url("http"), token), name)
	}
	require.Equal(t, http.StatusOK, s.validate(base, tokens["listener"]))
	require.Equal(t, http.StatusUnauthorized, s.validate(base, tokens["guest"]), "removed participants stay away")
	_, err := m.AddParticipant(t.Context(), number, client.ParticipantSpec{Identity: "guest"})
	require.Equal(t, berth.CodeConflict, problem(t, err).Code)
	require.Empty(t, p.of("listener", "disconnected"))

	_, err = m.EndConference(t.Context(), number)
	require.NoError(t, err)
	p.await("listener", "disconnected", 1)
	s.eventually("the token to be refused", func() bool { return s.validate(base, tokens["listener"]) == http.StatusUnauthorized })
	res, err := http.Get("http://" + s.httpAddr + "/rtc/validate?access_token=" + tokens["listener"]) //nolint:noctx // browsers send it in the query
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	log := string(s.api.output()) + string(s.worker.output()) + string(units["u1"].agent.output()) + string(units["u2"].agent.output())
	for _, token := range tokens {
		require.NotContains(t, log, strings.Split(token, ".")[1], "no token is logged")
	}
}

// FC14: what participants may do moves with them, whether it is their role's or was changed on the unit, and so do their name and metadata.
func TestParticipants_ServerKilled_RolesAndStateMoveAlong(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	units := map[string]*mediaUnit{"u1": s.mediaUnit("u1", 5), "u2": s.mediaUnit("u2", 5)}
	const number = "8636000001"
	first := m.open(number)
	owner := units[first.Owner.NodeID]
	other := units[otherUnit[owner.id]]
	p := s.participants()
	specs := []client.ParticipantSpec{
		{Identity: "host", Name: "Hana", Role: berth.RoleHost}, {Identity: "speaker"}, {Identity: "listener", Role: berth.RoleListener},
	}
	for _, spec := range specs {
		a, err := m.AddParticipant(t.Context(), number, spec)
		require.NoError(t, err)
		p.join(spec.Identity, a.URL, a.Token, spec.Identity == "speaker")
	}
	p.await("listener", "received", 1)
	s.eventually("all to be on the unit", func() bool { return owner.present(number) == 3 })
	// The client has a change when the proxy has passed on the token with it: LiveKit sends one for each of the three.
	tokens := func() int {
		return bytes.Count(s.api.output(), []byte(`msg="token refreshed" conference=`+first.ID+` participant=speaker`))
	}
	s.eventually("the first token of the unit", func() bool { return tokens() > 0 })
	had := tokens()
	var updated map[string]any
	require.NoError(t, owner.call("UpdateParticipant", map[string]any{
		"room": number, "identity": "speaker", "name": "Sam", "metadata": "seat 4",
		"permission": map[string]any{"can_publish": true, "can_subscribe": true, "can_publish_data": false},
	}, &updated))
	of := func(u *mediaUnit) (all []any) {
		for _, spec := range specs {
			var who map[string]any
			require.NoError(t, u.call("GetParticipant", map[string]any{"room": number, "identity": spec.Identity}, &who))
			all = append(all, who["name"], who["metadata"], who["permission"], who["attributes"])
		}
		return all
	}
	before := of(owner)
	require.Equal(t, []any{"Sam", "seat 4"}, before[4:6])
	s.eventually("the changes to arrive at the client", func() bool { return tokens() >= had+3 })
	owner.Kill()
	p.await("listener", "silence", 1)
	s.eventually("all to be on the other unit", func() bool { return other.present(number) == 3 })
	require.Equal(t, before, of(other))
}

// B9: an API process that is killed or stops loses no media: its clients continue on another one at the same address.
func TestParticipants_ProxyKilled_MediaContinues(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	s.mediaUnit("u1", 5)
	const number = "8632000001"
	m.open(number)
	p := s.participants()
	for _, name := range []string{"speaker", "listener"} {
		a := m.admit(number, name)
		p.join(name, a.URL, a.Token, name == "speaker")
	}
	p.await("listener", "received", 1)
	for i, end := range []func(){func() { s.api.kill() }, func() { require.True(t, s.api.stop(20*time.Second)) }} {
		end()
		s.startAPI()
		p.await("listener", "reconnected", i+1)
		p.await("speaker", "reconnected", i+1)
	}
	require.Zero(t, p.lost("listener"), "media does not pass through the proxy")
	require.Empty(t, p.of("listener", "disconnected"))
}

// B9: when only the signalling connection to the unit breaks, clients resume on it and keep their media.
func TestParticipants_UnitConnectionCut_NoMediaLost(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	m := s.conferences()
	var between *forwarder
	u := s.mediaUnit("u1", 5, func(u *mediaUnit) []string {
		between = s.forward(strings.TrimPrefix(u.url("tcp"), "tcp://"))
		return []string{"--client-url", "ws://" + between.l.Addr().String()}
	})
	const number = "8633000001"
	m.open(number)
	p := s.participants()
	for _, name := range []string{"speaker", "listener"} {
		a := m.admit(number, name)
		p.join(name, a.URL, a.Token, name == "speaker")
	}
	p.await("listener", "received", 1)
	between.cut.Store(true)
	between.drop()
	pause(t.Context(), time.Second) // the length of the interruption
	require.Empty(t, p.of("listener", "reconnecting"), "its own connection is open")
	between.cut.Store(false)
	p.await("listener", "reconnected", 1)
	p.await("speaker", "reconnected", 1)
	require.Zero(t, p.lost("listener"))
	s.eventually("both to be on the unit", func() bool { return u.present(number) == 2 })
}
