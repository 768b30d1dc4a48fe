package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// lookEvery is how often, while a unit does not acknowledge, it is looked whether it is there at all.
	lookEvery = 15 * time.Second
	// lateAfter is how long a unit may take to acknowledge the end before it is told that the conference is ending.
	lateAfter = time.Second
	// mostAgain is the longest pause between two tries of a command that is tried until it is acknowledged.
	mostAgain = 30 * time.Second
)

// end releases what is left of it and writes its record (C17, C22).
func (c *conference) end(ctx workflow.Context) {
	reason, status := c.ending, berth.ConferenceEnded
	if c.refusal != nil {
		status = berth.ConferenceDeleted
	} else if !c.settled && workflow.GetVersion(ctx, versionAnnounceEnd, workflow.DefaultVersion, 1) == 1 {
		c.settled, c.refusal = true, temporal.NewNonRetryableApplicationError("the conference was ended before it was open: "+string(reason),
			string(berth.CodeEnded), nil, berth.Refusal{SubmissionID: c.firstID})
	}
	if a := c.adopting; a != nil {
		c.giveUpAdoption(ctx, "given up: the conference is over")
		c.doom(a.was)
		c.withdraw(ctx, a.copyRef())
	}
	if c.creating != nil {
		c.creating.cancel()
		c.answer(c.creating.name, c.creating.to.Epoch, "given up: the conference is over")
		c.creating = nil
	}
	for _, old := range c.leftover {
		c.withdraw(ctx, old)
	}
	if c.is.Owner.NodeID != "" && (reason == berth.EndReleased || reason == berth.EndTime) {
		c.releaseOwner(ctx)
	}
	now := workflow.Now(ctx)
	c.is.EndedAt = now
	if !c.is.LostAt.IsZero() { // it was not recovered: the record ends at the failure
		c.is.EndedAt = c.is.LostAt
		if reason == berth.EndTime {
			reason = berth.EndNotRecovered
		}
	}
	c.closeSegment(now, reason)
	if c.slot != nil {
		c.free, c.slot = append(c.free, *c.slot), nil
	}
	c.is.Ending, c.is.End, c.is.Owner, c.is.Waiting, c.leftover = "", reason, berth.ConferenceOwner{}, "", nil
	c.to(ctx, status)
	c.save(ctx)
	c.settled, c.saved = true, true
}

// releaseOwner has the owner release it, and waits until that is acknowledged or the unit is gone.
func (c *conference) releaseOwner(ctx workflow.Context) {
	owner := c.ownerCopy()
	c.order(ctx, berth.ActivityReleaseConference, owner.NodeRef, owner.Epoch)
	outcome := tellUnit(ctx, owner.NodeRef, c.in.Rules.Command, func() bool {
		return slices.ContainsFunc(c.news, func(n UnitNotice) bool {
			return c.ownedBy(n) && n.Gone != "" && n.Gone != berth.DepartureDrained || c.missed(n)
		})
	}, func() {
		c.outbox = append(c.outbox, c.is.Event(workflow.Now(ctx)))
		c.save(ctx)
	}, nil, berth.ActivityReleaseConference, berth.UnitRelease{E164: c.is.E164, Epoch: owner.Epoch})
	c.answer(berth.ActivityReleaseConference, owner.Epoch, outcome)
}

// tellUnit has a unit do something until it has acknowledged it. It gives up when the generation is no more: when gone
// says so, or Redis does. late, where it is set, is called once, when there is no answer after lateAfter. It answers what came
// of it, `acknowledged` or another; the result is put into out if that is set.
func tellUnit(
	ctx workflow.Context, unit NodeRef, within time.Duration, gone func() bool, late func(), out any, command string, args ...any,
) string {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           berth.NodeTaskQueue(unit.NodeID, unit.Generation),
		StartToCloseTimeout: within,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: mostAgain},
	})
	act := workflow.ExecuteActivity(ctx, command, args...)
	for every := lookEvery; ; every = min(2*every, mostConnect) {
		wait := every
		// There is no error: this context is cancelled only when all is over.
		if late != nil {
			_ = waitAtMost(ctx, lateAfter, "has the unit answered", func() bool { return act.IsReady() || gone() })
			if wait = 0; !act.IsReady() && !gone() && workflow.GetVersion(ctx, versionAnnounceEnd, workflow.DefaultVersion, 1) == 1 {
				late()
				wait = every - lateAfter
			}
			late = nil
		}
		if wait > 0 {
			_ = waitAtMost(ctx, wait, "is the unit there", func() bool { return act.IsReady() || gone() })
		}
		failed := act.IsReady()
		if failed {
			if err := act.Get(ctx, out); err == nil {
				return "acknowledged"
			}
			// The unit said that trying again is of no use; it may be wrong.
			_ = waitAtMost(ctx, mostAgain, "tell the unit again", gone)
		}
		if gone() {
			return "lost: the unit is gone"
		}
		var stand UnitState
		if err := workflow.ExecuteLocalActivity(untilDone(ctx), ReadUnitStateActivity, unit).Get(ctx, &stand); err != nil || stand.Generation != unit.Generation {
			return "lost: the unit is gone"
		}
		if failed {
			act = workflow.ExecuteActivity(ctx, command, args...)
		}
	}
}
