package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth/internal/schema"
)

// part is a section of an answer that a prompt asks for.
type part struct {
	mark  string // the line before it, "" for none
	name  string // of its stage, or its heading
	about string // what the prompt says about it
	items []itemExample
}

// itemExample is a marker with an object that the prompt wants for each item.
type itemExample struct {
	word   string // between << and the object
	schema *jsonschema.Schema
	raw    []byte
}

var (
	mark     = regexp.MustCompile(`<<(?:stage:([^\s<>]{1,64})>>|([\pL_][\pL\pM\pN:._-]*)[ \t]+(\{))`)
	markLine = regexp.MustCompile(`(?m)^.*<<\S+?(?:>>| +\{).*$`)
	outlined = regexp.MustCompile(`(?i)\b(?:headings?|sections?|parts)\b|标题|部分|章节`)
	numbered = regexp.MustCompile(`(?m)^\s*\p{Nd}{1,2}[.)、．]\s*([^:：,，;；。\n]*)(.*)$`)
	asking   = regexp.MustCompile(`(?i)\bquestions?\b|问题`)
)

const (
	maxParts  = 50
	maxQuoted = 8
	maxMarker = 6000 // bytes of an object in a marker
)

// outline returns the parts that the prompt asks for: those with stage markers, else those of a numbered list that is about headings or
// parts, else one about what is given, and another one.
func (s *source) outline() (parts []part) {
	rules := clip(s.rules, maxRead)
	var early []itemExample // before the first stage
	for _, m := range mark.FindAllStringSubmatchIndex(rules, 4*maxParts) {
		switch {
		case m[2] >= 0:
			name := rules[m[2]:m[3]]
			if len(parts) < maxParts && !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
				parts = append(parts, part{mark: rules[m[0]:m[1]], name: name})
			}
		case len(parts) == 0:
			early = addItem(early, rules[m[4]:m[5]], rules[m[6]:])
		default:
			p := &parts[len(parts)-1]
			p.items = addItem(p.items, rules[m[4]:m[5]], rules[m[6]:])
		}
	}
	if at := outlined.FindStringIndex(rules); len(parts)+len(early) == 0 && at != nil {
		for _, m := range numbered.FindAllStringSubmatch(rules[at[1]:], maxParts) {
			parts = append(parts, part{name: strings.Trim(m[1], "* "), about: m[2]})
		}
	}
	if len(parts) == 0 {
		parts = make([]part, 2)
	}
	if !slices.ContainsFunc(parts, func(p part) bool { return len(p.items) > 0 }) {
		parts[min(1, len(parts)-1)].items = early
	}
	return parts
}

// addItem adds the example with which a text begins.
func addItem(all []itemExample, word, text string) []itemExample {
	var raw json.RawMessage
	if json.NewDecoder(strings.NewReader(text)).Decode(&raw) != nil || slices.ContainsFunc(all, func(e itemExample) bool { return e.word == word }) {
		return all
	}
	var example any
	_ = json.Unmarshal(raw, &example) // it was valid
	if compiled, err := schema.Compile("schema.json", []byte(marshal(schemaLike(example)))); err == nil {
		all = append(all, itemExample{word, compiled, raw})
	}
	return all
}

// schemaLike returns a schema for values like an example. A text with alternatives, such as low|high, is an enum.
func schemaLike(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		fields := map[string]any{}
		for name, value := range v {
			fields[name] = schemaLike(value)
		}
		return map[string]any{"type": "object", "properties": fields, "required": slices.Sorted(maps.Keys(v))}
	case []any:
		return map[string]any{"type": "array", "items": schemaLike(append(v, "")[0])}
	case string:
		if options := strings.Split(v, "|"); len(options) > 1 && !slices.Contains(options, "") {
			return map[string]any{"enum": options}
		}
		return map[string]any{"type": "string"}
	case bool:
		return map[string]any{"type": "boolean"}
	case float64:
		return map[string]any{"type": map[bool]string{true: "integer", false: "number"}[v == float64(int64(v))], "default": v}
	default:
		return map[string]any{}
	}
}

// wordsOf returns the words of the first example, which name the list that items are made of; nil if there is none.
func wordsOf(parts []part) []string {
	for _, p := range parts {
		for _, e := range p.items {
			return words(spaced(e.word + " " + string(e.raw)))
		}
	}
	return nil
}

// writer writes the parts of an answer.
type writer struct {
	*source
	out   strings.Builder
	list  []entry // what the items are made of
	asked int     // entries that questions are about
}

// write answers in Markdown. What a part says is decided by its items, by words of any subject, and by its place: the first one is about what is
// given, the one after the items counts them, and the last one concludes.
func (s *source) write() string {
	parts := s.outline()
	w := &writer{source: s, list: s.compare(wordsOf(parts))}
	for i, p := range parts {
		wants, last, kind := spaced(p.name)+p.about, i == len(parts)-1, "quotes"
		compared := len(w.list) > 0 && w.list[0].Compared
		switch {
		case len(p.items) > 0:
			kind = "items"
		case asking.MatchString(wants):
			kind = "questions"
		case i == 0 && !last:
			kind = "overview"
		case compared && lacking.MatchString(wants):
			kind = "missing"
		case compared && p.mark != "" && last:
			kind = "conclusion"
		case compared && len(parts[i-1].items) > 0:
			kind = "score"
		}
		heading := w.render("heading-"+kind, nil)
		if name := upperFirst(spaced(p.name)); p.mark == "" && name != "" {
			heading = fmt.Sprintf("%d. %s", i+1, p.name)
		} else if name != "" && (kind == "quotes" || kind == "items" && !compared) && isChinese(name) == w.zh {
			heading = name
		}
		w.out.WriteString(strings.TrimLeft(p.mark+"\n", "\n") + "## " + heading + "\n\n")
		if i == 0 {
			w.out.WriteString("_" + w.render("notice", nil) + "_\n\n")
		}
		w.part(kind, p)
	}
	return strings.TrimSpace(w.out.String()) + "\n"
}

func (w *writer) part(kind string, p part) {
	switch kind {
	case "items":
		w.list = w.compare(wordsOf([]part{p}))
		for _, e := range w.list {
			for _, ex := range p.items {
				w.item(ex, e)
			}
			w.out.WriteString(w.render("item", e) + "\n")
		}
		w.out.WriteString("\n")
	case "overview":
		w.block("overview", w.given())
		if p.mark == "" && p.name != "" {
			w.block("entries", textsOf(first(maxQuoted, w.list)))
		}
	case "questions":
		n := min(5, len(w.list))
		w.block("questions", slices.Concat(w.list, w.list)[w.asked:w.asked+n])
		w.asked = (w.asked + n) % max(len(w.list), 1)
	case "quotes":
		w.quotes(p.name == "")
	default:
		found, missing := split(w.list)
		w.block(kind, map[string]any{"Found": found, "Missing": missing, "All": w.list, "Share": 100 * len(found) / max(len(w.list), 1)})
	}
}

func (w *writer) block(name string, data any) {
	if text := w.render(name, data); text != "" {
		w.out.WriteString(text + "\n\n")
	}
}

// item writes a marker for an entry. One that is too long for a line would be text for the reader.
func (w *writer) item(ex itemExample, e entry) {
	f := w.newFiller(ex.raw)
	v, ok := f.value(schemas{ex.schema}, place{entry: &e})
	if text := f.encode(v); ok && text[0] == '{' && len(text) <= maxMarker {
		fmt.Fprintf(&w.out, "<<%s %s>>\n", ex.word, text)
	}
}

// given describes the documents.
func (w *writer) given() (out []map[string]any) {
	for _, d := range first(4, w.docs) {
		var headings []string
		for _, sec := range d.sections {
			if sec.heading != "" && sec.heading != d.title() {
				headings = append(headings, sec.heading)
			}
		}
		out = append(out, map[string]any{"Label": d.label, "Title": clip(d.title(), maxQuote/3), "Headings": headings})
	}
	return out
}

// quotes writes the first section of sentences, of the last document first, or all sections of all documents.
func (w *writer) quotes(all bool) {
	n := 0
	for _, d := range slices.Backward(w.docs) {
		for _, sec := range d.sections {
			if len(sec.lines) == 0 || !all && (n > 0 || sec.shape != prose) {
				continue
			}
			if n++; all && sec.heading != "" {
				w.out.WriteString("**" + sec.heading + "**\n\n")
			}
			w.block(map[bool]string{true: "quotes", false: "entries"}[sec.shape == prose], first(maxQuoted, sec.texts()))
		}
	}
	if n == 0 {
		w.block("entries", textsOf(first(maxQuoted, w.list)))
	}
}
