package api

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// writeTimeout limits the time to send writeChunk bytes of an event. A client that does not read is disconnected then and can
// resume; one that reads slowly gets a large event in several chunks.
const (
	writeTimeout = 5 * time.Second
	writeChunk   = 16 << 10
)

// retryHint is a browser's pause before it reconnects.
const retryHint = "retry: 1000\n\n"

// clientWriter writes to one client, and gives up one that does not read.
type clientWriter struct {
	c       echo.Context
	rc      *http.ResponseController
	written time.Time
}

func newClientWriter(c echo.Context) clientWriter {
	// use the writer below echo's: echo's Flush hides errors
	return clientWriter{c: c, rc: http.NewResponseController(c.Response().Writer)}
}

// eventWriter writes Server-Sent Events to one client.
type eventWriter struct {
	clientWriter

	buf    []byte
	opened bool
}

func newEventWriter(c echo.Context) *eventWriter {
	return &eventWriter{clientWriter: newClientWriter(c)}
}

// open sends the headers, once: aside, because writing them needs more of the stack than writing events.
func (w *eventWriter) open() error {
	if w.opened {
		return nil
	}
	w.opened = true
	_, err := aside(func() (struct{}, error) { return struct{}{}, w.begin() })
	return err
}

func (w *eventWriter) begin() error {
	shrinkWriteBuffer(w.c.Request().Context())
	h := w.c.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream; charset=utf-8")
	h.Set(echo.HeaderCacheControl, "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.c.Response().WriteHeader(http.StatusOK)
	return w.write([]byte(retryHint))
}

// nothing responds to a client that has the last event: browsers stop reconnecting on 204.
func (w *eventWriter) nothing() error {
	w.opened = true
	return w.c.NoContent(http.StatusNoContent)
}

// event writes one event. No data can forge another event: each of its lines becomes a data line, and name and id are cut
// at the first line break.
func (w *eventWriter) event(id string, name berth.EventType, data []byte) error {
	if err := w.open(); err != nil {
		return err
	}
	b := w.buf[:0]
	if id != "" {
		b = append(append(append(b, "id: "...), oneLine(id)...), '\n')
	}
	b = append(append(append(b, "event: "...), oneLine(string(name))...), '\n')
	for {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			break
		}
		b = append(append(append(b, "data: "...), data[:end]...), '\n')
		if data[end] == '\r' && end+1 < len(data) && data[end+1] == '\n' {
			end++
		}
		data = data[end+1:]
	}
	b = append(append(append(b, "data: "...), data...), "\n\n"...)
	err := w.write(b)
	if w.buf = b; cap(b) > maxKeptBuffer {
		w.buf = nil
	}
	return err
}

// maxKeptBuffer is the largest buffer that is kept between events.
const maxKeptBuffer = 8 << 10

func oneLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' || s[i] == '\r' || s[i] == 0 {
			return s[:i]
		}
	}
	return s
}

// heartbeat keeps proxies from closing an idle stream, and detects clients that are gone.
func (w *eventWriter) heartbeat() error {
	if err := w.open(); err != nil {
		return err
	}
	return w.write([]byte(": heartbeat\n\n"))
}

func (w *clientWriter) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeChunk)
		// only writers of tests have no deadlines
		_ = w.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.c.Response().Write(b[:n]); err != nil {
			return fmt.Errorf("write to client: %w", err)
		}
		if err := w.rc.Flush(); err != nil {
			return fmt.Errorf("write to client: %w", err)
		}
		b = b[n:]
	}
	w.written = time.Now()
	return nil
}
