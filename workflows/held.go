package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// These are the times of every slot that a workflow holds on a node.
const (
	// holdMargin is how much longer than its work a slot is held, because the work has to be accepted and its result reported.
	holdMargin = 10 * time.Second
	// confirmAfter is the age of work at which its slot is confirmed, unless that had to precede the work: before an unconfirmed slot
	// expires, and after most jobs have finished.
	confirmAfter = 2 * time.Second
	// restoreFor is how long the slot is restored after Redis lost data. It exceeds the heartbeat interval of engines, because a node
	// registers again with its next heartbeat. restorePause is the pause between two attempts; a node that has registered again receives
	// no new work for longer than that.
	restoreFor   = 40 * time.Second
	restorePause = time.Second
	// ConferenceMargin is how much longer than until its end the slot of a conference that runs is held.
	ConferenceMargin = time.Minute
)

// heldSlots are the slots of nodes that a workflow holds, each for work that runs. One coroutine confirms and releases them, so that
// one follows the other: in a grace period a confirmation would restore a slot that is just being released.
type heldSlots struct {
	ctx          workflow.Context // it is never cancelled
	held         []*heldSlot
	released     []*heldSlot // to be released
	restoreUntil time.Time
	running      bool // the coroutine
}

// heldSlot is one of them.
type heldSlot struct {
	berth.Assignment
	until        time.Time // when it expires, once it is confirmed
	confirmAt    time.Time // zero: not, or done
	unresponsive bool      // the node did not accept the work, or missed heartbeats; reported when the slot is released
}

// hold holds the slot of work that takes no longer than its timeout. It is confirmed later if it is still held then.
func (h *heldSlots) hold(a berth.Assignment, timeout time.Duration) *heldSlot {
	now := workflow.Now(h.ctx)
	s := &heldSlot{Assignment: a, until: now.Add(timeout + holdMargin), confirmAt: now.Add(confirmAfter)}
	h.held = append(h.held, s)
	h.run()
	return s
}

// holdConfirmed is hold for work that must not begin before its slot is confirmed. It reports whether the slot is held.
func (h *heldSlots) holdConfirmed(ctx workflow.Context, a berth.Assignment, timeout time.Duration) (*heldSlot, bool) {
	now := workflow.Now(ctx)
	s := &heldSlot{Assignment: a, until: now.Add(timeout + holdMargin)}
	h.held = append(h.held, s)
	confirmed, err := h.confirm(ctx, now.Add(confirmAfter), s)
	if err != nil || !confirmed[0].Held {
		h.release(s)
		return nil, false
	}
	return s, true
}

// release releases a slot, once. It does not block.
func (h *heldSlots) release(s *heldSlot) {
	if i := slices.Index(h.held, s); i >= 0 {
		h.held = slices.Delete(h.held, i, i+1)
		h.released = append(h.released, s)
		h.run()
	}
}

// restore restores the slots in a Redis that may have lost them.
func (h *heldSlots) restore() {
	now := workflow.Now(h.ctx)
	h.restoreUntil = now.Add(restoreFor)
	for _, s := range h.held {
		s.confirmAt = now
	}
	h.run()
}

// idle reports whether every slot that was released is free, and none is to be confirmed.
func (h *heldSlots) idle() bool { return !h.running }

// free waits until the slots that were released are free, or have expired.
func (h *heldSlots) free(ctx workflow.Context) error {
	return workflow.Await(ctx, func() bool { return len(h.released) == 0 })
}

// run starts the coroutine unless it runs. It ends when there is nothing to do.
func (h *heldSlots) run() {
	if h.running {
		return
	}
	h.running = true
	workflow.Go(h.ctx, func(ctx workflow.Context) {
		defer func() { h.running = false }()
		for {
			now, due := workflow.Now(ctx), h.nextConfirm()
			switch {
			case len(h.released) > 0:
				h.freeReleased(ctx)
			case due.IsZero():
				return
			case now.Before(due):
				// No error: this context is never cancelled.
				_ = waitAtMost(ctx, due.Sub(now), "confirm slots", func() bool {
					next := h.nextConfirm()
					return len(h.released) > 0 || next.IsZero() || next.Before(due)
				})
			default:
				h.confirmDue(ctx, now)
			}
		}
	})
}

// nextConfirm returns when the next slot is to be confirmed; zero when there is none.
func (h *heldSlots) nextConfirm() (next time.Time) {
	for _, s := range h.held {
		if !s.confirmAt.IsZero() && (next.IsZero() || s.confirmAt.Before(next)) {
			next = s.confirmAt
		}
	}
	return next
}

// confirmDue confirms all slots that are to be confirmed, now or later. Those of a node that is not registered are confirmed again while
// it may register; after that a lost slot has no effect on its work, which continues.
func (h *heldSlots) confirmDue(ctx workflow.Context, now time.Time) {
	var due []*heldSlot
	for _, s := range h.held {
		if !s.confirmAt.IsZero() {
			s.confirmAt, due = time.Time{}, append(due, s)
		}
	}
	confirmed, err := h.confirm(ctx, lastOf(due), due...)
	if err != nil {
		return // they have expired
	}
	for i, c := range confirmed {
		switch {
		case c.Held:
			due[i].Generation = c.Generation
		case workflow.Now(ctx).Before(h.restoreUntil) && due[i].confirmAt.IsZero():
			due[i].confirmAt = now.Add(restorePause)
		}
	}
}

// confirm holds slots until their times. It is tried until a time.
func (h *heldSlots) confirm(ctx workflow.Context, until time.Time, slots ...*heldSlot) ([]ConfirmedSlot, error) {
	out, err := untilTime[ConfirmedSlots](ctx, until, attemptTimeout, ConfirmSlotsActivity, heldSlotsOf(ctx, slots))
	if err != nil {
		workflow.GetLogger(ctx).Warn("slots not confirmed", "slots", len(slots), "error", err)
	}
	return out.Slots, err
}

// freeReleased releases slots. It is tried until they would have expired anyway.
func (h *heldSlots) freeReleased(ctx workflow.Context) {
	slots := slices.Clone(h.released)
	if _, err := untilTime[noResult](ctx, lastOf(slots), attemptTimeout, ReleaseSlotsActivity, heldSlotsOf(ctx, slots)); err != nil {
		workflow.GetLogger(ctx).Warn("slots not released; they expire", "slots", len(slots), "error", err)
	}
	h.released = h.released[len(slots):]
}

func lastOf(slots []*heldSlot) (last time.Time) {
	for _, s := range slots {
		if s.until.After(last) {
			last = s.until
		}
	}
	return last
}

func heldSlotsOf(ctx workflow.Context, slots []*heldSlot) (out HeldSlots) {
	for _, s := range slots {
		out.Slots = append(out.Slots, HeldSlot{
			Assignment: s.Assignment, Left: max(s.until.Sub(workflow.Now(ctx)), time.Second), Unresponsive: s.unresponsive,
		})
	}
	return out
}
