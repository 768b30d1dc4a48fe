package sim

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// document is a text with the name by which the prompt refers to it.
type document struct {
	label    string
	name     []string // the words of its name
	words    []string // those of the name and of the line that introduces it
	text     string
	sections []*section // the first has no heading
}

// section is the part of a text under a heading.
type section struct {
	heading string
	words   []string // of the heading
	lines   []line
	inline  bool // the heading is the name of a value in its line
}

// line is one line or sentence of a text, without its bullet.
type line struct {
	text   string
	words  []string
	bullet bool
}

const (
	maxLines = 2000 // bounds the work for one text
	maxQuote = 600
	longLine = 200 // longer lines are cut into sentences
	maxLabel = 40
)

func readDocument(e enclosure) *document {
	intro := strings.TrimRight(e.intro, " :：")
	d := &document{name: words(spaced(e.name)), text: e.text, label: strings.ReplaceAll(e.name, "_", " ")}
	d.words = append(slices.Clone(d.name), words(intro)...)
	if intro != "" && intro != e.intro && len([]rune(intro)) <= maxLabel/2 {
		d.label = intro
	}
	d.label = clip(upperFirst(d.label), maxLabel)
	body := e.text
	if flat, ok := flatten(body); ok {
		body = flat
	}
	d.sections = readSections(body)
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
	bulletMark  = regexp.MustCompile(`^(?:[-–*+]\s+(?:\[[ xX]\]\s+)?|[•·●○▪■◆✓✔☑]\s*|\(?\d{1,3}(?:[.)]\s+|[、．）]\s*))`)
	tightNumber = regexp.MustCompile(`^(\s*\d{1,3}[.)])(\p{Han})`)
	sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；]`)
	terminated  = regexp.MustCompile(`[.!?。！？][)”"’]?$`)
	notHeading  = regexp.MustCompile(`[,.;!?，。；！？、|·@/=<>{}"“”\d]`)
)

// readSections cuts a text into sections, and these into lines and sentences.
func readSections(text string) []*section {
	var raws []string
	for raw := range strings.Lines(text) {
		if len(raws) >= 2*maxLines {
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
			if part != "" && count < maxLines {
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
			at = &section{heading: heading, words: words(spaced(heading)), inline: rest != ""}
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
	return all
}

// continues reports whether a line continues the text before it, which was wrapped.
func continues(open, raw string) bool {
	if terminated.MatchString(open) {
		return false
	}
	first, last := []rune(strings.TrimSpace(raw))[0], []rune(open)
	return unicode.IsLower(first) && len(last) > 30 || strings.HasPrefix(raw, "  ") && len(last) > 30 ||
		len(last) >= 20 && isCJK(last[len(last)-1]) && isCJK(first)
}

func glue(a, b string) string {
	last := []rune(a)
	if isCJK(last[len(last)-1]) && isCJK([]rune(b)[0]) {
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
	ok = isTitle(name) && (body[i] != ':' || rest == "" || rest[0] == ' ' || isCJK([]rune(rest)[0]))
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

func (s *section) shape() shape {
	bullets := 0
	for _, l := range s.lines {
		if l.bullet {
			bullets++
		}
	}
	switch {
	case bullets > 0 && s.lines[0].bullet:
		return list
	case bullets > 0:
		return groups
	case len(s.series()) > 0:
		return series
	default:
		return prose
	}
}

var (
	separator = regexp.MustCompile(`\s*[,;，；、|]\s*|\s+·\s+`)
	headEnds  = regexp.MustCompile(`\s+[·|–—-]\s+`)
)

// series returns the names that a section lists between commas, nil if it does not.
func (s *section) series() (out []string) {
	for _, l := range s.lines {
		parts := separator.Split(l.text, -1)
		if l.bullet || len(parts) < 2 || terminated.MatchString(l.text) {
			return nil
		}
		for _, p := range parts {
			if wordCount(p) > 3 || len([]rune(p)) > maxLabel {
				return nil
			}
			if p != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// head returns the short lines with which a text begins, in their parts.
func (d *document) head() (out []string) {
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

// title returns the value that a text names its title, else its first line.
func (d *document) title() string {
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
	if s.shape() != prose {
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
