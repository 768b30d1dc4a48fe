package unit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"berth"
	"berth/internal/pause"
)

// The state of a conference is the metadata of another room beside its own, because an application may write the metadata of
// the conference's. All rooms are in the memory of one process, so they are lost together. What an application deletes
// of them is written again while the agent knows it.
const (
	// sentinelPrefix and the unit's id name the room that identifies a run of a LiveKit server; statePrefix and a number name
	// that of a conference's state. No number starts with them.
	sentinelPrefix, statePrefix = "berth.unit.", "berth.conference."
	// sentinelSeconds is how long the empty sentinel stays: ten years.
	sentinelSeconds = 10 * 365 * 24 * 3600
	// writtenWithin bounds the wait until lists show a room's new metadata, read every writtenEvery.
	writtenWithin, writtenEvery = 2 * time.Second, 5 * time.Millisecond
)

func stateRoom(e164 string) string { return statePrefix + e164 }

func (l *LiveKit) sentinel() string { return sentinelPrefix + l.unit }

// state is what the room of a conference's state has as its metadata.
type state struct {
	ConferenceID string    `json:"conferenceId"`
	Epoch        int64     `json:"epoch"`
	StartedAt    time.Time `json:"startedAt"`
	EndAt        time.Time `json:"endAt"`
	Unit         string    `json:"unit"`
}

func readState(metadata string) (s state, ok bool) {
	return s, json.Unmarshal([]byte(metadata), &s) == nil && s.Epoch > 0 && s.Unit != ""
}

// seen is what the last list had.
type seen struct {
	incarnation berth.Incarnation
	states      map[string]seenState // by number
}

// seenState is the state of a conference whose room has an id.
type seenState struct {
	sid string
	state
}

// rooms are the rooms of a list by name.
type rooms map[string]room

func byName(all []room) rooms {
	out := make(rooms, len(all))
	for _, r := range all {
		out[r.Name] = r
	}
	return out
}

// state returns the state of a number's room, and whether it has to be written to the room of states.
func (l *LiveKit) state(all rooms, e164 string) (s state, ok, missing bool) {
	if s, ok = readState(all[stateRoom(e164)].Metadata); ok {
		return s, true, false
	}
	if known := l.seen.Load(); known != nil {
		if was, found := known.states[e164]; found && was.sid == all[e164].SID {
			return was.state, true, true
		}
	}
	return s, false, false
}

// copyOf returns the conference of a room that the unit created. restore returns a state that the server has lost.
func (l *LiveKit) copyOf(all rooms, e164 string) (c Copy, own, restore bool) {
	r, exists := all[e164]
	if !exists || berth.ValidE164("name", e164) != nil {
		return Copy{}, false, false
	}
	s, ok, restore := l.state(all, e164)
	if !ok || s.Unit != l.unit {
		return Copy{}, false, false
	}
	c = Copy{
		UnitCopy: berth.UnitCopy{E164: e164, ConferenceID: s.ConferenceID, Epoch: s.Epoch, StartedAt: s.StartedAt},
		EndAt:    s.EndAt, Participants: r.NumParticipants, Metadata: r.Metadata,
	}
	return c, true, restore
}

// Incarnation returns that of the LiveKit process, from the sentinel room that the first call of each run creates.
func (l *LiveKit) Incarnation(ctx context.Context) (berth.Incarnation, error) {
	found, err := l.api.list(ctx, l.sentinel())
	if err != nil {
		return berth.Incarnation{}, err
	}
	if len(found) > 0 {
		return l.incarnation(found[0]), nil
	}
	same, err := l.sameRun(ctx)
	if err != nil {
		return berth.Incarnation{}, err
	}
	made, err := l.api.create(ctx, createRoom{
		Name: l.sentinel(), EmptyTimeout: sentinelSeconds, DepartureTimeout: sentinelSeconds, MaxParticipants: 1, Metadata: same,
	})
	if err != nil {
		return berth.Incarnation{}, err
	}
	return l.incarnation(made), nil
}

// sameRun returns the metadata of a sentinel for a server whose sentinel was deleted: a room that the last list had is in the
// memory of the same process. They are empty after a restart.
func (l *LiveKit) sameRun(ctx context.Context) (string, error) {
	known := l.seen.Load()
	if known == nil || len(known.states) == 0 {
		return "", nil
	}
	found, err := l.api.list(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range found {
		if was, ok := known.states[r.Name]; ok && was.sid == r.SID {
			return encode(known.incarnation)
		}
	}
	return "", nil
}

// incarnation uses a hash of the sentinel's id as process id, because the API does not expose the real one. A sentinel that
// was written again has that of the first one.
func (l *LiveKit) incarnation(sentinel room) (inc berth.Incarnation) {
	if json.Unmarshal([]byte(sentinel.Metadata), &inc) == nil && inc.Host == l.host {
		return inc
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(sentinel.SID)) // a hash never fails
	return berth.Incarnation{Host: l.host, PID: int(h.Sum32()&math.MaxInt32) | 1, StartedAt: sentinel.created()}
}

// errNoSentinel is the error of a list right after the server has restarted.
var errNoSentinel = errors.New("the LiveKit server has restarted")

// List reads the server's rooms, with the sentinel, in one call.
func (l *LiveKit) List(ctx context.Context) (inc berth.Incarnation, out []Copy, err error) {
	found, err := l.api.list(ctx)
	if err != nil {
		return inc, nil, err
	}
	all := byName(found)
	sentinel, ok := all[l.sentinel()]
	if !ok {
		return inc, nil, errNoSentinel
	}
	inc = l.incarnation(sentinel)
	now := &seen{inc, map[string]seenState{}}
	for _, r := range found {
		c, own, restore := l.copyOf(all, r.Name)
		if !own {
			continue
		}
		out = append(out, c)
		now.states[c.E164] = seenState{r.SID, l.stateOf(c)}
		if restore {
			_ = l.write(ctx, c) // the next list retries
		}
	}
	l.seen.Store(now)
	return inc, out, nil
}

// Find reads one room.
func (l *LiveKit) Find(ctx context.Context, e164 string) (Copy, bool, error) {
	found, err := l.api.list(ctx, e164, stateRoom(e164))
	if err != nil {
		return Copy{}, false, err
	}
	all := byName(found)
	if s, ok := readState(all[stateRoom(e164)].Metadata); ok && s.Unit != l.unit {
		return Copy{}, false, ErrForeign
	}
	if _, exists := all[e164]; !exists {
		return Copy{}, false, nil
	}
	c, own, _ := l.copyOf(all, e164)
	if !own {
		return Copy{}, false, ErrForeign
	}
	return c, true, nil
}

// Foreign returns the rooms that are named like a number and that no unit has created.
func (l *LiveKit) Foreign(ctx context.Context) (numbers []string, err error) {
	found, err := l.api.list(ctx)
	all := byName(found)
	for _, r := range found {
		if berth.ValidE164("name", r.Name) != nil {
			continue
		}
		if _, ok, _ := l.state(all, r.Name); !ok {
			numbers = append(numbers, r.Name)
		}
	}
	return numbers, err
}

// Abandoned returns the numbers whose room has ended and whose state is still there.
func (l *LiveKit) Abandoned(ctx context.Context) (numbers []string, err error) {
	found, err := l.api.list(ctx)
	all := byName(found)
	for _, r := range found {
		e164, ok := strings.CutPrefix(r.Name, statePrefix)
		if s, valid := readState(r.Metadata); !ok || valid && s.Unit != l.unit {
			continue
		}
		if _, exists := all[e164]; !exists {
			numbers = append(numbers, e164)
		}
	}
	return numbers, err
}

// Mark writes a copy's state and waits until lists show it.
func (l *LiveKit) Mark(ctx context.Context, c Copy) error {
	if err := l.write(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writtenWithin)
	defer cancel()
	for {
		now, ok, err := l.Find(ctx, c.E164)
		switch {
		case err != nil:
			return err
		case !ok:
			return errors.New("the room has ended")
		case now.Epoch > c.Epoch || now.Epoch == c.Epoch && !now.EndAt.Before(c.EndAt):
			return nil
		case !pause.For(ctx, writtenEvery):
			return fmt.Errorf("the room list does not show the new epoch: %w", ctx.Err())
		}
	}
}

// write writes a copy's state, into a new room or over an earlier state of this unit.
func (l *LiveKit) write(ctx context.Context, c Copy) error {
	metadata, err := encode(l.stateOf(c))
	if err != nil {
		return err
	}
	made, err := l.api.create(ctx, createRoom{
		Name: stateRoom(c.E164), EmptyTimeout: roomSeconds, DepartureTimeout: roomSeconds, MaxParticipants: 1, Metadata: metadata,
	})
	if err != nil || made.Metadata == metadata {
		return err
	}
	if s, ok := readState(made.Metadata); ok && s.Unit != l.unit {
		return ErrForeign
	}
	return l.api.update(ctx, stateRoom(c.E164), metadata)
}

func (l *LiveKit) stateOf(c Copy) state {
	return state{c.ConferenceID, c.Epoch, c.StartedAt, c.EndAt, l.unit}
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode room metadata: %w", err)
	}
	return string(b), nil
}
