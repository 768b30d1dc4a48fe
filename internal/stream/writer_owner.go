package stream

import (
	"cmp"
	"context"
	"strings"
	"time"

	"berth"
)

// Limits of one round trip and of one batch of tokens. Redis runs a script without interruption, so they are small.
const (
	tripEvents = 64
	tripBytes  = 256 << 10
	batchBytes = 16 << 10
	eventCost  = 128 // bytes of an event without text in MaxPending
)

// pending is one event that Redis has not confirmed.
type pending struct {
	event berth.Event
	cost  int
}

// flushed is a Flush or Close that waits until the first n events are confirmed.
type flushed struct {
	n    int64
	done chan error
}

// owner is the goroutine that owns a Writer's buffers. It does no I/O.
type owner struct {
	w   *Writer
	opt Options

	stage berth.Stage
	queue []pending // ready to be sent
	batch batch     // not full yet
	cost  int       // of queue, batch and underway

	work     chan []pending
	results  chan error
	underway []pending

	timer    *time.Timer
	due      time.Time // latest time to send the batch
	sentAt   time.Time // when tokens were last sent
	started  bool      // the first token was sent
	queued   int64     // events queued so far
	acked    int64     // events confirmed so far
	waiting  []flushed
	closing  bool
	hasToken bool // the queue holds tokens
}

// batch is a token_batch that is not full yet.
type batch struct {
	text               strings.Builder
	count              int
	startedAt, endedAt int64
}

func (o *owner) run(ctx context.Context) {
	defer close(o.w.stopped)
	defer close(o.work)
	defer o.w.cancel(nil)
	o.timer = time.NewTimer(time.Hour)
	o.timer.Stop()
	defer o.timer.Stop()
	for {
		o.send()
		if o.closing && o.underway == nil && len(o.queue) == 0 {
			o.notify(nil)
			return
		}
		ops := o.w.ops
		if o.closing || o.cost >= o.opt.MaxPending {
			ops = nil
		}
		select {
		case op := <-ops:
			o.take(op)
		case err := <-o.results:
			if err != nil {
				o.stop(err)
				return
			}
			o.confirm()
		case <-o.timer.C:
			if o.underway == nil {
				o.seal()
			}
		case <-ctx.Done():
			o.stop(context.Cause(ctx))
			return
		}
	}
}

// stop ends the writer early with err, for all current and later callers.
func (o *owner) stop(err error) {
	o.w.err.Store(&err)
	o.notify(err)
}

func (o *owner) notify(err error) {
	for _, f := range o.waiting {
		f.done <- err
	}
	o.waiting = nil
}

func (o *owner) take(op op) {
	switch op.kind {
	case opToken:
		o.token(op.text, op.at)
	case opEvent:
		o.seal()
		for _, ev := range op.events {
			ev.Stage = cmp.Or(ev.Stage, o.stage)
			o.cost += eventCost
			o.enqueue(pending{ev, eventCost})
		}
	case opStage:
		if op.stage != o.stage {
			o.seal()
			o.stage = op.stage
		}
	case opFlush, opClose:
		o.seal()
		o.closing = op.kind == opClose
		o.waiting = append(o.waiting, flushed{o.queued, op.done})
		o.release()
	}
}

// token decides whether the text is sent immediately or joins a batch; see Writer.
func (o *owner) token(text string, at int64) {
	o.cost += len(text)
	now := time.Now()
	idle := o.batch.count == 0 && o.underway == nil && now.Sub(o.sentAt) >= o.opt.FlushInterval
	if !o.started || idle {
		o.started = true
		o.hasToken = true
		o.enqueue(pending{berth.Event{Type: berth.EventToken, Stage: o.stage, TS: at, Text: text}, len(text)})
		return
	}
	if o.batch.count == 0 {
		o.batch.startedAt = at
		o.due = o.sentAt.Add(o.opt.FlushInterval)
		o.timer.Reset(max(o.due.Sub(now), 0))
	}
	o.batch.text.WriteString(text)
	o.batch.count++
	o.batch.endedAt = at
	if o.batch.count >= o.opt.FlushSize || o.batch.text.Len() >= batchBytes {
		o.seal()
	}
}

// seal moves the batch to the queue.
func (o *owner) seal() {
	if o.batch.count == 0 {
		return
	}
	o.timer.Stop()
	text := o.batch.text.String()
	o.hasToken = true
	o.enqueue(pending{berth.Event{
		Type: berth.EventTokenBatch, Stage: o.stage, TS: o.batch.endedAt, Text: text,
		Count: o.batch.count, StartedAt: o.batch.startedAt, EndedAt: o.batch.endedAt,
	}, len(text)})
	o.batch = batch{}
}

func (o *owner) enqueue(p pending) {
	o.queue = append(o.queue, p)
	o.queued++
}

// send passes the queue to the sender when that is idle.
func (o *owner) send() {
	if o.underway != nil || len(o.queue) == 0 {
		return
	}
	n, size := 0, 0
	for n < len(o.queue) && n < tripEvents && (n == 0 || size+o.queue[n].cost <= tripBytes) {
		size += o.queue[n].cost
		n++
	}
	o.underway = o.queue[:n:n]
	o.queue = o.queue[n:]
	if o.hasToken {
		o.sentAt = time.Now()
		o.hasToken = len(o.queue) > 0
	}
	o.work <- o.underway
}

// confirm notes that Redis has the events that were sent.
func (o *owner) confirm() {
	for _, p := range o.underway {
		o.cost -= p.cost
	}
	o.acked += int64(len(o.underway))
	o.underway = nil
	if o.batch.count > 0 && len(o.queue) == 0 && !time.Now().Before(o.due) {
		o.seal()
	}
	o.release()
}

// release notifies the callers of Flush whose events are confirmed. Close is notified when the loop ends.
func (o *owner) release() {
	kept := o.waiting[:0]
	for _, f := range o.waiting {
		if f.n <= o.acked && !o.closing {
			f.done <- nil
		} else {
			kept = append(kept, f)
		}
	}
	o.waiting = kept
}
