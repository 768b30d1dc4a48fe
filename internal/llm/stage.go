package llm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"berth"
)

const (
	stagePrefix = "<<stage:"
	pointPrefix = "<<point "
	markEnd     = ">>"
	// maxIndent and maxMarkLine bound how much of a possible marker is held back, in bytes.
	maxIndent    = 8
	maxMarkLine  = 8 << 10
	maxStageLine = 40
)

// Piece is a part of an answer: text for the reader, or one marker. Exactly one field is set.
type Piece struct {
	Text  string
	Stage berth.Stage
	Point *berth.MatchPoint
}

// StageParser separates the markers in a model's answer from its text while the answer streams in. A marker is a line of
// its own:
//
//	<<stage:compare>>                                              a stage of the template
//	<<point {"requirement":"…","matched":true,"evidence":"…"}>>    one berth.MatchPoint
//
// All other lines are text, so the answer of a model that ignores the protocol is complete. The output does not depend on
// how the answer was split into deltas. Text is held back only while its line could still become a marker. Use
// NewStageParser; a parser is for one goroutine.
type StageParser struct {
	stages  []berth.Stage
	stage   berth.Stage
	line    []byte // the held beginning of the line
	passing bool   // the line is known to be text
}

// NewStageParser returns a parser for the answer of a template. It starts in the template's first stage and accepts
// markers of the template's stages only.
func NewStageParser(spec berth.TemplateSpec) *StageParser {
	return &StageParser{stages: spec.Stages, stage: spec.FirstStage()}
}

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
		case !couldBeMark(p.line, p.stages):
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
	switch mark, ok := parseMark(p.line, p.stages); {
	case !ok:
		out.text(string(p.line))
	default:
		if mark.Stage != "" {
			p.stage = mark.Stage
		}
		out.list = append(out.list, mark)
	}
	p.line = p.line[:0]
}

// couldBeMark reports whether an incomplete line can still become a marker.
func couldBeMark(line []byte, stages []berth.Stage) bool {
	rest := bytes.TrimLeft(line, " \t")
	if len(line)-len(rest) > maxIndent || len(line) > maxMarkLine {
		return false
	}
	if len(rest) <= len(stagePrefix) { // both prefixes have the same length
		return strings.HasPrefix(stagePrefix, string(rest)) || strings.HasPrefix(pointPrefix, string(rest))
	}
	if bytes.HasPrefix(rest, []byte(pointPrefix)) {
		return rest[len(pointPrefix)] == '{'
	}
	if len(rest) > maxStageLine {
		return false
	}
	name := string(rest[len(stagePrefix):])
	return bytes.HasPrefix(rest, []byte(stagePrefix)) &&
		slices.ContainsFunc(stages, func(s berth.Stage) bool {
			whole := string(s) + markEnd
			return strings.HasPrefix(whole, name) || strings.TrimRight(name, " \t\r") == whole
		})
}

func parseMark(line []byte, stages []berth.Stage) (Piece, bool) {
	rest := bytes.TrimLeft(line, " \t")
	if len(line)-len(rest) > maxIndent || len(line) > maxMarkLine {
		return Piece{}, false
	}
	body, ok := bytes.CutSuffix(bytes.TrimRight(rest, " \t\r\n"), []byte(markEnd))
	if !ok {
		return Piece{}, false
	}
	if name, ok := bytes.CutPrefix(body, []byte(stagePrefix)); ok {
		s := berth.Stage(name)
		return Piece{Stage: s}, slices.Contains(stages, s) && len(rest) <= maxStageLine
	}
	object, ok := bytes.CutPrefix(body, []byte(pointPrefix))
	if !ok || len(object) == 0 || object[0] != '{' {
		return Piece{}, false
	}
	var point berth.MatchPoint
	if json.Unmarshal(object, &point) != nil || strings.TrimSpace(point.Requirement) == "" {
		return Piece{}, false
	}
	return Piece{Point: &point}, true
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
