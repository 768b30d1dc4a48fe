package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// provider implements the part of the chat-completions protocol that berth's client uses. Each token is the time at which
// it was sent, in Unix nanoseconds, so that a reader can compute its latency.
type provider struct {
	tokens int
	pause  time.Duration
}

const summaryAnswer = `{"title":"Engineer","skills":["Go"]}`

func (p provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	send := func(text string, finish any) {
		b, _ := json.Marshal(map[string]any{ // strings and nil: cannot fail
			"id": "bench", "object": "chat.completion.chunk", "created": 1, "model": "bench",
			"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"content": text}, "finish_reason": finish}},
		})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", b) // a disconnected reader cancels the request's context
		_ = flush.Flush()
	}
	switch text := string(body); {
	case strings.Contains(text, readInstruction):
		send("An engineer who writes Go.", nil)
	case strings.Contains(text, summaryInstruction):
		send(summaryAnswer, nil)
	default:
		p.stream(r, send)
	}
	send("", "stop")
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func (p provider) stream(r *http.Request, send func(string, any)) {
	var tick <-chan time.Time
	if p.pause > 0 {
		t := time.NewTicker(p.pause)
		defer t.Stop()
		tick = t.C
	}
	for range p.tokens {
		if tick != nil {
			select {
			case <-tick:
			case <-r.Context().Done():
				return
			}
		}
		send(strconv.FormatInt(time.Now().UnixNano(), 10)+" ", nil)
	}
}
