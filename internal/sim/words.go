package sim

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// unspaced are the characters of scripts that write no spaces between words, for a class of an expression.
const unspaced = `\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}`

var spacedWord = regexp.MustCompile(`(?:[^` + unspaced + `\P{L}]\pM*)+`)

// wordCount counts words, and two characters of a script without spaces as one.
func wordCount(s string) int {
	n := 0
	for _, r := range s {
		if isUnspaced(r) {
			n++
		}
	}
	return len(spacedWord.FindAllString(s, -1)) + n/2
}

func isUnspaced(r rune) bool {
	return r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

var (
	wordRun   = regexp.MustCompile(`[` + unspaced + `]+|[^` + unspaced + `\s\pP\pS]+(?:[.'’][^` + unspaced + `\s\pP\pS]+)*[+#]*`)
	nameRun   = regexp.MustCompile(`(?:\p{Lu}[\pL\pN]*(?:[.'’&-][\pL\pN]+)*[+#]*)(?: \p{Lu}[\pL\pN]*(?:[.'’&-][\pL\pN]+)*[+#]*)*|\b\p{Ll}+\p{Lu}[\pL\pN]*`)
	linkedBy  = regexp.MustCompile(`^(?:,| and| or) \p{Lu}`)
	fillerZH  = regexp.MustCompile(`[的和与及或之在有是等了、]`)
	stopWords = strings.Fields(`a an the and or we our you your he she they it its this that these those i me my is are be was were
		been in on at to for with from by of as have has had do does did will would can could should may must not no so if then
		than when who what which how there here into out up`)
	camel = regexp.MustCompile(`(\p{Ll}|\pN)(\p{Lu})`)
)

// spaced separates the words of a name such as dueDate or due_date.
func spaced(name string) string {
	return strings.NewReplacer("_", " ", "-", " ", ".", " ").Replace(camel.ReplaceAllString(name, "$1 $2"))
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	r := []rune(s)
	return string(unicode.ToUpper(r[0])) + string(r[1:])
}

// words returns the words of a text by which it is compared: Latin ones without accents, in lower case and in the singular,
// but short ones as they are written, because "Go" is not "go"; pairs of characters in scripts without spaces.
func words(text string) []string {
	var out []string
	for _, w := range wordRun.FindAllString(fillerZH.ReplaceAllString(plain(text), " "), -1) {
		runes := []rune(w)
		switch lower := strings.ToLower(w); {
		case isUnspaced(runes[0]):
			for ; len(runes) > 1; runes = runes[1:] {
				out = append(out, string(runes[:2]))
			}
		case slices.Contains(stopWords, lower), unicode.IsDigit(runes[0]):
		case len(w) > 3:
			out = append(out, singular(lower))
		case len(w) > 1:
			out = append(out, w)
		}
	}
	return out
}

func singular(w string) string {
	if stem, ok := strings.CutSuffix(w, "ies"); ok {
		return stem + "y"
	}
	if strings.HasSuffix(w, "ss") {
		return w
	}
	return strings.TrimSuffix(w, "s")
}

// plain removes accents.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= 0xC0 && r < 0x250 }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFD.String(s))
}

// names returns the names in a line, neighbours joined: "GitHub Actions". The first word of a sentence is a name only if it
// is written like one.
func names(text string) []string {
	out := []string{}
	for _, sentence := range strings.Split(sentenceEnd.ReplaceAllString(text, "$0\n"), "\n") {
		for _, m := range nameRun.FindAllStringIndex(sentence, -1) {
			parts := slices.DeleteFunc(strings.Fields(sentence[m[0]:m[1]]), func(w string) bool { return len(words(w)) == 0 })
			begins := strings.TrimLeft(sentence[:m[0]], ` "“(*`) == ""
			alone := m[1] == len(strings.TrimRight(sentence, " ")) && m[1]-m[0] < maxLabel
			if begins && len(parts) > 0 && !alone && !distinct(parts[0]) && !linkedBy.MatchString(sentence[m[1]:]) {
				parts = parts[1:]
			}
			name := strings.Join(parts, " ")
			if name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// distinct reports whether a word is written like a name anywhere: gRPC, C++, Node.js.
func distinct(w string) bool {
	return strings.ContainsFunc(strings.TrimLeftFunc(w, unicode.IsUpper), func(r rune) bool {
		return unicode.IsUpper(r) || unicode.IsDigit(r) || strings.ContainsRune("+#.&", r)
	}) || len(w) > 1 && strings.ToUpper(w) == w
}

// quantity is a number with what it counts.
type quantity struct {
	number *big.Rat
	unit   string
}

var (
	quantities = regexp.MustCompile(`(\d{1,15}(?:[.]\d{1,6})?)\s*\+?\s*(\p{Han}|%|[\p{L}]{2,})?`)
	thousands  = regexp.MustCompile(`(\d),(\d{3})\b`)
	unitsZH    = map[string]string{"年": "year", "月": "month", "周": "week", "天": "day", "日": "day", "时": "hour", "分": "minute", "人": "person", "次": "time"}
)

func quantitiesIn(text string) (out []quantity) {
	for _, m := range quantities.FindAllStringSubmatch(thousands.ReplaceAllString(thousands.ReplaceAllString(text, "$1$2"), "$1$2"), -1) {
		n, _ := new(big.Rat).SetString(m[1])
		unit := singular(strings.ToLower(m[2]))
		if zh, ok := unitsZH[unit]; ok {
			unit = zh
		}
		out = append(out, quantity{n, unit})
	}
	return out
}

// clip returns at most n characters of s.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == max(n, 0) {
			return strings.TrimSpace(s[:i])
		}
		count++
	}
	return s
}

// memo returns a function that remembers its results.
func memo[T any](of func(string) T) func(string) T {
	known := map[string]T{}
	return func(text string) T {
		v, ok := known[text]
		if !ok {
			v = of(text)
			known[text] = v
		}
		return v
	}
}

// languages are those that their script identifies.
var languages = []struct {
	code   string
	script *unicode.RangeTable
}{
	{"ja", unicode.Hiragana},
	{"ja", unicode.Katakana},
	{"zh", unicode.Han},
	{"ko", unicode.Hangul},
	{"ar", unicode.Arabic},
	{"he", unicode.Hebrew},
	{"ru", unicode.Cyrillic},
	{"el", unicode.Greek},
	{"hi", unicode.Devanagari},
	{"th", unicode.Thai},
}

// languageOf returns the language that the script of most letters identifies, else English.
func languageOf(text string) string {
	letters, best, code := 0, 0, "en"
	counts := map[string]int{}
	for _, r := range clip(text, maxText) {
		if !unicode.IsLetter(r) {
			continue
		}
		letters++
		for _, l := range languages {
			if unicode.Is(l.script, r) {
				counts[l.code]++
				break
			}
		}
	}
	if 5*counts["ja"] > counts["zh"] {
		counts["ja"] += counts["zh"]
	}
	for _, l := range languages {
		if n := counts[l.code]; n > best && 3*n > letters {
			best, code = n, l.code
		}
	}
	return code
}
