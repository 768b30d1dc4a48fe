package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// conform brings an object into the shape of a JSON schema as far as a schema is plain: properties it forbids go,
// required ones that are missing are filled with the emptiest value of their type.
func conform(value, schema []byte) ([]byte, error) {
	var s map[string]any
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("not an object: %w", err)
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(shape(v, s, s, 0)); err != nil {
		return nil, fmt.Errorf("write answer: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

const maxSchemaDepth = 10 // a schema may refer to itself

func shape(v any, schema, root map[string]any, depth int) any {
	schema = resolve(schema, root)
	if depth > maxSchemaDepth {
		return nil
	}
	if choices, ok := schema["enum"].([]any); ok && len(choices) > 0 {
		if s, ok := v.(string); ok && slices.Contains(choices, any(s)) {
			return s
		}
		return choices[0]
	}
	switch wanted := kind(v, schema); wanted {
	case "object":
		return shapeObject(v, schema, root, depth)
	case "array":
		list, _ := v.([]any)
		out := []any{}
		items, _ := schema["items"].(map[string]any)
		for _, e := range list {
			if items != nil {
				e = shape(e, items, root, depth+1)
			}
			out = append(out, e)
		}
		if least, ok := schema["minItems"].(float64); ok {
			for float64(len(out)) < least {
				out = append(out, shape(nil, items, root, depth+1))
			}
		}
		return out
	case "string":
		if s, ok := v.(string); ok {
			return s
		}
		return "-"
	case "number", "integer":
		if n, ok := v.(float64); ok {
			return n
		}
		if least, ok := schema["minimum"].(float64); ok {
			return least
		}
		return 0
	case "boolean":
		b, _ := v.(bool)
		return b
	case "null":
		return nil
	default:
		return v
	}
}

func shapeObject(v any, schema, root map[string]any, depth int) any {
	in, _ := v.(map[string]any)
	props, _ := schema["properties"].(map[string]any)
	closed := schema["additionalProperties"] == false
	out := map[string]any{}
	for name, e := range in {
		if p, ok := props[name].(map[string]any); ok {
			out[name] = shape(e, p, root, depth+1)
		} else if !closed {
			out[name] = e
		}
	}
	required, _ := schema["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		if _, have := out[name]; have || name == "" {
			continue
		}
		p, _ := props[name].(map[string]any)
		out[name] = shape(nil, p, root, depth+1)
	}
	return out
}

// kind is the type the schema wants: of several the value's own, else the first that is not null.
func kind(v any, schema map[string]any) string {
	switch t := schema["type"].(type) {
	case string:
		return t
	case []any:
		own := map[bool]string{true: "null"}[v == nil]
		switch v.(type) {
		case string:
			own = "string"
		case float64:
			own = "number"
		case bool:
			own = "boolean"
		case []any:
			own = "array"
		case map[string]any:
			own = "object"
		}
		if slices.Contains(t, any(own)) {
			return own
		}
		for _, e := range t {
			if s, _ := e.(string); s != "null" {
				return s
			}
		}
		return "null"
	}
	if _, ok := schema["properties"]; ok {
		return "object"
	}
	return ""
}

// resolve follows references within the schema.
func resolve(schema, root map[string]any) map[string]any {
	for range maxSchemaDepth {
		ref, ok := schema["$ref"].(string)
		if !ok {
			break
		}
		next := root
		for _, part := range bytes.Split(bytes.TrimPrefix([]byte(ref), []byte("#/")), []byte("/")) {
			next, _ = next[string(part)].(map[string]any)
		}
		schema = next
	}
	return schema
}
