package llm

import (
	"maps"
	"slices"
	"strings"

	"berth"
)

// HasImage reports whether an image is among the variables, so that the task starts with a vision step.
func HasImage(vars map[string]berth.VariableKind) bool {
	return slices.Contains(slices.Collect(maps.Values(vars)), berth.KindImageAsset)
}

// CheckVariables returns an error with berth.CodeInvalid for the first variable that is unknown, of a kind that the
// template cannot use, missing, or given together with its alternative. The error's field has the form
// `variables.resume`.
func CheckVariables(t berth.Template, vars map[string]berth.VariableKind) error {
	spec := t.Spec()
	if !spec.Submittable() {
		return berth.Invalid("template", "unknown template %q", t)
	}
	known := spec.Variables
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		i := slices.IndexFunc(known, func(v berth.Variable) bool { return v.Name == name })
		if i < 0 {
			return berth.Invalid(field(name), "unknown variable; %s takes %s", t, names(known))
		}
		if !slices.Contains(known[i].Kinds, vars[name]) {
			return berth.Invalid(field(name), "must be %s", describe(known[i].Kinds))
		}
	}
	for _, v := range known {
		if _, given := vars[v.Name]; v.Required && !given {
			return berth.Invalid(field(v.Name), "required by %s", t)
		}
	}
	return checkGroups(t, known, vars)
}

// checkGroups requires exactly one variable of each group.
func checkGroups(t berth.Template, known []berth.Variable, vars map[string]berth.VariableKind) error {
	members := map[string][]berth.Variable{}
	for _, v := range known {
		if v.Group != "" {
			members[v.Group] = append(members[v.Group], v)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(members)) {
		var given []string
		for _, v := range members[group] {
			if _, ok := vars[v.Name]; ok {
				given = append(given, v.Name)
			}
		}
		switch {
		case len(given) == 0:
			return berth.Invalid(field(members[group][0].Name), "%s requires one of %s", t, names(members[group]))
		case len(given) > 1:
			return berth.Invalid(field(given[1]), "cannot be combined with %s: give one of %s", given[0], names(members[group]))
		}
	}
	return nil
}

func field(variable string) string { return "variables." + variable }

func names(vars []berth.Variable) string {
	out := make([]string, len(vars))
	for i, v := range vars {
		out[i] = v.Name
	}
	return strings.Join(out, ", ")
}

func describe(kinds []berth.VariableKind) string {
	if slices.Contains(kinds, berth.KindImageAsset) {
		return "the asset id of an image"
	}
	return "text or the asset id of a text"
}
