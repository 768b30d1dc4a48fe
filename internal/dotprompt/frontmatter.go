package dotprompt

import (
	"regexp"
	"strings"
)

// Split separates a prompt's YAML front matter from its body. Lines of comments may precede it. ok is false if there is none: then
// all of the text is the body. Of a body after front matter, white space at both ends is removed.
func Split(src Source) (front, body Source, ok bool) {
	text := strings.ReplaceAll(strings.TrimPrefix(src.Text, "\ufeff"), "\r\n", "\n")
	body = Source{src.File, src.Line, text}
	before, rest := opening(text)
	if rest == "" {
		return Source{}, body, false
	}
	line := src.Line + strings.Count(before, "\n")
	front = Source{src.File, line + 1, ""}
	for at := line + 1; ; at++ {
		first, after, found := strings.Cut(rest, "\n")
		if strings.TrimRight(first, " \t") == "---" {
			trimmed := strings.TrimLeft(after, " \t\n\r")
			at += 1 + strings.Count(after[:len(after)-len(trimmed)], "\n")
			return front, Source{src.File, at, strings.TrimRight(trimmed, " \t\n\r")}, true
		}
		if !found {
			return Source{}, body, false
		}
		front.Text += first + "\n"
		rest = after
	}
}

// opening returns what precedes a first line --- and what follows it, which is empty without such a line.
func opening(text string) (before, rest string) {
	rest = text
	for {
		first, after, found := strings.Cut(rest, "\n")
		switch {
		case !found:
			return text, ""
		case strings.TrimRight(first, " \t") == "---":
			return text[:len(text)-len(rest)], after
		case strings.TrimSpace(first) != "" && !strings.HasPrefix(first, "#"):
			return text, ""
		}
		rest = after
	}
}

// aField is a line of front matter. A heading and a rule can begin a text, too.
var aField = regexp.MustCompile(`^[ \t]*["']?[A-Za-z$][A-Za-z]*["']?:(\s|$)`)

// Unclosed returns the line of a --- that begins front matter without an end, so that Split takes its fields for text.
func Unclosed(src Source) (line int, ok bool) {
	if _, _, closed := Split(src); closed {
		return 0, false
	}
	text := strings.ReplaceAll(strings.TrimPrefix(src.Text, "\ufeff"), "\r\n", "\n")
	if strings.TrimSpace(text) == "---" {
		return src.Line + strings.Count(text[:strings.Index(text, "---")], "\n"), true
	}
	before, rest := opening(text)
	if rest == "" || strings.TrimSpace(before) != "" && !aField.MatchString(rest) {
		return 0, false
	}
	return src.Line + strings.Count(before, "\n"), true
}
