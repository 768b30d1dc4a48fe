package openai

import (
	"berth"
	"berth/internal/llm"
	"berth/internal/rawjson"
)

// field is a parameter of a request that OpenAI's protocol has.
type field struct {
	name string
	use  llm.FieldUse
	// read checks the value, which is not null, and stores it. It is nil for a value that only the provider reads.
	read func(r *Request, value []byte) *Error
	// does is what berth does with it, for the page in docs; empty if it only forwards it.
	does string
}

// chatFields are the parameters of a chat. docs/openai.md is generated from it.
var chatFields = []field{
	{"model", llm.FieldChanged, readModel, "names a model of the routing file or its alias; the provider gets its own name for it"},
	{"messages", llm.FieldForwarded, readMessages, "counted for the estimate of tokens"},
	{"stream", llm.FieldForwarded, readStream, ""},
	{"stream_options", llm.FieldChanged, readStreamOptions, "the provider is always asked for the usage; the client gets the chunk with it if it asked"},
	{"max_tokens", llm.FieldChanged, readMaxTokens, "lowered to what was reserved for the call, or to `maxOutputTokens` of the model; the provider gets it by the name that it knows"},
	{"max_completion_tokens", llm.FieldChanged, readMaxTokens, "as `max_tokens`; the lower one of both counts"},
	{"n", llm.FieldForwarded, readChoices, "1 to 128; tokens are reserved for each"},
	{"service_tier", llm.FieldOwn, readServiceTier, "chooses the queue; forwarded only if the upstream lists it in `extra`"},
	{"user", llm.FieldForwarded, readUser, "the end user, if the key allows it"},
	{"safety_identifier", llm.FieldForwarded, readSafetyIdentifier, "as `user`, which it precedes"},
	{"prompt_cache_key", llm.FieldForwarded, readCacheKey, "calls with the same value prefer the same upstream"},
	{"store", llm.FieldOwn, readStore, "`true` is refused unless the upstream lists it in `extra`: berth keeps answers as the key's retention says"},
	{"metadata", llm.FieldOwn, readMetadata, "at most 16 texts, kept with the call; forwarded only if the upstream lists it in `extra`"},
	{"tools", llm.FieldForwarded, nil, "counted for the estimate of tokens"},
	{"functions", llm.FieldForwarded, nil, "counted for the estimate of tokens"},
	{"response_format", llm.FieldForwarded, nil, "counted for the estimate of tokens"},
	{name: "audio"},
	{name: "frequency_penalty"},
	{name: "function_call"},
	{name: "logit_bias"},
	{name: "logprobs"},
	{name: "modalities"},
	{name: "moderation"},
	{name: "parallel_tool_calls"},
	{name: "prediction"},
	{name: "presence_penalty"},
	{name: "prompt_cache_options"},
	{name: "prompt_cache_retention"},
	{name: "reasoning_effort"},
	{name: "seed"},
	{name: "stop"},
	{name: "temperature"},
	{name: "tool_choice"},
	{name: "top_logprobs"},
	{name: "top_p"},
	{name: "verbosity"},
	{name: "web_search_options"},
}

// embeddingFields are the parameters of a request for vectors. docs/openai.md is generated from it.
var embeddingFields = []field{
	{"model", llm.FieldChanged, readModel, "as that of a chat"},
	{"input", llm.FieldForwarded, readInput, "counted for the estimate of tokens"},
	{"encoding_format", llm.FieldForwarded, readEncoding, "`float` or `base64`; vectors of a provider that knows only one are converted"},
	{"user", llm.FieldForwarded, readUser, "as that of a chat"},
	{name: "dimensions"},
}

// responseFields are the parameters of a response as internal/responses makes its body, which has checked them.
var responseFields = []field{
	{name: "model", use: llm.FieldChanged, read: readModel},
	{name: "input", read: readItems},
	{name: "instructions", read: readInstructions},
	{name: "max_output_tokens", use: llm.FieldChanged, read: readMaxTokens},
	{name: "service_tier", use: llm.FieldOwn, read: readServiceTier},
	{name: "metadata", use: llm.FieldOwn},
	{name: "user", read: readUser},
	{name: "safety_identifier", read: readSafetyIdentifier},
	{name: "prompt_cache_key", read: readCacheKey},
	{name: "stream", read: readStream},
	{name: "store"},
	{name: "frequency_penalty"},
	{name: "include"},
	{name: "logit_bias"},
	{name: "max_tool_calls"},
	{name: "parallel_tool_calls"},
	{name: "presence_penalty"},
	{name: "prompt_cache_options"},
	{name: "prompt_cache_retention"},
	{name: "reasoning"},
	{name: "seed"},
	{name: "stop"},
	{name: "temperature"},
	{name: "text"},
	{name: "tool_choice"},
	{name: "tools"},
	{name: "top_logprobs"},
	{name: "top_p"},
	{name: "truncation"},
}

// parse reads the fields of a body by a table. A field that is null is as one that is missing, and is forwarded as it is.
func parse(body []byte, operation llm.Operation, table []field) (*Request, error) {
	if len(body) > MaxBody {
		return nil, codeRows[berth.CodeTooLarge].error("the body has more than 32 MiB: send less")
	}
	if err := rawjson.Check(body); err != nil {
		return nil, Invalid("", "invalid_json", "the body is not valid JSON: %s", err)
	}
	r := &Request{raw: llm.Raw{Operation: operation}}
	all := rawjson.Read(body)
	if !IsObject(body) {
		return nil, Invalid("", "invalid_type", "the body must be a JSON object")
	}
	known := map[string]field{}
	for _, f := range table {
		known[f.name] = f
	}
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		name := rawjson.Key(key)
		f, ok := known[name]
		if !ok {
			if rawjson.IsNull(value) {
				continue // as one that is missing
			}
			f.use = llm.FieldFurther
		}
		r.raw.Fields = append(r.raw.Fields, llm.RawField{Name: name, Key: key, Value: value, Use: f.use})
		if f.read == nil || rawjson.IsNull(value) {
			continue
		}
		if err := f.read(r, value); err != nil {
			err.Param = name + err.Param
			err.Message = Named(err.Param, err.Message)
			return nil, err
		}
	}
	if r.Model == "" {
		return nil, Invalid("model", "missing_required_parameter", "the parameter model is required")
	}
	return r, nil
}
