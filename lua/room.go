package lua

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"berth"
)

// OperatorLimits are the limits of a model that operators have set. A nil one is as configured.
type OperatorLimits struct {
	Cap, RPM, TPM *int // 0 requests or tokens per minute: no limit
	Paused        bool
	Reason        string // of the pause
	// Resumed is the number of the last resumption: a new one ends a pause that a provider caused, and forgets
	// its failures.
	Resumed int64
}

// SetModelLimits replaces the limits of an upstream that operators have set, or those of the model for an empty name: a model has its own
// pause, and its cap, RPM and TPM are those of its only upstream. They apply to the next decision of any process, and free slots are
// granted immediately; a lower cap revokes nothing. next as in SlotReply.
func (s *Scripts) SetModelLimits(ctx context.Context, model, upstream string, t SlotTimes, l OperatorLimits) (next time.Duration, err error) {
	args := s.slotArgs(t, model, upstream)
	for _, n := range []*int{l.Cap, l.RPM, l.TPM} {
		if n == nil {
			args = append(args, "")
		} else {
			args = append(args, strconv.Itoa(max(0, *n)))
		}
	}
	r := s.call(ctx, "set_model_limits", []string{s.keys.Guard()}, append(args, flag(l.Paused), l.Reason, l.Resumed, operatorJSON(l.event(model, upstream)))...)
	r.code(GuardOK)
	next = r.duration()
	s.promoted(r)
	return next, r.done()
}

func (l OperatorLimits) event(model, upstream string) berth.OperatorEvent {
	ev := berth.OperatorEvent{Type: berth.EventModel, Model: model, Upstream: upstream, Status: "running"}
	if l.Paused {
		ev.Status, ev.Reason = "paused", l.Reason
	}
	return ev
}

// Room is the state of a model's slots and of the leases that wait for one.
type Room struct {
	InUse   int
	Waiting int
	// Stopped is the time until the pace or a pause permits the next grant, 0 when it does, and for a pause by an operator, which has no end.
	Stopped   time.Duration
	Paused    bool // by an operator
	Reason    string
	Upstreams []UpstreamUse // in the order of the limits
	// Unknown are the upstreams that are not in the limits, such as renamed ones, and for which operators have set some or a pause.
	Unknown  []string
	Revision int64         // the highest revision of limits that Redis knows
	Queues   []QueueUse    // by falling weight
	Users    []UserWaiting // those with the most waiting leases
}

// UpstreamUse is the state of an upstream.
type UpstreamUse struct {
	Name          string
	Cap, RPM, TPM int // current limits; 0 requests or tokens per minute: no limit
	InUse         int
	Stopped       time.Duration // as for the room
	Paused        bool          // by an operator
	Reason        string
	PausedUntil   time.Time // end of a pause that the provider caused, zero for none
	Cause         string    // of that pause
	Probing       bool      // one call at a time is granted after failures, for that cause, until one succeeds
	Learned       bool      // Cap is automatic
	// ProviderCap is the number of slots of the provider, of all models together, 0 for no limit, and ProviderInUse how many are in use.
	ProviderCap, ProviderInUse int
	// Broken: the provider's pause is for a fault that lasts until an operator acts.
	Broken bool
}

// QueueUse is what the leases of a queue use, and the queue's share of the slots.
type QueueUse struct {
	Queue          berth.Queue
	Weight         int
	InUse, Waiting int
	// Wait estimates how long a call waits that is submitted now, of a user without other calls; negative when that is not known.
	Wait time.Duration
}

// UserWaiting is the number of a user's leases that wait in a queue.
type UserWaiting struct {
	Path
	Waiting int
}

// ReadRoom reads a model's room, with the users who have the most waiting leases. limits apply where operators have set none.
func (s *Scripts) ReadRoom(ctx context.Context, model string, limits ModelLimits, users int) (room Room, err error) {
	r := s.call(ctx, "read_room", []string{s.keys.Guard()}, s.keys.prefix(), model, limits.arg(), users)
	r.code(GuardOK)
	room = Room{InUse: int(r.number()), Waiting: int(r.number()), Stopped: r.duration(), Paused: r.number() == 1, Reason: r.text()}
	r.list(func() {
		r.list(func() {
			room.Upstreams = append(room.Upstreams, UpstreamUse{
				Name: r.text(), Cap: int(r.number()), RPM: int(r.number()), TPM: int(r.number()), InUse: int(r.number()),
				Stopped: r.duration(), Paused: r.number() == 1, Reason: r.text(), PausedUntil: msTime(r.text()), Cause: r.text(),
				Probing: r.number() == 1, Learned: r.number() == 1, ProviderCap: int(r.number()), ProviderInUse: int(r.number()),
				Broken: r.number() == 1,
			})
		})
	})
	room.Unknown, room.Revision = r.texts(), r.wide()
	r.list(func() {
		r.list(func() {
			room.Queues = append(room.Queues, QueueUse{
				Queue: berth.Queue(r.text()), Weight: int(r.number()), InUse: int(r.number()), Waiting: int(r.number()),
				Wait: r.duration(),
			})
		})
	})
	slices.SortFunc(room.Queues, func(a, b QueueUse) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Queue, b.Queue))
	})
	r.list(func() {
		r.list(func() {
			path, err := parsePath(r.text())
			if err != nil {
				r.fail()
			}
			room.Users = append(room.Users, UserWaiting{Path: path, Waiting: int(r.number())})
		})
	})
	return room, r.done()
}
