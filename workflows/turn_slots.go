package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// confirmAfter is the age of a job at which its slot is confirmed: before an unconfirmed slot expires, and after most
	// jobs have finished.
	confirmAfter = 2 * time.Second
	// restoreFor is how long after a loss of data in Redis a slot is restored on a node that has not registered again yet.
	// It exceeds the grace period and the heartbeat interval of translating nodes.
	restoreFor = 8 * time.Second
	// holdMargin is how much longer than its job may take a slot is held.
	holdMargin = 5 * time.Second
)

// turnSlots is the bookkeeping of the slots that running jobs hold.
type turnSlots struct {
	restores     workflow.ReceiveChannel
	restoreUntil time.Time
	confirming   bool       // a coroutine confirms slots
	releasable   []HeldSlot // to be released
	releasing    bool       // a coroutine releases them
}

// idle reports whether no coroutine confirms or releases slots.
func (s *turnSlots) idle() bool { return !s.confirming && !s.releasing }

// holdSlot records the slot of a dispatched job. It is confirmed later if the job still runs then.
func (t *turn) holdSlot(ctx workflow.Context, j *job) {
	now := workflow.Now(ctx)
	j.held, j.until, j.confirmAt = true, now.Add(acceptTimeout+t.in.JobTimeout), now.Add(confirmAfter)
	t.startConfirming()
}

// startConfirming starts the coroutine that confirms slots when they are due, unless it runs. It ends when none is left.
func (t *turn) startConfirming() {
	t.single(&t.slots.confirming, func(ctx workflow.Context) {
		for {
			due := t.nextConfirm()
			if due.IsZero() {
				return
			}
			if left := due.Sub(workflow.Now(ctx)); left > 0 {
				// No error: this context is never cancelled.
				_ = waitAtMost(ctx, left, "confirm slots", func() bool {
					next := t.nextConfirm()
					return next.IsZero() || next.Before(due)
				})
				continue
			}
			t.confirmSlots(ctx)
		}
	})
}

// nextConfirm returns when the next slot is to be confirmed; zero when there is none.
func (t *turn) nextConfirm() (next time.Time) {
	for _, j := range t.jobs {
		if j.held && !j.confirmAt.IsZero() && (next.IsZero() || j.confirmAt.Before(next)) {
			next = j.confirmAt
		}
	}
	return next
}

// confirmSlots confirms all unconfirmed slots in one activity. Those of a node that is not registered are retried while it
// may register again; after that a lost slot has no effect on its job, which continues.
func (t *turn) confirmSlots(ctx workflow.Context) {
	now := workflow.Now(ctx)
	var jobs []*job
	var in HeldSlots
	for _, j := range t.jobs {
		if j.held && !j.confirmAt.IsZero() {
			j.confirmAt = time.Time{}
			jobs = append(jobs, j)
			in.Slots = append(in.Slots, HeldSlot{Assignment: j.slot, Left: max(j.until.Sub(now), 0) + holdMargin})
		}
	}
	confirmed, err := untilDone[ConfirmedSlots](ctx, ConfirmSlotsActivity, in)
	if err != nil {
		return // unreachable: retried until it succeeds
	}
	now = workflow.Now(ctx)
	for i, slot := range confirmed.Slots {
		j := jobs[i]
		switch {
		case !j.held || j.slot.LeaseID != in.Slots[i].LeaseID:
			if slot.Held {
				t.releaseSlot(in.Slots[i]) // released meanwhile, and possibly restored by the confirmation
			}
		case slot.Held:
			j.slot.Generation = slot.Generation
		case now.Before(t.slots.restoreUntil):
			j.confirmAt = now.Add(time.Second)
		}
	}
}

// handleRestore restores the slots of running jobs in Redis if a signal indicates that it may have lost them.
func (t *turn) handleRestore(ctx workflow.Context) {
	received := false
	for t.slots.restores.ReceiveAsync(nil) {
		received = true
	}
	if !received {
		return
	}
	now := workflow.Now(ctx)
	t.slots.restoreUntil = now.Add(restoreFor)
	for _, j := range t.jobs {
		if j.held {
			j.confirmAt = now
		}
	}
	t.startConfirming()
}

// releaseJob releases the job's slot, and reports its node if that was unresponsive.
func (t *turn) releaseJob(j *job, unresponsive bool) {
	j.held, j.confirmAt = false, time.Time{}
	t.releaseSlot(HeldSlot{Assignment: j.slot, Unresponsive: unresponsive})
}

// releaseSlot releases a slot. It does not block.
func (t *turn) releaseSlot(slot HeldSlot) {
	s := &t.slots
	s.releasable = append(s.releasable, slot)
	t.single(&s.releasing, func(ctx workflow.Context) {
		for len(s.releasable) > 0 {
			in := HeldSlots{Slots: slices.Clone(s.releasable)}
			s.releasable = nil
			if _, err := untilDone[noResult](ctx, ReleaseSlotsActivity, in); err != nil {
				return // unreachable: retried until it succeeds
			}
		}
	})
}
