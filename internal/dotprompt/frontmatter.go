package dotprompt

import "strings"

// Split separates a prompt's YAML front matter from its body. Lines of comments may precede it. ok is false if there is none: then
// all of the text is the body. Of a body after front matter, white space at both ends is removed.
func Split(src Source) (front, body Source, ok bool) {
	text := strings.ReplaceAll(strings.TrimPrefix(src.Text, "\ufeff"), "\r\n", "\n")
	body = Source{src.File, src.Line, text}
	line, rest := src.Line, text
	for {
		first, after, found := strings.Cut(rest, "\n")
		if !found || strings.TrimSpace(first) != "" && !strings.HasPrefix(first, "#") {
			break
		}
		rest = after
		line++
	}
	first, rest, found := strings.Cut(rest, "\n")
	if !found || strings.TrimRight(first, " \t") != "---" {
		return Source{}, body, false
	}
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
