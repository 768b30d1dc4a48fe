package dotprompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Media is an image or another file that a message contains.
type Media struct {
	URL         string `json:"url"`
	ContentType string `json:"contentType,omitempty"`
}

// maxValueDepth bounds how deep lists and objects of values are nested.
const maxValueDepth = 50

// canonical returns a value as rendering knows it: nil, a bool, float64, string, []any, map[string]any or Media.
func canonical(v any, depth int) (any, error) {
	if depth > maxValueDepth {
		return nil, fmt.Errorf("a value is nested more than %d deep", maxValueDepth)
	}
	switch v := v.(type) {
	case nil, bool, float64, string, Media:
		return v, nil
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case []string:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = e
		}
		return list, nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = canonical(e, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for name, e := range v {
			var err error
			if object[name], err = canonical(e, depth+1); err != nil {
				return nil, err
			}
		}
		return object, nil
	default:
		return nil, fmt.Errorf("a value cannot be a %T", v)
	}
}

// truth reports whether a condition holds: not for nothing, false, 0, an empty text and an empty list.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	default:
		return true
	}
}

// printed returns the text of a value.
func printed(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		return "", fmt.Errorf("a list cannot be printed: write {{#each}} around {{this}}, or {{json}}")
	case Media:
		return "", fmt.Errorf("an image cannot be printed: write {{media url=…}}")
	default:
		return "", fmt.Errorf("an object cannot be printed: name one of its values, or write {{json}}")
	}
}

// equal reports whether two values are the same text, number or truth value. Lists and objects equal nothing.
func equal(a, b any) bool {
	for _, v := range []any{a, b} {
		switch v.(type) {
		case []any, map[string]any:
			return false
		}
	}
	return a == b
}

func sortedKeys(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }

// maxIndent is the largest indentation of JSON.
const maxIndent = 10

func jsonText(v any, indent int) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", strings.Repeat(" ", indent))
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}
