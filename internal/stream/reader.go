package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/pause"
	"berth/lua"
)

// Item is one event of a stream. Data is the event's JSON on one line; it is shared and must not be changed.
type Item struct {
	ID    string
	Event berth.EventType
	Data  []byte
}

func newItem(id string, data []byte) Item { return Item{ID: id, Event: eventType(data), Data: data} }

// Reader reads one stream: the stored events, then live ones. It is for one goroutine, except for Close.
//
// The hub offers live events and never blocks: when the buffer is full or the subscription was just confirmed, it marks the
// reader as behind, and the reader itself replays the stream.
type Reader struct {
	hub     *Hub
	ch      lua.Channel
	channel string
	index   int // among the readers of its topic; used by the hub's loop

	endless bool // terminal events end turns, not the stream

	live   chan *message // a nil message only wakes the reader
	behind atomic.Bool   // set by the hub, cleared before a replay
	closed atomic.Bool

	at      position // the last event that was returned
	replay  bool     // read the stream before live events
	broken  bool     // the next event does not follow on at, whatever its number: return a gap
	lost    bool     // the events up to at are lost, and none follows yet: return a gap immediately
	ended   bool     // no event follows chunk
	joined  bool     // the hub has it
	chunk   []lua.StoredEvent
	backoff pause.Backoff
	timer   *time.Timer // of wait: one for all calls, because thousands of readers wait a second at a time
}

func newReader(h *Hub, ch lua.Channel, at position) *Reader {
	return &Reader{
		hub: h, ch: ch, channel: h.scripts.Keys().Channel(ch.UserID, ch.ServiceID, ch.TaskID),
		live: make(chan *message, h.opt.ReaderBuffer), at: at, backoff: newBackoff(),
	}
}

// attach waits until the hub offers the stream's events, and reads the first chunk. An ended stream gets no more events and
// needs no subscription.
func (r *Reader) attach(ctx context.Context, ended bool) error {
	if !ended {
		if err := r.join(ctx); err != nil {
			return err
		}
	}
	r.replay = true
	if err := r.fill(ctx); err != nil {
		if errors.Is(err, ErrAbsent) || ctx.Err() != nil {
			return err
		}
		return unavailable(err)
	}
	return nil
}

// join adds the reader to the hub and waits for the subscription's confirmation.
func (r *Reader) join(ctx context.Context) error {
	confirmed, cancel := context.WithTimeoutCause(ctx, r.hub.opt.SubscribeTimeout,
		unavailable(errors.New("no confirmation of the subscription in time")))
	defer cancel()
	select {
	case r.hub.joins <- r:
		r.joined = true
	case <-r.hub.done:
		return ErrClosed
	case <-confirmed.Done():
		return context.Cause(confirmed)
	}
	for !r.behind.Load() {
		select {
		case <-r.live:
		case <-r.hub.done:
			return ErrClosed
		case <-confirmed.Done():
			return context.Cause(confirmed)
		}
	}
	return nil
}

// ErrQuiet is the error of Next when there was no event in the given time.
var ErrQuiet = errors.New("no event in time")

// Next returns the next event. It waits until there is one, the given time has passed (ErrQuiet) or ctx ends; after the terminal event
// it returns io.EOF. When it returns an error no event is lost: Next can be called again. While Redis is unavailable, or has lost the
// stream, Next keeps waiting; Check reports the latter. The id of a gap event is the one before the event that follows it, so that a
// client can resume after it without a loss.
func (r *Reader) Next(ctx context.Context, within time.Duration) (Item, error) {
	for until := time.Now().Add(within); ; {
		if r.behind.Load() {
			r.replay = true
		}
		switch {
		case r.lost:
			r.lost = false
			return r.gap(nil), nil
		case len(r.chunk) > 0:
			if item, ok := r.pop(); ok {
				return item, nil
			}
		case r.ended:
			return Item{}, io.EOF
		case r.replay:
			if err := r.replayChunk(ctx, until); err != nil {
				return Item{}, err
			}
		default:
			item, ok, err := r.wait(ctx, until)
			if ok || err != nil {
				return item, err
			}
		}
	}
}

// Check checks in one cheap round trip whether the stream exists; call it between two calls of Next when Next has returned
// nothing for a heartbeat interval. nil: the stream is open. ErrAbsent: the stream does not exist, and the ledger has the
// outcome of the task; if the task is open, its writer will restore the stream and Next returns what follows. io.EOF: the
// stream has ended, and all events were returned. Other errors are from Redis. The next call of Next reads missed events.
func (r *Reader) Check(ctx context.Context) error {
	if r.ended && len(r.chunk) == 0 {
		return io.EOF
	}
	state, err := r.hub.scripts.StreamState(ctx, r.ch)
	if err != nil {
		return err
	}
	if !state.Exists {
		return ErrAbsent
	}
	last, _ := parsePosition(state.LastID)
	switch {
	case len(r.chunk) > 0:
	case r.at == last && state.Ended:
		r.ended = true
		return io.EOF
	case r.at != last && last.seq > 0:
		r.replay = true
	}
	return nil
}

// Close ends the subscription. Next must not be called again.
func (r *Reader) Close() {
	if !r.joined || r.closed.Swap(true) {
		return
	}
	select {
	case r.hub.leaves <- r:
	case <-r.hub.done:
	}
}

// offer gives the reader a live event, or marks it as behind. The hub's loop calls it; it never blocks.
func (r *Reader) offer(m *message) {
	if r.behind.Load() {
		return // its next replay reads the event from the stream
	}
	select {
	case r.live <- m:
	default:
		r.catchUp()
	}
}

// catchUp marks the reader as behind and wakes it. With a full buffer no wake-up is needed: the reader checks the mark after
// every event.
func (r *Reader) catchUp() {
	r.behind.Store(true)
	select {
	case r.live <- nil:
	default:
	}
}

// wait returns the next live event.
func (r *Reader) wait(ctx context.Context, until time.Time) (Item, bool, error) {
	if left := time.Until(until); r.timer == nil {
		r.timer = time.NewTimer(left)
	} else {
		r.timer.Reset(left)
	}
	select {
	case <-r.timer.C:
		return Item{}, false, ErrQuiet
	case m := <-r.live:
		switch {
		case m == nil || !r.at.before(m.at) && m.at.gen == r.at.gen:
			return Item{}, false, nil
		case r.at.next(m.at) && !r.broken:
			r.hub.delayed(m)
			return r.deliver(m.at, m.item), true, nil
		default:
			r.replay = true // an event is missing, or another generation began: read the stream
			return Item{}, false, nil
		}
	case <-r.hub.done:
		return Item{}, false, ErrClosed
	case <-ctx.Done():
		return Item{}, false, ctx.Err()
	}
}

// replayChunk reads the next chunk; when Redis fails it pauses and returns nil, so that Next retries.
func (r *Reader) replayChunk(ctx context.Context, until time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, until, ErrQuiet)
	defer cancel()
	err := r.fill(ctx)
	switch {
	case err == nil:
		r.backoff.Reset()
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrAbsent):
		r.replay = false // a writer may restore it and then publishes
		return nil
	}
	if !r.backoff.Wait(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

// fill reads the next chunk after the reader's position. It leaves r.replay set unless it reached the end.
func (r *Reader) fill(ctx context.Context) error {
	r.behind.Store(false) // before reading, so that later events are offered again
	r.drain()
	after := ""
	if r.at != (position{}) {
		after = r.at.String()
	}
	state, entries, err := r.hub.scripts.ReadStream(ctx, r.ch, after, r.hub.opt.ReplayChunk)
	if err != nil {
		return err
	}
	if !state.Exists {
		return ErrAbsent
	}
	last, ok := parsePosition(state.LastID)
	if !ok {
		return fmt.Errorf("stream state: bad id %q", state.LastID)
	}
	if last.before(r.at) {
		r.at, r.broken = position{}, true // an id later than the end of the stream: return all entries
		return r.fill(ctx)
	}
	r.chunk = entries
	if int64(len(entries)) == r.hub.opt.ReplayChunk {
		return nil
	}
	if len(entries) == 0 && state.Ended && r.at != last {
		return ErrAbsent // expired between the two reads
	}
	if r.endless && len(entries) == 0 && (r.broken || r.at != position{} && r.at != last) {
		r.at, r.broken, r.lost = last, false, true // the next event of a session may be far away
	}
	r.replay, r.ended = false, state.Ended
	return nil
}

// drain drops live events; the stream, which is read afterwards, has them.
func (r *Reader) drain() {
	for {
		select {
		case <-r.live:
		default:
			return
		}
	}
}

// pop returns the chunk's next event, or a gap before it.
func (r *Reader) pop() (Item, bool) {
	e := r.chunk[0]
	at, ok := parsePosition(e.ID)
	if !ok || e.Data == "" || !r.at.before(at) {
		r.advance()
		return Item{}, false
	}
	if r.broken || !r.at.next(at) {
		r.broken = false
		r.at = position{at.gen, at.seq - 1}
		return r.gap([]byte(e.Data)), true
	}
	r.advance()
	return r.deliver(at, newItem(e.ID, []byte(e.Data))), true
}

// advance removes the chunk's first entry.
func (r *Reader) advance() {
	r.chunk[0] = lua.StoredEvent{}
	if r.chunk = r.chunk[1:]; len(r.chunk) == 0 {
		r.chunk = nil
	}
}

func (r *Reader) deliver(at position, item Item) Item {
	r.at = at
	if item.Event.Terminal() && !r.endless {
		r.ended, r.chunk = true, nil
	}
	return item
}

// gap returns the event for missing history before the reader's next event. It has that event's stage or turn, where there
// is one already.
func (r *Reader) gap(next []byte) Item {
	var after struct {
		Stage  berth.Stage `json:"stage"`
		TurnID string      `json:"turnId"`
	}
	_ = json.Unmarshal(next, &after) // they are optional
	var gap any = berth.Event{
		Type: berth.EventGap, TaskID: r.ch.TaskID, ServiceID: r.ch.ServiceID, Stage: after.Stage, TS: time.Now().UnixMilli(),
	}
	switch {
	case r.ch.ServiceID == lua.OperatorService:
		gap = berth.OperatorEvent{Type: berth.EventReset, TS: time.Now().UnixMilli()}
	case r.ch.ServiceID == lua.ConferenceService:
		gap = berth.ConferenceEvent{Type: berth.EventGap, E164: r.ch.TaskID, TS: time.Now().UnixMilli()}
	case r.endless:
		gap = berth.SessionEvent{Type: berth.EventGap, SessionID: r.ch.TaskID, TurnID: after.TurnID, TS: time.Now().UnixMilli()}
	}
	data, _ := json.Marshal(gap)
	return newItem(r.at.String(), data)
}
