package main

import (
	"os"
	"strings"

	"golang.org/x/text/unicode/bidi"
)

// named returns a name that a user chose as a part of a line of the output: without what controls terminals, ends the line or moves what is beside
// it. On a terminal, a name from right to left must not turn the rest of the line around either (UAX #9).
func named(name string) string { return isolated(inLine(name), terminal(os.Stdout)) }

// inLine returns a text as a part of one line, without controls.
func inLine(text string) string {
	depth, whole := 0, true
	for _, r := range text {
		switch {
		case isolates(r):
			depth++
		case r == popIsolate:
			depth--
		}
		whole = whole && depth >= 0
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u2028', r == '\u2029':
			return ' '
		case (isolates(r) || r == popIsolate) && (!whole || depth > 0): // one that is not closed reaches beyond the text
			return -1
		}
		return harmless(r)
	}, text)
}

const firstStrongIsolate, popIsolate = '\u2068', '\u2069'

func isolates(r rune) bool { return r >= '\u2066' && r <= firstStrongIsolate }

// harmless is a function for strings.Map that removes control characters, and those that override or embed the direction of what follows.
func harmless(r rune) rune {
	if r < ' ' || r >= 0x7f && r <= 0x9f || r >= '\u202a' && r <= '\u202e' {
		return -1
	}
	return r
}

// isolated puts a name with text from right to left between FIRST STRONG ISOLATE and POP DIRECTIONAL ISOLATE.
func isolated(name string, terminal bool) string {
	if terminal && strings.ContainsFunc(name, fromRight) {
		return string(firstStrongIsolate) + name + string(popIsolate)
	}
	return name
}

// fromRight reports whether a character is written from right to left, or moves what is beside it.
func fromRight(r rune) bool {
	p, _ := bidi.LookupRune(r)
	switch p.Class() {
	case bidi.R, bidi.AL, bidi.AN:
		return true
	default:
		return false
	}
}
