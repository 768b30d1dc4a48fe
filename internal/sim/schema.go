package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const anyObject = `{"type": "object", "required": ["answer", "names"], "properties": {"answer": {"type": "string"}, "names": {"type": "array", "items": {"type": "string"}}}}`

// wants returns the schema that the request asks to be followed: that of its response format, else one that a message quotes,
// else one for objects like an example in JSON mode; nil if it does not ask for JSON. formal is true for the first.
func (s *source) wants(req chatRequest) (schema []byte, formal bool) {
	if raw := req.ResponseFormat.JSONSchema.Schema; len(raw) > 0 {
		return raw, true
	}
	markers := stageMark.MatchString(s.rules) || itemMark.MatchString(s.rules)
	if s.asked != nil && (!markers || req.ResponseFormat.Type == "json_object") {
		return s.asked, false
	}
	if req.ResponseFormat.Type != "json_object" && (markers || !jsonWord.MatchString(s.rules)) {
		return nil, false
	}
	for i := range candidates(s.rules) {
		if object := objectAt(s.rules[i:]); object != nil && json.Valid(object) && bytes.ContainsRune(object, ':') {
			return schemaOf(object), false
		}
	}
	if req.ResponseFormat.Type != "json_object" {
		return nil, false
	}
	return []byte(anyObject), false
}

var jsonWord = regexp.MustCompile(`\bJSON\b`)

const (
	maxCandidates = 200
	maxScanned    = 4 << 20
)

// candidates yields the places of a text at which an object with names may begin.
func candidates(text string) func(func(int) bool) {
	return func(yield func(int) bool) {
		tried := 0
		for at := 0; tried < maxCandidates; tried++ {
			i := strings.IndexByte(text[at:], '{')
			if i < 0 {
				return
			}
			at += i + 1
			if !strings.HasPrefix(strings.TrimLeft(text[at:min(len(text), at+200)], " \t\r\n"), `"`) {
				tried-- // costs nothing
				continue
			}
			if !yield(at - 1) {
				return
			}
		}
	}
}

// quotedSchema returns the first JSON Schema that a text quotes, and how it is written there.
func quotedSchema(text string) (schema []byte, written string) {
	scanned := 0
	for i := range candidates(text) {
		dec := json.NewDecoder(strings.NewReader(text[i:]))
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			read := len(text) - i
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				read = int(syntax.Offset)
			}
			if scanned += read; scanned > maxScanned {
				break
			}
			continue
		}
		if isSchema(raw) {
			return raw, string(raw)
		}
	}
	return nil, ""
}

// isSchema reports whether an object is a JSON Schema and not an example.
func isSchema(raw []byte) bool {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		return false
	}
	var kind string
	_ = json.Unmarshal(o["type"], &kind) // another type leaves it empty
	isType := slices.Contains([]string{"object", "array"}, kind)
	var properties map[string]json.RawMessage
	hasProperties := json.Unmarshal(o["properties"], &properties) == nil && len(properties) > 0
	described := hasProperties || o["items"] != nil || o["$defs"] != nil || o["definitions"] != nil || o["anyOf"] != nil ||
		o["oneOf"] != nil || o["allOf"] != nil || o["additionalProperties"] != nil || o["required"] != nil
	return o["$schema"] != nil || isType && (described || len(o) == 1) || hasProperties && o["type"] == nil || o["$ref"] != nil && o["$defs"] != nil
}

// keyRank returns the order in which the values of a JSON text stand in it, by their JSON pointers.
func keyRank(raw []byte) map[string]int {
	rank := map[string]int{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	type level struct {
		pointer string
		object  bool
		next    string // the name of the next value
		index   int
	}
	levels := []level{{}}
	for {
		tok, err := dec.Token()
		if err != nil {
			return rank
		}
		at := &levels[len(levels)-1]
		if tok == json.Delim('}') || tok == json.Delim(']') {
			levels = levels[:len(levels)-1]
			continue
		}
		if name, ok := tok.(string); ok && at.object && at.next == "" {
			at.next = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			continue
		}
		pointer := at.pointer + at.next
		if !at.object && len(levels) > 1 {
			pointer = fmt.Sprintf("%s/%d", at.pointer, at.index)
			at.index++
		}
		at.next = ""
		rank[pointer] = len(rank)
		if delim, ok := tok.(json.Delim); ok {
			levels = append(levels, level{pointer: pointer, object: delim == '{'})
		}
	}
}

// rankOf returns the place of a schema in the text that keyRank has read.
func rankOf(rank map[string]int, sc *jsonschema.Schema) int {
	_, pointer, _ := strings.Cut(sc.Location, "#")
	if plain, err := url.PathUnescape(pointer); err == nil {
		pointer = plain
	}
	if n, ok := rank[pointer]; ok {
		return n
	}
	return len(rank)
}

// encode writes a value with the names of its objects in the order of the schema. path is its place.
func (f *filler) encode(v any, path string) string {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		slices.SortStableFunc(names, func(a, b string) int { return f.place(path, a) - f.place(path, b) })
		fields := make([]string, len(names))
		for i, name := range names {
			fields[i] = marshal(name) + ":" + f.encode(v[name], path+"/"+name)
		}
		return "{" + strings.Join(fields, ",") + "}"
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = f.encode(item, path+"/"+strconv.Itoa(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		return marshal(v)
	}
}

// place returns the index of a name among the properties of the object at a path, those that the schema does not name last.
func (f *filler) place(path, name string) int {
	if i := slices.Index(f.order[path], name); i >= 0 {
		return i
	}
	return len(f.order[path])
}

// marshal returns the JSON of a string, a number or what schemaLike returns, which always marshal.
func marshal(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
