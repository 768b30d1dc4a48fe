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
		pause := 100 * time.Millisecond
		for {
			over := false
			for ev, err := range c.Events(ctx, taskID, lastID) {
				if err != nil {
					if permanent(err) {
						yield(StreamEvent{}, err)
						return
					}
					break
				}
				pause = 100 * time.Millisecond
				if ev.ID != "" {
					lastID = ev.ID
				}
				over = ev.Event.Type.Terminal()
				if !yield(ev, nil) || over {
					return
				}
			}
			select {
			case <-ctx.Done():
				yield(StreamEvent{}, ctx.Err())
				return
			case <-time.After(pause):
				pause = min(2*pause, 3*time.Second)
			}
		}
	}
}

// permanent tells an answer that will stay the same from a lost connection.
func permanent(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
}

// Events yields the events of one connection; the sequence ends with the connection.
func (c *Client) Events(ctx context.Context, taskID, lastID string) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		req, err := c.request(ctx, http.MethodGet, "/v1/tasks/"+url.PathEscape(taskID)+"/events", nil)
		if err != nil {
			yield(StreamEvent{}, err)
			return
		}
		req.Header.Set("Accept", "text/event-stream")
		if lastID != "" {
			req.Header.Set("Last-Event-ID", lastID)
		}
		res, err := c.http.Do(req)
		if err != nil {
			yield(StreamEvent{}, fmt.Errorf("open events: %w", err))
			return
		}
		defer func() { _ = res.Body.Close() }() // nothing to do about it
		if err := problem(res); err != nil {
			yield(StreamEvent{}, err)
			return
		}
		decode(res.Body, yield)
	}
}

// decode reads SSE as the WHATWG describes it: fields up to a blank line are one event, several data lines are
// joined by a newline, lines that begin with a colon are comments. An event cut off by the end is dropped.
func decode(r io.Reader, yield func(StreamEvent, error) bool) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	var id, name string
	var data []string
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			if len(data) > 0 {
				ev := StreamEvent{ID: id, Raw: []byte(strings.Join(data, "\n"))}
				if err := json.Unmarshal(ev.Raw, &ev.Event); err != nil {
					yield(StreamEvent{}, fmt.Errorf("decode event %s: %w", id, err))
					return
				}
				ev.Event.Type = berth.EventType(name)
				if !yield(ev, nil) {
					return
				}
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		yield(StreamEvent{}, fmt.Errorf("read events: %w", err))
	}
}
