package config

import (
	"time"

	"berth"
)

// Conference holds the settings for numbering, licensing and recovering conferences.
type Conference struct {
	NumbersFrom string        `help:"First number to assign; the range ends with the last number of the same length." name:"conference-numbers-from" env:"BERTH_CONFERENCE_NUMBERS_FROM" default:"8881000000"`
	Retry       time.Duration `help:"Interval between retries of a failed recovery; capacity that becomes free triggers one earlier." name:"conference-retry" env:"BERTH_CONFERENCE_RETRY" default:"5m"`
	GiveUp      time.Duration `help:"Time from the first refusal until recovery is abandoned." name:"conference-give-up" env:"BERTH_CONFERENCE_GIVE_UP" default:"30m"`
	Command     time.Duration `help:"Maximum time for a media unit to acknowledge a command." name:"conference-command" env:"BERTH_CONFERENCE_COMMAND" default:"10s"`
	Connect     time.Duration `help:"Maximum time for a media unit to register again after Redis lost its data." name:"conference-connect" env:"BERTH_CONFERENCE_CONNECT" default:"10s"`
	Empty       time.Duration `help:"Time without participants after which a conference ends; 0 for never. A recovered one waits for its participants." name:"conference-empty" env:"BERTH_CONFERENCE_EMPTY" default:"0s"`
	Zone        time.Duration `help:"Time for which a conference with zoneFallback waits for a unit of its zone before it is recovered in another one." name:"conference-zone" env:"BERTH_CONFERENCE_ZONE" default:"30s"`
	Licences    int           `help:"Maximum number of conferences at the same time; 0 for no limit. Applied by workers." name:"conference-licences" env:"BERTH_CONFERENCE_LICENCES" default:"0"`
	// WaitingKeepsLicence makes a conference that waits for recovery count towards Licences.
	WaitingKeepsLicence bool `help:"Keep the licence of a conference that waits for recovery; otherwise it needs a new one to recover. Applied by workers." name:"conference-waiting-keeps-licence" env:"BERTH_CONFERENCE_WAITING_KEEPS_LICENCE" default:"true" negatable:""`
}

func (c Conference) validate(bad func(flag, env, format string, args ...any), lasting func(flag, env string, d time.Duration)) {
	if berth.ValidE164("", c.NumbersFrom) != nil {
		bad("conference-numbers-from", "BERTH_CONFERENCE_NUMBERS_FROM", "invalid number %q: must have 4 to 15 digits", c.NumbersFrom)
	}
	if c.Licences < 0 {
		bad("conference-licences", "BERTH_CONFERENCE_LICENCES", "must not be negative, got %d", c.Licences)
	}
	if c.Empty < 0 || c.Empty > 0 && c.Empty < time.Second {
		bad("conference-empty", "BERTH_CONFERENCE_EMPTY", "must be 0 or at least 1s, got %s", c.Empty)
	}
	if c.Zone < 0 {
		bad("conference-zone", "BERTH_CONFERENCE_ZONE", "must not be negative, got %s", c.Zone)
	}
	lasting("conference-retry", "BERTH_CONFERENCE_RETRY", c.Retry)
	lasting("conference-give-up", "BERTH_CONFERENCE_GIVE_UP", c.GiveUp)
	lasting("conference-command", "BERTH_CONFERENCE_COMMAND", c.Command)
	lasting("conference-connect", "BERTH_CONFERENCE_CONNECT", c.Connect)
}
