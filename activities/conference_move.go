package activities

import (
	"context"
	"errors"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// PlaceMove takes an epoch and a slot on another unit than the owner's, for a planned move. It changes no owner. Not
// idempotent: another call takes another slot, and that of the first one expires.
func (c *Conferences) PlaceMove(ctx context.Context, in workflows.MoveInput) (plan workflows.MovePlan, err error) {
	if err := c.ReleaseSlots(ctx, workflows.HeldSlots{Slots: in.Release}); err != nil {
		return plan, err
	}
	c.markUnresponsive(ctx, in.Unresponsive)
	c.markIdle(ctx, in.NotStarted)
	owner := in.Conference.Owner
	if in.Drain {
		units, err := c.Scripts.ReadNodes(ctx, owner.NodeID)
		if err != nil {
			return plan, unavailable("unit not read", err)
		}
		if units[owner.NodeID].DrainUntil.IsZero() {
			return workflows.MovePlan{Undone: true}, nil
		}
	}
	var slot berth.Assignment
	if in.Unit != "" {
		slot, err = c.assignUnit(ctx, in)
	} else {
		from := owner.Unit()
		slot, err = c.assign(ctx, workflows.PlaceInput{Conference: in.Conference, Failed: append(in.Failed, from), Hold: in.Hold, AnyZone: in.Conference.ZoneFallback})
	}
	var refusal *berth.Refusal
	switch {
	case errors.As(err, &refusal):
		return workflows.MovePlan{Code: refusal.Code, Message: refusal.Error(), Refusal: *refusal}, nil
	case err != nil:
		return plan, refused(err)
	}
	if owner, err = c.ownerOf(ctx, slot); err != nil {
		return plan, unavailable("unit not read", err)
	}
	return workflows.MovePlan{Slot: slot, Owner: owner}, nil
}

// assignUnit takes an epoch and a slot on the unit that an operator has chosen.
func (c *Conferences) assignUnit(ctx context.Context, in workflows.MoveInput) (berth.Assignment, error) {
	units, err := c.Scripts.ReadNodes(ctx, in.Unit)
	if err != nil {
		return berth.Assignment{}, err
	}
	unit, known := units[in.Unit]
	refusal := &berth.Refusal{Code: berth.CodeNoNode, PoolID: berth.CapabilityConference}
	switch {
	case !known || unit.Kind != berth.NodeMedia || unit.State == berth.NodeDead:
		refusal.Message = "media unit " + in.Unit + " is not registered"
		return berth.Assignment{}, refusal
	case unit.Excluded != "":
		refusal.Message = "media unit " + in.Unit + " takes no conferences: " + string(unit.Excluded)
		refusal.Reasons = map[berth.ExcludeReason]int{unit.Excluded: 1}
		return berth.Assignment{}, refusal
	}
	epoch, err := c.Ledger.NextEpoch(ctx, in.Conference.E164)
	if err != nil {
		return berth.Assignment{}, err
	}
	slot := berth.Assignment{
		LeaseID: conferenceLease(in.Conference.ID, epoch), NodeRef: berth.NodeRef{NodeID: unit.ID, Generation: unit.Generation}, PoolID: berth.CapabilityConference,
	}
	code, err := c.Scripts.RestoreNodeSlot(ctx, slot, in.Hold)
	if err == nil && code != lua.NodeSlotHeld {
		refusal.Message = "media unit " + in.Unit + " is not registered"
		return berth.Assignment{}, refusal
	}
	return slot, err
}
