// Package openai reads requests of OpenAI's protocol and writes its errors and lists. internal/llm forwards the requests.
//
// The sources are https://github.com/openai/openai-openapi and the official clients.
package openai

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"berth/internal/llm"
	"berth/internal/rawjson"
)

// MaxBody is the maximum size of a request's body, in bytes.
const MaxBody = 32 << 20

// Bounds of the fields that berth reads.
const (
	maxChoices = 128
	maxInputs  = 2048
)

// Request is a request that was checked. It refers to its body, which must not change.
type Request struct {
	Model  string
	Stream bool
	// IncludeUsage: the client wants the chunk with the usage.
	IncludeUsage bool
	// Choices is the number of answers, 1 by default.
	Choices int
	// MaxTokens bounds each answer as the client wants, 0 without a bound.
	MaxTokens int
	// ServiceTier is as the client sent it, empty without one.
	ServiceTier string
	// EndUser is the safety_identifier, or else the user, CacheKey the prompt_cache_key; empty without one.
	EndUser, CacheKey string
	Store             bool
	Metadata          map[string]string
	// InputTokens is an estimate.
	InputTokens int64

	raw  llm.Raw
	user string
	size estimate
	// Of a response: the same request as a chat, nil for the reason noChat, and the encrypted content that it has.
	chat      *Request
	noChat    error
	encrypted []Encrypted
}

// Encrypted is encrypted content of a request, which only upstreams with an account can read.
type Encrypted struct {
	Param, Account string
}

// ParseChat reads the body of a request for chat completions. Its error is an *Error for the client.
func ParseChat(body []byte) (*Request, error) {
	r, err := parse(body, llm.OperationChat, chatFields)
	if err != nil {
		return nil, err
	}
	switch {
	case !r.size.counted:
		return nil, Invalid("messages", "missing_required_parameter", "the parameter messages is required")
	case r.has("stream_options") && !r.Stream:
		return nil, Invalid("stream_options", "invalid_value", "stream_options is only allowed with stream true")
	}
	for _, name := range []string{"tools", "functions", "response_format"} {
		r.size.add(r.value(name))
	}
	r.Choices = max(r.Choices, 1)
	return r.complete(), nil
}

// ParseEmbeddings reads the body of a request for vectors. Its error is an *Error for the client.
func ParseEmbeddings(body []byte) (*Request, error) {
	r, err := parse(body, llm.OperationEmbeddings, embeddingFields)
	if err != nil {
		return nil, err
	}
	if !r.size.counted {
		return nil, Invalid("input", "missing_required_parameter", "the parameter input is required")
	}
	return r.complete(), nil
}

// ParseResponse reads the body of a request for a response, which internal/responses has made, and the same one as a chat for upstreams that speak
// only these. noChat is why there is no chat. Its error is an *Error for the client.
func ParseResponse(body, chat []byte, noChat error, encrypted []Encrypted) (*Request, error) {
	r, err := parse(body, llm.OperationChat, responseFields)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"tools", "text"} {
		r.size.add(r.value(name))
	}
	r.Choices, r.raw.Responses, r.encrypted, r.noChat = 1, true, encrypted, noChat
	r.complete()
	if noChat != nil {
		return r, nil //nolint:nilerr // Check returns it, unless the model has upstreams that need no chat
	}
	if r.chat, err = ParseChat(chat); err != nil {
		return nil, err
	}
	r.raw.Chat = &r.chat.raw
	r.raw.Chat.InputTokens, r.raw.Chat.LeastTokens = r.raw.InputTokens, r.raw.LeastTokens
	return r, nil
}

func (r *Request) complete() *Request {
	if r.EndUser == "" {
		r.EndUser = r.user
	}
	r.InputTokens = int64(math.Ceil(r.size.tokens))
	r.raw.Stream, r.raw.IncludeUsage, r.raw.Choices, r.raw.MaxTokens = r.Stream, r.IncludeUsage, r.Choices, r.MaxTokens
	r.raw.InputTokens, r.raw.LeastTokens = r.InputTokens, r.size.least
	return r
}

// Check returns the upstreams of a model that do not accept a part of the request. If no upstream accepts all of it, its error is an *Error that names
// what one does not accept.
func (r *Request) Check(m llm.Model) (excluded []string, err error) {
	for _, u := range m.Upstreams {
		if refused := r.refusedBy(u); refused != nil {
			excluded, err = append(excluded, u.Name), refused
		}
	}
	if len(excluded) == len(m.Upstreams) {
		return nil, err
	}
	return excluded, nil
}

// refusedBy returns why an upstream does not accept the request, nil if it does.
func (r *Request) refusedBy(u llm.Upstream) error {
	for _, e := range r.encrypted {
		if !u.Responses || e.Account != u.Account {
			return Invalid(e.Param, "unsupported_value", "can be read only by the upstream that made it, and the model %s does not have that: omit the item", r.Model)
		}
	}
	if r.raw.Responses && !u.Responses {
		if r.noChat != nil {
			return r.noChat
		}
		return r.chat.refusedBy(u)
	}
	switch lack := r.raw.Lacks(u); {
	case lack != "":
		return Invalid(lack, "unknown_parameter",
			"unknown parameter %s: no upstream of the model %s accepts it; omit it, or the operator has to list it in extra in the routing file", lack, r.Model)
	case r.Store && !slices.Contains(u.Extra, "store"):
		return Invalid("store", "unsupported_value", "the model %s does not store answers for clients: omit store", r.Model)
	}
	return nil
}

// Call returns the call of the request to a model of the catalog, of which the request may have an alias. shown is what the client reads in the
// answer in place of what the provider sends; its model is by default the name that the client has used. The caller adds the upstream, the
// bound of the answer, and labels.
func (r *Request) Call(model string, shown llm.Shown) llm.Call {
	raw := r.raw
	raw.Shown = shown
	raw.Shown.Model = cmp.Or(shown.Model, r.Model)
	if raw.Chat != nil {
		chat := *raw.Chat
		chat.Shown, raw.Chat = raw.Shown, &chat
	}
	return llm.Call{Model: model, Raw: &raw}
}

// IsObject reports whether a text is an object, behind white space.
func IsObject(text []byte) bool { return rawjson.IsObject(bytes.TrimLeft(text, " \t\r\n")) }

func (r *Request) value(name string) []byte {
	i := slices.IndexFunc(r.raw.Fields, func(f llm.RawField) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return r.raw.Fields[i].Value
}

func (r *Request) has(name string) bool { return !rawjson.IsNull(r.value(name)) }

func readModel(r *Request, value []byte) (err *Error) {
	r.Model, err = Text(value)
	return err
}

func readStream(r *Request, value []byte) (err *Error) {
	r.Stream, err = Boolean(value)
	return err
}

func readStreamOptions(r *Request, value []byte) (err *Error) {
	if !rawjson.IsObject(value) {
		return WrongType("an object", value)
	}
	all := rawjson.Read(value)
	for key, option, ok := all.Field(); ok; key, option, ok = all.Field() {
		if rawjson.Key(key) != "include_usage" || rawjson.IsNull(option) {
			continue
		}
		if r.IncludeUsage, err = Boolean(option); err != nil {
			err.Param = ".include_usage"
			return err
		}
	}
	return nil
}

func readMaxTokens(r *Request, value []byte) *Error {
	n, err := Number(value, 1, MaxTokens)
	if err == nil && (r.MaxTokens == 0 || n < r.MaxTokens) {
		r.MaxTokens = n
	}
	return err
}

func readChoices(r *Request, value []byte) (err *Error) {
	r.Choices, err = Number(value, 1, maxChoices)
	return err
}

func readServiceTier(r *Request, value []byte) (err *Error) {
	r.ServiceTier, err = Text(value)
	return err
}

func readUser(r *Request, value []byte) (err *Error) {
	r.user, err = Text(value)
	return err
}

func readSafetyIdentifier(r *Request, value []byte) (err *Error) {
	r.EndUser, err = Text(value)
	return err
}

func readCacheKey(r *Request, value []byte) (err *Error) {
	r.CacheKey, err = Text(value)
	return err
}

func readStore(r *Request, value []byte) (err *Error) {
	r.Store, err = Boolean(value)
	return err
}

func readMetadata(r *Request, value []byte) (err *Error) {
	r.Metadata, err = Metadata(value)
	return err
}

func readEncoding(r *Request, value []byte) *Error {
	s, err := Text(value)
	if err != nil {
		return err
	}
	if s != "float" && s != "base64" {
		return Invalid("", "invalid_value", "must be float or base64")
	}
	r.raw.Base64 = s == "base64"
	return nil
}

// at names an item of a list.
func at(i int) string { return fmt.Sprintf("[%d]", i) }
