// Package stream carries a task's events from the process that runs a model call to the clients that read them.
//
// A Publisher appends events to the task's Redis stream and publishes them in the same round trip; its Writer
// merges the tokens of one model call. A Hub holds one Pub/Sub connection for any number of Readers; each Reader
// replays what it missed from the stream and then follows live, in order, without loss or repetition.
//
// Entry ids are `{gen}-{seq}`: gen is the Redis time at which the stream was opened, seq counts from 1 without
// gaps, so that a reader can compute whether an entry between two others is missing.
package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth"
)

// Errors of writers and readers. A retry of the same call cannot succeed.
var (
	// ErrFenced means that a newer attempt of the task writes the stream: stop immediately.
	ErrFenced = errors.New("stream: a newer attempt writes this stream")
	// ErrEnded means that the task has ended: nothing can be appended any more.
	ErrEnded = errors.New("stream: ended")
	// ErrAbsent means that there is no stream: never opened, expired, or lost with Redis's data. The ledger has the
	// outcome of the task.
	ErrAbsent = errors.New("stream: absent")
	// ErrClosed means that the writer, reader or hub is closed.
	ErrClosed = errors.New("stream: closed")
)

// position is an entry's id; the zero position is before everything.
type position struct{ gen, seq uint64 }

func (p position) String() string {
	return strconv.FormatUint(p.gen, 10) + "-" + strconv.FormatUint(p.seq, 10)
}

// next reports whether q is the entry directly after p. After the zero position that is the first of any generation.
func (p position) next(q position) bool {
	return q.seq == p.seq+1 && (q.gen == p.gen || p == position{})
}

func (p position) before(q position) bool {
	return p.gen < q.gen || p.gen == q.gen && p.seq < q.seq
}

func parsePosition(id string) (position, bool) {
	gen, seq, ok := strings.Cut(id, "-")
	if !ok || !digits(gen) || !digits(seq) {
		return position{}, false
	}
	g, errGen := strconv.ParseUint(gen, 10, 64)
	s, errSeq := strconv.ParseUint(seq, 10, 64)
	return position{g, s}, errGen == nil && errSeq == nil
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// eventType returns the type of an event's JSON, with which events of berth begin.
func eventType(data []byte) berth.EventType {
	const lead = `{"type":"`
	if rest, ok := strings.CutPrefix(string(data[:min(len(data), 64)]), lead); ok {
		if name, _, ok := strings.Cut(rest, `"`); ok {
			return berth.EventType(name)
		}
	}
	var e struct{ Type berth.EventType }
	_ = json.Unmarshal(data, &e) // other data has no type
	return e.Type
}

// encode returns the JSON of an event. A missing time is set.
func encode(ev berth.Event) (string, error) {
	if ev.TS == 0 {
		ev.TS = time.Now().UnixMilli()
	}
	b, err := json.Marshal(ev)
	if err != nil {
		return "", fmt.Errorf("encode %s event: %w", ev.Type, err)
	}
	return string(b), nil
}
