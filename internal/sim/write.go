package sim

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// writer writes the parts of an answer. Each quotes what those before it have not.
type writer struct {
	*source
	out    strings.Builder
	list   []entry // what the items are made of
	asked  int     // entries that questions are about
	quoted int     // sections that are quoted
}

func (s *source) write(parts []part) string {
	w := &writer{source: s, list: s.compare(listWords(parts), false)}
	listed := listWords(parts) != nil
	for i, p := range parts {
		if i > 0 {
			w.out.WriteByte('\n')
		}
		if p.mark != "" {
			w.out.WriteString(p.mark + "\n")
		}
		fmt.Fprintf(&w.out, "## %s\n\n", w.heading(p, i))
		if i == 0 {
			w.block("notice-line", nil)
		}
		switch {
		case len(p.items) > 0:
			w.list = s.compare(p.items[0].words, false)
		case !listed && p.about != "":
			w.list = s.compare(w.words(p.about), true)
		}
		w.part(p)
	}
	return strings.TrimSpace(blankLines.ReplaceAllString(w.out.String(), "\n\n")) + "\n"
}

var blankLines = regexp.MustCompile(`\n{3,}`)

// listWords returns the words of the first example, which name the list that items are made of.
func listWords(parts []part) []string {
	for _, p := range parts {
		for _, e := range p.items {
			return e.words
		}
	}
	return nil
}

// heading returns the heading of a part: that of the prompt, else what the part does.
func (w *writer) heading(p part, i int) string {
	if p.mark == "" && p.name != "" {
		return fmt.Sprintf("%d. %s", i+1, p.name)
	}
	several := len(w.docs) > 1
	for _, h := range []struct {
		is   bool
		name string
	}{
		{several && (len(p.items) > 0 || p.does[itemising]), "items"},
		{p.does[scoring], "score"},
		{p.does[asking], "questions"},
		{p.does[lacking], "missing"},
		{p.does[overview], "given"},
		{p.does[concluding], "conclusion"},
		{p.does[advising], "advice"},
	} {
		if h.is {
			return w.render("heading-"+h.name, nil)
		}
	}
	if name := upperFirst(spaced(p.name)); name != "" && (!w.zh || strings.ContainsFunc(name, isUnspaced)) {
		return name
	}
	return w.render(map[bool]string{true: "heading-list", false: "heading-quotes"}[len(p.items) > 0], nil)
}

func (w *writer) block(name string, data any) {
	if text := w.render(name, data); text != "" {
		w.out.WriteString(text + "\n\n")
	}
}

// compared is what blocks say about a list.
type compared struct {
	Compared       bool
	Found, Missing []string
	Share          int
	All            []entry
}

func (w *writer) part(p part) {
	found, missing := split(w.list)
	several := len(w.docs) > 1
	c := compared{several, textsOf(found), textsOf(missing), share(w.list), w.list}
	if !several {
		c.Found, c.Missing = textsOf(w.list), nil
	}
	n := cmp.Or(numberIn(p.about), 5)
	if p.does[overview] {
		w.block("overview", w.given())
		if p.mark == "" && p.name != "" {
			w.block("entries", textsOf(first(n, w.list)))
		}
	}
	if len(p.items) > 0 || p.does[itemising] {
		w.items(p, several)
	}
	if p.does[asking] {
		w.block(map[bool]string{true: "questions", false: "more-questions"}[w.asked == 0], w.next(n))
	}
	if p.does[lacking] {
		w.block("missing", c)
	}
	if p.does[scoring] {
		w.block(map[bool]string{true: "score", false: "count"}[several], c)
	}
	if p.does[advising] {
		w.block("advice", c)
	}
	if p.does[concluding] {
		w.block(map[bool]string{true: "conclusion", false: "summary"}[several], c)
	}
	if p.does[quoting] {
		w.quotes(n)
	}
}

// items writes a marker for every entry and example, and a line for the reader.
func (w *writer) items(p part, several bool) {
	for i := range w.list {
		e := &w.list[i]
		for _, ex := range p.items {
			if object, ok := w.item(ex, e); ok {
				fmt.Fprintf(&w.out, "<<%s %s>>\n", ex.word, object)
			}
		}
		w.out.WriteString(w.render(map[bool]string{true: "compared", false: "item"}[several], e) + "\n")
	}
	if len(w.list) == 0 {
		w.block("no-items", nil)
	}
}

const maxMarker = 6000 // bytes of an object in a marker

// item fills an example for an entry. A marker that is too long for a line would be text for the reader.
func (w *writer) item(ex itemExample, e *entry) (string, bool) {
	f := w.newFiller(keyRank(ex.raw))
	v, ok := f.value([]*jsonschema.Schema{ex.schema}, place{entry: e}, 0)
	text := ""
	if _, isObject := v.(map[string]any); ok && isObject {
		text = f.encode(v, "")
	}
	return text, text != "" && len(text) <= maxMarker
}

// given describes the first document of each kind.
func (w *writer) given() (out []map[string]any) {
	for _, docs := range first(4, w.kinds()) {
		d, headings := docs[0], []string(nil)
		for _, sec := range d.sections {
			if sec.heading != "" && !sec.inline && sec.heading != d.title {
				headings = append(headings, sec.heading)
			}
		}
		out = append(out, map[string]any{
			"Label": cmp.Or(d.label, w.render("message", nil)), "Title": clip(d.title, longLine), "Headings": headings,
		})
	}
	return out
}

// next returns the next n entries for questions, from the beginning if there are no more.
func (w *writer) next(n int) (out []entry) {
	for range min(n, len(w.list)) {
		out = append(out, w.list[w.asked%len(w.list)])
		w.asked++
	}
	return out
}

// quotes writes sentences of the next section that has some, of the last document first: the one that others are compared
// with.
func (w *writer) quotes(n int) {
	var sections [][]string
	for _, d := range slices.Backward(w.docs) {
		for _, sec := range d.sections {
			if said := sec.prose(); len(said) > 0 {
				sections = append(sections, said)
			}
		}
	}
	if len(sections) == 0 {
		w.block("entries", textsOf(first(n, w.list)))
		return
	}
	w.block("quotes", first(n, sections[w.quoted%len(sections)]))
	w.quoted++
}

var numberWords = []string{"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}

// numberIn returns the greatest number from two to ten in a text, written as a word or a digit; 0 for none.
func numberIn(text string) (most int) {
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		for i, name := range numberWords {
			if w == name || w == fmt.Sprint(i+1) {
				most = max(most, i+1)
			}
		}
	}
	for i, r := range []rune("一二三四五六七八九十") {
		for _, unit := range []string{"个", "点", "条", "项", "句"} {
			if strings.Contains(text, string(r)+unit) {
				most = max(most, i+1)
			}
		}
	}
	if most < 2 {
		return 0
	}
	return most
}
