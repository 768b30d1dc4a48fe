package sim

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"berth"
)

//go:embed skills.txt
var skillsFile string

// skill is one entry of the dictionary, or a term a posting itself introduced.
type skill struct {
	en, zh  string
	group   string // the part of skills.txt it stands in; empty for a term
	aliases []alias
}

// alias is one spelling of a skill.
type alias struct {
	text  string // lower case unless exact
	exact bool   // matches in this case only
	latin bool   // matches whole words only
}

// dictionary is every skill of skills.txt, in its order: the order of every list the stand-in makes.
var dictionary = parseSkills(skillsFile)

func parseSkills(src string) []*skill {
	var out []*skill
	group := ""
	for row := range strings.Lines(src) {
		row = strings.TrimSpace(row)
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		if strings.HasPrefix(row, "[") {
			group = strings.Trim(row, "[]")
			continue
		}
		col := strings.SplitN(row, "|", 3)
		if len(col) != 3 {
			panic("skills.txt: not three columns: " + row) // the binary itself is broken
		}
		s := &skill{en: strings.TrimPrefix(col[0], "="), zh: strings.TrimPrefix(col[1], "="), group: group}
		for _, spelling := range append([]string{col[0], col[1]}, strings.Split(col[2], ",")...) {
			if a, ok := newAlias(spelling); ok && !slices.Contains(s.aliases, a) {
				s.aliases = append(s.aliases, a)
			}
		}
		out = append(out, s)
	}
	return out
}

func newAlias(spelling string) (alias, bool) {
	text, exact := strings.CutPrefix(strings.TrimSpace(spelling), "=")
	if text == "" {
		return alias{}, false
	}
	if !exact {
		text = lowerASCII(text)
	}
	return alias{text: text, exact: exact, latin: isWordByte(text[0]) || text[0] == '.'}, true
}

// termSkill is a skill the dictionary does not have, named as the posting spells it.
func termSkill(term string) *skill {
	a, _ := newAlias(term)
	return &skill{en: term, zh: term, aliases: []alias{a}}
}

// name is the skill's name in a locale.
func (s *skill) name(l berth.Locale) string {
	if l == berth.LocaleZH {
		return s.zh
	}
	return s.en
}

// find is where the first mention of the skill that is not negated begins and ends, -1 when there is none.
// lower must be lowerASCII(text).
func (s *skill) find(text, lower string) (best, end int) {
	best = -1
	for _, a := range s.aliases {
		in := lower
		if a.exact {
			in = text
		}
		for from := 0; ; {
			i := strings.Index(in[from:], a.text)
			if i < 0 {
				break
			}
			i += from
			from = i + len(a.text)
			if a.latin && !wholeWord(lower, i, from) {
				continue
			}
			if a.text == "Go" && goVerb.MatchString(text[from:]) {
				continue
			}
			if negated(text[:i]) {
				continue
			}
			if best < 0 || i < best || i == best && from > end {
				best, end = i, from
			}
			break
		}
	}
	return best, end
}

// goVerb tells the verb at the start of a sentence from the language.
var goVerb = regexp.MustCompile(`^(?: to| through| beyond| the extra| ahead| above)\b`)

// mention is a skill found in a text, with where.
type mention struct {
	skill   *skill
	at, end int
}

// mentions lists the skills of candidates that occur in text, by their first position.
func mentions(text string, candidates []*skill) []mention {
	lower := lowerASCII(text)
	var out []mention
	for _, s := range candidates {
		if i, j := s.find(text, lower); i >= 0 {
			out = append(out, mention{s, i, j})
		}
	}
	slices.SortStableFunc(out, func(a, b mention) int { return a.at - b.at })
	return out
}

// A mention right behind one of these is a skill that is said to be absent or not needed.
var (
	negationEN = regexp.MustCompile(`(?i)\b(?:no|not|without|lacks?|lacking|never used|not used|unfamiliar with)(?: any)?(?: prior)?(?: (?:experience|knowledge|familiar|skilled))?(?: (?:with|of|in))?\s+$`)
	negationZH = regexp.MustCompile(`(?:没有|不熟悉|不了解|不会|未使用过?|没用过|无需|不要求|未接触过?)\s*$`)
)

func negated(before string) bool {
	if len(before) > 60 {
		before = before[len(before)-60:]
		for before != "" && !utf8.RuneStart(before[0]) {
			before = before[1:]
		}
	}
	return negationEN.MatchString(before) || negationZH.MatchString(before)
}

// lowerASCII lowers A-Z only, so that byte positions stay those of the original.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// wholeWord tells whether s[i:j] stands alone: not inside a longer word, nor C in C++ or C#.
func wholeWord(s string, i, j int) bool {
	if i > 0 && (isWordByte(s[i-1]) || s[i-1] == '_') && (isWordByte(s[i]) || s[i] != '.') {
		return false
	}
	if i > 1 && s[i-1] == '.' && isWordByte(s[i-2]) { // "js" of "vue.js"
		return false
	}
	if j >= len(s) {
		return true
	}
	last, next := s[j-1], s[j]
	if isWordByte(next) || next == '_' {
		return !isWordByte(last)
	}
	if next == '+' || next == '#' {
		// "Go+" of "5+" style is no word we know; "c++" and "c#" are.
		return last == '+' || last == '#' || len(s) > j+1 && next == '+' && s[j+1] != '+'
	}
	// "node" of "node.js" counts for Node.js alone, whose alias is longer.
	return next != '.' || j+1 >= len(s) || !isWordByte(s[j+1])
}
