package activities

import (
	"context"
	"fmt"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// needsLicence reports whether placing a conference requires a free licence: a new one does, and so does one that released
// its licence while it waited.
func (c *Conferences) needsLicence(in workflows.PlaceInput) bool {
	return c.Licences > 0 && (in.First || !c.WaitingKeepsLicence)
}

// checkLicence refuses a placement for which no licence is free, before a slot is reserved: otherwise the release of that
// slot would notify conferences that wait for a licence themselves. takeLicence makes the decision.
func (c *Conferences) checkLicence(ctx context.Context, in workflows.PlaceInput) (refusal workflows.PlaceReply, err error) {
	if !c.needsLicence(in) {
		return refusal, nil
	}
	used, has, err := c.Scripts.Licences(ctx, in.Conference.E164)
	if err == nil && !has && used >= c.Licences {
		refusal = c.noLicence()
	}
	return refusal, err
}

// takeLicence writes the row of a conference that needs a licence, before everything else. If none is free it writes
// nothing and returns the refusal.
func (c *Conferences) takeLicence(
	ctx context.Context, in workflows.PlaceInput, placed berth.Conference,
) (refusal workflows.PlaceReply, err error) {
	if !c.needsLicence(in) {
		return refusal, nil
	}
	code, err := c.writeRow(ctx, placed, lua.Licence{Limit: c.Licences})
	if code == lua.ConferenceNoLicence {
		refusal = c.noLicence()
	}
	return refusal, err
}

func (c *Conferences) noLicence() workflows.PlaceReply {
	return workflows.PlaceReply{
		Code: berth.CodeNoLicence, Message: fmt.Sprintf("no free licence: all %d are in use, one for each conference", c.Licences),
	}
}

// licence returns what the conference holds with its current status.
func (c *Conferences) licence(conf berth.Conference) lua.Licence {
	return lua.Licence{Waived: conf.Status == berth.ConferenceAwaitingRecovery && !c.WaitingKeepsLicence}
}

// writeWaiting writes a conference that has to wait. If this releases its licence, it notifies other waiting conferences,
// unless units failed this one: they would fail the others, too, and the notices would go round.
func (c *Conferences) writeWaiting(
	ctx context.Context, waiting berth.Conference, events []berth.ConferenceEvent, in workflows.PlaceInput,
) error {
	had := false
	if c.needsLicence(in) && len(in.Failed) == 0 {
		var err error
		if _, had, err = c.Scripts.Licences(ctx, waiting.E164); err != nil {
			return err
		}
	}
	if err := c.write(ctx, waiting, events, in.FirstEvent, in.Confirmed); err != nil || !had {
		return err
	}
	return c.offerLicences(ctx)
}

// offerLicences notifies as many waiting conferences as there are free licences, where units have capacity.
func (c *Conferences) offerLicences(ctx context.Context) error {
	if c.Licences == 0 || c.WaitingKeepsLicence {
		return nil // no conference waits for one
	}
	used, _, err := c.Scripts.Licences(ctx, "")
	if err != nil || used >= c.Licences {
		return err
	}
	c.Fleet.CatchUp(ctx) // a unit that has just registered notified those that wait before there was a licence
	var units []string
	for id, n := range c.Fleet.Snapshot().Nodes {
		if n.Kind == berth.NodeMedia {
			units = append(units, id)
		}
	}
	free, err := freeCapacity(ctx, c.Scripts, units)
	if err != nil {
		return err
	}
	return wakeWaiting(ctx, c.Ledger, c.Starter, free, c.Licences-used)
}
