package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/schema"
)

// Each mistake has one problem, with its place and what to write. object is around the schema of a property a.
func TestCheck_EachMistake_IsOneProblemWithPlaceAndRemedy(t *testing.T) { // G1
	t.Parallel()
	const aSchema, types = "must be a schema: an object, true or false", "string, number, integer, boolean, object, array, null"
	for _, c := range []struct{ property, at, want string }{
		{`{"type": "strin"}`, "type", `"strin" is not a type: write string`},
		{`{"type": "text"}`, "type", `"text" is not a type: use ` + types},
		{`{"type": ["string", "nul"]}`, "type/1", `"nul" is not a type: write null`},
		{`{"type": 5}`, "type", "must be string, number, integer, boolean, object, array or null, or a list of them, not 5"},
		{`{"type": []}`, "type", "must be string, number, integer, boolean, object, array or null, or a list of them: it is empty"},
		{`{"type": ["string", "string"]}`, "type", `must be string, number, integer, boolean, object, array or null, or a list of them: "string" is written twice`},
		{`"string"`, "", aSchema + `, not "string": write {"type": "string"}`},
		{`"what"`, "", aSchema + `, not "what"`},
		{`5`, "", aSchema + `, not 5`},
		{`null`, "", aSchema + `, not null`},
		{`["string"]`, "", aSchema + `, not a list`},
		{`{"properties": []}`, "properties", "must be an object that has a schema for each name: it is empty"},
		{`{"properties": {"type": "string"}}`, "properties/type", aSchema + `, not "string": write {"type": "string"}`},
		{`{"items": "string"}`, "items", `must be a schema: an object, true or false; a schema for each place of a list is prefixItems, not "string"`},
		{`{"items": ["string"]}`, "items", `must be a schema: an object, true or false; a schema for each place of a list is prefixItems, not a list`},
		{`{"items": {"type": "strin"}}`, "items/type", `"strin" is not a type: write string`},
		{`{"additionalProperties": "no"}`, "additionalProperties", aSchema + `, not "no"`},
		{`{"required": true}`, "required", `must be a list of names, each once, beside properties, not true: write "required": ["name"] there`},
		{`{"required": "x"}`, "required", `must be a list of names, each once, beside properties, not "x"`},
		{`{"required": [1]}`, "required/0", "1 cannot be a part of required, which takes a list of names, each once, beside properties"},
		{`{"required": ["x", "x"]}`, "required", `must be a list of names, each once, beside properties: "x" is written twice`},
		{`{"enum": "a"}`, "enum", `must be a list of values, not "a"`},
		{`{"enum": {}}`, "enum", "must be a list of values, not an object"},
		{`{"minimum": "5"}`, "minimum", `must be a number, not "5"`},
		{`{"exclusiveMinimum": true}`, "exclusiveMinimum", "must be a number, not true"},
		{`{"multipleOf": 0}`, "multipleOf", "must be a number above 0, not 0"},
		{`{"minLength": -1}`, "minLength", "must be a whole number, 0 or more, not -1"},
		{`{"maxItems": 1.5}`, "maxItems", "must be a whole number, 0 or more, not 1.5"},
		{`{"uniqueItems": "yes"}`, "uniqueItems", `must be true or false, not "yes"`},
		{`{"pattern": "(["}`, "pattern", "is not a regular expression (of RE2, without look-around): missing closing ] in ["},
		{`{"pattern": "(?=x)"}`, "pattern", "is not a regular expression (of RE2, without look-around): invalid or unsupported Perl syntax in (?="},
		{`{"pattern": 5}`, "pattern", "must be a regular expression, such as ^[a-z]+$, not 5"},
		{`{"patternProperties": {"(": {}}}`, "patternProperties/(", "is not a regular expression (of RE2, without look-around): missing closing ) in ("},
		{`{"title": 5}`, "title", "must be a text, not 5"},
		{`{"description": ["x"]}`, "description", "must be a text, not a list"},
		{`{"anyOf": []}`, "anyOf", "must be a list of at least one schema: it is empty"},
		{`{"anyOf": {"type": "string"}}`, "anyOf", "must be a list of at least one schema, not an object"},
		{`{"oneOf": [{"type": "string"}, "null"]}`, "oneOf/1", aSchema + `, not "null": write {"type": "null"}`},
		{`{"not": "string"}`, "not", aSchema + `, not "string"`},
		{`{"$defs": 5}`, "$defs", "must be an object that has a schema for each name, not 5"},
		{`{"dependentRequired": {"x": "y"}}`, "dependentRequired/x", `"y" cannot be a part of dependentRequired, which takes an object that has a list of names for each name`},
		{`{"propertes": {}}`, "propertes", "is not a keyword of JSON Schema: write properties"},
		{`{"requird": ["x"]}`, "requird", "is not a keyword of JSON Schema: write required"},
		{`{"maxlength": 5}`, "maxlength", "is not a keyword of JSON Schema: write maxLength"},
		{`{"$ref": 5}`, "$ref", "must be a reference within the schema, such as #/$defs/name, not 5"},
		{`{"$ref": "https://example.com/x.json"}`, "$ref", `"https://example.com/x.json" is outside of the schema: only references within it work, such as #/$defs/name; move the other schema under $defs`},
		{`{"$ref": "other.json"}`, "$ref", `"other.json" is outside of the schema: only references within it work, such as #/$defs/name; move the other schema under $defs`},
		{`{"$ref": "file:///etc/passwd"}`, "$ref", `"file:///etc/passwd" is outside of the schema: only references within it work, such as #/$defs/name; move the other schema under $defs`},
		{`{"$ref": "#/$defs/pat"}`, "$ref", `there is nothing at "#/$defs/pat": write #/$defs/part`},
		{`{"$ref": "#/$defs/address"}`, "$ref", `there is nothing at "#/$defs/address": $defs has loop, part`},
		{`{"$ref": "#/definitions/part"}`, "$ref", `there is nothing at "#/definitions/part": add it under definitions`},
		{`{"$ref": "#part"}`, "$ref", `there is no "$anchor": "part"`},
		{`{"$ref": "part"}`, "$ref", `"part" is outside of the schema: only references within it work, such as #/$defs/name; move the other schema under $defs`},
		{`{"$ref": "#"}`, "", "requires itself without end, so no answer is possible: make a property on the way back to it optional, or permit null"},
		{`{"$ref": "#/$defs/loop"}`, "/$defs/loop/properties/next", "requires itself without end, so no answer is possible: make a property on the way back to it optional, or permit null"},
		{`{"type": "array", "minItems": 1, "items": {"$ref": "#/properties/a"}}`, "items", "requires itself without end, so no answer is possible: make a property on the way back to it optional, or permit null"},
		{`{"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/loop"}]}`, "anyOf/0", "requires itself without end, so no answer is possible: make a property on the way back to it optional, or permit null"},
		{`{"type": "object", "required": ["x"], "additionalProperties": false}`, "required", "x is required, but not among properties, and additionalProperties is false: add it to properties"},
		{`false`, "", "is false, but required: remove it from required"},
		{`{"enum": []}`, "enum", "no value of it is allowed by what stands beside it: add one, or change its type"},
		{`{"type": "integer", "enum": ["a", "b"]}`, "enum", "no value of it is allowed by what stands beside it: add one, or change its type"},
		{`{"type": "string", "const": 5}`, "const", "the value is not allowed by what stands beside it: change its type"},
		{`{"type": "integer", "minimum": 5, "maximum": 3}`, "", "no value is possible: minimum exceeds maximum"},
		{`{"type": "number", "exclusiveMinimum": 5, "maximum": 5}`, "", "no value is possible: exclusiveMinimum exceeds maximum"},
		{`{"type": "string", "minLength": 5, "maxLength": 3}`, "", "no value is possible: minLength exceeds maxLength"},
		{`{"type": "array", "minItems": 5, "maxItems": 3}`, "", "no value is possible: minItems exceeds maxItems"},
		{`{"type": "array", "contains": false}`, "contains", "is false, but required: remove it from required"},
		{`{"type": "string", "allOf": [{"type": "object"}]}`, "", "no value is possible: its parts require different types"},
		{`{"type": "number", "minimum": 1e999}`, "/", "a number is too large, too small or too long"},
	} {
		raw := fmt.Sprintf(`{"type": "object", "properties": {"a": %s}, "required": ["a"], "$defs": {"part": {"type": "string"},
			"loop": {"type": "object", "properties": {"next": {"$ref": "#/$defs/loop"}}, "required": ["next"]}}}`, c.property)
		compiled, problems := schema.Check([]byte(raw))
		require.Nil(t, compiled, c.property)
		require.Len(t, problems, 1, c.property)
		want := strings.TrimSuffix("properties/a/"+c.at, "/")
		if absolute, ok := strings.CutPrefix(c.at, "/"); ok {
			want = absolute
		}
		require.Equal(t, want, strings.Join(problems[0].Path, "/"), c.property)
		require.Equal(t, c.want, problems[0].Message, c.property)
	}
}

func TestCheck_SeveralMistakes_AreAllProblems(t *testing.T) { // G1
	t.Parallel()
	_, problems := schema.Check([]byte(`{"typ": "object", "properties": {"a": {"type": "strin", "pattern": "("}, "b": {"minimum": "x"}, "c": "text"}}`))
	var places []string
	for _, p := range problems {
		places = append(places, strings.Join(p.Path, "/"))
	}
	_, root := schema.Check([]byte(`{"$schema": "https://example.com/meta", "type": "object"}`))
	require.Equal(t, "unknown version of JSON Schema \"https://example.com/meta\": write https://json-schema.org/draft/2020-12/schema, or remove it", root[0].Message)
	require.Len(t, root, 1)
	require.Equal(t, []string{"properties/a/pattern", "properties/a/type", "properties/b/minimum", "properties/c", "typ"}, places)
}

// What can be met by some value is valid, however unusual.
func TestCheck_Unusual_IsValid(t *testing.T) { // G1
	t.Parallel()
	for _, raw := range []string{
		`true`, `{}`, `{"type": "object", "properties": {"next": {"$ref": "#"}}}`, `{"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}`,
		`{"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["children"]}`, `{"properties": {"never": false}}`,
		`{"type": "object", "required": ["x"]}`, `{"type": "object", "required": ["x1"], "patternProperties": {"^x": {}}, "additionalProperties": false}`, `{"enum": [null, 1, "a"], "type": ["string", "null"]}`,
		`{"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "object"}}}`, `{"$id": "https://example.com/a", "$ref": "https://example.com/a#/$defs/b", "$defs": {"b": {"type": "object"}}}`,
		`{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"items": [{"type": "string"}]}}, "$ref": "#/definitions/a"}`, `{"nullable": true, "example": 1, "x-order": 1, "propertyOrder": []}`,
		`{"minimum": 3, "maximum": 3, "minLength": 2, "maxLength": 2}`, `{"type": ["string", "integer"], "minimum": 5, "maximum": 3}`, `{"properties": {"type": {"type": "string"}, "$ref": {"type": "string"}, "requird": {}}}`,
		`{"const": {"typ": 1}, "default": {"propertes": 1}}`, `{"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "object"}}}`,
	} {
		compiled, problems := schema.Check([]byte(raw))
		require.Empty(t, problems, raw)
		require.NotNil(t, compiled)
	}
}
