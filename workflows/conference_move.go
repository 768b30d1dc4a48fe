package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"berth"
)

// moveLinger is how long the former copy of a moved conference stays, so that its participants leave it for the new one
// before it ends.
const moveLinger = 5 * time.Second

// MoveRequest is the argument of the move update.
type MoveRequest struct {
	// ConferenceID, if set, must be the conference's; the validator rejects others as conflict.
	ConferenceID string `json:"conferenceId,omitempty"`
	Unit         string `json:"unit,omitempty"` // the unit to move to; empty for any other
}

// MoveReply is the result of the move update.
type MoveReply struct {
	Conference berth.Conference `json:"conference"`
}

// MoveInput is the argument of PlaceMove.
type MoveInput struct {
	Conference berth.Conference `json:"conference"` // the current record with its owner, which is not chosen
	Unit       string           `json:"unit,omitempty"`
	// Drain indicates that the conference moves because its unit is drained; it stays if that is undone.
	Drain        bool            `json:"drain,omitempty"`
	Failed       []berth.NodeRef `json:"failed,omitempty"`       // as in PlaceInput
	Unresponsive []berth.NodeRef `json:"unresponsive,omitempty"` // as in PlaceInput
	NotStarted   []berth.NodeRef `json:"notStarted,omitempty"`   // as in PlaceInput
	Release      []HeldSlot      `json:"release,omitempty"`      // as in PlaceInput
	Hold         time.Duration   `json:"hold"`                   // of the slot, until the copy runs
}

// MovePlan is the result of PlaceMove: a slot on another unit, or why there is none.
type MovePlan struct {
	Owner   berth.ConferenceOwner `json:"owner,omitzero"` // as it would be
	Slot    berth.Assignment      `json:"slot,omitzero"`
	Undone  bool                  `json:"undone,omitempty"` // the drain was cancelled
	Code    berth.Code            `json:"code,omitempty"`
	Message string                `json:"message,omitempty"`
	Refusal berth.Refusal         `json:"refusal,omitzero"`
}

// PlannedMove is the part of a move that a run hands to the next one.
type PlannedMove struct {
	RetryAt time.Time `json:"retryAt"`
}

// move is a planned move of an open conference. The owner stays until the new copy runs, so that participants have a room all
// the time.
type move struct {
	unit    string       // the requested unit; empty for any
	drain   bool         // because the owner is drained: it waits for capacity, which a requested move does not
	request *moveOutcome // of the update that requested it; nil for a drain
	command *unitCommand // the creation of the new copy; nil while there is none
	retryAt time.Time
	pause   time.Duration
}

// moveOutcome is the reply to a move update, once done is set.
type moveOutcome struct {
	done bool
	err  error
}

// leftover is the copy that a conference was moved from.
type leftover struct {
	Copy
	at time.Time // when it is released
}

func (m *move) inFlight() bool { return m != nil && m.command != nil }

// requestMove is the handler of the move update. It returns when the conference was moved, or could not be.
func (c *conference) requestMove(ctx workflow.Context, req MoveRequest) (MoveReply, error) {
	outcome := &moveOutcome{}
	drain := c.move != nil && c.move.drain
	c.move = &move{unit: req.Unit, drain: drain, request: outcome, retryAt: workflow.Now(ctx)}
	if err := workflow.Await(ctx, func() bool { return outcome.done }); err != nil {
		return MoveReply{}, err
	}
	return MoveReply{Conference: c.record}, outcome.err
}

// validateMove rejects a move of a conference that is not open, or that is being moved.
func (c *conference) validateMove(_ workflow.Context, req MoveRequest) error {
	switch {
	case req.ConferenceID != "" && req.ConferenceID != c.in.ConferenceID || c.ending.reason != "":
		return refuse(berth.CodeConflict, "the conference has ended")
	case c.record.Status != berth.ConferenceOpen:
		return refuse(berth.CodeConflict, "the conference is not open (status "+string(c.record.Status)+")")
	case !c.record.Recoverable:
		return refuse(berth.CodeConflict, "the conference cannot be moved: it is not recoverable")
	case c.move != nil && (c.move.request != nil || c.move.command != nil):
		return refuse(berth.CodeConflict, "the conference is being moved")
	case req.Unit == c.record.Owner.NodeID:
		return refuse(berth.CodeConflict, "the conference is on unit "+req.Unit)
	}
	return nil
}

// drainOwner moves the conference because its owner is drained.
func (c *conference) drainOwner(ctx workflow.Context) {
	if c.move == nil {
		c.move = &move{retryAt: workflow.Now(ctx)}
	}
	c.move.drain = true
}

// nextMove returns the next step of a planned move, or nil.
func (c *conference) nextMove(now time.Time) step {
	switch {
	case len(c.leftovers) > 0 && !now.Before(c.leftovers[0].at):
		return c.releaseLeftover
	case c.move == nil || c.inFlight.adoption != nil:
		return nil
	case c.move.command.replied():
		return c.moveReplied
	case c.record.Status == berth.ConferenceOpen && c.move.command == nil && (c.inbox.capacity || !now.Before(c.move.retryAt)):
		return c.startMove
	}
	return nil
}

// moveDue returns when the next step of a planned move is due without an event; zero when there is none.
func (c *conference) moveDue() (at time.Time) {
	if c.move != nil && c.move.command == nil && c.record.Status == berth.ConferenceOpen {
		at = c.move.retryAt
	}
	if len(c.leftovers) > 0 && (at.IsZero() || c.leftovers[0].at.Before(at)) {
		at = c.leftovers[0].at
	}
	return at
}

// startMove reserves a slot on another unit and sends it the command to run the conference.
func (c *conference) startMove(ctx workflow.Context) {
	m := c.move
	c.inbox.capacity = false
	plan, err := local[MovePlan](once(ctx, 5*time.Second, ""), PlaceMoveActivity, MoveInput{
		Conference: c.record, Unit: m.unit, Drain: m.drain && m.request == nil, Failed: c.placement.excluded(workflow.Now(ctx)),
		Unresponsive: c.placement.unresponsive, NotStarted: c.placement.notStarted, Release: c.slots.releasable,
		Hold: c.in.Rules.hold(),
	})
	if err != nil && m.pause == 0 {
		c.warn(ctx, "conference not moved", err)
	}
	switch {
	case err != nil && m.request != nil:
		c.refuseMove(refuse(berth.CodeUnavailable, "the conference could not be moved; retry in a few seconds"))
	case err != nil:
		c.retryMove(ctx)
	case plan.Undone:
		c.move = nil
		c.waitForMove(ctx, "")
	case plan.Code != "":
		c.slots.releasable, c.placement.unresponsive, c.placement.notStarted = nil, nil, nil
		c.noUnitToMoveTo(ctx, plan)
	default:
		c.slots.releasable, c.placement.unresponsive, c.placement.notStarted = nil, nil, nil
		at := workflow.Now(ctx).Truncate(time.Millisecond)
		m.command = c.command(ctx, berth.ActivityRecoverConference, plan.Owner, plan.Slot, at)
	}
}

// noUnitToMoveTo refuses a requested move. A drain waits, and the conference stays open on its unit.
func (c *conference) noUnitToMoveTo(ctx workflow.Context, plan MovePlan) {
	m := c.move
	if m.request != nil {
		c.refuseMove(refuseFor("", plan.Code, plan.Message, plan.Refusal))
	}
	if !m.drain {
		return
	}
	if plan.Code == berth.CodeUnavailable {
		c.retryMove(ctx)
		return
	}
	m.retryAt, m.pause = workflow.Now(ctx).Add(c.in.Rules.Retry), 0
	c.waitForMove(ctx, "unit "+c.record.Owner.NodeID+" is drained: "+plan.Message)
}

func (c *conference) retryMove(ctx workflow.Context) {
	m := c.move
	m.pause = min(max(2*m.pause, minPlacePause), maxPlacePause)
	m.retryAt = workflow.Now(ctx).Add(m.pause)
}

// waitForMove writes why the conference, which stays open, waits to be moved; empty when it does not.
func (c *conference) waitForMove(ctx workflow.Context, why string) {
	if c.record.Waiting == why {
		return
	}
	c.record.Waiting, c.record.Moving = why, why != ""
	c.queueEvent(ctx)
	c.save(ctx)
}

// refuseMove ends a requested move. A drain that it was part of continues.
func (c *conference) refuseMove(err error) {
	m := c.move
	m.request.err, m.request.done = err, true
	m.request, m.unit = nil, ""
	if !m.drain {
		c.move = nil
	}
}

// moveReplied handles the reply of the unit that the conference moves to.
func (c *conference) moveReplied(ctx workflow.Context) {
	m := c.move
	command := m.command
	m.command = nil
	err := command.reply.Get(ctx, nil)
	outcome, refused := outcomeOf(err)
	c.setOutcome(command.name, command.owner.Epoch, outcome)
	if err == nil {
		c.moved(ctx, command)
		return
	}
	unit := command.copyRef().NodeRef
	c.slots.release(command.slot)
	c.placement.refusedBy(unit, workflow.Now(ctx).Add(c.in.Rules.Retry))
	switch {
	case refused:
	case notStarted(err):
		c.placement.notStarted = append(c.placement.notStarted, unit)
	default: // the copy may exist there
		c.placement.unresponsive = append(c.placement.unresponsive, unit)
		c.withdraw(ctx, command.copyRef())
	}
	m.retryAt = workflow.Now(ctx) // another unit is tried
	if m.unit != "" {
		c.refuseMove(refuse(berth.CodeUnitRefused, "unit "+m.unit+" "+outcome))
	}
}

// moved makes the unit that acknowledged the new copy the owner. The former copy stays for a time.
func (c *conference) moved(ctx workflow.Context, command *unitCommand) {
	m, former, now := c.move, c.ownerCopy(), workflow.Now(ctx)
	c.move = nil
	c.copies.fence(former.Epoch)
	c.leftovers = append(c.leftovers, leftover{former, now.Add(moveLinger)})
	if c.slots.owner != nil {
		c.slots.release(*c.slots.owner)
	}
	reason := berth.EndMoved
	if m.drain {
		reason = berth.EndDrained
	}
	c.closeSegment(now, reason)
	c.record.Moving = false
	c.opened(ctx, command)
	c.requestReport(ctx)
	if m.request != nil {
		m.request.done = true
	}
}

// abandonMove gives up a planned move, because the conference has lost its owner or ends.
func (c *conference) abandonMove(ctx workflow.Context, outcome string) {
	m := c.move
	if m == nil {
		return
	}
	c.move, c.record.Moving = nil, false
	if m.request != nil {
		m.request.err, m.request.done = refuse(berth.CodeUnavailable, "the conference was not moved: "+outcome), true
	}
	if m.command == nil {
		return
	}
	m.command.cancel()
	c.setOutcome(m.command.name, m.command.owner.Epoch, outcome)
	c.slots.release(m.command.slot)
	c.withdraw(ctx, m.command.copyRef())
}

// moveTargetGone makes a move try another unit when the one that it sent the command to is lost.
func (c *conference) moveTargetGone(ctx workflow.Context, n UnitNotice) {
	if !c.move.inFlight() || c.move.command.owner.NodeID != n.NodeID || c.move.command.owner.Generation > n.Generation {
		return
	}
	m := c.move
	m.command.cancel()
	c.setOutcome(m.command.name, m.command.owner.Epoch, outcomeLost)
	c.slots.release(m.command.slot)
	c.withdraw(ctx, m.command.copyRef())
	m.command, m.retryAt = nil, workflow.Now(ctx)
	if m.unit != "" {
		c.refuseMove(refuse(berth.CodeNodeFailed, "unit "+m.unit+" was lost"))
	}
}

// releaseLeftover releases the copy that the conference was moved from.
func (c *conference) releaseLeftover(ctx workflow.Context) {
	old := c.leftovers[0]
	c.leftovers = c.leftovers[1:]
	c.withdraw(ctx, old.Copy)
}
