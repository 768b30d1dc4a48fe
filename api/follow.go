package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/internal/stream"
	"berth/lua"
)

// Hub gives readers of streams of events; *stream.Hub is one.
type Hub interface {
	// Subscribe reads a task's stream, which ends with the task.
	Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
	// Follow reads a session's stream, which does not end.
	Follow(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
}

const (
	// absentWait is how often a stream is looked for while it is not there: before a workflow opened it, or after
	// Redis lost it.
	absentWait    = 100 * time.Millisecond
	absentWaitMax = 2 * time.Second
	// headerResume and queryResume say behind which event a stream is resumed.
	headerResume = "Last-Event-ID"
	queryResume  = "lastEventId"
)

// resumeParams describes how every stream of events is resumed.
func resumeParams() []*huma.Param {
	text := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return []*huma.Param{
		text(headerResume, "header", "Resume behind this event"),
		text(queryResume, "query", "The same, for clients that cannot set a header"),
		{
			Name: "fromLatest", In: "query", Description: "1: only what happens from now on",
			Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"0", "1"}},
		},
	}
}

// resumePoint reads where to go on; the header is the browser's own, so it wins.
func resumePoint(req *http.Request) (after string, fromLatest bool, err error) {
	q := req.URL.Query()
	after = req.Header.Get(headerResume)
	if after == "" {
		after = q.Get(queryResume)
	}
	switch q.Get("fromLatest") {
	case "", "0", "false":
	case "1", "true":
		fromLatest = true
	default:
		return "", false, berth.Invalid("fromLatest", "must be 0 or 1")
	}
	return after, fromLatest, nil
}

// feed is where the events of one client come from.
type feed interface {
	channel() lua.Channel
	// subscribe answers stream.ErrAbsent when there is no stream (yet).
	subscribe(ctx context.Context, after string, fromLatest bool) (*stream.Reader, error)
	// ends tells whether nothing comes behind this event.
	ends(item stream.Item) bool
	// last is the event that ends a feed whose stream has gone; nil while more can come.
	last(ctx context.Context) (*stream.Item, error)
	// settled tells that the feed was over when it was last looked at: perhaps there is nothing to send.
	settled() bool
}

// follower brings one client to the end of one feed.
type follower struct {
	s          *server
	feed       feed
	after      string
	fromLatest bool
	out        *eventWriter
}

// run returns when the client has the terminal event, or left, or is too slow; or when the stream cannot be read.
func (f *follower) run(ctx context.Context) error {
	for wait := absentWait; ; wait = min(2*wait, absentWaitMax) {
		r, err := aside(func() (*stream.Reader, error) { return f.feed.subscribe(ctx, f.after, f.fromLatest) })
		if err == nil {
			err = f.pump(ctx, r)
			r.Close()
		}
		if berth.CodeOf(err) == berth.CodeUnavailable && f.feed.settled() && !f.out.opened {
			if over, serr := f.sendStored(ctx); over {
				return serr // Redis is away, and what it could tell is in the database, too
			}
		}
		if err == nil || !errors.Is(err, stream.ErrAbsent) {
			return err
		}
		f.fromLatest = false // what comes once the stream is there is new
		if over, err := f.sendStored(ctx); over || err != nil {
			return err
		}
		if err := f.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// over ends the request. What was begun cannot be answered any more: the client resumes.
func (f *follower) over(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case f.out.c.Response().Committed:
		if !errors.Is(err, context.Canceled) { // a write that failed ends ctx, too
			f.s.log.InfoContext(ctx, "event stream cut",
				"requestId", callOf(ctx).requestID, "service", f.feed.channel().ServiceID, "id", f.feed.channel().TaskID, "error", err)
		}
		return nil
	case errors.Is(err, stream.ErrClosed):
		return unavailable("the event hub", err) // this process stops
	default:
		return named(err, f.out.c.Request())
	}
}

// named has an error about the resume point name the parameter that the client gave it by.
func named(err error, req *http.Request) error {
	var wrong *berth.Error
	if errors.As(err, &wrong) && wrong.Field == headerResume && req.Header.Get(headerResume) == "" {
		return berth.Invalid(queryResume, "%s", wrong.Message)
	}
	return err
}

// pump writes what the reader gives; nil behind the terminal event, stream.ErrAbsent when the stream vanished.
func (f *follower) pump(ctx context.Context, r *stream.Reader) error {
	if !f.feed.settled() {
		if err := f.out.open(); err != nil {
			return err
		}
	}
	for {
		next, cancel := context.WithTimeout(ctx, f.s.Config.HeartbeatInterval)
		item, err := r.Next(next)
		cancel()
		switch {
		case err == nil:
			if err := f.out.event(item.ID, item.Event, item.Data); err != nil {
				return err
			}
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
		case errors.Is(err, context.DeadlineExceeded):
			if err := f.out.heartbeat(); err != nil {
				return err
			}
			if over, err := f.check(ctx, r); over || err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// check finds out, after a silent heartbeat, whether anything can still come. A stream that is gone while its feed goes
// on will be restored by its writer, and then the same reader goes on.
func (f *follower) check(ctx context.Context, r *stream.Reader) (over bool, err error) {
	switch err := r.Check(ctx); {
	case errors.Is(err, stream.ErrAbsent):
		return f.sendStored(ctx)
	case errors.Is(err, io.EOF):
		return true, f.end(ctx)
	default: // Redis away: the reader tries again by itself
		return false, nil
	}
}

// end is for a stream that had nothing behind the client's id but its end.
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

// sendStored sends the event that ends a feed which is over.
func (f *follower) sendStored(ctx context.Context) (over bool, err error) {
	item, err := f.feed.last(ctx)
	if err != nil || item == nil {
		return false, err
	}
	return true, f.out.event(item.ID, item.Event, item.Data)
}

// pause waits for a stream that is not there yet, the client kept informed.
func (f *follower) pause(ctx context.Context, d time.Duration) error {
	if err := f.out.open(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
	}
	if time.Since(f.out.written) >= f.s.Config.HeartbeatInterval {
		return f.out.heartbeat()
	}
	return nil
}
