package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"berth"
	"berth/internal/eventstream"
	"berth/internal/pause"
)

// StreamEvent is one event of a task's stream, with its id for Last-Event-ID and its JSON as received.
type StreamEvent struct {
	ID    string
	Event berth.Event
	Raw   []byte
}

// maxLine bounds the length of one SSE line in bytes. A stored result is sent as one line.
const maxLine = 4 << 20

// Follow yields a task's events after lastID up to the terminal one. It reconnects automatically and resumes with
// Last-Event-ID. It ends early only with ctx or with an error that a retry cannot fix. There are no events after the terminal one.
func (c *Client) Follow(ctx context.Context, taskID, lastID string) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		c.follow(ctx, c.taskPath(taskID, "/events"), lastID, func(f frame, err error) bool {
			ev, err := f.taskEvent(err)
			return yield(ev, err) && !ev.Event.Type.Terminal()
		})
	}
}

// Events yields a task's events after lastID over one connection. The sequence ends with the connection.
func (c *Client) Events(ctx context.Context, taskID, lastID string) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		c.frames(ctx, c.taskPath(taskID, "/events"), lastID, func(f frame, err error) bool { return yield(f.taskEvent(err)) })
	}
}

// follow yields the events of a stream over any number of connections, until yield returns false.
func (c *Client) follow(ctx context.Context, path, lastID string, yield func(frame, error) bool) {
	for backoff := pause.NewBackoff(100*time.Millisecond, 3*time.Second); ; {
		stopped := false
		var failed error
		over := c.frames(ctx, path, lastID, func(f frame, err error) bool {
			if err != nil {
				failed = err
				return false
			}
			backoff.Reset()
			if f.id != "" {
				lastID = f.id
			}
			stopped = !yield(f, nil)
			return !stopped
		})
		switch {
		case stopped, over:
			return
		case permanent(failed):
			yield(frame{}, failed)
			return
		}
		if !backoff.Wait(ctx) {
			yield(frame{}, ctx.Err())
			return
		}
	}
}

// permanent reports whether a retry would return the same error.
func permanent(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	_, other := errors.AsType[otherServer](err)
	return ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests ||
		other || errors.Is(err, errMalformed) || errors.Is(err, eventstream.ErrLongLine) || errors.Is(err, eventstream.ErrLongEvent)
}

// frames yields the events of one connection. It reports whether there are none after lastID and never will be.
func (c *Client) frames(ctx context.Context, path, lastID string, yield func(frame, error) bool) (over bool) {
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		yield(frame{}, err)
		return false
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := c.send(req)
	if err != nil {
		yield(frame{}, err)
		return false
	}
	defer func() { _ = res.Body.Close() }() // an error cannot be handled
	if err := problem(res); err != nil {
		yield(frame{}, err)
		return false
	}
	if res.StatusCode == http.StatusNoContent {
		return true
	}
	if mediaType(res) != "text/event-stream" {
		yield(frame{}, describeOther(res))
		return false
	}
	decode(res.Body, yield)
	return false
}

// frame is one Server-Sent Event before its data is decoded.
type frame struct {
	id, name string
	data     []byte
}

var errMalformed = errors.New("decode event")

// read decodes the event's JSON into v.
func (f frame) read(v any) error {
	if err := json.Unmarshal(f.data, v); err != nil {
		return fmt.Errorf("%w %s: %w", errMalformed, f.id, err)
	}
	return nil
}

func (f frame) taskEvent(err error) (StreamEvent, error) {
	if err != nil {
		return StreamEvent{}, err
	}
	ev := StreamEvent{ID: f.id, Raw: f.data}
	err = f.read(&ev.Event)
	ev.Event.Type = berth.EventType(f.name)
	return ev, err
}

// decode yields the events of a stream. An incomplete event at the end of the stream is discarded: the next connection begins with it.
func decode(r io.Reader, yield func(frame, error) bool) {
	events := eventstream.NewDecoder(r, eventstream.Options{MaxLine: maxLine, MaxEvent: 2 * maxLine})
	for {
		ev, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			yield(frame{}, fmt.Errorf("read events: %w", err))
			return
		case !yield(frame{id: ev.ID, name: ev.Name, data: ev.Data}, nil):
			return
		}
	}
}
