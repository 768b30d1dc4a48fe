package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// property is one name of an object with the schemas of its value.
type property struct {
	name     string
	schemas  []*jsonschema.Schema
	required bool
	kind     kind
	words    []string // of the name
	about    string   // its title and description
	zh       bool     // name and description are in Chinese
	prose    bool     // it is named as a text
	special  bool     // it is named as what only a comparison gives
}

func (f *filler) property(name string, schemas []*jsonschema.Schema, required bool) property {
	plain, about := spaced(name), aboutOf(schemas)
	return property{
		name: name, schemas: schemas, required: required, kind: kindOf(schemas), words: f.words(plain), about: about, zh: isChinese(name + about),
		prose:   proseNames.MatchString(plain),
		special: intents[lacking].MatchString(plain+" "+about) || adviceNames.MatchString(plain) || foundNames.MatchString(plain),
	}
}

// object fills the required properties, and the others where that is possible.
func (f *filler) object(all []*jsonschema.Schema, at place, depth int) (any, bool) {
	properties, atLeast, ok := f.properties(all)
	if !ok {
		return nil, false
	}
	if at.section != nil && at.entry == nil {
		at.entry = at.section.whole()
	}
	sections := f.sectionsOf(properties, at)
	out, texts := map[string]any{}, 0
	var optional []string
	f.order[at.path] = nil
	for _, p := range properties {
		f.order[at.path] = append(f.order[at.path], p.name)
		if !p.required && (f.inside(p.schemas) || depth > maxNested) {
			continue
		}
		next := place{
			path: at.path + "/" + p.name, name: p.name, words: p.words, nth: texts, entry: at.entry, section: sections[p.name],
			variant: at.variant, spare: !p.required,
		}
		v, ok := f.value(p.schemas, next, depth+1)
		if !ok && p.required {
			return nil, false
		}
		if p.kind == textKind {
			texts++
		}
		if ok {
			out[p.name] = v
			if !p.required {
				optional = append(optional, p.name)
			}
		}
	}
	for n := 0; len(out) < atLeast && n < maxPadded; n++ { // more than the schema names
		for _, name := range f.extraNames(all, n, depth) {
			schemas, allowed := schemasFor(all, name)
			if _, taken := out[name]; taken || !allowed || len(out) >= atLeast {
				continue
			}
			if v, ok := f.value(schemas, place{path: at.path + "/" + name, name: name, entry: at.entry, variant: n}, depth+1); ok {
				out[name] = v
			}
		}
	}
	if f.valid(all, out) {
		return out, true
	}
	// Something forbids one of the optional properties, or too many of them.
	rest := maps.Clone(out)
	for _, name := range optional {
		delete(rest, name)
	}
	for _, name := range optional[:min(len(optional), 64)] {
		rest[name] = out[name]
		if !f.valid(all, rest) {
			delete(rest, name)
		}
	}
	return rest, f.valid(all, rest)
}

// extraNames returns names that an object may have although its schemas do not list them.
func (f *filler) extraNames(all []*jsonschema.Schema, n, depth int) []string {
	out := []string{"value" + strconv.Itoa(n+1)}
	for _, s := range all {
		if s.PropertyNames != nil {
			if name, ok := f.value([]*jsonschema.Schema{s.PropertyNames}, place{variant: n}, depth+1); ok {
				if name, ok := name.(string); ok {
					out = append(out, name)
				}
			}
		}
		for _, pattern := range patternsOf(s) {
			out = append(out, matching(pattern.String(), 1, n)...)
		}
	}
	return out
}

// patternsOf returns the patterns of names, always in the same order.
func patternsOf(s *jsonschema.Schema) []jsonschema.Regexp {
	return slices.SortedFunc(maps.Keys(s.PatternProperties), func(a, b jsonschema.Regexp) int { return strings.Compare(a.String(), b.String()) })
}

// inside reports whether a value of one of the schemas is being made: an optional value would have no end.
func (f *filler) inside(schemas []*jsonschema.Schema) bool {
	return slices.ContainsFunc(schemas, func(s *jsonschema.Schema) bool {
		return f.stack[s] > 0 || s.Ref != nil && f.stack[s.Ref] > 0 || s.Items2020 != nil && f.inside([]*jsonschema.Schema{s.Items2020})
	})
}

// properties returns the properties of an object in their order, and how many it must have.
func (f *filler) properties(all []*jsonschema.Schema) (out []property, atLeast int, ok bool) {
	required, named := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		for name := range s.Properties {
			named[name] = true
		}
		for _, name := range s.Required {
			required[name] = true
		}
		if s.MinProperties != nil {
			atLeast = max(atLeast, *s.MinProperties)
		}
	}
	for changed := true; changed; { // a required property may require others
		changed = false
		for _, s := range all {
			for name, others := range dependencies(s) {
				for _, other := range others {
					if required[name] && !required[other] {
						required[other], changed = true, true
					}
				}
			}
		}
	}
	maps.Copy(named, required)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		schemas, allowed := schemasFor(all, name)
		if !allowed && required[name] {
			return nil, 0, false
		}
		if allowed {
			out = append(out, f.property(name, schemas, required[name]))
		}
	}
	place := func(p property) int {
		if len(p.schemas) == 0 {
			return len(f.rank)
		}
		return rankOf(f.rank, p.schemas[0])
	}
	slices.SortStableFunc(out, func(a, b property) int { return place(a) - place(b) })
	return out, atLeast, len(out) <= maxPadded*10
}

func dependencies(s *jsonschema.Schema) map[string][]string {
	out := maps.Clone(s.DependentRequired)
	for name, d := range s.Dependencies {
		if names, ok := d.([]string); ok {
			if out == nil {
				out = map[string][]string{}
			}
			out[name] = names
		}
	}
	return out
}

// schemasFor returns the schemas of the value behind a name; false if no value is allowed.
func schemasFor(all []*jsonschema.Schema, name string) (out []*jsonschema.Schema, ok bool) {
	for _, s := range all {
		n := len(out)
		if sub := s.Properties[name]; sub != nil {
			out = append(out, sub)
		}
		for _, pattern := range patternsOf(s) {
			if pattern.MatchString(name) {
				out = append(out, s.PatternProperties[pattern])
			}
		}
		if len(out) > n {
			continue
		}
		switch more := s.AdditionalProperties.(type) {
		case bool:
			if !more {
				return nil, false
			}
		case *jsonschema.Schema:
			out = append(out, more)
		}
	}
	if len(out) == 0 {
		for _, s := range all {
			if s.UnevaluatedProperties != nil {
				out = append(out, s.UnevaluatedProperties)
			}
		}
	}
	ok = !slices.ContainsFunc(out, func(s *jsonschema.Schema) bool { return s.Bool != nil && !*s.Bool })
	return out, ok
}

// array makes an item of every entry that the source has for the place, and as many more as the schema wants.
func (f *filler) array(all []*jsonschema.Schema, at place, depth int) (any, bool) {
	least, most := 0, maxItems
	unique := false
	var contained [][]*jsonschema.Schema
	for _, s := range all {
		if s.MinItems != nil {
			least = max(least, *s.MinItems)
		}
		if s.MaxItems != nil {
			most = min(most, *s.MaxItems)
		}
		unique = unique || s.UniqueItems
		if s.Contains != nil {
			for range deref(s.MinContains, 1) {
				contained = append(contained, []*jsonschema.Schema{s.Contains})
				if len(contained) > maxPadded {
					return nil, false
				}
			}
		}
	}
	if least > maxPadded {
		return nil, false
	}
	entries := f.entries(all, at)
	if f.inside(itemSchemas(all, 0)) && least == 0 {
		entries = nil
	}
	fixed := 0
	for _, s := range all {
		fixed = max(fixed, len(s.PrefixItems))
	}
	out, taken := []any{}, map[string]bool{}
	add := func(e *entry, variant int, more []*jsonschema.Schema) bool {
		schemas := append(itemSchemas(all, len(out)), more...)
		v, ok := f.value(schemas, place{path: at.path + "/" + strconv.Itoa(len(out)), name: at.name, words: at.words, entry: e, variant: variant}, depth+1)
		if !ok {
			return false
		}
		if unique {
			key := marshal(v)
			if taken[key] {
				return false
			}
			taken[key] = true
		}
		out = append(out, v)
		return true
	}
	for _, schemas := range contained {
		for variant := 0; variant <= len(out) && !add(at.entry, variant, schemas); variant++ {
			continue
		}
	}
	for i := range entries[:min(len(entries), max(most-len(out), 0))] {
		add(&entries[i], at.variant, nil)
	}
	for variant, tries := 0, 0; len(out) < max(least, min(fixed, most)) && tries < 2*maxPadded; variant, tries = variant+1, tries+1 {
		e := at.entry
		if spare := f.spare(variant); e == nil && spare != "" {
			e = &entry{Text: spare}
		}
		if !add(e, variant, nil) && !unique {
			break
		}
	}
	if len(out) >= least && f.valid(all, out) {
		return out, true
	}
	// The entries do not fit: as few items as possible.
	for len(out) > max(least, len(contained)) {
		if out = out[:len(out)-1]; f.valid(all, out) {
			return out, true
		}
	}
	return nil, false
}

func deref(p *int, otherwise int) int {
	if p == nil {
		return otherwise
	}
	return *p
}

// itemSchemas returns the schemas of the item at an index.
func itemSchemas(all []*jsonschema.Schema, i int) (out []*jsonschema.Schema) {
	for _, s := range all {
		switch items := s.Items.(type) { // before draft 2020-12
		case *jsonschema.Schema:
			out = append(out, items)
		case []*jsonschema.Schema:
			if i < len(items) {
				out = append(out, items[i])
			} else if more, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
				out = append(out, more)
			}
		}
		switch {
		case i < len(s.PrefixItems):
			out = append(out, s.PrefixItems[i])
		case s.Items2020 != nil:
			out = append(out, s.Items2020)
		case s.UnevaluatedItems != nil:
			out = append(out, s.UnevaluatedItems)
		}
	}
	return out
}
