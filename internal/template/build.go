package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/internal/dotprompt"
	"berth/internal/editdistance"
)

// Defaults of a template.
const (
	defaultBackground = 5
)

// Limits of the timeout of a step. That of the worker limits it as well.
const (
	minTimeout = time.Second
	maxTimeout = 24 * time.Hour
)

// fieldPath returns the path of a field of step i.
type fieldPath func(i int, field ...string) []string

// build checks the fields, reads what they name, and fills the template.
func (l *loader) build(at fieldPath) {
	t := l.out
	t.Price = Price{Credits: berth.Credit}
	if l.spec.Price != nil {
		t.Price = *l.spec.Price
	}
	declared := l.findLanguages(at)
	t.Title = l.title([]string{"title"}, l.spec.Title, "")
	t.Description = l.text([]string{"description"}, l.spec.Description, berth.MaxTemplateText)
	l.variables()
	l.background()
	l.streamParts()
	l.steps(at)
	l.settleLanguages(declared)
	l.unused()
}

func (l *loader) variables() {
	groups := map[string]int{}
	seen := map[string]bool{}
	for i, v := range l.spec.Variables {
		path := []string{"variables", fmt.Sprint(i)}
		if v.Kind = cmp.Or(v.Kind, KindText); v.Group != "" {
			groups[v.Group]++
		}
		l.checkName(child(path, "name"), v.Name, seen)
		switch {
		case v.Required && v.Group != "":
			l.invalid(child(path, "required"), "one variable of a group is always required: remove required, or group")
		case v.Default != "" && v.Kind == KindImage:
			l.invalid(child(path, "default"), "an image has no default")
		case v.Default != "" && (v.Required || v.Group != ""):
			l.invalid(child(path, "default"), "is never used, because the variable, or one of its group, is required: remove one of both")
		case v.Evidence && v.Kind == KindImage:
			l.invalid(child(path, "evidence"), "only texts are searched: set it for the variable that gets the text of the image")
		}
		v.Label, v.Help = l.title(child(path, "label"), v.Label, v.Name), l.text(child(path, "help"), v.Help, berth.MaxTemplateText)
		l.shown(child(path, "default"), v.Default)
		l.out.Variables = append(l.out.Variables, v)
	}
	for i, v := range l.spec.Variables {
		if v.Group != "" && groups[v.Group] == 1 && !l.listViolated("variables", "group") {
			l.invalid([]string{"variables", fmt.Sprint(i), "group"}, "%s is alone in its group: write required: true instead, or give the alternatives the same group", v.Name)
		}
	}
}

// invalidName reports a mistake in a name that prompts use.
func (l *loader) invalidName(path []string, format string, args ...any) {
	l.unsure = true
	l.invalid(path, format, args...)
}

// checkName reports a name that prompts cannot use, or that another value has.
func (l *loader) checkName(path []string, name string, seen map[string]bool) {
	switch {
	case dotprompt.Reserved(name):
		l.invalidName(path, "%s has a meaning of its own in prompts: use another name", name)
	case seen[name]:
		l.invalidName(path, "%s is the name of another value: use another name", name)
	}
	seen[name] = true
}

// variable returns the declared variable of a name.
func (t *Template) variable(name string) (Variable, bool) {
	i := slices.IndexFunc(t.Variables, func(v Variable) bool { return v.Name == name })
	if i < 0 {
		return Variable{}, false
	}
	return t.Variables[i], true
}

func (l *loader) background() {
	seen := map[string]bool{}
	for _, v := range l.out.Variables {
		seen[v.Name] = true
	}
	for i, b := range l.spec.Background {
		path := []string{"background", fmt.Sprint(i)}
		l.checkName(child(path, "name"), b.Name, seen)
		if (b.Results == "") == (len(b.Matching) == 0) {
			l.invalid(path, "needs either results, the name of a template, or matching, the names of variables")
		}
		b.Max = cmp.Or(b.Max, defaultBackground)
		l.out.Background = append(l.out.Background, b)
	}
}

// streamParts reads stages and items.
func (l *loader) streamParts() {
	seen := map[string]bool{"stage": true}
	for i, s := range l.spec.Stages {
		path := []string{"stages", fmt.Sprint(i)}
		if seen["stage:"+string(s.ID)] {
			l.unsureMarks = true
			l.invalid(child(path, "id"), "is the id of another stage: use another one")
		}
		seen["stage:"+string(s.ID)] = true
		s.Label = l.title(child(path, "label"), s.Label, string(s.ID))
		l.out.Stages = append(l.out.Stages, s)
	}
	for i, s := range l.spec.Items {
		path := []string{"items", fmt.Sprint(i)}
		if seen[s.ID] {
			l.unsureMarks = true
			l.invalid(child(path, "id"), "is the id of another item, or the word stage: use another one")
		}
		seen[s.ID] = true
		item := s.Item
		item.Label = l.title(child(path, "label"), item.Label, item.ID)
		item.Schema, l.out.items[item.ID] = l.schema(l.doc, child(path, "schema"), &s.Schema)
		l.out.Items = append(l.out.Items, item)
	}
}

func (l *loader) steps(at fieldPath) {
	ids := map[string]bool{}
	for i, s := range l.spec.Steps {
		step := s.Step
		if ids[step.ID] {
			l.incomplete = true
			l.invalid(at(i, "id"), "%s is the id of another step: use another one", step.ID)
		}
		ids[step.ID] = true
		l.order(i, at)
		step.Label = l.title(at(i, "label"), step.Label, step.ID)
		step.Status = berth.TaskStatus(cmp.Or(string(step.Status), strings.ToUpper(step.ID)+"_PENDING"))
		if step.Status.Final() || step.Status == berth.TaskPending || step.Status == berth.TaskStreaming {
			l.invalid(at(i, "status"), "%s is the status of every task at another time: use another word", step.Status)
		}
		if d := time.Duration(step.Timeout); findExact(l.doc.root, at(i, "timeout")) != nil && (d < minTimeout || d > maxTimeout) {
			l.invalid(at(i, "timeout"), "must be a duration from %s to %.0fh, such as 90s", minTimeout, maxTimeout.Hours())
		}
		step.Truncated = cmp.Or(step.Truncated, berth.TruncatedFails)
		step.Schema, l.out.outputs[step.ID] = l.schema(l.doc, at(i, "schema"), &s.Schema)
		l.prompts(i, &step, at)
		l.mode(i, &step, at)
		l.out.Steps = append(l.out.Steps, step)
	}
	if last := len(l.out.Steps) - 1; last >= 0 && l.out.Steps[last].Mode != berth.ModeStream && !l.isViolated(at(last, "mode")) {
		for field, n := range map[string]int{"stages": len(l.out.Stages), "items": len(l.out.Items)} {
			if n > 0 {
				l.invalid([]string{field}, "only a stream has %s, and the mode of the last step is %s: remove them", field, l.out.Steps[last].Mode)
			}
		}
	}
}

// order checks when a step runs, and where its output goes.
func (l *loader) order(i int, at fieldPath) {
	s, last := l.spec.Steps[i], i == len(l.spec.Steps)-1
	for j, name := range s.When {
		if _, ok := l.out.variable(name); !ok && l.namesKnown() {
			l.invalid(at(i, "when"), "there is no variable %s%s", name, meant(name, l.variableNames()))
			s.When[j] = editdistance.Nearest(name, l.variableNames())
		}
	}
	switch {
	case last && len(s.When) > 0:
		l.invalid(at(i, "when"), "the last step gives the result, so it always runs: remove when")
	case last && s.Into != "":
		l.invalid(at(i, "into"), "no step follows that could use it: remove into")
	case !last && s.Into == "":
		l.invalidName(at(i, "into"), "missing: name the variable that its output becomes; otherwise it would be lost")
	case !last:
		l.into(i, s, at(i, "into"))
	}
}

// into checks that a step's output has a name of its own, or completes a variable that is certainly not given.
func (l *loader) into(i int, s stepSpec, path []string) {
	v, declared := l.out.variable(s.Into)
	earlier := slices.IndexFunc(l.spec.Steps[:i], func(earlier stepSpec) bool { return earlier.Into == s.Into })
	switch {
	case earlier >= 0:
		l.invalidName(path, "%s is the output of step %s: use another name", s.Into, l.spec.Steps[earlier].ID)
	case slices.ContainsFunc(l.spec.Background, func(b Background) bool { return b.Name == s.Into }):
		l.invalidName(path, "%s is a list of background: use another name", s.Into)
	case dotprompt.Reserved(s.Into):
		l.invalidName(path, "%s has a meaning of its own in prompts: use another name", s.Into)
	case !declared:
	case v.Kind == KindImage:
		l.invalidName(path, "%s is an image, an output is a text: use another name", s.Into)
	case slices.Contains(s.When, "") || l.listViolated("variables", "group") || l.isViolated(slices.Concat(path[:len(path)-1], []string{"when"})): // unknown
	case v.Group == "" || len(s.When) == 0 || slices.ContainsFunc(s.When, func(name string) bool {
		other, _ := l.out.variable(name)
		return other.Group != v.Group || name == s.Into
	}):
		l.invalidName(path, "%s could be given by the user as well: use another name, or run the step only when alternatives of its group are given", s.Into)
	}
}

func (l *loader) variableNames() []string {
	var names []string
	for _, v := range l.out.Variables {
		names = append(names, v.Name)
	}
	return names
}

// mode completes and checks the form of a call.
func (l *loader) mode(i int, s *Step, at fieldPath) {
	switch {
	case s.Mode != "":
	case len(s.Images) > 0:
		s.Mode = berth.ModeVision
	case s.Schema != nil:
		s.Mode = berth.ModeBatch
	default:
		s.Mode = berth.ModeStream
	}
	switch {
	case s.Mode == berth.ModeStream && s.Schema != nil:
		l.invalid(at(i, "mode"), "a stream is text: use batch for JSON")
	case s.Mode != berth.ModeVision && len(s.Images) > 0:
		l.invalid(at(i, "mode"), "only a step of mode vision shows an image to the model: %s", strings.Join(s.Images, ", "))
	case s.Mode == berth.ModeVision && len(s.Images) == 0 && !l.unread:
		l.invalid(at(i, "mode"), "the prompt of a step of mode vision needs {{media url=…}} with a variable of kind image")
	case s.Mode == berth.ModeStream && s.Truncated == berth.TruncatedContinues:
		l.invalid(at(i, "truncated"), "a stream ends where it is truncated: remove it")
	}
}

// unused reports what is declared and has no effect.
func (l *loader) unused() {
	if l.unread || !l.namesKnown() {
		return
	}
	reads := map[string]bool{}
	for _, s := range l.out.Steps {
		for _, name := range slices.Concat(s.Reads, s.When) {
			reads[name] = true
		}
	}
	for _, b := range l.out.Background {
		for _, name := range b.Matching {
			reads[name] = true
		}
	}
	for i, v := range l.out.Variables {
		if !reads[v.Name] && !v.Evidence {
			l.invalid(l.pathOfVariable(i), "no prompt and no condition uses %s: remove it, or write {{%s}} in a prompt", v.Name, v.Name)
		}
	}
	for i, b := range l.out.Background {
		if !reads[b.Name] {
			l.invalid([]string{"background", fmt.Sprint(i), "name"}, "no prompt uses %s: remove it, or write {{#each %s}} in a prompt", b.Name, b.Name)
		}
		for _, name := range b.Matching {
			if !l.isText(name) {
				l.invalid([]string{"background", fmt.Sprint(i), "matching"}, "there is no text %s: name variables, or outputs of steps", name)
			}
		}
	}
	for i, s := range l.out.Steps {
		if s.Into != "" && !reads[s.Into] && i < len(l.out.Steps)-1 {
			l.invalid([]string{"steps", fmt.Sprint(i), "into"}, "no prompt uses %s: remove the step, or write {{%s}} in a later prompt", s.Into, s.Into)
		}
	}
}

// isText reports whether a variable or an output has a name.
func (l *loader) isText(name string) bool {
	if v, ok := l.out.variable(name); ok {
		return v.Kind != KindImage
	}
	return slices.ContainsFunc(l.out.Steps, func(s Step) bool { return s.Into == name })
}

// pathOfVariable returns where a variable is declared: under variables or in dotprompt's input.
func (l *loader) pathOfVariable(i int) []string {
	v := l.spec.Variables[i]
	for _, name := range []string{v.Name, v.Name + "?"} {
		path := []string{"input", "schema", name}
		if n := findExact(l.doc.root, path); n != nil {
			return path
		}
	}
	return []string{"variables", fmt.Sprint(i), "name"}
}
