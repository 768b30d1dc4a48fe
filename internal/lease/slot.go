package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// Slot is one slot of a model, held until Release or until its context ends.
type Slot struct {
	slots    *Slots
	entry    *entry
	waited   time.Duration
	released atomic.Bool
}

// Context ends when the slot may no longer be used; context.Cause tells why: ErrLost, ErrHeldTooLong, ErrClosed, or
// the cause of Acquire's own context. It ends a little before anybody else can be granted the slot, which is the
// time there is to stop (P4). Release ends it too.
func (s *Slot) Context() context.Context { return s.entry.ctx }

// WaitedFor is the time between Acquire's call and the grant.
func (s *Slot) WaitedFor() time.Duration { return s.waited }

// Release gives the slot to the next waiter and returns when Redis has confirmed that. It waits for one answer
// only: what failed is tried again behind its back until the lease has expired anyway. Only the first call does
// anything.
func (s *Slot) Release() {
	if s.released.Swap(true) {
		return
	}
	s.entry.cancel(context.Canceled)
	s.slots.post(func(o *owner) { o.forget(s.entry) })
	// Here and not beside the owner, since the next waiter waits for it.
	next, err := s.slots.giveBack(s.entry.model, s.entry.lease)
	s.slots.post(func(o *owner) { o.released(s.entry, next, err) })
}

// entry is one request as the owner keeps it: waiting until it has a slot, then holding until it is removed.
// The owner alone touches the fields below the line; the others never change.
type entry struct {
	number    int64 // of arrival in this process
	lease     string
	model     string
	since     time.Time
	ctx       context.Context // the slot's
	cancel    context.CancelCauseFunc
	granted   chan *Slot // room for the one grant
	positions chan int   // room for the newest
	// ---
	order    int64 // place in the order of service, 0 until known
	position int
	holding  bool
	until    time.Time // holding: when the slot may no longer be used
	hardStop time.Time // holding: MaxHold; zero is none
	ending   bool      // holding: hardStop has passed
}

// show tells the waiting caller its position, replacing one it has not read yet.
func (e *entry) show(position int) {
	if position == e.position {
		return
	}
	e.position = position
	select {
	case <-e.positions:
	default:
	}
	e.positions <- position // the owner is the only sender and has just made room
}

// stops is when a held slot has to be given up as things stand.
func (e *entry) stops() time.Time {
	if !e.ending && !e.hardStop.IsZero() && e.hardStop.Before(e.until) {
		return e.hardStop
	}
	return e.until
}
