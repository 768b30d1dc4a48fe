package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// Conference runs one conference, on one media unit after another, until it ends. Its result is its detail record.
// Cancelling the run ends the conference like a release: its unit still receives the release command.
func Conference(ctx workflow.Context, in ConferenceInput) (berth.Conference, error) {
	detached, _ := workflow.NewDisconnectedContext(ctx)
	c := &conference{in: in}
	if err := c.setup(ctx, detached); err != nil {
		return berth.Conference{}, err
	}
	return c.run(detached)
}

// conference is the state of one run. record is what queries return and the ledger stores; the rest is how the workflow
// works on it, grouped by concern.
type conference struct {
	in     ConferenceInput
	record berth.Conference

	submission submission // reply to the create update: once it is open, refused, or waits for recovery
	inbox      inbox      // signals that were received and not handled yet
	outbox     outbox     // events that were not published yet
	inFlight   inFlight   // commands to units that were not acknowledged yet
	placement  placement  // search for a unit
	connection connection // wait for the unit's list
	slots      slots      // capacity held on units
	copies     copies     // copies on units that are not the owner's
	move       *move      // a planned move to another unit; nil without one
	leftovers  []leftover // copies that it was moved from
	ending     ending     // why, and whether, it ends
	timer      timer      // the next thing to do without an event
}

// run takes the conference through its life cycle. These are all transitions (berth.ConferenceStatus.CanBecome):
//
//	status               event                                            next status
//	none                 accepted                                         creating
//	creating             the unit acknowledged                            open
//	creating             first creation refused, or no capacity for it    deleted
//	creating             unit lost, or recovery refused                   awaiting-recovery
//	open                 unit lost                                        awaiting-recovery
//	open                 Redis lost the row                               awaiting-connection
//	awaiting-connection  on its unit's list                               open
//	awaiting-connection  unit lost, or restarted without the conference   awaiting-recovery
//	awaiting-recovery    a unit has capacity                              creating
//	any of these         a unit returned with an earlier copy             open
//	any of these         released, end time, ended by its unit,           ended
//	                     not recoverable, or recovery given up
func (c *conference) run(ctx workflow.Context) (berth.Conference, error) {
	switch {
	case c.in.Resumed == nil:
		c.place(ctx)
	case c.record.Status == berth.ConferenceOpen && !c.ending.copyEndAt.IsZero() && !c.ending.copyEndAt.Equal(c.record.EndAt):
		c.sendEndTime(ctx) // the previous run ended before the unit had acknowledged it
	}
	for !c.record.Status.Final() {
		if step := c.next(ctx); step != nil {
			step(ctx)
			continue
		}
		c.setTimer(ctx)
		if c.canContinueAsNew(ctx) {
			return c.record, c.continueAsNew(ctx)
		}
		// No error: this context is never cancelled.
		_ = workflow.Await(ctx, func() bool { return c.next(ctx) != nil || versionChanged(ctx) && c.canContinueAsNew(ctx) })
	}
	return c.ended(ctx)
}

// step handles one event, and may change the status.
type step func(workflow.Context)

// next returns the step for the current status, or nil when the conference has to wait. The end precedes everything else.
func (c *conference) next(ctx workflow.Context) step {
	if c.ending.reason != "" {
		return c.end // -> ended, deleted
	}
	if !c.ending.extendTo.IsZero() {
		return c.extend
	}
	if c.ending.timer.IsReady() {
		return c.endTimeReached
	}
	switch c.record.Status {
	case berth.ConferenceCreating:
		return c.whileCreating() // -> open, awaiting-recovery
	case berth.ConferenceOpen:
		return c.whileOpen(workflow.Now(ctx)) // -> awaiting-connection, awaiting-recovery
	case berth.ConferenceAwaitingConnection:
		return c.whileAwaitingConnection(workflow.Now(ctx)) // -> open, awaiting-recovery
	case berth.ConferenceAwaitingRecovery:
		return c.whileAwaitingRecovery(workflow.Now(ctx)) // -> creating, open
	default:
		return nil
	}
}

// whileCreating: a unit was sent the creation or recovery, and its reply decides.
func (c *conference) whileCreating() step {
	if c.inFlight.creation.replied() {
		return c.creationReplied
	}
	return c.nextEvent()
}

// whileOpen: the owner runs the conference until a notice reports otherwise, or it is moved.
func (c *conference) whileOpen(now time.Time) step {
	if event := c.nextEvent(); event != nil {
		return event
	}
	return c.nextMove(now)
}

// whileAwaitingConnection: the unit's list decides. If it does not arrive, the unit's registration is checked at intervals.
func (c *conference) whileAwaitingConnection(now time.Time) step {
	if event := c.nextEvent(); event != nil {
		return event
	}
	if step := c.nextMove(now); step != nil {
		return step
	}
	if !now.Before(c.connection.checkAt) {
		return c.checkUnit
	}
	return nil
}

// whileAwaitingRecovery: another unit is tried when there may be capacity, and at intervals.
func (c *conference) whileAwaitingRecovery(now time.Time) step {
	if event := c.nextEvent(); event != nil {
		return event
	}
	if step := c.nextMove(now); step != nil {
		return step
	}
	if !c.inFlight.any() && (c.inbox.capacity || !now.Before(c.recoveryDue())) {
		return c.retryRecovery
	}
	return nil
}

// nextEvent returns the handler of the next event that can occur in every status.
func (c *conference) nextEvent() step {
	switch {
	case c.inFlight.adoption.replied():
		return c.adoptionReplied
	case c.inbox.restore:
		return c.restoreRow
	case c.nextNotice() >= 0:
		return c.handleNotice
	default:
		return nil
	}
}

// creationReplied handles the unit's reply to a creation or recovery. A refused creation ends the conference; after a
// refused recovery the next unit is tried.
func (c *conference) creationReplied(ctx workflow.Context) {
	command := c.inFlight.creation
	c.inFlight.creation = nil
	err := command.reply.Get(ctx, nil)
	outcome, refused := outcomeOf(err)
	c.setOutcome(command.name, command.owner.Epoch, outcome)
	switch {
	case err == nil:
		c.opened(ctx, command)
		if workflow.Now(ctx).Sub(command.sentAt) > lateAfter {
			c.requestReport(ctx)
		}
	case refused && command.name == berth.ActivityCreateConference:
		c.refuse(berth.EndRefused, berth.CodeUnitRefused, "unit "+command.owner.NodeID+" "+outcome)
	case refused:
		if c.record.RefusedAt.IsZero() {
			c.record.RefusedAt = workflow.Now(ctx)
		}
		c.placement.refusedBy(command.copyRef().NodeRef, workflow.Now(ctx).Add(c.in.Rules.Retry))
		c.lost(ctx, berth.EndRefused, outcome)
	case notStarted(err): // so there is no copy
		c.placement.notStarted = append(c.placement.notStarted, command.copyRef().NodeRef)
		c.placement.skippedUnits = true
		c.lost(ctx, berth.EndUnitLost, outcome)
	default: // the copy may exist there
		c.placement.unresponsive = append(c.placement.unresponsive, command.copyRef().NodeRef)
		c.placement.skippedUnits = true
		c.withdraw(ctx, command.copyRef())
		c.lost(ctx, berth.EndUnitLost, outcome)
	}
	if err != nil {
		c.placement.failed = append(c.placement.failed, command.copyRef().NodeRef)
	}
}

// opened makes the unit that acknowledged the command the owner. Other copies are released.
func (c *conference) opened(ctx workflow.Context, command *unitCommand) {
	now := workflow.Now(ctx)
	if c.record.OpenedAt.IsZero() {
		c.record.OpenedAt = now
	}
	if lostAt := c.record.LostAt; !lostAt.IsZero() {
		workflow.GetMetricsHandler(ctx).Timer(metricRecovery).Record(now.Sub(lostAt))
	}
	slot := command.slot
	c.slots.owner = &slot
	c.record.Owner, c.record.CopyStartedAt, c.ending.copyEndAt = command.owner, command.startedAt, command.endAt
	c.record.Epoch = command.owner.Epoch
	c.record.LostAt, c.record.RefusedAt, c.record.Waiting = time.Time{}, time.Time{}, ""
	c.placement.succeeded()
	c.submission.settled = true
	c.addSegment(command.owner, now)
	c.changeStatus(ctx, berth.ConferenceOpen)
	for _, stale := range c.copies.stale {
		if stale.NodeID != command.owner.NodeID {
			c.withdraw(ctx, stale)
		}
	}
	c.copies.stale = nil
	c.save(ctx)
	if !command.endAt.Equal(c.record.EndAt) { // it was extended meanwhile
		c.sendEndTime(ctx)
	}
}

// lost takes the conference from its unit, which is dead, was drained, refused it or did not reply. It is not saved here:
// the next step is the recovery or, for a conference that is not recoverable, the end, and either writes it.
func (c *conference) lost(ctx workflow.Context, reason berth.ConferenceEnd, why string) {
	now := workflow.Now(ctx)
	c.abandonMove(ctx, "lost: "+why)
	if creation := c.inFlight.creation; creation != nil {
		c.abandonCreation("lost: " + why)
		c.copies.fence(creation.owner.Epoch)
	}
	c.closeSegment(now, reason)
	c.slots.releaseOwner()
	c.record.Owner, c.record.Waiting, c.placement.retryAt = berth.ConferenceOwner{}, why, now
	if c.record.LostAt.IsZero() {
		c.record.LostAt = now
	}
	switch {
	case c.record.Recoverable:
		c.changeStatus(ctx, berth.ConferenceAwaitingRecovery)
	case c.record.OpenedAt.IsZero():
		c.refuse(berth.EndNotRecoverable, berth.CodeNodeFailed, "the unit was lost: "+why)
	default:
		c.requestEnd(berth.EndNotRecoverable)
	}
}

// retryRecovery tries to place the conference again, unless units have refused it for too long.
func (c *conference) retryRecovery(ctx workflow.Context) {
	if !c.record.RefusedAt.IsZero() && !workflow.Now(ctx).Before(c.record.RefusedAt.Add(c.in.Rules.GiveUp)) {
		c.requestEnd(berth.EndNotRecovered)
		return
	}
	c.inbox.capacity = false
	c.place(workflow.WithValue(ctx, berth.RecoveryKey{}, true))
}

// restoreRow writes the row into a Redis that may have lost it. An open conference then waits for its unit's list.
func (c *conference) restoreRow(ctx workflow.Context) {
	c.inbox.restore = false
	if c.record.Status == berth.ConferenceOpen {
		c.connection.pause = cmp.Or(c.in.Rules.Connect, connectDefault)
		c.connection.checkAt = workflow.Now(ctx).Add(c.connection.pause)
		c.changeStatus(ctx, berth.ConferenceAwaitingConnection)
	}
	c.save(ctx)
}

// returned makes a unit that returned with an earlier copy, or with the only one, the owner: it keeps the copy under a new
// epoch.
func (c *conference) returned(ctx workflow.Context, n UnitNotice) {
	reply, err := untilDone[AdoptionReply](ctx, PrepareAdoptionActivity, AdoptionInput{
		E164: c.record.E164, ConferenceID: c.record.ID, Unit: n.unit(), Hold: c.in.Rules.hold(),
	})
	if err != nil || reply.Gone {
		return // the unit's next generation lists the copies that it still has
	}
	owner := berth.ConferenceOwner{NodeID: n.NodeID, Generation: n.Generation, Incarnation: n.Incarnation, Epoch: reply.Epoch}
	c.inFlight.adoption = c.command(ctx, berth.ActivityAdoptConference, owner, reply.Slot, n.Copy.StartedAt)
	c.inFlight.adoption.formerEpoch = n.Copy.Epoch
}

// adoptionReplied handles the unit's reply to an adoption. The later copy, whether it runs or is still being created, is
// released. After a failed adoption the copy is released, unless no other copy runs: then it is kept until one does.
func (c *conference) adoptionReplied(ctx workflow.Context) {
	command := c.inFlight.adoption
	err := command.reply.Get(ctx, nil)
	outcome, _ := outcomeOf(err)
	if err != nil {
		c.abandonAdoption(ctx, outcome)
		if !c.runsElsewhere(command) {
			c.copies.stale = append(c.copies.stale, command.copyRef())
			return
		}
		c.copies.fence(command.formerEpoch)
		c.withdraw(ctx, command.copyRef())
		return
	}
	c.inFlight.adoption = nil
	c.setOutcome(command.name, command.owner.Epoch, outcome)
	if c.record.Owner.NodeID != "" {
		c.withdraw(ctx, c.ownerCopy())
		c.abandonCreation("replaced by an earlier copy")
		c.closeSegment(workflow.Now(ctx), berth.EndReplaced)
		if c.slots.owner != nil {
			c.slots.release(*c.slots.owner)
		}
	}
	c.opened(ctx, command)
	c.requestReport(ctx)
}

func (c *conference) endTimeReached(workflow.Context) { c.requestEnd(berth.EndTime) }

// end releases every copy and slot, and writes the record. The record of a conference that was not recovered ends when its
// unit was lost.
func (c *conference) end(ctx workflow.Context) {
	reason, status := c.ending.reason, berth.ConferenceEnded
	if c.submission.refusal != nil {
		status = berth.ConferenceDeleted
	} else if !c.submission.settled {
		c.submission.settled = true
		c.submission.refusal = refuse(berth.CodeEnded, "the conference was ended before it was open: "+string(reason))
	}
	if adoption := c.inFlight.adoption; adoption != nil {
		c.abandonAdoption(ctx, outcomeEnded)
		c.copies.fence(adoption.formerEpoch)
		c.withdraw(ctx, adoption.copyRef())
	}
	c.abandonMove(ctx, outcomeEnded)
	for _, old := range c.leftovers {
		c.withdraw(ctx, old.Copy)
	}
	c.abandonCreation(outcomeEnded)
	for _, stale := range c.copies.stale {
		c.withdraw(ctx, stale)
	}
	if c.record.Owner.NodeID != "" && (reason == berth.EndReleased || reason == berth.EndTime) {
		c.releaseOwner(ctx)
	}
	c.record.EndedAt = workflow.Now(ctx)
	endedAt := c.record.EndedAt
	if !c.record.LostAt.IsZero() {
		c.record.EndedAt = c.record.LostAt
		if reason == berth.EndTime {
			reason = berth.EndNotRecovered
		}
	}
	c.closeSegment(endedAt, reason)
	c.slots.releaseOwner()
	c.record.Ending, c.record.End, c.record.Owner, c.record.Waiting = "", reason, berth.ConferenceOwner{}, ""
	c.copies.stale = nil
	c.changeStatus(ctx, status)
	c.save(ctx)
	c.submission.settled, c.ending.saved = true, true
}

// ended completes the run: open updates return, and copies that were listed too late are released, because no other
// process receives these notices.
func (c *conference) ended(ctx workflow.Context) (berth.Conference, error) {
	_ = workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) && c.allSignalsReceived(ctx) })
	for _, n := range c.inbox.notices {
		if n.Copy != nil {
			c.withdraw(ctx, n.copyRef())
		}
	}
	return c.record, nil
}

// refuse ends a first creation: the caller receives the error, and everything is rolled back.
func (c *conference) refuse(reason berth.ConferenceEnd, code berth.Code, message string) {
	c.submission.refusal = refuse(code, message)
	c.requestEnd(reason)
}

// requestEnd makes the conference end; the first reason is kept.
func (c *conference) requestEnd(reason berth.ConferenceEnd) {
	if c.ending.reason == "" {
		c.ending.reason, c.record.Ending = reason, reason
	}
}

// canContinueAsNew reports whether a new history is due and can begin here: no command is in flight, no update is open, and the run,
// whose cancellation the next one would not receive, was not cancelled.
func (c *conference) canContinueAsNew(ctx workflow.Context) bool {
	return (workflow.GetInfo(ctx).GetContinueAsNewSuggested() || versionChanged(ctx)) && c.submission.settled && !c.inFlight.any() &&
		!c.ending.cancelled() && !c.move.inFlight() && len(c.leftovers) == 0 && len(c.inbox.notices) == 0 && c.allSignalsReceived(ctx) && workflow.AllHandlersFinished(ctx)
}

// versionChanged reports whether new runs begin on another version of the workers than this pinned run. It is part of the history.
func versionChanged(ctx workflow.Context) bool {
	return workflow.GetInfo(ctx).GetTargetWorkerDeploymentVersionChanged()
}

// continueAsNew returns the error that starts the next run with the state of this one.
func (c *conference) continueAsNew(ctx workflow.Context) error {
	in := c.in
	in.Resumed = &ConferenceProgress{
		SubmissionID: c.submission.id, Conference: c.record, Slot: c.slots.owner, Events: c.outbox.published, Confirmed: c.outbox.confirmed,
		Fenced: c.copies.fenced, Stale: c.copies.stale, RetryAt: c.placement.retryAt, CheckAt: c.connection.checkAt,
		Outbox: c.outbox.events, Release: c.slots.releasable, Unresponsive: c.placement.unresponsive,
		SkippedUnits: c.placement.skippedUnits, NotStarted: c.placement.notStarted, Refusals: c.placement.refusals,
		CopyEndAt: c.ending.copyEndAt,
	}
	if c.move != nil {
		in.Resumed.Drain = &PlannedMove{RetryAt: c.move.retryAt}
	}
	next := workflow.ContinueAsNewErrorOptions{}
	if versionChanged(ctx) { // by default the next run would be pinned to the version of this one
		next.InitialVersioningBehavior = workflow.ContinueAsNewVersioningBehaviorAutoUpgrade
	}
	return workflow.NewContinueAsNewErrorWithOptions(ctx, next, ConferenceWorkflow, in)
}
