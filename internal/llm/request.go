package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"berth"
)

// fields are the optional fields of a request, as a set: servers that do not know one may refuse the request.
type fields uint32

// The optional fields.
const (
	fieldStreamOptions fields = 1 << iota
	fieldResponseFormat
	fieldEncodingFormat
	// accepted is not a field: a request with stream_options was accepted.
	accepted
)

// namesOf are the texts by which a server names a field that it refuses.
var namesOf = map[fields][]string{
	fieldStreamOptions:  {"stream_options", "include_usage"},
	fieldResponseFormat: {"response_format", "json_object"},
	fieldEncodingFormat: {encodingFormat},
}

// droppable are the fields without which a call may be made: berth's own, and of a raw request those without which the client reads the same
// answer.
func (call Call) droppable() fields {
	switch {
	case call.Raw == nil:
		return fieldStreamOptions | fieldResponseFormat
	case call.Raw.Operation == OperationEmbeddings:
		return fieldEncodingFormat
	case call.Raw.Stream && !call.Raw.Responses:
		return fieldStreamOptions
	default:
		return 0
	}
}

// learned is what a process knows about one upstream of a model. It is safe for concurrent use.
type learned struct{ set atomic.Uint32 }

func (l *learned) refused() fields   { return fields(l.set.Load()) &^ accepted }
func (l *learned) accepts() bool     { return fields(l.set.Load())&accepted != 0 }
func (l *learned) remember(f fields) { l.set.Or(uint32(f)) }

// succeeded remembers what an accepted request without some fields shows.
func (l *learned) succeeded(call Call) {
	shows := call.without
	if call.droppable()&^call.without&fieldStreamOptions != 0 {
		shows |= accepted
	}
	l.remember(shows)
}

// drop returns the fields without which a request that failed may succeed, 0 for none: those that the server names, or else
// stream_options, if a request of an unknown kind was refused and none with that field has ever been accepted.
func (s *session) drop(failed *CallError, call Call) fields {
	if failed.Cause != CauseBadRequest {
		return 0
	}
	named, droppable := fields(0), call.droppable()
	for field, names := range namesOf {
		for _, name := range names {
			if bytes.Contains(failed.said, []byte(name)) && bytes.Contains(call.body, []byte(name)) {
				named |= field & droppable
			}
		}
	}
	switch {
	case named != 0:
		return named &^ call.without
	case droppable&^call.without&fieldStreamOptions != 0 && !s.learned.accepts():
		return fieldStreamOptions
	default:
		return 0
	}
}

// request returns a request to the provider.
func (ep endpoint) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(ep.baseURL, "/")+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "berth")
	if ep.key != "" {
		req.Header.Set("Authorization", "Bearer "+ep.key)
	}
	return req, nil
}

// requestBody is a request of the chat completions protocol without its messages.
type requestBody struct {
	Model               string          `json:"model"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
	ResponseFormat      *responseFormat `json:"response_format,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options,omitempty"`
}

type responseFormat struct {
	Type string `json:"type"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type messageBody struct {
	Role    Role `json:"role"`
	Content any  `json:"content"` // a text, or parts
}

type partBody struct {
	Type     string    `json:"type"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	Text     string    `json:"text,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// encodeMessages returns the messages of a call as they are in the body of its request.
func encodeMessages(call Call) ([]byte, error) {
	messages := make([]messageBody, len(call.Messages))
	for i, m := range call.Messages {
		messages[i] = m.body()
	}
	return encoded(call, messages)
}

// encoded returns a part of a call's request.
func encoded(call Call, part any) ([]byte, error) {
	b, err := json.Marshal(part)
	if err != nil {
		return nil, &CallError{Code: berth.CodeInternal, Model: call.Model, Message: "the request to the model cannot be encoded", Err: err}
	}
	return b, nil
}

// encode returns the body of a call's request, with the encoded messages. They are not encoded with the rest, which would take as long as
// the first time.
func (ep endpoint) encode(call Call) ([]byte, error) {
	if call.Raw != nil {
		return ep.encodeRaw(call)
	}
	r := requestBody{Model: ep.modelID, Stream: true}
	if ep.maxTokensField == maxCompletionTokens {
		r.MaxCompletionTokens = call.MaxTokens
	} else {
		r.MaxTokens = call.MaxTokens
	}
	if call.JSON && call.without&fieldResponseFormat == 0 {
		r.ResponseFormat = &responseFormat{Type: "json_object"}
	}
	if call.without&fieldStreamOptions == 0 {
		r.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	rest, err := encoded(call, r)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"messages":`), call.messages, []byte(","), rest[1:]), nil
}

func (m Message) body() messageBody {
	text := true
	parts := make([]partBody, len(m.Parts))
	for i, p := range m.Parts {
		if parts[i] = (partBody{Type: "text", Text: p.Text}); p.ImageURL != "" {
			parts[i], text = partBody{Type: "image_url", ImageURL: &imageURL{URL: p.ImageURL}}, false
		}
	}
	if text { // not all servers accept parts
		return messageBody{Role: m.Role, Content: m.Text()}
	}
	return messageBody{Role: m.Role, Content: parts}
}
