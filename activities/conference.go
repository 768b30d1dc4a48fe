package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"berth"
	"berth/internal/fleet"
	"berth/internal/ledger"
	"berth/internal/placement"
	"berth/internal/starter"
	"berth/lua"
	"berth/workflows"
)

// Conferences are the side effects of conferences.
type Conferences struct {
	Ledger  *ledger.Ledger
	Scripts *lua.Scripts
	Fleet   *fleet.Fleet
	Placer  *placement.Placer
	Starter *starter.Starter
	Logger  *slog.Logger
	// StreamTTL is how long a conference's stream is kept after its end, StreamTrim about how many events it has.
	StreamTTL  time.Duration
	StreamTrim int64
	// Licences is how many conferences may be alive at once, 0 is no limit; WaitingKeepsLicence counts those among them that
	// wait for recovery (C22).
	Licences            int
	WaitingKeepsLicence bool
}

// PlaceConference takes an epoch and a slot of a media unit, and writes whose the conference is, in the ledger first (C16).
// Where there is no room, a conference that was open before is written as it waits, and it is looked once more after that:
// whoever makes room from then on finds it. A licence is as good as room. Called again it decides anew: what is left of the
// first time lapses.
func (c *Conferences) PlaceConference(ctx context.Context, in workflows.PlaceInput) (workflows.PlaceReply, error) {
	if err := c.free(ctx, in.Release); err != nil {
		return workflows.PlaceReply{}, err
	}
	c.passOver(ctx, in.Unresponsive)
	events := in.Events
	reply, err := c.tryToPlace(ctx, in, events)
	if err == nil && reply.Code != "" && !in.First {
		waits := in.Conference
		if waits.Waiting = reply.Message; waits.Waiting != in.Conference.Waiting {
			events = append(events[:len(events):len(events)], waits.Event(in.At))
		}
		if err = c.wait(ctx, waits, events, in); err == nil {
			reply, err = c.tryToPlace(ctx, in, events)
		}
	}
	if err != nil {
		return workflows.PlaceReply{}, refused(err)
	}
	return reply, nil
}

// tryToPlace places a conference behind the events that were told already, or answers why it cannot be.
func (c *Conferences) tryToPlace(ctx context.Context, in workflows.PlaceInput, told []berth.ConferenceEvent) (workflows.PlaceReply, error) {
	reply, err := c.unlicensed(ctx, in)
	if err == nil && reply.Code == "" {
		var slot berth.Assignment
		var refusal *berth.Refusal
		switch slot, err = c.assign(ctx, in); {
		case errors.As(err, &refusal):
			reply.Code, reply.Message, reply.Refusal, err = refusal.Code, refusal.Error(), *refusal, nil
		case err == nil:
			return c.placed(ctx, in, slot, told)
		}
	}
	reply.Events = len(told)
	return reply, err
}

// assign takes an epoch and with it a slot, on a unit of the conference's zone where it has one.
func (c *Conferences) assign(ctx context.Context, in workflows.PlaceInput) (berth.Assignment, error) {
	epoch, err := c.Ledger.NextEpoch(ctx, in.Conference.E164)
	if err != nil {
		return berth.Assignment{}, err
	}
	zone := in.Conference.Zone
	slot, err := c.Placer.Assign(ctx, conferenceLease(in.Conference.ID, epoch), placement.Request{
		Requirements: berth.Requirements{
			PoolID: berth.CapabilityConference, Capabilities: []string{berth.CapabilityConference}, Services: []string{berth.ServiceCommands},
		},
		Kind: berth.NodeMedia, Zone: zone, Failed: generations(in.Failed), Hold: in.Hold,
	})
	var refusal *berth.Refusal
	if errors.As(err, &refusal) && zone != "" && refusal.Code == berth.CodeNoNode && len(refusal.Reasons) == 0 {
		refusal.Message = "no media unit is registered in zone " + zone
	}
	return slot, err
}

// conferenceLease is the lease of the room that the copy with this epoch has on its unit.
func conferenceLease(conferenceID string, epoch int64) string {
	return "conference:" + conferenceID + ":" + strconv.FormatInt(epoch, 10)
}

// placed writes whose the conference is now, and gives its slot back where that cannot be: no licence is free, or it fails.
func (c *Conferences) placed(
	ctx context.Context, in workflows.PlaceInput, slot berth.Assignment, events []berth.ConferenceEvent,
) (workflows.PlaceReply, error) {
	units, err := c.Scripts.ReadNodes(ctx, slot.NodeID)
	if err != nil {
		return workflows.PlaceReply{}, err
	}
	owner := berth.ConferenceOwner{
		NodeID: slot.NodeID, Generation: slot.Generation, Incarnation: units[slot.NodeID].Incarnation, Epoch: epochOf(slot),
	}
	now := workflows.Placed(in.Conference, owner, in.At)
	reply, err := c.takeLicence(ctx, in, now)
	if err == nil && reply.Code == "" {
		reply.Owner, reply.Slot = owner, slot
		events = append(events[:len(events):len(events)], now.Event(in.At))
		err = c.write(ctx, now, events, in.FirstEvent)
	}
	reply.Events = len(events)
	if err != nil || reply.Code != "" {
		if _, rerr := c.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); rerr != nil {
			c.Logger.WarnContext(ctx, "a slot was left to lapse", "lease", slot.LeaseID, "unit", slot.NodeID, "error", rerr)
		}
	}
	return reply, err
}

func epochOf(slot berth.Assignment) int64 {
	for i := len(slot.LeaseID) - 1; i >= 0; i-- {
		if slot.LeaseID[i] == ':' {
			n, _ := strconv.ParseInt(slot.LeaseID[i+1:], 10, 64) // conferenceLease wrote it
			return n
		}
	}
	return 0
}

// SaveConference writes a conference to the ledger, to Redis and to its stream, and holds its slot or gives slots back. One
// that is over is forgotten in Redis, and one that waits is told that there is room (C2). Where a unit's list has to tell, the
// unit is asked for it. Idempotent.
func (c *Conferences) SaveConference(ctx context.Context, in workflows.SaveInput) error {
	if err := c.write(ctx, in.Conference, in.Events, in.FirstEvent); err != nil {
		return again(berth.CodeUnavailable, "the conference cannot be written", 0, err)
	}
	c.passOver(ctx, in.Unresponsive)
	if owner := in.Conference.Owner.NodeID; in.Answered && !c.Fleet.Snapshot().Nodes[owner].Unavailable[berth.ServiceCommands].IsZero() {
		c.available(ctx, owner, 0)
	}
	if in.Hold != nil {
		code, err := c.Scripts.SeizeNodeSlot(ctx, in.Hold.Assignment, in.Hold.Left)
		if err != nil {
			return again(berth.CodeUnavailable, "the unit's slot cannot be held", 0, err)
		}
		if code != lua.NodeSlotHeld { // its death is told, or its next generation lists the conference
			c.Logger.WarnContext(ctx, "the slot of a conference is lost", "lease", in.Hold.LeaseID, "unit", in.Hold.NodeID)
		}
	}
	if err := c.free(ctx, in.Release); err != nil {
		return err
	}
	if in.Conference.Status == berth.ConferenceAwaitingConnection {
		return c.askForList(ctx, in.Conference.Owner)
	}
	if !in.Conference.Status.Final() {
		return nil
	}
	err := c.wakeUnlicensed(ctx)
	if err == nil && len(in.Release) > 0 {
		zone := c.Fleet.Snapshot().Nodes[in.Release[0].NodeID].Zone
		err = wakeWaiting(ctx, c.Ledger, c.Starter, map[string]int{zone: 1}, 1)
	}
	if err != nil {
		return again(berth.CodeUnavailable, "those who wait cannot be told", 0, err)
	}
	return nil
}

// passOver has units that have not answered passed over for a time: as long as they heartbeat, each would get the next
// conference first, and keep whoever wants it waiting.
func (c *Conferences) passOver(ctx context.Context, silent []workflows.NodeRef) {
	for _, u := range silent {
		if c.Fleet.Snapshot().Nodes[u.NodeID].Generation == u.Generation {
			c.Logger.WarnContext(ctx, "a unit has not answered a command and is passed over", "unit", u.NodeID, "generation", u.Generation,
				"for", workflows.SkipUnresponsiveFor)
			c.available(ctx, u.NodeID, workflows.SkipUnresponsiveFor)
		}
	}
}

// available marks a unit as answering, or for a time as not. It is a hint: what fails is done without.
func (c *Conferences) available(ctx context.Context, unitID string, again time.Duration) {
	if _, err := c.Scripts.MarkUnavailable(ctx, unitID, berth.ServiceCommands, again); err != nil {
		c.Logger.WarnContext(ctx, "a unit cannot be marked", "unit", unitID, "error", err)
	}
}

// askForList has a unit asked for its list that Redis has not forgotten: it need not register again, and tells nothing by
// itself (C4).
func (c *Conferences) askForList(ctx context.Context, owner berth.ConferenceOwner) error {
	stand, err := lookAtUnit(ctx, c.Scripts, owner.NodeID)
	if err != nil || stand.Generation != owner.Generation {
		return err
	}
	return c.NotifyLink(ctx, workflows.LinkRequest{Unit: workflows.NodeRef{NodeID: owner.NodeID, Generation: owner.Generation}})
}

// write writes a conference to the ledger, to Redis, and to its stream.
func (c *Conferences) write(ctx context.Context, is berth.Conference, events []berth.ConferenceEvent, first int) error {
	if err := c.Ledger.SaveConference(ctx, is); err != nil {
		return err
	}
	if _, err := c.writeRow(ctx, is, c.licence(is)); err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	lines := make([]string, len(events))
	for i, ev := range events {
		b, err := json.Marshal(ev)
		if err != nil {
			return fmt.Errorf("event of a conference: %w", err)
		}
		lines[i] = string(b)
	}
	ttl := max(time.Until(is.EndAt), 0) + c.StreamTTL
	_, err := c.Scripts.AppendTurnEvents(ctx, lua.ConferenceChannel(is.UserID, is.E164), is.ID, first, lines, ttl, c.StreamTrim)
	return err
}

// writeRow writes a conference to Redis, and answers as the script does.
func (c *Conferences) writeRow(ctx context.Context, is berth.Conference, licence lua.Licence) (code string, err error) {
	if is.Status.Final() {
		return c.Scripts.DropConference(ctx, is.E164, is.ID, is.Epoch)
	}
	basic, err := json.Marshal(is.ConferenceSpec)
	if err != nil {
		return "", fmt.Errorf("basic data of a conference: %w", err)
	}
	code, err = c.Scripts.PutConference(ctx, lua.ConferenceRow{
		E164: is.E164, ConferenceID: is.ID, NodeID: is.Owner.NodeID, Generation: is.Owner.Generation, Epoch: is.Epoch,
		Revision: is.Revision, Status: is.Status, StartedAt: is.CopyStartedAt,
	}, basic, licence)
	if code == lua.ConferenceStale {
		c.Logger.WarnContext(ctx, "a conference's row is later than what was to be written", "e164", is.E164, "epoch", is.Epoch, "revision", is.Revision)
	}
	return code, err
}

// free gives slots back.
func (c *Conferences) free(ctx context.Context, slots []berth.Assignment) error {
	for _, slot := range slots {
		if _, err := c.Scripts.ReleaseNodeSlot(ctx, slot.NodeID, slot.LeaseID); err != nil {
			return again(berth.CodeUnavailable, "slots cannot be given back", 0, err)
		}
	}
	return nil
}

// PrepareAdoption takes an epoch, and a slot for the copy, which is there whatever else is (C7). Called again it takes
// another epoch; the slot of the first one lapses.
func (c *Conferences) PrepareAdoption(ctx context.Context, in workflows.AdoptionInput) (workflows.AdoptionReply, error) {
	epoch, err := c.Ledger.NextEpoch(ctx, in.E164)
	if err != nil {
		return workflows.AdoptionReply{}, again(berth.CodeUnavailable, "no epoch can be had", 0, err)
	}
	slot := berth.Assignment{
		LeaseID: conferenceLease(in.ConferenceID, epoch), NodeID: in.Unit.NodeID, Generation: in.Unit.Generation,
		PoolID: berth.CapabilityConference,
	}
	code, err := c.Scripts.SeizeNodeSlot(ctx, slot, in.Hold)
	if err != nil {
		return workflows.AdoptionReply{}, again(berth.CodeUnavailable, "the unit's slot cannot be held", 0, err)
	}
	return workflows.AdoptionReply{Epoch: epoch, Slot: slot, Gone: code != lua.NodeSlotHeld}, nil
}

// NotifyLink starts a unit's link where it does not run, and tells it. Idempotent.
func (c *Conferences) NotifyLink(ctx context.Context, in workflows.LinkRequest) error {
	signal, arg := workflows.SignalWithdraw, any(in.Withdraw)
	if in.Withdraw == nil {
		signal, arg = workflows.SignalNotice, berth.NodeNotice{
			NodeID: in.Unit.NodeID, Generation: in.Unit.Generation, Kind: berth.NodeMedia, Reason: berth.ArrivalRegistered,
		}
	}
	if err := c.Starter.SignalLink(ctx, in.Unit, signal, arg); err != nil {
		return again(berth.CodeUnavailable, "the unit's link cannot be told", 0, err)
	}
	return nil
}

// ReadUnitState reads which generation of a unit lives.
func (c *Conferences) ReadUnitState(ctx context.Context, in workflows.NodeRef) (workflows.UnitState, error) {
	return lookAtUnit(ctx, c.Scripts, in.NodeID)
}

func lookAtUnit(ctx context.Context, scripts *lua.Scripts, nodeID string) (workflows.UnitState, error) {
	units, err := scripts.ReadNodes(ctx, nodeID)
	if err != nil {
		return workflows.UnitState{}, again(berth.CodeUnavailable, "the unit cannot be looked at", 0, err)
	}
	if u, ok := units[nodeID]; ok && u.State != berth.NodeDead {
		return workflows.UnitState{Generation: u.Generation}, nil
	}
	return workflows.UnitState{}, nil
}
