package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	maxSteps  = 300_000 // parts of values to which schemas are applied for one answer
	maxDepth  = 400     // of values
	maxNested = 6       // of values that may be left out
	maxRounds = 3       // of a schema within itself
	maxPadded = 1000    // items of one list, and fields of one object
	maxText   = 4000
	maxLength = 100_000 // of a text whose schema wants it long
)

// filler makes a value of a schema from a source. It tries what the source says first, then values that the schema allows,
// and validates each before it is used.
type filler struct {
	*source
	rank    map[string]int      // of keyRank
	order   map[string][]string // names of properties, by the path of their object
	stack   map[*jsonschema.Schema]int
	subject *document
	chosen  map[string]map[string]*section // sections of properties, by the path of their object
	heads   map[string]string              // lines that were used, by path
	others  map[string]int                 // the same for texts that say something else
	notice  string                         // the path of the text that states that the answer is simulated
}

// place is where a value stands.
type place struct {
	path    string
	name    string
	words   []string // of the name
	about   string   // title and description
	nth     int      // among the texts of its object
	section *section // that is about the name, if any
	entry   *entry   // the item of a list that the value is a part of, if any
	variant int      // a different value for each
	spare   bool     // the value may be left out
}

func (s *source) newFiller(rank map[string]int) *filler {
	return &filler{
		source: s, rank: rank, stack: map[*jsonschema.Schema]int{}, subject: s.docs[0],
		chosen: map[string]map[string]*section{}, heads: map[string]string{}, others: map[string]int{},
		order: map[string][]string{},
	}
}

// applied is what applies to one place: schemas, with their references and allOf, and for each anyOf, oneOf and if the
// schemas of which one must apply, too.
type applied struct {
	all     []*jsonschema.Schema
	choices [][][]*jsonschema.Schema
	never   bool
}

func (a *applied) add(s *jsonschema.Schema) {
	if s == nil || slices.Contains(a.all, s) {
		return
	}
	a.all = append(a.all, s)
	if s.Bool != nil && !*s.Bool {
		a.never = true
	}
	a.add(s.Ref)
	a.add(s.RecursiveRef)
	if s.DynamicRef != nil {
		a.add(s.DynamicRef.Ref)
	}
	for _, sub := range s.AllOf {
		a.add(sub)
	}
	for _, options := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(options) > 0 {
			a.choices = append(a.choices, alternatives(options))
		}
	}
	if s.If != nil {
		a.choices = append(a.choices, [][]*jsonschema.Schema{{s.If, s.Then}, {s.Else}})
	}
}

// depend adds what applies because of required properties. It returns false if there was nothing to add.
func (a *applied) depend() bool {
	n := len(a.all)
	for i := range a.all {
		for _, name := range slices.Sorted(maps.Keys(a.all[i].DependentSchemas)) {
			if slices.ContainsFunc(a.all, func(s *jsonschema.Schema) bool { return slices.Contains(s.Required, name) }) {
				a.add(a.all[i].DependentSchemas[name])
			}
		}
	}
	return len(a.all) > n
}

// alternatives returns each option as a list, null last.
func alternatives(options []*jsonschema.Schema) (out [][]*jsonschema.Schema) {
	var last [][]*jsonschema.Schema
	for _, o := range options {
		if o.Types != nil && slices.Equal(o.Types.ToStrings(), []string{"null"}) {
			last = append(last, []*jsonschema.Schema{o})
		} else {
			out = append(out, []*jsonschema.Schema{o})
		}
	}
	return append(out, last...)
}

// value returns a value to which all of the schemas apply; false if none was found.
func (f *filler) value(schemas []*jsonschema.Schema, at place, depth int) (any, bool) {
	var a applied
	for _, s := range schemas {
		a.add(s)
	}
	return f.choose(a, at, depth)
}

// choose decides the choices one by one, and goes back if a decision does not work out.
func (f *filler) choose(a applied, at place, depth int) (any, bool) {
	if f.steps -= 1 + len(a.all); f.steps < 0 || a.never || depth > maxDepth {
		return nil, false
	}
	if len(a.choices) == 0 {
		if a.depend() {
			return f.choose(a, at, depth)
		}
		return f.typed(a.all, at, depth)
	}
	for _, option := range a.choices[0] {
		next := applied{all: slices.Clone(a.all), choices: slices.Clone(a.choices[1:])}
		for _, s := range option {
			next.add(s)
		}
		if v, ok := f.choose(next, at, depth); ok {
			return v, true
		}
	}
	return nil, false
}

// valid reports whether all of the schemas apply to a value.
func (f *filler) valid(all []*jsonschema.Schema, v any) bool {
	f.steps -= len(all) * size(v)
	return f.steps >= 0 && !slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return s.Validate(v) != nil })
}

// size returns about how much work a value is.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += size(e)
		}
	case []any:
		for _, e := range v {
			n += size(e)
		}
	case string:
		n += len(v) / 64
	}
	return n
}

// typed tries the types that the schemas allow.
func (f *filler) typed(all []*jsonschema.Schema, at place, depth int) (any, bool) {
	for _, s := range all {
		at.about = cmp.Or(at.about, strings.TrimSpace(s.Title+" "+s.Description))
	}
	if values, ok := listedValues(all); ok {
		return f.firstValid(all, f.ordered(values, at))
	}
	for _, s := range all {
		if f.stack[s] >= maxRounds {
			return nil, false
		}
	}
	for _, s := range all {
		f.stack[s]++
		defer func() { f.stack[s]-- }()
	}
	nullable := allows(all, "null")
	for _, kind := range []string{"object", "array", "string", "number", "boolean"} {
		if !allows(all, kind) {
			continue
		}
		var options []any
		said := true // the source has something to say
		switch kind {
		case "object":
			if v, ok := f.object(all, at, depth); ok {
				return v, true
			}
		case "array":
			if v, ok := f.array(all, at, depth); ok {
				return v, true
			}
		case "string":
			if options, said = f.strings(all, at); !said && at.spare && !nullable {
				return nil, false
			}
		case "number":
			options, said = f.numbers(all, at)
		case "boolean":
			yes := f.holds(at) != (at.variant%2 == 1)
			options = []any{yes, !yes}
		}
		if !said && nullable {
			options = append([]any{nil}, options...)
		}
		if v, ok := f.firstValid(all, options); ok {
			return v, true
		}
	}
	return f.firstValid(all, []any{nil})
}

func (f *filler) firstValid(all []*jsonschema.Schema, options []any) (any, bool) {
	i := slices.IndexFunc(options, func(v any) bool { return f.valid(all, v) })
	if i < 0 {
		return nil, false
	}
	return options[i], true
}

// listedValues returns the values of the shortest enum or of const.
func listedValues(all []*jsonschema.Schema) (values []any, ok bool) {
	for _, s := range all {
		if s.Const != nil {
			return []any{*s.Const}, true
		}
		if s.Enum != nil && (!ok || len(s.Enum.Values) < len(values)) {
			values, ok = s.Enum.Values, true
		}
	}
	return values, ok
}

// allows reports whether the schemas allow a type. Without a type, the keywords of one type imply it.
func allows(all []*jsonschema.Schema, kind string) bool {
	implied := ""
	for _, s := range all {
		if s.Types == nil {
			implied = cmp.Or(implied, impliedType(s))
			continue
		}
		types := s.Types.ToStrings()
		whole := kind == "number" && slices.Contains(types, "integer")
		if !whole && !slices.Contains(types, kind) {
			return false
		}
	}
	typed := slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return s.Types != nil })
	return typed || implied == "" && kind != "object" && kind != "array" || implied == kind
}

func impliedType(s *jsonschema.Schema) string {
	switch {
	case len(s.Properties) > 0, len(s.Required) > 0, s.MinProperties != nil, len(s.PatternProperties) > 0:
		return "object"
	case s.Items2020 != nil, s.Items != nil, s.MinItems != nil, len(s.PrefixItems) > 0, s.Contains != nil:
		return "array"
	case s.MinLength != nil, s.MaxLength != nil, s.Pattern != nil, s.Format != nil:
		return "string"
	case s.Minimum != nil, s.Maximum != nil, s.ExclusiveMinimum != nil, s.ExclusiveMaximum != nil, s.MultipleOf != nil:
		return "number"
	}
	return ""
}
