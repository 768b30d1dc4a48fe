package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"berth"
)

// Text is a text for users by its locale.
type Text map[berth.Locale]string

// UnmarshalYAML reads a text of one language or of several.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*t = Text{"": n.Value}
		return nil
	}
	return n.Decode((*map[berth.Locale]string)(t))
}

// In returns the text in a language, else in the nearest one, English, or any.
func (t Text) In(l berth.Locale) string {
	known := slices.Sorted(maps.Keys(t))
	for _, try := range []berth.Locale{l, berth.LocaleEN} {
		if nearest, ok := berth.NearestLocale(known, try); ok {
			return t[nearest]
		}
	}
	for _, l := range known {
		return t[l]
	}
	return ""
}

// Names is a list of names, or one.
type Names []string

// UnmarshalYAML reads a name or a list.
func (v *Names) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*v = Names{n.Value}
		return nil
	}
	return n.Decode((*[]string)(v))
}

// Models are the models of a step, by tier. An empty name leaves the choice to the routing file.
type Models struct {
	Paid string `yaml:"paid" json:"paid,omitempty"`
	Free string `yaml:"free" json:"free,omitempty"`
}

// UnmarshalYAML reads one model for all tiers, or one for each.
func (m *Models) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*m = Models{n.Value, n.Value}
		return nil
	}
	type plain Models
	return n.Decode((*plain)(m))
}

// Duration is a time.Duration that is written as in Go, such as 90s.
type Duration time.Duration

// MarshalText returns the duration as it is written in a template.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// UnmarshalYAML reads a duration. Its error does not end the reading of other fields.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	if err := d.UnmarshalText([]byte(n.Value)); err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: must be a duration such as 90s", n.Line)}}
	}
	return nil
}

// Kind is what a variable is.
type Kind string

// The kinds of variables.
const (
	KindText     Kind = "text"     // a text
	KindDocument Kind = "document" // a text that users usually have in a file
	KindImage    Kind = "image"
)

// Variable is one input of a template.
type Variable struct {
	Name     string `yaml:"name" json:"name"`
	Kind     Kind   `yaml:"kind" json:"kind"`
	Required bool   `yaml:"required" json:"required"`
	// Group names alternatives: exactly one variable of a group is given. Empty for a variable without any.
	Group string `yaml:"group" json:"group,omitempty"`
	Label Text   `yaml:"label" json:"label"`
	Help  Text   `yaml:"help" json:"help,omitempty"`
	// Default is the text of a variable that is not given.
	Default string `yaml:"default" json:"default,omitempty"`
	// Evidence: its texts are about the user, and later tasks search them.
	Evidence bool `yaml:"evidence" json:"evidence,omitempty"`
}

// Kinds returns the forms in which its value is given.
func (v Variable) Kinds() []berth.VariableKind {
	if v.Kind == KindImage {
		return []berth.VariableKind{berth.KindImageAsset}
	}
	return []berth.VariableKind{berth.KindText, berth.KindTextAsset}
}

// Step is one model call of a template.
type Step struct {
	ID    string     `yaml:"id" json:"id"`
	Label Text       `yaml:"label" json:"label"`
	Mode  berth.Mode `yaml:"mode" json:"mode"`
	// When are variables of which one has to be given; nil for a step that always runs.
	When   Names  `yaml:"when" json:"when,omitempty"`
	Models Models `yaml:"models" json:"models"`
	// Into is the variable that the output becomes, empty for the last step.
	Into   string           `yaml:"into" json:"into,omitempty"`
	Status berth.TaskStatus `yaml:"status" json:"status"`
	// MaxOutputTokens and Timeout are 0 for those of model and worker.
	MaxOutputTokens int              `yaml:"maxOutputTokens" json:"maxOutputTokens,omitempty"`
	Timeout         Duration         `yaml:"timeout" json:"timeout,omitzero"`
	Truncated       berth.Truncation `yaml:"truncated" json:"truncated"`
	// Empty are answers that mean that the input has no content.
	Empty []string `yaml:"empty" json:"empty,omitempty"`
	// Schema is the JSON Schema of the output as it is written, nil for text.
	Schema json.RawMessage `yaml:"-" json:"schema,omitempty"`
	// Reads are the variables, outputs and lists that its prompts name, sorted; Images those that it shows to the model.
	Reads  []string `yaml:"-" json:"reads,omitempty"`
	Images []string `yaml:"-" json:"images,omitempty"`
}

// Stage is a part of a stream, which begins with the line <<stage:id>>.
type Stage struct {
	ID    berth.Stage `yaml:"id" json:"id"`
	Label Text        `yaml:"label" json:"label"`
}

// Item is a kind of object within a stream, each a line <<id {…}>>.
type Item struct {
	ID     string          `yaml:"id" json:"id"`
	Label  Text            `yaml:"label" json:"label"`
	Schema json.RawMessage `yaml:"-" json:"schema"`
}

// Background is a list of stored texts of the user. Either Results or Matching is set.
type Background struct {
	Name string `yaml:"name" json:"name"`
	// Results: the newest results of this template.
	Results berth.Template `yaml:"results" json:"results,omitempty"`
	// Matching: passages of the user's evidence that match the first of these variables that has a text.
	Matching Names `yaml:"matching" json:"matching,omitempty"`
	Max      int   `yaml:"max" json:"max"`
}

// about is what a template.yaml and a prompt that is a template state of the whole template.
type about struct {
	Editor      string         `yaml:"$schema"`
	Title       Text           `yaml:"title"`
	Description Text           `yaml:"description"`
	Price       *Price         `yaml:"credits"`
	Locales     []berth.Locale `yaml:"locales"`
	Variables   []Variable     `yaml:"variables"`
	Stages      []Stage        `yaml:"stages"`
	Items       []itemSpec     `yaml:"items"`
	Background  []Background   `yaml:"background"`
}

// spec is a template.yaml.
type spec struct {
	about `yaml:",inline"`
	Steps []stepSpec `yaml:"steps"`
}

type stepSpec struct {
	Step   `yaml:",inline"`
	Prompt string    `yaml:"prompt"`
	Schema yaml.Node `yaml:"schema"`
}

type itemSpec struct {
	Item   `yaml:",inline"`
	Schema yaml.Node `yaml:"schema"`
}

// matter is the front matter of a prompt. All of it is for a prompt that is a template; one beside a template.yaml has Model, Config and
// Output only.
type matter struct {
	about           `yaml:",inline"`
	Label           Text             `yaml:"label"`
	Mode            berth.Mode       `yaml:"mode"`
	Models          Models           `yaml:"models"`
	Status          berth.TaskStatus `yaml:"status"`
	MaxOutputTokens int              `yaml:"maxOutputTokens"`
	Timeout         Duration         `yaml:"timeout"`
	Truncated       berth.Truncation `yaml:"truncated"`
	Empty           []string         `yaml:"empty"`
	Model           string           `yaml:"model"`
	Config          configSpec       `yaml:"config"`
	Input           inputSpec        `yaml:"input"`
	Output          outputSpec       `yaml:"output"`
}

type configSpec struct {
	MaxOutputTokens int `yaml:"maxOutputTokens"`
}

type inputSpec struct {
	Schema  yaml.Node         `yaml:"schema"`
	Default map[string]string `yaml:"default"`
}

type outputSpec struct {
	Format string    `yaml:"format"`
	Schema yaml.Node `yaml:"schema"`
}

// beside are the fields of the front matter of a prompt beside a template.yaml.
var beside = []string{"model", "config", "output"}
