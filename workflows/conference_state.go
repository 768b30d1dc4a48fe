package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

const (
	// maxOrders and maxSegments bound how many commands and units a record lists.
	maxOrders   = 50
	maxSegments = 200
	// maxOutcomeBytes bounds the text of one command's outcome.
	maxOutcomeBytes = 200
	// numbersPerHistoryEvent exceeds the number of revisions, and of events, between two events of the history.
	numbersPerHistoryEvent = 16
	// lastEventNumber is the number of the event that ends the stream, however many preceded it, so that it is published once. The end
	// is recorded before.
	lastEventNumber = 1 << 40
)

// inbox is what was signalled and not handled yet.
type inbox struct {
	notices  []UnitNotice
	capacity bool // a unit may have capacity
	restore  bool // Redis may have lost the row
}

// outbox is what the conference's stream has not received yet.
type outbox struct {
	events    []berth.ConferenceEvent
	published int // number of the last published event
	confirmed int // number of the last event that an activity has confirmed; those between were not used, or perhaps not published
}

// inFlight is the commands that units have not acknowledged yet. A creation is in flight only in status creating.
type inFlight struct {
	creation, adoption *unitCommand
}

func (f inFlight) any() bool { return f.creation != nil || f.adoption != nil }

// placement is the search for a unit.
type placement struct {
	failed       []berth.NodeRef // generations that failed the conference since it was last open or had to wait
	unresponsive []berth.NodeRef // those of them that did not reply and were not marked as unresponsive yet
	notStarted   []berth.NodeRef // those of them that did not start the command, and were not checked yet
	refusals     []UnitRefusal
	skippedUnits bool      // some unit did not reply since the conference was last open
	acknowledged bool      // the owner has acknowledged a command since the conference was last saved
	retryAt      time.Time // of the next attempt
	pause        time.Duration
}

func (p *placement) succeeded() {
	p.failed, p.refusals, p.skippedUnits, p.acknowledged = nil, nil, false, true
}

// refusedBy excludes a unit that refused the recovery until a time. The slot that the refusal frees would otherwise wake the
// conference, and the unit refuse it again, until it is given up.
func (p *placement) refusedBy(unit berth.NodeRef, until time.Time) {
	p.refusals = append(p.refusals, UnitRefusal{NodeRef: unit, Until: until})
}

// excluded returns the units that are not tried now.
func (p *placement) excluded(now time.Time) []berth.NodeRef {
	p.refusals = slices.DeleteFunc(slices.Clone(p.refusals), func(r UnitRefusal) bool { return !now.Before(r.Until) })
	out := slices.Clone(p.failed)
	for _, r := range p.refusals {
		if !slices.Contains(out, r.NodeRef) {
			out = append(out, r.NodeRef)
		}
	}
	return out
}

// connection is the wait for the list of a unit.
type connection struct {
	checkAt time.Time // when the unit's registration is checked
	pause   time.Duration
}

// slots is the capacity that the conference holds on units.
type slots struct {
	owner      *berth.Assignment
	releasable []HeldSlot // of copies that were lost; released before the next search for a unit, or after the next write
}

func (s *slots) release(slot berth.Assignment) {
	s.releasable = append(s.releasable, HeldSlot{Assignment: slot})
}

func (s *slots) releaseOwner() {
	if s.owner != nil {
		s.release(*s.owner)
		s.owner = nil
	}
}

// copies is what is known of copies that are not the owner's.
type copies struct {
	fenced []int64 // epochs whose copies are released wherever they are listed
	stale  []Copy  // to be released once another copy runs
}

func (c *copies) fence(epoch int64) {
	if !slices.Contains(c.fenced, epoch) {
		c.fenced = append(c.fenced, epoch)
		c.fenced = c.fenced[max(0, len(c.fenced)-maxSegments):]
	}
}

// ending is why the conference ends.
type ending struct {
	reason berth.ConferenceEnd
	timer  workflow.Future // its end time
	saved  bool            // the end is written

	cancelled func() bool // whether the run was cancelled, which ends it

	stopTimer workflow.CancelFunc
	extendTo  time.Time // a requested end time that is not written yet
	copyEndAt time.Time // end time that the owner has acknowledged
}

// timer wakes the conference for what is due without an event, besides its end time.
type timer struct {
	at     time.Time
	fires  workflow.Future
	cancel workflow.CancelFunc
}

// recoveryDue returns when a conference that awaits recovery is tried again, or given up.
func (c *conference) recoveryDue() time.Time {
	if giveUp := c.record.RefusedAt.Add(c.in.Rules.GiveUp); !c.record.RefusedAt.IsZero() && giveUp.Before(c.placement.retryAt) {
		return giveUp
	}
	return c.placement.retryAt
}

// setTimer sets the timer for what is due next, and stops one that is not needed any more.
func (c *conference) setTimer(ctx workflow.Context) {
	at, summary := time.Time{}, ""
	switch {
	case c.inFlight.any():
	case c.record.Status == berth.ConferenceAwaitingRecovery:
		at, summary = c.recoveryDue(), "retry recovery"
	case c.record.Status == berth.ConferenceAwaitingConnection:
		at, summary = c.connection.checkAt, "check the unit"
	}
	if due := c.moveDue(); !due.IsZero() && (at.IsZero() || due.Before(at)) {
		at, summary = due, "planned move"
	}
	if at.Equal(c.timer.at) {
		return
	}
	if c.timer.cancel != nil && !c.timer.fires.IsReady() {
		c.timer.cancel()
	}
	c.timer = timer{at: at}
	if !at.IsZero() && at.Before(c.record.EndAt) {
		timed, cancel := workflow.WithCancel(ctx)
		c.timer.cancel = cancel
		left := max(at.Sub(workflow.Now(ctx)), 0)
		c.timer.fires = workflow.NewTimerWithOptions(timed, left, workflow.TimerOptions{Summary: summary})
	}
}

// changeStatus sets the status and queues its event. A transition that the life cycle does not have is an internal error
// and is not made.
func (c *conference) changeStatus(ctx workflow.Context, status berth.ConferenceStatus) {
	if c.record.Status != status && !c.record.Status.CanBecome(status) {
		workflow.GetLogger(ctx).Error("invalid conference transition", "status", c.record.Status, "next", status)
		return
	}
	c.record.Status = status
	c.queueEvent(ctx)
}

// queueEvent queues the event that describes the conference now.
func (c *conference) queueEvent(ctx workflow.Context) {
	c.outbox.events = append(c.outbox.events, c.record.Event(workflow.Now(ctx)))
}

// renumber sets the revision of the next write, and the number of the next event, beyond all that were used. A worker may
// have written more before it was killed than the history shows, and this run may now do something else: its writes must
// be later. The length of the history grows with each workflow task, so it bounds what was used.
func (c *conference) renumber(ctx workflow.Context) {
	before := ConferenceProgress{}
	if c.in.Resumed != nil {
		before = *c.in.Resumed
	}
	used := numbersPerHistoryEvent * workflow.GetInfo(ctx).GetCurrentHistoryLength()
	c.record.Revision = max(c.record.Revision+1, before.Conference.Revision+int64(used))
	c.outbox.published = max(c.outbox.published, before.Events+used)
	if c.record.Status.Final() {
		c.outbox.published = lastEventNumber - len(c.outbox.events)
	}
}

// save writes the conference to the ledger, to Redis and to its stream, holds the owner's slot and releases the others. An end is
// recorded before: nothing can be written after it.
func (c *conference) save(ctx workflow.Context) {
	if c.record.Status.Final() {
		recordDecisions(ctx)
	}
	c.renumber(ctx)
	in := SaveInput{
		Conference: c.record, Events: c.outbox.events, FirstEvent: c.outbox.published + 1, Confirmed: c.outbox.confirmed,
		Release:      c.slots.releasable,
		Unresponsive: c.placement.unresponsive, NotStarted: c.placement.notStarted, Acknowledged: c.placement.acknowledged,
	}
	if c.slots.owner != nil && !c.record.Status.Final() {
		in.Hold = &HeldSlot{Assignment: *c.slots.owner, Left: max(c.record.EndAt.Sub(workflow.Now(ctx)), 0) + ConferenceMargin}
	}
	c.delivered(len(c.outbox.events))
	c.placement.acknowledged = false
	reply, err := untilDone[SaveReply](ctx, SaveConferenceActivity, in)
	if err != nil {
		workflow.GetLogger(ctx).Error("conference not saved", "error", err) // unreachable: retried until it succeeds
	}
	c.outbox.confirm(in.FirstEvent, len(in.Events))
	c.ownerMissing(reply)
}

// ownerMissing handles an owner that was not registered when an open conference was saved. Its death may have been reported
// before the conference was known to be its own. Where Redis does not know it, Redis may have lost its data: the unit's list is
// awaited.
func (c *conference) ownerMissing(reply SaveReply) {
	switch owner := c.record.Owner; {
	case c.record.Status != berth.ConferenceOpen:
	case reply.Dead:
		c.inbox.notices = append(c.inbox.notices, UnitNotice{
			NodeID: owner.NodeID, Generation: owner.Generation, Incarnation: owner.Incarnation, Gone: berth.DepartureUnresponsive,
		})
	case reply.Gone:
		c.inbox.restore = true
	}
}

// confirm records that an activity has published that many events, from the first number.
func (o *outbox) confirm(first, events int) {
	if events > 0 {
		o.confirmed = max(o.confirmed, first+events-1)
	}
}

// delivered empties what an activity has published, released and marked.
func (c *conference) delivered(events int) {
	c.outbox.published += events
	c.outbox.events, c.slots.releasable, c.placement.unresponsive, c.placement.notStarted = nil, nil, nil, nil
}

// addOrder records a command to a unit.
func (c *conference) addOrder(ctx workflow.Context, command string, unit berth.NodeRef, epoch int64) {
	c.record.Orders = append(slices.Clone(c.record.Orders), berth.ConferenceOrder{
		At: workflow.Now(ctx), Command: command, NodeID: unit.NodeID, Generation: unit.Generation, Epoch: epoch,
	})
	c.record.Orders = c.record.Orders[max(0, len(c.record.Orders)-maxOrders):]
}

// setOutcome records the outcome of the last such command that has none.
func (c *conference) setOutcome(command string, epoch int64, outcome string) {
	for i, o := range slices.Backward(c.record.Orders) {
		if o.Command == command && o.Epoch == epoch && o.Outcome == "" {
			c.record.Orders[i].Outcome = clipText(outcome, maxOutcomeBytes)
			return
		}
	}
}

// addSegment begins the record's segment of a new owner.
func (c *conference) addSegment(owner berth.ConferenceOwner, at time.Time) {
	c.record.Segments = append(slices.Clone(c.record.Segments), berth.ConferenceSegment{
		NodeID: owner.NodeID, Generation: owner.Generation, Epoch: owner.Epoch, StartedAt: at,
	})
	if len(c.record.Segments) > maxSegments {
		c.record.Segments = mergeSegments(c.record.Segments, maxSegments/2)
	}
}

// mergeSegments merges the segment at an index with the next one.
func mergeSegments(all []berth.ConferenceSegment, at int) []berth.ConferenceSegment {
	merged, next := all[at], all[at+1]
	merged.EndedAt, merged.Reason, merged.Merged = next.EndedAt, next.Reason, merged.Merged+next.Merged+1
	return append(append(slices.Clone(all[:at]), merged), all[at+2:]...)
}

// closeSegment ends the last segment unless it has ended.
func (c *conference) closeSegment(at time.Time, reason berth.ConferenceEnd) {
	if n := len(c.record.Segments); n > 0 && c.record.Segments[n-1].EndedAt.IsZero() {
		c.record.Segments = slices.Clone(c.record.Segments)
		c.record.Segments[n-1].EndedAt, c.record.Segments[n-1].Reason = at, reason
	}
}

// ownerCopy returns the owner's copy.
func (c *conference) ownerCopy() Copy {
	o := c.record.Owner
	return Copy{NodeRef: o.Unit(), Epoch: o.Epoch}
}
