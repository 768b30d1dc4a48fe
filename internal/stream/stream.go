// Package stream carries a task's events from the process that runs a model call to the people who watch it.
//
// A Publisher appends events to the task's Redis stream and publishes them in the same round trip; its Writer
// merges the tokens of one model call (T11). A Hub holds one Pub/Sub connection for any number of Readers; each
// Reader replays what it missed from the stream and then follows live, in order, without loss or repetition (T15).
//
// Entry ids are `{gen}-{seq}`: gen is the Redis time at which the stream was opened, seq counts from 1 without
// holes. So a reader sees by arithmetic whether something between two entries is missing.
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

// What keeps a writer or reader from its stream. All are final for the call that got them.
var (
	// ErrFenced says that a newer attempt of the task writes the stream: stop at once (T13).
	ErrFenced = errors.New("stream: a newer attempt writes this stream")
	// ErrEnded says that the task has ended: nothing can be appended any more.
	ErrEnded = errors.New("stream: ended")
	// ErrAbsent says that there is no stream: never opened, expired, or lost with Redis's data. The ledger
	// knows what became of the task.
	ErrAbsent = errors.New("stream: absent")
	// ErrClosed says that the writer, reader or hub was closed before.
	ErrClosed = errors.New("stream: closed")
)

// position is an entry's id; the zero position is before everything.
type position struct{ gen, seq uint64 }

func (p position) String() string {
	return strconv.FormatUint(p.gen, 10) + "-" + strconv.FormatUint(p.seq, 10)
}

// next tells whether q is the entry directly behind p. From the zero position that is the first of any generation.
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

// eventType reads the type of an event's JSON. Events of this house begin with it.
func eventType(data []byte) berth.EventType {
	const lead = `{"type":"`
	if rest, ok := strings.CutPrefix(string(data[:min(len(data), 64)]), lead); ok {
		if name, _, ok := strings.Cut(rest, `"`); ok {
			return berth.EventType(name)
		}
	}
	var e struct{ Type berth.EventType }
	_ = json.Unmarshal(data, &e) // what is no event has no type
	return e.Type
}

// encode makes the JSON of an event. Times are set where they are missing.
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
