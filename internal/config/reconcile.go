package config

import (
	"slices"
	"strings"
	"time"

	"berth"
)

// Reconcile holds the settings of the reconciliation.
type Reconcile struct {
	Every       time.Duration `help:"Time between two passes of the reconciliation." name:"reconcile-every" env:"BERTH_RECONCILE_EVERY" default:"30s"`
	FullEvery   time.Duration `help:"Time between two passes that compare everything that is open." name:"reconcile-full-every" env:"BERTH_RECONCILE_FULL_EVERY" default:"1h"`
	Pause       time.Duration `help:"Time between the two checks of a difference before it is repaired, and for which Redis, Temporal and the database must have been available." name:"reconcile-pause" env:"BERTH_RECONCILE_PAUSE" default:"20s"`
	MaxRepairs  int           `help:"Maximum number of differences that one pass repairs." name:"reconcile-max-repairs" env:"BERTH_RECONCILE_MAX_REPAIRS" default:"200"`
	MaxFindings int           `help:"Number of differences above which a pass stops and repairs nothing." name:"reconcile-max-findings" env:"BERTH_RECONCILE_MAX_FINDINGS" default:"1000"`
	Disable     []string      `help:"Rules that are not applied; 'berth reconcile --last' lists them." name:"reconcile-disable" env:"BERTH_RECONCILE_DISABLE"`
}

// maxFindings bounds what one activity returns to Temporal.
const maxFindings = 5000

func (c Reconcile) validate(bad func(flag, env, format string, args ...any), lasting func(flag, env string, d time.Duration)) {
	if c.Every < time.Second {
		bad("reconcile-every", "BERTH_RECONCILE_EVERY", "must be at least 1s, got %s", c.Every)
	}
	if c.FullEvery < c.Every {
		bad("reconcile-full-every", "BERTH_RECONCILE_FULL_EVERY", "must be at least --reconcile-every, %s, got %s", c.Every, c.FullEvery)
	}
	lasting("reconcile-pause", "BERTH_RECONCILE_PAUSE", c.Pause)
	if c.Pause > 5*time.Minute {
		bad("reconcile-pause", "BERTH_RECONCILE_PAUSE", "must be at most 5m, got %s", c.Pause)
	}
	if c.MaxRepairs < 1 {
		bad("reconcile-max-repairs", "BERTH_RECONCILE_MAX_REPAIRS", "must be positive, got %d", c.MaxRepairs)
	}
	if c.MaxFindings < 1 || c.MaxFindings > maxFindings {
		bad("reconcile-max-findings", "BERTH_RECONCILE_MAX_FINDINGS", "must be from 1 to %d, got %d", maxFindings, c.MaxFindings)
	}
	known := make([]string, 0, len(berth.ReconcileRules()))
	for _, r := range berth.ReconcileRules() {
		known = append(known, string(r.Rule))
	}
	for _, name := range c.Disable {
		if !slices.Contains(known, name) {
			bad("reconcile-disable", "BERTH_RECONCILE_DISABLE", "unknown rule %q; known rules: %s", name, strings.Join(known, ", "))
		}
	}
}

// Disabled returns the rules that are not applied.
func (c Reconcile) Disabled() (rules []berth.ReconcileRule) {
	for _, name := range c.Disable {
		rules = append(rules, berth.ReconcileRule(name))
	}
	return rules
}
