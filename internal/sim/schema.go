package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth"
	"berth/internal/llm"
	"berth/internal/schema"
)

const anyObject = `{"required": ["answer", "names"], "properties": {"answer": {"type": "string"}, "names": {"type": "array", "items": {"type": "string"}}}}`

// findSchema returns the schema of the request's response format, else that of the template, else anyObject; nil if the
// request does not ask for JSON.
func findSchema(req chatRequest, template string) []byte {
	if raw := req.ResponseFormat.JSONSchema.Schema; len(raw) > 0 {
		return raw
	}
	if raw, ok := llm.Schema(berth.Template(template)); ok {
		return raw
	}
	if req.ResponseFormat.Type == "json_object" {
		return []byte(anyObject)
	}
	return nil
}

// fill returns an object of the schema with what the source says. It supports the keywords that the templates use.
func (s *source) fill(raw []byte) (string, error) {
	sc, err := schema.Compile("schema.json", raw)
	if err != nil {
		return "", invalid("schema: %s", err)
	}
	if len(sc.Properties) == 0 {
		return "", invalid("schema: must describe an object with properties")
	}
	return s.object(sc, nil, 0), nil
}

func hasType(sc *jsonschema.Schema, name string) bool {
	return sc != nil && sc.Types != nil && slices.Contains(sc.Types.ToStrings(), name)
}

// entry is one item of a list: the texts for its strings in their order, and the bullets below it.
type entry struct{ texts, bullets []string }

const (
	maxDepth     = 10 // a schema may refer to itself
	maxItems     = 100
	maxText      = 4000
	maxParagraph = 1500
)

// value returns the JSON for one place of a schema. e is the list entry that the place is in, nil outside of lists.
func (s *source) value(name string, sc *jsonschema.Schema, e *entry, depth int) string {
	for sc.Ref != nil && depth < maxDepth {
		sc, depth = sc.Ref, depth+1
	}
	switch {
	case depth >= maxDepth:
		return "null"
	case sc.Enum != nil:
		return marshal(sc.Enum.Values[0])
	case len(sc.Properties) > 0:
		return s.object(sc, e, depth)
	case hasType(sc, "array") && sc.Items2020 == nil:
		return "[]"
	case hasType(sc, "array"):
		var out []string
		list := s.entries(name, sc.Items2020, e)
		for _, item := range list[:min(len(list), limit(sc.MaxItems, maxItems))] {
			out = append(out, s.value("", sc.Items2020, &item, depth+1))
		}
		return "[" + strings.Join(out, ",") + "]"
	case hasType(sc, "string"):
		text := s.text(name, e)
		if text == "" && hasType(sc, "null") {
			return "null"
		}
		return marshal(clip(cmp.Or(text, "-"), limit(sc.MaxLength, maxText)))
	case hasType(sc, "number"), hasType(sc, "integer"):
		for _, l := range s.Subject {
			if n := yearsIn(l.text); n > 0 {
				return marshal(n)
			}
		}
	}
	if hasType(sc, "null") {
		return "null"
	}
	return "0"
}

// object fills the required properties in the order of the schema, then the others.
func (s *source) object(sc *jsonschema.Schema, e *entry, depth int) string {
	order := slices.Clone(sc.Required)
	for _, name := range slices.Sorted(maps.Keys(sc.Properties)) {
		if !slices.Contains(order, name) {
			order = append(order, name)
		}
	}
	var fields []string
	for _, name := range order {
		if property := sc.Properties[name]; property != nil {
			fields = append(fields, marshal(name)+":"+s.value(name, property, e, depth+1))
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// entries returns the items of a list: the bullets of an entry, or what the source has about the list's name. In a list
// of strings, each line is an item; else bullets belong to the line above them.
func (s *source) entries(name string, items *jsonschema.Schema, e *entry) (out []entry) {
	flat := hasType(items, "string")
	var lines []string
	switch t := topicOf(name); {
	case e != nil:
		lines = e.bullets
	case name == "strengths", name == "changes":
		for _, p := range s.Matched {
			out = append(out, entry{texts: []string{s.render("strength", p), s.render("change", p), s.render("reason", p)}})
		}
	case name == "gaps", name == "missing":
		for _, p := range s.Missing {
			lines = append(lines, p.Requirement)
		}
	case t == requirements:
		lines = s.Required
	case t == skills && flat:
		lines = s.skills()
	case t == "":
		lines = s.Names
	default:
		for _, l := range s.Subject {
			switch n := len(out); {
			case l.topic != t:
			case l.bullet && n > 0 && !flat:
				out[n-1].bullets = append(out[n-1].bullets, l.text)
			default:
				out = append(out, entry{texts: []string{l.text}})
			}
		}
	}
	for _, text := range lines {
		out = append(out, entry{texts: []string{text}})
	}
	return out
}

// skills returns what the lines about skills list, else the names in the requirements.
func (s *source) skills() []string {
	if listed := texts(s.Subject, skills); len(listed) > 0 {
		return terms(strings.Join(listed, ", "))
	}
	return names(strings.Join(texts(s.Subject, requirements, wishes, ""), ". "))
}

// text fills a string: the next text of an entry, or what is known of the whole subject.
func (s *source) text(name string, e *entry) (text string) {
	head := append(texts(s.Subject, ""), "", "")
	switch {
	case e != nil && len(e.texts) > 0:
		text, e.texts = e.texts[0], e.texts[1:]
	case e != nil:
	case name == "title", name == "name":
		text = head[0]
	case name == "company", name == "headline":
		text = cmp.Or(head[1], head[0])
	case topicOf(name) == about:
		text = clip(cmp.Or(strings.Join(s.About, " "), head[0]), maxParagraph) + " " + s.render("notice", nil)
	}
	return text
}

// limit returns a limit of a schema, at most otherwise.
func limit(p *int, otherwise int) int {
	if p == nil {
		return otherwise
	}
	return min(*p, otherwise)
}

// marshal returns the JSON of a string, a number or a struct of these, which always marshals.
func marshal(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
