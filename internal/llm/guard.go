package llm

import (
	"context"
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

// Bounds of the answers to raw requests, which may have images, audio and vectors.
const (
	maxRawLine       = 16 << 20
	maxRawEmbeddings = 128 << 20
)

// forwarded returns the limits for a raw request: each of its choices may be as long as an answer.
func (l Limits) forwarded(raw *Raw) Limits {
	l.OutputBytes *= max(raw.Choices, 1)
	l.LineBytes = max(l.LineBytes, maxRawLine)
	if raw.Operation == OperationEmbeddings {
		l.WireBytes = max(l.WireBytes, maxRawEmbeddings)
	}
	return l
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

// guardedBody is a response body with the watchdog and the limit of all bytes applied.
type guardedBody struct {
	io.ReadCloser
	dog    *watchdog
	limits Limits
	rest   time.Duration // restWait
	ended  func() bool   // the answer is complete
	total  int64
}

func (g *guardedBody) Read(p []byte) (int, error) {
	if g.total > g.limits.WireBytes {
		return 0, errTooMuch
	}
	g.dog.wait()
	n, err := g.ReadCloser.Read(p)
	g.dog.got(n)
	if g.total += int64(n); g.total > g.limits.WireBytes {
		return 0, errTooMuch
	}
	return n, err
}

// restWait bounds the wait for the end of a complete answer.
const restWait = 100 * time.Millisecond

// Close first reads a complete answer to its end: only then can the connection be reused, and only then has the provider
// finished the call, so that releasing the slot does not exceed its limit.
func (g *guardedBody) Close() error {
	if g.ended() {
		g.dog.hurry(g.rest)
		_, _ = io.Copy(io.Discard, io.LimitReader(g, errorBodyBytes)) // a longer rest is discarded
	}
	return g.ReadCloser.Close()
}
