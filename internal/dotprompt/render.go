package dotprompt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Data is what a prompt is rendered with. Values are nil, bool, numbers, strings, lists, objects (map[string]any) and Media.
type Data struct {
	Values map[string]any
	// Context are the values after @.
	Context map[string]any
	// History are the earlier messages of the conversation.
	History []Message
	// Schema is the JSON Schema of the output.
	Schema string
	// Trim removes the white space that the body itself has at the ends of messages.
	Trim bool
}

// Limits of rendering.
const (
	MaxOutput = 32 << 20 // bytes
	MaxTime   = 10 * time.Second
	maxSteps  = 2_000_000
)

// scope is a context of rendering.
type scope struct {
	parent *scope
	this   any
	params map[string]any
	data   map[string]any // @index and others
}

type renderer struct {
	ctx     context.Context
	out     *assembler
	root    any
	context any
	schema  string
	steps   int
	checked int // the steps at the last look at the clock
	file    string
}

// stepsPerCheck is how many steps are made between two looks at the clock.
const stepsPerCheck = 512

// Render returns the messages of a prompt. Its error names file and line.
func (p *Prompt) Render(ctx context.Context, data Data) ([]Message, error) {
	if p.body == nil {
		return nil, errors.New("the prompt has problems")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, MaxTime, fmt.Errorf("rendering takes more than %s", MaxTime))
	defer cancel()
	values, err := canonical(data.Values, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.body.file, err)
	}
	outside, err := canonical(data.Context, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.body.file, err)
	}
	r := &renderer{
		ctx: ctx, root: values, context: outside, schema: data.Schema, file: p.body.file,
		out: &assembler{role: RoleUser, history: data.History, maxSize: MaxOutput, trim: data.Trim},
	}
	if err := r.nodes(p.body.nodes, &scope{this: values}); err != nil {
		return nil, err
	}
	return r.out.end()
}

// positionError is an error with its place.
type positionError struct {
	Problem
	err error
}

func (e *positionError) Unwrap() error { return e.err }

// at adds the place to an error that has none.
func (r *renderer) at(line int, err error) error {
	var placed *positionError
	if err == nil || errors.As(err, &placed) {
		return err
	}
	return &positionError{Problem{r.file, line, err.Error()}, err}
}

func (r *renderer) step() error { return r.work(1) }

// bytesPerStep is how much of a text is processed in the time of a step.
const bytesPerStep = 128

// work counts steps.
func (r *renderer) work(steps int) error {
	if r.steps += steps; r.steps > maxSteps {
		return fmt.Errorf("rendering takes more than %d steps", maxSteps)
	}
	if r.steps-r.checked >= stepsPerCheck {
		r.checked = r.steps
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
	}
	return nil
}

func (r *renderer) nodes(nodes []node, at *scope) error {
	for _, n := range nodes {
		line, err := r.node(n, at)
		if err == nil {
			err = r.step()
		}
		if err != nil {
			return r.at(line, err)
		}
	}
	return nil
}

func (r *renderer) node(n node, at *scope) (line int, err error) {
	switch n := n.(type) {
	case *textNode:
		return n.line, r.out.literal(n.text)
	case *valueNode:
		return n.call.line, r.value(n.call, at)
	case *blockNode:
		return n.line, r.block(n, at)
	case *partialNode:
		return n.call.line, r.partial(n, at)
	default:
		return 0, fmt.Errorf("unknown node %T", n)
	}
}

func (r *renderer) partial(n *partialNode, at *scope) error {
	inner := *at
	if len(n.call.args) == 1 {
		v, err := r.eval(n.call.args[0], at)
		if err != nil {
			return err
		}
		inner = scope{parent: at, this: v}
	}
	if len(n.call.hash) > 0 {
		object := map[string]any{}
		if this, ok := inner.this.(map[string]any); ok {
			maps.Copy(object, this)
		}
		for _, p := range n.call.hash {
			v, err := r.eval(p.value, at)
			if err != nil {
				return err
			}
			object[p.name] = v
		}
		inner.this = object
	}
	file := r.file
	r.file = n.target.file
	err := r.nodes(n.target.nodes, &inner)
	r.file = file
	return err
}

func (r *renderer) value(c *call, at *scope) error {
	switch c.helper() {
	case "role":
		name, _ := text(c.args[0])
		return r.out.begin(Role(name))
	case "history":
		return r.out.past()
	case "section":
		name, _ := text(c.args[0])
		return r.out.section(name)
	case "media":
		return r.media(c, at)
	}
	v, err := r.eval(c, at)
	if err != nil {
		return err
	}
	s, err := printed(v)
	if err != nil {
		return err
	}
	return r.out.value(s)
}

func (r *renderer) media(c *call, at *scope) error {
	hash, err := r.hash(c, at)
	if err != nil {
		return err
	}
	m, ok := hash["url"].(Media)
	switch {
	case !truth(hash["url"]):
		return nil
	case !ok:
		return errors.New("the image of {{media}} is a variable of kind image: an address in a text is never opened")
	}
	kind, _ := hash["contentType"].(string)
	m.ContentType = cmp.Or(kind, m.ContentType)
	return r.out.media(m)
}

func (r *renderer) hash(c *call, at *scope) (map[string]any, error) {
	values := map[string]any{}
	for _, p := range c.hash {
		v, err := r.eval(p.value, at)
		if err != nil {
			return nil, err
		}
		values[p.name] = v
	}
	return values, nil
}

func (r *renderer) block(n *blockNode, at *scope) error {
	args := make([]any, len(n.call.args))
	for i, a := range n.call.args {
		var err error
		if args[i], err = r.eval(a, at); err != nil {
			return err
		}
	}
	hash, err := r.hash(n.call, at)
	if err != nil {
		return err
	}
	holds := false
	switch n.call.helper() {
	case "each":
		return r.each(n, args[0], at)
	case "with":
		if truth(args[0]) {
			return r.nodes(n.body, &scope{parent: at, this: args[0], params: params(n, args[0], nil), data: at.data})
		}
	case "if":
		holds = truth(args[0]) || args[0] == float64(0) && truth(hash["includeZero"])
	case "unless":
		holds = !truth(args[0]) && (args[0] != float64(0) || !truth(hash["includeZero"]))
	case "ifEquals", "unlessEquals":
		holds = equal(args[0], args[1]) == (n.call.helper() == "ifEquals")
		if s, ok := args[0].(string); ok {
			err = r.work(len(s) / bytesPerStep)
		}
	}
	if err != nil {
		return err
	}
	if holds {
		return r.nodes(n.body, at)
	}
	return r.nodes(n.inverse, at)
}

func params(n *blockNode, item, key any) map[string]any {
	if len(n.params) == 0 {
		return nil
	}
	values := map[string]any{}
	for i, name := range n.params {
		values[name] = []any{item, key}[i]
	}
	return values
}

func (r *renderer) each(n *blockNode, v any, at *scope) error {
	var keys, items []any
	switch v := v.(type) {
	case []any:
		items = v
		for i := range v {
			keys = append(keys, float64(i))
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			keys, items = append(keys, name), append(items, v[name])
		}
	}
	if len(items) == 0 {
		return r.nodes(n.inverse, at)
	}
	for i, item := range items {
		if err := r.step(); err != nil {
			return err
		}
		inner := &scope{parent: at, this: item, params: params(n, item, keys[i]), data: map[string]any{
			"index": float64(i), "key": keys[i], "first": i == 0, "last": i == len(items)-1,
		}}
		if err := r.nodes(n.body, inner); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) eval(e expression, at *scope) (any, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	switch e := e.(type) {
	case *literal:
		return e.value, nil
	case *path:
		return r.path(e, at), nil
	case *call:
		return r.call(e, at)
	default:
		return nil, fmt.Errorf("unknown expression %T", e)
	}
}

func (r *renderer) call(c *call, at *scope) (any, error) {
	name := c.helper()
	if name == "" {
		return r.eval(c.head, at)
	}
	args := make([]any, len(c.args))
	for i, a := range c.args {
		var err error
		if args[i], err = r.eval(a, at); err != nil {
			return nil, err
		}
	}
	hash, err := r.hash(c, at)
	if err != nil {
		return nil, err
	}
	switch name {
	case "json":
		indent, _ := hash["indent"].(float64)
		s, err := jsonText(args[0], int(min(max(indent, 0), maxIndent)))
		return s, cmp.Or(err, r.work(len(s)/bytesPerStep))
	case "document":
		name, err := printed(args[0])
		if err != nil {
			return nil, err
		}
		body, err := printed(args[1])
		if err != nil {
			return nil, err
		}
		return Document(name, body), r.work(len(body) / bytesPerStep)
	default: // schema
		return r.schema, nil
	}
}

func (r *renderer) path(p *path, at *scope) any {
	parts := p.parts
	switch {
	case p.data && parts[0] == "root":
		return follow(r.root, parts[1:])
	case p.data:
		for s := at; s != nil; s = s.parent {
			if v, ok := s.data[parts[0]]; ok {
				return follow(v, parts[1:])
			}
		}
		return follow(r.context, parts)
	}
	current := at
	for range p.up {
		if current = current.parent; current == nil {
			return nil
		}
	}
	if p.up == 0 && !p.this {
		for s := at; s != nil; s = s.parent {
			if v, ok := s.params[parts[0]]; ok {
				return follow(v, parts[1:])
			}
		}
	}
	return follow(current.this, parts)
}

// follow returns the part of a value that names lead to, nil for none.
func follow(v any, parts []string) any {
	for _, part := range parts {
		switch object := v.(type) {
		case map[string]any:
			v = object[part]
		case []any:
			var i int
			if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(object) {
				return nil
			}
			v = object[i]
		default:
			return nil
		}
	}
	return v
}
