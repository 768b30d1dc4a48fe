package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// SkipUnresponsiveFor is for how long a unit that did not reply to a command receives no conferences.
	SkipUnresponsiveFor = 30 * time.Second
	// minPlacePause and maxPlacePause bound the pause after attempts that failed because Redis or the database was
	// unavailable.
	minPlacePause = time.Second
	maxPlacePause = 10 * time.Second
	// maxPlaceEvents is how many events PlaceConference publishes besides those in its input.
	maxPlaceEvents = 2
)

// place reserves a slot on a unit and sends it the command to create the conference or, if it was open before, to recover
// it. Without capacity a new conference is refused, and another one waits.
func (c *conference) place(ctx workflow.Context) {
	first := c.record.Status == berth.ConferenceCreating
	at := workflow.Now(ctx).Truncate(time.Millisecond)
	c.renumber(ctx)
	in := PlaceInput{
		Conference: c.record, First: first, Failed: c.placement.excluded(workflow.Now(ctx)), Unresponsive: c.placement.unresponsive,
		NotStarted: c.placement.notStarted, Release: c.slots.releasable, FirstEvent: c.outbox.published + 1,
		Confirmed: c.outbox.confirmed, Hold: c.in.Rules.hold(), At: at, AnyZone: c.record.ZoneFallback && !workflow.Now(ctx).Before(c.anyZoneFrom()),
	}
	if !first { // the event of a creation includes its owner, so the activity adds it
		in.Events = c.outbox.events
	}
	reply, err := local[PlaceReply](once(ctx, 5*time.Second, ""), PlaceConferenceActivity, in)
	c.record.Revision++ // used by the activity if it placed the conference
	if err != nil && c.placement.pause == 0 {
		c.warn(ctx, "conference not placed", err)
	}
	switch {
	case err != nil && first:
		c.refuse(berth.EndNoCapacity, berth.CodeUnavailable, "the conference could not be placed; retry in a few seconds")
	case err != nil: // it is not known what the activity published and released: all of it is repeated
		c.outbox.published += len(in.Events) + maxPlaceEvents
		c.retrySoon(ctx)
	case reply.Code != "" && first:
		c.refusePlacement(reply)
	case reply.Code != "":
		c.outbox.confirm(in.FirstEvent, reply.Events)
		c.delivered(reply.Events)
		c.awaitCapacity(ctx, reply)
	default:
		c.outbox.confirm(in.FirstEvent, reply.Events)
		c.delivered(reply.Events)
		c.placed(ctx, Placed(in.Conference, reply.Owner, at), reply.Slot, first)
	}
}

// warn logs why the search for a unit failed. Retries that fail are not logged again.
func (c *conference) warn(ctx workflow.Context, message string, err error) {
	workflow.GetLogger(ctx).Warn(message, "e164", c.record.E164, "conference", c.record.ID, "error", err)
}

// placed sends the unit that was chosen its command.
func (c *conference) placed(ctx workflow.Context, record berth.Conference, slot berth.Assignment, first bool) {
	c.record, c.slots.owner, c.placement.pause = record, &slot, 0
	command := berth.ActivityRecoverConference
	if first {
		command = berth.ActivityCreateConference
	}
	c.inFlight.creation = c.command(ctx, command, record.Owner, slot, record.CopyStartedAt)
}

// refusePlacement ends a new conference for which there is no capacity or licence.
func (c *conference) refusePlacement(reply PlaceReply) {
	c.submission.refusal = refuseFor("", reply.Code, reply.Message, reply.Refusal)
	if reply.Code == berth.CodeNoLicence {
		c.requestEnd(berth.EndNoLicence)
	} else {
		c.requestEnd(berth.EndNoCapacity)
	}
}

// awaitCapacity sets when the next attempt is made if no unit reports capacity before.
func (c *conference) awaitCapacity(ctx workflow.Context, reply PlaceReply) {
	c.record.Waiting, c.placement.failed, c.submission.settled = reply.Message, nil, true
	if reply.Code == berth.CodeUnavailable {
		c.retrySoon(ctx)
		return
	}
	pause := c.in.Rules.Retry
	if c.placement.skippedUnits || reply.Refusal.Reasons[berth.ExcludeServiceUnavailable] > 0 {
		pause = min(pause, SkipUnresponsiveFor+time.Second) // no event reports that a unit is no longer skipped
	}
	c.placement.retryAt, c.placement.pause = workflow.Now(ctx).Add(pause), 0
	if from := c.anyZoneFrom(); c.record.ZoneFallback && workflow.Now(ctx).Before(from) && from.Before(c.placement.retryAt) {
		c.placement.retryAt = from
	}
	for _, r := range c.placement.refusals { // a later attempt, woken by capacity, must not delay these
		if r.Until.Before(c.placement.retryAt) {
			c.placement.retryAt = r.Until
		}
	}
}

// anyZoneFrom returns when a conference that allows it may run in another zone than its own: immediately at its creation,
// because a caller waits for it.
func (c *conference) anyZoneFrom() time.Time {
	if c.record.LostAt.IsZero() {
		return time.Time{}
	}
	return c.record.LostAt.Add(c.in.Rules.Zone)
}

// retrySoon sets the next attempt after Redis or the database was unavailable.
func (c *conference) retrySoon(ctx workflow.Context) {
	c.placement.pause = min(max(2*c.placement.pause, minPlacePause), maxPlacePause)
	c.placement.retryAt = workflow.Now(ctx).Add(c.placement.pause)
}
