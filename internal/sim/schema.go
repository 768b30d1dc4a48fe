package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is the part of a JSON schema that the simulator fills.
type schema struct {
	Ref        string             `json:"$ref"` // within $defs
	Type       typeNames          `json:"type"`
	Enum       []any              `json:"enum"`
	Properties properties         `json:"properties"`
	Items      *schema            `json:"items"`
	MinItems   int                `json:"minItems"`
	MaxItems   int                `json:"maxItems"`
	MaxLength  int                `json:"maxLength"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	Defs       map[string]*schema `json:"$defs"`
}

// typeNames is one type, or a list of them.
type typeNames []string

// UnmarshalJSON reads either form.
func (t *typeNames) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = typeNames{""}
	return json.Unmarshal(b, &(*t)[0])
}

// properties keep the order of the schema.
type properties []struct {
	name   string
	schema *schema
}

// UnmarshalJSON reads an object.
func (p *properties) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	_, err := dec.Token()
	for err == nil && dec.More() {
		var name json.Token
		next := &schema{}
		if name, err = dec.Token(); err == nil {
			err = dec.Decode(next)
		}
		*p = append(*p, struct {
			name   string
			schema *schema
		}{fmt.Sprint(name), next})
	}
	return err
}

type field struct {
	name  string
	value any
}

// object is a JSON object that keeps its order.
type object []field

// MarshalJSON writes the fields in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for _, f := range o {
		name, _ := json.Marshal(f.name) // a string always marshals
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, ",%s:%s", name, value)
	}
	return append(append([]byte("{"), bytes.TrimPrefix(b.Bytes(), []byte(","))...), '}'), nil
}

const anyObject = `{"type": "object", "properties": {"answer": {"type": "string"}, "names": {"type": "array", "items": {"type": "string"}}}}`

// findSchema returns the schema of the request's response format, else the one that the system message shows, else
// anyObject; nil if the request does not ask for JSON.
func findSchema(req chatRequest, system string) []byte {
	if raw := req.ResponseFormat.JSONSchema.Schema; len(raw) > 0 {
		return raw
	}
	for i := range system {
		var raw json.RawMessage
		var shown struct {
			Properties json.RawMessage `json:"properties"`
		}
		if system[i] == '{' && json.NewDecoder(strings.NewReader(system[i:])).Decode(&raw) == nil &&
			json.Unmarshal(raw, &shown) == nil && shown.Properties != nil {
			return raw
		}
	}
	if req.ResponseFormat.Type == "json_object" {
		return []byte(anyObject)
	}
	return nil
}

// filler fills a schema from a source.
type filler struct {
	*source
	root  *schema
	facts facts
}

// fill returns an object of the schema that says what the source says, with the notice behind its longest text.
func (s *source) fill(raw []byte) (string, error) {
	f := &filler{source: s, root: &schema{}, facts: readFacts(s.subject)}
	if err := json.Unmarshal(raw, f.root); err != nil {
		return "", invalid("schema: %s", err)
	}
	out, ok := f.value("", f.root, nil, 0).(object)
	if !ok {
		return "", invalid("schema: must describe an object")
	}
	longest, limit, text := -1, 0, ""
	for i, p := range f.root.Properties {
		if v, ok := out[i].value.(string); ok && len(p.schema.Enum) == 0 && p.schema.limit() > limit {
			longest, limit, text = i, p.schema.limit(), v
		}
	}
	if notice := s.say(" ", "") + s.notice(); longest >= 0 {
		out[longest].value = clip(text, max(limit-len([]rune(notice)), 0)) + notice
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write answer: %w", err)
	}
	return string(b), validate(raw, b)
}

// validate checks an answer with a complete implementation of JSON Schema.
func validate(raw, answer []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return invalid("schema: %s", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // a schema loads nothing
	if err := c.AddResource("schema.json", doc); err != nil {
		return invalid("schema: %s", err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		return invalid("schema: %s", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer))
	if err == nil {
		err = compiled.Validate(value)
	}
	if err != nil {
		return invalid("schema: the simulator cannot fill it: %s", err)
	}
	return nil
}

func (sc *schema) limit() int {
	if sc.MaxLength > 0 {
		return sc.MaxLength
	}
	return math.MaxInt32
}

const maxDepth = 10 // a schema may refer to itself

// value fills one place of the schema. e is the list entry that the place is in, nil outside of lists.
func (f *filler) value(name string, sc *schema, e *entry, depth int) any {
	for range maxDepth {
		if next := f.root.Defs[strings.TrimPrefix(sc.Ref, "#/$defs/")]; sc.Ref != "" && next != nil {
			sc = next
		}
	}
	if len(sc.Enum) > 0 {
		said := slices.IndexFunc(sc.Enum, func(v any) bool { _, ok := best(words(fmt.Sprint(v)), f.subject); return ok })
		return sc.Enum[max(said, 0)]
	}
	switch {
	case depth > maxDepth:
		return nil
	case slices.Contains(sc.Type, "object") || len(sc.Properties) > 0:
		out := object{}
		for _, p := range sc.Properties {
			out = append(out, field{p.name, f.value(p.name, p.schema, e, depth+1)})
		}
		return out
	case slices.Contains(sc.Type, "array"):
		return f.array(name, sc, e, depth)
	case slices.Contains(sc.Type, "string"):
		text := f.text(name, e)
		switch {
		case text == "" && slices.Contains(sc.Type, "null"):
			return nil
		case text == "" && e != nil:
			text = e.text
		}
		return clip(cmp.Or(text, "-"), sc.limit())
	case slices.Contains(sc.Type, "boolean"):
		return len(f.where(true)) > 0
	case slices.Contains(sc.Type, "number"), slices.Contains(sc.Type, "integer"):
		n, known := f.number(name)
		if !known && slices.Contains(sc.Type, "null") {
			return nil
		}
		if sc.Minimum != nil {
			n = max(n, *sc.Minimum)
		}
		if sc.Maximum != nil {
			n = min(n, *sc.Maximum)
		}
		return n
	}
	return nil
}

// number returns years of experience for a name with "year", else the score in percent.
func (f *filler) number(name string) (n float64, known bool) {
	if !strings.Contains(strings.ToLower(name), "year") {
		percent, _ := score(f.points)
		return float64(percent), len(f.points) > 0
	}
	for _, l := range f.subject {
		n = max(n, float64(yearsIn(l.text)))
	}
	return n, n > 0
}

func (f *filler) array(name string, sc *schema, e *entry, depth int) any {
	out := []any{}
	items := sc.Items
	if items == nil {
		items = &schema{Type: typeNames{"string"}}
	}
	most := sc.MaxItems
	if most == 0 {
		most = maxLines
	}
	entries := f.entries(topicOf(name), e, slices.Contains(items.Type, "string"))
	for _, e := range entries[:min(len(entries), most)] {
		out = append(out, f.value("", items, e, depth+1))
	}
	for len(out) < sc.MinItems {
		out = append(out, f.value("", items, &entry{}, depth+1))
	}
	return out
}

// text fills a string: from the entry, or from what is known of the whole subject.
func (f *filler) text(name string, e *entry) string {
	switch {
	case e != nil && name == "": // an item of a list of strings
		return e.text
	case e != nil:
		return e.take(name)
	}
	if v := f.facts.named[strings.ToLower(name)]; v != "" {
		return v
	}
	if topicOf(name) == about || name == "answer" {
		return f.summary()
	}
	return ""
}

// summary is the introduction of the subject, or its beginning, and how much there is of it.
func (f *filler) summary() string {
	parts := texts(f.subject, about)
	if len(parts) == 0 {
		parts = texts(f.subject, "")
	}
	return f.say("%s. %s %d lines in all.", "%s。%s原文共 %d 行。", strings.Join(f.facts.head, f.say(", ", "，")),
		clip(strings.Join(parts, f.say(" ", "")), maxParagraph), len(f.subject))
}
