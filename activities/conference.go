package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth"
	"berth/internal/ledger"
	"berth/internal/placement"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// Conferences are the activities of conferences.
type Conferences struct {
	NodeSlots
	Ledger  *ledger.Ledger
	Placer  *placement.Placer
	Starter *starter.Starter
	// StreamTTL is how long a conference's stream is kept after its end, StreamTrim its approximate number of events.
	StreamTTL  time.Duration
	StreamTrim int64
	// Licences is how many conferences may exist at the same time; 0 is no limit. WaitingKeepsLicence includes those that
	// wait for recovery.
	Licences            int
	WaitingKeepsLicence bool
	// RecordWithin is for how long it is tried to send the record of an ended conference; 0 where records are not sent.
	RecordWithin time.Duration
}

// MaxInFlight is how many commands a unit may have to acknowledge when it gets a recovery: a few for each that it runs at the
// same time, so that none waits for long.
const MaxInFlight = 4 * berth.MaxUnitCommands

// inFlightWithin is the time within which the slot of a command expires unless it is acknowledged: a confirmed slot is held for longer.
const inFlightWithin = workflows.ConferenceMargin - time.Second

// PlaceConference takes an epoch and a slot of a media unit, and writes the new owner, to the ledger first. Without
// capacity or a licence, a conference that was open before is written as waiting and then tried again, so that it
// cannot miss capacity that becomes free in between. Not idempotent: another call takes another slot, and that of the
// first one expires.
func (c *Conferences) PlaceConference(ctx context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
	if err := c.ReleaseSlots(ctx, workflows.HeldSlots{Slots: in.Release}); err != nil {
		return workflows.PlaceReply{}, err
	}
	c.markUnresponsive(ctx, in.Unresponsive)
	c.markIdle(ctx, in.NotStarted)
	events := in.Events
	reply, err := c.tryToPlace(ctx, in, events)
	if err == nil && reply.Code != "" && !in.First {
		waiting := in.Conference
		if waiting.Waiting = reply.Message; waiting.Waiting != in.Conference.Waiting {
			events = append(events[:len(events):len(events)], waiting.Event(in.At))
		}
		if err = c.writeWaiting(ctx, waiting, events, in); err == nil {
			reply, err = c.tryToPlace(ctx, in, events)
		}
	}
	if err != nil {
		return workflows.PlaceReply{}, refused(err)
	}
	return reply, nil
}

// tryToPlace makes one attempt, and returns the owner or the reason why there is none. published are the events that were
// published before.
func (c *Conferences) tryToPlace(
	ctx context.Context, in workflows.PlaceInput, published []berth.ConferenceEvent,
) (workflows.PlaceReply, error) {
	reply, err := c.checkLicence(ctx, in)
	if err == nil && reply.Code == "" {
		var slot berth.Assignment
		var refusal *berth.Refusal
		switch slot, err = c.assign(ctx, in); {
		case errors.As(err, &refusal):
			reply.Code, reply.Message, reply.Refusal, err = refusal.Code, refusal.Error(), *refusal, nil
		case err == nil:
			return c.placed(ctx, in, slot, published)
		}
	}
	reply.Events = len(published)
	return reply, err
}

// assign takes an epoch and, under it, a slot on a unit, which is in the conference's zone if it has one. A recovery takes
// none on a unit that has MaxInFlight commands to acknowledge already.
func (c *Conferences) assign(ctx context.Context, in workflows.PlaceInput) (slot berth.Assignment, err error) {
	epoch, err := c.Ledger.NextEpoch(ctx, in.Conference.E164)
	if err != nil {
		return berth.Assignment{}, err
	}
	zone, excluded := in.Conference.Zone, slices.Clone(in.Failed)
	for busy := 0; ; {
		slot, err = c.Placer.Assign(ctx, conferenceLease(in.Conference.ID, epoch), placement.Request{
			Requirements: berth.Requirements{
				PoolID: berth.CapabilityConference, Capabilities: []string{berth.CapabilityConference},
				Services: []string{berth.ServiceCommands},
			},
			Kind: berth.NodeMedia, Zone: zone, Failed: excluded, Hold: in.Hold,
		})
		if _, refused := errors.AsType[*berth.Refusal](err); refused && in.AnyZone && zone != "" {
			zone = ""
			continue
		}
		if err != nil && busy > 0 {
			err = &berth.Refusal{
				Code: berth.CodeUnavailable, PoolID: berth.CapabilityConference,
				Message: fmt.Sprintf("units with capacity are recovering other conferences (%d)", busy),
			}
		}
		if err != nil || in.First {
			break
		}
		commands, err := c.Scripts.CountInFlight(ctx, slot.NodeID, inFlightWithin)
		if err != nil {
			return berth.Assignment{}, err
		}
		if commands <= MaxInFlight {
			return slot, nil
		}
		if _, err := c.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
			return berth.Assignment{}, err
		}
		excluded = append(excluded, slot.NodeRef)
		busy++
	}
	refusal, ok := errors.AsType[*berth.Refusal](err)
	if ok && zone != "" && refusal.Code == berth.CodeNoNode && len(refusal.Reasons) == 0 {
		refusal.Message = "no media unit is registered in zone " + zone
	}
	return slot, err
}

// placed writes the new owner. It releases the slot if that fails or no licence is free.
func (c *Conferences) placed(
	ctx context.Context, in workflows.PlaceInput, slot berth.Assignment, events []berth.ConferenceEvent,
) (workflows.PlaceReply, error) {
	owner, err := c.ownerOf(ctx, slot)
	if err != nil {
		return workflows.PlaceReply{}, err
	}
	placed := workflows.Placed(in.Conference, owner, in.At)
	reply, err := c.takeLicence(ctx, in, placed)
	if err == nil && reply.Code == "" {
		reply.Owner, reply.Slot = owner, slot
		events = append(events[:len(events):len(events)], placed.Event(in.At))
		err = c.write(ctx, placed, events, in.FirstEvent, in.Confirmed)
	}
	reply.Events = len(events)
	if err != nil || reply.Code != "" {
		if _, rerr := c.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); rerr != nil {
			c.Logger.WarnContext(ctx, "slot not released; it expires", "lease", slot.LeaseID, "unit", slot.NodeID, "error", rerr)
		}
	}
	return reply, err
}

// conferenceLease returns the lease id of the slot of the copy with this epoch.
func conferenceLease(conferenceID string, epoch int64) string {
	return "conference:" + conferenceID + ":" + strconv.FormatInt(epoch, 10)
}

// ownerOf returns the owner that holds a slot.
func (c *Conferences) ownerOf(ctx context.Context, slot berth.Assignment) (berth.ConferenceOwner, error) {
	units, err := c.Scripts.ReadNodes(ctx, slot.NodeID)
	return berth.ConferenceOwner{
		NodeID: slot.NodeID, Generation: slot.Generation, Incarnation: units[slot.NodeID].Incarnation, Epoch: epochOf(slot),
	}, err
}

// epochOf returns the epoch in a lease id that conferenceLease returned.
func epochOf(slot berth.Assignment) int64 {
	epoch, _ := strconv.ParseInt(slot.LeaseID[strings.LastIndexByte(slot.LeaseID, ':')+1:], 10, 64)
	return epoch
}

// SaveConference writes a conference to the ledger, to Redis and to its stream, holds the owner's slot and releases other
// slots. It removes an ended conference from Redis, notifies waiting conferences of its capacity and starts to send its record. If
// the conference awaits its unit's list, it requests that list. Idempotent.
func (c *Conferences) SaveConference(ctx context.Context, in workflows.SaveInput) (reply workflows.SaveReply, err error) {
	if err := c.write(ctx, in.Conference, in.Events, in.FirstEvent, in.Confirmed); err != nil {
		return reply, unavailable("conference not written", err)
	}
	c.markUnresponsive(ctx, in.Unresponsive)
	c.markIdle(ctx, in.NotStarted)
	if in.Acknowledged {
		c.markResponsive(ctx, in.Conference.Owner.NodeID)
	}
	if reply, err = c.holdSlot(ctx, in.Hold); err != nil {
		return reply, err
	}
	if err := c.ReleaseSlots(ctx, workflows.HeldSlots{Slots: in.Release}); err != nil {
		return reply, err
	}
	if in.Acknowledged {
		if err := c.notifyWaiting(ctx, in.Hold); err != nil {
			return reply, err
		}
	}
	switch {
	case in.Conference.Status == berth.ConferenceAwaitingConnection:
		return reply, c.requestList(ctx, in.Conference.Owner)
	case in.Conference.Status.Final():
		if err := c.offerCapacity(ctx, in.Release); err != nil {
			return reply, err
		}
		return reply, c.sendRecord(ctx, in.Conference)
	default:
		return reply, nil
	}
}

// holdSlot holds the owner's slot, and reports a unit that is not registered with its generation.
func (c *Conferences) holdSlot(ctx context.Context, slot *workflows.HeldSlot) (reply workflows.SaveReply, err error) {
	if slot == nil {
		return reply, nil
	}
	code, err := c.Scripts.RestoreNodeSlot(ctx, slot.Assignment, slot.Left)
	if err != nil {
		return reply, unavailable("slot not held", err)
	}
	if code == lua.NodeSlotHeld {
		return reply, nil
	}
	units, err := c.Scripts.ReadNodes(ctx, slot.NodeID)
	if err != nil {
		return reply, unavailable("unit not read", err)
	}
	unit := units[slot.NodeID] // the zero node if Redis does not know it
	reply = workflows.SaveReply{Gone: true, Dead: unit.Generation == slot.Generation && unit.State == berth.NodeDead}
	c.Logger.WarnContext(ctx, "conference has lost its slot", "lease", slot.LeaseID, "unit", slot.NodeID, "dead", reply.Dead)
	return reply, nil
}

// sendRecord starts to send the record of a conference that was accepted, once.
func (c *Conferences) sendRecord(ctx context.Context, conf berth.Conference) error {
	if c.RecordWithin == 0 || conf.Status != berth.ConferenceEnded {
		return nil
	}
	if err := c.Starter.SendRecord(ctx, workflows.RecordInput{ConferenceID: conf.ID, Within: c.RecordWithin}, false); err != nil {
		return unavailable("record not sent", err)
	}
	return nil
}

// offerCapacity notifies waiting conferences of the licence and the slot of one that has ended.
func (c *Conferences) offerCapacity(ctx context.Context, released []workflows.HeldSlot) error {
	err := c.offerLicences(ctx)
	if err == nil && len(released) > 0 {
		zone := c.Fleet.Snapshot().Nodes[released[0].NodeID].Zone
		err = wakeWaiting(ctx, c.Ledger, c.Starter, map[string]int{zone: 1}, 1)
	}
	if err != nil {
		return unavailable("waiting conferences not notified", err)
	}
	return nil
}

// notifyWaiting notifies waiting conferences when a unit that had many commands has acknowledged one: some may have been held
// back because of that.
func (c *Conferences) notifyWaiting(ctx context.Context, slot *workflows.HeldSlot) error {
	if slot == nil {
		return nil
	}
	commands, err := c.Scripts.CountInFlight(ctx, slot.NodeID, inFlightWithin)
	if err == nil && commands >= MaxInFlight/2 {
		var free map[string]int
		if free, err = freeCapacity(ctx, c.Scripts, []string{slot.NodeID}); err == nil {
			err = wakeWaiting(ctx, c.Ledger, c.Starter, free, MaxInFlight-commands)
		}
	}
	if err != nil {
		return unavailable("waiting conferences not notified", err)
	}
	return nil
}

// markIdle marks units that did not start a command as unresponsive, unless they run many other commands: a unit runs few at
// a time, so the command may have waited for these.
func (c *Conferences) markIdle(ctx context.Context, units []berth.NodeRef) {
	for _, u := range units {
		commands, err := c.Scripts.CountInFlight(ctx, u.NodeID, inFlightWithin)
		switch {
		case err != nil:
			c.Logger.WarnContext(ctx, "commands of the unit not counted", "unit", u.NodeID, "error", err)
		case commands < berth.MaxUnitCommands:
			c.markUnresponsive(ctx, []berth.NodeRef{u})
		default:
			c.Logger.InfoContext(ctx, "unit is busy with commands", "unit", u.NodeID, "generation", u.Generation, "commands", commands)
		}
	}
}

// markUnresponsive excludes units that did not reply to a command for a period. Without it, a unit that still sends
// heartbeats would be chosen for the next conference, too.
func (c *Conferences) markUnresponsive(ctx context.Context, units []berth.NodeRef) {
	for _, u := range units {
		if c.Fleet.Snapshot().Nodes[u.NodeID].Generation == u.Generation {
			c.Logger.WarnContext(ctx, "unit did not reply to a command and is skipped", "unit", u.NodeID,
				"generation", u.Generation, "for", workflows.SkipUnresponsiveFor)
			c.markUnavailable(ctx, u.NodeID, workflows.SkipUnresponsiveFor)
		}
	}
}

// markResponsive removes the mark of a unit that has one.
func (c *Conferences) markResponsive(ctx context.Context, unitID string) {
	if !c.Fleet.Snapshot().Nodes[unitID].Unavailable[berth.ServiceCommands].IsZero() {
		c.markUnavailable(ctx, unitID, 0)
	}
}

// markUnavailable marks a unit for a period; 0 removes the mark. It is a hint, so an error is only logged.
func (c *Conferences) markUnavailable(ctx context.Context, unitID string, period time.Duration) {
	if _, err := c.Scripts.MarkUnavailable(ctx, unitID, berth.ServiceCommands, period); err != nil {
		c.Logger.WarnContext(ctx, "unit not marked", "unit", unitID, "for", period, "error", err)
	}
}

// requestList requests the list of a unit that Redis still knows: such a unit does not register again.
func (c *Conferences) requestList(ctx context.Context, owner berth.ConferenceOwner) error {
	unit, err := readUnitState(ctx, c.Scripts, owner.NodeID)
	if err != nil || unit.Generation != owner.Generation {
		return err
	}
	return c.NotifyLink(ctx, workflows.LinkRequest{Unit: owner.Unit()})
}

// write writes a conference to the ledger and to Redis, and appends the events, of which first is the first's number; confirmed is that of
// the last event that is known to be in the stream.
func (c *Conferences) write(ctx context.Context, conf berth.Conference, events []berth.ConferenceEvent, first, confirmed int) error {
	if err := c.Ledger.SaveConference(ctx, conf); err != nil {
		return err
	}
	if _, err := c.writeRow(ctx, conf, c.licence(conf)); err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	lines, err := encode(events)
	if err != nil {
		return fmt.Errorf("event of conference %s: %w", conf.E164, err)
	}
	ttl := max(time.Until(conf.EndAt), 0) + c.StreamTTL
	_, err = c.Scripts.AppendEvents(ctx, lua.ConferenceChannel(conf.UserID, conf.E164), lua.Append{
		Producer: conf.ID, First: first, Confirmed: confirmed, TTL: ttl, Trim: c.StreamTrim, Events: lua.StreamEntries(lines...),
	})
	return err
}

// writeRow writes a conference to Redis, or removes an ended one, and returns the script's code.
func (c *Conferences) writeRow(ctx context.Context, conf berth.Conference, licence lua.Licence) (code string, err error) {
	if conf.Status.Final() {
		return c.Scripts.DropConference(ctx, conf.E164, conf.ID, conf.Epoch)
	}
	basic, err := json.Marshal(conf.ConferenceSpec)
	if err != nil {
		return "", fmt.Errorf("basic data of conference %s: %w", conf.E164, err)
	}
	code, err = c.Scripts.PutConference(ctx, lua.ConferenceRow{
		E164: conf.E164, ConferenceID: conf.ID, NodeID: conf.Owner.NodeID, Generation: conf.Owner.Generation,
		Epoch: conf.Epoch, Revision: conf.Revision, Status: conf.Status, StartedAt: conf.CopyStartedAt,
	}, basic, licence)
	if code == lua.ConferenceStale {
		c.Logger.WarnContext(ctx, "stale conference row not written", "e164", conf.E164, "epoch", conf.Epoch, "revision", conf.Revision)
	}
	return code, err
}

// PrepareAdoption takes an epoch, and a slot for an existing copy, which may exceed the unit's capacity. Not idempotent:
// another call takes another epoch, and the slot of the first one expires.
func (c *Conferences) PrepareAdoption(ctx context.Context, in workflows.AdoptionInput) (workflows.AdoptionReply, error) {
	epoch, err := c.Ledger.NextEpoch(ctx, in.E164)
	if err != nil {
		return workflows.AdoptionReply{}, unavailable("no epoch", err)
	}
	slot := berth.Assignment{
		LeaseID: conferenceLease(in.ConferenceID, epoch), NodeRef: berth.NodeRef{NodeID: in.Unit.NodeID, Generation: in.Unit.Generation},
		PoolID: berth.CapabilityConference,
	}
	code, err := c.Scripts.RestoreNodeSlot(ctx, slot, in.Hold)
	if err != nil {
		return workflows.AdoptionReply{}, unavailable("slot not held", err)
	}
	return workflows.AdoptionReply{Epoch: epoch, Slot: slot, Gone: code != lua.NodeSlotHeld}, nil
}

// NotifyLink signals a unit's link, and starts it if it is not running. Idempotent.
func (c *Conferences) NotifyLink(ctx context.Context, in workflows.LinkRequest) error {
	signal, arg := workflows.SignalWithdraw, any(in.Withdraw)
	if in.Withdraw == nil {
		signal, arg = workflows.SignalNotice, berth.NodeNotice{
			NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, Kind: berth.NodeMedia, Reason: berth.ArrivalRegistered,
		}
	}
	if err := c.Starter.SignalLink(ctx, in.Unit, signal, arg); err != nil {
		return unavailable("link of the unit not notified", err)
	}
	return nil
}

func readUnitState(ctx context.Context, scripts *lua.Scripts, nodeID string) (workflows.UnitState, error) {
	units, err := scripts.ReadNodes(ctx, nodeID)
	if err != nil {
		return workflows.UnitState{}, unavailable("unit not read", err)
	}
	if u, ok := units[nodeID]; ok && u.State != berth.NodeDead {
		return workflows.UnitState{Generation: u.Generation}, nil
	}
	return workflows.UnitState{}, nil
}
