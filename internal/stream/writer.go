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

// Writer publishes one attempt's tokens and events in the order they are handed in. Tokens are merged (T11):
//
//   - the first token goes out at once, as `token`;
//   - so does any later token that finds nothing waiting, nothing under way and the last tokens FlushInterval ago
//     or longer: there is nothing it could be merged with inside the window;
//   - every other token joins a `token_batch`, which leaves when it holds FlushSize tokens or when FlushInterval
//     has passed since tokens were last sent, whichever is first;
//   - any other event first sends the tokens before it, in the same round trip.
//
// While a round trip is under way full batches queue up and the last one goes on filling; all that wait then
// leave together. So Redis's slowness never reaches the producer before Options.MaxPending bytes wait; then
// Token blocks until there is room. While Redis cannot be reached the Writer keeps trying until its context ends.
//
// One goroutine owns what waits and does no I/O, another talks to Redis. Close must be called, or ctx must end.
type Writer struct {
	ops     chan op
	stopped chan struct{}
	cancel  context.CancelCauseFunc
	err     atomic.Pointer[error]
	prod    bool

	tokens atomic.Int64
	trips  atomic.Int64
}

// Stats counts what a Writer did.
type Stats struct {
	Tokens     int64 // tokens handed in
	RoundTrips int64 // calls to Redis, repeated ones included
}

type opKind int

const (
	opToken opKind = iota
	opEvent
	opStage
	opFlush
	opClose
)

// op is one call of the producer on its way to the owner.
type op struct {
	kind   opKind
	text   string
	at     int64
	stage  berth.Stage
	events []berth.Event
	done   chan error // opFlush, opClose
}

// Writer starts a writer for the attempt that holds fence. base gives TaskID, ServiceID and Stage of its events.
//
// reopen is asked when the stream is gone (a wiped Redis): it says whether the ledger still has the task open and
// the fence is still ours. On true the stream is opened again and readers get a `reset` and the whole text so far
// as one token_batch; on false the writer stops with ErrEnded.
func (p *Publisher) Writer(
	ctx context.Context, ch lua.Channel, fence int64, base berth.Event, reopen func(context.Context) (bool, error),
) *Writer {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Writer{ops: make(chan op), stopped: make(chan struct{}), cancel: cancel, prod: p.opt.Production}
	s := &sender{pub: p, ch: ch, fence: fence, base: addressed(ch, base), reopen: reopen, trips: &w.trips}
	o := &owner{
		w: w, opt: p.opt, stage: base.Stage,
		work: make(chan []pending, 1), results: make(chan error, 1),
	}
	go s.run(ctx, o.work, o.results)
	go o.run(ctx)
	return w
}

// Token hands in the next piece of text. It waits for Redis only when MaxPending bytes are unconfirmed. Invalid
// UTF-8 is replaced. It returns why the writer stopped, if it did: ErrFenced, ErrEnded, ErrClosed or ctx's cause.
func (w *Writer) Token(text string) error {
	if text == "" {
		return w.Err()
	}
	w.tokens.Add(1)
	return w.do(op{kind: opToken, text: strings.ToValidUTF8(text, "\uFFFD"), at: time.Now().UnixMilli()})
}

// Event hands in events that are neither token nor terminal; those of one call leave together. Empty TaskID, ServiceID
// and Stage are filled in. When one cannot be appended none is.
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

// SetStage changes the stage of what is handed in from now on.
func (w *Writer) SetStage(stage berth.Stage) {
	_ = w.do(op{kind: opStage, stage: stage}) // the next Token or Event tells
}

// Flush returns when everything handed in before is in Redis.
func (w *Writer) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	return w.await(ctx, op{kind: opFlush, done: done})
}

// Close flushes and stops the writer. When ctx ends first, what Redis has not confirmed is given up and ctx's
// error returned. A writer that had stopped by itself returns why. Closing again returns the same.
func (w *Writer) Close(ctx context.Context) error {
	done := make(chan error, 1)
	err := w.await(ctx, op{kind: opClose, done: done})
	w.cancel(err)
	<-w.stopped
	if first := w.Err(); first != nil {
		return first
	}
	if errors.Is(err, ErrClosed) { // cleanly, by an earlier call
		return nil
	}
	return err
}

// Err tells why the writer stopped before Close; nil while it runs and after a clean Close.
func (w *Writer) Err() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Done is closed when the writer has stopped: nothing more can be written, so the producer may stop as well.
func (w *Writer) Done() <-chan struct{} { return w.stopped }

// Stats counts what was done so far.
func (w *Writer) Stats() Stats { return Stats{Tokens: w.tokens.Load(), RoundTrips: w.trips.Load()} }

// do hands an op to the owner, or says why there is none any more.
func (w *Writer) do(o op) error {
	select {
	case w.ops <- o:
		return nil
	case <-w.stopped:
		return w.gone()
	}
}

func (w *Writer) await(ctx context.Context, o op) error {
	select {
	case w.ops <- o:
	case <-w.stopped:
		return w.gone()
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
			return w.gone()
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) gone() error {
	if err := w.Err(); err != nil {
		return err
	}
	return ErrClosed
}
