package sim

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// property is one name of an object with the schemas of its value.
type property struct {
	name     string
	of       schemas
	required bool
	about    string // its title and description
	depth    int    // of lists: 0 for a text, 1 for a list of texts, 2 for one of objects, more with lists in them; -1 for anything else
}

// object returns an object with the required properties, and the others where that is possible, and one with the required ones alone.
func (f *filler) object(all schemas, at place) []any {
	properties, ok := f.properties(all)
	if !ok {
		return nil
	}
	if s := at.section; s != nil && at.entry == nil && len(s.lines) > 0 {
		at.entry = &entry{Text: s.lines[0].text, below: s.texts()[1:], heading: s.heading}
	}
	sections := f.sectionsOf(properties, at)
	out, rest, texts := map[string]any{}, map[string]any{}, 0
	for _, p := range properties {
		if !p.required && (f.inside(p.of) || at.depth > maxNested) {
			continue
		}
		v, ok := f.value(p.of, place{
			path: at.path + "/" + p.name, name: p.name, about: p.about, nth: texts, depth: at.depth + 1, entry: at.entry,
			section: sections[p.name], optional: !p.required,
		})
		if !ok && p.required {
			return nil
		}
		if p.depth == 0 {
			texts++
		}
		if ok {
			out[p.name] = v
		}
		if p.required {
			rest[p.name] = v
		}
	}
	return []any{out, rest}
}

// inside reports whether a value of one of the schemas is being made: an optional value would have no end.
func (f *filler) inside(some schemas) bool {
	return slices.ContainsFunc(some, func(s *jsonschema.Schema) bool {
		return s != nil && (f.stack[s] > 0 || f.inside(schemas{s.Ref}) || f.inside(itemSchemas(schemas{s}, 0)))
	})
}

// properties returns the properties of an object in their order; false if a required one is not allowed.
func (f *filler) properties(all schemas) (out []property, ok bool) {
	required, named := map[string]bool{}, map[string]any{}
	for _, s := range all {
		for name := range s.Properties {
			named[name] = true
		}
		for _, name := range s.Required {
			required[name], named[name] = true, true
		}
	}
	for _, name := range f.ordered(named) {
		of, allowed := schemasFor(all, name)
		if !allowed && required[name] {
			return nil, false
		}
		if allowed {
			var a applied
			a.add(of...)
			out = append(out, property{name, of, required[name], aboutOf(a.all), listDepth(a.all, 0)})
		}
	}
	return out, true
}

// listDepth returns how deep lists are in a value.
func listDepth(all schemas, nested int) int {
	_, listed := listedValues(all)
	switch {
	case listed || nested > maxNested:
		return -1
	case allows(all, "string") && !allows(all, "object"):
		return 0
	case !allows(all, "array"):
		return -1
	}
	var item applied
	item.add(itemSchemas(all, 0)...)
	if len(item.all) == 0 || !allows(item.all, "object") {
		return 1
	}
	deepest := 0
	for _, s := range item.all {
		for _, sub := range s.Properties {
			var a applied
			a.add(sub)
			deepest = max(deepest, listDepth(a.all, nested+1))
		}
	}
	return 2 + deepest
}

// schemasFor returns the schemas of the value behind a name; false if no value is allowed.
func schemasFor(all schemas, name string) (out schemas, ok bool) {
	for _, s := range all {
		more, _ := s.AdditionalProperties.(*jsonschema.Schema)
		switch sub := s.Properties[name]; {
		case sub != nil:
			out = append(out, sub)
		case s.AdditionalProperties == false:
			return nil, false
		case more != nil:
			out = append(out, more)
		}
	}
	return out, !slices.ContainsFunc(out, func(s *jsonschema.Schema) bool { return s.Bool != nil && !*s.Bool })
}

// array returns a list with an item of every entry that the source has for the place, and as many more as the schema wants; also the same with
// fewer items.
func (f *filler) array(all schemas, at place) (options []any) {
	least, most, unique := 0, maxItems, false
	for _, s := range all {
		unique = unique || s.UniqueItems
		if s.MinItems != nil {
			least = max(least, *s.MinItems)
		}
		if s.MaxItems != nil {
			most = min(most, *s.MaxItems)
		}
	}
	var entries []entry
	if !f.inside(itemSchemas(all, 0)) || least > 0 {
		entries = f.entriesFor(all, at)
	}
	out, seen := []any{}, map[string]bool{}
	for n := range max(min(len(entries), most), min(least, maxPadded)) {
		tried := []entry{{Text: fmt.Sprintf("%d. %s", n+1, f.title(at))}} // unlike the others
		if n < len(entries) {
			tried = append([]entry{entries[n]}, tried[:min(1, max(least-n, 0))]...)
		}
		for _, e := range tried {
			path := at.path + "/" + strconv.Itoa(n)
			v, ok := f.value(itemSchemas(all, len(out)), place{path: path, name: at.name, depth: at.depth + 1, entry: &e})
			if ok && (!unique || !seen[marshal(v)]) {
				seen[marshal(v)] = true
				out = append(out, v)
				break
			}
		}
	}
	for n := len(out); n >= least; n-- {
		options = append(options, append([]any{}, out[:n]...))
	}
	return options
}

// itemSchemas returns the schemas of the item at an index.
func itemSchemas(all schemas, i int) (out schemas) {
	for _, s := range all {
		older, _ := s.Items.(*jsonschema.Schema) // before draft 2020-12
		switch {
		case i < len(s.PrefixItems):
			out = append(out, s.PrefixItems[i])
		case s.Items2020 != nil:
			out = append(out, s.Items2020)
		case older != nil:
			out = append(out, older)
		}
	}
	return out
}
