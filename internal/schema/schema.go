// Package schema compiles JSON schemas and describes what does not match them.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Compile compiles a JSON schema, of draft 2020-12 by default, which cannot refer to other files. A name with a fragment, such as
// x.json#/$defs/part, compiles this part.
func Compile(name string, raw []byte) (*jsonschema.Schema, error) { return compile(name, raw, false) }

// CompileWithFormats compiles a schema as Compile does. A value must have its formats, too, which otherwise only describe it.
func CompileWithFormats(name string, raw []byte) (*jsonschema.Schema, error) {
	return compile(name, raw, true)
}

func compile(name string, raw []byte, formats bool) (compiled *jsonschema.Schema, err error) {
	defer func() { // the library panics at what it cannot read
		if fault := recover(); fault != nil {
			compiled, err = nil, fmt.Errorf("a value cannot be read: %v", fault)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if depth(doc, maxDepth) > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	if extreme(doc) {
		return nil, errors.New("a number is too large, too small or too long")
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if formats {
		c.AssertFormat()
	}
	file, _, _ := strings.Cut(name, "#")
	if err := c.AddResource(file, doc); err != nil {
		return nil, err
	}
	if compiled, err = c.Compile(name); err == nil && (cost{}).of(compiled) > maxCost {
		return nil, fmt.Errorf("its references lead to the same parts more than %d times", maxCost)
	}
	return compiled, err
}

// maxCost bounds how many schemas are applied to one part of a value. A few definitions that each refer to the next one twice
// would multiply them without end.
const maxCost = 10_000

// cost counts the schemas that a schema applies to one part of a value at most: those of the value itself, or of a part of it. A
// schema within itself counts once.
type cost map[*jsonschema.Schema]int

func (c cost) of(s *jsonschema.Schema) int {
	if s == nil {
		return 0
	}
	if n, ok := c[s]; ok {
		return n
	}
	c[s] = 1
	n := 1
	add := func(schemas ...*jsonschema.Schema) {
		for _, sub := range schemas {
			n = min(n+c.of(sub), maxCost+1)
		}
	}
	most := func(schemas iter.Seq[*jsonschema.Schema]) { // each is for another part
		worst := 0
		for sub := range schemas {
			worst = max(worst, c.of(sub))
		}
		n = min(n+worst, maxCost+1)
	}
	add(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	if s.DynamicRef != nil {
		add(s.DynamicRef.Ref)
	}
	add(slices.Concat(s.AllOf, s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.PatternProperties)), slices.Collect(maps.Values(s.DependentSchemas)))...)
	for _, older := range slices.Concat([]any{s.AdditionalProperties, s.AdditionalItems, s.Items}, slices.Collect(maps.Values(s.Dependencies))) {
		switch older := older.(type) {
		case *jsonschema.Schema:
			add(older)
		case []*jsonschema.Schema:
			most(slices.Values(older))
		}
	}
	most(maps.Values(s.Properties))
	most(slices.Values(s.PrefixItems))
	c[s] = n
	return n
}

// maxDepth bounds how deep a schema is nested: the time to compile one grows faster than its depth.
const maxDepth = 64

// depth returns how deep a value is nested, at most limit+1.
func depth(v any, limit int) (deepest int) {
	if limit < 0 {
		return 1
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e, limit-1))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e, limit-1))
		}
	default:
		return 0
	}
	return deepest + 1
}

// extreme reports whether a value has a number with which exact arithmetic takes too long.
func extreme(v any) bool {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Float64()
		digits, _, _ := strings.Cut(strings.ToLower(string(v)), "e")
		return err != nil || len(v) > 400 || n == 0 && strings.ContainsAny(digits, "123456789")
	case []any:
		return slices.ContainsFunc(v, extreme)
	case map[string]any:
		for _, item := range v {
			if extreme(item) {
				return true
			}
		}
	}
	return false
}

// MustCompile compiles an embedded schema.
func MustCompile(name string, raw []byte) *jsonschema.Schema {
	s, err := Compile(name, raw)
	if err != nil {
		panic(fmt.Sprintf("schema %s: %v", name, err))
	}
	return s
}

// Validate validates a value of jsonschema.UnmarshalJSON. The library panics at numbers that it cannot read, such as 1e1000001.
func Validate(s *jsonschema.Schema, v any) error {
	if number := outOfRange(v); number != "" {
		return fmt.Errorf("the number %.40s is out of range", number)
	}
	return s.Validate(v)
}

// outOfRange returns a number in a value that has no finite form of 64 bits; empty if there is none.
func outOfRange(v any) string {
	switch t := v.(type) {
	case json.Number:
		f, err := t.Float64()
		digits, _, _ := strings.Cut(strings.ToLower(string(t)), "e")
		if err != nil || f == 0 && strings.ContainsAny(digits, "123456789") {
			return string(t)
		}
	case []any:
		for _, item := range t {
			if number := outOfRange(item); number != "" {
				return number
			}
		}
	case map[string]any:
		for _, item := range t {
			if number := outOfRange(item); number != "" {
				return number
			}
		}
	}
	return ""
}

// Problem is one violation of a schema.
type Problem struct {
	Path    []string
	Message string
	Unknown []string // properties at the path that the schema does not have
	// Kind is the violation as the library describes it, nil for others, and Schema the place in the schema of the part that is violated.
	Kind   jsonschema.ErrorKind
	Schema []string
}

// Problems returns the violations that a validation found, nil when err is nil.
func Problems(err error) []Problem {
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Problem{{Message: err.Error()}}
	}
	var out []Problem
	var walk func(e, of *jsonschema.ValidationError)
	walk = func(e, of *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause, e)
		}
		if len(e.Causes) == 0 {
			p := Problem{Path: e.InstanceLocation, Message: describe(e.ErrorKind, of.ErrorKind), Kind: e.ErrorKind}
			_, fragment, _ := strings.Cut(e.SchemaURL, "#")
			p.Schema, _ = pointer(fragment)
			if name, ok := of.ErrorKind.(*kind.PropertyNames); ok { // the library has no place of a name
				p.Path = append(slices.Clone(of.InstanceLocation), name.Property)
			}
			if more, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
				p.Unknown = more.Properties
			}
			out = append(out, p)
		}
	}
	walk(invalid, invalid)
	return out
}

// english formats the messages of the schema library.
var english = message.NewPrinter(language.English)

// describe returns what a violation is, without the value: it may be a key that was written in the wrong place. The name of a property is
// none.
func describe(violation, of jsonschema.ErrorKind) string {
	_, name := of.(*kind.PropertyNames)
	if p, ok := violation.(*kind.Pattern); ok && !name {
		return "does not match pattern " + p.Want
	}
	return violation.LocalizedString(english)
}

// Fields returns the fields that a schema has at a path.
func Fields(s *jsonschema.Schema, path []string) []string {
	for s != nil && s.Ref != nil {
		s = s.Ref
	}
	if s == nil {
		return nil
	}
	if len(path) == 0 {
		return slices.Sorted(maps.Keys(s.Properties))
	}
	next := s.Properties[path[0]]
	for pattern, of := range s.PatternProperties {
		if next == nil && pattern.MatchString(path[0]) {
			next = of
		}
	}
	if next == nil {
		next, _ = s.AdditionalProperties.(*jsonschema.Schema)
	}
	if next == nil {
		next = s.Items2020
	}
	return Fields(next, path[1:])
}
