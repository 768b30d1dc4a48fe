package dotprompt

import (
	"slices"
	"strconv"
	"strings"
)

// call is a value, or a helper with its arguments.
type call struct {
	head expression
	args []expression
	hash []pair
	line int
}

// pair is a named argument.
type pair struct {
	name  string
	value expression
}

// expression is a *literal, a *path or a *call in parentheses.
type expression any

// literal is a constant: a string, float64, bool or nil.
type literal struct{ value any }

// path names a value, such as items, ../name, @index or this.
type path struct {
	text  string // as it is written
	data  bool   // after @
	up    int    // the number of ..
	this  bool   // begins with this or a dot
	parts []string
	line  int
}

// name returns the name that a helper would have, empty for a path that is certainly a value.
func (p *path) name() string {
	if p.data || p.up > 0 || p.this || len(p.parts) != 1 {
		return ""
	}
	return p.parts[0]
}

// helper returns the name of the helper that a call calls, empty for a value.
func (c *call) helper() string {
	if p, ok := c.head.(*path); ok {
		if name := p.name(); isHelper(name) {
			return name
		}
	}
	return ""
}

func (s *scanner) call() (*call, *syntaxError) {
	c := &call{line: s.lineAt(max(s.pos, s.counted))}
	head, fault := s.expression()
	if fault != nil {
		return c, fault
	}
	c.head = head
	for !s.atEnd() && s.src.Text[s.pos] != ')' && s.src.Text[s.pos] != '|' {
		if s.atBlockParams() {
			break
		}
		if word := s.peekWord(); word != "" && strings.HasPrefix(strings.TrimLeft(s.src.Text[s.pos+len(word):], " \t\n"), "=") {
			s.pos += len(word)
			s.space()
			s.pos++
			s.space()
			if slices.ContainsFunc(c.hash, func(p pair) bool { return p.name == word }) {
				return c, s.fail("%s is given twice", word)
			}
			value, fault := s.expression()
			if fault != nil {
				return c, fault
			}
			c.hash = append(c.hash, pair{word, value})
			continue
		}
		if len(c.hash) > 0 {
			return c, s.fail("write arguments without a name before those with one")
		}
		arg, fault := s.expression()
		if fault != nil {
			return c, fault
		}
		c.args = append(c.args, arg)
	}
	return c, nil
}

func (s *scanner) expression() (expression, *syntaxError) {
	s.space()
	rest := s.src.Text[s.pos:]
	switch {
	case rest == "":
		return nil, s.unexpected("}}")
	case rest[0] == '(':
		if s.depth++; s.depth > maxSubexpressions {
			return nil, s.fail("expressions are nested more than %d deep", maxSubexpressions)
		}
		defer func() { s.depth-- }()
		s.pos++
		c, fault := s.call()
		if fault != nil {
			return nil, fault
		}
		if s.space(); !s.accept(")") {
			return nil, s.unexpected(")")
		}
		return c, nil
	case rest[0] == '"' || rest[0] == '\'':
		return s.text(rest[0])
	}
	if number, ok := s.number(); ok {
		return number, nil
	}
	switch word := s.peekWord(); word {
	case "true", "false":
		s.pos += len(word)
		return &literal{word == "true"}, nil
	case "null", "undefined":
		s.pos += len(word)
		return &literal{}, nil
	}
	return s.path()
}

func (s *scanner) text(quote byte) (*literal, *syntaxError) {
	var b strings.Builder
	src := s.src.Text
	for i := s.pos + 1; i < len(src) && src[i] != '\n'; i++ {
		switch {
		case src[i] == '\\' && i+1 < len(src) && src[i+1] == quote:
			i++
			b.WriteByte(quote)
		case src[i] == quote:
			s.pos = i + 1
			return &literal{b.String()}, nil
		default:
			b.WriteByte(src[i])
		}
	}
	return nil, s.fail("the text has no end: add %c", quote)
}

func (s *scanner) number() (*literal, bool) {
	word := s.peekWord()
	text := word
	if rest := s.src.Text[s.pos+len(word):]; word != "" && strings.HasPrefix(rest, ".") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9' {
		end := strings.IndexFunc(rest[1:], func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(rest) - 1
		}
		text += rest[:end+1]
	}
	if text == "" || strings.Trim(text, "-0123456789.") != "" {
		return nil, false
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, false
	}
	s.pos += len(text)
	return &literal{v}, true
}

func (s *scanner) path() (*path, *syntaxError) {
	p := &path{line: s.lineAt(max(s.pos, s.counted))}
	begin := s.pos
	p.data = s.accept("@")
	for {
		switch {
		case s.accept(".."):
			if p.this || len(p.parts) > 0 {
				return nil, s.fail("write .. only at the beginning of a path")
			}
			p.up++
		case s.accept("."):
			p.this = true
		case s.accept("["):
			end := strings.IndexAny(s.src.Text[s.pos:], "]\n")
			if end < 0 || s.src.Text[s.pos+end] != ']' {
				return nil, s.fail("the name has no end: add ]")
			}
			p.parts = append(p.parts, s.src.Text[s.pos:s.pos+end])
			s.pos += end + 1
		default:
			word := s.peekWord()
			switch {
			case word == "":
				return nil, s.unexpected("a name")
			case word == "this" && len(p.parts) == 0 && p.up == 0 && !p.data:
				p.this = true
			default:
				p.parts = append(p.parts, word)
			}
			s.pos += len(word)
		}
		if rest := s.src.Text[s.pos:]; !strings.HasPrefix(rest, "/") && (!strings.HasPrefix(rest, ".") || p.this && len(p.parts) == 0 && s.src.Text[s.pos-1] == '.') {
			break
		}
		s.pos++
	}
	p.text = s.src.Text[begin:s.pos]
	if p.data && (len(p.parts) == 0 || p.up > 0) {
		return nil, s.fail("@ is followed by a name, such as @index")
	}
	return p, nil
}

// atBlockParams reports whether the names of a block follow: as |item index|.
func (s *scanner) atBlockParams() bool {
	return s.peekWord() == "as" && strings.HasPrefix(strings.TrimLeft(s.src.Text[s.pos+len("as"):], " \t\n"), "|")
}

func (s *scanner) blockParams(kind itemKind) ([]string, *syntaxError) {
	s.space()
	if !s.atBlockParams() {
		return nil, nil
	}
	if kind != itemOpen {
		return nil, s.fail("only {{#each}} and {{#with}} have names between | and |")
	}
	s.pos += len("as")
	s.space()
	s.pos++
	var names []string
	for s.space(); !s.accept("|"); s.space() {
		word := s.peekWord()
		if word == "" {
			return nil, s.unexpected("a name or |")
		}
		names = append(names, word)
		s.pos += len(word)
	}
	if len(names) == 0 || len(names) > 2 {
		return nil, s.fail("write one or two names between | and |: that of the item and that of its number")
	}
	return names, nil
}
