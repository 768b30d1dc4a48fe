package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

func (n UnitNotice) unit() NodeRef { return NodeRef{NodeID: n.NodeID, Generation: n.Generation} }

func (n UnitNotice) copyRef() Copy { return Copy{NodeRef: n.unit(), Epoch: n.Copy.Epoch} }

// audible is the first news that can be acted on; -1 when there is none. While a copy is being adopted, others wait.
func (c *conference) audible() int {
	return slices.IndexFunc(c.news, func(n UnitNotice) bool { return n.Copy == nil || c.adopting == nil })
}

// hear acts on the next news of a unit.
func (c *conference) hear(ctx workflow.Context) {
	i := c.audible()
	n := c.news[i]
	c.news = slices.Delete(c.news, i, i+1)
	switch {
	case n.Copy != nil:
		c.hearCopy(ctx, n)
	case n.Gone != "":
		c.hearGone(ctx, n)
	case n.Missing:
		c.hearMissing(ctx, n)
	}
}

// ownedBy tells whether the news is of the owner, or of a later generation of it.
func (c *conference) ownedBy(n UnitNotice) bool {
	return c.is.Owner.NodeID == n.NodeID && c.is.Owner.Generation <= n.Generation
}

// missed tells whether the news is that the owner does not run it.
func (c *conference) missed(n UnitNotice) bool {
	return n.Missing && c.ownedBy(n) && (n.Epoch == 0 || n.Epoch == c.is.Owner.Epoch)
}

// hearMissing acts on a list that lacks the conference, or on the unit's word: the same process ended it on purpose,
// another one lost it (C15). One that was begun after the list was asked for has another epoch.
func (c *conference) hearMissing(ctx workflow.Context, n UnitNotice) {
	switch {
	case !c.missed(n):
	case c.is.Owner.Incarnation == n.Incarnation:
		if c.creating != nil { // it was open for less time than its acknowledgement took
			c.creating.cancel()
			c.answer(c.creating.name, c.creating.to.Epoch, "ended by its unit")
			c.creating = nil
		}
		c.stop(berth.EndByUnit) // there is nothing to release any more
	default:
		c.lose(ctx, berth.EndUnitLost, "its unit was started anew")
	}
}

// hearGone acts on the end of a generation (C1), or of its drain.
func (c *conference) hearGone(ctx workflow.Context, n UnitNotice) {
	if a := c.adopting; a != nil && a.to.NodeID == n.NodeID && a.to.Generation <= n.Generation && n.Gone != berth.DepartureDrained {
		c.giveUpAdoption(ctx, "lost: its unit is gone")
	}
	if !c.ownedBy(n) {
		return
	}
	if n.Gone != berth.DepartureDrained {
		c.lose(ctx, berth.EndUnitLost, "its unit is gone: "+string(n.Gone))
		return
	}
	if !c.is.Recoverable {
		return // it cannot be moved, and its unit lives
	}
	c.leftover = append(c.leftover, c.ownerCopy())
	c.lose(ctx, berth.EndDrained, "its unit is drained")
}

func (c *conference) ownerCopy() Copy {
	o := c.is.Owner
	return Copy{NodeRef: NodeRef{NodeID: o.NodeID, Generation: o.Generation}, Epoch: o.Epoch}
}

// hearCopy acts on a copy that a unit has (C7, C15).
func (c *conference) hearCopy(ctx workflow.Context, n UnitNotice) {
	o, copied := c.is.Owner, *n.Copy
	switch {
	case copied.ConferenceID != "" && copied.ConferenceID != c.is.ID, slices.Contains(c.doomed, copied.Epoch):
		c.withdraw(ctx, n.copyRef())
	case o.NodeID == n.NodeID && o.Epoch == copied.Epoch:
		c.confirm(ctx, n)
	case o.NodeID == n.NodeID && o.Generation >= n.Generation:
		// It was listed before the unit was told of this epoch, which it has by now.
	case c.is.Status == berth.ConferenceAwaitingRecovery || copied.StartedAt.Before(c.is.CopyStartedAt):
		c.adopt(ctx, n)
	default:
		c.withdraw(ctx, n.copyRef())
	}
}

// confirm notes that the owner runs it, perhaps as another generation of the same process (C4).
func (c *conference) confirm(ctx workflow.Context, n UnitNotice) {
	same := c.is.Owner.Generation >= n.Generation
	if same && c.is.Status != berth.ConferenceAwaitingConnection {
		return
	}
	slot := berth.Assignment{}
	if c.slot != nil {
		slot = *c.slot
	}
	if !same {
		c.is.Owner.Generation, c.is.Owner.Incarnation, slot.Generation = n.Generation, n.Incarnation, n.Generation
		c.slot = &slot
	}
	if done := c.creating; done != nil { // its answer was lost with the generation
		c.creating = nil
		done.cancel()
		done.to, done.slot = c.is.Owner, slot
		c.answer(done.name, done.to.Epoch, "acknowledged: it is on the unit's list")
		c.open(ctx, done)
	} else {
		if n := len(c.is.Segments); n > 0 {
			c.is.Segments = slices.Clone(c.is.Segments)
			c.is.Segments[n-1].Generation = c.is.Owner.Generation
		}
		c.to(ctx, berth.ConferenceOpen)
		c.save(ctx)
	}
	c.report(ctx)
}

// adopt has a unit that returned with an earlier copy, or the only one, keep it under a new epoch (C7).
func (c *conference) adopt(ctx workflow.Context, n UnitNotice) {
	var reply AdoptionReply
	err := workflow.ExecuteLocalActivity(untilDone(ctx), PrepareAdoptionActivity, AdoptionInput{
		E164: c.is.E164, ConferenceID: c.is.ID, Unit: n.unit(), Hold: c.in.Rules.Command + placeHold,
	}).Get(ctx, &reply)
	if err != nil || reply.Gone {
		return // its next generation lists what is left
	}
	c.is.Epoch = reply.Epoch
	to := berth.ConferenceOwner{NodeID: n.NodeID, Generation: n.Generation, Incarnation: n.Incarnation, Epoch: reply.Epoch}
	c.adopting = c.command(ctx, berth.ActivityAdoptConference, to, reply.Slot, n.Copy.StartedAt)
	c.adopting.was = n.Copy.Epoch
}

// adopted acts on what the unit said to an adoption.
func (c *conference) adopted(ctx workflow.Context) {
	done := c.adopting
	err := done.act.Get(ctx, nil)
	outcome, _ := outcomeOf(err)
	if err != nil {
		c.giveUpAdoption(ctx, outcome)
		c.doom(done.was)
		c.withdraw(ctx, done.copyRef())
		return
	}
	c.adopting = nil
	c.answer(done.name, done.to.Epoch, outcome)
	if c.is.Owner.NodeID != "" { // the later copy, whether it runs or is still being created
		c.withdraw(ctx, c.ownerCopy())
		if c.creating != nil {
			c.creating.cancel()
			c.answer(c.creating.name, c.creating.to.Epoch, "replaced by an earlier copy")
			c.creating = nil
		}
		c.closeSegment(workflow.Now(ctx), berth.EndReplaced)
		if c.slot != nil {
			c.free = append(c.free, *c.slot)
		}
	}
	c.open(ctx, done)
	c.report(ctx)
}

// giveUpAdoption forgets an adoption that failed. What waits for it is recovered now.
func (c *conference) giveUpAdoption(ctx workflow.Context, outcome string) {
	a := c.adopting
	a.cancel()
	c.answer(a.name, a.to.Epoch, outcome)
	c.free, c.adopting, c.retryAt = append(c.free, a.slot), nil, workflow.Now(ctx)
}

// withdraw has the copy's unit release it, by its link: it is told until it has acknowledged that, or is gone. A late
// acknowledgement of its creation is answered by that (C7).
func (c *conference) withdraw(ctx workflow.Context, copied Copy) {
	c.doom(copied.Epoch)
	c.order(ctx, berth.ActivityReleaseConference, copied.NodeRef, copied.Epoch)
	c.answer(berth.ActivityReleaseConference, copied.Epoch, "left to the unit's link")
	err := workflow.ExecuteLocalActivity(untilDone(ctx), NotifyLinkActivity, LinkRequest{
		Unit: copied.NodeRef, Withdraw: &berth.UnitRelease{E164: c.is.E164, Epoch: copied.Epoch},
	}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Error("a copy cannot be withdrawn", "error", err) // never: it is tried until it succeeds
	}
}

// report has the owner tell the data proxy everything: what it said before it was the owner was dropped (C20).
func (c *conference) report(ctx workflow.Context) {
	workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              berth.NodeTaskQueue(c.is.Owner.NodeID, c.is.Owner.Generation),
		ScheduleToCloseTimeout: 3 * c.in.Rules.Command,
		StartToCloseTimeout:    c.in.Rules.Command,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 3},
	}), berth.ActivityReportConferences, berth.UnitReport{E164: []string{c.is.E164}})
}

// reassertRow writes its row into a Redis that may have lost it. What runs has to be told by its unit's list (C4).
func (c *conference) reassertRow(ctx workflow.Context) {
	c.reassert = false
	if c.is.Status == berth.ConferenceOpen {
		c.pause = c.in.Rules.Connect
		if c.pause == 0 {
			c.pause = connectDefault
		}
		c.connectBy = workflow.Now(ctx).Add(c.pause)
		c.to(ctx, berth.ConferenceAwaitingConnection)
	}
	c.save(ctx)
}

// lookForUnit looks whether the unit is there whose list does not come. One that did not register again will not be
// declared dead: Redis has forgotten it. One that need not is asked for its list.
func (c *conference) lookForUnit(ctx workflow.Context) {
	var stand UnitState
	if err := workflow.ExecuteLocalActivity(untilDone(ctx), ReadUnitStateActivity, c.ownerCopy().NodeRef).Get(ctx, &stand); err != nil {
		return // never: it is tried until it succeeds
	}
	switch stand.Generation {
	case 0:
		c.lose(ctx, berth.EndUnitLost, "its unit did not come back")
		return
	case c.is.Owner.Generation:
		if err := workflow.ExecuteLocalActivity(untilDone(ctx), NotifyLinkActivity, LinkRequest{Unit: c.ownerCopy().NodeRef}).Get(ctx, nil); err != nil {
			return
		}
	}
	c.pause = min(2*max(c.pause, time.Second), mostConnect)
	c.connectBy = workflow.Now(ctx).Add(c.pause)
}
