package schema

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// types is a set of types of values. A number is an integer or a fraction.
type types int

const (
	null types = 1 << iota
	boolean
	integer
	fraction
	text
	list
	object
	anything = object<<1 - 1
)

func typesOf(names []string) (t types) {
	for _, name := range names {
		t |= map[string]types{
			"null": null, "boolean": boolean, "integer": integer, "number": integer | fraction, "string": text, "array": list, "object": object,
		}[name]
	}
	return t
}

// typeOf returns the type of a value of jsonschema.UnmarshalJSON.
func typeOf(v any) types {
	switch v := v.(type) {
	case nil:
		return null
	case bool:
		return boolean
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok && r.IsInt() {
			return integer
		}
		return fraction
	case string:
		return text
	case []any:
		return list
	default:
		return object
	}
}

// finder finds the types of the values that schemas match. A type is found where a finite value is possible, as far as that can be known:
// conditions, negations and what patterns match are not considered.
type finder struct {
	found map[*jsonschema.Schema]types
	// listed are the types of the values of enum and const that their schema matches.
	listed map[*jsonschema.Schema]types
	order  []*jsonschema.Schema
}

// unsatisfiable returns a problem if no value matches a schema.
func unsatisfiable(s *jsonschema.Schema) []Problem {
	f := &finder{map[*jsonschema.Schema]types{}, map[*jsonschema.Schema]types{}, nil}
	f.collect(s)
	for changed := true; changed; {
		changed = false
		for _, one := range f.order {
			if t := f.types(one); t != f.found[one] {
				f.found[one], changed = t, true
			}
		}
	}
	if f.found[s] != 0 {
		return nil
	}
	return []Problem{f.why(s, map[*jsonschema.Schema]bool{})}
}

// collect lists schemas, those that others need first.
func (f *finder) collect(s *jsonschema.Schema) {
	if _, again := f.found[s]; s == nil || again {
		return
	}
	f.found[s] = 0
	for _, inner := range slices.Concat([]*jsonschema.Schema{s.Ref, s.Items2020, s.Contains}, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems) {
		f.collect(inner)
	}
	for _, name := range s.Required {
		f.collect(s.Properties[name])
	}
	f.collect(additional(s))
	var values []any
	if s.Enum != nil {
		values = s.Enum.Values
	}
	if s.Const != nil {
		values = append(values, *s.Const)
	}
	for i, v := range values {
		if t := typeOf(v); f.listed[s]&t == 0 && (i >= maxListed || s.Validate(v) == nil) {
			f.listed[s] |= t
		}
	}
	f.order = append(f.order, s)
}

// maxListed is how many values of an enum are compared with what stands beside it.
const maxListed = 100

// additional returns the schema of the properties that a schema does not name, nil if it has none.
func additional(s *jsonschema.Schema) *jsonschema.Schema {
	other, _ := s.AdditionalProperties.(*jsonschema.Schema)
	return other
}

func (f *finder) types(s *jsonschema.Schema) types {
	if s.Enum != nil || s.Const != nil {
		return f.listed[s]
	}
	t := anything
	if s.Bool != nil && !*s.Bool {
		t = 0
	}
	if s.Types != nil {
		t &= typesOf(s.Types.ToStrings())
	}
	if s.Ref != nil {
		t &= f.found[s.Ref]
	}
	for _, one := range s.AllOf {
		t &= f.found[one]
	}
	for _, alternatives := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if some := types(0); len(alternatives) > 0 {
			for _, one := range alternatives {
				some |= f.found[one]
			}
			t &= some
		}
	}
	for _, c := range contradictions {
		if t&c.of != 0 && c.text(s) != "" {
			t &^= c.of
		}
	}
	if t&object != 0 {
		if _, _, lacks := f.lacking(s); lacks {
			t &^= object
		}
	}
	if t&list != 0 && f.element(s) != nil {
		t &^= list
	}
	return t
}

// contradictions name bounds of a schema that exclude each other, for the types that they bound.
var contradictions = []struct {
	of   types
	text func(s *jsonschema.Schema) string
}{
	{integer | fraction, func(s *jsonschema.Schema) string {
		for _, pair := range []struct {
			low, high *big.Rat
			from, to  string
			equal     bool
		}{
			{s.Minimum, s.Maximum, "minimum", "maximum", true},
			{s.ExclusiveMinimum, s.Maximum, "exclusiveMinimum", "maximum", false},
			{s.Minimum, s.ExclusiveMaximum, "minimum", "exclusiveMaximum", false},
			{s.ExclusiveMinimum, s.ExclusiveMaximum, "exclusiveMinimum", "exclusiveMaximum", false},
		} {
			if pair.low != nil && pair.high != nil && (pair.low.Cmp(pair.high) > 0 || pair.low.Cmp(pair.high) == 0 && !pair.equal) {
				return pair.from + " exceeds " + pair.to
			}
		}
		return ""
	}},
	{text, func(s *jsonschema.Schema) string { return exceeds(s.MinLength, s.MaxLength, "minLength", "maxLength") }},
	{list, func(s *jsonschema.Schema) string { return exceeds(s.MinItems, s.MaxItems, "minItems", "maxItems") }},
	{object, func(s *jsonschema.Schema) string {
		if s.MaxProperties != nil && len(s.Required) > *s.MaxProperties {
			return "required has more names than maxProperties permits"
		}
		return exceeds(s.MinProperties, s.MaxProperties, "minProperties", "maxProperties")
	}},
}

func exceeds(low, high *int, from, to string) string {
	if low != nil && high != nil && *low > *high {
		return from + " exceeds " + to
	}
	return ""
}

// lacking returns a property that a schema requires and that no value can have, and its schema if there is one.
func (f *finder) lacking(s *jsonschema.Schema) (name string, of *jsonschema.Schema, lacks bool) {
	for _, name := range s.Required {
		of, known := s.Properties[name]
		switch {
		case known && f.found[of] == 0:
			return name, of, true
		case known || matchesPattern(s, name):
		case s.AdditionalProperties == false:
			return name, nil, true
		case additional(s) != nil && f.found[additional(s)] == 0:
			return name, additional(s), true
		}
	}
	return "", nil, false
}

func matchesPattern(s *jsonschema.Schema, name string) bool {
	for pattern := range s.PatternProperties {
		if pattern.MatchString(name) {
			return true
		}
	}
	return false
}

// element returns the schema of an element that a list must have and cannot have, nil if there is none.
func (f *finder) element(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Contains != nil && f.found[s.Contains] == 0 && (s.MinContains == nil || *s.MinContains > 0) {
		return s.Contains
	}
	if s.MinItems == nil {
		return nil
	}
	for i, one := range s.PrefixItems {
		if i < *s.MinItems && f.found[one] == 0 {
			return one
		}
	}
	if s.Items2020 != nil && *s.MinItems > len(s.PrefixItems) && f.found[s.Items2020] == 0 {
		return s.Items2020
	}
	return nil
}

// why returns why no value matches a schema, and where.
func (f *finder) why(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) Problem {
	path := pathOf(s)
	seen[s] = true
	inner := func(of *jsonschema.Schema, from []string) Problem {
		if seen[of] {
			return Problem{Path: from, Message: "requires itself without end, so no answer is possible: make a property on the way back to it optional, or permit null"}
		}
		return f.why(of, seen)
	}
	switch {
	case s.Bool != nil:
		return Problem{Path: path, Message: "is false, but required: remove it from required"}
	case s.Enum != nil:
		return Problem{Path: slices.Concat(path, []string{"enum"}), Message: "no value of it is allowed by what stands beside it: add one, or change its type"}
	case s.Const != nil:
		return Problem{Path: slices.Concat(path, []string{"const"}), Message: "the value is not allowed by what stands beside it: change its type"}
	}
	for _, one := range slices.Concat([]*jsonschema.Schema{s.Ref}, s.AllOf) {
		if one != nil && f.found[one] == 0 {
			return inner(one, path)
		}
	}
	for _, alternatives := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(alternatives) > 0 && !slices.ContainsFunc(alternatives, func(one *jsonschema.Schema) bool { return f.found[one] != 0 }) {
			return inner(alternatives[0], path)
		}
	}
	if name, of, lacks := f.lacking(s); lacks && of == nil {
		return Problem{Path: slices.Concat(path, []string{"required"}), Message: name + " is required, but not among properties, and additionalProperties is false: add it to properties"}
	} else if lacks {
		return inner(of, pathOf(of))
	}
	if one := f.element(s); one != nil {
		return inner(one, pathOf(one))
	}
	for _, c := range contradictions {
		if text := c.text(s); text != "" {
			return Problem{Path: path, Message: "no value is possible: " + text}
		}
	}
	return Problem{Path: path, Message: "no value is possible: its parts require different types"}
}

// pathOf returns where a schema stands in its file.
func pathOf(s *jsonschema.Schema) []string {
	_, fragment, _ := strings.Cut(s.Location, "#")
	parts, _ := pointer(fragment)
	return parts
}
