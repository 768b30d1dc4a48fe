// Package responses reads requests of OpenAI's responses API, translates them for providers that speak only chat completions, and makes the events of
// a response. It knows neither routes nor stores.
//
// The sources are https://github.com/openai/openai-openapi and the types of the official clients.
package responses

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth"
	"berth/internal/openai"
	"berth/internal/rawjson"
)

// Bounds of what a request has, those of OpenAI.
const (
	maxTopLogprobs  = 20
	maxTemperature  = 2
	maxTopP         = 1
	maxFunctionName = 128 // of a schema, too
)

// functionName is what names of functions and schemas have, with OpenAI.
var functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// Request is a request that was checked. It refers to its body, which must not change.
type Request struct {
	Model                     string
	Stream, Background, Store bool
	// PreviousID is the response that it continues, empty without one.
	PreviousID string
	// ServiceTier is as the client sent it, empty without one.
	ServiceTier string
	// EndUser is the safety_identifier, or else the user, CacheKey the prompt_cache_key; empty without one.
	EndUser, CacheKey string
	Metadata          map[string]string

	values  map[string][]byte // of the parameters that are not null
	order   []string          // of the parameters, as the client sent them
	items   []json.RawMessage // of the input, as the client sent them; a text is one message
	pool    map[string]json.RawMessage
	user    string
	include []string
	summary bool // reasoning is shown as a summary
	hash    string
}

// Parse reads the body of a request. Its error is an *openai.Error for the client.
func Parse(body []byte) (*Request, error) {
	if len(body) > openai.MaxBody {
		return nil, openai.ErrorOf(berth.Errorf(berth.CodeTooLarge, "the body has more than 32 MiB: send less"))
	}
	if err := rawjson.Check(body); err != nil {
		return nil, invalid("", "invalid_json", "the body is not valid JSON: %s", err)
	}
	if !openai.IsObject(body) {
		return nil, invalid("", "invalid_type", "the body must be a JSON object")
	}
	r := &Request{Store: true, values: map[string][]byte{}}
	all := rawjson.Read(body)
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		if rawjson.IsNull(value) { // as one that is missing
			continue
		}
		name := rawjson.Key(key)
		r.values[name], r.order = value, append(r.order, name)
		f := fieldByName[name]
		if f.use == refused {
			return nil, invalid(name, "unsupported_parameter", "%s is not supported: %s", name, f.does)
		}
		if f.read == nil {
			continue
		}
		if err := f.read(r, value); err != nil {
			err.Param = name + err.Param
			err.Message = openai.Named(err.Param, err.Message)
			return nil, err
		}
	}
	if err := r.complete(body); err != nil {
		return nil, err
	}
	return r, nil
}

// complete checks what parameters require of each other.
func (r *Request) complete(body []byte) error {
	switch {
	case r.Model == "":
		return invalid("model", "missing_required_parameter", "the parameter model is required")
	case r.values["input"] == nil && r.PreviousID == "":
		return invalid("input", "missing_required_parameter", "the parameter input is required")
	case len(r.items) == 0 && r.PreviousID == "":
		return invalid("input", "invalid_value", "input: must have an item")
	case r.Background && !r.Store:
		return invalid("store", "invalid_value", "store: must not be false for a response in the background, which is read later")
	}
	if choice := string(r.values["tool_choice"]); !r.has("tools") && choice != "" && choice != `"auto"` && choice != `"none"` {
		return invalid("tool_choice", "invalid_value", "tool_choice: requires tools")
	}
	r.EndUser = cmp.Or(r.EndUser, r.user)
	sum := sha256.Sum256(body)
	r.hash = string(sum[:])
	return nil
}

// has reports whether the request has a parameter that is neither null nor an empty list.
func (r *Request) has(name string) bool {
	v := r.values[name]
	if !rawjson.IsList(v) {
		return v != nil
	}
	all := rawjson.Read(v)
	_, ok := all.Item()
	return ok
}

func readModel(r *Request, v []byte) (err *openai.Error) { r.Model, err = openai.Text(v); return err }

func readPreviousID(r *Request, v []byte) (err *openai.Error) {
	if r.PreviousID, err = openai.Text(v); err == nil && r.PreviousID == "" { // another conversation would begin, unnoticed
		return invalid("", "invalid_value", "must not be empty")
	}
	return err
}

func readServiceTier(r *Request, v []byte) (err *openai.Error) {
	r.ServiceTier, err = openai.Text(v)
	return err
}

func readSafetyIdentifier(r *Request, v []byte) (err *openai.Error) {
	r.EndUser, err = openai.Text(v)
	return err
}

func readUser(r *Request, v []byte) (err *openai.Error) { r.user, err = openai.Text(v); return err }

func readCacheKey(r *Request, v []byte) (err *openai.Error) {
	r.CacheKey, err = openai.Text(v)
	return err
}

func readStream(r *Request, v []byte) (err *openai.Error) {
	r.Stream, err = openai.Boolean(v)
	return err
}

func readBackground(r *Request, v []byte) (err *openai.Error) {
	r.Background, err = openai.Boolean(v)
	return err
}

func readStore(r *Request, v []byte) (err *openai.Error) {
	r.Store, err = openai.Boolean(v)
	return err
}

func readParallel(_ *Request, v []byte) (err *openai.Error) { _, err = openai.Boolean(v); return err }

func readMaxOutputTokens(_ *Request, v []byte) *openai.Error { return number(v, 1, openai.MaxTokens) }

func readMaxToolCalls(_ *Request, v []byte) *openai.Error { return number(v, 1, openai.MaxTokens) }

func readTopLogprobs(_ *Request, v []byte) *openai.Error { return number(v, 0, maxTopLogprobs) }

func readTemperature(_ *Request, v []byte) *openai.Error { return decimal(v, maxTemperature) }

func readTopP(_ *Request, v []byte) *openai.Error { return decimal(v, maxTopP) }

func readTruncation(_ *Request, v []byte) *openai.Error { return oneOf(v, "auto", "disabled") }

func readInstructions(_ *Request, v []byte) *openai.Error {
	if !rawjson.IsString(v) {
		return openai.WrongType("a text", v)
	}
	return nil
}

func readStreamOptions(_ *Request, v []byte) *openai.Error {
	return object(v, func(name string, option []byte) *openai.Error {
		if name != "include_obfuscation" && name != "include_usage" { // the usage is always there
			return invalid("", "unknown_parameter", "unknown parameter")
		}
		_, err := openai.Boolean(option)
		return err
	})
}

// What a request may include. The results of hosted tools do not exist.
const (
	includeLogprobs  = "message.output_text.logprobs"
	includeImages    = "message.input_image.image_url"
	includeEncrypted = "reasoning.encrypted_content"
)

func readInclude(r *Request, v []byte) *openai.Error {
	return list(v, func(_ int, item []byte) *openai.Error {
		s, ok := rawjson.String(item)
		switch {
		case !ok:
			return openai.WrongType("a text", item)
		case s != includeLogprobs && s != includeImages && s != includeEncrypted:
			return invalid("", "unsupported_value", "%.64q is not supported: only %s, %s and %s can be included", s, includeLogprobs, includeImages, includeEncrypted)
		}
		r.include = append(r.include, s)
		return nil
	})
}

func readReasoning(r *Request, v []byte) *openai.Error {
	return object(v, func(name string, option []byte) *openai.Error {
		switch name {
		case "summary", "generate_summary":
			r.summary = true
			return oneOf(option, "auto", "concise", "detailed")
		case "effort", "context", "mode":
		default:
			return invalid("", "unknown_parameter", "unknown parameter")
		}
		_, err := openai.Text(option)
		return err
	})
}

func readText(_ *Request, v []byte) *openai.Error {
	return object(v, func(name string, option []byte) *openai.Error {
		switch name {
		case "verbosity":
			_, err := openai.Text(option)
			return err
		case "format":
			return readFormat(option)
		}
		return invalid("", "unknown_parameter", "unknown parameter")
	})
}

func readFormat(v []byte) *openai.Error {
	if err := object(v, nil); err != nil {
		return err
	}
	if err := oneOf(get(v, "type"), "text", "json_object", "json_schema"); err != nil {
		return under("type", err)
	}
	if value(v, "type") != "json_schema" {
		return nil
	}
	if err := requiredName(v); err != nil {
		return err
	}
	if schema := get(v, "schema"); !rawjson.IsObject(schema) {
		return under("schema", openai.WrongType("an object", schema))
	}
	return nil
}

func readTools(_ *Request, v []byte) *openai.Error {
	seen := map[string]bool{}
	return list(v, func(_ int, tool []byte) *openai.Error {
		if err := readTool(tool); err != nil {
			return err
		}
		name := value(tool, "name")
		if seen[name] {
			return under("name", invalid("", "invalid_value", "%.64q is the name of another tool, too", name))
		}
		seen[name] = true
		return nil
	})
}

func readTool(tool []byte) *openai.Error {
	if err := object(tool, nil); err != nil {
		return err
	}
	if err := required(tool, "type"); err != nil {
		return err
	}
	kind := value(tool, "type")
	if kind != "function" && kind != "custom" {
		return under("type", invalid("", "unsupported_value", "the tool %.64q is not supported: only functions and custom tools are, which the client runs", kind))
	}
	if d := get(tool, "description"); !rawjson.IsNull(d) && !rawjson.IsString(d) {
		return under("description", openai.WrongType("a text", d))
	}
	if kind == "custom" {
		return required(tool, "name")
	}
	if err := requiredName(tool); err != nil {
		return err
	}
	if p := get(tool, "parameters"); !rawjson.IsNull(p) && !rawjson.IsObject(p) {
		return under("parameters", openai.WrongType("an object", p))
	}
	if strict := get(tool, "strict"); !rawjson.IsNull(strict) {
		if _, err := openai.Boolean(strict); err != nil {
			return under("strict", err)
		}
	}
	return nil
}

// requiredName returns an error if an object does not have a name that OpenAI accepts of functions and schemas.
func requiredName(v []byte) *openai.Error {
	if err := required(v, "name"); err != nil {
		return err
	}
	switch name := value(v, "name"); {
	case !functionName.MatchString(name):
		return under("name", invalid("", "invalid_value", "must have only letters and digits of ASCII, _ and -"))
	case len(name) > maxFunctionName:
		return under("name", invalid("", "string_above_max_length", "must have at most %d characters", maxFunctionName))
	}
	return nil
}

func readToolChoice(_ *Request, v []byte) *openai.Error {
	if rawjson.IsString(v) {
		return oneOf(v, "none", "auto", "required")
	}
	if err := object(v, nil); err != nil {
		return err
	}
	switch kind := value(v, "type"); kind {
	case "function", "custom":
		return required(v, "name")
	case "allowed_tools":
		if err := oneOf(get(v, "mode"), "auto", "required"); err != nil {
			return under("mode", err)
		}
		if err := list(get(v, "tools"), func(_ int, tool []byte) *openai.Error { return readTool(tool) }); err != nil {
			return under("tools", err)
		}
		return nil
	default:
		return under("type", invalid("", "unsupported_value", "%.64q is not supported: only function, custom and allowed_tools are", kind))
	}
}

func readMetadata(r *Request, v []byte) (err *openai.Error) {
	r.Metadata, err = openai.Metadata(v)
	return err
}

// object reads the fields of an object that are not null. The error of each gets its name.
func object(v []byte, each func(name string, value []byte) *openai.Error) *openai.Error {
	if !rawjson.IsObject(v) {
		return openai.WrongType("an object", v)
	}
	all := rawjson.Read(v)
	for key, item, ok := all.Field(); ok && each != nil; key, item, ok = all.Field() {
		if rawjson.IsNull(item) {
			continue
		}
		name := rawjson.Key(key)
		if err := each(name, item); err != nil {
			return under(name[:min(len(name), openai.MaxName)], err)
		}
	}
	return nil
}

// list reads the items of a list. The error of each gets its place.
func list(v []byte, each func(i int, item []byte) *openai.Error) *openai.Error {
	if !rawjson.IsList(v) {
		return openai.WrongType("a list", v)
	}
	all := rawjson.Read(v)
	for i := 0; ; i++ {
		item, ok := all.Item()
		if !ok {
			return nil
		}
		if err := each(i, item); err != nil {
			err.Param = "[" + strconv.Itoa(i) + "]" + err.Param
			return err
		}
	}
}

// under returns an error of a field of an object.
func under(name string, err *openai.Error) *openai.Error {
	err.Param = "." + name + err.Param
	return err
}

// get returns a field of an object, nil if there is none or it is null.
func get(v []byte, name string) []byte {
	all := rawjson.Read(v)
	if !rawjson.IsObject(v) {
		return nil
	}
	for key, item, ok := all.Field(); ok; key, item, ok = all.Field() {
		if string(key) == name && !rawjson.IsNull(item) {
			return item
		}
	}
	return nil
}

// value returns a field of an object that is a text, "" for anything else.
func value(v []byte, name string) string {
	s, _ := rawjson.String(get(v, name))
	return s
}

// required returns an error if an object does not have a text that is not empty.
func required(v []byte, name string) *openai.Error {
	switch item := get(v, name); {
	case item == nil:
		return under(name, invalid("", "missing_required_parameter", "is required"))
	case !rawjson.IsString(item):
		return under(name, openai.WrongType("a text", item))
	case len(item) == len(`""`):
		return under(name, invalid("", "invalid_value", "must not be empty"))
	}
	return nil
}

// number returns an error unless a value is a whole number within bounds.
func number(v []byte, least, limit int) *openai.Error {
	_, err := openai.Number(v, least, limit)
	return err
}

// decimal returns an error unless a value is a number from 0 to limit.
func decimal(v []byte, limit float64) *openai.Error {
	n, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange): // which is infinite
		return openai.WrongType("a number", v)
	case n < 0:
		return invalid("", "decimal_below_min_value", "must be at least 0")
	case n > limit:
		return invalid("", "decimal_above_max_value", "must be at most %v", limit)
	}
	return nil
}

func oneOf(v []byte, names ...string) *openai.Error {
	if s, ok := rawjson.String(v); !ok || !slices.Contains(names, s) {
		return invalid("", "invalid_value", "must be one of %s", strings.Join(names, ", "))
	}
	return nil
}

// invalid returns an error of the request.
func invalid(param, code, format string, args ...any) *openai.Error {
	return &openai.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: openai.TypeRequest, Param: param, Code: code, Final: true}
}
