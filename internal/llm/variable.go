package llm

import (
	"slices"
	"strings"

	"berth"
)

// Kind is the form a variable's value was given in.
type Kind string

// The kinds of values.
const (
	KindText       Kind = "text"        // text in the request itself
	KindTextAsset  Kind = "text_asset"  // the id of a stored text
	KindImageAsset Kind = "image_asset" // the id of a stored image
)

// Variable is one input of a template, for checking a request and for drawing a form.
type Variable struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	// Group: of the variables of one group exactly one must be given. Empty: the variable stands alone.
	Group string `json:"group,omitempty"`
	Kinds []Kind `json:"kinds"`
}

const (
	groupJob    = "job"
	groupResume = "resume"
)

func texts() []Kind  { return []Kind{KindText, KindTextAsset} }
func images() []Kind { return []Kind{KindImageAsset} }

// Variables lists what a template can be submitted with, in the order a form shows it; nil for an unknown one.
func Variables(t berth.Template) []Variable {
	posting := []Variable{
		{Name: berth.VarJobText, Group: groupJob, Kinds: texts()},
		{Name: berth.VarJobImage, Group: groupJob, Kinds: images()},
		{Name: berth.VarImage, Group: groupJob, Kinds: images()},
	}
	resume := Variable{Name: berth.VarResume, Required: true, Kinds: texts()}
	switch t {
	case berth.TemplateJobMatch, berth.TemplateInterviewPrep, berth.TemplateResumeCustomize:
		return append([]Variable{resume}, append(posting,
			Variable{Name: berth.VarDetailedResume, Kinds: texts()},
			Variable{Name: berth.VarNotes, Kinds: texts()})...)
	case berth.TemplateResumeSummary, berth.TemplateDetailedResumeSummary:
		return []Variable{
			{Name: berth.VarResume, Group: groupResume, Kinds: texts()},
			{Name: berth.VarImage, Group: groupResume, Kinds: images()},
			{Name: berth.VarNotes, Kinds: texts()},
		}
	case berth.TemplateJobSummary:
		return append(posting, Variable{Name: berth.VarNotes, Kinds: texts()})
	default:
		return nil
	}
}

// ReadsInto names the variable that the text read from a template's image stands for.
func ReadsInto(t berth.Template) string {
	if t == berth.TemplateResumeSummary || t == berth.TemplateDetailedResumeSummary {
		return berth.VarResume
	}
	return berth.VarJobText
}

// Reads tells whether the prompt of a step's template is filled from the variable. Pictures are for the step that reads them.
func Reads(t berth.Template, variable string) bool {
	picture := variable == berth.VarImage || variable == berth.VarJobImage
	if t == berth.TemplateJobVision || picture {
		return t == berth.TemplateJobVision && picture
	}
	return slices.ContainsFunc(Variables(t), func(v Variable) bool { return v.Name == variable })
}

// HasImage tells whether the variables take the vision branch (T2).
func HasImage(vars map[string]Kind) bool {
	for _, k := range vars {
		if k == KindImageAsset {
			return true
		}
	}
	return false
}

// CheckVariables answers with berth.CodeInvalid, the field named as in `variables.resume`, for the first variable that is
// unknown, of a kind the template cannot use, missing, or given beside its alternative (X6).
func CheckVariables(t berth.Template, vars map[string]Kind) error {
	known := Variables(t)
	if known == nil {
		return berth.Invalid("template", "unknown template %q", t)
	}
	for _, name := range sortedKeys(vars) {
		i := slices.IndexFunc(known, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			return berth.Invalid(field(name), "%s takes no such variable; it takes %s", t, names(known))
		}
		if !slices.Contains(known[i].Kinds, vars[name]) {
			return berth.Invalid(field(name), "must be %s", describe(known[i].Kinds))
		}
	}
	for _, v := range known {
		if _, given := vars[v.Name]; v.Required && !given {
			return berth.Invalid(field(v.Name), "is missing: %s needs it", t)
		}
	}
	for _, group := range []string{groupResume, groupJob} {
		if err := checkGroup(t, known, group, vars); err != nil {
			return err
		}
	}
	return nil
}

func checkGroup(t berth.Template, known []Variable, group string, vars map[string]Kind) error {
	var members []Variable
	var given []string
	for _, v := range known {
		if v.Group != group {
			continue
		}
		members = append(members, v)
		if _, ok := vars[v.Name]; ok {
			given = append(given, v.Name)
		}
	}
	switch {
	case len(members) == 0 || len(given) == 1:
		return nil
	case len(given) == 0:
		return berth.Invalid(field(members[0].Name), "is missing: %s needs one of %s", t, names(members))
	default:
		return berth.Invalid(field(given[1]), "cannot be given beside %s: give one of %s", given[0], names(members))
	}
}

func field(variable string) string { return "variables." + variable }

func names(vars []Variable) string {
	out := make([]string, len(vars))
	for i, v := range vars {
		out[i] = v.Name
	}
	return strings.Join(out, ", ")
}

func describe(kinds []Kind) string {
	if slices.Contains(kinds, KindImageAsset) {
		return "the asset id of an image"
	}
	return "text or the asset id of a text"
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
