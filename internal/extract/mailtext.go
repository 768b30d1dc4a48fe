package extract

import (
	"regexp"
	"strings"
	"unicode"
)

// foldedLine is where a line of a calendar continues (RFC 5545, 3.1).
var foldedLine = regexp.MustCompile(`\r?\n[ \t]`)

// signature is the line before the signature of a message.
const signature = "-- "

// unflowed joins the lines of paragraphs (RFC 3676, 4.1): those that end with a space, of one depth of quotation. The line before a
// signature ends with a space, too.
func unflowed(text string, deleteSpace bool) string {
	var out strings.Builder
	before, open := "", false // the quotation marks of the line before, and whether its paragraph continues
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		content := strings.TrimLeft(line, ">")
		quoted := line[:len(line)-len(content)]
		content = strings.TrimPrefix(content, " ")
		if open && (quoted != before || content == signature) {
			out.WriteByte('\n')
			open = false
		}
		if !open && quoted != "" {
			out.WriteString(quoted + " ")
		}
		before, open = quoted, strings.HasSuffix(content, " ") && content != signature
		if open && deleteSpace {
			content = content[:len(content)-1]
		}
		out.WriteString(content)
		if !open {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// address is an address of a page, which one form of a text has in it and another behind a link.
var address = regexp.MustCompile(`(?i)\b(?:https?|mailto):[^\s<>"]+`)

// wordsOf returns the words of a text, and of scripts without spaces the characters.
func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	text = address.ReplaceAllString(strings.ToLower(text), " ")
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		rest := word
		for i, r := range word {
			if r > 0x2e80 {
				words[string(r)] = true
				rest = word[i+len(string(r)):]
			}
		}
		if rest != "" {
			words[rest] = true
		}
	}
	return words
}

// covered is the share of its words that a text shares with another form of the same text.
const covered = 0.8

// different returns the texts of which no other has nearly all words: of several forms of one text the first. A form that only says that
// the reader's program does not show the other is not a form of the same text.
func different(texts []string) []string {
	words := make([]map[string]bool, len(texts))
	for i, text := range texts {
		words[i] = wordsOf(text)
	}
	within := func(i, j int) bool {
		shared := 0
		for word := range words[i] {
			if words[j][word] {
				shared++
			}
		}
		return float64(shared) >= covered*float64(len(words[i]))
	}
	var out []string
	for i, text := range texts {
		again := false
		for j := range texts {
			again = again || i != j && within(i, j) && (j < i || !within(j, i))
		}
		if !again {
			out = append(out, text)
		}
	}
	return out
}
