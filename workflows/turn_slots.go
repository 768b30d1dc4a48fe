package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

const (
	// confirmAfter is how old a job is when its slot is confirmed: before an unconfirmed one ends (L7), and later than
	// most jobs do.
	confirmAfter = 2 * time.Second
	// reassertFor is how long, after Redis lost data, a slot is tried to be put back on a node that has not registered
	// again yet: longer than the grace lasts and than the heartbeats of translating nodes are apart.
	reassertFor = 8 * time.Second
	// holdMargin is how much longer than its job may take a slot is held.
	holdMargin = 5 * time.Second
)

// holdSlot notes the slot that a dispatch took. It is confirmed later, if the job still runs then.
func (t *turn) holdSlot(ctx workflow.Context, j *job) {
	now := workflow.Now(ctx)
	j.holds, j.until, j.confirmAt = true, now.Add(takeWithin+t.in.JobTimeout), now.Add(confirmAfter)
	t.keepSlots()
}

// keepSlots starts the coroutine that confirms slots, unless there is one.
func (t *turn) keepSlots() {
	if t.keeping {
		return
	}
	t.keeping = true
	workflow.Go(t.steady, func(ctx workflow.Context) {
		defer func() { t.keeping = false }()
		for {
			due := t.nextConfirm()
			if due.IsZero() {
				return
			}
			if left := due.Sub(workflow.Now(ctx)); left > 0 {
				// There is no error: this context is never cancelled.
				_ = waitAtMost(ctx, left, "a job that takes long", func() bool {
					next := t.nextConfirm()
					return next.IsZero() || next.Before(due)
				})
				continue
			}
			t.confirmSlots(ctx)
		}
	})
}

// nextConfirm is when the next slot is to be confirmed; zero when none is.
func (t *turn) nextConfirm() (next time.Time) {
	for _, j := range t.jobs {
		if j.holds && !j.confirmAt.IsZero() && (next.IsZero() || j.confirmAt.Before(next)) {
			next = j.confirmAt
		}
	}
	return next
}

// confirmSlots holds all slots that nobody has confirmed yet, in one activity. Those of a node that is gone are tried
// again while it may still come back (L12); a slot that was lost is not missed, for its job runs on.
func (t *turn) confirmSlots(ctx workflow.Context) {
	now := workflow.Now(ctx)
	var open []*job
	var in HeldSlots
	for _, j := range t.jobs {
		if j.holds && !j.confirmAt.IsZero() {
			j.confirmAt = time.Time{}
			open = append(open, j)
			in.Slots = append(in.Slots, HeldSlot{Assignment: j.slot, Left: max(j.until.Sub(now), 0) + holdMargin})
		}
	}
	var kept ConfirmedSlots
	if err := workflow.ExecuteLocalActivity(untilDone(ctx), ConfirmSlotsActivity, in).Get(ctx, &kept); err != nil {
		return // never: it is tried until it succeeds
	}
	now = workflow.Now(ctx)
	for i, slot := range kept.Slots {
		j := open[i]
		switch {
		case !j.holds || j.slot.LeaseID != in.Slots[i].LeaseID:
			if slot.Held {
				t.release(in.Slots[i]) // it ended meanwhile, and what came after its release may have put it back
			}
		case slot.Held:
			j.slot.Generation = slot.Generation
		case now.Before(t.reassertTill):
			j.confirmAt = now.Add(time.Second)
		}
	}
}

// reassert has the slots of running jobs put back into Redis, when a signal says that it may have lost them (L12).
func (t *turn) reassert(ctx workflow.Context) {
	told := false
	for t.reasserts.ReceiveAsync(nil) {
		told = true
	}
	if !told {
		return
	}
	now := workflow.Now(ctx)
	t.reassertTill = now.Add(reassertFor)
	for _, j := range t.jobs {
		if j.holds {
			j.confirmAt = now
		}
	}
	t.keepSlots()
}

// giveBack gives up the job's slot, and tells on the way that its node fell silent.
func (t *turn) giveBack(j *job, silent bool) {
	j.holds, j.confirmAt = false, time.Time{}
	t.release(HeldSlot{Assignment: j.slot, Unresponsive: silent})
}

// release gives a slot back, soon: nobody waits for it.
func (t *turn) release(slot HeldSlot) {
	t.ended = append(t.ended, slot)
	if t.releasing {
		return
	}
	t.releasing = true
	workflow.Go(t.steady, func(ctx workflow.Context) {
		defer func() { t.releasing = false }()
		for len(t.ended) > 0 {
			in := HeldSlots{Slots: slices.Clone(t.ended)}
			t.ended = nil
			if err := workflow.ExecuteLocalActivity(untilDone(ctx), ReleaseSlotsActivity, in).Get(ctx, nil); err != nil {
				return // never: it is tried until it succeeds
			}
		}
	})
}
