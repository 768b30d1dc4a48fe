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
	"strconv"
	"unicode/utf8"

	"berth/internal/llm"
	"berth/internal/rawjson"
)

// MaxBody is the maximum size of a request's body, in bytes.
const MaxBody = 32 << 20

// Bounds of the fields that berth reads. Those of metadata are OpenAI's.
const (
	maxChoices       = 128
	maxName          = 512 // bytes
	maxMetadata      = 16
	maxMetadataKey   = 64  // characters
	maxMetadataValue = 512 // characters
	maxInputs        = 2048
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

func isObject(text []byte) bool { return rawjson.IsObject(bytes.TrimLeft(text, " \t\r\n")) }

func (r *Request) value(name string) []byte {
	i := slices.IndexFunc(r.raw.Fields, func(f llm.RawField) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return r.raw.Fields[i].Value
}

func (r *Request) has(name string) bool { return !rawjson.IsNull(r.value(name)) }

// text reads a text of at most maxName bytes.
func text(value []byte) (string, *Error) {
	s, ok := rawjson.String(value)
	switch {
	case !ok:
		return "", wrongType("a text", value)
	case len(s) > maxName:
		return "", Invalid("", "string_above_max_length", "must have at most %d bytes", maxName)
	}
	return s, nil
}

// number reads a whole number of at least 1.
func number(value []byte, limit int) (int, *Error) {
	n, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil || n != math.Trunc(n):
		return 0, wrongType("a whole number", value)
	case n < 1:
		return 0, Invalid("", "integer_below_min_value", "must be at least 1")
	case n > float64(limit):
		return 0, Invalid("", "integer_above_max_value", "must be at most %d", limit)
	}
	return int(n), nil
}

// boolean reads true or false.
func boolean(value []byte) (bool, *Error) {
	switch string(value) {
	case "true", "false":
		return value[0] == 't', nil
	}
	return false, wrongType("true or false", value)
}

// wrongType returns the error for a value of another type.
func wrongType(want string, value []byte) *Error {
	return Invalid("", "invalid_type", "must be %s, and is %s", want, typeName(value))
}

func typeName(value []byte) string {
	switch {
	case rawjson.IsNull(value):
		return "null"
	case rawjson.IsObject(value):
		return "an object"
	case rawjson.IsList(value):
		return "a list"
	case rawjson.IsString(value):
		return "a text"
	case value[0] == 't', value[0] == 'f':
		return "true or false"
	default:
		return "the number " + string(value[:min(len(value), 20)])
	}
}

func readModel(r *Request, value []byte) (err *Error) {
	r.Model, err = text(value)
	return err
}

func readStream(r *Request, value []byte) (err *Error) {
	r.Stream, err = boolean(value)
	return err
}

func readStreamOptions(r *Request, value []byte) (err *Error) {
	if !rawjson.IsObject(value) {
		return wrongType("an object", value)
	}
	all := rawjson.Read(value)
	for key, option, ok := all.Field(); ok; key, option, ok = all.Field() {
		if rawjson.Key(key) != "include_usage" || rawjson.IsNull(option) {
			continue
		}
		if r.IncludeUsage, err = boolean(option); err != nil {
			err.Param = ".include_usage"
			return err
		}
	}
	return nil
}

// maxTokens bounds the numbers of tokens that clients may ask for.
const maxTokens = 1 << 30

func readMaxTokens(r *Request, value []byte) *Error {
	n, err := number(value, maxTokens)
	if err == nil && (r.MaxTokens == 0 || n < r.MaxTokens) {
		r.MaxTokens = n
	}
	return err
}

func readChoices(r *Request, value []byte) (err *Error) {
	r.Choices, err = number(value, maxChoices)
	return err
}

func readServiceTier(r *Request, value []byte) (err *Error) {
	r.ServiceTier, err = text(value)
	return err
}

func readUser(r *Request, value []byte) (err *Error) {
	r.user, err = text(value)
	return err
}

func readSafetyIdentifier(r *Request, value []byte) (err *Error) {
	r.EndUser, err = text(value)
	return err
}

func readCacheKey(r *Request, value []byte) (err *Error) {
	r.CacheKey, err = text(value)
	return err
}

func readStore(r *Request, value []byte) (err *Error) {
	r.Store, err = boolean(value)
	return err
}

func readMetadata(r *Request, value []byte) *Error {
	if !rawjson.IsObject(value) {
		return wrongType("an object", value)
	}
	r.Metadata = map[string]string{}
	all := rawjson.Read(value)
	for key, item, ok := all.Field(); ok; key, item, ok = all.Field() {
		name := rawjson.Key(key)
		text, isText := rawjson.String(item)
		var err *Error
		switch {
		case len(r.Metadata) == maxMetadata:
			return Invalid("", "object_above_max_properties", "must have at most %d entries", maxMetadata)
		case utf8.RuneCountInString(name) > maxMetadataKey:
			return Invalid("", "string_above_max_length", "must have keys of at most %d characters", maxMetadataKey)
		case !isText:
			err = wrongType("a text", item)
		case utf8.RuneCountInString(text) > maxMetadataValue:
			err = Invalid("", "string_above_max_length", "must have at most %d characters", maxMetadataValue)
		}
		if err != nil {
			err.Param = "." + name
			return err
		}
		r.Metadata[name] = text
	}
	return nil
}

func readEncoding(r *Request, value []byte) *Error {
	s, err := text(value)
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
