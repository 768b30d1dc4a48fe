package sim

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// document is a text with the name by which the prompt refers to it.
type document struct {
	label    string
	words    wordSet // of its name and of the line that introduces it
	text     string
	sections []*section // at least one; the first may have no heading
}

// section is the part of a text under a heading.
type section struct {
	heading string
	words   wordSet // of the heading
	lines   []line
	shape   shape
	series  []string // the names between commas that its lines are made of
}

// line is one line or sentence of a text, without its bullet.
type line struct {
	text   string
	words  wordSet
	bullet bool
}

// shape is how the lines of a section are arranged.
type shape int

const (
	prose  shape = iota // sentences
	list                // bullets, or names between commas
	rows                // short lines
	groups              // lines with bullets below each
)

const (
	maxLines = 1000 // of a document
	maxItems = 60
	maxQuote = 600 // characters of a line
	maxLabel = 40
)

func readDocument(e enclosure) *document {
	label := strings.ReplaceAll(e.name, "_", " ")
	if intro := strings.TrimRight(e.intro, ":："); intro != e.intro && utf8.RuneCountInString(intro) <= maxLabel/2 {
		label = intro
	}
	text := clip(strings.TrimSpace(e.text), maxRead)
	return &document{upperFirst(clip(label, maxLabel)), setOf(words(spaced(e.name) + " " + e.intro)), text, readSections(text)}
}

var ownTitle = regexp.MustCompile(`(?i)^(?:title|subject|headline|标题|主题)$`)

// title returns the value that a text names its title, else its first line.
func (d *document) title() string {
	for _, s := range d.sections {
		if len(s.lines) == 1 && ownTitle.MatchString(s.heading) {
			return s.lines[0].text
		}
	}
	if s := d.sections[0]; len(s.lines) > 0 {
		return s.lines[0].text
	}
	return d.sections[0].heading
}

var partsOf = regexp.MustCompile(`\s+[·|–—-]\s+`)

// head returns the short lines with which a text begins, in their parts.
func (d *document) head() (out []string) {
	if s := d.sections[0]; s.heading == "" && s.shape == rows {
		for _, l := range s.lines {
			out = append(out, partsOf.Split(l.text, -1)...)
		}
	}
	return out
}

// sentences returns those of the first section that is made of sentences, one with a heading first, else all lines.
func (d *document) sentences() (out []string) {
	for _, headed := range []bool{true, false} {
		for _, s := range d.sections {
			if s.shape == prose && (s.heading != "") == headed && len(s.lines) > 0 {
				return s.texts()
			}
		}
	}
	for _, s := range d.sections {
		out = append(out, s.texts()...)
	}
	return out
}

func (s *section) texts() (out []string) {
	for _, l := range s.lines {
		out = append(out, l.text)
	}
	return out
}

var (
	bulletMark  = regexp.MustCompile(`^(?:[-–*+]\s+(?:\[[ xX]\]\s+)?|[•‣·・●○◦▪■◆►✓✔✅❌★]\x{FE0F}?\s*|\(?\p{Nd}{1,3}(?:[.)]\s+|[、．）]\s*))`)
	tightNumber = regexp.MustCompile(`(?m)^(\s*\d{1,3}[.)])(\p{Han})`)
	sentenceEnd = regexp.MustCompile(`[.!?;]\s+|[。！？；｡؟۔।]`)
	terminated  = regexp.MustCompile(`[.!?…:。！？：｡؟۔।][)”"’»」』]?$`)
	notHeading  = regexp.MustCompile(`^[(（]|[,.;!?，。；！？、،؛؟۔।|·@/=<>{}"“”\p{Nd}]`)
	comma       = regexp.MustCompile(`\s*[,;，；、،؛|]\s*|\s+·\s+`)
)

// readSections cuts a text into sections, and these into lines and sentences.
func readSections(text string) []*section {
	raws := strings.SplitN(tightNumber.ReplaceAllString(text, "$1 $2"), "\n", 2*maxLines)
	at := &section{}
	all, count := []*section{at}, 0
	begin := func(heading string) {
		at = &section{heading: heading, words: setOf(words(spaced(heading)))}
		all = append(all, at)
	}
	open := ""              // a paragraph or a bullet that the next line may continue
	var bullet, inline bool // inline: the heading is the name of the value behind it
	flush := func() {
		if !bullet {
			open = sentenceEnd.ReplaceAllString(open, "$0\n")
		}
		for part := range strings.Lines(open) {
			if part = clip(strings.Trim(part, " \t\r\n;；"), maxQuote); part != "" && count < maxLines {
				count++
				at.lines = append(at.lines, line{part, setOf(words(part)), bullet})
			}
		}
		open = ""
	}
	for i, raw := range raws {
		body := strings.TrimSpace(raw)
		mark := bulletMark.FindString(body)
		heading, rest := headingOf(raws, i)
		switch {
		case body == "":
			flush()
			if inline {
				begin("")
			}
			inline = false
		case heading != "":
			flush()
			begin(heading)
			open, bullet, inline = rest, false, rest != ""
		case mark == "" && continues(open, body):
			last, _ := utf8.DecodeLastRuneInString(open)
			open += map[bool]string{false: " "}[isUnspaced(last)] + body
		default:
			flush()
			open, bullet = body[len(mark):], mark != ""
		}
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
func continues(open, body string) bool {
	first, _ := utf8.DecodeRuneInString(body)
	last, _ := utf8.DecodeLastRuneInString(open)
	return len(open) >= 30 && !terminated.MatchString(open[len(open)-8:]) && (unicode.IsLower(first) || isUnspaced(first) && isUnspaced(last))
}

// headingOf returns the heading that a line is, and the text behind its colon.
func headingOf(raws []string, i int) (heading, rest string) {
	body := strings.TrimSpace(raws[i])
	if bare := strings.TrimLeft(body, "#"); bare != body && strings.HasPrefix(bare, " ") {
		return strings.Trim(bare, " #*"), ""
	}
	body = strings.TrimPrefix(strings.Replace(strings.ReplaceAll(body, "**", ""), "】", "：", 1), "【")
	if before, behind, ok := strings.Cut(strings.Replace(body, "：", ": ", 1), ":"); ok && isTitle(before) && (behind == "" || behind[0] == ' ') {
		return before, strings.TrimSpace(behind)
	}
	if i+1 == len(raws) || !isTitle(body) {
		return "", ""
	}
	blank := i > 0 && strings.TrimSpace(raws[i-1]) == ""
	next, after := strings.TrimSpace(raws[i+1]), strings.TrimSpace(raws[min(i+2, len(raws)-1)])
	if bulletMark.MatchString(next) || blank && (next != "" || bulletMark.MatchString(after)) {
		return body, ""
	}
	return "", ""
}

func isTitle(s string) bool {
	return utf8.RuneCountInString(s) <= maxLabel && len(strings.Fields(s)) <= 5 && !notHeading.MatchString(s) && !bulletMark.MatchString(s) &&
		strings.ContainsFunc(s, unicode.IsLetter)
}

// arrange decides the shape of a section.
func (s *section) arrange() {
	bullets, sentences := 0, 0
	for _, l := range s.lines {
		switch {
		case l.bullet:
			bullets++
		case terminated.MatchString(l.text):
			sentences++
		}
		for _, name := range comma.Split(l.text, -1) {
			if name != "" && len(s.series) < maxItems && !slices.Contains(s.series, name) {
				s.series = append(s.series, name)
			}
		}
	}
	long := func(name string) bool {
		return len(strings.Fields(name)) > 3 || utf8.RuneCountInString(name) > maxLabel
	}
	if bullets+sentences > 0 || s.heading == "" || len(s.series) <= len(s.lines) || slices.ContainsFunc(s.series, long) {
		s.series = nil
	}
	switch {
	case bullets > 0 && bullets < len(s.lines):
		s.shape = groups
	case bullets > 0 || s.series != nil:
		s.shape = list
	case sentences == 0 && len(s.lines) > 0:
		s.shape = rows
	}
}
