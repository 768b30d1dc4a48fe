// Package setting has the rules for the text of a setting, wherever it comes from: a flag, an environment variable, or a file that a
// setting names.
package setting

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is what a text may contain.
type Kind int

// The kinds.
const (
	Plain  Kind = iota // an address, a name, a number, a path: nothing invisible and no quotes
	Secret             // may contain any visible character
	Lines              // a Secret with several lines
)

// Clean returns a text without the space around it: blanks, line ends, tabs, no-break spaces and byte order marks, as files of other
// systems and padded values have them. It refuses what cannot be meant: control characters, and quotes around the text, which
// `docker --env-file` keeps. Errors state what to do, and contain no part of the text.
func Clean(kind Kind, text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("must be a text in UTF-8")
	}
	text = Trim(text)
	for _, r := range text {
		if kind == Lines && (r == '\n' || r == '\r' || r == '\t') {
			continue
		}
		if unicode.IsControl(r) || kind == Plain && isInvisible(r) {
			return "", fmt.Errorf("contains %s; remove it", Describe(r))
		}
	}
	if isQuoted(kind, text) {
		return "", errors.New("has quotes around it, which are a part of the value here; remove them (docker --env-file keeps the quotes of its file)")
	}
	return text, nil
}

// Trim returns a text without the space around it.
func Trim(text string) string { return strings.TrimFunc(text, isSpace) }

func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b' || r == '\u2060'
}

// isInvisible reports whether a reader of a setting would not notice a character, or take it for another one.
func isInvisible(r rune) bool { return r != ' ' && isSpace(r) || unicode.Is(unicode.Cf, r) }

// Describe names a character that is not visible.
func Describe(r rune) string {
	name := map[rune]string{
		'\n': "a line end", '\r': "a carriage return", '\t': "a tab", '\u00a0': "a no-break space", '\ufeff': "a byte order mark",
		'\u200b': "a zero-width space",
	}[r]
	if name == "" {
		name = "an invisible character"
	}
	return fmt.Sprintf("%s (%U)", name, r)
}

// pairs are the quotes of programs and of word processors.
var pairs = map[rune]rune{'"': '"', '\'': '\'', '`': '`', '“': '”', '‘': '’', '„': '“', '«': '»'}

// isQuoted reports whether quotes enclose the text. A secret may begin or end with a quote, other texts may not.
func isQuoted(kind Kind, text string) bool {
	first, size := utf8.DecodeRuneInString(text)
	last, end := utf8.DecodeLastRuneInString(text)
	if kind == Plain {
		const quotes = "\"'`“”„‘’«»"
		return strings.ContainsRune(quotes, first) || strings.ContainsRune(quotes, last)
	}
	closing, ok := pairs[first]
	if !ok || last != closing || len(text) <= size {
		return false
	}
	return kind != Lines || !strings.ContainsAny(text[size:len(text)-end], string(first)+string(last)) // such as "id": "secret"
}
