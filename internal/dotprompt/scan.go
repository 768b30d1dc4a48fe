package dotprompt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Source is the text of a prompt or partial, and where it is.
type Source struct {
	File string
	// Line is the number of its first line in the file.
	Line int
	Text string
}

// Problem is what is wrong at a line of a file.
type Problem struct {
	File    string
	Line    int
	Message string
}

func (p Problem) Error() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message) }

// itemKind is the kind of an item.
type itemKind int

const (
	itemText itemKind = iota
	itemValue
	itemOpen
	itemInverse // {{^name}}
	itemElse
	itemClose
	itemPartial
	itemComment
)

// item is a text or a tag of a body, in their order.
type item struct {
	kind   itemKind
	text   string // of a text; the name of a close tag
	call   *call  // of the other tags; nil for an else without a condition
	params []string
	line   int
	// left and right: the tag has a tilde on this side, which removes the white space there.
	left, right bool
}

// scanner splits a body into items. It continues behind a tag that it cannot read.
type scanner struct {
	src      Source
	pos      int
	line     int // of pos
	counted  int // up to here lines are counted
	items    []item
	problems []Problem
	depth    int
}

// maxSubexpressions bounds how deep expressions are nested.
const maxSubexpressions = 16

// syntaxError ends the tag in which it is found.
type syntaxError struct {
	line    int
	message string
}

func (s *scanner) lineAt(pos int) int {
	s.line += strings.Count(s.src.Text[s.counted:pos], "\n")
	s.counted = pos
	return s.line
}

func scan(src Source) ([]item, []Problem) {
	src.Text = strings.ReplaceAll(src.Text, "\r\n", "\n")
	s := &scanner{src: src, line: src.Line}
	var text strings.Builder
	from := 0
	flush := func() {
		if text.Len() > 0 {
			s.items = append(s.items, item{kind: itemText, text: text.String(), line: s.lineAt(from)})
			text.Reset()
		}
	}
	for {
		rest := src.Text[s.pos:]
		i := strings.Index(rest, "{{")
		if i < 0 {
			text.WriteString(rest)
			flush()
			return s.items, s.problems
		}
		escaped := i > 0 && rest[i-1] == '\\'
		if escaped && (i == 1 || rest[i-2] != '\\') {
			text.WriteString(rest[:i-1])
			text.WriteString("{{")
			s.pos += i + 2
			continue
		}
		if escaped {
			text.WriteString(rest[:i-1])
		} else {
			text.WriteString(rest[:i])
		}
		flush()
		s.pos += i
		s.tag()
		from = s.pos
	}
}

// tag reads the tag at the position, and continues behind it.
func (s *scanner) tag() {
	begin := s.pos
	it, err := s.readTag()
	if err == nil {
		s.items = append(s.items, it)
		return
	}
	s.problems = append(s.problems, Problem{s.src.File, err.line, err.message})
	if it.kind != itemText { // keeps the structure of blocks
		s.items = append(s.items, it)
	}
	if end := strings.Index(s.src.Text[begin:], "}}"); end >= 0 {
		s.pos = max(s.pos, begin+end+2)
	} else {
		s.pos = len(s.src.Text)
	}
}

// comments are the delimiters of comments: the first may contain tags.
var comments = []struct{ begin, end string }{{"!--", "--"}, {"!", ""}}

func (s *scanner) readTag() (it item, err *syntaxError) {
	it.line = s.lineAt(s.pos)
	it.kind = itemText
	rest := s.src.Text[s.pos:]
	if strings.HasPrefix(rest, "{{{{") {
		return it, s.fail("raw blocks ({{{{) are not supported: write \\{{ before text that is not a tag")
	}
	unescaped := strings.HasPrefix(rest, "{{{")
	s.pos += 2
	if it.left = s.accept("~"); !unescaped && it.left && s.accept("{") {
		unescaped = true
	} else if unescaped {
		s.pos++
	}
	for _, c := range comments {
		if !unescaped && strings.HasPrefix(s.src.Text[s.pos:], c.begin) {
			return s.comment(it, c.end)
		}
	}
	it.kind = itemValue
	switch {
	case unescaped:
	case s.accept("#>"), s.accept("#*"):
		return item{kind: itemText}, s.fail("inline partials and partial blocks are not supported: move the text to a file _name.prompt and write {{>name}}")
	case s.accept("#"):
		it.kind = itemOpen
	case s.accept("/"):
		it.kind = itemClose
	case s.accept(">"):
		it.kind = itemPartial
	case s.accept("^"):
		it.kind = itemInverse
	case s.accept("&"):
	}
	s.space()
	if word := s.peekWord(); word == "else" && it.kind == itemValue && !unescaped {
		s.pos += len(word)
		it.kind = itemElse
		s.space()
	}
	if it.kind == itemInverse && s.atEnd() {
		it.kind = itemElse
	}
	if it.kind == itemClose {
		p, fault := s.path()
		if fault != nil {
			return it, fault
		}
		it.text = p.text
	} else if !s.atEnd() || it.kind != itemElse {
		c, fault := s.call()
		it.call = c
		if fault != nil {
			return it, fault
		}
		if it.params, fault = s.blockParams(it.kind); fault != nil {
			return it, fault
		}
	}
	return s.endTag(it, unescaped)
}

func (s *scanner) endTag(it item, unescaped bool) (item, *syntaxError) {
	s.space()
	if unescaped && !s.accept("}") {
		return it, s.unexpected("}}}")
	}
	it.right = s.accept("~")
	if !s.accept("}}") {
		return it, s.unexpected("}}")
	}
	return it, nil
}

func (s *scanner) comment(it item, end string) (item, *syntaxError) {
	rest := s.src.Text[s.pos:]
	plain, tilde := strings.Index(rest, end+"}}"), strings.Index(rest, end+"~}}")
	if plain < 0 && tilde < 0 {
		s.pos = len(s.src.Text)
		return it, &syntaxError{it.line, "the comment has no end: add " + end + "}}"}
	}
	it.kind = itemComment
	if plain < 0 || tilde >= 0 && tilde < plain {
		it.right = true
		plain = tilde + 1
	}
	s.pos += plain + len(end) + 2
	return it, nil
}

func (s *scanner) fail(format string, args ...any) *syntaxError {
	return &syntaxError{s.lineAt(max(s.pos, s.counted)), fmt.Sprintf(format, args...)}
}

// unexpected is the error of a position where something else is required.
func (s *scanner) unexpected(wanted string) *syntaxError {
	if s.pos >= len(s.src.Text) {
		return s.fail("the tag has no end: add %s", wanted)
	}
	r, _ := utf8.DecodeRuneInString(s.src.Text[s.pos:])
	return s.fail("unexpected %q in a tag: expected %s", r, wanted)
}

func (s *scanner) accept(prefix string) bool {
	if !strings.HasPrefix(s.src.Text[s.pos:], prefix) {
		return false
	}
	s.pos += len(prefix)
	return true
}

func (s *scanner) space() {
	for s.pos < len(s.src.Text) && strings.IndexByte(" \t\r\n", s.src.Text[s.pos]) >= 0 {
		s.pos++
	}
}

// atEnd reports whether the tag ends here.
func (s *scanner) atEnd() bool {
	s.space()
	rest := strings.TrimPrefix(s.src.Text[s.pos:], "~")
	return rest == "" || strings.HasPrefix(rest, "}")
}

// isWord reports whether a character may be in a name without brackets.
func isWord(r rune) bool {
	return r == '_' || r == '-' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

func (s *scanner) peekWord() string {
	rest := s.src.Text[s.pos:]
	end := strings.IndexFunc(rest, func(r rune) bool { return !isWord(r) })
	if end < 0 {
		return rest
	}
	return rest[:end]
}
