package activities

import (
	"context"
	"fmt"

	"berth"
	"berth/lua"
	"berth/workflows"
)

// asks tells whether placing a conference needs a licence that is free: a new one's does, and that of one which gave its
// own back while it waited (C22).
func (c *Conferences) asks(in workflows.PlaceInput) bool {
	return c.Licences > 0 && (in.First || !c.WaitingKeepsLicence)
}

// unlicensed refuses a placement for which no licence is free. It is looked before a slot is taken, and put to the test when
// the row is written: those who wait for a licence should not be told of the slots that they give back.
func (c *Conferences) unlicensed(ctx context.Context, in workflows.PlaceInput) (refused workflows.PlaceReply, err error) {
	if !c.asks(in) {
		return refused, nil
	}
	used, has, err := c.Scripts.Licences(ctx, in.Conference.E164)
	if err == nil && !has && used >= c.Licences {
		refused = c.noLicence()
	}
	return refused, err
}

// takeLicence writes the row of a conference that needs one first of all, or refuses it, and nothing is written.
func (c *Conferences) takeLicence(ctx context.Context, in workflows.PlaceInput, now berth.Conference) (refused workflows.PlaceReply, err error) {
	if !c.asks(in) {
		return refused, nil
	}
	code, err := c.writeRow(ctx, now, lua.Licence{Limit: c.Licences})
	if code == lua.ConferenceNoLicence {
		refused = c.noLicence()
	}
	return refused, err
}

func (c *Conferences) noLicence() workflows.PlaceReply {
	return workflows.PlaceReply{
		Code: berth.CodeNoLicence, Message: fmt.Sprintf("every licence is in use: there are %d, one for each conference", c.Licences),
	}
}

// licence is what a conference that stands so has.
func (c *Conferences) licence(is berth.Conference) lua.Licence {
	return lua.Licence{Waived: is.Status == berth.ConferenceAwaitingRecovery && !c.WaitingKeepsLicence}
}

// wait writes a conference that has to wait. Where that gives a licence back, and not because units failed it, who would be asked
// again and again, others who wait are told.
func (c *Conferences) wait(ctx context.Context, waits berth.Conference, events []berth.ConferenceEvent, in workflows.PlaceInput) error {
	had := false
	if c.asks(in) && len(in.Failed) == 0 {
		var err error
		if _, had, err = c.Scripts.Licences(ctx, waits.E164); err != nil {
			return err
		}
	}
	if err := c.write(ctx, waits, events, in.FirstEvent); err != nil || !had {
		return err
	}
	return c.wakeUnlicensed(ctx)
}

// wakeUnlicensed tells as many waiting conferences as there are licences, where units have room, that they should try (C2).
func (c *Conferences) wakeUnlicensed(ctx context.Context) error {
	if c.Licences == 0 || c.WaitingKeepsLicence {
		return nil // nobody waits for one
	}
	used, _, err := c.Scripts.Licences(ctx, "")
	if err != nil || used >= c.Licences {
		return err
	}
	var units []string
	for id, n := range c.Fleet.Snapshot().Nodes {
		if n.Kind == berth.NodeMedia {
			units = append(units, id)
		}
	}
	room, err := roomOf(ctx, c.Scripts, units)
	if err != nil {
		return err
	}
	return wakeWaiting(ctx, c.Ledger, c.Starter, room, c.Licences-used)
}
