package responses

import "berth/internal/openai"

// use is what the chat that makes the answer gets of a parameter.
type use int

const (
	forwarded  use = iota // as the client sent it
	translated            // as the parameter of a chat that means the same
	own                   // nothing: berth acts on it
	refused               // the request is refused if it has one
)

// field is a parameter of a request.
type field struct {
	name string
	use  use
	// chat names the parameter of the chat into which it is translated.
	chat string
	// read checks the value, which is not null, and stores what berth acts on. It is nil for a value that only the provider reads.
	read func(r *Request, value []byte) *openai.Error
	// does is what berth does with it, or why it is refused.
	does string
}

// fields are the parameters of OpenAI's protocol, and those of a chat that clients may confuse with them. docs/openai.md is generated from it.
var fields = []field{
	{"model", forwarded, "", readModel, "names a model of the routing file or its alias"},
	{"input", translated, "messages", readInput, "a text, or items: messages, calls of functions and custom tools with their outputs, reasoning, references to items"},
	{"instructions", translated, "messages", readInstructions, "the first message, with the role `system`; those of earlier responses do not continue"},
	{"previous_response_id", own, "", readPreviousID, "the items of the responses before it precede the input"},
	{"stream", own, "", readStream, "the provider always streams"},
	{"stream_options", own, "", readStreamOptions, "`include_obfuscation` is accepted and has no effect: events are not padded"},
	{"background", own, "", readBackground, "needs `store`"},
	{"store", own, "", readStore, "`true` by default; the provider never stores"},
	{"include", translated, "logprobs", readInclude, "`message.output_text.logprobs`, and `message.input_image.image_url`, which is always included; `reasoning.encrypted_content` is for " +
		"upstreams that speak responses, and the reasoning of a chat has none"},
	{"max_output_tokens", translated, "max_completion_tokens", readMaxOutputTokens, "at least 1"},
	{"max_tool_calls", own, "", readMaxToolCalls, "bounds calls of hosted tools, of which there are none"},
	{"metadata", forwarded, "", readMetadata, "at most 16 texts, kept with the response"},
	{"parallel_tool_calls", forwarded, "", readParallel, "only with `tools`"},
	{"prompt_cache_key", forwarded, "", readCacheKey, "calls with the same value prefer the same upstream"},
	{"prompt_cache_options", forwarded, "", nil, ""},
	{"prompt_cache_retention", forwarded, "", nil, ""},
	{"reasoning", translated, "reasoning_effort", readReasoning, "with a `summary` (`auto`, `concise` or `detailed`), the reasoning that a provider sends is in the summary of an item; otherwise in its content"},
	{"safety_identifier", forwarded, "", readSafetyIdentifier, "the end user, if the key allows it"},
	{"service_tier", forwarded, "", readServiceTier, "chooses the queue"},
	{"temperature", forwarded, "", readTemperature, "0 to 2"},
	{"text", translated, "response_format`, `verbosity", readText, "`format` and `verbosity`; the name of a schema is as that of a function"},
	{"tool_choice", translated, "tool_choice", readToolChoice, "`none`, `auto`, `required`, a function, a custom tool, or `allowed_tools`"},
	{"tools", translated, "tools", readTools, "functions and custom tools, each with a name of its own; that of a function has at most 128 letters and digits of ASCII, `_` and `-`. Hosted tools are refused"},
	{"top_logprobs", translated, "logprobs`, `top_logprobs", readTopLogprobs, "0 to 20"},
	{"top_p", forwarded, "", readTopP, "0 to 1"},
	{"truncation", own, "", readTruncation, "`disabled`; `auto` only at upstreams that speak responses, because berth leaves nothing out of a conversation"},
	{"user", forwarded, "", readUser, "as `safety_identifier`, which precedes it"},
	{"frequency_penalty", forwarded, "", nil, "a parameter of a chat"},
	{"logit_bias", forwarded, "", nil, "a parameter of a chat"},
	{"presence_penalty", forwarded, "", nil, "a parameter of a chat"},
	{"seed", forwarded, "", nil, "a parameter of a chat"},
	{"stop", forwarded, "", nil, "a parameter of a chat"},
	{name: "access_programs", use: refused, does: "there are no access programs"},
	{name: "background_options", use: refused, does: "background has no options"},
	{name: "context_management", use: refused, does: "conversations are not shortened: omit it"},
	{name: "conversation", use: refused, does: "there are no conversation objects: use previous_response_id"},
	{name: "image", use: refused, does: "responses have no images"},
	{name: "moderation", use: refused, does: "responses have no results of a moderation"},
	{name: "prompt", use: refused, does: "there are no stored prompts: use instructions and input"},
	{name: "audio", use: refused, does: "responses have no audio"},
	{name: "function_call", use: refused, does: "use tool_choice"},
	{name: "functions", use: refused, does: "use tools"},
	{name: "logprobs", use: refused, does: "use include with message.output_text.logprobs"},
	{name: "max_completion_tokens", use: refused, does: "use max_output_tokens"},
	{name: "max_tokens", use: refused, does: "use max_output_tokens"},
	{name: "messages", use: refused, does: "use input"},
	{name: "modalities", use: refused, does: "responses have text only"},
	{name: "n", use: refused, does: "a response has one answer"},
	{name: "prediction", use: refused, does: "only a chat has it"},
	{name: "reasoning_effort", use: refused, does: "use reasoning.effort"},
	{name: "response_format", use: refused, does: "use text.format"},
	{name: "verbosity", use: refused, does: "use text.verbosity"},
	{name: "web_search_options", use: refused, does: "there is no web search"},
}

var fieldByName = func() map[string]field {
	m := map[string]field{}
	for _, f := range fields {
		m[f.name] = f
	}
	return m
}()
