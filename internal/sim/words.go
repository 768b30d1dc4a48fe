package sim

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unspaced are the characters of scripts that write no spaces between words, for a class of an expression.
const unspaced = `\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}`

func isUnspaced(r rune) bool {
	return r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

var (
	wordRun   = regexp.MustCompile(`[` + unspaced + `]+|[^` + unspaced + `\s\pP\pS]+(?:[.'’][^` + unspaced + `\s\pP\pS]+)*[+#]*`)
	nameRun   = regexp.MustCompile(`(?:\p{Lu}[\pL\pN]*(?:[.'’&-][\pL\pN]+)*[+#]*)(?: \p{Lu}[\pL\pN]*(?:[.'’&-][\pL\pN]+)*[+#]*)*|\b\p{Ll}+\p{Lu}[\pL\pN]*`)
	linkedBy  = regexp.MustCompile(`^(?:,| and| or) \p{Lu}`)
	distinct  = regexp.MustCompile(`^\p{Lu}{2}|[\p{Lu}\pN+#.&].*[\p{Lu}\pN+#.&]`) // written like a name anywhere
	fillerZH  = regexp.MustCompile(`[的和与及或之在有是等了、]`)
	camel     = regexp.MustCompile(`(\p{Ll}|\pN)(\p{Lu})`)
	stopWords = setOf(strings.Fields(`a an the and or we our you your he she they it its this that these those i me my is are be was were
		been in on at to for with from by of as have has had do does did will would can could should may must not no so if then
		than when who what which how there here into out up`))
)

type wordSet map[string]bool

func setOf(all []string) wordSet {
	set := wordSet{}
	for _, w := range all {
		set[w] = true
	}
	return set
}

// overlap counts the words that are in a set.
func overlap(some []string, set wordSet) (n int) {
	for _, w := range some {
		if set[w] {
			n++
		}
	}
	return n
}

// spaced separates the words of a name such as dueDate or due_date.
func spaced(name string) string {
	return strings.NewReplacer("_", " ", "-", " ", ".", " ").Replace(camel.ReplaceAllString(name, "$1 $2"))
}

func upperFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

// words returns the words of a text by which it is compared, each once: in lower case and in the singular, but short ones as they are written,
// because "Go" is not "go"; pairs of characters in scripts without spaces.
func words(text string) (out []string) {
	for _, w := range wordRun.FindAllString(fillerZH.ReplaceAllString(text, " "), -1) {
		runes := []rune(w)
		switch lower := strings.ToLower(w); {
		case isUnspaced(runes[0]):
			for ; len(runes) > 1; runes = runes[1:] {
				out = append(out, string(runes[:2]))
			}
		case stopWords[lower], unicode.IsDigit(runes[0]):
		case strings.HasSuffix(lower, "ss"):
			out = append(out, lower)
		case len(w) > 3:
			out = append(out, strings.TrimSuffix(strings.TrimSuffix(lower, "s"), "'"))
		case len(w) > 1:
			out = append(out, w)
		}
	}
	seen := wordSet{}
	return slices.DeleteFunc(out, func(w string) bool {
		known := seen[w]
		seen[w] = true
		return known
	})
}

// names returns the names in a line, neighbours joined: "GitHub Actions". The first word of a sentence is a name only if it is written like
// one, stands alone, or is one of several.
func names(text string) (out []string) {
	for sentence := range strings.Lines(sentenceEnd.ReplaceAllString(text, "$0\n")) {
		for _, m := range nameRun.FindAllStringIndex(sentence, -1) {
			name, rest := sentence[m[0]:m[1]], strings.TrimRight(sentence[m[1]:], " .\n")
			if first, more, _ := strings.Cut(name, " "); m[0] == 0 && rest != "" && !distinct.MatchString(first) && !linkedBy.MatchString(rest) {
				name = more
			}
			if len(words(name)) > 0 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// clip returns at most n characters of a text.
func clip(s string, n int) string {
	count := 0
	for i := range s {
		if count == max(n, 0) {
			return strings.TrimSpace(s[:i])
		}
		count++
	}
	return s
}

func first[T any](n int, list []T) []T { return list[:min(n, len(list))] }
