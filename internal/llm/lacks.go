package llm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth"
	"berth/internal/template"
)

// tiers are all tiers.
var tiers = []berth.Tier{berth.TierPaid, berth.TierFree}

// named returns the model that a template names for a step, empty if it leaves the choice to the routing file.
func named(s template.PlanStep, tier berth.Tier) string {
	return Route{Paid: s.Models.Paid, Free: s.Models.Free}.model(tier)
}

// Lacks returns what the routing file lacks for the steps of a template, each with what to do. Keys of providers are not checked.
func (c *Catalog) Lacks(t *template.Template) (lacks []string) {
	for _, s := range t.Steps {
		for _, tier := range tiers {
			want := named(s.Plan(), tier)
			model, err := c.modelOf(t.Name, s.Plan(), tier)
			_, known := c.cfg.Models[want]
			text := ""
			switch {
			case err != nil && want != "":
				text = fmt.Sprintf("template %s: step %s has no model, because the routing file (BERTH_ROUTING_FILE) has no model %s: add it to models, or a route %s.%s", t.Name, s.ID, want, t.Name, s.ID)
			case err != nil:
				text = fmt.Sprintf("template %s: step %s has no model in the %s tier: add a route %s.%s to the routing file (BERTH_ROUTING_FILE)", t.Name, s.ID, tier, t.Name, s.ID)
			case want != "" && !known && c.fallsBack(t.Name, s.Plan(), tier):
				text = fmt.Sprintf("template %s: step %s uses %s, because the routing file (BERTH_ROUTING_FILE) has no model %s: add it to models, or a route %s.%s", t.Name, s.ID, model, want, t.Name, s.ID)
			}
			if text != "" && !slices.Contains(lacks, text) {
				lacks = append(lacks, text)
			}
		}
	}
	return lacks
}

// fallsBack reports whether no route of the template decides which model a step uses.
func (c *Catalog) fallsBack(name berth.Template, s template.PlanStep, tier berth.Tier) bool {
	own := c.cfg.Routes[string(name)].model(tier)
	if s.Mode == berth.ModeVision {
		own = ""
	}
	return own == "" && c.cfg.Routes[string(name)+"."+s.ID].model(tier) == ""
}

// UnusedRoutes returns the routes of templates and steps that do not exist, each with what to do.
func (c *Catalog) UnusedRoutes(templates []*template.Template) (unused []string) {
	for _, route := range slices.Sorted(maps.Keys(c.cfg.Routes)) {
		name, step, one := strings.Cut(route, ".")
		i := slices.IndexFunc(templates, func(t *template.Template) bool { return string(t.Name) == name })
		switch {
		case route == defaultRoute, route == visionRoute:
		case i < 0:
			unused = append(unused, fmt.Sprintf("routes.%s in the routing file (BERTH_ROUTING_FILE): no template %s", route, name))
		case one:
			if _, ok := templates[i].Step(step); !ok {
				unused = append(unused, fmt.Sprintf("routes.%s in the routing file (BERTH_ROUTING_FILE): template %s has no step %s", route, name, step))
			}
		}
	}
	return unused
}
