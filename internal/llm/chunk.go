package llm

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"berth"
)

// piece is what one choice of a chunk contains.
type piece struct {
	content, reasoning, refusal string
	tools                       bool
	whole                       bool   // the content is that of a message, not of a delta
	finish                      string // lower case
}

// malformed is the error for a part of an answer that has an unknown form. It names the part.
type malformed string

func (m malformed) Error() string { return string(m) }

// followed is the choice of an answer that is read: the first one that has something. berth never asks for several.
type followed struct {
	index float64
	known bool
}

// is reports whether a choice is the one that is read. One without an index is it, unless others are before it in the chunk.
func (f *followed) is(choice gjson.Result, position int) bool {
	index := choice.Get("index")
	switch {
	case index.Type == gjson.Null:
		return position == 0
	case !f.known && hasSomething(choice):
		f.index, f.known = index.Float(), true
	}
	return f.known && f.index == index.Float()
}

// hasSomething reports whether a choice has more than its index and the role of its author.
func hasSomething(choice gjson.Result) (found bool) {
	for _, part := range []gjson.Result{choice, choice.Get("delta"), choice.Get("message")} {
		for _, name := range []string{
			"content", "text", "reasoning_content", "reasoning", "thinking", "refusal", "tool_calls", "function_call", "finish_reason",
		} {
			switch v := part.Get(name); {
			case v.Type == gjson.Null, v.Type == gjson.String && v.Str == "", v.IsArray() && len(v.Array()) == 0:
			default:
				return true
			}
		}
	}
	return false
}

// choicesOf returns the choices of a chunk. Some servers send a message without a list of choices, or beside an empty one.
func choicesOf(chunk gjson.Result) []gjson.Result {
	if choices := chunk.Get("choices").Array(); len(choices) > 0 {
		return choices
	}
	if chunk.Get("delta").IsObject() || chunk.Get("message").IsObject() || chunk.Get("role").String() == "assistant" && chunk.Get("content").Exists() {
		return []gjson.Result{chunk}
	}
	return nil
}

// pieceOf reads the choice of a chunk, or of an answer in one response, that is followed; nothing if it has none.
func pieceOf(chunk gjson.Result, follow *followed, halves *joiner) (p piece, err error) {
	for i, choice := range choicesOf(chunk) {
		if !follow.is(choice, i) {
			continue
		}
		message := choice.Get("delta")
		if !message.Exists() { // of a response without streaming
			message, p.whole = choice.Get("message"), true
		}
		if text := choice.Get("text"); !message.Exists() { // of the older completions protocol
			p.content += halves.join(text)
		}
		if !message.Exists() && choice.Get("role").Exists() { // without a choice around it
			message = choice
		}
		if message.Type != gjson.Null && !message.IsObject() {
			return p, malformed("a message that is " + typeName(message))
		}
		if err := p.read(message, halves); err != nil {
			return p, err
		}
		for _, name := range []string{"finish_reason", "stop_reason", "done_reason"} { // the latter of messages without a choice around them
			if reason := choice.Get(name); p.finish == "" && (reason.Type == gjson.String || reason.Type == gjson.Number) {
				p.finish = strings.ToLower(strings.TrimSpace(reason.String()))
			}
		}
	}
	return p, nil
}

// read reads a message or a delta.
func (p *piece) read(message gjson.Result, halves *joiner) error {
	// DeepSeek, GLM and Qwen call it reasoning_content, OpenRouter and Groq reasoning, Ollama thinking.
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		if field := message.Get(name); p.reasoning == "" {
			p.reasoning += thoughtsOf(field)
		}
	}
	if refusal := message.Get("refusal"); refusal.Type == gjson.String {
		p.refusal += refusal.Str
	}
	p.tools = p.tools || len(message.Get("tool_calls").Array()) > 0 || message.Get("function_call").IsObject()
	return p.readContent(message.Get("content"), halves)
}

// readContent reads content: a text, null, or a list of parts.
func (p *piece) readContent(content gjson.Result, halves *joiner) error {
	switch {
	case content.Type == gjson.Null:
		return nil
	case content.Type == gjson.String:
		p.content += halves.join(content)
		return nil
	case !content.IsArray():
		return malformed("content that is " + typeName(content))
	}
	for _, part := range content.Array() {
		if part.Type == gjson.String {
			p.content += halves.join(part)
			continue
		}
		if !part.IsObject() {
			return malformed("a content part that is " + typeName(part))
		}
		switch kind := part.Get("type").String(); kind {
		case "", "text", "output_text":
			text := part.Get("text")
			if text.Type != gjson.String && text.Type != gjson.Null {
				return malformed("a text part that is " + typeName(text))
			}
			p.content += halves.join(text)
		case "thinking", "reasoning", "reasoning_text", "redacted_thinking":
			for _, name := range []string{"thinking", "reasoning", "text"} {
				p.reasoning += thoughtsOf(part.Get(name))
			}
		case "refusal":
			p.refusal += part.Get("refusal").String()
		case "reference": // of Mistral: the sources of a passage
		default:
			return malformed(fmt.Sprintf("a content part of type %q", shorten(printable(kind), maxFinishReason)))
		}
	}
	return nil
}

// joiner joins the halves of characters that servers distribute over two chunks: of a surrogate pair, which JavaScript cuts, or of the
// bytes of a character, which tokens cut.
type joiner struct {
	escape string // the first half of a surrogate pair, as an escape in JSON
	bytes  string // the first bytes of a character
}

// firstHalf is the first half of a surrogate pair at the end of a JSON text.
var firstHalf = regexp.MustCompile(`(?i)(?:^"|[^\\])(?:\\\\)*(\\ud[89ab][0-9a-f]{2})"$`)

// join returns a JSON text with what was kept of the one before, without a half at its end.
func (j *joiner) join(text gjson.Result) string {
	raw := text.Raw
	if raw == "" || text.Type != gjson.String {
		return ""
	}
	if j.escape != "" && raw != `""` {
		raw, j.escape = `"`+j.escape+raw[1:], ""
	}
	if half := firstHalf.FindStringSubmatch(raw); half != nil {
		j.escape = half[1]
		raw = strings.TrimSuffix(raw, half[1]+`"`) + `"`
	}
	s := strings.ReplaceAll(gjson.Parse(raw).Str, "\x00", string(utf8.RuneError)) // databases do not store it
	if s != "" {
		s, j.bytes = j.bytes+s, ""
	}
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if tail := s[len(s)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				s, j.bytes = s[:len(s)-n], tail
			}
			break
		}
	}
	return s
}

// rest returns the half that has no other.
func (j *joiner) rest() string {
	s := j.bytes
	if j.escape != "" {
		s += string(utf8.RuneError)
	}
	*j = joiner{}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// thoughtsOf returns the text of thoughts, which is a text or a list of parts.
func thoughtsOf(v gjson.Result) string {
	switch {
	case v.Type == gjson.String:
		return v.Str
	case !v.IsArray():
		return ""
	}
	var all strings.Builder
	for _, part := range v.Array() {
		all.WriteString(part.Get("text").String())
	}
	return all.String()
}

func typeName(v gjson.Result) string {
	switch {
	case v.IsObject():
		return "an object"
	case v.IsArray():
		return "a list"
	case v.IsBool():
		return "true or false"
	case v.Type == gjson.Number:
		return "a number"
	default:
		return "a text"
	}
}

// maxReported bounds the numbers of tokens that a provider may report for one call: it is more than the context of any model, and sums
// of such numbers can be stored.
const maxReported = 1 << 30

// usagePlaces are where chunks and responses have the usage: at the top, in the choice (Moonshot), or in a field of Groq's.
var usagePlaces = []string{"usage", "choices.0.usage", "x_groq.usage"}

// cachedPlaces are where a usage has the number of cached input tokens: OpenAI and most others, the Responses API, DeepSeek, Moonshot,
// and servers that pass on Anthropic's.
var cachedPlaces = []string{
	"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens",
	"cache_read_input_tokens",
}

// usageOf returns the usage that a chunk reports; false when it reports none or numbers that cannot be true.
func usageOf(chunk gjson.Result) (berth.Usage, bool) {
	for _, place := range usagePlaces {
		if u := chunk.Get(place); u.IsObject() {
			return reported(u)
		}
	}
	return berth.Usage{}, false
}

func reported(u gjson.Result) (berth.Usage, bool) {
	in, inOK := count(u, "prompt_tokens", "input_tokens")
	out, outOK := count(u, "completion_tokens", "output_tokens")
	cached, _ := count(u, cachedPlaces...)
	if !u.Get("prompt_tokens").Exists() { // Anthropic's input_tokens are those that were not cached
		if read, ok := count(u, "cache_read_input_tokens"); ok {
			written, _ := count(u, "cache_creation_input_tokens")
			in += read + written
		}
	}
	if !inOK || !outOK || max(in, out) > maxReported || in+out == 0 {
		return berth.Usage{}, false
	}
	thought, _ := count(u, "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens", "reasoning_tokens")
	return berth.Usage{InputTokens: in, OutputTokens: out, CachedTokens: min(cached, in), ReasoningTokens: min(thought, out)}, true
}

// count returns the first number of tokens above 0 in one of the places; 0 if there is none, and false if a number cannot be true.
func count(u gjson.Result, places ...string) (int64, bool) {
	for _, place := range places {
		switch v := u.Get(place); {
		case v.Type == gjson.Null:
		case v.Type != gjson.Number || v.Num < 0 || v.Num > maxReported:
			return 0, false
		case v.Num > 0:
			return v.Int(), true
		}
	}
	return 0, true
}
