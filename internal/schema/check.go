package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"berth/internal/editdistance"
)

// Check compiles a schema as Compile does. It returns everything that is wrong with it, each with its place and what to write: keywords that
// do not exist, values that they cannot have, references that lead nowhere, and parts that no value can match. The schema is nil if there is
// anything.
func Check(raw []byte) (*jsonschema.Schema, []Problem) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	c := &checker{doc: doc}
	if depth(doc, maxDepth) <= maxDepth {
		c.schema(doc, nil)
	}
	compiled, err := Compile("schema.json", raw)
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if violated, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			for _, path := range places(violated) {
				c.violation(path)
			}
		}
	} else if err != nil {
		c.references(doc, nil)
	}
	if err != nil && len(c.problems) == 0 {
		c.problem(nil, "%s", reason(err))
	}
	if len(c.problems) == 0 {
		c.problems = unsatisfiable(compiled)
	}
	if len(c.problems) > 0 {
		slices.SortStableFunc(c.problems, func(a, b Problem) int { return slices.Compare(a.Path, b.Path) })
		return nil, c.problems
	}
	return compiled, nil
}

// maxProblems bounds what is reported.
const maxProblems = 100

type checker struct {
	doc      any
	problems []Problem
}

// problem notes what is wrong at a place, unless something is already.
func (c *checker) problem(path []string, format string, args ...any) {
	if len(c.problems) < maxProblems && !slices.ContainsFunc(c.problems, func(p Problem) bool { return slices.Equal(p.Path, path) }) {
		c.problems = append(c.problems, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

// walk calls a function for the schemas that a schema contains.
func walk(v map[string]any, path []string, each func(v any, path []string)) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		held, at := keywords[name].holds, slices.Concat(path, []string{name})
		switch inner := v[name].(type) {
		case map[string]any:
			switch held {
			case oneSchema:
				each(inner, at)
			case schemaMap:
				for _, key := range slices.Sorted(maps.Keys(inner)) {
					each(inner[key], slices.Concat(at, []string{key}))
				}
			}
		case []any:
			if held == schemaList || held == oneSchema { // items was a list in earlier drafts
				for i, e := range inner {
					each(e, slices.Concat(at, []string{strconv.Itoa(i)}))
				}
			}
		}
	}
}

// Each calls a function for a valid schema and for all within it.
func Each(raw []byte, visit func(path []string, s map[string]any)) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return
	}
	var each func(v any, path []string)
	each = func(v any, path []string) {
		if s, ok := v.(map[string]any); ok {
			visit(path, s)
			walk(s, path, each)
		}
	}
	each(doc, nil)
}

// schema checks what the library does not: misspelled keywords, which have no effect, and all regular expressions, of which it names the first.
func (c *checker) schema(v any, path []string) {
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, at := object[name], slices.Concat(path, []string{name})
		switch text, isText := value.(string); {
		case keywords[name] == keyword{}:
			meant := editdistance.Nearest(name, keywordNames)
			if editdistance.Of(strings.ToLower(meant), strings.ToLower(name)) <= maxMisspelled && object[meant] == nil && !slices.Contains(foreign, name) {
				c.problem(at, "is not a keyword of JSON Schema: write %s", meant)
			}
		case name == "pattern" && isText:
			c.pattern(at, text)
		case name == "patternProperties":
			patterns, _ := value.(map[string]any)
			for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
				c.pattern(slices.Concat(at, []string{pattern}), pattern)
			}
		}
	}
	walk(object, path, c.schema)
}

// maxMisspelled is how many letters of a keyword may be wrong: other tools have keywords of their own.
const maxMisspelled = 2

// foreign are words of OpenAPI that are near keywords.
var foreign = []string{"example"}

func (c *checker) pattern(path []string, pattern string) {
	if _, err := regexp.Compile(pattern); err != nil {
		reason := err.Error()
		if at, ok := errors.AsType[*syntax.Error](err); ok {
			reason = fmt.Sprintf("%s in %s", at.Code, at.Expr)
		}
		c.problem(path, "is not a regular expression (of RE2, without look-around): %s", reason)
	}
}

// places returns where a schema violates its own one, each place once. Of alternatives, that which was nearly met is meant.
func places(e *jsonschema.ValidationError) (paths [][]string) {
	for _, cause := range e.Causes {
		paths = append(paths, places(cause)...)
	}
	if _, ok := e.ErrorKind.(*kind.PropertyNames); ok {
		return nil // of patternProperties, whose names are checked already; the library has a wrong place
	}
	if len(e.Causes) == 0 {
		return [][]string{e.InstanceLocation}
	}
	if _, ok := e.ErrorKind.(*kind.AnyOf); ok {
		return [][]string{slices.MaxFunc(paths, func(a, b []string) int { return len(a) - len(b) })}
	}
	slices.SortFunc(paths, slices.Compare)
	return slices.CompactFunc(paths, slices.Equal)
}

// at returns the value that a path leads to.
func at(v any, path []string) any {
	for _, key := range path {
		switch inner := v.(type) {
		case map[string]any:
			v = inner[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(inner) {
				return nil
			}
			v = inner[i]
		default:
			return nil
		}
	}
	return v
}

// shown returns a value as it is written, shortened.
func shown(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		if text := []rune(string(b)); len(text) > maxShown {
			return string(text[:maxShown]) + "…"
		}
		return string(b)
	}
}

// maxShown is how much of a value a problem shows, in characters.
const maxShown = 40

// violation notes that a keyword does not take its value.
func (c *checker) violation(path []string) {
	value := at(c.doc, path)
	name, depth := keywordAt(path)
	text, isText := value.(string)
	switch {
	case name == "" && isText && slices.Contains(typeNames, text):
		c.problem(path, `must be %s, not %q: write {"type": %q}`, aSchema, text, text)
	case name == "":
		c.problem(path, "must be %s, not %s", aSchema, shown(value))
	case name == "type" && isText:
		hint := ": use " + strings.Join(typeNames, ", ")
		if meant := editdistance.Nearest(text, typeNames); meant != "" {
			hint = ": write " + meant
		}
		c.problem(path, "%.40q is not a type%s", text, hint)
	case name == "required" && depth == len(path) && isBool(value):
		c.problem(path, `must be %s, not %s: write "required": ["name"] there`, keywords[name].takes, shown(value))
	case depth < len(path):
		c.problem(path, "%s cannot be a part of %s, which takes %s", shown(value), name, keywords[name].takes)
	case isList(value):
		c.problem(path, "must be %s%s", keywords[name].takes, repeated(value))
	default:
		c.problem(path, "must be %s, not %s", keywords[name].takes, shown(value))
	}
}

func isBool(v any) bool { _, ok := v.(bool); return ok }

func isList(v any) bool { _, ok := v.([]any); return ok }

// repeated states which value a list has twice, or that it is empty.
func repeated(v any) string {
	list, _ := v.([]any)
	for i, e := range list {
		for _, other := range list[:i] {
			if shown(e) == shown(other) && shown(e) != "an object" && shown(e) != "a list" {
				return ": " + shown(e) + " is written twice"
			}
		}
	}
	if len(list) == 0 {
		return ": it is empty"
	}
	return ", not a list"
}

// references notes the references that lead nowhere, and those to other files.
func (c *checker) references(v any, path []string) {
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	if meta, ok := object["$schema"].(string); ok && !strings.HasPrefix(meta, "https://json-schema.org/draft/") && !strings.HasPrefix(meta, "http://json-schema.org/") {
		c.problem(slices.Concat(path, []string{"$schema"}), "unknown version of JSON Schema %s: write https://json-schema.org/draft/2020-12/schema, or remove it", shown(meta))
	}
	for _, name := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		target, ok := object[name].(string)
		if !ok {
			continue
		}
		here := slices.Concat(path, []string{name})
		if place, local := strings.CutPrefix(target, "#"); !local {
			c.problem(here, "%s is outside of the schema: only references within it work, such as #/$defs/name; move the other schema under $defs", shown(target))
		} else if parts, ok := pointer(place); ok && at(c.doc, parts) == nil {
			c.problem(here, "there is nothing at %s%s", shown(target), c.defined(parts))
		} else if !ok && place != "" {
			c.problem(here, `there is no "$anchor": %q`, place)
		}
	}
	walk(object, path, c.references)
}

// defined states which definitions a reference could mean.
func (c *checker) defined(parts []string) string {
	if len(parts) < 2 {
		return ": a reference begins with #/$defs/"
	}
	definitions, _ := at(c.doc, parts[:1]).(map[string]any)
	names := slices.Sorted(maps.Keys(definitions))
	if meant := editdistance.Nearest(parts[1], names); meant != "" {
		return fmt.Sprintf(": write #/%s/%s", parts[0], meant)
	}
	if len(names) == 0 {
		return fmt.Sprintf(": add it under %.40s", parts[0])
	}
	return fmt.Sprintf(": %s has %s", parts[0], strings.Join(names[:min(len(names), maxNames)], ", "))
}

// maxNames is how many names a problem lists.
const maxNames = 20

// pointer returns the parts of a JSON Pointer in a fragment (RFC 6901, section 6); not ok for an anchor.
func pointer(fragment string) (parts []string, ok bool) {
	rest, ok := strings.CutPrefix(fragment, "/")
	if !ok {
		return nil, fragment == ""
	}
	for _, part := range strings.Split(rest, "/") {
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		parts = append(parts, strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"))
	}
	return parts, true
}

// reason returns the error of a compiler without the name of the file, which only it has.
func reason(err error) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`(file://)?[^\s'"]*schema\.json#?`).ReplaceAllString(err.Error(), "")), " ")
}
