package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/internal/sim"
)

type object = map[string]any

// turn is a message.
func turn(role, text string) object { return object{"role": role, "content": text} }

// complete returns the answer to messages.
func complete(t require.TestingT, messages ...object) (answer string) {
	b, err := json.Marshal(object{"messages": messages})
	require.NoError(t, err)
	answer, err = sim.Answer(b)
	require.NoError(t, err)
	return answer
}

// filled returns the answer to a prompt that quotes a schema.
func filled(t require.TestingT, schema object, text string) string {
	raw, err := json.Marshal(schema)
	require.NoError(t, err)
	return complete(t, turn("system", "Answer by this schema:\n"+string(raw)+"\nNothing else."), turn("user", text))
}

// requireValid checks an answer with a compiler of its own, with formats.
func requireValid(t require.TestingT, schema object, answer string) {
	raw, err := json.Marshal(schema)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("s.json", doc))
	compiled, err := c.Compile("s.json")
	require.NoError(t, err, string(raw))
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	require.NoError(t, err, "%s\nfor %s", answer, raw)
	require.NoError(t, compiled.Validate(v), "%s\nfor %s", answer, raw)
}

// anySchema draws a schema that some value satisfies. Definitions that it refers to are added to defs.
func anySchema(t *rapid.T, depth int, defs object) object {
	kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "format"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "array", "array", "anyOf", "oneOf", "allOf", "ref", "nullable", "not", "if", "recursive", "tuple", "map", "untyped")
	}
	sub := func() object { return anySchema(t, depth-1, defs) }
	number := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
	bounds := func(s object, low, high string, from int) {
		if rapid.Bool().Draw(t, low) {
			s[low] = number(low+" value", 0, from)
		}
		if rapid.Bool().Draw(t, high) {
			least, _ := s[low].(int)
			s[high] = least + number(high+" value", 0, from)
		}
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "string":
		s := object{"type": "string"}
		bounds(s, "minLength", "maxLength", rapid.SampledFrom([]int{1, 5, 300, 2000}).Draw(t, "length"))
		return s
	case "integer", "number":
		s := object{"type": kind}
		low := number("minimum", -1000, 1000)
		step := rapid.SampledFrom([]float64{0, 1, 3, 0.5, 0.01}).Draw(t, "step")
		if step > 0 {
			s["multipleOf"] = step
		}
		if rapid.Bool().Draw(t, "bounded") {
			s[rapid.SampledFrom([]string{"minimum", "exclusiveMinimum"}).Draw(t, "low")] = low
			s[rapid.SampledFrom([]string{"maximum", "exclusiveMaximum"}).Draw(t, "high")] = low + number("width", 4, 50)
		} else if rapid.Bool().Draw(t, "above") {
			s["maximum"] = low
		}
		return s
	case "enum":
		return object{"enum": rapid.SampledFrom([][]any{{"low", "high"}, {1, 2, "x", nil}, {object{"a": 1}}, {[]any{}, false}}).Draw(t, "enum")}
	case "const":
		return object{"const": rapid.SampledFrom([]any{"v1", 0, nil, true, 1.5, []any{1}, object{"k": "v"}}).Draw(t, "const")}
	case "pattern":
		return object{"type": "string", "pattern": rapid.SampledFrom([]string{
			`^[A-Z]{3}-\d{4}$`, `^\d+(\.\d{2})?$`, `^(red|green|blue)$`, `^#[0-9a-f]{6}$`, `\S`, `^.{10,20}$`, `^[^\s]+@[^\s]+$`, `^\p{Lu}\w*$`, `[0-9]`, `^$`,
			`^(?:[a-z]+/)*[a-z]+$`, `^\s*$`, `^[一-龥]{2,4}$`, `^a*b+c?$`,
		}).Draw(t, "pattern")}
	case "format":
		return object{"type": "string", "format": rapid.SampledFrom([]string{
			"date", "date-time", "time", "duration", "email", "uri", "uri-reference", "iri", "uuid", "ipv4", "ipv6", "hostname", "json-pointer",
			"relative-json-pointer", "regex", "uri-template", "semver", "period", "unknown",
		}).Draw(t, "format")}
	case "object":
		properties, required := object{}, []string{}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			"title", "summary", "items", "score", "ok", "missing", "due_date", "状态", "a/b~c%d", "", "tags", "reason", "count",
		}), 0, 6, rapid.ID[string]).Draw(t, "names") {
			properties[name] = sub()
			if rapid.Bool().Draw(t, "required") {
				required = append(required, name)
			}
		}
		s := object{"type": "object", "properties": properties, "required": required}
		switch rapid.SampledFrom([]string{"open", "closed", "typed", "few", "named"}).Draw(t, "additional") {
		case "closed":
			s["additionalProperties"] = false
		case "typed":
			s["additionalProperties"] = sub()
		case "few":
			s["maxProperties"] = len(required)
		case "named":
			s["unevaluatedProperties"] = false
		}
		return s
	case "array":
		s := object{"type": "array", "items": sub()}
		bounds(s, "minItems", "maxItems", 4)
		if rapid.Bool().Draw(t, "unique") {
			s["items"], s["uniqueItems"] = object{"type": rapid.SampledFrom([]string{"string", "integer", "number"}).Draw(t, "of")}, true
		}
		return s
	case "tuple":
		return object{"type": "array", "prefixItems": []any{sub(), sub()}, "items": rapid.Bool().Draw(t, "open"), "minItems": number("at least", 0, 2)}
	case "map":
		return object{"type": "object", "additionalProperties": sub(), "propertyNames": object{"pattern": `^[a-z]\w*$`}, "required": []string{"a"}}
	case "anyOf":
		return object{"anyOf": []any{sub(), sub()}}
	case "oneOf":
		return object{"oneOf": []any{
			object{"type": "object", "required": []string{"kind"}, "properties": object{"kind": object{"const": "first"}, "value": sub()}},
			object{"type": "object", "required": []string{"kind", "other"}, "properties": object{"kind": object{"const": "second"}, "other": sub()}},
		}}
	case "allOf":
		return object{"type": "object", "allOf": []any{
			object{"required": []string{"left"}, "properties": object{"left": sub()}},
			object{"properties": object{"right": sub()}, "required": []string{"right"}},
		}}
	case "ref":
		name := fmt.Sprintf("d%d", len(defs))
		defs[name] = object{} // takes the name
		defs[name] = sub()
		return object{"$ref": "#/$defs/" + name, "description": "by reference"}
	case "recursive":
		name := fmt.Sprintf("d%d", len(defs))
		defs[name] = object{"type": "object", "required": []string{"value", "children"}, "properties": object{
			"value": object{"type": "string", "minLength": 1}, "children": object{"type": "array", "items": object{"$ref": "#/$defs/" + name}},
			"next": object{"anyOf": []any{object{"$ref": "#/$defs/" + name}, object{"type": "null"}}},
		}}
		return object{"$ref": "#/$defs/" + name}
	case "nullable":
		return object{"anyOf": []any{object{"type": "null"}, sub()}}
	case "not":
		return object{"type": []string{"string", "integer"}, "not": object{"enum": []any{"", "–", 0}}}
	case "if":
		return object{
			"type": "object", "required": []string{"kind"}, "properties": object{"kind": object{"enum": []string{"long", "short"}}},
			"if": object{"properties": object{"kind": object{"const": "long"}}}, "then": object{"required": []string{"text"}, "properties": object{"text": sub()}},
			"else": object{"maxProperties": 1},
		}
	case "untyped":
		return object{"properties": object{"x": sub()}, "required": []string{"x"}}
	default:
		return object{"type": kind}
	}
}

func TestSchema_AnyThatCanBeSatisfied_AnswerIsValid(t *testing.T) {
	t.Parallel()
	texts := []string{
		"x", "Order ABC-1234 of 2026-03-04: mail a@b.example, see https://a.example/1.\n\nItems\n- Two lamps\n- One chair\n\nMissing\n- Screws",
		"报告\n\n概述\n设备运行正常。\n\n问题\n1. 温度过高；\n2. 噪声较大。", strings.Repeat("A long line without an end ", 400),
	}
	rapid.Check(t, func(t *rapid.T) {
		defs := object{}
		schema := object{"type": "object", "properties": object{"a": anySchema(t, 3, defs), "b": anySchema(t, 2, defs)}, "required": []string{"a"}}
		schema["$defs"] = defs
		text := rapid.SampledFrom(texts).Draw(t, "text")
		answer := filled(t, schema, text)
		requireValid(t, schema, answer)
		require.Equal(t, answer, filled(t, schema, text), "a retry gets the same")
	})
}

func TestSchema_DeepOrWide_AnswerIsValid(t *testing.T) {
	t.Parallel()
	defs, properties, names := object{"d150": object{"type": "string"}}, object{}, []string{}
	for i := range 150 {
		defs[fmt.Sprintf("d%d", i)] = object{"type": "object", "required": []string{"a"}, "properties": object{"a": object{"$ref": fmt.Sprintf("#/$defs/d%d", i+1)}}}
	}
	for i := range 200 {
		names = append(names, fmt.Sprintf("field%d", i))
		properties[names[i]] = object{"type": []string{"string", "null"}, "maxLength": i}
	}
	for name, schema := range map[string]object{
		"deep": {"$ref": "#/$defs/d0", "$defs": defs}, "wide": {"type": "object", "properties": properties, "required": names, "additionalProperties": false},
		"long": {"type": "object", "properties": object{"a": object{"type": "string", "minLength": 5000}, "b": object{"type": "array", "minItems": 100, "items": object{"type": "string"}}}, "required": []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireValid(t, schema, filled(t, schema, "Some text"))
		})
	}
}

func TestSchema_CannotBeSatisfied_AnswerSaysSo(t *testing.T) {
	t.Parallel()
	wide := []any{}
	for i := range 40 {
		wide = append(wide, object{"anyOf": []any{object{"minimum": i}, object{"maximum": -i}}, "not": object{"type": "number"}})
	}
	for name, schema := range map[string]object{
		"contradiction": {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "integer", "minimum": 3, "maximum": 2}}},
		"no end":        {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"$ref": "#"}}},
		"two without end": {
			"type": "object", "required": []string{"a", "b"}, "properties": object{"a": object{"anyOf": []any{object{"$ref": "#"}, object{"$ref": "#"}}}, "b": object{"$ref": "#"}},
		},
		"false":     {"type": "object", "required": []string{"a"}, "additionalProperties": false},
		"few":       {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "array", "items": object{"enum": []int{1}}, "uniqueItems": true, "minItems": 2}}},
		"many":      {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "array", "minItems": 1_000_000_000}}},
		"long":      {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "string", "minLength": 1_000_000_000}}},
		"nothing":   {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "string", "pattern": "[^\\x00-\\x{10FFFF}]"}}},
		"pattern":   {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "string", "pattern": "^a$", "minLength": 5}}},
		"wide":      {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"type": "number", "allOf": wide}}},
		"circle":    {"type": "object", "required": []string{"a"}, "properties": object{"a": object{"$ref": "#/$defs/x"}}, "$defs": object{"x": object{"$ref": "#/$defs/x"}}},
		"not":       {"type": "object", "not": object{}},
		"exclusive": {"type": "object", "oneOf": []any{object{}, object{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := filled(t, schema, "Some text")
			require.Contains(t, answer, "cannot give an answer that is valid against this JSON Schema")
			require.Contains(t, answer, "Simulated answer")
		})
	}
}
