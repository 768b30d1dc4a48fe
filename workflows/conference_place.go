package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// createStart is how long a unit may take to fetch a first creation, for somebody waits. A recovery may take as long
	// as any command: many come at once, a unit does few at a time (C3), and the death of a unit is told.
	createStart = 3 * time.Second
	// placeHold is how much longer than its command a slot is held for a copy that does not run yet.
	placeHold = 20 * time.Second
	// placePause and mostPlacePause are the pauses after attempts that Redis or the database did not answer.
	placePause     = time.Second
	mostPlacePause = 10 * time.Second
	// mostPlaceEvents is how many events PlaceConference tells beside those that it is given.
	mostPlaceEvents = 2
)

// unitCommand is a command to a unit that has not been answered yet.
type unitCommand struct {
	name      string
	to        berth.ConferenceOwner
	startedAt time.Time
	slot      berth.Assignment
	was       int64 // an adoption's: the epoch under which the copy was known
	act       workflow.Future
	cancel    workflow.CancelFunc
}

func (u *unitCommand) copyRef() Copy {
	return Copy{NodeRef: NodeRef{NodeID: u.to.NodeID, Generation: u.to.Generation}, Epoch: u.to.Epoch}
}

// place finds a unit with room and has it create the conference (C16), or recover it (C1).
func (c *conference) place(ctx workflow.Context) {
	first := c.is.Status == berth.ConferenceCreating
	at := workflow.Now(ctx).Truncate(time.Millisecond)
	c.revise(ctx)
	in := PlaceInput{
		Conference: c.is, First: first, Failed: c.failed, Unresponsive: c.silent, Release: c.free, FirstEvent: c.told + 1,
		Hold: c.in.Rules.Command + placeHold, At: at,
	}
	if !first { // a creation is told with its owner
		in.Events = c.outbox
	}
	var reply PlaceReply
	err := workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: 5 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	}), PlaceConferenceActivity, in).Get(ctx, &reply)
	c.is.Revision++ // the activity's, if it placed it
	switch {
	case err != nil && first:
		c.refuse(berth.EndNoCapacity, temporal.NewNonRetryableApplicationError(
			"the conference could not be placed; try again in a few seconds", string(berth.CodeUnavailable), nil, berth.Refusal{SubmissionID: c.firstID}))
	case err != nil: // what it did, and told, is not known: it is all done again
		c.told += len(in.Events) + mostPlaceEvents
		c.tryAgainSoon(ctx)
	case reply.Code != "" && first:
		detail := reply.Refusal
		detail.SubmissionID = c.firstID
		reason := berth.EndNoCapacity
		if reply.Code == berth.CodeNoLicence {
			reason = berth.EndNoLicence
		}
		c.refuse(reason, temporal.NewNonRetryableApplicationError(reply.Message, string(reply.Code), nil, detail))
	case reply.Code != "":
		c.heard(reply)
		c.wait(ctx, reply)
	default:
		c.heard(reply)
		c.placePause = 0
		c.is = Placed(in.Conference, reply.Owner, at)
		c.slot = &reply.Slot
		command := berth.ActivityCreateConference
		if !first {
			command = berth.ActivityRecoverConference // C6: it was there before
		}
		c.creating = c.command(ctx, command, reply.Owner, reply.Slot, at)
	}
}

// heard notes that the activity has told what was to be told, and given back what was free.
func (c *conference) heard(reply PlaceReply) {
	c.told += reply.Events
	c.outbox, c.free, c.silent = nil, nil, nil
}

// wait has it try again later: when there is room, and every few minutes besides (C2, C9).
func (c *conference) wait(ctx workflow.Context, reply PlaceReply) {
	c.is.Waiting, c.failed, c.settled = reply.Message, nil, true
	if reply.Code == berth.CodeUnavailable {
		c.tryAgainSoon(ctx)
		return
	}
	pause := c.in.Rules.Retry
	if hushed := c.unheard || reply.Refusal.Reasons[berth.ExcludeServiceUnavailable] > 0; hushed &&
		workflow.GetVersion(ctx, versionRetrySkipped, workflow.DefaultVersion, 1) == 1 {
		pause = min(pause, SkipUnresponsiveFor+time.Second) // nobody tells that a unit is passed over no more
	}
	c.retryAt, c.placePause = workflow.Now(ctx).Add(pause), 0
}

func (c *conference) tryAgainSoon(ctx workflow.Context) {
	c.placePause = min(max(2*c.placePause, placePause), mostPlacePause)
	c.retryAt = workflow.Now(ctx).Add(c.placePause)
}

// recoverNow makes an attempt to recover it, unless that has been refused for too long (C9).
func (c *conference) recoverNow(ctx workflow.Context) {
	if !c.is.RefusedAt.IsZero() && !workflow.Now(ctx).Before(c.is.RefusedAt.Add(c.in.Rules.GiveUp)) {
		c.stop(berth.EndNotRecovered)
		return
	}
	c.room = false
	c.place(ctx)
}

// command tells a unit something about this conference.
func (c *conference) command(
	ctx workflow.Context, name string, to berth.ConferenceOwner, slot berth.Assignment, startedAt time.Time,
) *unitCommand {
	start := c.in.Rules.Command
	if name == berth.ActivityCreateConference {
		start = createStart
	}
	c.order(ctx, name, NodeRef{NodeID: to.NodeID, Generation: to.Generation}, to.Epoch)
	ctx, cancel := workflow.WithCancel(ctx)
	return &unitCommand{
		name: name, to: to, startedAt: startedAt, slot: slot, cancel: cancel,
		act: workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue:              berth.NodeTaskQueue(to.NodeID, to.Generation),
			ScheduleToStartTimeout: start,
			StartToCloseTimeout:    c.in.Rules.Command,
			// Another try would go to the same unit, perhaps a dead one: the next one is elsewhere.
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		}), name, berth.UnitConference{ConferenceSpec: c.is.ConferenceSpec, ConferenceID: c.is.ID, Epoch: to.Epoch, StartedAt: startedAt}),
	}
}

// created acts on what the unit said to a creation or recovery.
func (c *conference) created(ctx workflow.Context) {
	done := c.creating
	c.creating = nil
	err := done.act.Get(ctx, nil)
	outcome, refused := outcomeOf(err)
	c.answer(done.name, done.to.Epoch, outcome)
	first := done.name == berth.ActivityCreateConference
	switch {
	case err == nil:
		c.open(ctx, done)
	case refused && first:
		c.refuse(berth.EndRefused, temporal.NewNonRetryableApplicationError("unit "+done.to.NodeID+" "+outcome,
			string(berth.CodeUnitRefused), nil, berth.Refusal{SubmissionID: c.firstID}))
	case refused: // C11: the next one
		if c.is.RefusedAt.IsZero() {
			c.is.RefusedAt = workflow.Now(ctx)
		}
		c.lose(ctx, berth.EndRefused, outcome)
	default: // it may run there
		c.silent, c.unheard = append(c.silent, done.copyRef().NodeRef), true
		c.withdraw(ctx, done.copyRef())
		c.lose(ctx, berth.EndUnitLost, outcome)
	}
	if err != nil {
		c.failed = append(c.failed, done.copyRef().NodeRef)
	}
}

// open notes that a unit runs it from now on.
func (c *conference) open(ctx workflow.Context, by *unitCommand) {
	now := workflow.Now(ctx)
	if c.is.OpenedAt.IsZero() {
		c.is.OpenedAt = now
	}
	slot := by.slot
	c.slot = &slot
	c.is.Owner, c.is.Epoch, c.is.CopyStartedAt = by.to, max(c.is.Epoch, by.to.Epoch), by.startedAt
	c.is.LostAt, c.is.RefusedAt, c.is.Waiting, c.failed, c.settled = time.Time{}, time.Time{}, "", nil, true
	c.unheard, c.answered = false, true
	c.is.Segments = append(slices.Clone(c.is.Segments), berth.ConferenceSegment{
		NodeID: by.to.NodeID, Generation: by.to.Generation, Epoch: by.to.Epoch, StartedAt: now,
	})
	c.is.Segments = c.is.Segments[max(0, len(c.is.Segments)-mostSegments):]
	c.to(ctx, berth.ConferenceOpen)
	for _, old := range c.leftover {
		if old.NodeID != by.to.NodeID {
			c.withdraw(ctx, old)
		}
	}
	c.leftover = nil
	c.save(ctx)
}

// refuse ends a first creation: its caller is told, and all of it is taken back (C16).
func (c *conference) refuse(reason berth.ConferenceEnd, err error) {
	c.refusal = err
	c.stop(reason)
}

// lose notes that the owner's copy is lost. What follows is told with it, in one go: the attempt to recover it, or its end
// when it is not to be recovered (C8).
func (c *conference) lose(ctx workflow.Context, reason berth.ConferenceEnd, why string) {
	now := workflow.Now(ctx)
	if c.creating != nil {
		c.creating.cancel()
		c.answer(c.creating.name, c.creating.to.Epoch, "lost: "+why)
		c.doom(c.creating.to.Epoch)
		c.creating = nil
	}
	c.closeSegment(now, reason)
	if c.slot != nil {
		c.free, c.slot = append(c.free, *c.slot), nil
	}
	c.is.Owner, c.is.Waiting, c.retryAt = berth.ConferenceOwner{}, why, now
	if c.is.LostAt.IsZero() {
		c.is.LostAt = now
	}
	switch {
	case c.is.Recoverable:
		c.to(ctx, berth.ConferenceAwaitingRecovery)
	case c.is.OpenedAt.IsZero():
		c.refuse(berth.EndNotRecoverable, temporal.NewNonRetryableApplicationError("the unit was lost: "+why,
			string(berth.CodeNodeFailed), nil, berth.Refusal{SubmissionID: c.firstID}))
	default:
		c.stop(berth.EndNotRecoverable)
	}
}

func (c *conference) closeSegment(at time.Time, reason berth.ConferenceEnd) {
	if n := len(c.is.Segments); n > 0 && c.is.Segments[n-1].EndedAt.IsZero() {
		c.is.Segments = slices.Clone(c.is.Segments)
		c.is.Segments[n-1].EndedAt, c.is.Segments[n-1].Reason = at, reason
	}
}

// doom notes that the copy with this epoch is not to come back.
func (c *conference) doom(epoch int64) {
	if !slices.Contains(c.doomed, epoch) {
		c.doomed = append(c.doomed, epoch)
		c.doomed = c.doomed[max(0, len(c.doomed)-mostSegments):]
	}
}

// outcomeOf tells people what a unit said to a command, and whether it refused.
func outcomeOf(err error) (outcome string, refused bool) {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return "acknowledged", false
	case errors.As(err, &app) && app.Type() == berth.ErrorRefused:
		return "refused: " + app.Message(), true
	default:
		return "lost: " + attemptError(err), false
	}
}
