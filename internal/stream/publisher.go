package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"berth"
	"berth/lua"
)

// Options are the settings of a Publisher. Zero fields take the defaults named.
type Options struct {
	// FlushInterval and FlushSize merge tokens: a batch is sent at that age or size.
	FlushInterval time.Duration // 400 ms
	FlushSize     int           // 8
	// TTL is how long an ended stream can still be read, 2 to 5 minutes.
	TTL time.Duration // 3 min
	// TrimMaxLen is about how many entries an ended stream keeps; 0 keeps all.
	TrimMaxLen int64
	// MaxPending limits the bytes of a Writer that Redis has not confirmed; above it the producer blocks.
	MaxPending int // 1 MiB
	// Production drops debug events.
	Production bool
	Logger     *slog.Logger // slog.Default()
}

func (o Options) withDefaults() Options {
	o.FlushInterval = cmp.Or(o.FlushInterval, 400*time.Millisecond)
	o.FlushSize = cmp.Or(o.FlushSize, 8)
	o.TTL = cmp.Or(o.TTL, 3*time.Minute)
	o.MaxPending = cmp.Or(o.MaxPending, 1<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// keepAfterDeadline is how long the keys of a task outlast its deadline if its end never reaches Redis.
const keepAfterDeadline = time.Hour

// scripts are the methods of lua.Scripts that a Publisher uses.
type scripts interface {
	OpenStream(ctx context.Context, ch lua.Channel, fence int64, safetyTTL time.Duration, known string) (string, error)
	AppendEvents(ctx context.Context, ch lua.Channel, a lua.Append) (lua.AppendResult, error)
	EndStream(ctx context.Context, ch lua.Channel, event string, ttl time.Duration, trim int64) (code, lastID string, err error)
}

// Publisher appends events to tasks' streams. It has no state; all methods may be called concurrently.
type Publisher struct {
	scripts scripts
	opt     Options
}

// NewPublisher returns a Publisher.
func NewPublisher(scripts *lua.Scripts, opt Options) *Publisher { return newPublisher(scripts, opt) }

func newPublisher(s scripts, opt Options) *Publisher {
	return &Publisher{scripts: s, opt: opt.withDefaults()}
}

// Open creates the stream of a task that is open according to the ledger, or raises the fence of an open stream. It returns
// ErrEnded when the stream has its terminal event. The keys expire an hour after deadline, or later.
func (p *Publisher) Open(ctx context.Context, ch lua.Channel, fence int64, deadline time.Time) error {
	return p.reopen(ctx, ch, fence, deadline, "")
}

func (p *Publisher) reopen(ctx context.Context, ch lua.Channel, fence int64, deadline time.Time, known string) error {
	keep := max(time.Until(deadline), 0) + keepAfterDeadline
	code, err := p.scripts.OpenStream(ctx, ch, fence, keep, known)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	if code == lua.StreamEnded {
		return ErrEnded
	}
	return nil
}

// Publish appends events in one round trip. Terminal events are rejected: End appends them. `start` is appended at most once
// per stream, `debug` never in production. Errors: ErrFenced, ErrEnded, ErrAbsent, or those of Redis, after which the events
// may have been appended, and another call may repeat them.
func (p *Publisher) Publish(ctx context.Context, ch lua.Channel, fence int64, events ...berth.Event) error {
	entries := make([]lua.StreamEntry, 0, len(events))
	for _, ev := range events {
		if !p.wanted(ev) {
			continue
		}
		e, err := entryOf(ch, ev)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil
	}
	res, err := p.scripts.AppendEvents(ctx, ch, lua.Append{Producer: lua.NewProducer(), First: 1, Fence: fence, Events: entries})
	if err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	return codeError(res.Code)
}

// End appends the terminal event and closes the stream. already reports that it was closed before, and nothing was
// appended. ErrAbsent means that there is no stream: readers get the result from the ledger.
func (p *Publisher) End(ctx context.Context, ch lua.Channel, ev berth.Event) (already bool, err error) {
	if !ev.Type.Terminal() {
		return false, fmt.Errorf("end stream: %s is not a terminal event", ev.Type)
	}
	data, err := encode(addressed(ch, ev))
	if err != nil {
		return false, err
	}
	code, _, err := p.scripts.EndStream(ctx, ch, data, p.opt.TTL, p.opt.TrimMaxLen)
	if err != nil {
		return false, fmt.Errorf("end stream: %w", err)
	}
	if code == lua.StreamEnded {
		return true, nil
	}
	return false, codeError(code)
}

func (p *Publisher) wanted(ev berth.Event) bool {
	return !ev.Type.DevelopmentOnly() || !p.opt.Production
}

func entryOf(ch lua.Channel, ev berth.Event) (lua.StreamEntry, error) {
	if !ev.Type.Appendable() {
		return lua.StreamEntry{}, fmt.Errorf("publish events: %s cannot be appended", ev.Type)
	}
	data, err := encode(addressed(ch, ev))
	return lua.StreamEntry{Type: ev.Type, Once: ev.Type.Once(), Data: data}, err
}

// addressed sets the ids that every event has.
func addressed(ch lua.Channel, ev berth.Event) berth.Event {
	ev.TaskID = cmp.Or(ev.TaskID, ch.TaskID)
	ev.ServiceID = cmp.Or(ev.ServiceID, ch.ServiceID)
	return ev
}

func codeError(code string) error {
	switch code {
	case lua.StreamOK, lua.StreamExists:
		return nil
	case lua.StreamFenced:
		return ErrFenced
	case lua.StreamEnded:
		return ErrEnded
	case lua.StreamAbsent:
		return ErrAbsent
	default:
		return fmt.Errorf("stream: unknown code %q", code)
	}
}
