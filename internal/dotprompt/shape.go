package dotprompt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/internal/editdistance"
)

// shape is what is known of a value before it is rendered.
type shape struct {
	kind  Kind
	name  string           // of Config.Names, if it is one of them
	names map[string]shape // of an object
}

var anyShape = shape{kind: KindAny}

// level is a context of the checks, as scope is one of rendering.
type level struct {
	parent *level
	this   shape
	params map[string]shape
	each   bool
}

func text(e expression) (string, bool) {
	if l, ok := e.(*literal); ok {
		s, ok := l.value.(string)
		return s, ok
	}
	return "", false
}

// shapeOf returns what a call returns, and checks it.
func (c *compiler) shapeOf(call *call, at *level) shape {
	name := call.helper()
	if name == "" {
		if len(call.args)+len(call.hash) > 0 {
			written := "this"
			if p, ok := call.head.(*path); ok {
				written = p.text
			}
			hint := "use one of " + strings.Join(Helpers(), ", ")
			if meant := editdistance.Nearest(written, Helpers()); meant != "" {
				hint = "write " + meant
			}
			c.problem(call.line, "there is no helper %.*q: %s", maxQuoted, written, hint)
			return anyShape
		}
		return c.shape(call.head, at)
	}
	if !helpers[name].value {
		c.problem(call.line, "%s cannot be an argument", name)
		return anyShape
	}
	if !c.arguments(call, name) {
		return anyShape
	}
	args := make([]shape, len(call.args))
	for i, a := range call.args {
		args[i] = c.shape(a, at)
	}
	for _, p := range call.hash {
		c.shape(p.value, at)
	}
	switch name {
	case "document":
		for _, a := range args {
			c.printable(a, call.line, `{{#each}} around {{document "name" this}}`)
		}
	case "json":
		if args[0].kind == KindImage {
			c.problem(call.line, "an image cannot be printed: write {{media url=…}}")
		}
	case "schema":
		c.uses.Schema = true
		if !c.cfg.Schema {
			c.problem(call.line, "the step has no schema for its output: add one, or remove {{schema}}")
		}
	}
	return shape{kind: KindText}
}

func (c *compiler) printable(s shape, line int, list string) {
	switch {
	case s.kind == KindList:
		c.problem(line, "a list cannot be printed: write %s", list)
	case s.kind == KindImage:
		c.problem(line, "an image cannot be printed: write {{media url=…}}")
	case s.names != nil:
		c.problem(line, "all variables together cannot be printed: name one")
	}
}

// shape returns what an expression is, and checks its names.
func (c *compiler) shape(e expression, at *level) shape {
	switch e := e.(type) {
	case *call:
		return c.shapeOf(e, at)
	case *path:
		return c.path(e, at)
	case *literal:
		if _, ok := e.value.(string); ok {
			return shape{kind: KindText}
		}
	}
	return anyShape
}

func (c *compiler) path(p *path, at *level) shape {
	parts := p.parts
	current := at
	switch {
	case p.data && parts[0] == "root":
		c.use(c.root, parts[1:])
		return c.walk(p, c.root, parts[1:], at)
	case p.data:
		switch name := parts[0]; {
		case slices.Contains([]string{"index", "first", "last", "key"}, name):
			if !at.each && c.cfg.Context != nil {
				c.problem(p.line, "@%s is known within {{#each}} only", name)
			}
		case c.cfg.Context != nil && !slices.Contains(c.cfg.Context, name):
			c.problem(p.line, "there is no @%s: use one of %s", name, "@"+strings.Join(c.cfg.Context, ", @"))
		default:
			c.context[name] = true
		}
		return anyShape
	}
	for range p.up {
		if current.parent == nil {
			c.problem(p.line, "%s has nothing outside: remove ../", p.text)
			return anyShape
		}
		current = current.parent
	}
	if p.up == 0 && !p.this {
		for l := at; l != nil; l = l.parent {
			if s, ok := l.params[parts[0]]; ok {
				return c.walk(p, s, parts[1:], at)
			}
		}
	}
	c.use(current.this, parts)
	return c.walk(p, current.this, parts, at)
}

// use notes the name of a variable.
func (c *compiler) use(s shape, parts []string) {
	if len(parts) > 0 && s.names != nil {
		if _, ok := c.cfg.Names[parts[0]]; ok {
			c.names[parts[0]] = true
		}
	}
}

func (c *compiler) walk(p *path, s shape, parts []string, at *level) shape {
	for _, part := range parts {
		switch {
		case s.names != nil:
			next, ok := s.names[part]
			if !ok {
				c.problem(p.line, "there is no variable %.*q%s", maxQuoted, part, c.suggest(part, s))
				return anyShape
			}
			s = next
		case s.kind != KindAny:
			hint := "it is a single value"
			if _, ok := c.root.names[part]; ok && len(parts) == 1 && at.parent != nil {
				hint = fmt.Sprintf("here it is a part of the item: write {{this}} for the item, and {{@root.%s}} for the variable", part)
			}
			c.problem(p.line, "%s has no part %q: %s", cmp.Or(strings.TrimSuffix(strings.TrimSuffix(p.text, part), "."), "this"), part, hint)
			return anyShape
		}
	}
	return s
}

// maxQuoted is how much of a name a problem quotes, in bytes.
const maxQuoted = 80

// suggest returns the names that could be meant.
func (c *compiler) suggest(name string, s shape) string {
	names := slices.Sorted(maps.Keys(s.names))
	if meant := editdistance.Nearest(name, names); meant != "" {
		c.use(s, []string{meant})
		return ": write " + meant
	}
	if len(names) == 0 {
		return ": declare it under variables"
	}
	return ": declare it under variables, or use one of " + strings.Join(names, ", ")
}
