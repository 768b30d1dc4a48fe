package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// Slot is one slot of a model, held until Release or until its context ends.
type Slot struct {
	slots    *Slots
	record   *record
	upstream string
	ticket   string
	released atomic.Bool
}

// Context ends when the slot may no longer be used. Its cause is ErrLost, ErrHeldTooLong, ErrClosed, or the cause of
// Acquire's context. It ends shortly before the slot can be granted again, which leaves the holder time to stop. Release
// ends it too.
func (s *Slot) Context() context.Context { return s.record.ctx }

// Upstream returns the upstream of the model whose slot it is.
func (s *Slot) Upstream() string { return s.upstream }

// Lease returns the id of the lease, by which every process can see whether the slot is held.
func (s *Slot) Lease() string { return s.record.lease }

// Ticket returns what a request passes to get the position that this one had: a call that its upstream could not make waits for another
// one.
func (s *Slot) Ticket() string { return s.ticket }

// Release passes the slot to the next waiter and returns when Redis has confirmed it. It waits for one reply; a failed
// release is retried in the background until the lease has expired. Further calls have no effect.
func (s *Slot) Release() {
	if s.released.Swap(true) {
		return
	}
	s.record.cancel(context.Canceled)
	s.slots.post(func(o *owner) { o.forget(s.record) })
	// Not in the background, because the next waiter is waiting for it.
	next, err := s.slots.release(s.record.model, s.record.lease)
	s.slots.post(func(o *owner) { o.released(s.record, next, err) })
}

// record is the owner's record of a request: waiting until it has a slot, then holding until it is removed. Only the owner
// accesses the fields below the line; the others never change.
type record struct {
	number    int64 // of arrival in this process
	lease     string
	model     string
	waiter    string          // id of the waiting task
	ctx       context.Context // the slot's
	cancel    context.CancelCauseFunc
	granted   chan *Slot // buffers the grant
	positions chan int   // buffers the latest position
	// ---
	ticket   string // in the order of service, empty until known
	upstream string // holding: whose slot it is
	position int
	holding  bool
	until    time.Time // holding: when the slot may no longer be used
	hardStop time.Time // holding: MaxHold; zero is none
	ending   bool      // holding: hardStop has passed
}

// show sends the waiting caller its position and replaces one that it has not read yet.
func (e *record) show(position int) {
	if position == e.position {
		return
	}
	e.position = position
	select {
	case <-e.positions:
	default:
	}
	e.positions <- position // does not block: the owner is the only sender and has just emptied the buffer
}

// stops returns when a held slot must stop being used.
func (e *record) stops() time.Time {
	if !e.ending && !e.hardStop.IsZero() && e.hardStop.Before(e.until) {
		return e.hardStop
	}
	return e.until
}
