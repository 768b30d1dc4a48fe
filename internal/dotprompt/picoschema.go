package dotprompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"berth/internal/editdistance"
)

// SchemaError is what is wrong with a schema at a line of its YAML.
type SchemaError struct {
	Line    int
	Message string
}

func (e *SchemaError) Error() string { return e.Message }

// scalars are the names of types in Picoschema.
var scalars = []string{"string", "boolean", "null", "number", "integer", "any"}

// Types returns the names of the types of Picoschema.
func Types() []string { return slices.Clone(scalars) }

// Type returns the type that a text of Picoschema has before its description, empty if it has none.
func Type(s string) string {
	if kind, _ := described(s); slices.Contains(scalars, kind) {
		return kind
	}
	return ""
}

// anyKey is the name of all properties that an object has besides those that are named.
const anyKey = "(*)"

// maxSchemaDepth bounds how deep a schema is nested.
const maxSchemaDepth = 30

// Schema returns the JSON Schema that a value in YAML is or, in Picoschema, abbreviates (https://google.github.io/dotprompt/reference/picoschema/).
// Its properties have the order in which they are written. Its error is a *SchemaError.
func Schema(n *yaml.Node) (json.RawMessage, error) {
	out, err := schemaOf(n)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := encode(&b, out, "", 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func schemaOf(n *yaml.Node) (*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return pico(n, 0)
	}
	kind := lookup(n, "type")
	switch {
	case kind != nil && (slices.Contains(scalars, kind.Value) || kind.Value == "object" || kind.Value == "array"):
		return n, nil
	case kind != nil && kind.Kind == yaml.SequenceNode, lookup(n, "$ref") != nil, lookup(n, "$schema") != nil:
		return n, nil
	}
	if p := lookup(n, "properties"); p != nil && p.Kind == yaml.MappingNode {
		return &yaml.Node{Kind: yaml.MappingNode, Content: append(pairs("type", word("object")), n.Content...)}, nil
	}
	return pico(n, 0)
}

func lookup(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func pairs(key string, value *yaml.Node) []*yaml.Node { return []*yaml.Node{word(key), value} }

// described separates a type and its description.
func described(s string) (kind, text string) {
	kind, text, _ = strings.Cut(s, ",")
	return strings.TrimSpace(kind), strings.TrimSpace(text)
}

func pico(n *yaml.Node, depth int) (*yaml.Node, error) {
	fail := func(format string, args ...any) (*yaml.Node, error) {
		return nil, &SchemaError{n.Line, fmt.Sprintf(format, args...)}
	}
	out := &yaml.Node{Kind: yaml.MappingNode}
	switch {
	case depth > maxSchemaDepth:
		return fail("the schema is nested more than %d deep", maxSchemaDepth)
	case n.Kind == yaml.ScalarNode && n.Value != "":
		kind, text := described(n.Value)
		if !slices.Contains(scalars, kind) {
			if meant := editdistance.Nearest(kind, scalars); meant != "" {
				return fail("unknown type %.40q: write %s", kind, meant)
			}
			return fail("unknown type %.40q: use one of %s", kind, strings.Join(scalars, ", "))
		}
		if kind != "any" {
			out.Content = pairs("type", word(kind))
		}
		if text != "" {
			out.Content = append(out.Content, pairs("description", word(text))...)
		}
		return out, nil
	case n.Kind != yaml.MappingNode:
		return fail("a type is one of %s, or an object of fields", strings.Join(scalars, ", "))
	}
	properties, required := &yaml.Node{Kind: yaml.MappingNode}, &yaml.Node{Kind: yaml.SequenceNode}
	others := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Value == anyKey {
			var err error
			if others, err = pico(value, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		name, optional, property, err := picoProperty(key, value, depth)
		if err != nil {
			return nil, err
		}
		properties.Content = append(properties.Content, pairs(name, property)...)
		if !optional {
			required.Content = append(required.Content, word(name))
		}
	}
	out.Content = slices.Concat(pairs("type", word("object")), pairs("properties", properties), pairs("additionalProperties", others))
	if len(required.Content) > 0 {
		out.Content = append(out.Content, pairs("required", required)...)
	}
	return out, nil
}

// picoProperty returns a property of an object: name, name? and name(type, description).
func picoProperty(key, value *yaml.Node, depth int) (name string, optional bool, out *yaml.Node, err error) {
	name, rest, typed := strings.Cut(key.Value, "(")
	name, optional = strings.CutSuffix(strings.TrimSpace(name), "?")
	if name == "" {
		return "", false, nil, &SchemaError{key.Line, "a field without a name"}
	}
	if !typed {
		out, err = pico(value, depth+1)
		if err == nil && optional {
			nullable(out)
		}
		return name, optional, out, err
	}
	kind, text := described(strings.TrimSuffix(rest, ")"))
	switch kind {
	case "array":
		items, err := pico(value, depth+1)
		if err != nil {
			return "", false, nil, err
		}
		out = &yaml.Node{Kind: yaml.MappingNode, Content: append(pairs("type", word("array")), pairs("items", items)...)}
	case "object":
		if out, err = pico(value, depth+1); err != nil {
			return "", false, nil, err
		}
	case "enum":
		if value.Kind != yaml.SequenceNode || len(value.Content) == 0 {
			return "", false, nil, &SchemaError{value.Line, "an enum is a list of values, such as [low, high]"}
		}
		values := &yaml.Node{Kind: yaml.SequenceNode, Content: slices.Clone(value.Content)}
		if optional {
			values.Content = append(values.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"})
		}
		out = &yaml.Node{Kind: yaml.MappingNode, Content: pairs("enum", values)}
	default:
		hint := "use array, object or enum"
		if meant := editdistance.Nearest(kind, []string{"array", "object", "enum"}); meant != "" {
			hint = "write " + meant
		}
		return "", false, nil, &SchemaError{key.Line, fmt.Sprintf("unknown type %.40q in parentheses: %s", kind, hint)}
	}
	if optional {
		nullable(out)
	}
	if text != "" {
		out.Content = append(out.Content, pairs("description", word(text))...)
	}
	return name, optional, out, nil
}

// nullable permits null for a type.
func nullable(n *yaml.Node) {
	if kind := lookup(n, "type"); kind != nil && kind.Kind == yaml.ScalarNode {
		*kind = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{word(kind.Value), word("null")}}
	}
}

// encode writes a value as JSON, indented, in its own order. A list of scalars has one line.
func encode(b *bytes.Buffer, n *yaml.Node, indent string, depth int) error {
	if depth > 2*maxSchemaDepth {
		return &SchemaError{n.Line, fmt.Sprintf("the schema is nested more than %d deep", maxSchemaDepth)}
	}
	inner := indent + "  "
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) == 0 {
			b.WriteString("{}")
			return nil
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			b.WriteString([]string{"{\n", ",\n"}[min(i, 1)] + inner)
			if err := scalar(b, n.Content[i].Value); err != nil {
				return err
			}
			b.WriteString(": ")
			if err := encode(b, n.Content[i+1], inner, depth+1); err != nil {
				return err
			}
		}
		b.WriteString("\n" + indent + "}")
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := encode(b, e, inner, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return &SchemaError{n.Line, err.Error()}
		}
		switch v.(type) {
		case nil, bool, int, int64, uint64, float64, string:
		default: // a date, which JSON does not have
			v = n.Value
		}
		if err := scalar(b, v); err != nil {
			return &SchemaError{n.Line, err.Error()}
		}
	default:
		return &SchemaError{n.Line, "aliases are not supported: write the value"}
	}
	return nil
}

func scalar(b *bytes.Buffer, v any) error {
	text, err := jsonText(v, 0)
	b.WriteString(text)
	return err
}
