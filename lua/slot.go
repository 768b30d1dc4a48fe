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
	const name = "acquire_slot"
	res, err := s.run(ctx, name, s.modelKeys(c.Model), c.Lease, c.Model, c.Cap,
		millis(c.Times.TTL), millis(c.Times.Grant), s.keys.Wake(""), c.Order)
	if err != nil {
		return SlotReply{}, err
	}
	r, ok := slotReply(res)
	if !ok || len(res) != 5 {
		return SlotReply{}, replyError(name, res)
	}
	next, okNext := res[3].(int64)
	now, okNow := wholeNumber(res[4])
	if !okNext || !okNow {
		return SlotReply{}, replyError(name, res)
	}
	r.Next, r.Now = time.Duration(next)*time.Millisecond, now
	return r, nil
}

// ReleaseSlot releases leases of a model, whether they hold or wait, and grants the free slots to the next waiters.
// Idempotent. held is the number of leases that held a slot and had not expired; next as in SlotReply.
func (s *Scripts) ReleaseSlot(
	ctx context.Context, model string, slots int, t SlotTimes, leases ...string,
) (held int, next time.Duration, err error) {
	const name = "release_slot"
	args := []any{model, slots, millis(t.TTL), millis(t.Grant), s.keys.Wake("")}
	for _, l := range leases {
		args = append(args, l)
	}
	res, err := s.run(ctx, name, s.modelKeys(model), args...)
	if err != nil {
		return 0, 0, err
	}
	if len(res) == 3 && res[0] == SlotReleased {
		n, okHeld := res[1].(int64)
		ms, okNext := res[2].(int64)
		if okHeld && okNext {
			return int(n), time.Duration(ms) * time.Millisecond, nil
		}
	}
	return 0, 0, replyError(name, res)
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
	const name = "renew_slots"
	keys := []string{s.keys.Guard()}
	args := []any{millis(t.TTL), millis(t.Grant), s.keys.Wake("")}
	for _, m := range models {
		keys = append(keys, s.modelKeys(m.Model)[1:]...)
		args = append(args, m.Model, m.Cap, len(m.Holders), len(m.Waiters))
		for _, l := range m.Holders {
			args = append(args, l)
		}
		for _, w := range m.Waiters {
			args = append(args, w.Lease, w.Order)
		}
	}
	res, err := s.run(ctx, name, keys, args...)
	if err != nil {
		return 0, nil, err
	}
	now, out, ok := renewal(res, models)
	if !ok {
		return 0, nil, replyError(name, res)
	}
	return now, out, nil
}

// MarkNew declares that this Redis is new and empty, so that no lease can exist and slots are granted without a grace. It
// returns GuardOK, or GuardExists when the Redis has a guard.
func (s *Scripts) MarkNew(ctx context.Context) (string, error) {
	const name = "mark_new"
	res, err := s.run(ctx, name, []string{s.keys.Guard()})
	if err != nil {
		return "", err
	}
	code, ok := res[0].(string)
	if !ok {
		return "", replyError(name, res)
	}
	return code, nil
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

// slotReply parses the leading {code, position, order} of res.
func slotReply(res []any) (SlotReply, bool) {
	if len(res) < 3 {
		return SlotReply{}, false
	}
	code, okCode := res[0].(string)
	position, okPosition := res[1].(int64)
	order, okOrder := wholeNumber(res[2])
	return SlotReply{Code: code, Position: int(position), Order: order}, okCode && okPosition && okOrder
}

func renewal(res []any, models []ModelLeases) (now int64, out []ModelRenewal, ok bool) {
	if len(res) != 3 || res[0] != SlotsRenewed {
		return 0, nil, false
	}
	now, okNow := wholeNumber(res[1])
	replies, okReplies := res[2].([]any)
	if !okNow || !okReplies || len(replies) != len(models) {
		return 0, nil, false
	}
	for i, m := range models {
		r, ok := modelRenewal(replies[i])
		if !ok || len(r.Holders) != len(m.Holders) || len(r.Waiters) != len(m.Waiters) {
			return 0, nil, false
		}
		out = append(out, r)
	}
	return now, out, true
}

func modelRenewal(v any) (r ModelRenewal, ok bool) {
	f, ok := v.([]any)
	if !ok || len(f) != 3 {
		return r, false
	}
	next, okNext := f[0].(int64)
	holders, okHolders := f[1].([]any)
	waiters, okWaiters := f[2].([]any)
	if !okNext || !okHolders || !okWaiters {
		return r, false
	}
	r.Next = time.Duration(next) * time.Millisecond
	for _, h := range holders {
		code, ok := h.(string)
		if !ok {
			return r, false
		}
		r.Holders = append(r.Holders, code)
	}
	for _, w := range waiters {
		f, ok := w.([]any)
		if !ok {
			return r, false
		}
		reply, ok := slotReply(f)
		if !ok {
			return r, false
		}
		r.Waiters = append(r.Waiters, reply)
	}
	return r, true
}

// wholeNumber parses a number that a script formats as a string because it may be too large for an integer reply.
func wholeNumber(v any) (int64, bool) {
	s, ok := v.(string)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
