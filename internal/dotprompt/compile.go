package dotprompt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/internal/editdistance"
)

// Kind is what a name in a body has as its value.
type Kind int

// The kinds of values. A value of KindAny is not known before it is rendered.
const (
	KindAny Kind = iota
	KindText
	KindList // of texts
	KindImage
)

// Config is what a body may use.
type Config struct {
	// Names are the values that a body can name; nil if they are not known.
	Names map[string]Kind
	// Context are the names that a body can use after @, besides those of {{#each}} and root; nil if they are not known.
	Context []string
	// Partial returns the text of a partial. Its error is the problem of the tag.
	Partial func(name string) (Source, error)
	// Schema: the prompt has a schema for its output.
	Schema bool
}

// Prompt is a compiled prompt. It is immutable, and safe for concurrent use.
type Prompt struct {
	body *body
	uses Uses
}

// Uses is what the bodies of a prompt and its partials contain.
type Uses struct {
	// Names are those of Config.Names that occur, sorted; Images are those that become media.
	Names, Images []string
	// Partials are the names of the partials, sorted.
	Partials []string
	// Schema: the schema of the output is part of the text.
	Schema bool
	// Content: there is a text, a value or an image. Without it, the prompt has no message whatever the values are.
	Content bool
	// Context are the names after @ of Config.Context that occur, sorted.
	Context []string
	// Literals are the texts that the bodies themselves contain.
	Literals []Source
	// Unread: a tag cannot be read, so that there may be more of all these.
	Unread bool
}

// Uses returns what the prompt contains.
func (p *Prompt) Uses() Uses { return p.uses }

// Limits of the partials of a prompt.
const (
	maxPartialDepth = 10
	maxChecked      = 200_000 // nodes, each as often as it is reached
)

type compiler struct {
	cfg      Config
	root     shape
	bodies   map[string]*body
	missing  map[string]error // by the name of a partial
	problems []Problem
	open     []string // partials that are being checked
	checked  int
	names    map[string]bool
	images   map[string]bool
	context  map[string]bool
	unread   map[Source]bool // lines, without their text, with a tag that cannot be read
	uses     Uses
	file     string
}

// Compile compiles a prompt. It returns all problems of the prompt and its partials. If there are any, the prompt cannot be rendered and states
// only what it uses, as far as its tags can be read. A misspelled name is treated as a use of the one that is probably meant.
func Compile(src Source, cfg Config) (*Prompt, []Problem) {
	c := &compiler{cfg: cfg, root: anyShape, bodies: map[string]*body{}, missing: map[string]error{}, names: map[string]bool{}, images: map[string]bool{}, context: map[string]bool{}, unread: map[Source]bool{}}
	if cfg.Names != nil {
		c.root = shape{names: map[string]shape{}}
		for name, kind := range cfg.Names {
			c.root.names[name] = shape{kind: kind, name: name}
		}
	}
	b := c.parse(src)
	for _, p := range c.problems {
		c.unread[Source{File: p.File, Line: p.Line}] = true
	}
	c.uses.Unread = len(c.problems) > 0
	c.file = b.file
	c.body(b, &level{this: c.root})
	c.uses.Names, c.uses.Images = slices.Sorted(maps.Keys(c.names)), slices.Sorted(maps.Keys(c.images))
	c.uses.Partials, c.uses.Context = slices.Sorted(maps.Keys(c.bodies)), slices.Sorted(maps.Keys(c.context))
	if len(c.problems) > 0 {
		slices.SortFunc(c.problems, func(a, b Problem) int {
			return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line, cmp.Compare(a.Message, b.Message))
		})
		return &Prompt{uses: c.uses}, slices.Compact(c.problems)
	}
	return &Prompt{body: b, uses: c.uses}, nil
}

// maxProblems bounds what is reported.
const maxProblems = 200

func (c *compiler) problem(line int, format string, args ...any) {
	if len(c.problems) >= maxProblems || c.unread[Source{File: c.file, Line: line}] {
		return
	}
	c.problems = append(c.problems, Problem{c.file, line, fmt.Sprintf(format, args...)})
}

// parse parses a body and, each once, the partials that it names.
func (c *compiler) parse(src Source) *body {
	c.file = src.File
	if at := strings.IndexByte(src.Text, 0); at >= 0 {
		c.problem(src.Line+strings.Count(src.Text[:at], "\n"), "contains a NUL character: remove it")
		return &body{file: src.File}
	}
	line := src.Line
	for text := range strings.Lines(src.Text) {
		if !utf8.ValidString(text) {
			c.problem(line, "is not UTF-8: save the file in this encoding")
			return &body{file: src.File}
		}
		line++
	}
	b, problems := parse(src)
	c.problems = append(c.problems, problems[:min(len(problems), maxProblems)]...)
	c.resolve(b, b.nodes)
	return b
}

func (c *compiler) resolve(b *body, nodes []node) {
	for _, n := range nodes {
		switch n := n.(type) {
		case *textNode:
			c.uses.Literals = append(c.uses.Literals, Source{b.file, n.line, n.text})
			c.uses.Content = c.uses.Content || strings.TrimSpace(n.text) != ""
		case *blockNode:
			c.resolve(b, n.body)
			c.resolve(b, n.inverse)
		case *partialNode:
			c.file = b.file
			if target, ok := c.bodies[n.name]; ok {
				n.target = target
				continue
			}
			src, err := Source{}, c.missing[n.name]
			switch {
			case err != nil:
			case c.cfg.Partial != nil:
				src, err = c.cfg.Partial(n.name)
			default:
				err = fmt.Errorf("there is no partial %q", n.name)
			}
			if err != nil {
				c.missing[n.name] = err
				c.problem(n.call.line, "%s", err)
				continue
			}
			n.target = &body{file: src.File}
			c.bodies[n.name] = n.target
			*n.target = *c.parse(src)
		}
	}
}

// body checks what a body does in a context.
func (c *compiler) body(b *body, at *level) {
	if !b.broken {
		c.nodes(b.nodes, at)
	}
}

// nodes checks what a part of a body does in a context.
func (c *compiler) nodes(nodes []node, at *level) {
	for _, n := range nodes {
		if c.checked++; c.checked > maxChecked {
			if c.checked == maxChecked+1 {
				c.problem(1, "its partials expand to more than %d tags: use fewer within each other", maxChecked)
			}
			return
		}
		switch n := n.(type) {
		case *valueNode:
			c.value(n.call, at)
		case *blockNode:
			c.block(n, at)
		case *partialNode:
			c.partial(n, at)
		}
	}
}

func (c *compiler) partial(n *partialNode, at *level) {
	switch {
	case n.target == nil:
		return
	case slices.Contains(c.open, n.name):
		c.problem(n.call.line, "the partial %q contains itself: %s", n.name, strings.Join(append(c.open, n.name), " > "))
		return
	case len(c.open) == maxPartialDepth:
		c.problem(n.call.line, "partials are nested more than %d deep", maxPartialDepth)
		return
	case len(n.call.args) > 1:
		c.problem(n.call.line, "a partial has at most one argument without a name")
		return
	}
	inner := &level{parent: at.parent, this: at.this, params: at.params, each: at.each}
	if len(n.call.args) == 1 {
		inner = &level{parent: at, this: c.shape(n.call.args[0], at)}
	}
	if len(n.call.hash) > 0 {
		named := shape{names: map[string]shape{}}
		maps.Copy(named.names, inner.this.names)
		for _, p := range n.call.hash {
			named.names[p.name] = c.shape(p.value, at)
		}
		if inner.this.names != nil || inner.this.kind != KindAny {
			inner.this = named
		}
	}
	file := c.file
	c.file, c.open = n.target.file, append(c.open, n.name)
	c.body(n.target, inner)
	c.file, c.open = file, c.open[:len(c.open)-1]
}

func (c *compiler) block(n *blockNode, at *level) {
	name := n.call.helper()
	if name == "" || !helpers[name].block {
		text := "…"
		if p, ok := n.call.head.(*path); ok {
			text = p.text
		}
		if len(n.call.args) > 0 || name != "" {
			c.problem(n.call.line, "there is no block {{#%.*s}}: %s", maxQuoted, text, meantBlock(text))
		} else {
			c.problem(n.call.line, "write {{#if %s}} or {{#each %s}} instead of {{#%s}}", text, text, text)
		}
		return
	}
	if !c.arguments(n.call, name) {
		return
	}
	if len(n.params) > 0 && name != "each" && name != "with" {
		c.problem(n.call.line, "only {{#each}} and {{#with}} have names between | and |")
	}
	var args []shape
	for _, a := range n.call.args {
		args = append(args, c.shape(a, at))
	}
	inner := at
	switch name {
	case "each", "with":
		inner = &level{parent: at, this: anyShape, params: map[string]shape{}, each: name == "each" || at.each}
		switch kind := args[0].kind; {
		case name == "with":
			inner.this = args[0]
		case kind == KindList:
			inner.this = shape{kind: KindText}
		case kind != KindAny || args[0].names != nil:
			c.problem(n.call.line, "{{#each}} needs a list: write {{#if}} or {{#with}} for a single value")
		}
		for i, p := range n.params {
			inner.params[p] = []shape{inner.this, anyShape}[i]
		}
	}
	c.nodes(n.body, inner)
	c.nodes(n.inverse, at)
}

// meantBlock states which block is probably meant, or which there are.
func meantBlock(name string) string {
	names := slices.DeleteFunc(Helpers(), func(name string) bool { return !helpers[name].block })
	if meant := editdistance.Nearest(name, names); meant != "" {
		return "write {{#" + meant + "}}"
	}
	for i, name := range names {
		names[i] = "{{#" + name + "}}"
	}
	return "use one of " + strings.Join(names, ", ")
}

// arguments reports whether a call has those of its helper.
func (c *compiler) arguments(call *call, name string) bool {
	h := helpers[name]
	if len(call.args) != h.args {
		c.problem(call.line, "%s has %d arguments without a name, not %d: write %s", name, h.args, len(call.args), h.usage)
		return false
	}
	for _, p := range call.hash {
		if !slices.Contains(h.named, p.name) {
			c.problem(call.line, "%s has no argument %s: write %s", name, p.name, h.usage)
			return false
		}
	}
	return true
}

func (c *compiler) value(call *call, at *level) {
	name := call.helper()
	c.uses.Content = c.uses.Content || !slices.Contains([]string{"role", "section", "history"}, name)
	if name == "" {
		c.printable(c.shapeOf(call, at), call.line, "{{#each}} around {{this}}")
		return
	}
	if helpers[name].block {
		c.problem(call.line, "write {{#%s}} with {{/%s}} at its end", name, name)
		return
	}
	if !c.arguments(call, name) {
		return
	}
	switch name {
	case "role":
		if role, ok := text(call.args[0]); !ok || !slices.Contains(Roles(), Role(role)) {
			c.problem(call.line, "the role is one of \"system\", \"user\" and \"model\", between quotation marks")
		}
	case "section":
		if section, ok := text(call.args[0]); !ok || section == "" {
			c.problem(call.line, "the name of a section is a text between quotation marks")
		}
	case "history":
	case "media":
		c.mediaArguments(call, at)
	default:
		c.shapeOf(call, at)
	}
}

func (c *compiler) mediaArguments(call *call, at *level) {
	found := false
	for _, p := range call.hash {
		s := c.shape(p.value, at)
		if p.name != "url" {
			continue
		}
		found = true
		if s.kind != KindImage && (s.kind != KindAny || s.names != nil) {
			c.problem(call.line, "the image of {{media}} is a variable of kind image: an address in a text is never opened")
		}
		if s.name != "" {
			c.images[s.name] = true
		}
	}
	if !found {
		c.problem(call.line, "{{media}} needs its image: write %s", helpers["media"].usage)
	}
}
