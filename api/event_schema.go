package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"berth"
)

// eventUnion describes the events of a stream as a union by their type. event is a struct with the fields of all types; those with a tag
// `on` belong to the types that it lists only.
func (s *server) eventUnion(event any, types []berth.EventType) *huma.Schema {
	schemas, of := s.doc.OpenAPI().Components.Schemas, reflect.TypeOf(event)
	union := &huma.Schema{Discriminator: &huma.Discriminator{PropertyName: "type", Mapping: map[string]string{}}}
	for _, t := range types {
		one := huma.SchemaFromType(schemas, of)
		one.Properties["type"] = &huma.Schema{Type: huma.TypeString, Enum: []any{string(t)}}
		for _, f := range reflect.VisibleFields(of) {
			on, limited := f.Tag.Lookup("on")
			if !limited {
				continue
			}
			only := strings.Fields(on)
			for _, name := range only {
				if !slices.Contains(types, berth.EventType(name)) {
					s.errs = append(s.errs, fmt.Errorf("api: field %s of %s: the stream has no event %q", f.Name, of.Name(), name))
				}
			}
			if !slices.Contains(only, string(t)) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				delete(one.Properties, name)
			}
		}
		name := of.Name() + camel(string(t))
		schemas.Map()[name] = one
		ref := "#/components/schemas/" + name
		union.OneOf = append(union.OneOf, &huma.Schema{Ref: ref})
		union.Discriminator.Mapping[string(t)] = ref
	}
	schemas.Map()[of.Name()] = union
	return &huma.Schema{Ref: "#/components/schemas/" + of.Name()}
}

// camel returns the name of an event type as a part of a schema's name.
func camel(name string) (out string) {
	for word := range strings.SplitSeq(name, "_") {
		out += strings.ToUpper(word[:1]) + word[1:]
	}
	return out
}
