package stream

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/metrics"
	"berth/internal/redisconn"
	"berth/lua"
)

// HubOptions are the settings of a Hub. Zero fields take the defaults named.
type HubOptions struct {
	// ReaderBuffer is how many live events are buffered for a reader; one that is slower reads the rest from Redis.
	ReaderBuffer int // 32
	// ReplayChunk is how many events a replay reads at a time.
	ReplayChunk int64 // 128
	// SubscribeTimeout bounds how long a new reader waits for its subscription.
	SubscribeTimeout time.Duration // 5 s
	// Tick is redisconn.ListenerOptions.Tick.
	Tick   time.Duration
	Logger *slog.Logger // slog.Default()
}

func (o HubOptions) withDefaults() HubOptions {
	o.ReaderBuffer = cmp.Or(o.ReaderBuffer, 32)
	o.ReplayChunk = cmp.Or(o.ReplayChunk, 128)
	o.SubscribeTimeout = cmp.Or(o.SubscribeTimeout, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Hub serves the readers of one process over one Pub/Sub connection, whatever their number. A published message only
// saves a read: the Redis stream is authoritative, and a reader that missed a message reads it there.
type Hub struct {
	scripts  *lua.Scripts
	opt      HubOptions
	listener *redisconn.Listener

	joins  chan *Reader
	leaves chan *Reader
	done   chan struct{}

	readers atomic.Int64
	lag     atomic.Int64 // the longest since the last collection of metrics
}

// NewHub returns a Hub that serves readers while Run runs.
func NewHub(scripts *lua.Scripts, opt HubOptions) *Hub {
	opt = opt.withDefaults()
	return &Hub{
		scripts: scripts, opt: opt,
		listener: redisconn.NewListener(scripts, redisconn.ListenerOptions{Name: "streams", Tick: opt.Tick, Logger: opt.Logger}),
		joins:    make(chan *Reader), leaves: make(chan *Reader), done: make(chan struct{}),
	}
}

// Subscribe starts reading a stream after the entry with the id after, the client's Last-Event-ID. Empty means from the
// oldest entry, or with fromLatest from now on; an ended stream then returns its terminal event. after takes precedence
// over fromLatest, because reconnecting clients repeat their URL.
//
// An id that is not in the stream (later than its end, or of another generation) gets a gap event and all entries; an
// invalid one is berth.CodeInvalid. ErrAbsent: there is no stream. berth.CodeUnavailable: Redis did not reply. The Reader
// has to be closed.
func (h *Hub) Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*Reader, error) {
	return h.subscribe(ctx, ch, after, fromLatest, false)
}

// Follow is Subscribe for the stream of a session, which continues after terminal events: these end a turn. A gap is a
// berth.SessionEvent, and is returned immediately, even when no event follows yet.
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
	return berth.Errorf(berth.CodeUnavailable, "events cannot be read; retry later").With(err)
}

// Run serves the hub until ctx ends; readers then get ErrClosed. It is called once.
func (h *Hub) Run(ctx context.Context) error {
	defer close(h.done)
	defer metrics.Observe(func(o metric.Observer) {
		o.ObserveInt64(metrics.StreamReaders, h.readers.Load())
		o.ObserveFloat64(metrics.StreamLag, time.Duration(h.lag.Swap(0)).Seconds())
	}, metrics.StreamReaders, metrics.StreamLag)()
	ctx, cancel := context.WithCancel(ctx)
	var listening sync.WaitGroup
	listening.Go(func() { h.listener.Run(ctx) })
	h.serve(ctx)
	cancel()
	listening.Wait()
	return nil
}

// topic is one channel with its readers.
type topic struct {
	live    bool // the subscription is confirmed
	readers []*Reader
}

// topics are the channels with readers, by name. Only the goroutine of Run uses them; it does no I/O.
type topics map[string]*topic

// message is one published event, shared by all readers of its channel.
type message struct {
	at      position
	item    Item
	arrived time.Time
}

// delayed records how long a message waited for a reader.
func (h *Hub) delayed(m *message) {
	d := int64(time.Since(m.arrived))
	for longest := h.lag.Load(); d > longest && !h.lag.CompareAndSwap(longest, d); {
		longest = h.lag.Load()
	}
}

func (h *Hub) serve(ctx context.Context) {
	t := topics{}
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-h.joins:
			h.join(t, r)
		case r := <-h.leaves:
			h.leave(t, r)
		case e := <-h.listener.Events():
			h.handle(ctx, t, e)
		}
	}
}

func (h *Hub) join(all topics, r *Reader) {
	t := all[r.channel]
	if t == nil {
		t = &topic{}
		all[r.channel] = t
		h.listener.Subscribe(r.channel)
	}
	h.readers.Add(1)
	r.index = len(t.readers)
	t.readers = append(t.readers, r)
	if t.live {
		r.catchUp()
	}
}

func (h *Hub) leave(all topics, r *Reader) {
	h.readers.Add(-1)
	t := all[r.channel]
	last := len(t.readers) - 1
	t.readers[r.index] = t.readers[last]
	t.readers[r.index].index = r.index
	t.readers[last] = nil
	t.readers = t.readers[:last]
	if last == 0 {
		delete(all, r.channel)
		h.listener.Unsubscribe(r.channel)
	}
}

// handle passes messages on to readers. Every confirmation of a subscription sends the channel's readers into replay:
// what was published before it was not received.
func (h *Hub) handle(ctx context.Context, all topics, e redisconn.Event) {
	switch e := e.(type) {
	case redisconn.Message:
		t := all[e.Channel]
		if t == nil {
			return
		}
		id, data, ok := strings.Cut(e.Payload, " ")
		at, valid := parsePosition(id)
		if !ok || !valid {
			h.opt.Logger.WarnContext(ctx, "invalid event message", "channel", e.Channel)
			return
		}
		m := &message{at, newItem(id, []byte(data)), time.Now()}
		for _, r := range t.readers {
			r.offer(m)
		}
	case redisconn.Confirmed:
		if t := all[e.Channel]; t != nil {
			t.live = true
			for _, r := range t.readers {
				r.catchUp()
			}
		}
	case redisconn.Down:
		for _, t := range all {
			t.live = false
		}
	}
}
