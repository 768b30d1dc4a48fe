package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth/internal/schema"
)

const (
	maxSteps  = 50_000 // values that are tried for one answer
	maxNested = 6      // depth of values that may be left out
	maxRounds = 3      // of a schema within itself
	maxPadded = 1000   // items of one list, and fields of one object
)

// filler makes a value of a schema from a source. It tries what the source says first, then values that the schema allows, and validates each
// before it is used.
type filler struct {
	*source
	raw     string                     // the schema
	stack   map[*jsonschema.Schema]int // how often a value of the schema is being made
	subject *document                  // that the value is about
	heads   map[string]string          // lines that were used, by path
}

// place is where a value stands.
type place struct {
	path     string
	name     string // of the property
	about    string // title and description
	nth      int    // among the texts of its object
	depth    int
	section  *section // that is about the name, if any
	entry    *entry   // the item of a list that the value is a part of, if any
	optional bool
}

type schemas = []*jsonschema.Schema

func (s *source) newFiller(raw []byte) *filler {
	return &filler{source: s, raw: string(raw), stack: map[*jsonschema.Schema]int{}, subject: s.docs[0], heads: map[string]string{}}
}

// fill returns a value of the schema with what the source says. If no value was found, the answer states that in text. What a schema may demand
// beyond types, limits, formats, patterns, choices, required properties and items is checked, but not aimed at: names by a pattern or by another
// property, and contained or dependent values.
func (s *source) fill(raw []byte) string {
	compiled, err := schema.CompileWithFormats("schema.json", raw)
	if err != nil {
		return s.render("unusable", strings.Join(strings.Fields(err.Error()), " "))
	}
	f := s.newFiller(raw)
	v, ok := f.value(schemas{compiled}, place{})
	if !ok {
		return s.render("unusable", "")
	}
	if object, ok := v.(map[string]any); ok {
		f.note(object, compiled)
	}
	return f.encode(v)
}

// note states that the answer is simulated in the text of an object that may have it: the first that is named as a text, else the last one.
func (f *filler) note(object map[string]any, compiled *jsonschema.Schema) {
	names := f.ordered(object)
	texts := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !proseNames.MatchString(name) })
	slices.Reverse(names)
	for _, name := range append(texts, names...) {
		if text, ok := object[name].(string); ok {
			object[name] = strings.TrimSpace(text + " " + f.render("notice", nil))
			if compiled.Validate(object) == nil {
				return
			}
			object[name] = text
		}
	}
}

// encode writes a value with the names of its objects in the order of the schema.
func (f *filler) encode(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, name := range f.ordered(v) {
			parts = append(parts, marshal(name)+":"+f.encode(v[name]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, f.encode(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		return marshal(v)
	}
}

// ordered returns the names of an object in the order in which the schema has them: where it has them closest to one another.
func (f *filler) ordered(object map[string]any) (out []string) {
	const mark = `"properties":`
	names := slices.Sorted(maps.Keys(object))
	least := 2*len(f.raw) + 1
	for text, n := f.raw, 0; text != "" && n < 50; n++ {
		at, last := map[string]int{}, 0
		for _, name := range names {
			if at[name] = strings.Index(text, marshal(name)+":"); at[name] < 0 {
				at[name] = len(f.raw)
			}
			last = max(last, at[name])
		}
		if last < least {
			least = last
			out = slices.SortedStableFunc(slices.Values(names), func(a, b string) int { return at[a] - at[b] })
		}
		_, text, _ = strings.Cut(text, mark)
	}
	return out
}

// marshal returns the JSON of a value that always has one.
func marshal(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// applied is what applies to one place: schemas, with their references and allOf, and for each anyOf, oneOf and if the schemas of which one
// must apply, too.
type applied struct {
	all     schemas
	choices [][]schemas
}

func (a *applied) add(some ...*jsonschema.Schema) {
	for _, s := range some {
		if s == nil || slices.Contains(a.all, s) {
			continue
		}
		a.all = append(a.all, s)
		a.add(s.Ref)
		a.add(s.AllOf...)
		for _, options := range []schemas{s.AnyOf, s.OneOf} {
			var choice []schemas
			for _, o := range options {
				choice = append(choice, schemas{o})
			}
			if len(choice) > 0 {
				a.choices = append(a.choices, choice)
			}
		}
		if s.If != nil {
			a.choices = append(a.choices, []schemas{{s.If, s.Then}, {s.Else}})
		}
	}
}

// value returns a value to which all of the schemas apply; false if none was found.
func (f *filler) value(some schemas, at place) (any, bool) {
	var a applied
	a.add(some...)
	return f.choose(a, at)
}

// choose decides the choices one by one, and goes back if a decision does not work out.
func (f *filler) choose(a applied, at place) (any, bool) {
	if f.steps -= len(a.all); f.steps < 0 {
		return nil, false
	}
	if len(a.choices) == 0 {
		return f.typed(a.all, at)
	}
	for _, option := range a.choices[0] {
		next := applied{slices.Clone(a.all), slices.Clone(a.choices[1:])}
		next.add(option...)
		if v, ok := f.choose(next, at); ok {
			return v, true
		}
	}
	return nil, false
}

// valid reports whether all of the schemas apply to a value.
func (f *filler) valid(all schemas, v any) bool {
	f.steps -= len(all)
	return f.steps >= 0 && !slices.ContainsFunc(all, func(s *jsonschema.Schema) bool { return s.Validate(v) != nil })
}

// typed tries the types that the schemas allow.
func (f *filler) typed(all schemas, at place) (any, bool) {
	if values, ok := listedValues(all); ok {
		return f.firstValid(all, values)
	}
	for _, s := range all {
		if f.stack[s] >= maxRounds {
			return nil, false
		}
		f.stack[s]++
		defer func() { f.stack[s]-- }()
	}
	nullable := allows(all, "null")
	for _, kind := range []string{"object", "array", "string", "number", "boolean"} {
		var options []any
		said := true // the source has something to say
		switch {
		case !allows(all, kind):
			continue
		case kind == "object":
			options = f.object(all, at)
		case kind == "array":
			options = f.array(all, at)
		case kind == "string":
			if options, said = f.strings(all, at); !said && at.optional && !nullable {
				return nil, false
			}
		case kind == "number":
			options, said = f.numbers(all, at)
		default:
			yes := at.entry != nil && at.entry.OK
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

func (f *filler) firstValid(all schemas, options []any) (any, bool) {
	i := slices.IndexFunc(options, func(v any) bool { return f.valid(all, v) })
	if i < 0 {
		return nil, false
	}
	return options[i], true
}

func aboutOf(all schemas) (about string) {
	for _, s := range all {
		about = cmp.Or(about, strings.TrimSpace(s.Title+" "+s.Description))
	}
	return about
}

// listedValues returns the values of an enum or of const.
func listedValues(all schemas) (values []any, ok bool) {
	for _, s := range all {
		if s.Const != nil {
			return []any{*s.Const}, true
		}
		if s.Enum != nil && !ok {
			values, ok = s.Enum.Values, true
		}
	}
	return values, ok
}

// allows reports whether the schemas allow a type. Without a type, they are for an object if they have properties.
func allows(all schemas, kind string) bool {
	typed, object := false, false
	for _, s := range all {
		object = object || len(s.Properties)+len(s.Required) > 0
		if s.Types != nil {
			typed = true
			if types := s.Types.ToStrings(); !slices.Contains(types, kind) && (kind != "number" || !slices.Contains(types, "integer")) {
				return false
			}
		}
	}
	return typed || object == (kind == "object")
}
