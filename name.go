package berth

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of names, in characters: Unicode code points of the stored form, each of at most four bytes.
const (
	MaxParticipantName = 200 // of a participant or a speaker
	MaxConferenceTitle = 200
	MaxLabel           = 128 // of a host or a zone
	MaxReason          = 500 // why an operator did something
	MaxTaskTitle       = 80
	MaxTemplateTitle   = 100 // of a template, and of each label within it
	MaxTemplateText    = 500 // of a sentence about it
)

// maxInput bounds the bytes of a name as it was sent, for each character of its limit. Normal form C composes at most four characters to
// one.
const maxInput = 16

// Name returns a name that was written for users in the form in which it is stored and sent: in Unicode's normal form C (UAX #15) and
// without white space at its ends. All other characters stay, among them every kind of space, joiners, combining marks, variation
// selectors and text from right to left; an empty name is valid. It returns CodeInvalid for the field where the name is longer than limit
// characters, and where it has a character that is not for text or that changes how its surroundings are displayed (UAX #9): controls,
// line and paragraph separators, overrides of the direction, and embeddings or isolates that do not end within the name. It is the only
// rule for names; ids have ValidID and ValidUserID.
func Name(field, v string, limit int) (string, error) {
	if len(v) > maxInput*limit {
		return "", Invalid(field, "is too long: %d bytes; at most %d characters are allowed", len(v), limit)
	}
	if !utf8.ValidString(v) {
		return "", Invalid(field, "is not valid UTF-8")
	}
	name := strings.TrimSpace(norm.NFC.String(v))
	if n := utf8.RuneCountInString(name); n > limit {
		return "", Invalid(field, "is too long: %d characters; at most %d are allowed", n, limit)
	}
	if bad := disallowed(name); bad != "" {
		return "", Invalid(field, "must not contain %s; remove it", bad)
	}
	if name != "" && !strings.ContainsFunc(name, Visible) {
		return "", Invalid(field, "has no visible character")
	}
	return name, nil
}

// CleanName returns a name that is not refused, such as that of a file, without what Name does not allow, cut after limit characters.
func CleanName(v string, limit int) string {
	v = strings.Map(func(r rune) rune {
		if forbidden(r) != "" || strings.ContainsRune(overrides, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(v, ""))
	if runes := []rune(strings.TrimSpace(norm.NFC.String(v))); len(runes) > limit {
		v = string(runes[:limit])
	}
	if disallowed(v) != "" { // the directions do not end, or the tags have no flag
		v = strings.Map(func(r rune) rune {
			if isTag(r) || strings.ContainsRune(beginEmbedding+beginIsolate, r) || r == endEmbedding || r == endIsolate {
				return -1
			}
			return r
		}, v)
	}
	if !strings.ContainsFunc(v, Visible) {
		return ""
	}
	return strings.TrimSpace(norm.NFC.String(v))
}

// Visible reports whether a character is neither white space nor without a width.
func Visible(r rune) bool {
	return !unicode.In(r, unicode.White_Space, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		r != '\u2800' // BRAILLE PATTERN BLANK
}

// The characters that begin and end embeddings and isolates of another direction.
const (
	beginEmbedding = "\u202a\u202b"
	endEmbedding   = '\u202c'
	overrides      = "\u202d\u202e"
	beginIsolate   = "\u2066\u2067\u2068"
	endIsolate     = '\u2069'
)

// disallowed describes the first character of a name that it must not have, such as U+202E; empty for none.
func disallowed(name string) string {
	var open []rune // the ends of the embeddings and isolates
	tags := false   // within the sequence that names a flag
	last := rune(0)
	for _, r := range name {
		switch {
		case strings.ContainsRune(beginEmbedding, r):
			open = append(open, endEmbedding)
		case strings.ContainsRune(beginIsolate, r):
			open = append(open, endIsolate)
		case r == endEmbedding || r == endIsolate:
			if len(open) == 0 || open[len(open)-1] != r {
				return fmt.Sprintf("%U (ends text of another direction that does not begin there)", r)
			}
			open = open[:len(open)-1]
		case strings.ContainsRune(overrides, r):
			return fmt.Sprintf("%U (overrides the direction of text)", r)
		case isTag(r):
			if !tags && last != '\U0001f3f4' { // WAVING BLACK FLAG
				return fmt.Sprintf("%U (an invisible tag)", r)
			}
		case forbidden(r) != "":
			return fmt.Sprintf("%U (%s)", r, forbidden(r))
		}
		tags, last = isTag(r), r
	}
	if len(open) > 0 {
		return fmt.Sprintf("text of another direction that does not end with %U", open[len(open)-1])
	}
	return ""
}

func isTag(r rune) bool { return r >= 0xe0020 && r <= 0xe007f }

// forbidden returns what a character is that no name has; empty for others.
func forbidden(r rune) string {
	switch {
	case r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029':
		return "a line break"
	case unicode.IsControl(r):
		return "a control character"
	case r == utf8.RuneError:
		return "the mark of a damaged character"
	case r == '\ufeff' || r >= '\ufff9' && r <= '\ufffb' || r >= '\u206a' && r <= '\u206f' || r == 0xe0001:
		return "an invisible control"
	case r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe:
		return "not a character"
	default:
		return ""
	}
}
