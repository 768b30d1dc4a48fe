package llm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth"
	"berth/internal/template"
)

// tiers are all tiers.
var tiers = []berth.Tier{berth.TierPaid, berth.TierFree}

// modes are all modes.
var modes = []berth.Mode{berth.ModeStream, berth.ModeBatch, berth.ModeVision}

// byTemplate is the source of a model that the template names.
const byTemplate = "template"

// modelOf returns the model of a step and who names it: the step's own route or its template's, else the template, if the routing file has that
// model, else the default route. A step that shows an image needs a model that can see: its template's route is for the others.
func (c *Catalog) modelOf(name berth.Template, s template.PlanStep, tier berth.Tier) (model, by string, err error) {
	sources := []string{string(name) + "." + s.ID, string(name), byTemplate, defaultRoute}
	if s.Mode == berth.ModeVision {
		sources = []string{sources[0], byTemplate, visionRoute}
	}
	for _, by := range sources {
		model := c.cfg.Routes[by].model(tier)
		if by == byTemplate {
			if model = named(s, tier); !c.has(model) {
				continue
			}
		}
		if model != "" {
			return cmp.Or(c.names[model], model), by, nil // an alias
		}
	}
	if want := named(s, tier); want != "" {
		return "", "", berth.Errorf(berth.CodeUnavailable, "template %s: the routing has no model %s, which step %s uses in the %s tier: the operator has to add it to models, or a route %s.%s",
			name, want, s.ID, tier, name, s.ID)
	}
	return "", "", berth.Errorf(berth.CodeUnavailable, "no model for step %s of %s in the %s tier: the operator has to add %s.%s to the routes of the routing file",
		s.ID, name, tier, name, s.ID)
}

// named returns the model that a template names for a step, empty if it leaves the choice to the routing file.
func named(s template.PlanStep, tier berth.Tier) string {
	return Route{Paid: s.Models.Paid, Free: s.Models.Free}.model(tier)
}

func (c *Catalog) has(model string) bool {
	_, ok := c.names[model]
	return ok
}

// RoutedStep is which model and queue a step uses in a tier.
type RoutedStep struct {
	Step  string
	Tier  berth.Tier
	Model string // empty if none is named
	Queue berth.Queue
	By    string // who names the model: template, or the name of a route
}

// Routing returns the models of a template's steps in all tiers.
func (c *Catalog) Routing(t *template.Template) (routed []RoutedStep) {
	for _, s := range t.Steps {
		for _, tier := range tiers {
			model, by, _ := c.modelOf(t.Name, s.Plan(), tier) // the error is that there is none
			routed = append(routed, RoutedStep{s.ID, tier, model, c.queueFor(tier, s.Mode), by})
		}
	}
	return routed
}

// lack is a model that a template names for a step and the routing file does not have.
type lack struct {
	want  string // empty if the template names none
	none  bool   // no other model is used in its place
	tiers []berth.Tier
	used  []string // in its place, by tier
}

// lacksOf returns what the routing file lacks for a step, once for each model that the step names.
func (c *Catalog) lacksOf(name berth.Template, s template.PlanStep) (lacks []lack) {
	for _, tier := range tiers {
		model, by, _ := c.modelOf(name, s, tier) // the error is that there is none
		want := named(s, tier)
		if model != "" && (want == "" || c.has(want) || by != defaultRoute && by != visionRoute) {
			continue
		}
		i := slices.IndexFunc(lacks, func(l lack) bool { return l.want == want && l.none == (model == "") })
		if i < 0 {
			i, lacks = len(lacks), append(lacks, lack{want: want, none: model == ""})
		}
		lacks[i].tiers, lacks[i].used = append(lacks[i].tiers, tier), append(lacks[i].used, model)
	}
	return lacks
}

func (l lack) of(name berth.Template, step string) string {
	return fmt.Sprintf("template %s: step %s %s", name, step, l.text(fmt.Sprintf("%s.%s", name, step)))
}

// Lacks returns what the routing file lacks for the steps of a template, once for each model that a step names, with what to do. Keys of providers
// are not checked.
func (c *Catalog) Lacks(t *template.Template) (texts []string) {
	for _, s := range t.Steps {
		for _, l := range c.lacksOf(t.Name, s.Plan()) {
			texts = append(texts, l.of(t.Name, s.ID))
		}
	}
	return texts
}

// LacksOfAll returns what the routing file lacks for the steps of templates, in few lines: of many steps, only how many they are and whose.
// What another catalog lacks in the same way is left out; nil is none.
func (c *Catalog) LacksOfAll(templates []*template.Template, known *Catalog) []string {
	var none, other grouped
	for _, t := range templates {
		for _, s := range t.Steps {
			var before []string
			if known != nil {
				for _, l := range known.lacksOf(t.Name, s.Plan()) {
					before = append(before, l.of(t.Name, s.ID))
				}
			}
			for _, l := range c.lacksOf(t.Name, s.Plan()) {
				switch text := l.of(t.Name, s.ID); {
				case slices.Contains(before, text):
				case l.none:
					none.add(t.Name, s.ID, text)
				default:
					other.add(t.Name, s.ID, text)
				}
			}
		}
	}
	const remedy = "add the models that they name to the routing file (BERTH_ROUTING_FILE), or the routes default and vision; 'berth routing print' lists the steps"
	return append(none.lines("have no model: %s: "+remedy), other.lines("use the model of a route, because the routing file has none of the name in their templates: %s: "+remedy)...)
}

// grouped are texts about steps that have something in common.
type grouped struct {
	texts     []string
	steps     int
	last      string // of the steps; those of a template follow each other
	templates []string
}

func (g *grouped) add(name berth.Template, step, text string) {
	g.texts = append(g.texts, text)
	if at := fmt.Sprintf("%s.%s", name, step); at != g.last {
		g.steps, g.last = g.steps+1, at
	}
	if n := len(g.templates); n == 0 || g.templates[n-1] != string(name) {
		g.templates = append(g.templates, string(name))
	}
}

// lines returns the texts, or instead of many of them what they have in common.
func (g *grouped) lines(common string) []string {
	const few, names = 3, 20
	if len(g.texts) <= few {
		return g.texts
	}
	of := "1 template"
	if n := len(g.templates); n > 1 {
		of = fmt.Sprintf("%d templates", n)
	}
	list := strings.Join(g.templates[:min(len(g.templates), names)], ", ")
	if more := len(g.templates) - names; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return []string{fmt.Sprintf("%d steps of %s ", g.steps, of) + fmt.Sprintf(common, list)}
}

func (l lack) text(route string) string {
	inTiers := func(tiers []berth.Tier) string {
		var names []string
		for _, tier := range tiers {
			names = append(names, string(tier))
		}
		return " in the " + strings.Join(names, " and ") + " tier"
	}
	because := fmt.Sprintf(", because the routing file (BERTH_ROUTING_FILE) has no model %s: add it to models, or a route %s", l.want, route)
	everywhere := len(l.tiers) == len(tiers) && len(slices.Compact(slices.Clone(l.used))) == 1
	switch {
	case l.want == "":
		return "has no model" + inTiers(l.tiers) + ": add a route " + route + " to the routing file (BERTH_ROUTING_FILE)"
	case l.none && everywhere:
		return "has no model" + because
	case l.none:
		return "has no model" + inTiers(l.tiers) + because
	case everywhere:
		return "uses " + l.used[0] + because
	}
	var uses []string
	for i, tier := range l.tiers {
		uses = append(uses, l.used[i]+inTiers([]berth.Tier{tier}))
	}
	return "uses " + strings.Join(uses, " and ") + because
}

// Unserved returns the tiers in which a step of a template has no model: their tasks are refused.
func (c *Catalog) Unserved(t *template.Template) (unserved []berth.Tier) {
	for _, r := range c.Routing(t) {
		if r.Model == "" && !slices.Contains(unserved, r.Tier) {
			unserved = append(unserved, r.Tier)
		}
	}
	return unserved
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
