package schema

import (
	"maps"
	"slices"
)

// holds is which schemas the value of a keyword has.
type holds int

const (
	noSchema holds = iota
	oneSchema
	schemaList
	schemaMap // by name
)

// keyword is a keyword of JSON Schema.
type keyword struct {
	takes string // its value
	holds holds
}

const aSchema = "a schema: an object, true or false"

// keywords are those of draft 2020-12, and those of earlier drafts that it no longer has.
var keywords = keywordsOf(map[keyword][]string{
	{"string, number, integer, boolean, object, array or null, or a list of them", noSchema}: {"type"},
	{"a number", noSchema}:                                                      {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
	{"a number above 0", noSchema}:                                              {"multipleOf"},
	{"a whole number, 0 or more", noSchema}:                                     {"minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"},
	{"true or false", noSchema}:                                                 {"uniqueItems", "deprecated", "readOnly", "writeOnly", "$recursiveAnchor"},
	{"a regular expression, such as ^[a-z]+$", noSchema}:                        {"pattern"},
	{"a text", noSchema}:                                                        {"title", "description", "$comment", "format", "contentEncoding", "contentMediaType", "$id", "$anchor", "$dynamicAnchor", "$schema"},
	{"a reference within the schema, such as #/$defs/name", noSchema}:           {"$ref", "$dynamicRef", "$recursiveRef"},
	{"a list of values", noSchema}:                                              {"enum", "examples"},
	{"any value", noSchema}:                                                     {"const", "default"},
	{"an object", noSchema}:                                                     {"$vocabulary"},
	{"a list of names, each once, beside properties", noSchema}:                 {"required"},
	{"an object that has a list of names for each name", noSchema}:              {"dependentRequired"},
	{aSchema + "; a schema for each place of a list is prefixItems", oneSchema}: {"items"},
	{aSchema, oneSchema}:                                                        {"additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema"},
	{"a list of at least one schema", schemaList}:                               {"allOf", "anyOf", "oneOf", "prefixItems"},
	{"an object that has a schema for each name", schemaMap}:                    {"properties", "$defs", "definitions", "dependentSchemas", "dependencies"},
	{"an object that has a schema for each regular expression", schemaMap}:      {"patternProperties"},
})

func keywordsOf(names map[keyword][]string) map[string]keyword {
	all := map[string]keyword{}
	for k, list := range names {
		for _, name := range list {
			all[name] = k
		}
	}
	return all
}

var (
	keywordNames = slices.Sorted(maps.Keys(keywords))
	typeNames    = []string{"string", "number", "integer", "boolean", "object", "array", "null"}
)

// keywordAt returns the keyword whose value a path leads to or into, and its depth in the path; none where the path leads to a schema of a
// list or by name.
func keywordAt(path []string) (name string, depth int) {
	for i := 0; i < len(path); i++ {
		name = path[i]
		switch holds := keywords[name].holds; {
		case i == len(path)-1 || holds == noSchema:
			return name, i + 1
		case holds != oneSchema:
			i++
		}
	}
	return "", 0
}
