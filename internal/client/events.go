package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth"
)

// StreamEvent is one event as it came, with the id to resume after.
type StreamEvent struct {
	ID    string
	Event berth.Event
	Raw   []byte
}

// maxLine bounds one SSE line: a stored result travels in one.
const maxLine = 4 << 20

// Follow yields a task's events from after lastID until the terminal one, reconnecting by itself and resuming
// with Last-Event-ID. It ends early only with an error that asking again cannot mend, or with ctx.
func (c *Client) Follow(ctx context.Context, taskID, lastID string) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		c.follow(ctx, taskEvents(taskID), lastID, func(f frame, err error) bool {
			ev, err := f.taskEvent(err)
			return yield(ev, err) && !ev.Event.Type.Terminal()
		})
	}
}

// Events yields the events of one connection; the sequence ends with the connection.
func (c *Client) Events(ctx context.Context, taskID, lastID string) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		c.frames(ctx, taskEvents(taskID), lastID, func(f frame, err error) bool { return yield(f.taskEvent(err)) })
	}
}

func taskEvents(taskID string) string { return "/v1/tasks/" + url.PathEscape(taskID) + "/events" }

// follow yields the events of a stream over any number of connections, until yield has enough.
func (c *Client) follow(ctx context.Context, path, lastID string, yield func(frame, error) bool) {
	const first = 100 * time.Millisecond
	pause := first
	for {
		over := false
		var failed error
		c.frames(ctx, path, lastID, func(f frame, err error) bool {
			if err != nil {
				failed = err
				return false
			}
			pause = first
			if f.id != "" {
				lastID = f.id
			}
			over = !yield(f, nil)
			return !over
		})
		switch {
		case over:
			return
		case permanent(failed):
			yield(frame{}, failed)
			return
		}
		select {
		case <-ctx.Done():
			yield(frame{}, ctx.Err())
			return
		case <-time.After(pause):
			pause = min(2*pause, 3*time.Second)
		}
	}
}

// permanent tells an answer that will stay the same from a lost connection.
func permanent(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests ||
		errors.Is(err, errNoEvent)
}

// frames yields the events of one connection.
func (c *Client) frames(ctx context.Context, path, lastID string, yield func(frame, error) bool) {
	req, err := c.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		yield(frame{}, err)
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := c.http.Do(req)
	if err != nil {
		yield(frame{}, fmt.Errorf("open events: %w", err))
		return
	}
	defer func() { _ = res.Body.Close() }() // nothing to do about it
	if err := problem(res); err != nil {
		yield(frame{}, err)
		return
	}
	decode(res.Body, yield)
}

// frame is one event as the wire has it.
type frame struct {
	id, name string
	data     []byte
}

var errNoEvent = errors.New("decode event")

// read takes the event's JSON into v.
func (f frame) read(v any) error {
	if err := json.Unmarshal(f.data, v); err != nil {
		return fmt.Errorf("%w %s: %w", errNoEvent, f.id, err)
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

// decode reads SSE as the WHATWG describes it: fields up to a blank line are one event, several data lines are
// joined by a newline, lines that begin with a colon are comments. An event cut off by the end is dropped.
func decode(r io.Reader, yield func(frame, error) bool) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var f frame
	var data []string
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			if len(data) > 0 {
				f.data = []byte(strings.Join(data, "\n"))
				if !yield(f, nil) {
					return
				}
			}
			f.name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.id = value
		case "event":
			f.name = value
		case "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		yield(frame{}, fmt.Errorf("read events: %w", err))
	}
}
