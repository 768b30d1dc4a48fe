package ledger

import (
	"strings"
	"unicode"
)

const (
	passageRunes = 400
	maxTermRunes = 64
)

// stopWords are omitted from index and queries.
var stopWords = func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(`a an and are as at be by for from has have i in is it its of on or our that the
		their this to was we were will with you your`) {
		words[w] = true
	}
	return words
}()

// terms splits text into search terms: Latin words in lower case (c++, c# and node.js stay whole, and node.js is also found
// as node), numbers, and pairs of adjacent Chinese, Japanese and Korean characters. A term contains only letters, digits,
// '+', '#' and inner '.', which both databases store unchanged.
func terms(text string) []string {
	var out []string
	rs := []rune(text)
	for i, r := range rs {
		rs[i] = fold(r)
	}
	for i := 0; i < len(rs); {
		switch {
		case isCJK(rs[i]):
			end := span(rs, i, isCJK)
			out = append(out, pairs(rs[i:end])...)
			i = end
		case isWord(rs[i]):
			end := wordEnd(rs, i)
			out = append(out, words(rs[i:end])...)
			i = end
		default:
			i++
		}
	}
	return out
}

// fold converts full-width forms to narrow ones and letters to lower case.
func fold(r rune) rune {
	if r >= '！' && r <= '～' {
		r -= '！' - '!'
	}
	return unicode.ToLower(r)
}

func isCJK(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

func isWord(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) && !isCJK(r)
}

func span(rs []rune, i int, in func(rune) bool) int {
	for i < len(rs) && in(rs[i]) {
		i++
	}
	return i
}

// wordEnd returns the end of the word that starts at i, including inner dots (node.js) and the signs of c++ and c#.
func wordEnd(rs []rune, i int) int {
	at := func(i int) rune {
		if i < len(rs) {
			return rs[i]
		}
		return 0
	}
	end := span(rs, i, isWord)
	for at(end) == '.' && isWord(at(end+1)) {
		end = span(rs, end+1, isWord)
	}
	switch {
	case at(end) == '+' && at(end+1) == '+':
		return end + 2
	case at(end) == '+' && !isWord(at(end+1)), at(end) == '#' && (end-i == 1 || !isWord(at(end+1))):
		return end + 1
	}
	return end
}

// words returns the terms of one word: the word and the parts between its dots.
func words(rs []rune) []string {
	whole := string(rs[:min(len(rs), maxTermRunes)])
	if stopWords[whole] {
		return nil
	}
	whole = strings.TrimRight(whole, ".") // a truncated word may end with a dot
	out := []string{whole}
	if parts := strings.Split(whole, "."); len(parts) > 1 {
		for _, p := range parts {
			if len(p) > 1 && !stopWords[p] {
				out = append(out, p)
			}
		}
	}
	return out
}

func pairs(rs []rune) []string {
	if len(rs) == 1 {
		return []string{string(rs)}
	}
	out := make([]string, 0, len(rs)-1)
	for i := range len(rs) - 1 {
		out = append(out, string(rs[i:i+2]))
	}
	return out
}

// cut splits text into passages of at most passageRunes characters that end with a paragraph or, if that is too long, with a
// sentence. Only a longer sentence is split, at a space if it has one.
func cut(text string) []string {
	var out []string
	var cur strings.Builder
	size := 0
	flush := func() {
		if s := strings.TrimSpace(cur.String()); s != "" {
			out = append(out, s)
		}
		cur.Reset()
		size = 0
	}
	for _, paragraph := range strings.Split(text, "\n") {
		if strings.TrimSpace(paragraph) == "" {
			if size >= passageRunes/2 {
				flush()
			}
			continue
		}
		for _, s := range sentences([]rune(paragraph)) {
			if size+len(s) > passageRunes {
				flush()
			}
			cur.WriteString(string(s))
			size += len(s)
		}
		cur.WriteByte('\n')
		size++
	}
	flush()
	return out
}

// sentences splits a paragraph into sentences, each with its trailing spaces and at most passageRunes long.
func sentences(rs []rune) [][]rune {
	var out [][]rune
	start := 0
	for i := range rs {
		next := i + 1
		if full := next-start >= passageRunes; full || next == len(rs) || endsSentence(rs, i) {
			if full && next < len(rs) {
				next = start + breakAt(rs[start:next])
			}
			if next > start {
				out = append(out, rs[start:next])
				start = next
			}
		}
	}
	return out
}

func endsSentence(rs []rune, i int) bool {
	switch rs[i] {
	case '。', '！', '？', '；':
		return true
	case ' ':
		return i > 0 && strings.ContainsRune(".!?;", rs[i-1])
	default:
		return false
	}
}

// breakAt returns the length of the first part of an overlong sentence.
func breakAt(rs []rune) int {
	for i := len(rs) - 1; i > len(rs)/2; i-- {
		if unicode.IsSpace(rs[i]) {
			return i + 1
		}
	}
	return len(rs)
}
