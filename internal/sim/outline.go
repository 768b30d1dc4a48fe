package sim

import (
	"encoding/json"
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
	does  map[intent]bool
}

// itemExample is a marker with an object that the prompt wants for each item.
type itemExample struct {
	word   string // between << and the object
	schema *jsonschema.Schema
	raw    []byte
	words  []string // of its names and texts
}

var (
	stageLine = regexp.MustCompile("(?m)^[ \t>*`-]*(<<stage:([^\\s<>]{1,64})>>)[ \t`.,:]*$")
	stageMark = regexp.MustCompile(`(<<stage:([^\s<>]{1,64})>>)`)
	itemMark  = regexp.MustCompile(`<<([\pL_][\pL\pM\pN_-]*(?::[\pL\pM\pN_.-]+)?)[ \t]+(\{)`)
	numbered  = regexp.MustCompile(`^\s*(\p{Nd}{1,2})[.)、．]\s*(.+)$`)
	outlined  = regexp.MustCompile(`(?i)\b(?:headings?|headlines?|headed|sections?|parts)\b|标题|部分|章节|小节`)
	titleEnd  = regexp.MustCompile(`[:：,，;；。،؛।]|\.(?:\s|$)| [–—-] `)
)

// intent is what a prompt wants in a part. It is recognised by words of any subject.
type intent int

const (
	scoring intent = iota
	advising
	concluding
	asking
	lacking
	overview
	itemising
	quoting
)

var intents = map[intent]*regexp.Regexp{
	scoring:    regexp.MustCompile(`(?i)\b(?:scor(?:e|es|ing)|rat(?:e|ing)|grades?|percent(?:age)?)\b|评分|打分|得分|总分`),
	advising:   regexp.MustCompile(`(?i)\b(?:suggest(?:s|ions?)?|recommend(?:s|ations?)?|advice|advise|improve(?:ments?)?|next steps?)\b|建议|改进|下一步`),
	concluding: regexp.MustCompile(`(?i)\b(?:verdict|conclu(?:de|sions?)|decision|bottom line)\b|结论|总结|判断`),
	asking:     regexp.MustCompile(`(?i)\bquestions?\b|问题`),
	lacking:    regexp.MustCompile(`(?i)\b(?:missing|gaps?|lack(?:s|ing)?|weak(?:ness(?:es)?)?|absent|unmet|no proof)\b|缺少|缺失|不足|薄弱|缺口`),
	overview:   regexp.MustCompile(`(?i)\b(?:overview|summar(?:y|ise|ize)|is about)\b|概述|概要|摘要`),
}

// outline returns the parts that the prompt asks for: those with stage markers, else those of a numbered list that is about
// headings or parts, else nil.
func (s *source) outline() []part {
	parts := s.stages()
	if parts == nil {
		parts = s.headings()
	}
	shared := 0
	for i := range parts {
		shared += len(parts[i].items)
	}
	for i := range parts {
		p := &parts[i]
		p.does = map[intent]bool{}
		if len(p.items) > 0 {
			continue
		}
		for kind, words := range intents {
			p.does[kind] = words.MatchString(strings.ReplaceAll(p.name, "_", " ")) || words.MatchString(p.about)
		}
		if p.does[asking] || p.does[concluding] {
			p.does[lacking], p.does[overview] = false, false
		}
		switch {
		case i == 0 && len(parts) > 1 && !p.does[scoring]:
			p.does[overview] = true
		case p.does[overview] && i > 0:
			p.does[overview] = false
		}
		if len(s.docs) == 1 { // there is nothing to compare with
			p.does[quoting] = p.does[quoting] || p.does[lacking]
			p.does[lacking], p.does[scoring] = false, false
		} else if i == len(parts)-1 && i > 0 && p.mark != "" && !p.does[asking] && !p.does[advising] {
			p.does[concluding] = true
		}
		if (i > 0 || len(parts) == 1) && !slices.ContainsFunc([]intent{scoring, advising, concluding, asking, lacking}, func(k intent) bool { return p.does[k] }) {
			p.does[quoting] = true
		}
	}
	// A prompt without stages may ask for items all the same.
	if parts == nil {
		if items := s.itemsIn(s.rules); len(items) > 0 {
			parts = []part{{does: map[intent]bool{overview: true}}, {items: items}, {does: map[intent]bool{scoring: true, concluding: true}}}
		}
	} else if shared == 0 && parts[0].mark != "" && len(s.docs) > 1 {
		i := min(1, len(parts)-1) // no example: the list is for the reader alone
		parts[i].does[itemising], parts[i].does[quoting] = true, false
	}
	return parts
}

// stages returns the parts behind stage markers in their order: those on lines of their own, or all if not every stage has one.
func (s *source) stages() (parts []part) {
	marks, all := stageLine.FindAllStringSubmatchIndex(s.rules, -1), stageMark.FindAllStringSubmatchIndex(s.rules, -1)
	named := map[string]bool{}
	for _, m := range marks {
		named[s.rules[m[4]:m[5]]] = true
	}
	if slices.ContainsFunc(all, func(m []int) bool { return !named[s.rules[m[4]:m[5]]] }) {
		marks = all
	}
	for i, m := range marks {
		name := s.rules[m[4]:m[5]]
		if len(parts) == maxParts || slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			continue
		}
		end := len(s.rules)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		about := s.rules[m[1]:end]
		parts = append(parts, part{mark: s.rules[m[2]:m[3]], name: name, items: s.itemsIn(about), about: clip(about, maxAbout)})
	}
	// Items that are described before the first stage belong to the second part.
	if len(parts) > 0 && !slices.ContainsFunc(parts, func(p part) bool { return len(p.items) > 0 }) {
		parts[min(1, len(parts)-1)].items = s.itemsIn(s.rules)
	}
	return parts
}

const (
	maxAbout    = 2000
	maxExamples = 8
	maxParts    = 50
)

// headings returns the parts of a numbered list whose introduction speaks of headings or parts.
func (s *source) headings() (parts []part) {
	lines := strings.Split(s.rules, "\n")
	for i := range lines {
		if !outlined.MatchString(lines[i]) {
			continue
		}
		parts = nil
		for _, l := range lines[i+1:] {
			m := numbered.FindStringSubmatch(l)
			if m == nil && strings.TrimSpace(l) == "" && len(parts) == 0 {
				continue
			}
			if m == nil || len(parts) == 20 {
				break
			}
			title := strings.Trim(m[2], "* ")
			if at := titleEnd.FindStringIndex(title); at != nil {
				title = title[:at[0]]
			}
			parts = append(parts, part{name: clip(strings.Trim(title, "* "), 2*maxLabel), about: clip(m[2], maxAbout)})
		}
		if len(parts) >= 2 {
			return parts
		}
	}
	return nil
}

// itemsIn returns the examples of items in a text.
func (s *source) itemsIn(text string) (out []itemExample) {
	for _, m := range itemMark.FindAllStringSubmatchIndex(text, maxCandidates) {
		word := text[m[2]:m[3]]
		if word == "stage" || len(out) == maxExamples || slices.ContainsFunc(out, func(e itemExample) bool { return e.word == word }) {
			continue
		}
		object := objectAt(text[m[4]:])
		if object == nil {
			continue
		}
		raw := object
		if !isSchema(raw) {
			raw = schemaOf(object)
			// A schema that follows the example describes it better.
			if quoted, _ := quotedSchema(clip(text[m[4]+len(object):], maxAbout)); quoted != nil {
				raw = quoted
			}
		}
		if compiled, err := schema.CompileWithFormats("schema.json", raw); err == nil {
			out = append(out, itemExample{word, compiled, raw, append(words(spaced(word)), words(spaced(string(object)))...)})
		}
	}
	return out
}

// objectAt returns the JSON object at the beginning of a text, nil for none. In an example, alternatives may stand without
// quotes: {"met": true|false, "level": "low|high", …}.
func objectAt(text string) []byte {
	text = clip(text, maxAbout)
	var raw json.RawMessage
	if json.NewDecoder(strings.NewReader(text)).Decode(&raw) == nil {
		return raw
	}
	end := strings.Index(text, "}>>")
	if end < 0 {
		return nil
	}
	found := fieldOf.FindAllStringSubmatch(text[:end], -1)
	var fields []string
	for _, m := range found {
		value := m[2]
		if !json.Valid([]byte(value)) {
			value = marshal(strings.TrimSpace(value))
			switch {
			case strings.Contains(m[2], "true"), strings.Contains(m[2], "false"), strings.Contains(m[2], "bool"):
				value = "true"
			case strings.Contains(m[2], "number"), strings.Contains(m[2], "integer"):
				value = "0"
			}
		}
		fields = append(fields, marshal(m[1])+":"+value)
	}
	if len(fields) == 0 {
		return nil
	}
	return []byte("{" + strings.Join(fields, ",") + "}")
}

var fieldOf = regexp.MustCompile(`"([^"\n]{1,64})"\s*:\s*("(?:[^"\\\n]|\\.)*"|[^,\n}]*)`)

// schemaOf returns a schema for objects like an example. A text with alternatives, such as low|high, is an enum.
func schemaOf(example []byte) []byte {
	var v any
	if json.Unmarshal(example, &v) != nil {
		return []byte("{}")
	}
	b, _ := json.Marshal(schemaLike(v, "", keyRank(example)))
	return b
}

func schemaLike(v any, pointer string, rank map[string]int) any {
	switch v := v.(type) {
	case map[string]any:
		fields, names := map[string]any{}, []string{}
		for name, value := range v {
			fields[name] = schemaLike(value, pointer+"/"+name, rank)
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return rank[pointer+"/"+a] - rank[pointer+"/"+b] })
		return map[string]any{"type": "object", "properties": ordered(fields, names), "required": names, "additionalProperties": false}
	case []any:
		if len(v) == 0 {
			return map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
		}
		return map[string]any{"type": "array", "items": schemaLike(v[0], pointer+"/0", rank)}
	case string:
		if options := strings.Split(v, "|"); len(options) > 1 && !slices.ContainsFunc(options, func(o string) bool { return wordCount(o) > 3 || strings.TrimSpace(o) == "" }) {
			for i := range options {
				options[i] = strings.TrimSpace(options[i])
			}
			return map[string]any{"type": "string", "enum": options}
		}
		for _, name := range exampleFormats {
			if found := formats[name].find.FindString(v); found != "" && found == v {
				return map[string]any{"type": "string", "format": name}
			}
		}
		return map[string]any{"type": "string", "description": v}
	case bool:
		return map[string]any{"type": "boolean"}
	case float64:
		if v == float64(int64(v)) {
			return map[string]any{"type": "integer", "default": v}
		}
		return map[string]any{"type": "number", "default": v}
	default:
		return map[string]any{}
	}
}

// exampleFormats are the formats by which the texts of an example are recognised.
var exampleFormats = []string{"date", "date-time", "email", "uri", "uuid"}

// ordered is an object whose names keep their order.
func ordered(fields map[string]any, names []string) json.RawMessage {
	var parts []string
	for _, name := range names {
		parts = append(parts, marshal(name)+":"+marshal(fields[name]))
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}
