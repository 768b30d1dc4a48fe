package unit

import (
	"context"
	"encoding/json"
	"slices"
)

// track is a published track of a participant, in the live information.
type track struct {
	SID    string `json:"sid"`
	Source string `json:"source"` // such as microphone
	Muted  bool   `json:"muted"`
}

// member is the part of a participant's live information that is restored when the conference has moved.
type member struct {
	Identity string  `json:"identity"`
	Tracks   []track `json:"tracks"`
}

// muter is a driver that can mute tracks.
type muter interface {
	Mute(ctx context.Context, e164, identity, track string) error
}

// mutes are the tracks that were muted on the former unit and that have not returned to this one. A server-side mute is not
// known to the participant's client, which publishes the track unmuted on the next server.
type mutes struct {
	read    bool                // they are known
	sources map[string][]string // by identity
}

// membersOf returns the members of a list of participants; one of another form has none.
func membersOf(participants json.RawMessage) (members []member) {
	if json.Unmarshal(participants, &members) != nil {
		return nil
	}
	return members
}

// take reads them from the participants of the former unit.
func (m *mutes) take(former json.RawMessage) {
	m.read, m.sources = true, map[string][]string{}
	for _, p := range membersOf(former) {
		for _, t := range p.Tracks {
			if t.Muted {
				m.sources[p.Identity] = append(m.sources[p.Identity], t.Source)
			}
		}
	}
}

// restore mutes the tracks that have returned, each once: its participant may unmute it then. It reports whether it muted any.
func (m *mutes) restore(ctx context.Context, driver Driver, e164 string, participants json.RawMessage) (restored bool, err error) {
	unit, ok := driver.(muter)
	if !ok || len(m.sources) == 0 {
		return false, nil
	}
	for _, p := range membersOf(participants) {
		for _, t := range p.Tracks {
			at := slices.Index(m.sources[p.Identity], t.Source)
			if at < 0 {
				continue
			}
			if !t.Muted {
				if err := unit.Mute(ctx, e164, p.Identity, t.SID); err != nil {
					return restored, err
				}
				restored = true
			}
			if m.sources[p.Identity] = slices.Delete(m.sources[p.Identity], at, at+1); len(m.sources[p.Identity]) == 0 {
				delete(m.sources, p.Identity)
			}
		}
	}
	return restored, nil
}
