package template

import (
	"bytes"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"berth"
	"berth/internal/schema"
)

const (
	stagePrefix = "<<stage:"
	itemPrefix  = "<<"
	markEnd     = ">>"
	// maxIndent and maxMarkLine bound how much of a possible marker is held back, in bytes.
	maxIndent   = 8
	maxMarkLine = 8 << 10
)

// Piece is a part of an answer: text for the reader, or one marker. Exactly one field is set.
type Piece struct {
	Text  string
	Stage berth.Stage
	Item  *berth.Item
}

// StageParser separates the markers in a model's answer from its text while the answer streams in. A marker is a line of
// its own:
//
//	<<stage:compare>>                              a stage of the template
//	<<point {"requirement":"…","matched":true}>>   an item of the template, valid against its schema
//
// All other lines are text, so the answer of a model that ignores the protocol is complete. The output does not depend on
// how the answer was split into deltas. Text is held back only while its line could still become a marker. Use
// Template.NewStageParser; a parser is for one goroutine.
type StageParser struct {
	template *Template
	line     []byte // the held beginning of the line
	passing  bool   // the line is known to be text
}

// NewStageParser returns a parser for the answer of the last step of a template.
func (t *Template) NewStageParser() *StageParser { return &StageParser{template: t} }

// Feed parses the next delta and returns the pieces that are complete, in order.
func (p *StageParser) Feed(delta string) []Piece {
	var out pieces
	for len(delta) > 0 {
		if p.passing {
			n := strings.IndexByte(delta, '\n') + 1
			if n == 0 {
				n = len(delta)
			} else {
				p.passing = false
			}
			out.text(delta[:n])
			delta = delta[n:]
			continue
		}
		b := delta[0]
		delta = delta[1:]
		p.line = append(p.line, b)
		switch {
		case b == '\n':
			p.endLine(&out)
		case !p.template.couldBeMark(p.line):
			out.text(string(p.line))
			p.line = p.line[:0]
			p.passing = true
		}
	}
	return out.list
}

// Close returns the text that was held back at the end of the answer.
func (p *StageParser) Close() []Piece {
	var out pieces
	p.endLine(&out)
	return out.list
}

func (p *StageParser) endLine(out *pieces) {
	if mark, ok := p.template.parseMark(p.line); ok {
		out.list = append(out.list, mark)
	} else {
		out.text(string(p.line))
	}
	p.line = p.line[:0]
}

// couldBeMark reports whether an incomplete line can still become a marker.
func (t *Template) couldBeMark(line []byte) bool {
	rest := string(bytes.TrimLeft(line, " \t"))
	if len(line)-len(rest) > maxIndent || len(line) > maxMarkLine {
		return false
	}
	for _, s := range t.Stages {
		whole := stagePrefix + string(s.ID) + markEnd
		if strings.HasPrefix(whole, rest) || strings.TrimRight(rest, " \t\r") == whole {
			return true
		}
	}
	for _, item := range t.Items {
		begin := itemPrefix + item.ID + " {"
		if strings.HasPrefix(begin, rest) || strings.HasPrefix(rest, begin) {
			return true
		}
	}
	return false
}

func (t *Template) parseMark(line []byte) (Piece, bool) {
	rest := bytes.TrimLeft(line, " \t")
	if len(line)-len(rest) > maxIndent || len(line) > maxMarkLine {
		return Piece{}, false
	}
	body, ok := strings.CutSuffix(string(bytes.TrimRight(rest, " \t\r\n")), markEnd)
	if !ok {
		return Piece{}, false
	}
	if name, ok := strings.CutPrefix(body, stagePrefix); ok {
		return Piece{Stage: berth.Stage(name)}, slices.ContainsFunc(t.Stages, func(s Stage) bool { return string(s.ID) == name })
	}
	name, object, ok := strings.Cut(strings.TrimPrefix(body, itemPrefix), " ")
	want := t.items[name]
	if !ok || want == nil {
		return Piece{}, false
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(object))
	if err != nil || schema.Validate(want, v) != nil {
		return Piece{}, false
	}
	return Piece{Item: &berth.Item{Kind: name, Value: []byte(object)}}, true
}

// pieces joins adjacent texts.
type pieces struct{ list []Piece }

func (ps *pieces) text(s string) {
	if s == "" {
		return
	}
	if n := len(ps.list); n > 0 && ps.list[n-1].Text != "" {
		ps.list[n-1].Text += s
		return
	}
	ps.list = append(ps.list, Piece{Text: s})
}
