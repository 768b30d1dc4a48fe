package sim

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// source is what the simulator finds in a request.
type source struct {
	zh    bool   // answers are in Chinese, otherwise in English
	rules string // what the messages say outside of their documents
	docs  []*document
	// asked is the schema that a message quotes, nil for none.
	asked    []byte
	compared map[string][]entry // by the words that chose the list
	work     int                // words that may still be compared
	steps    int                // the same of values that are tried
	// What has been read of texts. The same lines are read for many places.
	words, names, orders func(string) []string
	quantities           func(string) []quantity
}

// readSource finds the documents of the last turn, else those of earlier turns, else takes the last message itself. seen is
// the text of the images, "" for none.
func readSource(req chatRequest, seen string) *source {
	system, user, earlier := req.turns()
	s := &source{
		compared: map[string][]entry{}, work: maxWork, steps: maxSteps,
		words: memo(words), names: memo(names), quantities: memo(quantitiesIn), orders: memo(sentencesOf),
	}
	rules, given := enclosed(system)
	said, texts := enclosed(user)
	given = append(given, texts...)
	if seen != "" {
		given = append(given, enclosure{intro: said, text: seen})
	}
	if len(given) == 0 {
		_, given = enclosed(earlier)
	}
	if len(given) == 0 {
		said, given = delimited(user)
	}
	s.rules = rules + "\n" + said
	var quoted string
	if s.asked, quoted = quotedSchema(rules); s.asked == nil {
		s.asked, quoted = quotedSchema(said)
	}
	if len(given) == 0 {
		orders, rest := instructions(said, quoted)
		given = []enclosure{unwrap(rest)}
		s.rules = rules + "\n" + orders + "\n" + given[0].intro
	}
	given = first(maxDocuments, substantial(given))
	for _, g := range given {
		s.docs = append(s.docs, readDocument(g, maxLines/len(given)))
	}
	s.zh = isChinese(firstText(strings.Replace(rules, quoted, "", 1), s.rules, said, earlier, s.docs[0].text))
	return s
}

// substantial leaves out what only sets something, such as a language; if there is nothing else, all remain.
func substantial(given []enclosure) []enclosure {
	out := slices.DeleteFunc(slices.Clone(given), func(e enclosure) bool {
		return e.name != "" && len(e.text) <= 2*maxLabel && !strings.Contains(e.text, "\n") && wordCount(e.text) <= 3
	})
	if len(out) == 0 {
		return given
	}
	return out
}

// turns returns the texts of the system messages, of the last turn's user messages, and of those before.
func (r chatRequest) turns() (system, user, earlier string) {
	for _, m := range r.Messages {
		text := m.Content.text() + "\n"
		switch m.Role {
		case "system", "developer":
			system += text
		case "user":
			user += text
		case "assistant":
			earlier, user = earlier+user, ""
		}
	}
	if user == "" {
		return system, earlier, ""
	}
	return system, user, earlier
}

const (
	minGiven     = 5  // words of a text to work on; fewer are a remark
	maxDocuments = 40 // bounds the comparisons
)

// enclosure is a text that a prompt encloses in lines of its own.
type enclosure struct {
	name  string
	intro string // the line before it
	text  string
}

var (
	opening   = regexp.MustCompile(`(?m)^[ \t]*<document\b([^>\n]*)>[ \t]*\n`)
	closing   = regexp.MustCompile(`(?m)^[ \t]*</document\b([^>\n]*)>[ \t]*$`)
	attribute = regexp.MustCompile(`\b(name|id)="([^"\n]*)"`)
)

// enclosed cuts the documents out of a text. Only a closing line with the id of the opening line ends a document.
func enclosed(text string) (rest string, found []enclosure) {
	ends := map[string][][]int{}
	for _, m := range closing.FindAllStringSubmatchIndex(text, -1) {
		_, id := nameAndID(text[m[2]:m[3]])
		ends[id] = append(ends[id], m[:2])
	}
	var outside strings.Builder
	at := 0
	for _, m := range opening.FindAllStringSubmatchIndex(text, -1) {
		name, id := nameAndID(text[m[2]:m[3]])
		i, _ := slices.BinarySearchFunc(ends[id], m[1], func(end []int, from int) int { return end[0] - from })
		if m[0] < at || i == len(ends[id]) {
			continue
		}
		end := ends[id][i]
		intro := text[at:m[0]]
		outside.WriteString(intro + "\n")
		found = append(found, enclosure{name, lastLine(intro), strings.TrimSpace(text[m[1]:end[0]])})
		at = end[1]
	}
	outside.WriteString(text[at:])
	return outside.String(), found
}

func nameAndID(attributes string) (name, id string) {
	for _, m := range attribute.FindAllStringSubmatch(attributes, -1) {
		if m[1] == "name" {
			name = m[2]
		} else {
			id = m[2]
		}
	}
	return name, id
}

var (
	tagLine   = regexp.MustCompile(`^<([\pL_][\pL\pM\pN_-]*)[^<>]*>$`)
	fenceLine = regexp.MustCompile("^(`{3,}|\"{3}|~{3,}|-{3,}|={3,})[\\pL\\pN]*$")
)

// delimited cuts out what stands between tags or fences on lines of their own, but not a schema.
func delimited(text string) (rest string, found []enclosure) {
	lines := strings.Split(text, "\n")
	at := map[string][]int{}
	for i, l := range lines {
		l = strings.TrimSpace(l)
		at[l] = append(at[l], i)
	}
	var outside []string
	intro := ""
	for i := 0; i < len(lines); i++ {
		l, name, end := strings.TrimSpace(lines[i]), "", ""
		if m := tagLine.FindStringSubmatch(l); m != nil {
			name, end = m[1], "</"+m[1]+">"
		} else if m := fenceLine.FindStringSubmatch(l); m != nil {
			end = m[1]
		}
		k, _ := slices.BinarySearch(at[end], i+1)
		if end == "" || k == len(at[end]) {
			outside, intro = append(outside, lines[i]), cmp.Or(l, intro)
			continue
		}
		body := strings.TrimSpace(strings.Join(lines[i+1:at[end][k]], "\n"))
		if body == "" || isSchema([]byte(body)) {
			outside = append(outside, lines[i])
			continue
		}
		found = append(found, enclosure{name, intro, body})
		i = at[end][k]
	}
	return strings.Join(outside, "\n"), found
}

// instructions cuts a message without documents behind its schema or its last marker; if nothing follows, before the first.
func instructions(said, schema string) (orders, rest string) {
	begin, end := len(said), 0
	if i := strings.Index(said, schema); schema != "" && i >= 0 {
		begin, end = i, i+len(schema)
	} else {
		schema = ""
	}
	for _, marks := range [][][]int{stageMark.FindAllStringIndex(said, -1), itemMark.FindAllStringIndex(said, -1)} {
		if len(marks) > 0 {
			begin, end = min(begin, marks[0][0]), max(end, marks[len(marks)-1][1])
		}
	}
	if end == 0 {
		return "", said
	}
	if schema == "" { // the paragraph of the marker
		if i := strings.Index(said[end:], "\n\n"); i >= 0 {
			end += i
		} else {
			end = len(said)
		}
	}
	if len(words(clip(said[end:], maxAbout))) >= minGiven {
		return said[:end], said[end:]
	}
	return said[begin:], said[:begin]
}

// unwrap takes a whole message as the text that is given, without its first line if that announces the text.
func unwrap(text string) enclosure {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	announces := strings.HasSuffix(strings.TrimSpace(first), ":") || strings.HasSuffix(strings.TrimSpace(first), "：")
	if announces && wordCount(first) > 1 && len(first) < longLine && strings.TrimSpace(rest) != "" {
		return enclosure{intro: first, text: strings.TrimSpace(rest)}
	}
	return enclosure{text: strings.TrimSpace(text)}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// firstText returns the first text with a letter.
func firstText(texts ...string) string {
	i := slices.IndexFunc(texts, func(s string) bool { return strings.ContainsFunc(s, unicode.IsLetter) })
	return texts[max(i, 0)]
}

var latinWord = regexp.MustCompile(`\p{Latin}+`)

// isChinese reports whether a text is mostly in Chinese. Prompts in any language name things in Latin letters.
func isChinese(text string) bool {
	text = clip(text, maxRead)
	han, kana := 0, 0
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Han, r):
			han++
		case unicode.In(r, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
			kana++
		}
	}
	return han > kana*2 && han > len(latinWord.FindAllString(text, -1))
}
