package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/stream"
	"berth/lua"
)

// Hub gives readers of tasks' streams; *stream.Hub is one.
type Hub interface {
	Subscribe(ctx context.Context, ch lua.Channel, after string, fromLatest bool) (*stream.Reader, error)
}

const (
	// storedEventID is the id of a terminal event that was made from the row because its stream is gone.
	storedEventID = "end"
	// absentWait is how often an open task's stream is looked for while it is not there: before the workflow
	// opened it, or after Redis lost it.
	absentWait    = 100 * time.Millisecond
	absentWaitMax = 2 * time.Second
)

func (s *server) events(e *echo.Echo) {
	text := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	s.route(e, huma.Operation{
		OperationID: "task-events", Method: http.MethodGet, Path: "/v1/tasks/{id}/events", Tags: []string{"events"},
		Summary: "A task's events as they happen (Server-Sent Events)",
		Description: "Each event has `id`, `event` (queued, start, token, token_batch, stage_progress, reset, gap, debug, " +
			"then exactly one done or error) and `data`, one JSON object (schema Event). A lost connection resumes behind " +
			"Last-Event-ID with nothing lost or repeated; `gap` says that history was trimmed. Comments are heartbeats. " +
			"The stream closes behind the terminal event; asked to resume behind that, it answers 204. A task that is " +
			"over and whose stream has gone gives its stored terminal event.",
		Parameters: []*huma.Param{
			idParam(),
			text("Last-Event-ID", "header", "Resume behind this event"),
			text("lastEventId", "query", "The same, for clients that cannot set a header"),
			{
				Name: "fromLatest", In: "query", Description: "1: only what happens from now on",
				Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"0", "1"}},
			},
		},
		Responses: map[string]*huma.Response{
			"200": {
				Description: "Events until the terminal one",
				Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: s.schemaOf(berth.Event{})}},
			},
			"204": {Description: "The terminal event was seen already"},
		},
	}, rule{scopes: []string{ScopeUser}, ticket: true, stream: true}, s.taskEvents)
}

// taskEvents keeps its frame small, as all do that a reader stands on while it waits: with a write on top its stack
// fits into 8 KiB, as long as deep calls are made aside (P12).
func (s *server) taskEvents(c echo.Context) error {
	ctx, cancel := streamContext(c.Request().Context())
	defer cancel()
	f, err := aside(func() (*follower, error) { return s.newFollower(ctx, c) })
	if err != nil || f == nil {
		return err
	}
	return f.over(ctx, f.run(ctx))
}

// newFollower checks what is asked for. There is none for a client that has seen the end: it is answered.
func (s *server) newFollower(ctx context.Context, c echo.Context) (*follower, error) {
	id := c.Param("id")
	if err := checkID("id", id); err != nil {
		return nil, err
	}
	after, fromLatest, err := resumePoint(c.Request())
	if err != nil {
		return nil, err
	}
	task, err := s.Ledger.GetUserTask(ctx, callOf(ctx).user.UserID, id)
	if err != nil {
		return nil, err
	}
	if after == storedEventID {
		if task.Status.Final() {
			return nil, c.NoContent(http.StatusNoContent)
		}
		after = ""
	}
	return &follower{
		s: s, ch: lua.Channel{UserID: task.UserID, ServiceID: task.ServiceID, TaskID: task.ID},
		final: task.Status.Final(), after: after, fromLatest: fromLatest, out: newEventWriter(c),
	}, nil
}

// resumePoint reads where to go on; the header is the browser's own, so it wins.
func resumePoint(req *http.Request) (after string, fromLatest bool, err error) {
	q := req.URL.Query()
	after = req.Header.Get("Last-Event-ID")
	if after == "" {
		after = q.Get("lastEventId")
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

// follower brings one client to the end of one task.
type follower struct {
	s          *server
	ch         lua.Channel
	final      bool // the task was over when it was last looked at
	after      string
	fromLatest bool
	out        *eventWriter
}

// run returns when the client has the terminal event, or left, or is too slow; or when the stream cannot be read.
func (f *follower) run(ctx context.Context) error {
	for wait := absentWait; ; wait = min(2*wait, absentWaitMax) {
		r, err := aside(func() (*stream.Reader, error) { return f.s.Hub.Subscribe(ctx, f.ch, f.after, f.fromLatest) })
		if err == nil {
			err = f.pump(ctx, r)
			r.Close()
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
			f.s.log.InfoContext(ctx, "event stream cut", "requestId", callOf(ctx).requestID, "task", f.ch.TaskID, "error", err)
		}
		return nil
	case errors.Is(err, stream.ErrClosed):
		return unavailable("the event hub", err) // this process stops
	default:
		return err
	}
}

// pump writes what the reader gives; nil behind the terminal event, stream.ErrAbsent when the stream vanished.
func (f *follower) pump(ctx context.Context, r *stream.Reader) error {
	if !f.final {
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
			if item.Event.Terminal() {
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

// check finds out, after a silent heartbeat, whether anything can still come. A stream that is gone while its task
// is open will be restored by its writer, and then the same reader goes on.
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

// sendStored sends the terminal event of a task that is over, made from its row (T16).
func (f *follower) sendStored(ctx context.Context) (over bool, err error) {
	t, err := f.s.Ledger.GetUserTask(ctx, f.ch.UserID, f.ch.TaskID)
	if err != nil {
		return false, err
	}
	if f.final = t.Status.Final(); !f.final {
		return false, nil
	}
	asset, err := f.s.resultAsset(ctx, t)
	if err != nil {
		return false, err
	}
	ev, err := berth.TerminalEvent(t, asset)
	if err != nil {
		return false, berth.Errorf(berth.CodeInternal, "make the stored event").With(err)
	}
	data, err := json.Marshal(ev)
	if err != nil {
		return false, berth.Errorf(berth.CodeInternal, "encode the stored event").With(err)
	}
	return true, f.out.event(storedEventID, ev.Type, data)
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
