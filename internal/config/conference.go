package config

import (
	"time"

	"berth"
)

// Conference holds the settings for numbering, licensing and recovering conferences.
type Conference struct {
	NumbersFrom string        `help:"First number to assign; the range ends with the last number of the same length." name:"conference-numbers-from" env:"BERTH_CONFERENCE_NUMBERS_FROM" default:"8881000000"`
	Retry       time.Duration `help:"Interval between retries of a failed recovery; capacity that becomes free triggers one earlier." name:"conference-retry" env:"BERTH_CONFERENCE_RETRY" default:"5m" min:"1ms"`
	GiveUp      time.Duration `help:"Time from the first refusal until recovery is abandoned." name:"conference-give-up" env:"BERTH_CONFERENCE_GIVE_UP" default:"30m" min:"1ms"`
	Command     time.Duration `help:"Maximum time for a media unit to acknowledge a command." name:"conference-command" env:"BERTH_CONFERENCE_COMMAND" default:"10s" min:"1ms"`
	Connect     time.Duration `help:"Maximum time for a media unit to register again after Redis lost its data." name:"conference-connect" env:"BERTH_CONFERENCE_CONNECT" default:"10s" min:"1ms"`
	Empty       time.Duration `help:"Time without participants after which a conference ends; 0 for never. A recovered one waits for its participants." name:"conference-empty" env:"BERTH_CONFERENCE_EMPTY" default:"0s" min:"0s"`
	Zone        time.Duration `help:"Time for which a conference with zoneFallback waits for a unit of its zone before it is recovered in another one." name:"conference-zone" env:"BERTH_CONFERENCE_ZONE" default:"30s" min:"0s"`
	Licences    int           `help:"Maximum number of conferences at the same time; 0 for no limit. Applied by workers." name:"conference-licences" env:"BERTH_CONFERENCE_LICENCES" default:"0" min:"0"`
	// WaitingKeepsLicence makes a conference that waits for recovery count towards Licences.
	WaitingKeepsLicence bool `help:"Keep the licence of a conference that waits for recovery; otherwise it needs a new one to recover. Applied by workers." name:"conference-waiting-keeps-licence" env:"BERTH_CONFERENCE_WAITING_KEEPS_LICENCE" default:"true" negatable:""`
}

func (c *Conference) validate(p *problems) {
	if berth.ValidE164("", c.NumbersFrom) != nil {
		p.bad(&c.NumbersFrom, "invalid number %q: must have 4 to 15 digits", c.NumbersFrom)
	}
	if c.Empty > 0 && c.Empty < time.Second {
		p.bad(&c.Empty, "must be 0 or at least 1s, got %s", c.Empty)
	}
}
