package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/pause"
	"berth/internal/stream"
	"berth/lua"
)

// Hub returns readers of event streams; *stream.Hub is one.
type Hub interface {
	// Subscribe reads a task's stream, which ends with the task.
	Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
	// Follow reads a session's stream, which does not end.
	Follow(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
}

const (
	// absentWait is the first pause between two attempts to open a stream that does not exist: before a workflow has opened
	// it, or after Redis lost it.
	absentWait    = 100 * time.Millisecond
	absentWaitMax = 2 * time.Second
	// headerResume and queryResume name the event after which a stream resumes.
	headerResume = "Last-Event-ID"
	queryResume  = "lastEventId"
	// maxOpening is the number of event streams for which the database is read at the same time, more than it has connections. When a
	// process has restarted, thousands of readers return together: each that waits for a connection would have a large stack.
	maxOpening = 64
)

// eventRoute adds an event stream. id describes the parameter in its path, if there is one; events are described by eventUnion, until describes
// the stream, and ended the response 204 of one that ends.
func (s *server) eventRoute(
	route string, r rule, open func(context.Context, echo.Context) (*follower, error), id *huma.Param, events *huma.Schema, until, ended string,
	op huma.Operation,
) {
	r.stream = true
	op.Parameters = slices.Concat(resumeParams(), op.Parameters)
	if id != nil {
		op.Parameters = append([]*huma.Param{id}, op.Parameters...)
	}
	op.Responses = map[string]*huma.Response{"200": response(until, "text/event-stream", events)}
	if ended != "" {
		op.Responses["204"] = &huma.Response{Description: ended}
	}
	s.route(route, r, s.follow(open), op)
}

// pathParam describes a parameter in a path, of which any value is accepted if the pattern is empty.
func pathParam(name, pattern string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Pattern: pattern}}
}

// resumeParams describes the parameters of every event stream.
func resumeParams() []*huma.Param {
	text := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return []*huma.Param{
		text(headerResume, "header", "Resume after this event"),
		text(queryResume, "query", "Same as Last-Event-ID, for clients that cannot set a header"),
		{
			Name: "fromLatest", In: "query", Description: "1: only new events",
			Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"0", "1"}},
		},
	}
}

// resumePoint returns where the client resumes. The header, which browsers set, takes precedence.
func resumePoint(req *http.Request) (after string, fromLatest bool, err error) {
	q := req.URL.Query()
	after = cmp.Or(req.Header.Get(headerResume), q.Get(queryResume))
	switch q.Get("fromLatest") {
	case "", "0", "false":
	case "1", "true":
		fromLatest = true
	default:
		return "", false, berth.Invalid("fromLatest", "must be 0 or 1")
	}
	return after, fromLatest, nil
}

// feed is the source of one client's events.
type feed interface {
	channel() lua.Channel
	// subscribe returns stream.ErrAbsent when the stream does not exist (yet).
	subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error)
	// ends reports whether this is the last event.
	ends(item stream.Item) bool
	// last returns the last event of an ended feed, for one whose stream is gone; nil while the feed has not ended.
	last(ctx context.Context) (*stream.Item, error)
	// settled reports whether the feed had ended when it was last read: there may be nothing to send.
	settled() bool
	// visible returns what the client gets of an event; ok is false for none.
	visible(item stream.Item) (shown stream.Item, ok bool)
	// sent is called after an event was sent to the client.
	sent(item stream.Item)
	// notice returns an event that belongs to no place in the stream and is sent without an id, and after which time to call it again; nil for none.
	notice() (*berth.Event, time.Duration)
	close()
}

// source is what feeds have in common.
type source struct {
	s     *server
	ch    lua.Channel
	final bool // the subject of the events had ended when it was last read
}

func (f *source) channel() lua.Channel { return f.ch }

func (f *source) settled() bool { return f.final }

func (f *source) visible(item stream.Item) (stream.Item, bool) { return item, true }

func (f *source) sent(stream.Item) {}

func (f *source) notice() (*berth.Event, time.Duration) { return nil, f.s.Config.HeartbeatInterval }

func (f *source) close() {}

// follow reads a stream that does not end. It opens one that does not exist, unless its subject has ended.
func (f *source) follow(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error) {
	r, err := f.s.Hub.Follow(ctx, f.ch, after, fromLatest)
	if f.final || !errors.Is(err, stream.ErrAbsent) {
		return r, err
	}
	if _, err := f.s.Scripts.OpenStream(ctx, f.ch, 0, sessionStreamTTL, ""); err != nil {
		return nil, unavailable("Redis", err)
	}
	return f.s.Hub.Follow(ctx, f.ch, after, fromLatest)
}

// follower sends one feed to one client.
type follower struct {
	s          *server
	feed       feed
	after      string
	fromLatest bool
	out        *eventWriter
}

// follow returns the handler of an event stream. It keeps its frame small, as do all functions in which a reader waits, those of the
// middleware included: with a write on top the stack fits into 8 KiB, provided that deep calls are made aside.
func (s *server) follow(open func(context.Context, echo.Context) (*follower, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := streamContext(c.Request().Context())
		defer cancel()
		if err := s.opening.Acquire(ctx, 1); err != nil {
			return err
		}
		f, err := aside(func() (*follower, error) { return open(ctx, c) })
		s.opening.Release(1)
		if err != nil || f == nil {
			return err
		}
		defer f.feed.close()
		return f.finish(ctx, f.run(ctx))
	}
}

// run returns when the client has the last event, has disconnected or is too slow, or when the stream cannot be read.
func (f *follower) run(ctx context.Context) error {
	for backoff := pause.NewBackoff(absentWait, absentWaitMax); ; {
		r, err := aside(func() (*stream.Reader, error) { return f.feed.subscribe(ctx, f.after, f.fromLatest) })
		if err == nil {
			err = f.pump(ctx, r)
			r.Close()
		}
		if berth.CodeOf(err) == berth.CodeUnavailable && f.feed.settled() && !f.out.opened {
			if ended, serr := f.sendStored(ctx); ended {
				return serr // Redis is unavailable, and the database has the last event, too
			}
		}
		if err == nil || !errors.Is(err, stream.ErrAbsent) {
			return err
		}
		f.fromLatest = false // all events of a stream that is opened later are new
		if ended, err := f.sendStored(ctx); ended || err != nil {
			return err
		}
		if err := f.pause(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// finish ends the request. A response that has begun cannot become an error: the client resumes.
func (f *follower) finish(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case f.out.c.Response().Committed:
		if !errors.Is(err, context.Canceled) { // also the effect of a failed write
			f.s.log.InfoContext(ctx, "event stream interrupted",
				"requestId", callOf(ctx).requestID, "service", f.feed.channel().ServiceID, "id", f.feed.channel().TaskID, "error", err)
		}
		return nil
	case errors.Is(err, stream.ErrClosed):
		return unavailable("the event hub", err) // this process is stopping
	default:
		return named(err, f.out.c.Request())
	}
}

// named makes an error about the resume point name the parameter that the client used.
func named(err error, req *http.Request) error {
	if wrong, ok := errors.AsType[*berth.Error](err); ok && wrong.Field == headerResume && req.Header.Get(headerResume) == "" {
		return berth.Invalid(queryResume, "%s", wrong.Message)
	}
	return err
}

// pump sends the reader's events; nil after the last one, stream.ErrAbsent when the stream is gone.
func (f *follower) pump(ctx context.Context, r *stream.Reader) error {
	if !f.feed.settled() {
		if err := f.out.open(); err != nil {
			return err
		}
	}
	for quiet := time.Now(); ; {
		event, wait := f.feed.notice()
		if event != nil {
			if err := f.sendNotice(event); err != nil {
				return err
			}
		}
		item, err := r.Next(ctx, min(wait, f.s.Config.HeartbeatInterval))
		switch {
		case err == nil:
			if shown, ok := f.feed.visible(item); ok {
				quiet = time.Now()
				if err := f.out.event(shown.ID, shown.Event, shown.Data); err != nil {
					return err
				}
			}
			f.feed.sent(item)
			if item.ID != "" {
				f.after = item.ID
			}
			if f.feed.ends(item) {
				return nil
			}
		case errors.Is(err, io.EOF):
			return f.end(ctx)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, stream.ErrQuiet) && time.Since(quiet) < f.s.Config.HeartbeatInterval:
		case errors.Is(err, stream.ErrQuiet):
			quiet = time.Now()
			if err := f.out.heartbeat(); err != nil {
				return err
			}
			if ended, err := f.check(ctx, r); ended || err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (f *follower) sendNotice(event *berth.Event) error {
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return f.out.event("", event.Type, data)
}

// check reports, after a heartbeat without events, whether the feed has ended. When the stream is gone while its feed
// continues, the writer restores it and the same reader continues.
func (f *follower) check(ctx context.Context, r *stream.Reader) (ended bool, err error) {
	return aside(func() (bool, error) {
		switch err := r.Check(ctx); {
		case errors.Is(err, stream.ErrAbsent):
			return f.sendStored(ctx)
		case errors.Is(err, io.EOF):
			return true, f.end(ctx)
		default: // Redis is unavailable: the reader retries
			return false, nil
		}
	})
}

// end handles a stream that had only its end after the client's id.
func (f *follower) end(ctx context.Context) error {
	switch {
	case f.out.opened:
		return nil
	case f.after == "":
		_, err := f.sendStored(ctx)
		return err
	default:
		return f.out.nothing()
	}
}

// sendStored sends the last event of a feed that has ended.
func (f *follower) sendStored(ctx context.Context) (ended bool, err error) {
	item, err := f.feed.last(ctx)
	if err != nil || item == nil {
		return false, err
	}
	return true, f.out.event(item.ID, item.Event, item.Data)
}

// pause waits for a stream that does not exist yet, and sends heartbeats.
func (f *follower) pause(ctx context.Context, d time.Duration) error {
	if err := f.out.open(); err != nil {
		return err
	}
	if !pause.For(ctx, d) {
		return ctx.Err()
	}
	if time.Since(f.out.written) >= f.s.Config.HeartbeatInterval {
		return f.out.heartbeat()
	}
	return nil
}
