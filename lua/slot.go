package lua

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Codes of the slot scripts.
const (
	SlotHeld     = "HELD"     // held already, or granted before and claimed now: renewed for the lease time
	SlotGranted  = "GRANTED"  // held from now on, for the lease time
	SlotWaiting  = "WAITING"  // in the queue
	SlotLost     = "LOST"     // renew_slots: the lease had expired
	SlotReleased = "RELEASED" // release_slot
	SlotsRenewed = "RENEWED"  // renew_slots
	GuardOK      = "OK"       // mark_new: slots are granted immediately
	GuardExists  = "EXISTS"   // mark_new: this Redis had a guard, which is kept
)

// SlotTimes are the times of model leases. All processes of a cell have to use the same.
type SlotTimes struct {
	TTL   time.Duration // how long a lease lasts without renewal; a waiter lasts TTL - Grant, at least TTL / 2
	Grant time.Duration // how long a slot stays reserved for a waiter that does not claim it
}

// SlotCall is a request for a slot of a model. Lease ids are `{process}/{rest}`: a grant is published to the process.
type SlotCall struct {
	Model string
	Cap   int // slots of the model; may differ between calls: a lower one revokes nothing
	Lease string
	Order int64 // place in the order of service that the lease had before, 0 for a new one
	Times SlotTimes
}

// SlotReply is the state of one lease.
type SlotReply struct {
	Code     string // SlotHeld, SlotGranted or SlotWaiting
	Position int    // number of leases before it; waiting only
	Order    int64  // to pass when it enters the queue again; waiting only
	// Next is the time until a slot may become free without a notification, such as by the expiry of a dead holder's
	// lease: a waiter renews then. 0 when no lease waits. Not set in the replies of RenewSlots.
	Next time.Duration
	Now  int64 // Redis's clock in ms at the call; not set in the replies of RenewSlots
}

// AcquireSlot takes a slot, claims a granted one, or enters the queue. Idempotent by lease id.
func (s *Scripts) AcquireSlot(ctx context.Context, c SlotCall) (SlotReply, error) {
	res := s.call(ctx, "acquire_slot", s.modelKeys(c.Model), c.Lease, c.Model, c.Cap,
		millis(c.Times.TTL), millis(c.Times.Grant), s.keys.Wake(""), c.Order, s.epoch.Load())
	r := slotReply(res)
	r.Next, r.Now = res.duration(), res.wide()
	return r, res.done()
}

// ReleaseSlot releases leases of a model, whether they hold or wait, and grants the free slots to the next waiters.
// Idempotent. held is the number of leases that held a slot and had not expired; next as in SlotReply.
func (s *Scripts) ReleaseSlot(
	ctx context.Context, model string, slots int, t SlotTimes, leases ...string,
) (held int, next time.Duration, err error) {
	args := with([]any{model, slots, millis(t.TTL), millis(t.Grant), s.keys.Wake(""), s.epoch.Load()}, leases...)
	r := s.call(ctx, "release_slot", s.modelKeys(model), args...)
	r.code(SlotReleased)
	return int(r.number()), r.duration(), r.done()
}

// ModelLeases are the leases of one process on one model.
type ModelLeases struct {
	Model   string
	Cap     int
	Holders []string
	Waiters []Waiter // in the order in which new ones enter the queue
}

// Waiter is a lease that waits, with its order (0: none yet).
type Waiter struct {
	Lease string
	Order int64
}

// ModelRenewal is the result for a ModelLeases, entry by entry.
type ModelRenewal struct {
	Next    time.Duration // see SlotReply
	Holders []string      // SlotHeld or SlotLost
	Waiters []SlotReply
}

// RenewSlots renews all leases of a process, of all models, in one call: it renews holders, claims grants and keeps the
// places of waiters. now is Redis's clock in ms. An expired holder is lost, except in the grace after Redis lost data or
// was replaced: then it is restored. A call without models opens that grace, if it is due.
func (s *Scripts) RenewSlots(ctx context.Context, t SlotTimes, models []ModelLeases) (now int64, out []ModelRenewal, err error) {
	keys := []string{s.keys.Guard()}
	args := []any{millis(t.TTL), millis(t.Grant), s.keys.Wake(""), s.epoch.Load()}
	for _, m := range models {
		keys = append(keys, s.modelKeys(m.Model)[1:]...)
		args = append(args, m.Model, m.Cap, len(m.Holders), len(m.Waiters))
		args = with(args, m.Holders...)
		for _, w := range m.Waiters {
			args = append(args, w.Lease, w.Order)
		}
	}
	r := s.call(ctx, "renew_slots", keys, args...)
	r.code(SlotsRenewed)
	now = r.wide()
	r.list(func() { out = append(out, modelRenewal(r)) })
	ok := len(out) == len(models)
	for i, m := range models {
		ok = ok && len(out[i].Holders) == len(m.Holders) && len(out[i].Waiters) == len(m.Waiters)
	}
	if !ok {
		r.fail()
	}
	return now, out, r.done()
}

// MarkNew declares that this Redis is new and empty, so that no lease can exist and slots are granted without a grace. It
// returns GuardOK, or GuardExists when the Redis has a guard.
func (s *Scripts) MarkNew(ctx context.Context) (string, error) {
	return s.code(ctx, "mark_new", []string{s.keys.Guard()})
}

// Grant is a message on a process's wake channel: a slot was granted to one of its waiters.
type Grant struct {
	Model   string
	Lease   string
	Order   int64 // see SlotCall
	Expires int64 // Redis's clock in ms; a grant that is not claimed by then goes to the next waiter
}

// ParseGrant parses a message of a wake channel.
func ParseGrant(payload string) (Grant, error) {
	f := strings.SplitN(payload, "\n", 4)
	if len(f) != 4 {
		return Grant{}, fmt.Errorf("wake message %q does not have four lines", payload)
	}
	order, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return Grant{}, fmt.Errorf("order of wake message: %w", err)
	}
	expires, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return Grant{}, fmt.Errorf("expiry of wake message: %w", err)
	}
	return Grant{Model: f[2], Lease: f[3], Order: order, Expires: expires}, nil
}

func (s *Scripts) modelKeys(model string) []string {
	k := s.keys
	return []string{k.Guard(), k.ModelHolders(model), k.ModelWaiters(model), k.ModelWaiting(model), k.ModelState(model)}
}

// slotReply reads the code, position and order of a lease.
func slotReply(r *reply) SlotReply {
	return SlotReply{Code: r.text(), Position: int(r.number()), Order: r.wide()}
}

func modelRenewal(r *reply) (m ModelRenewal) {
	r.list(func() {
		m.Next = r.duration()
		m.Holders = r.texts()
		r.list(func() {
			r.list(func() { m.Waiters = append(m.Waiters, slotReply(r)) })
		})
	})
	return m
}
