package llm

import (
	"strings"
	"unicode"
)

// tags are the texts that a model writes before and after something.
type tags struct{ begin, end string }

// The markup of models whose server does not remove it; it is recognised in upper and lower case. A new model is a row here. The sources
// are the chat templates of the models, and the reasoning parsers of vLLM and SGLang.
var (
	// thinkingTags enclose what a model thinks before it answers.
	thinkingTags = []tags{
		{"<think>", "</think>"},                                           // DeepSeek R1, Qwen 3, GLM 4.5, MiniMax M2, Hunyuan, Phi 4
		{"<thinking>", "</thinking>"},                                     // models that a prompt has asked to think
		{"<reasoning>", "</reasoning>"},                                   // the same
		{"<thought>", "</thought>"},                                       // EXAONE Deep, Gemini
		{"[think]", "[/think]"},                                           // Magistral
		{"<seed:think>", "</seed:think>"},                                 // Seed-OSS
		{"◁think▷", "◁/think▷"},                                           // Kimi-VL
		{"<|begin_of_thought|>", "<|end_of_thought|>"},                    // OpenThinker
		{"<|start_thinking|>", "<|end_thinking|>"},                        // Command A Reasoning
		{"<unused94>", "<unused95>"},                                      // MedGemma
		{"<|channel|>analysis<|message|>", "<|channel|>final<|message|>"}, // gpt-oss
	}
	// answerTags enclose the answer behind the thoughts.
	answerTags = []tags{
		{"<answer>", "</answer>"},                        // GLM 4.1V, Hunyuan
		{"<response>", "</response>"},                    // ERNIE 4.5
		{"<|begin_of_solution|>", "<|end_of_solution|>"}, // OpenThinker
		{"<|start_response|>", "<|end_response|>"},       // Command A Reasoning
	}
	// boxTags enclose what a model considers the result within its answer.
	boxTags = []tags{{"<|begin_of_box|>", "<|end_of_box|>"}} // GLM 4.1V, GLM 4.5V
	// toolTags enclose the call of a tool.
	toolTags = tags{"<tool_call>", "</tool_call>"} // Qwen, Hermes, GLM
	// endMarks are the tokens with which models end an answer.
	endMarks = []string{
		"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|end|>", "<|return|>", "<end_of_turn>", "<｜end▁of▁sentence｜>",
	}
)

// markStarts are the characters with which the markup begins.
const markStarts = "<[◁"

// mark is a text of the markup that may stand within an answer.
type mark struct {
	text string
	kind markKind
}

type markKind int

const (
	boxEdge         markKind = iota
	endOfAnswer              // of the answer
	beginOfThoughts          // is the answer's own, and so is an end behind it
	endOfThoughts
)

var answerMarks = func() (all []mark) {
	for _, t := range boxTags {
		all = append(all, mark{t.begin, boxEdge}, mark{t.end, boxEdge})
	}
	for _, m := range endMarks {
		all = append(all, mark{m, endOfAnswer})
	}
	for _, t := range thinkingTags {
		all = append(all, mark{t.begin, beginOfThoughts}, mark{t.end, endOfThoughts})
	}
	return all
}()

// answerFilter removes markup from an answer while it arrives in pieces. What it returns does not depend on how the answer was cut.
//
//   - Thoughts are recognised where an answer begins only. Further back the same text is the answer's own, such as code, or a sentence
//     about the tag.
//   - Servers whose prompt ends with the opening tag return the closing one alone: then what came before it was thoughts. It is
//     recognised once, in an answer without other thoughts or an opening tag, and only where models write it: at the beginning of a
//     line, or at the end of one, or before a JSON object, not in code, behind a space or behind a quotation mark.
//   - Boxes are tokens of their models: they are removed everywhere but in code. End marks are removed at the end of an answer.
type answerFilter struct {
	held string // what can still become markup
	// closing is the tag that ends the thoughts which are being read, empty outside of thoughts.
	closing string
	// begun: the answer has begun. thought: thoughts have ended, or come separately, or the answer has an opening tag of its own.
	begun, thought bool
	wrapper        string // the tag with which the answer may end
	trailing       string // end marks and the white space behind them
	delivered      bool   // text was returned
	line           lineTracker
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
		case f.closing != "":
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

// close returns the rest of a complete answer.
func (f *answerFilter) close() (out filtered) {
	switch {
	case f.closing != "":
		out.thoughts = f.held
	case !f.begun && f.thought:
		out.text = strings.TrimLeftFunc(f.held, blank)
	case f.held != "":
		out.text = f.trailing + f.held
	}
	f.held, f.trailing = "", ""
	return out
}

// think passes thoughts on until their end.
func (f *answerFilter) think(out *filtered) bool {
	at, found, whole := find(f.held, []mark{{text: f.closing}})
	out.thoughts += f.held[:at]
	if f.held = f.held[at:]; !whole {
		return false
	}
	f.held, f.closing, f.thought = f.held[len(found.text):], "", true
	return true
}

// begin looks for markup where the answer begins.
func (f *answerFilter) begin() (progress bool) {
	rest := strings.TrimLeftFunc(f.held, blank)
	if rest == "" {
		return false
	}
	undecided := false
	take := func(tag string) bool {
		whole, part := startsWith(rest, tag)
		undecided = undecided || part
		if whole {
			f.held = rest[len(tag):]
		}
		return whole
	}
	for _, t := range thinkingTags {
		if take(t.begin) {
			f.closing = t.end
			return true
		}
		if !f.thought && take(t.end) {
			f.thought = true
			return true
		}
	}
	for _, t := range boxTags {
		if take(t.begin) {
			return true
		}
	}
	for _, t := range answerTags {
		if f.thought && f.wrapper == "" && take(t.begin) {
			f.wrapper = t.end
			return true
		}
	}
	if undecided {
		return false
	}
	if f.begun = true; f.thought {
		f.held = rest
	}
	return true
}

// answer passes the answer on as far as it cannot be markup.
func (f *answerFilter) answer(out *filtered) (progress bool) {
	marks := answerMarks
	if f.wrapper != "" {
		marks = append(marks[:len(marks):len(marks)], mark{f.wrapper, endOfAnswer})
	}
	at, found, whole := find(f.held, marks)
	f.emit(out, f.held[:at])
	if f.held = f.held[at:]; !whole {
		return false
	}
	rest, literal := f.held[len(found.text):], f.line.code || strings.HasSuffix(f.line.text, "`")
	if found.kind == endOfThoughts && !literal && !f.thought {
		decided, ended := f.endsThoughts(rest)
		if !decided {
			return false
		}
		literal = !ended
	}
	text := f.held[:len(found.text)]
	f.held = rest
	switch {
	case found.kind == beginOfThoughts:
		f.thought = true
		f.emit(out, text)
	case literal, found.kind == endOfThoughts && f.thought:
		f.emit(out, text)
	case found.kind == endOfThoughts:
		out.thoughts += out.text + f.trailing
		out.withdrawn, out.text, f.trailing = f.delivered, "", ""
		f.begun, f.thought, f.line = false, true, lineTracker{}
	case found.kind == endOfAnswer:
		f.trailing += text
	}
	return true
}

// endsThoughts reports whether a closing tag without an opening one ends thoughts, and whether that is certain yet.
func (f *answerFilter) endsThoughts(rest string) (decided, ends bool) {
	before := f.line.text
	switch {
	case strings.TrimSpace(before) == "":
		return true, true
	case strings.ContainsAny(before[len(before)-1:], " \t'\""):
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

// find returns the first mark in a text, whole or cut off by the end of the text, and where it is: at the end of the text if there is
// none.
func find(text string, marks []mark) (at int, found mark, whole bool) {
	for at < len(text) {
		next := strings.IndexAny(text[at:], markStarts)
		if next < 0 {
			break
		}
		at += next
		for _, m := range marks {
			if whole, part := startsWith(text[at:], m.text); whole || part {
				return at, m, whole
			}
		}
		at++
	}
	return len(text), mark{}, false
}

// startsWith reports whether a text begins with a mark, or could if it were longer.
func startsWith(text, mark string) (whole, part bool) {
	if len(text) >= len(mark) {
		return strings.EqualFold(text[:len(mark)], mark), false
	}
	return false, strings.EqualFold(text, mark[:len(text)])
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
