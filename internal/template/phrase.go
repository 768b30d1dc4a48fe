package template

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"

	"berth/internal/editdistance"
	"berth/internal/schema"
	"berth/internal/yamlfile"
	"berth/templates"
)

// describedSchema is the schema of the files with its descriptions.
var describedSchema = sync.OnceValue(func() *yaml.Node {
	n, err := yamlfile.ParseJSON(templates.Schema)
	if err != nil {
		panic(err)
	}
	return n
})

// expected returns what a field is by its definition, such as "a duration …"; empty for a field without one.
func expected(p schema.Problem) string {
	if len(p.Schema) != 2 || p.Schema[0] != "$defs" {
		return ""
	}
	if n := findExact(describedSchema(), append(slices.Clone(p.Schema), "description")); n != nil {
		return n.Value
	}
	return ""
}

// The types of JSON as authors of YAML know them.
var typeWords = map[string]string{
	"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "fields such as name: value",
	"array": "a list",
}

// phrase returns what is wrong with a value that violates the schema of the files, and what to write.
func phrase(p schema.Problem, n *yaml.Node) string {
	what := expected(p)
	switch k := p.Kind.(type) {
	case *kind.Type:
		if what == "" {
			words := make([]string, len(k.Want))
			for i, name := range k.Want {
				words[i] = typeWords[name]
			}
			what = strings.Join(words, " or ")
		}
		text := fmt.Sprintf("must be %s, not %s", what, typeWords[k.Got])
		switch {
		case k.Got == "null":
			text = "is empty: write " + what
		case k.Got == "number" && k.Want[0] == "integer":
			text = "must be " + what
		}
		switch _, err := fmt.Sscanf(n.Value, "%d", new(int)); {
		case n.Kind != yaml.ScalarNode:
		case k.Want[0] == "array" && slices.Contains([]string{"locales", "empty"}, p.Path[len(p.Path)-1]):
			text += fmt.Sprintf(": write [%s]", n.Value)
		case k.Want[0] == "integer" && k.Got == "string" && err == nil:
			text += ": write " + n.Value
		case slices.Equal(p.Schema, []string{"$defs", "duration"}) && err == nil:
			text += fmt.Sprintf(": write %ss", n.Value)
		case (expected(p) == "" || strings.HasPrefix(what, "a text")) && slices.Contains(k.Want, "string") && (k.Got == "number" || k.Got == "boolean"):
			text += fmt.Sprintf(": write %q", n.Value)
		}
		return text
	case *kind.Enum:
		var words []string
		for _, want := range k.Want {
			words = append(words, fmt.Sprint(want))
		}
		if meant := editdistance.Nearest(n.Value, words); meant != "" && n.Kind == yaml.ScalarNode {
			return "must be one of " + strings.Join(words, ", ") + ": write " + meant
		}
		return "must be one of " + strings.Join(words, ", ")
	case *kind.Required:
		return strings.Join(k.Missing, ", ") + " is missing: add it"
	case *kind.Pattern:
		if what != "" && strings.TrimSpace(n.Value) != "" {
			return "must be " + what
		}
		return "must not be empty: write a text, or remove the field"
	case *kind.MinLength:
		return "must not be empty: write a text, or remove the field"
	case *kind.MaxLength:
		return fmt.Sprintf("is too long: %d characters; at most %d are allowed", k.Got, k.Want)
	case *kind.MinItems, *kind.MinProperties:
		return "must not be empty: add an entry, or remove the field"
	case *kind.MaxItems:
		return fmt.Sprintf("has %d entries: at most %d are allowed", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has %d fields: at most %d are allowed", k.Got, k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("entries %d and %d are the same: remove one", k.Duplicates[0]+1, k.Duplicates[1]+1)
	case *kind.Minimum:
		return "must be at least " + plainNumber(k.Want)
	case *kind.Maximum:
		return "must be at most " + plainNumber(k.Want)
	default:
		return p.Message
	}
}

func plainNumber(r *big.Rat) string { return strings.TrimSuffix(r.RatString(), ".0") }
