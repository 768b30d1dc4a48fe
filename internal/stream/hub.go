package stream

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"berth"
	"berth/lua"
)

// HubOptions say how readers are served. Zero fields take the defaults named beside them.
type HubOptions struct {
	// ReaderBuffer is how many live events wait for a reader; one that is slower reads the rest from Redis.
	ReaderBuffer int // 32
	// ReplayChunk is how many events a replay reads at a time.
	ReplayChunk int64 // 128
	// SubscribeTimeout bounds how long a new reader waits for its subscription.
	SubscribeTimeout time.Duration // 5 s
	// PingEvery is how often the connection is tried; silent for twice that long, it is made anew.
	PingEvery time.Duration // 5 s
	Logger    *slog.Logger  // slog.Default()
}

func (o HubOptions) withDefaults() HubOptions {
	o.ReaderBuffer = cmp.Or(o.ReaderBuffer, 32)
	o.ReplayChunk = cmp.Or(o.ReplayChunk, 128)
	o.SubscribeTimeout = cmp.Or(o.SubscribeTimeout, 5*time.Second)
	o.PingEvery = cmp.Or(o.PingEvery, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Hub serves the readers of one process over one Pub/Sub connection, whatever their number (T15). What Redis
// publishes only wakes and shortens: the stream is what counts, and a reader that missed anything reads it there.
type Hub struct {
	scripts *lua.Scripts
	opt     HubOptions

	joins  chan *Reader
	leaves chan *Reader
	events chan any // from the connection: connUp, connDown, confirmed, *message, alive
	orders chan order
	obeyed chan struct{}
	done   chan struct{}
}

// NewHub makes a Hub; Run serves it.
func NewHub(scripts *lua.Scripts, opt HubOptions) *Hub {
	return &Hub{
		scripts: scripts, opt: opt.withDefaults(),
		joins: make(chan *Reader), leaves: make(chan *Reader),
		events: make(chan any, 256), orders: make(chan order, 1), obeyed: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
}

// Subscribe starts reading a stream behind the entry with id after, the client's Last-Event-ID. Empty means from
// the oldest entry, or with fromLatest from now on; an ended stream then gives its terminal event. after wins over
// fromLatest, as reconnecting clients repeat their address.
//
// An id the stream does not know (ahead of it, or of another generation) gets a gap event and all there is; one that
// is no id is berth.CodeInvalid. ErrAbsent: there is no stream. berth.CodeUnavailable: Redis did not answer.
// The Reader must be closed.
func (h *Hub) Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*Reader, error) {
	return h.subscribe(ctx, ch, after, fromLatest, false)
}

// Follow is Subscribe for the stream of a session, which goes on behind every terminal event: that one ends a turn. Its
// gaps are a berth.SessionEvent, and come at once, even when there is nothing behind them yet.
func (h *Hub) Follow(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*Reader, error) {
	return h.subscribe(ctx, ch, after, fromLatest, true)
}

func (h *Hub) subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest, endless bool) (*Reader, error) {
	var at position
	if after != "" {
		var ok bool
		if at, ok = parsePosition(after); !ok {
			return nil, berth.Invalid("Last-Event-ID", "is not an id of this stream")
		}
	}
	state, err := h.scripts.StreamState(ctx, ch)
	if err != nil {
		return nil, unavailable(err)
	}
	if !state.Exists {
		return nil, ErrAbsent
	}
	if after == "" && fromLatest {
		at, _ = parsePosition(state.LastID)
		if state.Ended && at.seq > 0 {
			at.seq--
		}
	}
	r := newReader(h, ch, at)
	r.endless = endless
	if err := r.attach(ctx, state.Ended); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func unavailable(err error) error {
	return berth.Errorf(berth.CodeUnavailable, "events cannot be read at the moment").With(err)
}

// Run serves the hub until ctx ends; readers then get ErrClosed. It must be called once.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.done)
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{}, 2)
	go func() { h.listen(ctx); gone <- struct{}{} }()
	go func() { h.obey(ctx); gone <- struct{}{} }()
	newSwitchboard(h).run(ctx)
	cancel()
	<-gone
	<-gone
	return nil
}

// topic is one channel and its readers.
type topic struct {
	name    string
	state   topicState
	readers []*Reader
}

type topicState int

const (
	topicWanted     topicState = iota // to be subscribed
	topicSubscribed                   // asked for, not confirmed
	topicLive                         // confirmed: its events come in
	topicLeaving                      // given up, not confirmed
)

// switchboard is the hub's owner goroutine: it alone knows topics and their readers, and does no I/O.
// A channel's subscription is changed only after the last change was confirmed, so that a confirmation is
// never taken for another's.
type switchboard struct {
	h      *Hub
	topics map[string]*topic
	conn   connUp              // the connection in use; zero while there is none
	sub    map[string]struct{} // channels to subscribe
	unsub  map[string]struct{} // channels to give up
	ping   bool
	silent bool      // the connection gave no sign of life for too long
	busy   bool      // an order is being carried out
	seen   time.Time // when the connection last gave a sign of life
}

func newSwitchboard(h *Hub) *switchboard {
	return &switchboard{
		h: h, topics: map[string]*topic{}, sub: map[string]struct{}{}, unsub: map[string]struct{}{},
	}
}

func (s *switchboard) run(ctx context.Context) {
	tick := time.NewTicker(s.h.opt.PingEvery)
	defer tick.Stop()
	for {
		s.order()
		select {
		case <-ctx.Done():
			return
		case r := <-s.h.joins:
			s.join(r)
		case r := <-s.h.leaves:
			s.leave(r)
		case e := <-s.h.events:
			s.event(e)
		case <-s.h.obeyed:
			s.busy = false
		case now := <-tick.C:
			s.tick(now)
		}
	}
}

func (s *switchboard) join(r *Reader) {
	t := s.topics[r.channel]
	if t == nil {
		t = &topic{name: r.channel}
		s.topics[r.channel] = t
		s.sub[t.name] = struct{}{}
	}
	r.index = len(t.readers)
	t.readers = append(t.readers, r)
	delete(s.unsub, t.name)
	if t.state == topicLive {
		r.catchUp()
	}
}

func (s *switchboard) leave(r *Reader) {
	t := s.topics[r.channel]
	last := len(t.readers) - 1
	t.readers[r.index] = t.readers[last]
	t.readers[r.index].index = r.index
	t.readers[last] = nil
	t.readers = t.readers[:last]
	if last > 0 {
		return
	}
	t.readers = nil
	switch t.state {
	case topicWanted:
		delete(s.sub, t.name)
		delete(s.topics, t.name)
	case topicLive:
		s.unsub[t.name] = struct{}{}
	case topicSubscribed, topicLeaving: // the confirmation decides
	}
}

func (s *switchboard) event(e any) {
	s.seen = time.Now()
	switch e := e.(type) {
	case *message:
		if t := s.topics[e.channel]; t != nil {
			for _, r := range t.readers {
				r.offer(e)
			}
		}
	case confirmed:
		s.confirmed(e)
	case connUp:
		s.conn = e
	case connDown:
		s.down()
	}
}

func (s *switchboard) confirmed(c confirmed) {
	t := s.topics[c.channel]
	if t == nil {
		return
	}
	switch {
	case c.subscribed && t.state == topicSubscribed:
		t.state = topicLive
		if len(t.readers) == 0 {
			s.unsub[t.name] = struct{}{}
		}
		for _, r := range t.readers {
			r.catchUp()
		}
	case !c.subscribed && t.state == topicLeaving && len(t.readers) == 0:
		delete(s.topics, t.name)
	case !c.subscribed && t.state == topicLeaving:
		t.state = topicWanted
		s.sub[t.name] = struct{}{}
	}
}

// down starts over: every channel with readers is wanted on the next connection.
func (s *switchboard) down() {
	s.conn, s.ping, s.silent = connUp{}, false, false
	clear(s.unsub)
	for name, t := range s.topics {
		if len(t.readers) == 0 {
			delete(s.topics, name)
			delete(s.sub, name)
			continue
		}
		t.state = topicWanted
		s.sub[name] = struct{}{}
	}
}

func (s *switchboard) tick(now time.Time) {
	if s.conn.conn == nil {
		return
	}
	if now.Sub(s.seen) > 2*s.h.opt.PingEvery {
		s.h.opt.Logger.Warn("event connection is silent, making a new one", "for", now.Sub(s.seen))
		s.silent = true
		return
	}
	s.ping = true
}

// order hands the connection what is to be done, when there is anything and the last order is done.
func (s *switchboard) order() {
	if s.busy || s.conn.conn == nil || len(s.sub) == 0 && len(s.unsub) == 0 && !s.ping && !s.silent {
		return
	}
	o := order{conn: s.conn, ping: s.ping, drop: s.silent, sub: some(s.sub), unsub: some(s.unsub)}
	for _, name := range o.sub {
		s.topics[name].state = topicSubscribed
		delete(s.sub, name)
	}
	for _, name := range o.unsub {
		s.topics[name].state = topicLeaving
		delete(s.unsub, name)
	}
	s.ping, s.silent, s.busy = false, false, true
	s.h.orders <- o // has room: one order at a time
}

// orderMost bounds the channels of one SUBSCRIBE.
const orderMost = 1000

func some(set map[string]struct{}) []string {
	var names []string
	for name := range set {
		if len(names) == orderMost {
			break
		}
		names = append(names, name)
	}
	return names
}
