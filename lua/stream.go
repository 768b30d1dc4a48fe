package lua

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"berth"
)

// Codes of the stream scripts.
const (
	StreamOK     = "OK"
	StreamExists = "EXISTS" // open_stream: open already
	StreamFenced = "FENCED" // append_events: a newer attempt writes this stream
	StreamEnded  = "ENDED"  // the stream has its terminal event
	StreamAbsent = "ABSENT" // never opened, expired, or lost with Redis's data
	StreamLost   = "LOST"   // append_events: Redis has lost events that it had confirmed to the producer
)

// streamField is the field of a stream entry that holds the event's JSON.
const streamField = "e"

// Channel identifies the event stream of one task.
type Channel struct{ UserID, ServiceID, TaskID string }

// SessionService is the service id of the channels of sessions; no task can have it.
const SessionService = "session"

// SessionChannel identifies the stream of the events of a session's turns. It never ends.
func SessionChannel(userID, sessionID string) Channel {
	return Channel{UserID: userID, ServiceID: SessionService, TaskID: sessionID}
}

// ConferenceService is the service id of the channels of conferences; no task can have it.
const ConferenceService = "conference"

// ConferenceChannel identifies the stream of the events of a user's conferences of one number. It never ends.
func ConferenceChannel(userID, e164 string) Channel {
	return Channel{UserID: userID, ServiceID: ConferenceService, TaskID: e164}
}

// Append is what AppendEvents appends: the next events of a producer, which numbers its events from 1.
type Append struct {
	Producer  string
	First     int           // number of the first event
	Confirmed int           // number of the last event that was confirmed to the producer, 0 if none was
	Fence     int64         // of a task's attempt
	TTL       time.Duration // for which the stream is kept from now; 0 does not change its expiry
	Trim      int64         // about how many entries the stream keeps; 0 keeps all
	Ends      bool          // the last event ends the stream
	Events    []StreamEntry
}

// StreamEntry is one event to append. With Once it is left out when the stream has an event of its Type, which is optional otherwise.
type StreamEntry struct {
	Type berth.EventType
	Once bool
	Data string // the event as JSON
}

// StreamEntries returns the entries of events without a type.
func StreamEntries(events ...string) []StreamEntry {
	entries := make([]StreamEntry, len(events))
	for i, ev := range events {
		entries[i].Data = ev
	}
	return entries
}

// AppendResult is the result of AppendEvents. LastID is the stream's newest id, `{gen}-{seq}`; empty when absent.
type AppendResult struct{ Code, LastID string }

// DropStream deletes an ended stream with its events. Its readers receive the stored end then. It is idempotent.
func (s *Scripts) DropStream(ctx context.Context, ch Channel) error {
	return s.rdb.Unlink(ctx, s.metaKey(ch), s.keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID)).Err()
}

// StreamState is the metadata of a stream. LastID is the newest id that was assigned, `{gen}-0` before the first.
type StreamState struct {
	Exists bool
	Ended  bool
	Fence  int64
	LastID string
}

// OpenStream opens the stream of a task that is open according to the database, or raises the fence of an open stream.
// Both keys expire after safetyTTL unless EndStream sets another time. Where Redis has lost the entry known, which was confirmed to the
// caller, a new generation begins, by which readers of the lost entries notice the loss. It returns StreamOK, StreamExists or StreamEnded.
func (s *Scripts) OpenStream(ctx context.Context, ch Channel, fence int64, safetyTTL time.Duration, known string) (string, error) {
	opened := ""
	if ch.ofTask() {
		opened = operatorJSON(ch.taskEvent(string(berth.TaskPending)))
	}
	code, _, err := s.streamReply(ctx, "open_stream", ch, fence, millis(safetyTTL), known, opened, s.keys.prefix())
	return code, err
}

// AppendEvents appends events in order and publishes each, in one round trip. Events that were appended before are left out, so that a
// call repeated after a lost reply changes nothing. A task's stream has to be opened first; every other stream begins with its first
// event, and with a new generation of ids where Redis has lost an event that it had confirmed to the producer, so that readers notice.
// Codes: StreamOK, StreamEnded, and of a task's stream also StreamFenced, StreamAbsent, or StreamLost when Redis has lost such an event.
func (s *Scripts) AppendEvents(ctx context.Context, ch Channel, a Append) (AppendResult, error) {
	args := make([]any, 0, 10+3*len(a.Events))
	args = append(args, s.keys.Channel(ch.UserID, ch.ServiceID, ch.TaskID), s.keys.prefix(), a.Producer, a.First, a.Confirmed, a.Fence,
		a.TTL.Milliseconds(), max(a.Trim, 0), flag(!ch.ofTask()), flag(a.Ends))
	for _, e := range a.Events {
		once := ""
		if e.Once {
			once = string(e.Type)
		}
		args = append(args, once, e.Data, ch.change(e, a.Ends))
	}
	if ch.ofTask() && !a.Ends {
		ctx = trace.ContextWithSpan(ctx, noSpan) // a task has hundreds of appends
	}
	code, last, err := s.streamReply(ctx, "append_events", ch, args...)
	return AppendResult{Code: code, LastID: last}, err
}

// NewProducer returns the id of a new producer for AppendEvents.
func NewProducer() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// PublishTaskEnd notifies the workers that a task, as the text of its berth.TaskRef, was cancelled or has timed out; see
// Keys.TasksEnded.
func (s *Scripts) PublishTaskEnd(ctx context.Context, task string) error {
	if err := s.rdb.Publish(ctx, s.keys.TasksEnded(), task).Err(); err != nil {
		return fmt.Errorf("publish the end of a task: %w", err)
	}
	return nil
}

// EndStream appends the terminal event and closes the stream. Both keys expire after ttl, and the stream is trimmed to about
// trim entries (0: not trimmed). It is not fenced, since the database decided the end; a second call changes nothing.
// Codes: StreamOK, StreamEnded, StreamAbsent.
func (s *Scripts) EndStream(
	ctx context.Context, ch Channel, event string, ttl time.Duration, trim int64,
) (code, lastID string, err error) {
	res, err := s.AppendEvents(ctx, ch, Append{
		Producer: "end", First: 1, TTL: max(ttl, time.Millisecond), Trim: trim, Ends: true, Events: StreamEntries(event),
	})
	return res.Code, res.LastID, err
}

// StreamState reads a stream's metadata.
func (s *Scripts) StreamState(ctx context.Context, ch Channel) (StreamState, error) {
	var m streamMeta
	if err := s.rdb.HMGet(ctx, s.metaKey(ch), "state", "gen", "seq", "fence").Scan(&m); err != nil {
		return StreamState{}, fmt.Errorf("read stream state: %w", err)
	}
	return m.state(), nil
}

// OpenStreams reports of each channel whether its stream is open, in one round trip.
func (s *Scripts) OpenStreams(ctx context.Context, channels []Channel) ([]bool, error) {
	states := make([]*redis.StringCmd, len(channels))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, ch := range channels {
			states[i] = p.HGet(ctx, s.metaKey(ch), "state")
		}
		return nil
	})
	if err != nil && err != redis.Nil { //nolint:errorlint // a pipeline returns the first error as it is
		return nil, fmt.Errorf("read stream states: %w", err)
	}
	open := make([]bool, len(channels))
	for i, state := range states {
		if err := state.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read stream states: %w", err)
		}
		open[i] = state.Val() == "open"
	}
	return open, nil
}

// StoredEvent is an entry of a stream: its id and the event's JSON, empty where the entry has none.
type StoredEvent struct{ ID, Data string }

// ReadStream reads a stream's metadata and then up to count entries after the given id ("": from the oldest), in one round
// trip. When the stream has ended and fewer than count entries are returned, there are no more.
func (s *Scripts) ReadStream(
	ctx context.Context, ch Channel, after string, count int64,
) (StreamState, []StoredEvent, error) {
	start := "-"
	if after != "" {
		start = "(" + after
	}
	pipe := s.rdb.Pipeline()
	meta := pipe.HMGet(ctx, s.metaKey(ch), "state", "gen", "seq", "fence")
	entries := pipe.XRangeN(ctx, s.keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID), start, "+", count)
	if _, err := pipe.Exec(ctx); err != nil {
		return StreamState{}, nil, fmt.Errorf("read stream: %w", err)
	}
	var m streamMeta
	if err := meta.Scan(&m); err != nil {
		return StreamState{}, nil, fmt.Errorf("read stream state: %w", err)
	}
	events := make([]StoredEvent, len(entries.Val()))
	for i, e := range entries.Val() {
		data, _ := e.Values[streamField].(string)
		events[i] = StoredEvent{ID: e.ID, Data: data}
	}
	return m.state(), events, nil
}

type streamMeta struct {
	State string `redis:"state"`
	Gen   string `redis:"gen"`
	Seq   string `redis:"seq"`
	Fence int64  `redis:"fence"`
}

func (m streamMeta) state() StreamState {
	if m.State == "" {
		return StreamState{}
	}
	return StreamState{Exists: true, Ended: m.State == "ended", Fence: m.Fence, LastID: m.Gen + "-" + m.Seq}
}

func (s *Scripts) metaKey(ch Channel) string {
	return s.keys.StreamMeta(ch.UserID, ch.ServiceID, ch.TaskID)
}

// streamReply runs one of the stream scripts and parses its {code, id}.
func (s *Scripts) streamReply(ctx context.Context, name string, ch Channel, args ...any) (code, id string, err error) {
	r := s.call(ctx, name, []string{s.metaKey(ch), s.keys.Stream(ch.UserID, ch.ServiceID, ch.TaskID)}, args...)
	return r.text(), r.text(), r.done()
}

// millis returns d in ms, at least 1: PEXPIRE deletes a key at 0.
func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
