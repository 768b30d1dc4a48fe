package sim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is a text with the name by which the prompt refers to it.
type document struct {
	label    string
	name     []string // the words of its name
	words    []string // those of the name and of the line that introduces it
	text     string
	body     string     // of the text, what is read
	sections []*section // the first has no heading
	said     []string   // its sentences
	title    string
	head     []string // the short lines with which it begins, in their parts
}

// section is the part of a text under a heading.
type section struct {
	heading string
	words   []string // of the heading
	lines   []line
	inline  bool // the heading is the name of a value in its line
	shape   shape
	series  []string // the names between commas that it is made of
	said    bool     // it begins with a sentence
	zh      bool     // the heading is in Chinese
}

// line is one line or sentence of a text, without its bullet.
type line struct {
	text   string
	words  []string
	bullet bool
}

const (
	maxLines = 3000 // of all texts
	maxRead  = 256 << 10
	maxQuote = 600
	longLine = 200 // longer lines are cut into sentences
	maxLabel = 40
)

// readDocument reads a text, up to a maximum number of lines.
func readDocument(e enclosure, most int) *document {
	intro := strings.TrimRight(e.intro, " :：")
	d := &document{name: words(spaced(e.name)), text: e.text, label: strings.ReplaceAll(e.name, "_", " ")}
	d.words = append(slices.Clone(d.name), words(intro)...)
	if intro != "" && intro != e.intro && len([]rune(intro)) <= maxLabel/2 {
		d.label = intro
	}
	d.label = clip(upperFirst(d.label), maxLabel)
	d.body = clip(e.text, maxRead)
	flat, ok := flatten(d.body)
	if !ok {
		flat = d.body
	}
	d.sections = readSections(flat, most)
	d.said, d.title, d.head = d.sentences(), d.findTitle(), d.findHead()
	return d
}

// flatten writes a JSON value as a text with a heading for each of its names.
func flatten(text string) (string, bool) {
	if !strings.HasPrefix(text, "{") {
		return "", false
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var out strings.Builder
	depth, name := 0, true // the next token of an object is a name
	var arrays []bool
	for {
		tok, err := dec.Token()
		if err != nil {
			return out.String(), depth == 0 && out.Len() > 0
		}
		inArray := len(arrays) > 0 && arrays[len(arrays)-1]
		switch v := tok.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
				arrays = append(arrays, v == '[')
			} else {
				depth--
				arrays = arrays[:len(arrays)-1]
			}
			name = true
		case nil:
			name = true
		default:
			switch value := fmt.Sprint(v); {
			case inArray:
				fmt.Fprintf(&out, "- %s\n", oneLine(value))
			case name:
				fmt.Fprintf(&out, "\n# %s\n", strings.ToLower(spaced(value)))
				name = false
			default:
				fmt.Fprintf(&out, "%s\n", oneLine(value))
				name = true
			}
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

var (
	bulletMark  = regexp.MustCompile(`^(?:[-–*+]\s+(?:\[[ xX]\]\s+)?|[•‣⁃·・●○◦▪▫■□◆◇►▸▶➤➔→✓✔☑✅❌★☆]\x{FE0F}?\s*|\(?\p{Nd}{1,3}(?:[.)]\s+|[、．）]\s*))`)
	tightNumber = regexp.MustCompile(`^(\s*\d{1,3}[.)])(\p{Han})`)
	sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；｡؟۔।॥]`)
	terminated  = regexp.MustCompile(`[.!?…。！？｡؟۔।॥][)”"’»」』]?$`)
	notHeading  = regexp.MustCompile(`[,.;!?，。；！？、،؛؟۔।|·@/=<>{}"“”\p{Nd}]`)
)

// readSections cuts a text into sections, and these into lines and sentences, up to a maximum number.
func readSections(text string, most int) []*section {
	var raws []string
	for raw := range strings.Lines(text) {
		if len(raws) >= 2*most {
			break
		}
		raws = append(raws, tightNumber.ReplaceAllString(strings.TrimRight(raw, " \t\r\n"), "$1 $2"))
	}
	at := &section{}
	all, count := []*section{at}, 0
	var open string // a paragraph or a bullet that the next line may continue
	var bullet bool
	flush := func() {
		body := open
		open = ""
		if len(body) > longLine || !bullet {
			body = sentenceEnd.ReplaceAllString(body, "$0\n")
		}
		for part := range strings.Lines(body) {
			part = clip(strings.Trim(part, " \t\r\n;；"), maxQuote)
			if part != "" && count < most {
				count++
				at.lines = append(at.lines, line{part, words(part), bullet})
			}
		}
	}
	for i, raw := range raws {
		body := strings.TrimSpace(raw)
		if body == "" {
			flush()
			if at.inline {
				at = &section{}
				all = append(all, at)
			}
			continue
		}
		if heading, rest := headingOf(raws, i); heading != "" {
			flush()
			at = &section{heading: heading, words: words(spaced(heading)), inline: rest != "", zh: isChinese(heading)}
			all = append(all, at)
			open, bullet = rest, false
			continue
		}
		mark := bulletMark.FindString(body)
		if open != "" && mark == "" && continues(open, raw) {
			open += glue(open, body) + body
			continue
		}
		flush()
		open, bullet = body[len(mark):], mark != ""
	}
	flush()
	all = slices.DeleteFunc(all, func(s *section) bool { return s.heading == "" && len(s.lines) == 0 })
	if len(all) == 0 {
		all = append(all, &section{})
	}
	for _, s := range all {
		s.arrange()
	}
	return all
}

// continues reports whether a line continues the text before it, which was wrapped.
func continues(open, raw string) bool {
	if terminated.MatchString(open[max(len(open)-2*utf8.UTFMax, 0):]) {
		return false
	}
	first, _ := utf8.DecodeRuneInString(strings.TrimSpace(raw))
	last, _ := utf8.DecodeLastRuneInString(open)
	length := len(open) / utf8.UTFMax // at least
	if length <= 30 {
		length = utf8.RuneCountInString(open)
	}
	return length > 30 && (unicode.IsLower(first) || strings.HasPrefix(raw, "  ")) ||
		length >= 20 && isUnspaced(last) && isUnspaced(first)
}

func glue(a, b string) string {
	last, _ := utf8.DecodeLastRuneInString(a)
	if first, _ := utf8.DecodeRuneInString(b); isUnspaced(last) && isUnspaced(first) {
		return ""
	}
	return " "
}

// headingOf returns the heading that a line is, and the text behind its colon.
func headingOf(raws []string, i int) (heading, rest string) {
	body := strings.TrimSpace(raws[i])
	if bare := strings.TrimLeft(body, "#"); bare != body && strings.HasPrefix(bare, " ") {
		return strings.Trim(bare, " #*"), ""
	}
	if inner, ok := strings.CutPrefix(body, "【"); ok {
		if h, rest, ok := strings.Cut(inner, "】"); ok {
			return h, strings.TrimLeft(rest, " :：")
		}
	}
	if inner := strings.Trim(body, "*"); len(inner) == len(body)-4 && !strings.Contains(inner, "*") {
		return strings.TrimRight(inner, " :："), ""
	}
	if label, rest, ok := label(body); ok {
		return label, rest
	}
	if i == 0 || !isTitle(body) {
		return "", ""
	}
	next := following(raws, i)
	if next == "" {
		return "", ""
	}
	after := following(raws, i+1)
	switch {
	case bulletMark.MatchString(next), strings.TrimSpace(raws[i-1]) == "" && (!isTitle(next) || after != "" && after != next):
		return body, ""
	case isProse(next), !isTitle(next) && bulletMark.MatchString(after) && wordCount(body) < 3:
		return body, ""
	}
	return "", ""
}

// label returns a short name and what stands behind its colon.
func label(body string) (name, rest string, ok bool) {
	body = strings.Replace(body, "**", "", 2)
	i := strings.IndexAny(body, ":：")
	if i < 0 {
		return "", "", false
	}
	name, rest = body[:i], strings.TrimPrefix(strings.TrimPrefix(body[i:], ":"), "：")
	ok = isTitle(name) && (body[i] != ':' || rest == "" || rest[0] == ' ' || isUnspaced([]rune(rest)[0]))
	return name, strings.TrimSpace(rest), ok
}

// following returns the first line behind i that is not blank.
func following(raws []string, i int) string {
	for _, raw := range raws[min(i+1, len(raws)):min(i+4, len(raws))] {
		if s := strings.TrimSpace(raw); s != "" {
			return s
		}
	}
	return ""
}

func isTitle(s string) bool {
	return isShort(s) && !notHeading.MatchString(s) && bulletMark.FindString(s) == "" && strings.ContainsFunc(s, unicode.IsLetter)
}

func isShort(s string) bool { return wordCount(s) <= 5 && len([]rune(s)) <= maxLabel }

func isProse(s string) bool {
	return bulletMark.FindString(s) == "" && (terminated.MatchString(s) || wordCount(s) > 8)
}

// shape is how the lines of a section are arranged.
type shape int

const (
	prose  shape = iota // sentences or lines
	list                // bullets
	series              // names between commas
	groups              // lines with bullets below them
)

// arrange decides the shape of a section that has all of its lines.
func (s *section) arrange() {
	bullets := 0
	for _, l := range s.lines {
		if l.bullet {
			bullets++
		}
	}
	switch {
	case bullets > 0 && s.lines[0].bullet:
		s.shape = list
	case bullets > 0:
		s.shape = groups
	default:
		if s.series = s.findSeries(); len(s.series) > 0 {
			s.shape = series
		}
		s.said = s.shape == prose && len(s.lines) > 0 && isProse(s.lines[0].text)
	}
}

var (
	separator = regexp.MustCompile(`\s*[,;，；、،؛|]\s*|\s+·\s+`)
	headEnds  = regexp.MustCompile(`\s+[·|–—-]\s+`)
)

// findSeries returns the names that a section lists between commas, nil if it does not.
func (s *section) findSeries() (out []string) {
	for _, l := range s.lines {
		parts := separator.Split(l.text, -1)
		if l.bullet || len(parts) < 2 || terminated.MatchString(l.text) {
			return nil
		}
		for _, p := range parts {
			if wordCount(p) > 3 || len([]rune(p)) > maxLabel {
				return nil
			}
			if p != "" && len(out) < maxItems && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

func (d *document) findHead() (out []string) {
	for _, l := range d.sections[0].lines {
		if d.sections[0].heading != "" || l.bullet || isProse(l.text) {
			break
		}
		for _, part := range headEnds.Split(l.text, -1) {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// findTitle returns the value that a text names its title, else its first line.
func (d *document) findTitle() string {
	for _, s := range d.sections {
		if s.inline && len(s.lines) == 1 && ownTitle.MatchString(s.heading) {
			return s.lines[0].text
		}
	}
	for _, s := range d.sections {
		if len(s.lines) > 0 {
			return s.lines[0].text
		}
		if s.heading != "" {
			return s.heading
		}
	}
	return ""
}

// prose returns the sentences of a section that has no lists.
func (s *section) prose() (out []string) {
	if s.shape != prose {
		return nil
	}
	for _, l := range s.lines {
		if isProse(l.text) {
			out = append(out, l.text)
		}
	}
	return out
}

// sentences returns the lines of a text that are no bullets, in sections of prose first.
func (d *document) sentences() (out []string) {
	for _, s := range d.sections {
		out = append(out, s.prose()...)
	}
	if len(out) > 0 {
		return out
	}
	for _, s := range d.sections {
		for _, l := range s.lines {
			out = append(out, l.text)
		}
	}
	return out
}

var ownTitle = regexp.MustCompile(`(?i)^(?:title|subject|headline|标题|主题)$`)
