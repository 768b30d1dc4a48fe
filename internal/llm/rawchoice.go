package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth"
	"berth/internal/rawjson"
)

// maxChoices bounds the number of choices whose state is kept.
const maxChoices = 128

// finishToolCalls is the finish reason of an answer that calls tools, and finishFunction of one with the older field.
const (
	finishToolCalls = "tool_calls"
	finishFunction  = "function_call"
)

// rawChoice is the state of one choice.
type rawChoice struct {
	seen, finished, tools bool
	function              bool // the older form of a tool call
	calls                 *toolCalls
}

// choice returns the state of a choice.
func (a *rawAnswer) choice(index int) (*rawChoice, bool) {
	if index < 0 || index >= max(maxChoices, a.req.Choices) {
		return nil, false
	}
	for len(a.choices) <= index {
		a.choices = append(a.choices, rawChoice{})
	}
	c := &a.choices[index]
	c.seen = true
	return c, true
}

// takeChoices returns the choices as clients read them, without those that have ended and add nothing, and reports whether they have anything but the role of an author.
func (s *session) takeChoices(list, data []byte) (out []byte, something bool, err error) {
	a := s.raw
	a.list = append(a.list[:0], '[')
	all := rawjson.Read(list)
	for position := 0; ; position++ {
		item, ok := all.Item()
		if !ok {
			break
		}
		has, err := s.takeChoice(item, position)
		if failed, ok := errors.AsType[malformed](err); ok {
			err = s.failure(CauseMalformed, http.StatusOK, failed.Error(), errors.New(s.quote(data)))
		}
		if err != nil {
			return nil, false, err
		}
		something = something || has
	}
	if a.complete(false) {
		s.dog.hurry(afterEnd)
	}
	return append(a.list, ']'), something, nil
}

// takeChoice appends a choice to the list of the chunk.
func (s *session) takeChoice(item []byte, position int) (something bool, err error) {
	if !rawjson.IsObject(item) {
		return false, malformed("a choice that is not an object")
	}
	a := s.raw
	name := "message"
	if a.req.Stream {
		name = "delta"
	}
	index, message, finish := []byte(nil), []byte(nil), []byte(nil)
	whole := false // the message is not a delta, although the call streams
	more := false  // it has something besides
	all := rawjson.Read(item)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch string(key) {
		case "index":
			index = value
		case "delta", "message":
			if message == nil || string(key) == name {
				message, whole = value, string(key) != name
			}
		case "finish_reason":
			finish = value
		case "usage": // of Moonshot
			s.takeUsage(value)
		default:
			more = more || !isEmpty(value)
		}
	}
	n, err := strconv.Atoi(string(index))
	changed := err != nil || whole
	if err != nil {
		n = position
	}
	state, ok := a.choice(n)
	if !ok {
		return false, malformed("a choice with the index " + strconv.Itoa(n))
	}
	changed = changed || !rawjson.IsObject(message)
	if rawjson.IsNull(message) {
		message = []byte("{}")
	} else if !rawjson.IsObject(message) {
		return false, malformed("a message that is not an object")
	}
	ended := state.finished
	shown, something, err := s.takeMessage(state, message)
	if err != nil {
		return false, err
	}
	if ended && !something && !more && rawjson.IsNull(finish) { // some clients would take it for an answer that has not ended
		return false, nil
	}
	reason, err := s.takeFinish(state, finish)
	if err != nil {
		return false, err
	}
	something = something || state.finished
	if len(a.list) > len("[") {
		a.list = append(a.list, ',')
	}
	if !changed && shown == nil && reason == "" {
		a.list = append(a.list, item...)
		return something, nil
	}
	if shown == nil {
		shown = message
	}
	a.list = append(strconv.AppendInt(append(a.list, `{"index":`...), int64(n), 10), `,"`+name+`":`...)
	a.list = append(a.list, shown...)
	all = rawjson.Read(item)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		switch string(key) {
		case "index", "delta", "message":
			continue
		case "finish_reason":
			if reason != "" {
				value = quotedText(reason)
			}
		}
		a.list = appendRest(a.list, key, value)
	}
	a.list = append(a.list, '}')
	return something, nil
}

// takeFinish notes the end of a choice. It returns the reason that clients read if it is another one than the provider's.
func (s *session) takeFinish(c *rawChoice, finish []byte) (shown string, err error) {
	if rawjson.IsNull(finish) {
		return "", nil
	}
	reason, _ := rawjson.String(finish)
	if reason = strings.TrimSpace(reason); reason == "" {
		return "", nil
	}
	why := shorten(printable(strings.ToLower(reason)), maxFinishReason)
	switch finishReasons[why] {
	case finishOverload:
		return "", s.failure(CauseOverload, http.StatusOK, "", fmt.Errorf("finish reason %q", why))
	case finishTimeout:
		return "", s.failure(CauseTimeout, http.StatusOK, "", fmt.Errorf("finish reason %q", why))
	case finishFailed:
		return "", s.failure(CauseUnknown, http.StatusOK, "finish reason "+why, fmt.Errorf("finish reason %q", why))
	case finishStop:
		if c.tools {
			shown, why = finishToolCalls, finishToolCalls
		} else if c.function {
			shown, why = finishFunction, finishFunction
		}
	}
	c.finished = true
	if s.result.FinishReason == "" {
		s.result.FinishReason = why
	}
	return shown, nil
}

// takeMessage counts what a message or a delta has. It returns the message if clients read another one than the provider's.
func (s *session) takeMessage(c *rawChoice, message []byte) (shown []byte, something bool, err error) {
	a := s.raw
	tokens, thoughts, size := 0.0, 0.0, 0
	var calls, changed []byte
	all := rawjson.Read(message)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		empty := isEmpty(value)
		switch string(key) {
		case "role":
			continue
		case "content", "refusal":
			tokens += rawTokens(value)
			size += len(value)
		case "reasoning_content", "reasoning", "thinking": // some servers send two of them with the same text
			thoughts = max(thoughts, rawTokens(value))
			size += len(value)
		case "function_call":
			c.function = c.function || !empty
			tokens += rawTokens(value)
			size += len(value)
		case "tool_calls":
			if empty {
				break
			}
			if !rawjson.IsList(value) {
				return nil, false, malformed("tool calls that are not a list")
			}
			calls = value
			size += len(value)
		}
		something = something || !empty
	}
	a.tokens += tokens + thoughts + callTokens(calls)
	if s.received += size; s.received > s.limits.OutputBytes {
		return nil, false, errTooLong
	}
	if calls == nil || !hasItems(calls) {
		return nil, something, nil
	}
	c.tools = true
	if c.calls == nil {
		c.calls = newToolCalls()
	}
	if changed, err = c.calls.take(calls, a.req.Stream); changed == nil || err != nil {
		return nil, true, err
	}
	all = rawjson.Read(message)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if string(key) == "tool_calls" {
			value = changed
		}
		shown = appendField(shown, key, value)
	}
	return append(shown, '}'), true, nil
}

// callTokens estimates the tokens of calls of tools: their names and arguments.
func callTokens(calls []byte) (n float64) {
	all := rawjson.Read(calls)
	for call, ok := all.Item(); ok; call, ok = all.Item() {
		function := rawField(call, "function")
		n += rawTokens(rawField(function, "name")) + rawTokens(rawField(function, "arguments"))
	}
	return n
}

// isEmpty reports whether a value is null or has nothing in it.
func isEmpty(value []byte) bool {
	return rawjson.IsNull(value) || len(value) == 2 && (rawjson.IsString(value) || rawjson.IsList(value) || rawjson.IsObject(value))
}

// rawTokens estimates the tokens of a value that is written in JSON.
func rawTokens(value []byte) (n float64) {
	if len(value) < 2 {
		return 0
	}
	for i := 1; i < len(value)-1; {
		switch b := value[i]; {
		case b >= utf8.RuneSelf:
			_, size := utf8.DecodeRune(value[i:])
			n += tokensPerOther
			i += size
		case b == '\\' && bytes.HasPrefix(value[i:], []byte(`\u`)):
			n += tokensPerOther
			i += 6
		case b == '\\':
			n += tokensPerASCII
			i += 2
		default:
			n += tokensPerASCII
			i++
		}
	}
	return n
}

// estimate returns the usage of an answer whose provider reports none.
func (a *rawAnswer) estimate() berth.Usage {
	return berth.Usage{InputTokens: a.req.InputTokens, OutputTokens: int64(math.Ceil(a.tokens))}
}

// Estimate returns the usage of a stream of which only these chunks are known, each on a line; none without any.
func (r *Raw) Estimate(chunks []byte) (u berth.Usage) {
	tokens := 0.0
	for line := range bytes.Lines(chunks) {
		if !json.Valid(line) {
			continue
		}
		u.InputTokens = r.InputTokens
		choices := rawjson.Read(rawField(line, "choices"))
		for choice, ok := choices.Item(); ok; choice, ok = choices.Item() {
			delta := rawjson.Read(rawField(choice, "delta"))
			for key, value, ok := delta.Field(); ok; key, value, ok = delta.Field() {
				switch {
				case rawjson.Key(key) == "tool_calls":
					tokens += callTokens(value)
				case rawjson.Key(key) != "role" && rawjson.IsString(value):
					tokens += rawTokens(value)
				}
			}
		}
	}
	u.OutputTokens = int64(math.Ceil(tokens))
	return u
}
