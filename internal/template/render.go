package template

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"berth"
	"berth/internal/dotprompt"
)

// Message is one message of a call.
type Message = dotprompt.Message

// Image is the content of a variable of kind image.
type Image struct {
	MediaType string
	Data      []byte
}

// URL is the address of the image in a message, which contains it.
func (m Image) URL() string {
	return "data:" + m.MediaType + ";base64," + base64.StdEncoding.EncodeToString(m.Data)
}

// Input is what a step's prompt is rendered with. All of it comes from users or models.
type Input struct {
	// Texts are the variables and the outputs of earlier steps that are texts, Images those that are images.
	Texts  map[string]string
	Images map[string]Image
	// Lists are the background.
	Lists map[string][]string
}

// Step returns a step by its id.
func (t *Template) Step(id string) (Step, bool) {
	i := slices.IndexFunc(t.Steps, func(s Step) bool { return s.ID == id })
	if i < 0 {
		return Step{}, false
	}
	return t.Steps[i], true
}

// Mode is the form of the result: that of the last step.
func (t *Template) Mode() berth.Mode { return t.Steps[len(t.Steps)-1].Mode }

// FirstStage returns the stage in which a step starts: that of the last step is the first that the template declares, that of another one
// has its name.
func (t *Template) FirstStage(step berth.StepName) berth.Stage {
	switch last := t.Steps[len(t.Steps)-1].ID; {
	case string(step) != last:
		return berth.Stage(step)
	case len(t.Stages) > 0:
		return t.Stages[0].ID
	default:
		return berth.StageAnswer
	}
}

// Locale returns the language of the prompts for a task in a language: the nearest, or the preferred one; empty if the template has no languages.
func (t *Template) Locale(wanted berth.Locale) berth.Locale {
	if len(t.Locales) == 0 {
		return ""
	}
	if l, ok := berth.NearestLocale(t.Locales, wanted); ok {
		return l
	}
	return t.Locales[0]
}

// Messages returns the messages of a step in the language for a locale. Its error has berth.CodeInvalid and names the variable if one that the
// prompt needs has no text, or all of them if the prompt has none with their values.
func (t *Template) Messages(ctx context.Context, step string, wanted berth.Locale, in Input) ([]Message, error) {
	s, ok := t.Step(step)
	locale := t.Locale(wanted)
	p := t.prompts[promptKey{step, locale}]
	if !ok || p == nil {
		return nil, berth.Errorf(berth.CodeInternal, "template %s has no step %s", t.Name, step)
	}
	if err := t.checkInput(s, in); err != nil {
		return nil, err
	}
	messages, err := p.Render(ctx, dotprompt.Data{
		Values: t.values(in), Context: map[string]any{"locale": string(locale)}, Schema: string(s.Schema), Trim: true,
	})
	if err != nil {
		return nil, err
	}
	for i := range messages {
		messages[i].Parts = slices.DeleteFunc(messages[i].Parts, func(p dotprompt.Part) bool { return p.Section != "" })
	}
	messages = slices.DeleteFunc(messages, func(m Message) bool { return len(m.Parts) == 0 })
	if len(messages) == 0 { // a provider refuses a call without messages, or answers anything
		return nil, berth.Invalid("variables", "the prompt of step %s has no text%s", step, s.dependence())
	}
	if s.Schema != nil && !p.Uses().Schema {
		messages = instruct(messages, locale, string(s.Schema))
	}
	return messages, nil
}

// dependence states what the text of the prompt depends on.
func (s Step) dependence() string {
	if len(s.Reads) == 0 {
		return ""
	}
	return " with these values of " + strings.Join(s.Reads, ", ")
}

// values returns the values of a prompt: variables and outputs that are given, defaults of others, and lists.
func (t *Template) values(in Input) map[string]any {
	values := map[string]any{}
	for _, v := range t.Variables {
		if v.Default != "" {
			values[v.Name] = v.Default
		}
	}
	for name, text := range in.Texts {
		values[name] = text
	}
	for name, image := range in.Images {
		if len(image.Data) > 0 {
			values[name] = dotprompt.Media{URL: image.URL(), ContentType: image.MediaType}
		}
	}
	for name, list := range in.Lists {
		values[name] = list
	}
	return values
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// checkInput returns an error for a variable without content that the step reads and the template requires. The output of an earlier step may
// take the place of a group.
func (t *Template) checkInput(s Step, in Input) error {
	replaced := slices.ContainsFunc(t.Steps, func(earlier Step) bool {
		return earlier.Into != "" && slices.Contains(s.Reads, earlier.Into) && !blank(in.Texts[earlier.Into])
	})
	given := map[string]bool{} // groups
	empty := func(v Variable) bool {
		if v.Kind == KindImage {
			return len(in.Images[v.Name].Data) == 0
		}
		return blank(in.Texts[v.Name])
	}
	for _, v := range t.Variables {
		given[v.Group] = given[v.Group] || slices.Contains(s.Reads, v.Name) && !empty(v)
	}
	for _, v := range t.Variables {
		if !slices.Contains(s.Reads, v.Name) || !empty(v) {
			continue
		}
		if v.Required || v.Group != "" && !given[v.Group] && !replaced {
			if v.Kind == KindImage {
				return berth.Invalid(field(v.Name), "has no content")
			}
			return berth.Invalid(field(v.Name), "has no text")
		}
	}
	return nil
}

// instructions ask for JSON in prompts that do not show its schema.
var instructions = map[berth.Locale]string{
	berth.LocaleEN: "Answer with one JSON object and nothing else: no explanation, no code fence. The object must be valid against this JSON Schema.\n\n",
	berth.LocaleZH: "只回答一个 JSON 对象，不要任何解释，不要代码围栏。该对象必须符合下面的 JSON Schema。\n\n",
}

// instruct adds what a model needs to know of the schema to the last message of the system, or as the first one.
func instruct(messages []Message, l berth.Locale, schema string) []Message {
	text, ok := instructions[l]
	if !ok {
		text = instructions[berth.LocaleEN]
	}
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == dotprompt.RoleSystem {
			messages[i].Parts = append(messages[i].Parts, dotprompt.Part{Text: "\n\n" + text + schema})
			return messages
		}
	}
	return slices.Insert(messages, 0, Message{Role: dotprompt.RoleSystem, Parts: []dotprompt.Part{{Text: text + schema}}})
}

// PlanStep is what the run of a task needs to know of a step.
type PlanStep struct {
	ID              string           `json:"id"`
	Mode            berth.Mode       `json:"mode"`
	Models          Models           `json:"models,omitzero"`
	Into            string           `json:"into,omitempty"`
	Status          berth.TaskStatus `json:"status"`
	MaxOutputTokens int              `json:"maxOutputTokens,omitempty"`
	Timeout         Duration         `json:"timeout,omitzero"`
}

// Plan returns what the run of a task needs to know of the step.
func (s Step) Plan() PlanStep {
	return PlanStep{s.ID, s.Mode, s.Models, s.Into, s.Status, s.MaxOutputTokens, s.Timeout}
}

// Plan returns the steps of a task with these variables.
func (t *Template) Plan(given map[string]berth.VariableKind) []PlanStep {
	var plan []PlanStep
	for _, s := range t.Steps {
		if len(s.When) > 0 && !slices.ContainsFunc(s.When, func(name string) bool { return given[name] != "" }) {
			continue
		}
		plan = append(plan, s.Plan())
	}
	return plan
}

// Assume returns the steps of a task with this input, and the input with a text in place of each of their outputs that it lacks: what is shown
// of a prompt whose earlier steps have not run.
func (t *Template) Assume(in Input) ([]PlanStep, Input) {
	given := map[string]berth.VariableKind{}
	for name := range in.Texts {
		given[name] = berth.KindText
	}
	for name := range in.Images {
		given[name] = berth.KindImageAsset
	}
	texts := map[string]string{}
	plan := t.Plan(given)
	for _, s := range plan {
		if s.Into != "" {
			texts[s.Into] = "[output of step " + s.ID + "]"
		}
	}
	maps.Copy(texts, in.Texts)
	in.Texts = texts
	return plan, in
}

// Evidence returns the variables whose texts are about the user.
func (t *Template) Evidence() (names []string) {
	for _, v := range t.Variables {
		if v.Evidence {
			names = append(names, v.Name)
		}
	}
	return names
}

// CheckVariables returns an error with berth.CodeInvalid for the first variable that is unknown, of a kind that the template cannot use,
// missing, or given together with its alternative. The error's field has the form `variables.resume`.
func (t *Template) CheckVariables(given map[string]berth.VariableKind) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		v, ok := t.variable(name)
		switch {
		case !ok && len(t.Variables) == 0:
			return berth.Invalid(field(name), "unknown variable; %s takes none", t.Name)
		case !ok:
			return berth.Invalid(field(name), "unknown variable; %s takes %s", t.Name, namesOf(t.Variables))
		case slices.Contains(v.Kinds(), given[name]):
		case v.Kind == KindImage:
			return berth.Invalid(field(name), "must be the asset id of an image")
		default:
			return berth.Invalid(field(name), "must be text or the asset id of a text")
		}
	}
	groups := map[string][]Variable{}
	for _, v := range t.Variables {
		if v.Required && given[v.Name] == "" {
			return berth.Invalid(field(v.Name), "required by %s", t.Name)
		}
		if v.Group != "" {
			groups[v.Group] = append(groups[v.Group], v)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		var found []string
		for _, v := range groups[group] {
			if given[v.Name] != "" {
				found = append(found, v.Name)
			}
		}
		switch {
		case len(found) == 0:
			return berth.Invalid(field(groups[group][0].Name), "%s requires one of %s", t.Name, namesOf(groups[group]))
		case len(found) > 1:
			return berth.Invalid(field(found[1]), "cannot be combined with %s: give one of %s", found[0], namesOf(groups[group]))
		}
	}
	return nil
}

func field(variable string) string { return "variables." + variable }

func namesOf(variables []Variable) string {
	names := make([]string, len(variables))
	for i, v := range variables {
		names[i] = v.Name
	}
	return strings.Join(names, ", ")
}
