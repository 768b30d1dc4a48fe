package llm

// finishReasons classifies the known reasons for which models stop, in lower case. All others are faults. The sources are the
// documents of OpenAI, DeepSeek, Zhipu, Mistral, Google, Anthropic, Cohere, and of vLLM and TGI.
var finishReasons = map[string]finishKind{
	"stop": finishStop, "stop_sequence": finishStop, "end_turn": finishStop, "eos": finishStop, "eos_token": finishStop,
	"end": finishStop, "complete": finishStop, "completed": finishStop, "finished": finishStop, "finish": finishStop,

	"length": finishLength, "max_tokens": finishLength, "max_output_tokens": finishLength, "max_completion_tokens": finishLength,
	"model_length": finishLength, "max_length": finishLength, "token_limit": finishLength, "model_context_window_exceeded": finishLength,

	"content_filter": finishFiltered, "content_filtered": finishFiltered, "sensitive": finishFiltered, "safety": finishFiltered,
	"recitation": finishFiltered, "blocklist": finishFiltered, "prohibited_content": finishFiltered, "spii": finishFiltered,
	"refusal": finishFiltered, "guardrail_intervened": finishFiltered, "image_safety": finishFiltered, "moderation": finishFiltered,

	"insufficient_system_resource": finishOverload, "overloaded": finishOverload, "timeout": finishTimeout,
	"network_error": finishFailed, "error": finishFailed, "server_error": finishFailed,

	"tool_calls": finishTool, "tool_call": finishTool, "tool_use": finishTool, "function_call": finishTool,
}

type finishKind int

const (
	finishOther finishKind = iota
	finishStop
	finishLength
	finishFiltered
	finishOverload
	finishTimeout
	finishFailed // of the provider
	finishTool
)
