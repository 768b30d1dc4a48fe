package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"berth/internal/editdistance"
)

// maxMistakes is how many characters of a variable's name may be wrong, missing or added, so that it is treated as a misspelled setting.
const maxMistakes = 2

// Misspelled returns a text for each variable of an environment whose name is nearly that of a setting of the program. Such a variable has
// no effect.
func Misspelled(model *kong.Application, environ []string) []string {
	known, names := settingNames(model), environNames(environ)
	var texts []string
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		meant, fewest := "", maxMistakes+1
		for _, candidate := range known {
			if max(len(name)-len(candidate), len(candidate)-len(name)) >= fewest {
				continue // at least as many are added or missing
			}
			if n := editdistance.Of(strings.ToUpper(name), candidate); n < fewest {
				meant, fewest = candidate, n
			}
		}
		if meant != "" && !slices.Contains(names, meant) {
			texts = append(texts, fmt.Sprintf("%s is not a setting, and has no effect; did you mean %s?", name, meant))
		}
	}
	return texts
}

// prefix begins the names of berth's own variables. Those of others, such as API keys, are not compared: HTTP_PROXY is near many.
const prefix = "BERTH_"

// settingNames returns the names of the variables of all commands, sorted.
func settingNames(model *kong.Application) []string {
	var names []string
	_ = kong.Visit(model, func(node kong.Visitable, next kong.Next) error { // returns no error of its own
		if f, ok := node.(*kong.Flag); ok {
			names = append(names, slices.DeleteFunc(slices.Clone(f.Envs), func(env string) bool { return !strings.HasPrefix(env, prefix) })...)
		}
		return next(nil)
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func environNames(environ []string) []string {
	names := make([]string, len(environ))
	for i, variable := range environ {
		names[i], _, _ = strings.Cut(variable, "=")
	}
	return names
}
