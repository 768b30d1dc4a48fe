// Package schema compiles JSON schemas and describes what does not match them.
package schema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Compile compiles a JSON schema, of draft 2020-12 by default, which cannot refer to other files. A name with a fragment, such as
// x.json#/$defs/part, compiles this part.
func Compile(name string, raw []byte) (compiled *jsonschema.Schema, err error) {
	defer func() { // the library panics at numbers that it cannot read, such as 1e1000001
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
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	file, _, _ := strings.Cut(name, "#")
	if err := c.AddResource(file, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
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

// MustCompile compiles an embedded schema.
func MustCompile(name string, raw []byte) *jsonschema.Schema {
	s, err := Compile(name, raw)
	if err != nil {
		panic(fmt.Sprintf("schema %s: %v", name, err))
	}
	return s
}

// Problem is one violation of a schema.
type Problem struct {
	Path    []string
	Message string
	Unknown []string // properties at the path that the schema does not have
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
			p := Problem{Path: e.InstanceLocation, Message: describe(e.ErrorKind, of.ErrorKind)}
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
