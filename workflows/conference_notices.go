package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// maxConnectPause is the longest pause between two checks of a registered unit whose list is missing.
const maxConnectPause = 5 * time.Minute

func (n UnitNotice) unit() berth.NodeRef {
	return berth.NodeRef{NodeID: n.NodeID, Generation: n.Generation}
}

func (n UnitNotice) copyRef() Copy { return Copy{NodeRef: n.unit(), Epoch: n.Copy.Epoch} }

// nextNotice returns the index of the next notice that can be handled; -1 when there is none. Notices of copies wait while
// an adoption or a move is in flight.
func (c *conference) nextNotice() int {
	return slices.IndexFunc(c.inbox.notices, func(n UnitNotice) bool {
		return n.Copy == nil || c.inFlight.adoption == nil && !c.move.inFlight()
	})
}

// handleNotice handles the next notice.
func (c *conference) handleNotice(ctx workflow.Context) {
	i := c.nextNotice()
	n := c.inbox.notices[i]
	c.inbox.notices = slices.Delete(c.inbox.notices, i, i+1)
	switch {
	case n.Copy != nil:
		c.copyListed(ctx, n)
	case n.Gone != "":
		c.unitGone(ctx, n)
	case n.Missing:
		c.copyMissing(ctx, n)
	}
}

// fromOwner reports whether the notice is from the owner, or from a later generation of its node.
func (c *conference) fromOwner(n UnitNotice) bool {
	return c.record.Owner.NodeID == n.NodeID && c.record.Owner.Generation <= n.Generation
}

// ownerLacksIt reports whether the notice states that the owner does not run the conference. A copy that was created after
// the list was requested has another epoch.
func (c *conference) ownerLacksIt(n UnitNotice) bool {
	return n.Missing && c.fromOwner(n) && (n.Epoch == 0 || n.Epoch == c.record.Owner.Epoch)
}

// copyMissing handles a list without the conference, or the unit's own report that it ended: the same process has ended it
// intentionally, another one has lost it in a restart.
func (c *conference) copyMissing(ctx workflow.Context, n UnitNotice) {
	switch {
	case !c.ownerLacksIt(n):
	case c.record.Owner.Incarnation == n.Incarnation:
		c.abandonCreation("ended by the unit") // it was open for less time than the acknowledgement took
		c.requestEnd(berth.EndByUnit)          // so there is nothing to release
	default:
		c.lost(ctx, berth.EndUnitLost, "the unit was restarted")
	}
}

// unitGone handles the end of a generation, or of its drain.
func (c *conference) unitGone(ctx workflow.Context, n UnitNotice) {
	drained := n.Gone == berth.DepartureDrained
	if a := c.inFlight.adoption; a != nil && a.owner.NodeID == n.NodeID && a.owner.Generation <= n.Generation && !drained {
		c.abandonAdoption(ctx, outcomeLost)
	}
	if !drained {
		c.moveTargetGone(ctx, n)
	}
	switch {
	case !c.fromOwner(n):
	case !drained:
		c.lost(ctx, berth.EndUnitLost, "the unit was lost: "+string(n.Gone))
	case !c.record.Recoverable: // it cannot be moved, and its unit still runs it
	default:
		c.drainOwner(ctx)
	}
}

// copyListed handles a copy on a unit's list. The owner's copy confirms the connection. Of other copies, the one that
// started first is kept, and the others are released.
func (c *conference) copyListed(ctx workflow.Context, n UnitNotice) {
	owner, listed := c.record.Owner, *n.Copy
	switch {
	case listed.ConferenceID != "" && listed.ConferenceID != c.record.ID, slices.Contains(c.copies.fenced, listed.Epoch):
		c.withdraw(ctx, n.copyRef())
	case owner.NodeID == n.NodeID && owner.Epoch == listed.Epoch:
		c.connected(ctx, n)
	case owner.NodeID == n.NodeID && owner.Generation >= n.Generation:
		// The list is older than the command with the current epoch, which the unit has received since.
	case c.record.Status == berth.ConferenceAwaitingRecovery || listed.StartedAt.Before(c.record.CopyStartedAt):
		c.returned(ctx, n)
	default:
		c.withdraw(ctx, n.copyRef())
	}
}

// connected handles the owner's copy on its unit's list. The unit may have registered as another generation since.
func (c *conference) connected(ctx workflow.Context, n UnitNotice) {
	same := c.record.Owner.Generation >= n.Generation
	if same && c.record.Status != berth.ConferenceAwaitingConnection {
		return
	}
	slot := berth.Assignment{}
	if c.slots.owner != nil {
		slot = *c.slots.owner
	}
	if !same {
		c.record.Owner.Generation, c.record.Owner.Incarnation, slot.Generation = n.Generation, n.Incarnation, n.Generation
		c.slots.owner = &slot
	}
	if creation := c.inFlight.creation; creation != nil { // its reply was lost with the former generation
		c.abandonCreation("acknowledged: listed by the unit")
		creation.owner, creation.slot = c.record.Owner, slot
		c.opened(ctx, creation)
	} else {
		if n := len(c.record.Segments); n > 0 {
			c.record.Segments = slices.Clone(c.record.Segments)
			c.record.Segments[n-1].Generation = c.record.Owner.Generation
		}
		c.changeStatus(ctx, berth.ConferenceOpen)
		c.save(ctx)
		if !c.ending.copyEndAt.Equal(c.record.EndAt) {
			c.sendEndTime(ctx) // it was extended meanwhile, or the former generation may not have received it
		}
	}
	c.requestReport(ctx)
}

// checkUnit checks whether the unit whose list is missing is registered. One that did not register again after Redis lost
// its data is never declared dead, because Redis does not know it. One that is registered is asked for its list, which it
// may have sent before this conference was known to be its own.
func (c *conference) checkUnit(ctx workflow.Context) {
	owner := c.ownerCopy().NodeRef
	unit, err := untilDone[UnitState](ctx, ReadUnitStateActivity, owner)
	if err != nil {
		return // unreachable: retried until it succeeds
	}
	if unit.Generation == 0 {
		c.lost(ctx, berth.EndUnitLost, "the unit did not register again")
		return
	}
	registered := berth.NodeRef{NodeID: owner.NodeID, Generation: unit.Generation}
	if _, err := untilDone[noResult](ctx, NotifyLinkActivity, LinkRequest{Unit: registered}); err != nil {
		return
	}
	c.connection.pause = min(2*max(c.connection.pause, time.Second), maxConnectPause)
	c.connection.checkAt = workflow.Now(ctx).Add(c.connection.pause)
}
