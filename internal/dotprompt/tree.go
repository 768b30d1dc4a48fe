package dotprompt

import (
	"fmt"
	"strings"
)

// Limits of a body.
const (
	maxNested = 50
	maxNodes  = 50_000
)

// node is a *textNode, a *valueNode, a *blockNode or a *partialNode.
type node any

type textNode struct {
	text string
	line int
}

// valueNode is a tag that is replaced by a value, or calls a helper.
type valueNode struct{ call *call }

// blockNode is a tag with a body, and one for the opposite.
type blockNode struct {
	call          *call
	params        []string
	body, inverse []node
	line          int
}

// partialNode is the body of another file, with another context if it has arguments.
type partialNode struct {
	name string
	call *call
	// target is the partial's body, nil if it was not found.
	target *body
}

// body is a parsed prompt or partial.
type body struct {
	file  string
	nodes []node
	// broken: what is in which block is not known.
	broken bool
}

// parse builds the tree of a body.
func parse(src Source) (*body, []Problem) {
	items, problems := scan(src)
	trimSpace(items)
	b := &builder{file: src.File}
	root := b.block(items)
	return &body{file: src.File, nodes: root, broken: len(b.problems) > 0}, append(problems, b.problems...)
}

// open is a block that has not ended.
type open struct {
	block   *blockNode
	name    string
	nodes   []node
	inverse bool // nodes are those of the opposite
	other   bool // it has an else
	chained bool // begun by an else with a condition: it ends with its parent
}

type builder struct {
	file     string
	problems []Problem
	stack    []*open
	count    int
}

func (b *builder) problem(line int, format string, args ...any) {
	b.problems = append(b.problems, Problem{b.file, line, fmt.Sprintf(format, args...)})
}

func (b *builder) top() *open { return b.stack[len(b.stack)-1] }

func (b *builder) add(n node) { b.top().nodes = append(b.top().nodes, n) }

func (b *builder) block(items []item) []node {
	b.stack = []*open{{}}
	for _, it := range items {
		if b.count++; b.count > maxNodes {
			b.problem(it.line, "more than %d tags and texts: split the prompt", maxNodes)
			break
		}
		switch it.kind {
		case itemText:
			if it.text != "" {
				b.add(&textNode{it.text, it.line})
			}
		case itemValue:
			if it.call != nil {
				b.add(&valueNode{it.call})
			}
		case itemPartial:
			b.partial(it)
		case itemOpen, itemInverse:
			if len(b.stack) > maxNested {
				b.problem(it.line, "blocks are nested more than %d deep", maxNested)
				return b.stack[0].nodes
			}
			b.push(it, false)
			b.top().inverse = it.kind == itemInverse
		case itemElse:
			b.otherwise(it)
		case itemClose:
			b.close(it)
		case itemComment:
		}
	}
	for _, o := range b.stack[1:] {
		if !o.chained {
			b.problem(o.block.line, "the block {{#%s}} has no end: add {{/%s}}", o.name, o.name)
		}
	}
	for len(b.stack) > 1 {
		b.pop()
	}
	return b.stack[0].nodes
}

func (b *builder) push(it item, chained bool) {
	o := &open{block: &blockNode{call: it.call, params: it.params, line: it.line}, chained: chained}
	if it.call != nil {
		if p, ok := it.call.head.(*path); ok {
			o.name = p.text
		}
	}
	b.stack = append(b.stack, o)
}

// pop ends the innermost block.
func (b *builder) pop() {
	o := b.top()
	if o.inverse {
		o.block.inverse = o.nodes
	} else {
		o.block.body = o.nodes
	}
	b.stack = b.stack[:len(b.stack)-1]
	if o.block.call != nil {
		b.add(o.block)
	}
}

func (b *builder) otherwise(it item) {
	o := b.top()
	switch {
	case len(b.stack) == 1:
		b.problem(it.line, "{{else}} is outside of a block")
		return
	case o.other:
		b.problem(it.line, "the block {{#%s}} has a second {{else}}", o.name)
		return
	}
	if o.inverse {
		o.block.inverse = o.nodes
	} else {
		o.block.body = o.nodes
	}
	o.nodes, o.inverse, o.other = nil, !o.inverse, true
	if it.call == nil {
		return
	}
	if len(b.stack) > maxNested {
		b.problem(it.line, "blocks are nested more than %d deep", maxNested)
		return
	}
	b.push(it, true)
}

func (b *builder) close(it item) {
	for len(b.stack) > 1 && b.top().chained {
		b.pop()
	}
	if len(b.stack) == 1 {
		b.problem(it.line, "{{/%s}} has no beginning", it.text)
		return
	}
	if o := b.top(); it.text != "" && o.name != it.text {
		b.problem(it.line, "{{/%s}} ends the block {{#%s}} of line %d: write {{/%s}}", it.text, o.name, o.block.line, o.name)
	}
	b.pop()
}

func (b *builder) partial(it item) {
	if it.call == nil {
		return
	}
	p := &partialNode{call: it.call}
	switch head := it.call.head.(type) {
	case *path:
		p.name = head.text
	case *literal:
		p.name, _ = head.value.(string)
	}
	if p.name == "" {
		b.problem(it.line, "the name of a partial is fixed: write {{>name}}, and a condition around it")
		return
	}
	b.add(p)
}

// trimLeft replaces a text by its end.
func (it *item) trimLeft(end string) {
	it.line += strings.Count(it.text[:len(it.text)-len(end)], "\n")
	it.text = end
}

// trimSpace removes the white space that belongs to tags: what a tilde names, and the whole line of a block, else, comment or partial that has
// a line of its own.
func trimSpace(items []item) {
	original := make([]string, len(items))
	for i, it := range items {
		original[i] = it.text
	}
	// The white space before and after a tag, if it is alone on its line.
	before := func(i int) (string, bool) {
		if i == 0 {
			return "", true
		}
		if items[i-1].kind != itemText {
			return "", false
		}
		text := original[i-1]
		line := text[strings.LastIndexByte(text, '\n')+1:]
		return line, strings.Trim(line, " \t") == "" && (len(line) < len(text) || i == 1)
	}
	after := func(i int) (string, bool) {
		if i == len(items)-1 {
			return "", true
		}
		if items[i+1].kind != itemText {
			return "", false
		}
		text := original[i+1]
		line, _, ends := strings.Cut(text, "\n")
		if ends {
			line += "\n"
		}
		return line, strings.Trim(line, " \t\n") == "" && (ends || i+1 == len(items)-1)
	}
	for i, it := range items {
		if it.kind == itemText {
			continue
		}
		lead, begins := before(i)
		tail, ends := after(i)
		alone := it.kind != itemValue && begins && ends
		if i+1 < len(items) && items[i+1].kind == itemText {
			switch next := &items[i+1]; {
			case it.right:
				next.trimLeft(strings.TrimLeft(next.text, " \t\r\n"))
			case alone:
				next.trimLeft(strings.TrimPrefix(next.text, tail))
			}
		}
		if i > 0 && items[i-1].kind == itemText {
			switch prev := &items[i-1]; {
			case it.left:
				prev.text = strings.TrimRight(prev.text, " \t\r\n")
			case alone && it.kind != itemPartial: // a partial's first line keeps its indentation; its values are never indented
				prev.text = strings.TrimSuffix(prev.text, lead)
			}
		}
	}
}
