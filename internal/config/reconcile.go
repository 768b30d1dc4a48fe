package config

import (
	"slices"
	"strings"
	"time"

	"berth"
)

// Reconcile holds the settings of the reconciliation.
type Reconcile struct {
	Every     time.Duration `help:"Time between two passes of the reconciliation." name:"reconcile-every" env:"BERTH_RECONCILE_EVERY" default:"30s" min:"1s"`
	FullEvery time.Duration `help:"Time between two passes that compare everything that is open." name:"reconcile-full-every" env:"BERTH_RECONCILE_FULL_EVERY" default:"1h"`
	Pause     time.Duration `help:"Time between the two checks of a difference before it is repaired, and for which Redis, Temporal and the database must have been available." name:"reconcile-pause" env:"BERTH_RECONCILE_PAUSE" default:"20s" min:"1ms" max:"5m"`
	// An activity returns the findings to Temporal, which bounds their size.
	MaxFindings int      `help:"Number of differences above which a pass stops and repairs nothing." name:"reconcile-max-findings" env:"BERTH_RECONCILE_MAX_FINDINGS" default:"1000" min:"1" max:"5000"`
	Disable     []string `help:"Rules that are not applied; 'berth reconcile --last' lists them." name:"reconcile-disable" env:"BERTH_RECONCILE_DISABLE"`
}

func (c *Reconcile) validate(p *problems) {
	if c.FullEvery < c.Every {
		p.bad(&c.FullEvery, "must be at least --reconcile-every, %s, got %s", c.Every, c.FullEvery)
	}
	known := make([]string, 0, len(berth.ReconcileRules()))
	for _, r := range berth.ReconcileRules() {
		known = append(known, string(r.Rule))
	}
	for _, name := range c.Disable {
		if !slices.Contains(known, name) {
			p.bad(&c.Disable, "unknown rule %q; known rules: %s", name, strings.Join(known, ", "))
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
