// Package lease manages one process's leases on the concurrent calls of models. It acquires slots, waits for them in the
// model's waiting room in Redis, renews all of them in batches, and cancels a holder's context before its slot can be
// granted to another one.
//
// One goroutine, the owner, holds all state and does no I/O. Calls to Redis run in their own goroutines and report back to
// it, so that a hanging call never delays the detection of a lost lease.
//
// # When a slot may be used
//
// A lease is used until a local, monotonic time that is never later than its expiry in Redis. For a reply to a call of this
// process, that time is computed from the moment before the call was sent. For a grant announced by a Pub/Sub message, it
// is the expiry in the message, converted to the local clock by the last reply of Redis: a reply "Redis's clock is N" to a
// call sent at s proves that N was no earlier than s, so expiry E is no earlier than s + (E - N). Therefore a waiter starts
// on the message alone and claims the grant meanwhile. A message that arrives too late starts nothing, and the waiter
// retries with its previous ticket. A margin is subtracted from each such time, in which the holder can stop.
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

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"berth"
	"berth/internal/metrics"
	"berth/lua"
)

var tracer = otel.Tracer("berth/lease")

// ErrLost is the cause of a slot's context if its lease could not be renewed in time. Another process may get the slot
// soon, so the call must stop.
var ErrLost = errors.New("the lease on the model's slot was lost")

// ErrHeldTooLong is the cause of a slot's context if it was held longer than Options.MaxHold.
var ErrHeldTooLong = errors.New("the model's slot was held too long")

// ErrClosed means that Run has ended. It is also the cause of the contexts of slots that were held at that time.
var ErrClosed = errors.New("the process releases its slots")

// Options configures New. Zero values select the defaults stated below. All processes of a cell should have the same TTL
// and GrantTTL.
type Options struct {
	// ProcessID is unique to this run of the process and has no slash; it begins every lease id. Default random.
	ProcessID string
	// TTL is how long a lease lasts without renewal. Default lua.ModelLease.
	TTL time.Duration
	// RenewEvery is the time between renewals. Default 0.3 TTL: a lease outlasts two renewals that fail.
	RenewEvery time.Duration
	// GrantTTL is how long a slot stays reserved for a waiter that does not claim it. Default lua.ModelGrant.
	GrantTTL time.Duration
	// MaxHold bounds how long one slot is held, renewed or not. 0 means no bound.
	MaxHold time.Duration
	// Limits returns the configured limits of a model; see lua.ModelLimits. It is called by many goroutines and must not
	// block. A model without upstreams does not exist.
	Limits func(model string) lua.ModelLimits
	Logger *slog.Logger
}

// Request is a request for one slot.
type Request struct {
	Model string
	// Queue, Group and UserID determine the order, see lua.Path.
	Queue  berth.Queue
	Group  lua.Group
	UserID string
	// Cost is an estimate of the call's thousands of tokens; 1 when 0.
	Cost float64
	lua.Needs
	// Ticket is that of an earlier slot of the same call, see Slot.Ticket; it may be empty.
	Ticket string
	// Waiter is the id of the waiting task that requests the slot, see lua.ModelWaiter; it ends. It may be empty.
	Waiter string
	// LeaseID describes the purpose of the slot. A process prefix and a number make it unique, so that two attempts at the
	// same work never share a lease. It may be empty.
	LeaseID string
	// OnPosition is called with the number of requests ahead when this request begins to wait and whenever it changes,
	// from the goroutine of Acquire. It may be nil.
	OnPosition func(position int)
}

// Slots holds the model slots of one process.
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

// New returns the slots of a process. They are served while Run runs.
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

// Ready is closed when Redis has confirmed the subscription to the grants of this process. Slots can be acquired before.
func (s *Slots) Ready() <-chan struct{} { return s.ready }

// Acquire waits for a slot of the model and returns it. It returns an error if ctx ends (the request then leaves the waiting
// room) or Run has ended (ErrClosed). While Redis is unavailable it retries. The slot's context is a child of ctx.
func (s *Slots) Acquire(ctx context.Context, r Request) (*Slot, error) {
	switch {
	case r.Model == "" || len(s.opts.Limits(r.Model).Upstreams) == 0:
		return nil, fmt.Errorf("acquire a slot: unknown model %q", r.Model)
	case r.Queue == "" || r.UserID == "":
		return nil, fmt.Errorf("acquire a slot of %s: the request needs a queue and a user", r.Model)
	}
	began := time.Now()
	_, span := tracer.Start(ctx, "wait for slot", trace.WithAttributes(attribute.String("gen_ai.request.model", r.Model)))
	defer span.End()
	e := s.record(ctx, r)
	if err := s.send(ctx, func(o *owner) { o.enter(e) }); err != nil {
		e.cancel(err)
		return nil, fmt.Errorf("acquire a slot of %s: %w", r.Model, err)
	}
	for {
		select {
		case slot := <-e.granted:
			metrics.SlotWait.Record(ctx, time.Since(began).Seconds(), metrics.With(metrics.Model.String(r.Model)))
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

func (s *Slots) record(ctx context.Context, r Request) *record {
	n := s.number.Add(1)
	slotCtx, cancel := context.WithCancelCause(ctx)
	return &record{
		number: n,
		lease: lua.Lease{
			Process: s.opts.ProcessID, Path: lua.Path{Queue: r.Queue, Group: r.Group, UserID: r.UserID}, Cost: r.Cost, Needs: r.Needs,
			Rest: fmt.Sprintf("%s#%d", r.LeaseID, n),
		}.ID(),
		model:     r.Model,
		waiter:    r.Waiter,
		ticket:    r.Ticket,
		position:  -1,
		ctx:       slotCtx,
		cancel:    cancel,
		granted:   make(chan *Slot, 1),
		positions: make(chan int, 1),
	}
}

// send passes a function to the owner. It returns an error if ctx or Run has ended.
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

// post passes a function to the owner. After Run has ended it has no effect.
func (s *Slots) post(f func(*owner)) {
	select {
	case s.events <- f:
	case <-s.done:
	}
}
