package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"berth"
	"berth/lua"
)

// Writer publishes one attempt's tokens and events in the order of the calls. Tokens are merged:
//
//   - the first token is sent immediately, as `token`;
//   - so is a later token when nothing is buffered or being sent, and the last tokens were sent FlushInterval ago or
//     longer: there is nothing with which it could be merged;
//   - every other token joins a `token_batch`, which is sent when it has FlushSize tokens or when FlushInterval has
//     passed since tokens were last sent, whichever is first;
//   - any other event first sends the tokens before it, in the same round trip.
//
// During a round trip full batches queue up and the last one continues to fill; then all are sent together. A slow Redis
// does not block the producer until Options.MaxPending bytes are buffered; then Token blocks until there is space. While
// Redis is unavailable the Writer retries until its context ends.
//
// One goroutine owns the buffers and does no I/O, another calls Redis. Close must be called, or ctx must end.
type Writer struct {
	ops     chan op
	stopped chan struct{}
	cancel  context.CancelCauseFunc
	err     atomic.Pointer[error]
	prod    bool

	tokens atomic.Int64
	trips  atomic.Int64
}

// Stats are the counters of a Writer.
type Stats struct {
	Tokens     int64 // calls of Token with text
	RoundTrips int64 // calls to Redis, including retries
}

type opKind int

const (
	opToken opKind = iota
	opEvent
	opStage
	opFlush
	opClose
)

// op is one call of the producer, for the owner.
type op struct {
	kind   opKind
	text   string
	at     int64
	stage  berth.Stage
	events []berth.Event
	done   chan error // opFlush, opClose
}

// Writer starts a writer for the attempt with the fence. base has TaskID, ServiceID and Stage of its events.
//
// reopen is called when Redis has lost the stream: it reports whether the task is open according to the ledger and the
// fence is still the attempt's. If so, the stream is opened again and readers get a `reset` and the whole text so far as one
// token_batch; if not, the writer stops with ErrEnded.
func (p *Publisher) Writer(
	ctx context.Context, ch lua.Channel, fence int64, base berth.Event, reopen func(context.Context) (bool, error),
) *Writer {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Writer{ops: make(chan op), stopped: make(chan struct{}), cancel: cancel, prod: p.opt.Production}
	s := &sender{pub: p, ch: ch, fence: fence, base: addressed(ch, base), reopen: reopen, trips: &w.trips, producer: lua.NewProducer()}
	o := &owner{
		w: w, opt: p.opt, stage: base.Stage,
		work: make(chan []pending, 1), results: make(chan error, 1),
	}
	go s.run(ctx, o.work, o.results)
	go o.run(ctx)
	return w
}

// Token writes the next piece of text. It blocks only while MaxPending bytes are unconfirmed. Invalid UTF-8 is replaced. It
// returns why the writer stopped, if it did: ErrFenced, ErrEnded, ErrClosed or ctx's cause.
func (w *Writer) Token(text string) error {
	if text == "" {
		return w.Err()
	}
	w.tokens.Add(1)
	return w.do(op{kind: opToken, text: strings.ToValidUTF8(text, "\uFFFD"), at: time.Now().UnixMilli()})
}

// Event writes events that are neither tokens nor terminal; those of one call are sent together. Empty TaskID, ServiceID and
// Stage are set. When one of them cannot be appended, none is.
func (w *Writer) Event(events ...berth.Event) error {
	wanted := make([]berth.Event, 0, len(events))
	for _, ev := range events {
		if ev.Type.DevelopmentOnly() && w.prod {
			continue
		}
		if !ev.Type.Appendable() {
			return fmt.Errorf("write event: %s cannot be appended", ev.Type)
		}
		if ev.Result != nil && !json.Valid(ev.Result) {
			return fmt.Errorf("write event: result of %s is not JSON", ev.Type)
		}
		if ev.TS == 0 {
			ev.TS = time.Now().UnixMilli()
		}
		wanted = append(wanted, ev)
	}
	if len(wanted) == 0 {
		return w.Err()
	}
	return w.do(op{kind: opEvent, events: wanted})
}

// SetStage sets the stage of later tokens and events.
func (w *Writer) SetStage(stage berth.Stage) {
	_ = w.do(op{kind: opStage, stage: stage}) // the next Token or Event returns the error
}

// Flush returns when Redis has confirmed everything that was written before.
func (w *Writer) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	return w.await(ctx, op{kind: opFlush, done: done})
}

// Close flushes and stops the writer. When ctx ends first, it drops what Redis has not confirmed and returns ctx's error. For
// a writer that had stopped before it returns the reason. A second call returns the same.
func (w *Writer) Close(ctx context.Context) error {
	done := make(chan error, 1)
	err := w.await(ctx, op{kind: opClose, done: done})
	w.cancel(err)
	<-w.stopped
	if first := w.Err(); first != nil {
		return first
	}
	if errors.Is(err, ErrClosed) { // closed without an error by an earlier call
		return nil
	}
	return err
}

// Err returns why the writer stopped before Close; nil while it runs and after a Close without an error.
func (w *Writer) Err() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Stats returns the current counters.
func (w *Writer) Stats() Stats { return Stats{Tokens: w.tokens.Load(), RoundTrips: w.trips.Load()} }

// do passes an op to the owner, or returns why the writer has stopped.
func (w *Writer) do(o op) error {
	select {
	case w.ops <- o:
		return nil
	case <-w.stopped:
		return w.stopError()
	}
}

func (w *Writer) await(ctx context.Context, o op) error {
	select {
	case w.ops <- o:
	case <-w.stopped:
		return w.stopError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-o.done:
		return err
	case <-w.stopped:
		select {
		case err := <-o.done:
			return err
		default:
			return w.stopError()
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) stopError() error {
	if err := w.Err(); err != nil {
		return err
	}
	return ErrClosed
}
