package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// reply is one answer on its way out.
type reply struct {
	chunk        chatResponse // what every chunk repeats
	stream       bool
	includeUsage bool
	fault        Fault
	thoughts     []string
	tokens       []string
	finish       string
	usage        usage
	perToken     time.Duration
	firstDelay   time.Duration
}

func newReply(number int, req chatRequest, ans answer, fault Fault) *reply {
	rep := &reply{
		chunk: chatResponse{
			ID: "chatcmpl-berth-" + strconv.Itoa(number), Created: time.Now().Unix(), Model: req.Model,
			SystemFingerprint: fingerprint, Object: "chat.completion",
		},
		stream: req.Stream, fault: fault, finish: "stop",
		includeUsage: req.Stream && req.StreamOptions != nil && req.StreamOptions.IncludeUsage,
	}
	if thinks(req.Model) {
		rep.thoughts = cutTokens(ans.reasoning)
	}
	rep.tokens = cutTokens(ans.text)
	if fault.Kind == FaultBadJSON {
		rep.tokens = rep.tokens[:len(rep.tokens)/2]
	}
	limit := req.MaxCompletionTokens
	if limit <= 0 {
		limit = req.MaxTokens
	}
	if n := len(rep.thoughts) + len(rep.tokens); limit > 0 && n > limit && fault.Kind != FaultEndless {
		rep.finish = "length"
		rep.thoughts = rep.thoughts[:min(len(rep.thoughts), limit)]
		rep.tokens = rep.tokens[:limit-len(rep.thoughts)]
	}
	rep.usage = usage{
		PromptTokens: promptTokens(req.Messages), CompletionTokens: len(rep.thoughts) + len(rep.tokens),
	}
	rep.usage.TotalTokens = rep.usage.PromptTokens + rep.usage.CompletionTokens
	if len(rep.thoughts) > 0 {
		rep.usage.Details = &completionDetail{ReasoningTokens: len(rep.thoughts)}
	}
	return rep
}

// thinks tells whether a model of this name sends reasoning_content before its answer.
func thinks(model string) bool {
	return strings.Contains(model, "reasoner") || strings.Contains(model, "thinking")
}

const imageTokens = 765 // what a picture of this size costs elsewhere

func promptTokens(messages []chatMessage) int {
	n := 0
	for _, m := range messages {
		n += 4 + len(cutTokens(m.Text)) + imageTokens*len(m.Images)
	}
	return n
}

// send writes the answer at its pace. It ends early only when the caller left, or by a panic when the fault is a cut.
func (rep *reply) send(w http.ResponseWriter, r *http.Request) outcome {
	p := &pacer{ctx: r.Context(), perToken: rep.perToken}
	if !p.rest(rep.firstDelay) {
		return left
	}
	p.start = time.Now()
	write := rep.sendWhole
	if rep.stream {
		write = rep.sendStream
	}
	if !write(w, p) {
		return left
	}
	return complete
}

// breakAt is after how many answer tokens stall or cut strikes, -1 when neither does.
func (rep *reply) breakAt() int {
	switch rep.fault.Kind {
	case FaultCut:
		if rep.fault.After <= 0 {
			return len(rep.tokens) / 2
		}
		return min(rep.fault.After, len(rep.tokens))
	case FaultStall:
		return min(max(rep.fault.After, 0), len(rep.tokens))
	default:
		return -1
	}
}

// strike plays stall or cut. It does not return from a cut.
func (rep *reply) strike(p *pacer) {
	if rep.fault.Kind == FaultCut {
		panic(http.ErrAbortHandler) // the server's way to break the connection off
	}
	<-p.ctx.Done()
}

func (rep *reply) sendStream(w http.ResponseWriter, p *pacer) bool {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	out := &eventWriter{buf: bufio.NewWriterSize(w, 4<<10), ctl: http.NewResponseController(w)}
	rep.chunk.Object = "chat.completion.chunk"
	empty := ""
	ok := out.event(rep.delta(&payload{Role: "assistant", Content: &empty}, nil))
	for i := 0; ok && i < len(rep.thoughts); i++ {
		ok = p.token() && out.event(rep.delta(&payload{Reasoning: &rep.thoughts[i]}, nil))
	}
	strikeAt := rep.breakAt()
	for i := 0; ok; i++ {
		if i == strikeAt {
			rep.strike(p)
			return false
		}
		if i == len(rep.tokens) && (rep.fault.Kind != FaultEndless || len(rep.tokens) == 0) {
			break
		}
		ok = p.token() && out.event(rep.delta(&payload{Content: &rep.tokens[i%len(rep.tokens)]}, nil))
	}
	ok = ok && out.event(rep.delta(&payload{}, &rep.finish))
	if ok && rep.includeUsage && rep.fault.Kind != FaultNoUsage {
		last := rep.chunk
		last.Choices = []choice{}
		last.Usage = &rep.usage
		ok = out.event(last)
	}
	return ok && out.done()
}

func (rep *reply) delta(d *payload, finish *string) chatResponse {
	c := rep.chunk
	c.Choices = []choice{{Delta: d, FinishReason: finish}}
	return c
}

// sendWhole answers in one piece, after the time its tokens take.
func (rep *reply) sendWhole(w http.ResponseWriter, p *pacer) bool {
	for range len(rep.thoughts) + len(rep.tokens) {
		if !p.token() {
			return false
		}
	}
	text := strings.Join(rep.tokens, "")
	message := &payload{Role: "assistant", Content: &text}
	if len(rep.thoughts) > 0 {
		thoughts := strings.Join(rep.thoughts, "")
		message.Reasoning = &thoughts
	}
	res := rep.chunk
	res.Choices = []choice{{Message: message, FinishReason: &rep.finish}}
	if rep.fault.Kind != FaultNoUsage {
		res.Usage = &rep.usage
	}
	switch rep.fault.Kind {
	case FaultStall, FaultCut, FaultEndless:
		return rep.sendBroken(w, p, res)
	}
	writeJSON(w, http.StatusOK, res)
	return p.ctx.Err() == nil
}

// sendBroken sends the first half of an unstreamed answer and then stalls, cuts, or goes on for ever.
func (rep *reply) sendBroken(w http.ResponseWriter, p *pacer, res chatResponse) bool {
	b, err := json.Marshal(res)
	if err != nil {
		return false // strings and numbers always marshal
	}
	at := strings.Index(string(b), `"content":"`) + len(`"content":"`)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b[:at])
	ctl := http.NewResponseController(w)
	_ = ctl.Flush()
	if rep.fault.Kind != FaultEndless {
		rep.strike(p)
		return false
	}
	for p.ctx.Err() == nil && p.token() {
		if _, err := w.Write([]byte("and so on ")); err != nil {
			return false
		}
		_ = ctl.Flush()
	}
	return false
}

// eventWriter writes server-sent events, each at once.
type eventWriter struct {
	buf *bufio.Writer
	ctl *http.ResponseController
}

func (e *eventWriter) event(v any) bool {
	b, err := json.Marshal(v)
	return err == nil && e.data(b)
}

func (e *eventWriter) done() bool { return e.data([]byte("[DONE]")) }

func (e *eventWriter) data(b []byte) bool {
	_, _ = e.buf.WriteString("data: ")
	_, _ = e.buf.Write(b)
	_, _ = e.buf.WriteString("\n\n")
	return e.buf.Flush() == nil && e.ctl.Flush() == nil
}

// pacer lets tokens out at their times. A token that is late does not delay those after it.
type pacer struct {
	ctx      context.Context
	perToken time.Duration
	start    time.Time
	sent     int
}

// token waits for the next token's time; false when the caller left.
func (p *pacer) token() bool {
	p.sent++
	if p.perToken <= 0 {
		return p.ctx.Err() == nil
	}
	return p.rest(time.Until(p.start.Add(time.Duration(p.sent) * p.perToken)))
}

func (p *pacer) rest(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}
