package dotprompt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// helper describes what a body can call.
type helper struct {
	block bool
	// args is the number of arguments, named are those with a name.
	args  int
	named []string
	// value: it returns a text, which can be an argument of another helper.
	value bool
	usage string
	help  string
}

// helpers are all that a body can call.
var helpers = map[string]helper{
	"role":         {args: 1, usage: `{{role "system"}}`, help: "begins a message of `system`, `user` or `model`"},
	"media":        {named: []string{"url", "contentType"}, usage: `{{media url=photo}}`, help: "puts an image into the message; `photo` is a variable of kind `image`, and nothing is put if it is absent"},
	"history":      {usage: `{{history}}`, help: "puts earlier messages of the conversation; a task has none"},
	"section":      {args: 1, usage: `{{section "name"}}`, help: "begins a named part; models do not see it"},
	"json":         {args: 1, named: []string{"indent"}, value: true, usage: `{{json list indent=2}}`, help: "the value as JSON"},
	"document":     {args: 2, value: true, usage: `{{document "name" text}}`, help: "the text between document lines that it cannot contain, so that a model knows where it ends"},
	"schema":       {value: true, usage: `{{schema}}`, help: "the JSON Schema of the step's output"},
	"if":           {block: true, args: 1, named: []string{"includeZero"}, usage: `{{#if x}}…{{else if y}}…{{else}}…{{/if}}`, help: "if `x` is present: not absent, empty, 0 or false"},
	"unless":       {block: true, args: 1, named: []string{"includeZero"}, usage: `{{#unless x}}…{{else}}…{{/unless}}`, help: "the opposite"},
	"ifEquals":     {block: true, args: 2, usage: `{{#ifEquals x "a"}}…{{else}}…{{/ifEquals}}`, help: "if both are the same text, number or truth value"},
	"unlessEquals": {block: true, args: 2, usage: `{{#unlessEquals x "a"}}…{{/unlessEquals}}`, help: "the opposite"},
	"each":         {block: true, args: 1, usage: `{{#each list}}…{{this}}…{{else}}…{{/each}}`, help: "for each text of a list, which is `this`; `@index`, `@first` and `@last` are its position, `@root.x` and `../x` the variables outside"},
	"with":         {block: true, args: 1, usage: `{{#with x}}…{{this}}…{{/with}}`, help: "with `x` as `this`, if it is present"},
}

func isHelper(name string) bool {
	_, ok := helpers[name]
	return ok
}

// Helpers returns the names of all helpers, sorted. No variable can have one of them.
func Helpers() []string { return slices.Sorted(maps.Keys(helpers)) }

// words are names with a meaning in bodies besides the helpers.
var words = []string{"this", "else", "true", "false", "null", "undefined", "as", "root", "lookup", "log"}

// Reserved reports whether a name has a meaning of its own in bodies, so that no variable can have it.
func Reserved(name string) bool { return isHelper(name) || slices.Contains(words, name) }

// HelperTable returns the helpers as rows of a table in Markdown.
func HelperTable() string {
	var b strings.Builder
	b.WriteString("| in a prompt | is |\n| --- | --- |\n")
	for _, name := range []string{"role", "media", "document", "schema", "json", "if", "unless", "ifEquals", "unlessEquals", "each", "with", "section", "history"} {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(helpers[name].usage, "|", `\|`), helpers[name].help)
	}
	return b.String()
}
