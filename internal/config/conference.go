package config

import (
	"time"

	"berth"
)

// Conference is how conferences are numbered, licensed and recovered (C9, C16, C22).
type Conference struct {
	NumbersFrom string        `help:"First of the numbers that are assigned; the range ends with the last number of as many digits." name:"conference-numbers-from" env:"BERTH_CONFERENCE_NUMBERS_FROM" default:"8881000000"`
	Retry       time.Duration `help:"Pause between attempts to recover a conference that nothing else asked for." name:"conference-retry" env:"BERTH_CONFERENCE_RETRY" default:"5m"`
	GiveUp      time.Duration `help:"Time from the first refusal after which a conference is not recovered any more." name:"conference-give-up" env:"BERTH_CONFERENCE_GIVE_UP" default:"30m"`
	Command     time.Duration `help:"Time a media unit may take to acknowledge a command." name:"conference-command" env:"BERTH_CONFERENCE_COMMAND" default:"10s"`
	Connect     time.Duration `help:"Time a media unit may take, after Redis lost its data, to be there again." name:"conference-connect" env:"BERTH_CONFERENCE_CONNECT" default:"10s"`
	Licences    int           `help:"How many conferences may be alive at once; 0 is no limit. Workers decide by it." name:"conference-licences" env:"BERTH_CONFERENCE_LICENCES" default:"0"`
	// WaitingKeepsLicence: a conference that waits for recovery counts, too (C22).
	WaitingKeepsLicence bool `help:"A conference that waits for recovery keeps its licence; otherwise it waits for one, too. Workers decide by it." name:"conference-waiting-keeps-licence" env:"BERTH_CONFERENCE_WAITING_KEEPS_LICENCE" default:"true" negatable:""`
}

func (c Conference) validate(bad func(flag, env, format string, args ...any), lasting func(flag, env string, d time.Duration)) {
	if berth.ValidE164("", c.NumbersFrom) != nil {
		bad("conference-numbers-from", "BERTH_CONFERENCE_NUMBERS_FROM", "%q is no number of 4 to 15 digits", c.NumbersFrom)
	}
	if c.Licences < 0 {
		bad("conference-licences", "BERTH_CONFERENCE_LICENCES", "must not be below 0, is %d", c.Licences)
	}
	lasting("conference-retry", "BERTH_CONFERENCE_RETRY", c.Retry)
	lasting("conference-give-up", "BERTH_CONFERENCE_GIVE_UP", c.GiveUp)
	lasting("conference-command", "BERTH_CONFERENCE_COMMAND", c.Command)
	lasting("conference-connect", "BERTH_CONFERENCE_CONNECT", c.Connect)
}
