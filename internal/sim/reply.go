package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"berth/internal/pause"
)

// reply is the answer to a request on its way to the caller.
type reply struct {
	head    map[string]any // fields of the answer, or of every chunk
	fault   string         // its kind
	stream  bool
	usage   map[string]int
	choices []choice // at least one
}

// choice is one of the answers that the caller chooses from.
type choice struct {
	tokens []piece
	calls  []toolCall // their arguments are in the tokens
	finish string
}

// piece is a token of the text, or of the arguments of a call.
type piece struct {
	call int // its index, -1 for the text
	text string
}

func newReply(number int, req chatRequest, a answer, fault Fault) *reply {
	rep := &reply{
		head: map[string]any{
			"id": fmt.Sprintf("chatcmpl-sim-%d", number), "created": time.Now().Unix(), "model": req.Model, "system_fingerprint": fingerprint,
			"object": map[bool]string{false: "chat.completion", true: "chat.completion.chunk"}[req.Stream],
		},
		fault: fault.Kind, stream: req.Stream,
	}
	if req.Stream && req.StreamOptions.IncludeUsage {
		rep.head["usage"] = nil // until the last chunk
	}
	completion := 0
	for i := range req.choices() {
		c := newChoice(a, i, req, fault)
		rep.choices, completion = append(rep.choices, c), completion+len(c.tokens)
	}
	prompt := req.tokens()
	rep.usage = map[string]int{"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
	return rep
}

// newChoice returns a choice. A text has the number of each further one, so that they differ.
func newChoice(a answer, index int, req chatRequest, fault Fault) choice {
	c := choice{finish: "stop", calls: a.calls}
	if text := a.text; a.calls == nil {
		if index > 0 && !req.ResponseFormat.json() {
			text = fmt.Sprintf("[%d] %s", index+1, text)
		}
		c.add(-1, text)
	}
	for i, call := range a.calls {
		c.finish = "tool_calls"
		c.add(i, call.arguments)
	}
	after := fault.After
	if after <= 0 && fault.Kind != FaultStall || fault.Kind == FaultBadJSON {
		after = len(c.tokens) / 2
	}
	if slices.Contains([]string{FaultCut, FaultStall, FaultLength, FaultBadJSON}, fault.Kind) {
		c.tokens = first(max(after, 0), c.tokens)
	}
	if limit := max(req.MaxTokens, req.MaxCompletionTokens); limit > 0 && len(c.tokens) > limit || fault.Kind == FaultLength {
		c.finish = "length"
		if limit > 0 {
			c.tokens = first(limit, c.tokens)
		}
	}
	return c
}

func (c *choice) add(call int, text string) {
	for _, token := range splitTokens(text) {
		c.tokens = append(c.tokens, piece{call, token})
	}
}

// send writes the answer at its pace. It returns false if the caller left before its end, and panics with http.ErrAbortHandler to cut the
// connection. It calls ending before the last piece: a caller that has all of it may call again before its connection is done.
func (rep *reply) send(w http.ResponseWriter, p *pacer, ending func()) bool {
	p.start = time.Now()
	if rep.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
	}
	ok := true
	longest := 0
	for i, c := range rep.choices {
		ok = ok && rep.sendDelta(w, i, map[string]any{"role": "assistant", "content": map[bool]any{true: ""}[c.calls == nil]}, nil)
		longest = max(longest, len(c.tokens))
	}
	for n := range longest {
		ok = ok && p.next()
		for i, c := range rep.choices {
			ok = ok && (n >= len(c.tokens) || rep.sendDelta(w, i, rep.delta(i, n), nil))
		}
	}
	switch rep.fault {
	case FaultCut:
		panic(http.ErrAbortHandler)
	case FaultStall:
		<-p.ctx.Done()
		return false
	}
	if !rep.stream {
		return ok && rep.sendWhole(w, ending)
	}
	for i, c := range rep.choices {
		ok = ok && rep.sendDelta(w, i, map[string]any{}, c.finish)
	}
	if _, wanted := rep.head["usage"]; ok && wanted {
		rep.head["choices"], rep.head["usage"] = []any{}, rep.usage
		ok = sendEvent(w, rep.head)
	}
	if ok {
		ending()
	}
	return ok && sendData(w, []byte("[DONE]"))
}

// delta returns a token of a choice. The first one of a call begins it.
func (rep *reply) delta(index, n int) map[string]any {
	c := rep.choices[index]
	token := c.tokens[n]
	if token.call < 0 {
		return map[string]any{"content": token.text}
	}
	call := map[string]any{"index": token.call, "function": map[string]any{"arguments": token.text}}
	if n == 0 || c.tokens[n-1].call < token.call {
		call = rep.call(index, token.call, token.text)
		call["index"] = token.call
	}
	return map[string]any{"tool_calls": []any{call}}
}

// call returns a call of a tool, with an id.
func (rep *reply) call(index, i int, arguments string) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("call_%s_%d_%d", rep.head["id"], index, i), "type": "function",
		"function": map[string]any{"name": rep.choices[index].calls[i].name, "arguments": arguments},
	}
}

func (rep *reply) sendDelta(w http.ResponseWriter, index int, delta map[string]any, finish any) bool {
	if !rep.stream {
		return true
	}
	rep.head["choices"] = []any{map[string]any{"index": index, "delta": delta, "finish_reason": finish}}
	return sendEvent(w, rep.head)
}

// sendWhole writes an answer that is not streamed.
func (rep *reply) sendWhole(w http.ResponseWriter, ending func()) bool {
	var choices []any
	for i, c := range rep.choices {
		said := map[int]string{}
		for _, token := range c.tokens {
			said[token.call] += token.text
		}
		message := map[string]any{"role": "assistant", "content": said[-1], "refusal": nil}
		var calls []any
		for n := range c.calls {
			if said[n] != "" { // the limit was not reached before
				calls = append(calls, rep.call(i, n, said[n]))
			}
		}
		if calls != nil {
			message["content"], message["tool_calls"] = nil, calls
		}
		choices = append(choices, map[string]any{"index": i, "message": message, "logprobs": nil, "finish_reason": c.finish})
	}
	rep.head["choices"], rep.head["usage"] = choices, rep.usage
	ending()
	writeJSON(w, http.StatusOK, rep.head)
	return true
}

func sendEvent(w http.ResponseWriter, v any) bool {
	b, err := json.Marshal(v)
	return err == nil && sendData(w, b)
}

func sendData(w http.ResponseWriter, b []byte) bool {
	_, err := fmt.Fprintf(w, "data: %s\n\n", b)
	return err == nil && http.NewResponseController(w).Flush() == nil
}

// pacer releases tokens at their times; a late token does not delay those after it.
type pacer struct {
	ctx      context.Context
	perToken time.Duration
	start    time.Time
	sent     int
}

// next waits for the next token's time; it returns false if the caller left.
func (p *pacer) next() bool {
	p.sent++
	return p.sleep(time.Until(p.start.Add(time.Duration(p.sent) * p.perToken)))
}

func (p *pacer) sleep(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	return pause.For(p.ctx, d)
}

// token matches text about as models stream it: one or two Chinese characters, a word of up to 8 characters with the
// space before it, or any other character.
var token = regexp.MustCompile(`\p{Han}{1,2}| ?[^\p{Han}\s\pP\pS]{1,8}|(?s:.)`)

// splitTokens cuts a text into tokens; joined, they are the text.
func splitTokens(text string) []string { return token.FindAllString(text, -1) }
