package testprovider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// isResponse reports whether a call is for a response.
func isResponse(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/responses") }

// Events answers with these events of the responses API, and nothing behind them.
func Events(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, e := range events {
			event(w, e)
		}
	}
}

// event sends an event with its name.
func event(w http.ResponseWriter, data string) {
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal([]byte(data), &e) // what is not readable has no name
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "event: %s\n", e.Type) // fails only if the caller has left
	send(w, data)
}

// beginning returns the events before the text of a message.
func beginning() []string {
	return []string{
		`{"type":"response.created","sequence_number":0,"response":{"id":"resp_provider","object":"response","status":"in_progress","model":"provider","output":[]}}`,
		`{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_provider","object":"response","status":"in_progress","model":"provider","output":[]}}`,
		`{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"type":"message","id":"msg_provider","status":"in_progress","role":"assistant","content":[]}}`,
		`{"type":"response.content_part.added","sequence_number":3,"item_id":"msg_provider","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}`,
	}
}

func textDelta(text string) string {
	return fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"msg_provider","output_index":0,"content_index":0,"delta":%s,"logprobs":[]}`, quoted(text))
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // never fails
	return string(b)
}

// respond answers with a response whose message has texts, one after each interval.
func respond(w http.ResponseWriter, r *http.Request, every time.Duration, texts []string) {
	Events(beginning()...)(w, r)
	for _, text := range texts {
		if !wait(r, every) {
			return
		}
		event(w, textDelta(text))
	}
	c := callOf(r)
	part := `{"type":"output_text","text":` + quoted(strings.Join(texts, "")) + `,"annotations":[],"logprobs":[]}`
	item := `{"type":"message","id":"msg_provider","status":"completed","role":"assistant","content":[` + part + `]}`
	const at = `"item_id":"msg_provider","output_index":0,"content_index":0`
	event(w, `{"type":"response.output_text.done",`+at+`,"text":`+quoted(strings.Join(texts, ""))+`,"logprobs":[]}`)
	event(w, `{"type":"response.content_part.done",`+at+`,"part":`+part+`}`)
	event(w, `{"type":"response.output_item.done","output_index":0,"item":`+item+`}`)
	c.end()
	event(w, fmt.Sprintf(`{"type":"response.completed","response":{"id":"resp_provider","object":"response","status":"completed","model":"provider","output":[%s],"error":null,`+
		`"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}}}`,
		item, c.prompt, c.cached, c.prompt+10))
}
