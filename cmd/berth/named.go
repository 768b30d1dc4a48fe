package main

import (
	"os"
	"strings"

	"golang.org/x/text/unicode/bidi"
)

// named returns a name that a user chose as a part of a line of the output. On a terminal, a name from right to left must not turn the
// rest of the line around (UAX #9); a file or another program gets it as it is stored.
func named(name string) string { return isolated(printable(name), terminal(os.Stdout)) }

// isolated puts a name with text from right to left between FIRST STRONG ISOLATE and POP DIRECTIONAL ISOLATE.
func isolated(name string, terminal bool) string {
	if terminal && strings.ContainsFunc(name, fromRight) {
		return "\u2068" + name + "\u2069"
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
