// Package yamlfile reads files of one YAML document whose errors name the line.
package yamlfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"berth/internal/setting"
)

// Unsafe reports whether a terminal would execute a character, or display others differently because of it.
func Unsafe(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// Safe returns a text that an error quotes, with U+FFFD in place of characters that are Unsafe.
func Safe(text string) string {
	return strings.Map(func(r rune) rune {
		if Unsafe(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// SyntaxError is the error of a text that is not one YAML document.
type SyntaxError struct {
	Line    int // 0 if it is not known
	Message string
	Err     error // of the parser, nil for others
}

func (e *SyntaxError) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %s", e.Message, e.Err)
}

func (e *SyntaxError) Unwrap() error { return e.Err }

// Parse returns the root of the only document of a text.
func Parse(src []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &SyntaxError{Line: 1, Message: "empty file"}
	case err != nil:
		return nil, Unreadable(src, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Line: 1, Message: "contains more than one document"}
	}
	return doc.Content[0], nil
}

// lineOf finds the line in an error of the parser.
var lineOf = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// Unreadable returns the error of a text that is not YAML, in one line. The parser's own words do not name what editors hide.
func Unreadable(src []byte, err error) error {
	line, _ := strconv.Atoi(lineOf.FindStringSubmatch(err.Error())[1]) // 0 without one
	if invalid, ok := errors.AsType[*yaml.TypeError](err); ok {
		line, _ = strconv.Atoi(lineOf.FindStringSubmatch(invalid.Errors[0])[1])
		return &SyntaxError{Line: line, Message: strings.Join(invalid.Errors, "; ")}
	}
	number := 0
	for text := range strings.Lines(strings.TrimPrefix(string(src), "\ufeff")) {
		number++
		if !utf8.ValidString(text) {
			return &SyntaxError{number, fmt.Sprintf("line %d is not UTF-8: save the file in this encoding", number), err}
		}
		for _, r := range text {
			if r != ' ' && r != '\n' && r != '\r' && setting.Trim(string(r)) == "" && setting.Trim(text) != "" {
				return &SyntaxError{number, fmt.Sprintf("line %d is indented with %s: indent with spaces", number, setting.Describe(r)), err}
			}
			if r != ' ' {
				break
			}
		}
	}
	if line = cmp.Or(failsAt(src, err), line); line == 0 {
		return &SyntaxError{Message: err.Error()}
	}
	return &SyntaxError{Line: line, Message: fmt.Sprintf("line %d: %s", line, strings.TrimPrefix(err.Error(), lineOf.FindString(err.Error())))}
}

// failsAt returns the line with which an error of the parser arises, 0 if none does. The error itself names, counted from 0 or from 1, the line at
// which the surrounding value begins, or none.
func failsAt(src []byte, err error) int {
	var ends []int // of lines
	for text := range bytes.Lines(src) {
		ends = append(ends, len(text))
		if n := len(ends); n > 1 {
			ends[n-1] += ends[n-2]
		}
	}
	at := sort.Search(len(ends), func(i int) bool {
		failed := yaml.NewDecoder(bytes.NewReader(src[:ends[i]])).Decode(new(yaml.Node))
		return failed != nil && failed.Error() == err.Error()
	})
	if at == len(ends) {
		return 0
	}
	return at + 1
}

// Line returns the line of the value that a path leads to. A path that the document does not contain has the line of its parent.
func Line(root *yaml.Node, path []string) int {
	return Find(root, path).Line
}

// Find returns the value that a path leads to, or the last one on the way to it.
func Find(root *yaml.Node, path []string) *yaml.Node {
	for _, key := range path {
		next := Child(root, key)
		if next == nil {
			break
		}
		root = next
	}
	return root
}

// Key returns the node of a key of a mapping, or the mapping if it does not have the key.
func Key(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i]
		}
	}
	return mapping
}

// Child returns the value of a mapping's key or of a list's index, nil when there is none.
func Child(node *yaml.Node, key string) *yaml.Node {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i]
		}
	}
	return nil
}

// Plain returns a decoded value as JSON has it.
func Plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[name] = Plain(e)
		}
		return out
	case map[any]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[fmt.Sprint(name)] = Plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = Plain(e)
		}
		return out
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) { // JSON has neither
			return fmt.Sprint(v)
		}
		return v
	case nil, bool, string, int, int64, uint64:
		return v
	default:
		return fmt.Sprint(v)
	}
}
