package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// account is one upstream of the model: an account at a provider, with its limits.
type account struct {
	name string
	// cap is how many calls it accepts at a time. Those above it are refused.
	cap int
	// empty accounts have no credit.
	empty bool
	// pauseAfter is the number of answers after which it refuses calls for retryAfter; 0 is never.
	pauseAfter int
	retryAfter time.Duration
}

// How an answer is written: its parts have partTokens tokens, and the first one is late.
const (
	firstPart  = 150 * time.Millisecond
	nextPart   = 60 * time.Millisecond
	partTokens = 5
	// answerTime is how long an answer of the programs takes, which have at most answerTokens tokens.
	answerTime   = firstPart + (answerTokens/partTokens-1)*nextPart
	answerTokens = 40
	// noticed is how long after a refusal calls may still arrive that were sent before their sender knew of it.
	noticed = 500 * time.Millisecond
)

// outcome is how a request to the provider ended.
type outcome string

const (
	answered outcome = "answered"
	cutOff   outcome = "cut off" // its caller left
	noCredit outcome = "no credit"
	paused   outcome = "paused"
	overCap  outcome = "over cap"
)

// attempt is one request to the provider.
type attempt struct {
	call    call
	account string
	// at and ended are when it began and ended; ended is zero if it was refused or runs.
	at, ended time.Time
	outcome   outcome
	// early attempts came before the time that the account had asked for.
	early         bool
	input, output int // tokens
}

// bought reports whether the attempt has cost something.
func (a *attempt) bought() bool { return a.output > 0 }

// provider serves the accounts, and counts on its own what it gets: nothing of its figures comes from a gateway.
type provider struct {
	accounts map[string]account

	mu       sync.Mutex //nolint:forbidigo // of a fake
	attempts []*attempt
	running  map[string]int
	peak     map[string]int
	answers  map[string]int // since the last pause
	pausedAt map[string]time.Time
	// held are the answers of a phase that wait until free is closed.
	held string
	free chan struct{}
}

func newProvider(accounts []account) *provider {
	p := &provider{
		accounts: map[string]account{}, running: map[string]int{}, peak: map[string]int{}, answers: map[string]int{}, pausedAt: map[string]time.Time{},
	}
	for _, a := range accounts {
		p.accounts[a.name] = a
	}
	return p
}

// request is what the provider reads of a request.
type request struct {
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
	Stream              bool              `json:"stream"`
	MaxTokens           int               `json:"max_tokens"`
	MaxCompletionTokens int               `json:"max_completion_tokens"`
	Tools               []json.RawMessage `json:"tools"`
}

// tokens returns how many tokens the prompt has: about one for four letters, as in most tokenizers.
func (r request) tokens() (n int) {
	for _, m := range r.Messages {
		n += len(fmt.Sprint(m.Content)) / 4
	}
	for _, t := range r.Tools {
		n += len(t) / 5 // names and brackets
	}
	return max(n, 1)
}

// call identifies a call of a program: all its retries have the same one.
type call struct {
	topic    string
	part     int
	messages int
}

// phase returns the part of the demonstration in which a call is made.
func (c call) phase() string { phase, _, _ := strings.Cut(c.topic, "/"); return phase }

var question = regexp.MustCompile(`Explain (\S+), part (\d+)\.`)

// callOf returns the call of a request, which all programs of the demonstration ask in the same words.
func callOf(r request) call {
	for _, m := range r.Messages {
		if found := question.FindStringSubmatch(fmt.Sprint(m.Content)); found != nil {
			part, _ := strconv.Atoi(found[2]) // digits
			return call{found[1], part, len(r.Messages)}
		}
	}
	return call{}
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req request
	if err != nil || json.Unmarshal(body, &req) != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "not a request of the protocol")
		return
	}
	account := p.accounts[r.PathValue("account")]
	a := p.begin(account, callOf(req), req.tokens())
	switch a.outcome {
	case noCredit:
		refuse(w, http.StatusTooManyRequests, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")
	case paused:
		w.Header().Set("Retry-After", strconv.Itoa(int(account.retryAfter/time.Second)))
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Rate limit reached for requests.")
	case overCap:
		refuse(w, http.StatusTooManyRequests, "rate_limit_exceeded", "Too many concurrent requests.")
	default:
		p.answer(w, r, req, a)
	}
}

// begin records a request and decides its outcome, which is answered until its caller leaves.
func (p *provider) begin(of account, c call, input int) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	a := &attempt{call: c, account: of.name, at: now, outcome: answered}
	p.attempts = append(p.attempts, a)
	p.peak[of.name] = max(p.peak[of.name], p.running[of.name]+1)
	since := now.Sub(p.pausedAt[of.name])
	switch {
	case of.empty:
		a.outcome = noCredit
	case since < of.retryAfter:
		a.outcome, a.early = paused, since > noticed
	case of.pauseAfter > 0 && p.answers[of.name] >= of.pauseAfter:
		a.outcome = paused
		p.answers[of.name], p.pausedAt[of.name] = 0, now
	case p.running[of.name] >= of.cap:
		a.outcome = overCap
	default:
		a.input = input
		p.answers[of.name]++
		p.running[of.name]++
	}
	return a
}

// end ends an attempt, before its last byte is sent: after that its caller may make the next one.
func (p *provider) end(a *attempt, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[a.account]--
	a.outcome, a.ended = o, time.Now()
}

// write waits for the next part of an answer, and reports whether the caller is still there.
func (p *provider) write(ctx context.Context, a *attempt, after time.Duration, tokens int) bool {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.output += tokens
	return true
}

// hold keeps the answers of a phase until free is called.
func (p *provider) hold(phase string) (free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.free = phase, make(chan struct{})
	return sync.OnceFunc(func() { close(p.free) })
}

// awaitFree waits while the answers of a phase are held.
func (p *provider) awaitFree(ctx context.Context, phase string) {
	p.mu.Lock()
	held, free := p.held, p.free
	p.mu.Unlock()
	if held != phase {
		return
	}
	select {
	case <-free:
	case <-ctx.Done():
	}
}

// message is the message of an answer, or a part of it.
type message struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    int               `json:"index"`
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Function map[string]string `json:"function"`
}

// answer writes an answer of as many tokens as the caller permits, or calls the tool if the last message is the question.
func (p *provider) answer(w http.ResponseWriter, r *http.Request, req request, a *attempt) {
	p.awaitFree(r.Context(), a.call.phase())
	tokens, finish := max(req.MaxTokens, req.MaxCompletionTokens), "stop"
	if tokens == 0 {
		tokens = answerTokens
	}
	whole := message{Role: "assistant"}
	called := len(req.Tools) > 0 && req.Messages[len(req.Messages)-1].Role == "user"
	if called {
		tokens, finish = min(tokens, 3*partTokens), "tool_calls"
		whole.ToolCalls = []toolCall{{ID: "call_1", Type: "function", Function: map[string]string{"name": "look_up", "arguments": `{"subject":"rivers"}`}}}
	}
	for wait := firstPart; a.output < tokens; wait = nextPart {
		n := min(partTokens, tokens-a.output)
		if !p.write(r.Context(), a, wait, n) {
			p.end(a, cutOff)
			return
		}
		if text := strings.Repeat("water ", n); !called {
			whole.Content += text
			if req.Stream {
				send(w, chunk{Choices: []choice{{Delta: &message{Content: text}}}})
			}
		}
	}
	p.end(a, answered)
	usage := &usage{a.input, a.output, a.input + a.output}
	if !req.Stream {
		w.Header().Set("Content-Type", "application/json")
		choices := []choice{{Message: &whole, FinishReason: finish}}
		write(w, "%s", chunk{ID: "chatcmpl-1", Object: "chat.completion", Model: "m", Choices: choices, Usage: usage})
		return
	}
	last := message{ToolCalls: whole.ToolCalls}
	send(w, chunk{Choices: []choice{{Delta: &last, FinishReason: finish}}})
	send(w, chunk{Choices: []choice{}, Usage: usage})
	_, _ = io.WriteString(w, "data: [DONE]\n\n") // fails only if the caller has left
}

type chunk struct {
	ID      string   `json:"id,omitempty"`
	Object  string   `json:"object,omitempty"`
	Created int64    `json:"created"`
	Model   string   `json:"model,omitempty"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	FinishReason any      `json:"finish_reason"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func send(w http.ResponseWriter, c chunk) {
	w.Header().Set("Content-Type", "text/event-stream")
	c.ID, c.Object, c.Model = "chatcmpl-1", "chat.completion.chunk", "m"
	write(w, "data: %s\n\n", c)
	_ = http.NewResponseController(w).Flush() // fails only if the caller has left
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	write(w, "%s", map[string]any{"error": map[string]any{"message": text, "type": code, "param": nil, "code": code}})
}

func write(w io.Writer, format string, value any) {
	b, _ := json.Marshal(value)              // never fails
	_, _ = fmt.Fprintf(w, format, string(b)) // fails only if the caller has left
}
