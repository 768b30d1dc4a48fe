package sim

import (
	"unicode"
	"unicode/utf8"
)

const longestPiece = 8 // characters of a Latin word in one token, about what real vocabularies do

// cutTokens cuts a text as real models stream it: a word with the space before it, long words in pieces, one or two
// Chinese characters, punctuation and line breaks by themselves. Joined they are the text again.
func cutTokens(text string) []string {
	var out []string
	for start := 0; start < len(text); {
		end := start + tokenLength(text[start:])
		out = append(out, text[start:end])
		start = end
	}
	return out
}

// tokenLength is the length in bytes of the first token.
func tokenLength(s string) int {
	r, n := utf8.DecodeRuneInString(s)
	if r == ' ' && n < len(s) {
		next, size := utf8.DecodeRuneInString(s[n:])
		if next == ' ' || next == '\n' {
			return n
		}
		if isWord(next) {
			return n + wordLength(s[n:])
		}
		return n + size
	}
	if isWord(r) {
		return wordLength(s)
	}
	if isCJK(r) {
		// two where the second is even: some pairs come together and some do not, always the same ones
		if next, size := utf8.DecodeRuneInString(s[n:]); isCJK(next) && next%2 == 0 {
			return n + size
		}
	}
	return n
}

func wordLength(s string) int {
	count := 0
	for i, r := range s {
		if !isWord(r) || count == longestPiece {
			return i
		}
		count++
	}
	return len(s)
}

func isWord(r rune) bool { return (unicode.IsLetter(r) || unicode.IsDigit(r)) && !isCJK(r) }
