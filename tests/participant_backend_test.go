package tests

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
)

// backend calls the LiveKit server that has a conference, as a user's own backend does.
type backend struct {
	*call
	t *testing.T
}

func (b backend) unit() *mediaUnit {
	return b.units[b.m.current(b.number).Owner.NodeID]
}

// calls calls a method for the conference's room and returns why it was refused.
func (b backend) calls(method string, in map[string]any) error {
	b.t.Helper()
	if in == nil {
		in = map[string]any{}
	}
	if in["room"] = b.number; method == "CreateRoom" {
		in["name"] = b.number
	}
	var none struct{}
	return b.unit().call(method, in, &none)
}

// room returns the room of the conference on the LiveKit server that has it.
func (b backend) room() (r struct {
	Metadata        string
	MaxParticipants int `json:"max_participants"`
},
) {
	var out struct{ Rooms []json.RawMessage }
	if b.unit().call("ListRooms", map[string]any{"names": []string{b.number}}, &out) == nil && len(out.Rooms) == 1 {
		require.NoError(b.t, json.Unmarshal(out.Rooms[0], &r))
	}
	return r
}

// trackOf returns the id of a participant's microphone.
func (b backend) trackOf(identity string) string {
	b.t.Helper()
	var in struct{ Participants []member }
	require.NoError(b.t, b.unit().call("ListParticipants", map[string]any{"room": b.number}, &in))
	for _, m := range in.Participants {
		if m.Identity == identity && len(m.Tracks) > 0 {
			return m.Tracks[0].SID
		}
	}
	b.t.Fatal("no track of " + identity)
	return ""
}

// of returns the events that concern a publisher.
func of(all []participantEvent, from string) []participantEvent {
	return slices.DeleteFunc(all, func(e participantEvent) bool { return e.From != from })
}

// FR1, FR9: everything that a user's own backend can do at the LiveKit server. before is what follows immediately, after what is left after
// the server was killed and after a planned move; a call that is not kept has its reason in docs/units.md.
func TestParticipants_BackendCallsLiveKit_ConferenceContinues(t *testing.T) {
	t.Parallel()
	s := newStack(t, withParticipants())
	const number = "8644000001"
	c := &call{participants: s.participants(), m: s.conferences(), number: number, units: s.mediaUnits(5)}
	c.m.open(number, func(spec *client.ConferenceSpec) { spec.MaxParticipants = 10 })
	b := backend{c, t}
	tokens := map[string]string{}
	for name, publishes := range map[string]bool{"speaker": true, "quiet": true, "listener": false, "guest": false} {
		a := c.m.admit(number, name)
		tokens[name] = a.Token
		c.join(name, a.URL, a.Token, publishes)
	}
	receives := func(from string) bool {
		for _, e := range c.all("received") {
			if e.Name == "listener" && e.From == from {
				return true
			}
		}
		return false
	}
	s.eventually("the listener to receive both", func() bool { return receives("speaker") && receives("quiet") })
	quiet := func() member { return b.unit().members(number)["quiet"] }
	mutedOf := func(name string) bool {
		m := b.unit().members(number)[name]
		return len(m.Tracks) == 1 && m.Tracks[0].Muted
	}
	had := 0 // subscriptions of the listener to the speaker before a move
	// resubscribed reports whether the listener has begun its nth subscription to the speaker and received something in it.
	resubscribed := func(nth int) bool {
		began := of(c.of("listener", "subscribed"), "speaker")
		return len(began) >= nth && slices.ContainsFunc(of(append(c.of("listener", "received"), c.of("listener", "silence")...), "speaker"),
			func(e participantEvent) bool { return e.At >= began[nth-1].At })
	}
	left := func(nth int) bool { return len(of(c.of("listener", "unsubscribed"), "speaker")) >= nth }
	kept := func(is bool) string {
		if is {
			return "kept"
		}
		return "not kept"
	}
	steps := []struct {
		name   string
		call   func() error
		before func() bool
		after  func() bool // what is there after a move
		keeps  bool        // whether that is what the call had set
	}{
		{
			name: "UpdateRoomMetadata", call: func() error { return b.calls("UpdateRoomMetadata", map[string]any{"metadata": "agenda: 预算"}) },
			before: func() bool { return b.room().Metadata == "agenda: 预算" },
			after:  func() bool { return b.room().Metadata == "agenda: 预算" }, keeps: true,
		},
		{
			name: "CreateRoom of the same name", call: func() error {
				return b.calls("CreateRoom", map[string]any{"empty_timeout": 1, "departure_timeout": 1, "max_participants": 2})
			},
			before: func() bool { return b.room().MaxParticipants == 10 }, after: func() bool { return b.room().MaxParticipants == 10 },
		},
		{
			name: "UpdateParticipant: name, metadata, attributes", call: func() error {
				return b.calls("UpdateParticipant", map[string]any{
					"identity": "quiet", "name": "田中", "metadata": "hand raised", "attributes": map[string]any{"seat": "3"},
				})
			},
			before: func() bool {
				return quiet().Name == "田中" && quiet().Metadata == "hand raised" && quiet().Attributes["seat"] == "3"
			},
			after: func() bool {
				return quiet().Name == "田中" && quiet().Metadata == "hand raised" && quiet().Attributes["seat"] == "3"
			}, keeps: true,
		},
		{
			name: "UpdateParticipant: permissions", call: func() error {
				return b.calls("UpdateParticipant", map[string]any{
					"identity": "quiet", "permission": map[string]any{"canSubscribe": true, "canPublish": true, "canPublishData": false},
				})
			},
			before: func() bool { return quiet().Permission["can_publish_data"] != true },
			after:  func() bool { return len(quiet().Permission) > 0 && quiet().Permission["can_publish_data"] != true }, keeps: true,
		},
		{
			name: "MutePublishedTrack", call: func() error {
				return b.calls("MutePublishedTrack", map[string]any{"identity": "quiet", "track_sid": b.trackOf("quiet"), "muted": true})
			},
			before: func() bool { return mutedOf("quiet") }, after: func() bool { return mutedOf("quiet") }, keeps: true,
		},
		{
			name: "UpdateSubscriptions", call: func() (err error) {
				for i, on := range []bool{false, true, false} {
					err = errors.Join(err, b.calls("UpdateSubscriptions", map[string]any{
						"identity": "listener", "track_sids": []string{b.trackOf("speaker")}, "subscribe": on,
					}))
					if on {
						s.eventually("the listener to receive the speaker again", func() bool { return resubscribed(2) })
					} else {
						s.eventually("the listener to receive nothing of the speaker", func() bool { return left(1 + i/2) })
					}
				}
				return err
			},
			before: func() bool { return true }, after: func() bool { return resubscribed(had + 1) }, // it receives the speaker again
		},
		{
			name: "SendData", call: func() error {
				return b.calls("SendData", map[string]any{"data": base64.StdEncoding.EncodeToString([]byte("hello")), "kind": "RELIABLE"})
			},
			before: func() bool { return len(c.of("listener", "data")) == 1 }, after: func() bool { return len(c.of("listener", "data")) == 1 },
		},
		{
			name: "RemoveParticipant", call: func() error { return b.calls("RemoveParticipant", map[string]any{"identity": "guest"}) },
			before: func() bool { return len(c.of("guest", "disconnected")) == 1 },
			after: func() bool {
				_, there := b.unit().members(number)["guest"]
				return !there && s.validate("http://"+s.httpAddr, tokens["guest"]) == http.StatusOK // it may join again
			}, keeps: true,
		},
	}
	for _, step := range steps {
		require.NoError(t, step.call(), step.name)
		s.eventually("before a move: "+step.name, step.before)
	}
	refused := map[string]error{}
	for _, method := range []string{"MoveParticipant", "ForwardParticipant"} { // not in this version of LiveKit
		refused[method] = b.calls(method, map[string]any{"identity": "quiet", "destination_room": "8644000009"})
		require.ErrorContains(t, refused[method], "50")
	}
	reported := func() bool {
		got, err := c.m.Conference(t.Context(), number, "")
		return err == nil && got.Info != nil && bytes.Contains(got.Info.Live, []byte(`"muted":true`)) && bytes.Contains(got.Info.Live, []byte(`agenda: 预算`))
	}
	s.eventually("the unit to report the state", reported)
	epoch := c.m.current(number).Owner.Epoch

	moves := []struct {
		name string
		move func(*mediaUnit)
	}{
		{"kill -9", func(u *mediaUnit) { u.Kill() }},
		{"planned move", func(*mediaUnit) {
			_, err := s.user("op", "operator").MoveConference(t.Context(), number, "")
			require.NoError(t, err)
		}},
	}
	table := "call | at the LiveKit server | after kill -9 | after a planned move\n"
	rows := map[string]string{}
	for _, m := range moves {
		former := b.unit()
		require.Equal(t, epoch, c.m.current(number).Owner.Epoch, "the conference was not moved before")
		had = len(of(c.of("listener", "subscribed"), "speaker"))
		m.move(former)
		epoch = c.m.await(number, "on the other unit", func(now berth.Conference) bool { return on(now.Owner.NodeID)(now) && now.Owner.NodeID != former.id }).Owner.Epoch
		s.eventually("all to be back after "+m.name, func() bool { return len(b.unit().members(number)) == 3 })
		for _, step := range steps {
			s.eventually("after "+m.name+": "+step.name, step.after)
			rows[step.name] += " | " + kept(step.keeps)
		}
		s.eventually("the state to be reported after "+m.name, reported)
		if m.name == "kill -9" {
			former.boot()
			s.awaitNode(former.id)
		}
	}
	for _, step := range steps {
		table += step.name + " | done" + rows[step.name] + "\n"
	}
	for method, err := range refused {
		table += method + " | " + err.Error() + " | - | -\n"
	}

	require.NoError(t, b.calls("DeleteRoom", nil))
	deleted := time.Now()
	ended := c.m.await(number, "ended", ofStatus(berth.ConferenceEnded))
	require.Equal(t, berth.EndByUnit, ended.End)
	for _, name := range []string{"speaker", "quiet", "listener"} {
		c.await(name, "disconnected", 1)
	}
	require.Equal(t, http.StatusUnauthorized, s.validate("http://"+s.httpAddr, tokens["speaker"]))
	table += fmt.Sprintf("DeleteRoom | the conference ends after %.1f s with %s | - | -\n", time.Since(deleted).Seconds(), ended.End)
	t.Log("\n" + table)
}
