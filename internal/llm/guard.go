package llm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// Limits bound what a provider may send in one call.
type Limits struct {
	OutputBytes int   // the answer's text and reasoning together
	LineBytes   int   // one line of the event stream
	WireBytes   int64 // everything, including the protocol
}

// DefaultLimits returns limits above the longest answers of current models.
func DefaultLimits() Limits {
	return Limits{OutputBytes: 2 << 20, LineBytes: 1 << 20, WireBytes: 64 << 20}
}

// watchdog cancels a call whose provider sends nothing, with the reason as the cause. It runs only while the call waits for
// the provider, not while the answer's reader is busy. One goroutine uses it.
type watchdog struct {
	timer *time.Timer
	begun atomic.Bool // read by the timer's goroutine
	idle  time.Duration
}

func startWatchdog(cancel context.CancelCauseFunc, t Timeouts) *watchdog {
	w := &watchdog{idle: t.Idle}
	w.timer = time.AfterFunc(t.FirstByte, func() {
		if w.begun.Load() {
			cancel(errIdle)
		} else {
			cancel(errFirstByte)
		}
	})
	return w
}

// wait is called before each read. Until the first byte, the first timeout keeps running.
func (w *watchdog) wait() {
	if w.begun.Load() {
		w.timer.Reset(w.idle)
	}
}

func (w *watchdog) got(n int) {
	if n > 0 {
		w.begun.Store(true)
	}
	if w.begun.Load() {
		w.timer.Stop()
	}
}

// hurry shortens the timeout.
func (w *watchdog) hurry(d time.Duration) {
	w.begun.Store(true)
	w.idle = min(w.idle, d)
}

func (w *watchdog) stop() { w.timer.Stop() }

// guardedBody is a response body with the watchdog and the limits applied.
type guardedBody struct {
	io.ReadCloser
	dog    *watchdog
	limits Limits
	ended  func() bool // the answer is complete
	total  int64
	line   int
	err    error
	// broken indicates that reading has failed, done that the stream has the line with which streams end. tail are the last bytes.
	broken, done bool
	tail         []byte
}

// streamEnd is the line with which a stream ends, and the end of the one before it.
var streamEnd = []byte("\ndata: [DONE]")

func (g *guardedBody) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	g.dog.wait()
	n, err := g.ReadCloser.Read(p)
	g.dog.got(n)
	g.total += int64(n)
	g.broken = g.broken || err != nil && !errors.Is(err, io.EOF)
	g.tail = append(g.tail, p[:n]...)
	g.done = g.done || bytes.Contains(g.tail, streamEnd)
	g.tail = append(g.tail[:0], g.tail[max(0, len(g.tail)-len(streamEnd)):]...)
	for rest := p[:n]; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			g.line += len(rest)
		} else {
			g.line += i
		}
		if g.line > g.limits.LineBytes {
			g.err = errLongLine
			return 0, g.err
		}
		if i < 0 {
			break
		}
		g.line, rest = 0, rest[i+1:]
	}
	if g.total > g.limits.WireBytes {
		g.err = errTooLong
		return 0, g.err
	}
	return n, err
}

// restWait bounds the wait for the end of a complete answer.
const restWait = 100 * time.Millisecond

// Close first reads a complete answer to its end: only then can the connection be reused, and only then has the provider
// finished the call, so that releasing the slot does not exceed its limit.
func (g *guardedBody) Close() error {
	if g.ended() {
		g.dog.hurry(restWait)
		_, _ = io.Copy(io.Discard, io.LimitReader(g, errorBodyBytes)) // a longer rest is discarded
	}
	return g.ReadCloser.Close()
}
