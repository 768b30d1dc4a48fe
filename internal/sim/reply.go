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

// reply is one answer on its way to the caller.
type reply struct {
	head         map[string]any // fields of every chunk
	fault        string         // its kind
	includeUsage bool
	tokens       []string
	finish       string
	usage        map[string]int
}

func newReply(number int, req chatRequest, answer string, fault Fault) *reply {
	rep := &reply{
		head: map[string]any{
			"id": fmt.Sprintf("chatcmpl-sim-%d", number), "created": time.Now().Unix(), "model": req.Model,
			"system_fingerprint": fingerprint, "object": "chat.completion.chunk",
		},
		includeUsage: req.StreamOptions.IncludeUsage, fault: fault.Kind, finish: "stop", tokens: splitTokens(answer),
	}
	after := fault.After
	if after <= 0 && fault.Kind != FaultStall || fault.Kind == FaultBadJSON {
		after = len(rep.tokens) / 2
	}
	if slices.Contains([]string{FaultCut, FaultStall, FaultLength, FaultBadJSON}, fault.Kind) {
		rep.tokens = first(max(after, 0), rep.tokens)
	}
	if limit := max(req.MaxTokens, req.MaxCompletionTokens); limit > 0 && len(rep.tokens) > limit || fault.Kind == FaultLength {
		rep.finish = "length"
		if limit > 0 {
			rep.tokens = first(limit, rep.tokens)
		}
	}
	prompt, completion := req.tokens(), len(rep.tokens)
	rep.usage = map[string]int{"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
	return rep
}

// send writes the answer at its pace. It returns false if the caller left before its end, and panics with http.ErrAbortHandler to cut the
// connection. It calls ending before the last piece: a caller that has all of it may call again before its connection is done.
func (rep *reply) send(w http.ResponseWriter, p *pacer, ending func()) bool {
	p.start = time.Now()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	ok := rep.sendDelta(w, map[string]any{"role": "assistant", "content": ""}, nil)
	for _, text := range rep.tokens {
		ok = ok && p.next() && rep.sendDelta(w, map[string]any{"content": text}, nil)
	}
	switch rep.fault {
	case FaultCut:
		panic(http.ErrAbortHandler)
	case FaultStall:
		<-p.ctx.Done()
		return false
	}
	ok = ok && rep.sendDelta(w, map[string]any{}, rep.finish)
	if ok && rep.includeUsage {
		rep.head["choices"], rep.head["usage"] = []any{}, rep.usage
		ok = sendEvent(w, rep.head)
	}
	if ok {
		ending()
	}
	return ok && sendData(w, []byte("[DONE]"))
}

func (rep *reply) sendDelta(w http.ResponseWriter, delta map[string]any, finish any) bool {
	rep.head["choices"] = []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
	return sendEvent(w, rep.head)
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
