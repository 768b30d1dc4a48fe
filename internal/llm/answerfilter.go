package llm

import (
	"strings"
	"unicode"
)

// answerFilter removes markup from an answer while it arrives in pieces. What it returns does not depend on how the answer was cut.
//
//   - Thoughts are recognised where an answer begins only. Further back the same text is the answer's own, such as code, or a sentence
//     about the tag.
//   - Servers whose prompt ends with the opening tag return the closing one alone: then what came before it was thoughts. It is
//     recognised once, in an answer without other thoughts or an opening tag, and only where models write it: at the beginning of a
//     line, or at the end of one, or before a JSON object, not in code, behind a space or behind a quotation mark.
//   - Thoughts within thoughts end with the last of their closing tags. But thoughts may also mention the opening tag, and then the first
//     closing tag is the last one: what follows is taken as the answer, and becomes thoughts when another closing tag comes.
//   - Boxes are tokens of their models: they are removed everywhere but in code. End marks are removed at the end of an answer.
type answerFilter struct {
	held string // what can still become markup
	// closing are the tags of the thoughts which are being read, empty outside of thoughts: those that end them, and the one that may begin
	// others within them.
	closing []mark
	// depth is how many thoughts are open. certain: that some of them are within others is certain, and no mention of a tag.
	depth   int
	certain bool
	// begun: the answer has begun. thought: thoughts have ended, or come separately, or the answer has an opening tag of its own.
	begun, thought bool
	// apart: thoughts come separately, and the answer may begin with their closing tag; any other closing tag is none.
	apart     bool
	wrapper   string // the tag with which the answer may end
	trailing  string // end marks and the white space behind them
	delivered bool   // text was returned
	line      lineTracker
}

// filtered is what a piece of an answer contains.
type filtered struct {
	text, thoughts string
	// withdrawn: the text that was returned before was not the answer but thoughts.
	withdrawn bool
}

// feed returns what is certain after the next piece.
func (f *answerFilter) feed(piece string) (out filtered) {
	f.held += piece
	for progress := true; progress && f.held != ""; {
		switch {
		case len(f.closing) > 0:
			progress = f.think(&out)
		case !f.begun:
			progress = f.begin()
		default:
			progress = f.answer(&out)
		}
	}
	f.delivered = f.delivered && !out.withdrawn || out.text != ""
	return out
}

// separate notes that thoughts come separately.
func (f *answerFilter) separate() {
	f.apart = f.apart || !f.thought
	f.thought = true
}

// close returns the rest of a complete answer.
func (f *answerFilter) close() (out filtered) {
	switch {
	case len(f.closing) > 0:
		out.thoughts = f.held
	case !f.begun && f.thoughtful():
		out.text = strings.TrimLeftFunc(f.held, blank)
	case f.held != "":
		out.text = f.trailing + f.held
	}
	f.held, f.trailing = "", ""
	return out
}

// thoughtful reports whether the answer is behind thoughts.
func (f *answerFilter) thoughtful() bool { return f.thought || f.depth > 0 }

// think passes thoughts on until their end.
func (f *answerFilter) think(out *filtered) bool {
	at, found, size := find(f.held, f.closing)
	f.pass(out, f.held[:at])
	if f.held = f.held[at:]; size == 0 {
		return false
	}
	rest, quoted := f.held[size:], strings.HasSuffix(f.line.text, "`")
	if rest == "" && (quoted || found.kind == beginOfThoughts || f.depth > 1) {
		return false
	}
	switch {
	case found.kind == beginOfThoughts:
		if !quoted && !f.line.code && !strings.HasSuffix(f.line.text, `"`) {
			f.depth++
			f.certain = f.certain || strings.TrimSpace(f.line.text) == "" || !strings.ContainsAny(rest[:1], " .,;:)\"'`")
		}
		f.pass(out, f.held[:size])
	case quoted && rest[0] == '`':
		f.pass(out, f.held[:size])
	default:
		f.certain = f.certain || f.depth > 1 && !f.atEdge(rest)
		f.closing, f.line = nil, lineTracker{}
		f.closed()
	}
	f.held = rest
	return true
}

// pass passes on a part of the thoughts.
func (f *answerFilter) pass(out *filtered, thoughts string) {
	out.thoughts += thoughts
	f.line.add(thoughts)
}

// closed counts a closing tag.
func (f *answerFilter) closed() {
	f.depth = max(0, f.depth-1)
	f.thought = f.depth == 0
}

// atEdge reports whether a tag is at the beginning or the end of a line, or directly behind a text.
func (f *answerFilter) atEdge(rest string) bool {
	before := f.line.text
	return strings.TrimSpace(before) == "" || !strings.ContainsAny(before[len(before)-1:], " \t") || strings.ContainsAny(rest[:1], "\r\n{")
}

// begin looks for markup where the answer begins.
func (f *answerFilter) begin() (progress bool) {
	rest := strings.TrimLeftFunc(f.held, blank)
	if rest == "" {
		return false
	}
	undecided, empty := false, false
	take := func(tag string) bool {
		size, part := startsWith(rest, tag)
		if undecided = undecided || part; size > 0 {
			f.held, empty = rest[size:], rest[size-2:size] == "/>"
		}
		return size > 0
	}
	for _, t := range thinkingTags {
		if take(t.begin) {
			if f.depth++; empty {
				f.closed()
			} else {
				f.closing = t.marks()
			}
			return true
		}
		for _, end := range append([]string{t.end}, t.also...) {
			if (f.apart || !f.thought) && take(end) {
				f.closed()
				f.apart = false
				return true
			}
		}
	}
	for _, text := range startMarks {
		if take(text) {
			return true
		}
	}
	for _, t := range boxTags {
		if take(t.begin) {
			return true
		}
	}
	for _, t := range answerTags {
		if f.thoughtful() && f.wrapper == "" && take(t.begin) {
			f.wrapper = t.end
			return true
		}
	}
	if undecided {
		return false
	}
	if f.begun = true; f.thoughtful() {
		f.held = rest
	}
	return true
}

// marks returns what ends thoughts, and what begins others within them. Models with channels begin several thoughts and end them once.
func (t tags) marks() []mark {
	all := []mark{{t.end, endOfThoughts}}
	for _, end := range t.also {
		all = append(all, mark{end, endOfThoughts})
	}
	if len(t.also) == 0 {
		all = append(all, mark{t.begin, beginOfThoughts})
	}
	return all
}

// answer passes the answer on as far as it cannot be markup.
func (f *answerFilter) answer(out *filtered) (progress bool) {
	marks := answerMarks
	if f.wrapper != "" {
		marks = append(marks[:len(marks):len(marks)], mark{f.wrapper, endOfAnswer})
	}
	at, found, size := find(f.held, marks)
	f.emit(out, f.held[:at])
	if f.held = f.held[at:]; size == 0 {
		return false
	}
	rest, literal := f.held[size:], f.line.code || strings.HasSuffix(f.line.text, "`")
	if found.kind == endOfThoughts && !literal && !f.thought {
		decided, ended := f.endsThoughts(rest)
		if !decided {
			return false
		}
		literal = !ended
	}
	text := f.held[:size]
	f.held = rest
	switch {
	case found.kind == beginOfThoughts:
		if f.depth == 0 {
			f.thought = true
		} else if !literal {
			f.depth++
		}
		f.emit(out, text)
	case literal, found.kind == endOfThoughts && f.thought:
		if found.kind == endOfThoughts && f.depth > 1 {
			f.depth--
		}
		f.emit(out, text)
	case found.kind == endOfThoughts:
		out.thoughts += out.text + f.trailing
		out.withdrawn, out.text, f.trailing = f.delivered, "", ""
		f.begun, f.line = false, lineTracker{}
		f.closed()
	case found.kind == endOfAnswer:
		f.trailing += text
	}
	return true
}

// endsThoughts reports whether a closing tag without an opening one ends thoughts, and whether that is certain yet. If thoughts are open, it
// ends them wherever it does not look like a mention of the tag.
func (f *answerFilter) endsThoughts(rest string) (decided, ends bool) {
	before := f.line.text
	switch {
	case strings.TrimSpace(before) == "":
		return true, true
	case strings.ContainsAny(before[len(before)-1:], "'\""):
		return true, false
	case f.depth > 0 && rest == "":
		return f.certain || !strings.ContainsAny(before[len(before)-1:], " \t"), true
	case f.depth > 0:
		return true, f.certain || f.atEdge(rest)
	case strings.ContainsAny(before[len(before)-1:], " \t"):
		return true, false
	case rest == "":
		return false, false
	default:
		return true, strings.ContainsAny(rest[:1], "\r\n{")
	}
}

// emit returns text of the answer. White space behind an end mark is not certain.
func (f *answerFilter) emit(out *filtered, text string) {
	if f.trailing != "" {
		if strings.TrimFunc(text, blank) == "" {
			f.trailing += text
			return
		}
		text, f.trailing = f.trailing+text, ""
	}
	out.text += text
	f.line.add(text)
}

// blank reports whether a character shows nothing: white space, or a byte order mark.
func blank(r rune) bool { return unicode.IsSpace(r) || r == '\ufeff' || r == '\u200b' }

// lineTracker knows the line at the end of a text, and whether that is in a block of code.
type lineTracker struct {
	text string // of a long line, the beginning and the end
	code bool
}

// lineKept is more than a fence of code with its indent.
const lineKept = 64

func (l *lineTracker) add(text string) {
	for {
		line, rest, more := strings.Cut(text, "\n")
		if l.text += line; len(l.text) > 2*lineKept {
			l.text = l.text[:lineKept] + l.text[len(l.text)-lineKept:]
		}
		if !more {
			return
		}
		if fence := strings.TrimLeft(l.text, " \t>"); strings.HasPrefix(fence, "```") || strings.HasPrefix(fence, "~~~") {
			l.code = !l.code
		}
		l.text, text = "", rest
	}
}
