package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"berth/internal/pause"
)

// reply is one answer on its way to the caller.
type reply struct {
	head                 map[string]any // fields of every chunk
	fault                string         // its kind
	stream, includeUsage bool
	tokens               []string
	finish               string
	usage                map[string]int
	// ending is called before the last piece: a caller that has all of it may call again before its connection is done.
	ending func()
}

func newReply(number int, req chatRequest, answer string, fault Fault) *reply {
	rep := &reply{
		head: map[string]any{
			"id": fmt.Sprintf("chatcmpl-sim-%d", number), "created": time.Now().Unix(), "model": req.Model,
			"system_fingerprint": fingerprint,
		},
		stream: req.Stream, includeUsage: req.StreamOptions.IncludeUsage, fault: fault.Kind, finish: "stop",
		tokens: splitTokens(answer),
	}
	switch half := len(rep.tokens) / 2; {
	case fault.Kind == FaultBadJSON, (fault.Kind == FaultCut || fault.Kind == FaultLength) && fault.After <= 0:
		rep.tokens = rep.tokens[:half]
	case fault.Kind == FaultCut, fault.Kind == FaultStall, fault.Kind == FaultLength:
		rep.tokens = rep.tokens[:min(max(fault.After, 0), len(rep.tokens))]
	}
	if fault.Kind == FaultLength {
		rep.finish = "length"
	}
	limit := max(req.MaxTokens, req.MaxCompletionTokens)
	if limit > 0 && len(rep.tokens) > limit {
		rep.finish, rep.tokens = "length", rep.tokens[:limit]
	}
	prompt, completion := req.tokens(), len(rep.tokens)
	rep.usage = map[string]int{"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
	return rep
}

// send writes the answer at its pace. It returns false if the caller left before its end, and panics with
// http.ErrAbortHandler to cut the connection.
func (rep *reply) send(w http.ResponseWriter, p *pacer) bool {
	p.start = time.Now()
	if rep.stream {
		return rep.sendStream(w, p)
	}
	return rep.sendWhole(w, p)
}

// breakOff reports whether the answer breaks off here. It then cuts the connection or waits until the caller leaves.
func (rep *reply) breakOff(w http.ResponseWriter, p *pacer) bool {
	if rep.fault != FaultCut && rep.fault != FaultStall {
		return false
	}
	_ = http.NewResponseController(w).Flush() // fails only if the caller has left
	if rep.fault == FaultCut {
		panic(http.ErrAbortHandler)
	}
	<-p.ctx.Done()
	return true
}

func (rep *reply) sendStream(w http.ResponseWriter, p *pacer) bool {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	rep.head["object"] = "chat.completion.chunk"
	ok := rep.sendDelta(w, map[string]any{"role": "assistant", "content": ""}, nil)
	for _, text := range rep.tokens {
		ok = ok && p.next() && rep.sendDelta(w, map[string]any{"content": text}, nil)
	}
	ok = ok && !rep.breakOff(w, p) && rep.sendDelta(w, map[string]any{}, rep.finish)
	if ok && rep.includeUsage {
		rep.head["choices"], rep.head["usage"] = []any{}, rep.usage
		ok = sendEvent(w, rep.head)
	}
	if ok {
		rep.ending()
	}
	return ok && sendData(w, []byte("[DONE]"))
}

func (rep *reply) sendDelta(w http.ResponseWriter, delta map[string]any, finish any) bool {
	rep.head["choices"] = []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}
	return sendEvent(w, rep.head)
}

// sendWhole answers in one piece, after the time that its tokens take. Stall and cut break it off in the middle.
func (rep *reply) sendWhole(w http.ResponseWriter, p *pacer) bool {
	for range rep.tokens {
		if !p.next() {
			return false
		}
	}
	message := map[string]string{"role": "assistant", "content": strings.Join(rep.tokens, "")}
	rep.head["object"] = "chat.completion"
	rep.head["choices"] = []any{map[string]any{"index": 0, "message": message, "finish_reason": rep.finish}}
	rep.head["usage"] = rep.usage
	b, _ := json.Marshal(rep.head) // strings and numbers always marshal
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b[:len(b)/2]) // fails only if the caller has left
	if rep.breakOff(w, p) {
		return false
	}
	rep.ending()
	_, _ = w.Write(b[len(b)/2:])
	return p.ctx.Err() == nil
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
