package llm

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"berth"
	"berth/internal/rawjson"
)

// Operation is what a raw request asks for, by its name in OpenTelemetry's conventions.
type Operation string

// The operations.
const (
	OperationChat       Operation = "chat"
	OperationEmbeddings Operation = "embeddings"
)

// path returns where the request of a call is sent.
func (call Call) path() string {
	switch {
	case call.Raw == nil:
	case call.Raw.Operation == OperationEmbeddings:
		return "/embeddings"
	case call.Raw.Responses:
		return "/responses"
	}
	return "/chat/completions"
}

// Raw is a request of OpenAI's protocol that is forwarded. internal/openai makes it of a body that it has checked.
type Raw struct {
	Operation Operation
	// Responses: it is a request of the responses API, which is streamed. Chat is the same request for upstreams that speak only chat completions, nil if no
	// chat can carry it.
	Responses bool
	Chat      *Raw
	// Fields are those of the request, in their order.
	Fields []RawField
	Stream bool
	// IncludeUsage: the client wants the chunk with the usage.
	IncludeUsage bool
	// Choices is the number of answers, at least 1 for a chat.
	Choices int
	// MaxTokens is the bound of one answer that the client wants, 0 without one.
	MaxTokens int
	// Base64: the client reads vectors in base64, and otherwise as lists of numbers.
	Base64 bool
	// InputTokens estimates the tokens of the request, and LeastTokens is the number below which a provider cannot have read all of it.
	InputTokens, LeastTokens int64
	Shown                    Shown
}

// RawField is a field of a raw request, as it is written.
type RawField struct {
	Name       string
	Key, Value []byte // Key is between the quotes
	Use        FieldUse
}

// FieldUse is what a provider gets of a field.
type FieldUse int

// The uses.
const (
	// FieldForwarded: as the client sent it.
	FieldForwarded FieldUse = iota
	// FieldChanged: with another name or value, see encodeRaw.
	FieldChanged
	// FieldOwn: berth acts on it. An upstream gets it if it lists it in extra.
	FieldOwn
	// FieldFurther: no field of OpenAI's. Only upstreams that list it in extra can serve the request.
	FieldFurther
)

// Shown is what a client reads in place of what the provider sends. For an empty field, each chunk has the value of the provider's first one.
type Shown struct {
	ID, Model, ServiceTier string
	Created                int64 // Unix time
}

// Cost estimates the tokens of the call before it is made, with its answers, in thousands.
func (r *Raw) Cost() float64 {
	tokens := float64(r.InputTokens)
	if r.Operation == OperationChat {
		answer := float64(tokensPerAnswer)
		if r.MaxTokens > 0 {
			answer = min(answer, float64(r.MaxTokens))
		}
		tokens += answer * float64(max(r.Choices, 1))
	}
	return math.Ceil(tokens/10) / 100
}

// bound returns the bound of one answer within that of the caller.
func (r *Raw) bound(limit int) int {
	if r.MaxTokens > 0 && (limit <= 0 || r.MaxTokens < limit) {
		return r.MaxTokens
	}
	return limit
}

// field returns the value of a field, nil if the request does not have it.
func (r *Raw) field(name string) []byte {
	i := slices.IndexFunc(r.Fields, func(f RawField) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return r.Fields[i].Value
}

// Lacks returns the first of the request's fields that an upstream does not accept, or "".
func (r *Raw) Lacks(u Upstream) string {
	for _, f := range r.Fields {
		if f.Use == FieldFurther && !slices.Contains(u.Extra, f.Name) {
			return f.Name
		}
	}
	return ""
}

// encodeRaw returns the body of a raw call's request. A field that is not changed has the bytes that the client sent.
func (ep endpoint) encodeRaw(call Call) ([]byte, error) {
	raw, size := call.Raw, 256
	for _, f := range raw.Fields {
		size += len(f.Key) + len(f.Value) + 4
	}
	out := make([]byte, 0, size)
	for _, f := range raw.Fields {
		listed := slices.Contains(ep.extra, f.Name)
		switch {
		case f.Name == "model":
			id, err := json.Marshal(ep.modelID)
			if err != nil {
				return nil, &CallError{Code: berth.CodeInternal, Model: call.Model, Message: "the request to the model cannot be encoded", Err: err}
			}
			out = appendField(out, f.Key, id)
		case f.Name == encodingFormat && call.without&fieldEncodingFormat != 0, f.Use == FieldChanged, f.Use == FieldOwn && !listed:
		case f.Use == FieldFurther && !listed:
			return nil, ep.cannotCarry("the field " + f.Name)
		default:
			out = appendField(out, f.Key, f.Value)
		}
	}
	if n := raw.bound(call.MaxTokens); n > 0 && raw.Operation == OperationChat {
		out = appendField(out, []byte(ep.boundField(raw)), strconv.AppendInt(nil, int64(n), 10))
	}
	if raw.Operation == OperationChat && raw.Stream && !raw.Responses && call.without&fieldStreamOptions == 0 {
		out = appendField(out, []byte(streamOptionsField), withUsage(raw.field(streamOptionsField)))
	}
	return append(out, '}'), nil
}

// boundField returns the name of the bound of an answer.
func (ep endpoint) boundField(raw *Raw) string {
	switch {
	case raw.Responses:
		return "max_output_tokens"
	case ep.maxTokensField == maxCompletionTokens:
		return maxCompletionTokens
	default:
		return maxTokens
	}
}

// cannotCarry returns the error for a request with something that an upstream does not accept.
func (ep endpoint) cannotCarry(what string) *CallError {
	return &CallError{
		Code: berth.CodeUnavailable, Scope: ScopeUpstream, Retryable: true, Provider: ep.servedBy,
		Message: "the upstream that is free now does not accept " + what + ": retry later",
	}
}

// Names of fields that requests share.
const (
	streamOptionsField = "stream_options"
	encodingFormat     = "encoding_format"
)

// withUsage returns stream options that request the usage.
func withUsage(options []byte) []byte {
	var out []byte
	all := rawjson.Read(options)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if rawjson.Key(key) != "include_usage" {
			out = appendField(out, key, value)
		}
	}
	return append(appendField(out, []byte("include_usage"), []byte("true")), '}')
}

// appendField appends a field to an object that is not closed, and opens it before the first one.
func appendField(object, key, value []byte) []byte {
	if len(object) == 0 {
		object = append(object, '{')
	} else {
		object = append(object, ',')
	}
	object = append(append(append(object, '"'), key...), '"', ':')
	return append(object, value...)
}
