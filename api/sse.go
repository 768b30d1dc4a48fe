package api

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"berth"
)

// writeTimeout is how long one event may take to leave. A client that does not read is cut off then, frees what
// it held, and may resume (P13).
const writeTimeout = 5 * time.Second

// retryHint is what a browser waits before it connects again.
const retryHint = "retry: 1000\n\n"

// eventWriter writes Server-Sent Events to one client.
type eventWriter struct {
	c       echo.Context
	rc      *http.ResponseController
	buf     []byte
	opened  bool
	written time.Time
}

func newEventWriter(c echo.Context) *eventWriter {
	// the writer beneath echo's: echo's own Flush hides that flushing failed
	return &eventWriter{c: c, rc: http.NewResponseController(c.Response().Writer)}
}

// open sends the headers, once.
func (w *eventWriter) open() error {
	if w.opened {
		return nil
	}
	w.opened = true
	shrinkWriteBuffer(w.c.Request().Context())
	h := w.c.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream; charset=utf-8")
	h.Set(echo.HeaderCacheControl, "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.c.Response().WriteHeader(http.StatusOK)
	return w.write([]byte(retryHint))
}

// nothing answers a client that has seen the end: browsers stop asking on 204.
func (w *eventWriter) nothing() error {
	w.opened = true
	return w.c.NoContent(http.StatusNoContent)
}

// event writes one event. Whatever the bytes of data are, they cannot forge another one: each of their lines is
// a data line, and name and id are cut at anything that could end theirs (P17).
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

// maxKeptBuffer is what a writer keeps between events; a whole result is not.
const maxKeptBuffer = 8 << 10

func oneLine(s string) string {
	for i := range len(s) {
		if s[i] == '\n' || s[i] == '\r' || s[i] == 0 {
			return s[:i]
		}
	}
	return s
}

// heartbeat keeps proxies from closing an idle stream, and finds clients that are gone.
func (w *eventWriter) heartbeat() error {
	if err := w.open(); err != nil {
		return err
	}
	return w.write([]byte(": heartbeat\n\n"))
}

func (w *eventWriter) write(b []byte) error {
	// a writer without deadlines is a test's
	_ = w.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := w.c.Response().Write(b); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := w.rc.Flush(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	w.written = time.Now()
	return nil
}
