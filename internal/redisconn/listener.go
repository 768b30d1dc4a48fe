package redisconn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/health"
	"berth/internal/pause"
)

// The reconnection policy of all listeners.
const (
	defaultTick    = time.Second
	maxMissedTicks = 3
	firstBackoff   = 50 * time.Millisecond // doubles up to maxBackoff; a connection that worked resets it
	maxBackoff     = time.Second
	connectTimeout = 5 * time.Second // until the first subscription is confirmed
	writeTimeout   = 5 * time.Second // of one SUBSCRIBE or UNSUBSCRIBE
)

// Reasons to give up a connection.
var (
	// ErrNoTick: nothing was received for three ticks.
	ErrNoTick = errors.New("redis delivers no messages")
	// ErrMoved: the connection is not to the server that publishes, such as a master that was replaced.
	ErrMoved = errors.New("redis publishes on another server")
)

// Subscriber opens Pub/Sub connections to the Redis of a cell. *lua.Scripts is one.
type Subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	// TickChannel returns a channel of the cell that no other caller uses.
	TickChannel() string
	// Tick publishes a message on a tick channel, on the server on which scripts publish, and returns how many connections to
	// this server subscribe to it.
	Tick(ctx context.Context, channel string) (receivers int64, err error)
}

// Event is what a Listener reports: Up, Down, Confirmed or Message.
type Event any

type (
	// Up reports a connection on which all of ListenerOptions.Channels are confirmed. What was published before it may
	// have been missed. A Listener without such channels does not report it.
	Up struct{}
	// Down reports that the connection was lost, or could not be made. The Listener reconnects and subscribes to the
	// same channels; until that is confirmed, messages are missed.
	Down struct{ Err error }
	// Confirmed reports that the messages of a channel are received from now on. One follows each call of Subscribe, and
	// each Down.
	Confirmed struct{ Channel string }
	// Message is a message that was published on a channel.
	Message struct{ Channel, Payload string }
)

// ListenerOptions are the settings of a Listener. Zero values take the defaults named.
type ListenerOptions struct {
	// Name names the subscription in logs.
	Name string
	// Channels are subscribed for as long as Run runs.
	Channels []string
	// Tick is the interval at which the Listener publishes a message to itself. When it receives nothing for three intervals,
	// or when it is not connected to the server that publishes, the connection is lost. Default 1 s.
	Tick   time.Duration
	Logger *slog.Logger // default slog.Default()
}

// Listener holds one Pub/Sub connection, and reports what happens on it, in order, to the goroutine that reads Events.
// Every failure ends the connection as a whole and is reported as Down. The reconnection of go-redis itself would hide
// that messages may have been missed.
//
// Each connection first subscribes to a tick channel of its own: in a Cluster, go-redis connects to the master of the slot
// of the first channel, and that is where the scripts of a cell publish. The ticks prove that messages are delivered, and
// that the server is still that master.
type Listener struct {
	redis   Subscriber
	opt     ListenerOptions
	events  chan Event
	changed chan struct{} // capacity 1: subs has something to send

	mu   sync.Mutex //nolint:forbidigo // held for map operations only: Subscribe must not wait for the connection
	subs subscriptions
}

// NewListener returns a Listener that connects when Run is called.
func NewListener(r Subscriber, opt ListenerOptions) *Listener {
	opt.Tick = cmp.Or(opt.Tick, defaultTick)
	opt.Logger = cmp.Or(opt.Logger, slog.Default())
	return &Listener{
		redis: r, opt: opt, events: make(chan Event, 1024), changed: make(chan struct{}, 1),
		subs: newSubscriptions(opt.Channels),
	}
}

// Events returns what happens on the connection. It has to be read while Run runs; it is never closed.
func (l *Listener) Events() <-chan Event { return l.events }

// Subscribe subscribes to a channel; Confirmed follows. It does not block, and does nothing where the channel is
// subscribed already.
func (l *Listener) Subscribe(channel string) { l.update(func(s *subscriptions) { s.add(channel) }) }

// Unsubscribe gives up a channel. It does not block. Events that the channel had before may still follow.
func (l *Listener) Unsubscribe(channel string) {
	l.update(func(s *subscriptions) { s.remove(channel) })
}

func (l *Listener) update(f func(*subscriptions)) {
	l.mu.Lock()
	f(&l.subs)
	send := l.subs.due()
	l.mu.Unlock()
	if send {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

// Run keeps the connection until ctx ends. It is called once.
func (l *Listener) Run(ctx context.Context) {
	backoff, lost := pause.NewBackoff(firstBackoff, maxBackoff), false
	for {
		received, err := l.connect(ctx, lost)
		if ctx.Err() != nil {
			return
		}
		if received {
			backoff.Reset()
			lost = false
		}
		if !lost { // log an outage once
			l.opt.Logger.WarnContext(ctx, "redis subscription lost", "dependency", health.Redis, "subscription", l.opt.Name, "error", err)
		}
		lost = true
		if !l.report(ctx, Down{err}) || !backoff.Wait(ctx) {
			return
		}
	}
}

// Handle runs the Listener until ctx ends, and passes its events to handle in the calling goroutine.
func (l *Listener) Handle(ctx context.Context, handle func(Event)) {
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	defer running.Wait()
	for {
		select {
		case e := <-l.events:
			handle(e)
		case <-ctx.Done():
			return
		}
	}
}

// connect makes one connection and serves it until it fails; received reports whether Redis replied on it at all.
func (l *Listener) connect(ctx context.Context, lost bool) (received bool, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	c := &connection{tick: l.redis.TickChannel(), made: time.Now()}
	c.PubSub = l.redis.Subscribe(ctx, c.tick)
	shut := sync.OnceFunc(func() { _ = c.Close() })
	context.AfterFunc(ctx, shut)
	l.update(func(s *subscriptions) { s.reset() })
	var senders sync.WaitGroup
	senders.Go(func() { fail(l.send(ctx, c)) })
	senders.Go(func() { fail(l.publishTicks(ctx, c)) })
	received, err = l.receive(ctx, c, lost)
	fail(err)
	shut()
	senders.Wait()
	return received, context.Cause(ctx)
}

// connection is one Pub/Sub connection.
type connection struct {
	*redis.PubSub
	tick      string
	confirmed atomic.Bool // the tick channel is subscribed
	made      time.Time
	last      atomic.Int64 // time of the last reply, since made
}

func (l *Listener) receive(ctx context.Context, c *connection, lost bool) (received bool, err error) {
	for {
		reply, err := c.Receive(ctx)
		if err != nil {
			return received, err
		}
		c.last.Store(int64(time.Since(c.made)))
		if lost && !received {
			l.opt.Logger.InfoContext(ctx, "redis subscription restored", "dependency", health.Redis, "subscription", l.opt.Name)
		}
		received = true
		e, err := l.event(c, reply)
		if err != nil {
			return received, err
		}
		if e != nil && !l.report(ctx, e) {
			return received, ctx.Err()
		}
	}
}

// event returns what a reply means to the reader of Events, if anything.
func (l *Listener) event(c *connection, reply any) (e Event, err error) {
	switch m := reply.(type) {
	case *redis.Subscription:
		if m.Channel == c.tick {
			if c.confirmed.Swap(true) {
				return nil, errReconnected
			}
			return nil, nil
		}
		l.update(func(s *subscriptions) { e, err = s.confirmed(m.Channel, m.Kind == "subscribe") })
		return e, err
	case *redis.Message:
		if m.Channel == c.tick {
			return nil, nil
		}
		return Message{m.Channel, m.Payload}, nil
	}
	return nil, nil
}

// publishTicks publishes ticks until the connection ends, or has to.
func (l *Listener) publishTicks(ctx context.Context, c *connection) error {
	for pause.For(ctx, l.opt.Tick) {
		if !c.confirmed.Load() {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, maxMissedTicks*l.opt.Tick)
		receivers, err := l.redis.Tick(callCtx, c.tick)
		cancel()
		if err == nil && receivers == 0 {
			return ErrMoved
		}
	}
	return ctx.Err()
}

// send subscribes and unsubscribes until the connection ends, or has to because there are no ticks.
func (l *Listener) send(ctx context.Context, c *connection) error {
	timer := time.NewTimer(l.opt.Tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.changed:
			if err := l.sendChanges(ctx, c); err != nil {
				return err
			}
		case <-timer.C:
			allowed := maxMissedTicks * l.opt.Tick
			if !c.confirmed.Load() {
				allowed = max(allowed, connectTimeout)
			}
			left := allowed - (time.Since(c.made) - time.Duration(c.last.Load()))
			switch {
			case len(l.events) == cap(l.events): // the reader of Events is slow, not Redis
				timer.Reset(l.opt.Tick)
			case left <= 0:
				return ErrNoTick
			default:
				timer.Reset(left)
			}
		}
	}
}

func (l *Listener) sendChanges(ctx context.Context, c *connection) error {
	for {
		l.mu.Lock()
		join, leave := l.subs.take()
		l.mu.Unlock()
		if len(join)+len(leave) == 0 {
			return nil
		}
		if len(leave) > 0 {
			if err := within(ctx, func(ctx context.Context) error { return c.Unsubscribe(ctx, leave...) }); err != nil {
				return err
			}
		}
		if len(join) > 0 {
			if err := within(ctx, func(ctx context.Context) error { return c.PubSub.Subscribe(ctx, join...) }); err != nil {
				return err
			}
		}
	}
}

func within(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return write(ctx)
}

// report hands an event to the reader of Events; false when ctx has ended.
func (l *Listener) report(ctx context.Context, e Event) bool {
	select {
	case l.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
