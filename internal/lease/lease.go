// Package lease holds one process's leases on models' concurrent calls (T4, L7): it takes slots, waits for them
// in the model's waiting room in Redis, renews all of them in one call, and tells a holder to stop before its
// lease can pass to anybody else.
//
// One goroutine, the owner, has all state and does no I/O. Calls to Redis run in goroutines of their own and
// report back to it, so that a call that hangs never delays the loss of a lease.
//
// # When a slot may be used
//
// A lease is used until a local, monotonic time that is never later than its expiry in Redis. For an answer to our
// own call that time is counted from before the call was sent. For a grant, of which a Pub/Sub message tells, it is
// the expiry in the message taken over to our clock by the last answer of Redis: an answer that says "Redis's clock
// is N", to a call sent at s, proves that N came no earlier than s, so expiry E comes no earlier than s + (E - N).
// Hence a waiter starts on the message alone and claims the grant meanwhile; a message that arrives too late starts
// nothing, and the waiter asks again with the place it had. From every such time a margin is taken off, in which
// the holder can stop.
package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"berth/lua"
)

// ErrLost is the cause of a slot's ended context when its lease could not be renewed in time: somebody else may
// hold the slot soon, so the call it was for must stop (L7).
var ErrLost = errors.New("the lease on the model's slot was lost")

// ErrHeldTooLong is the cause when a slot was held longer than Options.MaxHold.
var ErrHeldTooLong = errors.New("the model's slot was held too long")

// ErrClosed says that Run has ended; also the cause for slots that were held then.
var ErrClosed = errors.New("the process gives up its slots")

// Options are the settings of New. Zero values take the defaults named; all processes of a cell should agree on
// TTL and GrantTTL.
type Options struct {
	// ProcessID is unique to this run of the process and has no slash; it begins every lease id. Default random.
	ProcessID string
	// TTL is how long a lease lasts without renewal. Default lua.ModelLease.
	TTL time.Duration
	// RenewEvery is the time between renewals. Default 0.3 TTL: a lease outlasts two renewals that fail.
	RenewEvery time.Duration
	// GrantTTL is how long a slot stays reserved for a waiter that does not claim it. Default lua.ModelGrant.
	GrantTTL time.Duration
	// MaxHold bounds how long one slot is held, renewed or not (L7: 300 s). 0 is no bound.
	MaxHold time.Duration
	// Caps is how many slots a model has now: read at every call, by many goroutines, the owner too: it must not block.
	// 0 grants nothing for the time being; negative means that there is no such model.
	Caps   func(model string) int
	Logger *slog.Logger
}

// Request asks for one slot.
type Request struct {
	Model string
	// LeaseID says what the slot is for; a process prefix and a number make it unique, so that two attempts at the
	// same work never share a lease. It may be empty.
	LeaseID string
	// OnPosition hears how many are served before this request, when it begins to wait and whenever that
	// changes. Called from the goroutine of Acquire; may be nil.
	OnPosition func(position int)
}

// Slots are the model slots of one process.
type Slots struct {
	scripts *lua.Scripts
	opts    Options
	times   lua.SlotTimes
	margin  time.Duration
	number  atomic.Int64
	events  chan func(*owner)
	ready   chan struct{}
	done    chan struct{}
}

// New makes the slots of a process; they are served while Run runs.
func New(scripts *lua.Scripts, opts Options) *Slots {
	if opts.ProcessID == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		opts.ProcessID = hex.EncodeToString(b[:])
	}
	opts.ProcessID = strings.ReplaceAll(opts.ProcessID, "/", "-")
	opts.TTL = cmp.Or(opts.TTL, lua.ModelLease)
	opts.RenewEvery = cmp.Or(opts.RenewEvery, opts.TTL*3/10)
	opts.GrantTTL = cmp.Or(opts.GrantTTL, lua.ModelGrant)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Slots{
		scripts: scripts,
		opts:    opts,
		times:   lua.SlotTimes{TTL: opts.TTL, Grant: opts.GrantTTL},
		margin:  min(opts.TTL/20, opts.GrantTTL/4),
		events:  make(chan func(*owner), 64),
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
	}
}

// Ready is closed when Redis has confirmed that this process hears its grants. Slots can be acquired before.
func (s *Slots) Ready() <-chan struct{} { return s.ready }

// Acquire waits for a slot of the model and returns it, or an error when ctx ends (it then leaves the waiting room)
// or Run has ended (ErrClosed). While Redis is away it keeps trying (L11). The slot's context is a child of ctx.
func (s *Slots) Acquire(ctx context.Context, r Request) (*Slot, error) {
	if r.Model == "" || s.opts.Caps(r.Model) < 0 {
		return nil, fmt.Errorf("acquire a slot: there is no model %q", r.Model)
	}
	e := s.entry(ctx, r)
	if err := s.send(ctx, func(o *owner) { o.enter(e) }); err != nil {
		e.cancel(err)
		return nil, fmt.Errorf("acquire a slot of %s: %w", r.Model, err)
	}
	for {
		select {
		case slot := <-e.granted:
			return slot, nil
		case p := <-e.positions:
			if r.OnPosition != nil {
				r.OnPosition(p)
			}
		case <-e.ctx.Done():
			s.post(func(o *owner) { o.leave(e) })
			return nil, fmt.Errorf("wait for a slot of %s: %w", r.Model, context.Cause(e.ctx))
		case <-s.done:
			e.cancel(ErrClosed)
			return nil, fmt.Errorf("wait for a slot of %s: %w", r.Model, ErrClosed)
		}
	}
}

func (s *Slots) entry(ctx context.Context, r Request) *entry {
	n := s.number.Add(1)
	slotCtx, cancel := context.WithCancelCause(ctx)
	return &entry{
		number:    n,
		lease:     fmt.Sprintf("%s/%s#%d", s.opts.ProcessID, r.LeaseID, n),
		model:     r.Model,
		since:     time.Now(),
		position:  -1,
		ctx:       slotCtx,
		cancel:    cancel,
		granted:   make(chan *Slot, 1),
		positions: make(chan int, 1),
	}
}

// cap is how many slots the model has now.
func (s *Slots) cap(model string) int { return max(0, s.opts.Caps(model)) }

// send gives the owner something to do, or tells that ctx or Run has ended.
func (s *Slots) send(ctx context.Context, f func(*owner)) error {
	select {
	case <-s.done:
		return ErrClosed
	default:
	}
	select {
	case s.events <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return ErrClosed
	}
}

// post gives the owner something to do; after Run has ended there is nothing left to do.
func (s *Slots) post(f func(*owner)) {
	select {
	case s.events <- f:
	case <-s.done:
	}
}
