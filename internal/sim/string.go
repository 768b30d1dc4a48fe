package sim

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// format is how texts of a JSON Schema format are found in other texts, and made for any number.
type format struct {
	find *regexp.Regexp
	make func(n int) string
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var formats = map[string]format{
	"date": {regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}\b`), func(n int) string { return epoch.AddDate(0, 0, n).Format(time.DateOnly) }},
	"date-time": {
		regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})`),
		func(n int) string { return epoch.Add(time.Duration(n) * time.Second).Format(time.RFC3339) },
	},
	"time":          {nil, func(n int) string { return epoch.Add(time.Duration(n)*time.Second).Format("15:04:05") + "Z" }},
	"duration":      {nil, func(n int) string { return "P" + strconv.Itoa(n+1) + "D" }},
	"period":        {nil, func(n int) string { return "2000-01-01T00:00:00Z/P" + strconv.Itoa(n+1) + "D" }},
	"email":         {regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`), func(n int) string { return "name" + strconv.Itoa(n+1) + "@example.org" }},
	"uri":           {address, website},
	"iri":           {address, website},
	"uri-reference": {address, website},
	"iri-reference": {address, website},
	"uri-template":  {address, website},
	"uuid": {
		regexp.MustCompile(`\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b`),
		func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) },
	},
	"ipv4":                  {regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`), func(n int) string { return fmt.Sprintf("192.0.%d.%d", n/256%256, n%256) }},
	"ipv6":                  {nil, func(n int) string { return fmt.Sprintf("2001:db8::%x", n+1) }},
	"hostname":              {regexp.MustCompile(`\b(?:[a-z0-9-]+\.)+[a-z]{2,}\b`), func(n int) string { return "host" + strconv.Itoa(n+1) + ".example.org" }},
	"json-pointer":          {nil, func(n int) string { return "/" + strconv.Itoa(n) }},
	"relative-json-pointer": {nil, strconv.Itoa},
	"regex":                 {nil, func(n int) string { return "a" + strconv.Itoa(n) }},
	"semver":                {regexp.MustCompile(`\b\d+\.\d+\.\d+\b`), func(n int) string { return "1.0." + strconv.Itoa(n) }},
}

var address = regexp.MustCompile(`\bhttps?://[^\s<>"'“”]*[^\s<>"'“”.,;:!?)，。；]`)

func website(n int) string { return "https://example.org/" + strconv.Itoa(n+1) }

// strings returns texts for a place within the limits of its schemas, those of the source first. said is false if the source
// has none.
func (f *filler) strings(all []*jsonschema.Schema, at place) (options []any, said bool) {
	least, most := 0, maxText
	var patterns []string
	kind := ""
	for _, s := range all {
		if s.MinLength != nil {
			least = max(least, *s.MinLength)
		}
		if s.MaxLength != nil {
			most = min(most, *s.MaxLength)
		}
		if s.Pattern != nil {
			patterns = append(patterns, s.Pattern.String())
		}
		if s.Format != nil {
			kind = s.Format.Name
		}
	}
	most = max(most, least)
	if least > maxLength {
		return nil, false
	}
	add := func(texts ...string) {
		for _, text := range texts {
			options = append(options, fit(text, least, most, at.variant))
		}
	}
	if fm, ok := formats[kind]; ok {
		if fm.find != nil {
			for _, text := range f.findAll(fm.find, at) {
				options, said = append(options, text), true
			}
		}
		options = append(options, fm.make(at.variant), fit(fm.make(at.variant), least, most, 0))
	}
	for _, p := range patterns {
		if bare, err := regexp.Compile(strings.TrimSuffix(strings.TrimPrefix(p, "^"), "$")); err == nil {
			for _, text := range f.findAll(bare, at) {
				options, said = append(options, text), true
			}
		}
	}
	if kind == "" {
		if f.notice == at.path {
			f.notice = ""
		}
		text, ok := f.text(at)
		said = said || ok && len(patterns) == 0
		note := ""
		if f.notice == "" && at.entry == nil && len(patterns) == 0 && proseNames.MatchString(spaced(at.name)) {
			note = f.render("notice", nil)
		}
		if note != "" && most >= 2*len([]rune(note)) {
			f.notice = at.path
			options = append(options, fit(strings.TrimSpace(clip(text, min(most-len([]rune(note))-1, maxParagraph))+" "+note), least, most, at.variant))
		}
		if text != "" || at.entry == nil {
			add(text)
		} else {
			options = append(options, "") // as short as allowed
			add(at.entry.Text)
		}
	}
	for _, p := range patterns {
		f.steps -= least / 64
		for _, text := range matching(p, least, at.variant) {
			options = append(options, text)
		}
	}
	add("–", "a", "")
	return options, said
}

const maxParagraph = 1500

// findAll returns what an expression finds in the entry, else in all documents: as many as the variant needs.
func (f *filler) findAll(re *regexp.Regexp, at place) []string {
	var texts []string
	if at.entry != nil {
		texts = append(texts, at.entry.Text+"\n"+strings.Join(at.entry.bullets, "\n"))
	}
	texts = append(texts, f.subject.body)
	for _, d := range f.docs {
		texts = append(texts, d.body)
	}
	for _, text := range texts {
		if f.work -= len(text); f.work < 0 {
			return nil
		}
		if found := re.FindAllString(text, at.variant+20); len(found) > at.variant {
			return found[at.variant:]
		}
	}
	return nil
}

// fit makes a text as long as it must be, in characters, and different for each variant.
func fit(text string, least, most, variant int) string {
	suffix := ""
	if variant > 0 {
		suffix = " " + strconv.Itoa(variant+1)
	}
	text = clip(text, most-len(suffix)) + suffix
	if len([]rune(text)) > most {
		text = string([]rune(strings.TrimSpace(suffix))[:min(most, len([]rune(strings.TrimSpace(suffix))))])
	}
	if missing := least - len([]rune(text)); missing > 0 {
		again := []rune(strings.Repeat(" "+text+strings.Repeat("–", 3), missing/(len([]rune(text))+4)+1))
		text += string(again[:missing-1]) + "–"
	}
	return text
}

// matching returns texts that match an expression, with at least so many characters where that is possible; variants differ
// if the expression allows it.
func matching(pattern string, least, variant int) (out []string) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	for _, more := range []int{0, 1, 2, least / 2, least} {
		g := generator{more: min(more, maxLength/10), variant: variant, left: 4 * maxLength}
		g.write(re)
		out = append(out, g.out.String())
	}
	if text := []rune(out[0]); len(text) < least && !strings.HasSuffix(pattern, "$") {
		out = append(out, out[0]+strings.Repeat("a", least-len(text)))
	}
	return out
}

// generator writes a text that matches an expression.
type generator struct {
	out     strings.Builder
	more    int // repetitions beyond the fewest
	variant int
	left    int // expressions that may still be written: repetitions of nothing would have no end
}

func (g *generator) write(re *syntax.Regexp) {
	if g.left--; g.left < 0 || g.out.Len() > maxLength {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		g.out.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		g.out.WriteRune(g.pick(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		g.out.WriteRune(g.pick([]rune("az")))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			g.write(sub)
		}
	case syntax.OpAlternate:
		n := len(re.Sub)
		sub := re.Sub[g.variant%n]
		g.variant /= n
		g.write(sub)
	case syntax.OpStar:
		g.repeat(re.Sub[0], g.more)
	case syntax.OpPlus:
		g.repeat(re.Sub[0], 1+g.more)
	case syntax.OpQuest:
		g.repeat(re.Sub[0], min(1, g.more))
	case syntax.OpRepeat:
		n := re.Min + g.more
		if re.Max >= 0 {
			n = min(n, re.Max)
		}
		g.repeat(re.Sub[0], n)
	}
}

func (g *generator) repeat(re *syntax.Regexp, n int) {
	for ; n > 0 && g.left > 0; n-- {
		g.write(re)
	}
}

// pick returns a character of a class, given as ranges: a letter or digit if it has some.
func (g *generator) pick(ranges []rune) rune {
	var plain, others []rune
	for i := 0; i+1 < min(len(ranges), 100); i += 2 {
		for r := ranges[i]; r <= ranges[i+1] && r-ranges[i] < 128; r++ {
			switch {
			case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)):
				plain = append(plain, r)
			case unicode.IsPrint(r):
				others = append(others, r)
			}
		}
	}
	if len(plain) == 0 {
		plain = others
	}
	if len(plain) == 0 {
		if len(ranges) == 0 {
			return 'a'
		}
		return ranges[0]
	}
	r := plain[g.variant%len(plain)]
	g.variant /= len(plain)
	return r
}
