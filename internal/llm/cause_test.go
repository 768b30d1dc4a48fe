package llm

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/testdocs"
)

var update = flag.Bool("update", false, "rewrite the table of docs/providers.md")

// Each row is an error as a provider sends it. In a stream or in the body of a 200 it has the same cause as with its status.
func TestCause_ErrorsOfProviders_SameCauseInEveryPlace(t *testing.T) { // FM4
	t.Parallel()
	for _, row := range []struct {
		from   string
		status int
		body   string
		want   Cause
	}{
		{"OpenAI", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, CauseContext},
		{"vLLM", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`, CauseContext},
		{"vLLM, nested", 400, `{"error":{"message":"Input length (9000) exceeds model's maximum context length (4096).","type":"BadRequestError","param":null,"code":400}}`, CauseContext},
		{"llama.cpp", 400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_ctx":4096}}`, CauseContext},
		{"Zhipu", 400, `{"error":{"code":"1261","message":"Prompt 超长"}}`, CauseContext},
		{"Anthropic", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, CauseContext},
		{"Google", 400, `[{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed","status":"INVALID_ARGUMENT"}}]`, CauseContext},
		{"Qwen", 400, `{"error":{"code":"invalid_parameter_error","message":"Range of input length should be [1, 129024]","type":"invalid_request_error"}}`, CauseContext},
		{"DeepSeek", 400, `{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, CauseRefused},
		{"Azure", 400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","code":"content_filter","status":400}}`, CauseRefused},
		{"Qwen", 400, `{"error":{"code":"data_inspection_failed","message":"Input data may contain inappropriate content.","type":"data_inspection_failed"}}`, CauseRefused},
		{"Zhipu", 400, `{"contentFilter":[{"level":1,"role":"user"}],"error":{"code":"1301","message":"系统检测到输入或生成内容可能包含不安全或敏感内容"}}`, CauseRefused},
		{"DeepSeek", 402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, CauseCredit},
		{"OpenAI", 429, `{"error":{"message":"You exceeded your current quota, please check your plan","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, CauseCredit},
		{"Zhipu", 429, `{"error":{"code":"1113","message":"您的账户已欠费"}}`, CauseCredit},
		{"OpenRouter", 402, `{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`, CauseCredit},
		{"MiniMax", 200, `{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`, CauseCredit},
		{"OpenAI", 401, `{"error":{"message":"Incorrect API key provided: sk-12345","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, CauseKey},
		{"DeepSeek", 401, `{"error":{"message":"Authentication Fails (no such user)","type":"authentication_error","param":null,"code":"invalid_request_error"}}`, CauseKey},
		{"Zhipu", 401, `{"error":{"code":"1002","message":"Authorization Token非法"}}`, CauseKey},
		{"OpenAI", 403, `{"error":{"message":"Country, region, or territory not supported","type":"request_forbidden","param":null,"code":"unsupported_country_region_territory"}}`, CauseRegion},
		{"Google", 400, `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`, CauseRegion},
		{"Anthropic", 403, `{"error":{"type":"forbidden","message":"Claude is not available in your country."}}`, CauseRegion},
		{"OpenAI", 404, `{"error":{"message":"The model gpt-9 does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, CauseModel},
		{"DeepSeek", 400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, CauseModel},
		{"Ollama", 404, `{"error":"model \"x\" not found, try pulling it first"}`, CauseModel},
		{"Zhipu", 400, `{"error":{"code":"1211","message":"模型不存在"}}`, CauseModel},
		{"OpenAI", 429, `{"error":{"message":"Rate limit reached for gpt-4o on tokens per min (TPM)","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, CauseLimit},
		{"Qwen", 429, `{"code":"Throttling.RateQuota","message":"Requests rate limit exceeded","request_id":"1"}`, CauseLimit},
		{"Google", 429, `{"error":{"code":429,"message":"Resource has been exhausted","status":"RESOURCE_EXHAUSTED"}}`, CauseLimit},
		{"Zhipu", 429, `{"error":{"code":"1302","message":"您的账户已达到速率限制"}}`, CauseLimit},
		{"OpenRouter", 429, `{"error":{"code":429,"message":"Provider returned error","metadata":{"raw":"x is temporarily rate-limited upstream"}}}`, CauseLimit},
		{"Mistral", 429, `{"object":"error","message":"Requests rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}`, CauseLimit},
		{"Anthropic", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, CauseOverload},
		{"OpenAI", 503, `{"error":{"message":"That model is currently overloaded with other requests.","type":"server_error","param":null,"code":null}}`, CauseOverload},
		{"Moonshot", 429, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}`, CauseOverload},
		{"Google", 503, `{"error":{"code":503,"message":"The service is currently unavailable.","status":"UNAVAILABLE"}}`, CauseOverload},
		{"llama.cpp", 503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, CauseOverload},
		{"a gateway", 504, `{"error":{"message":"upstream request timeout","type":"timeout","code":504}}`, CauseTimeout},
		{"OpenAI", 500, `{"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":null}}`, CauseServer},
		{"vLLM", 500, `{"object":"error","message":"CUDA error","type":"InternalServerError","code":500}`, CauseServer},
		{"FastAPI", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","code":422}]}`, CauseBadRequest},
		{"OpenAI", 400, `{"error":{"message":"Unsupported parameter: 'max_tokens'","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, CauseBadRequest},
		{"Gemini, its free tier", 429, `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: free_tier_requests, limit: 10, model: x\nPlease retry in 8.5s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"8s"}]}}]`, CauseLimit},
		{"Gemini, the delay in a field", 429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"8s"}]}}`, CauseLimit},
		{"Azure", 429, `{"error":{"code":"429","message":"Requests to the API have exceeded call rate limit of your current tier. Please retry after 12 seconds."}}`, CauseLimit},
		{"OpenAI, out of quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan. Please retry in 8s.","type":"insufficient_quota","code":"insufficient_quota"}}`, CauseCredit},
		{"Qwen, out of quota", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, CauseCredit},
		{"Groq, too large", 413, `{"error":{"message":"Request too large for model x in organization org_01 service tier on_demand on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}`, CauseOverLimit},
		{"OpenAI, too large", 429, `{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30,000, Requested 49,820. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, CauseOverLimit},
		{"OpenAI, used and too large", 429, `{"error":{"message":"Rate limit reached for x on tokens per min (TPM): Limit: 10000, Used: 1, Requested: 12000. Please try again in 3s.","type":"tokens","code":"rate_limit_exceeded"}}`, CauseOverLimit},
		{"Groq, used", 429, `{"error":{"message":"Rate limit reached for model x on tokens per minute (TPM): Limit 6000, Used 5500, Requested 900. Please try again in 4s.","type":"tokens","code":"rate_limit_exceeded"}}`, CauseLimit},
		{"Groq, as much as the limit", 429, `{"error":{"message":"Rate limit reached on requests per day (RPD): Limit 1000, Used 1000, Requested 1. Please try again in 23h12m3.5s.","type":"requests","code":"rate_limit_exceeded"}}`, CauseLimit},
		{"Anthropic, a limit of input tokens", 429, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit of 40,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later."}}`, CauseLimit},
		{"xAI", 400, `{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 150000 tokens."}`, CauseContext},
		{"Moonshot", 400, `{"error":{"message":"Invalid request: Your request exceeded model token limit: 8192","type":"invalid_request_error"}}`, CauseContext},
		{"SiliconFlow", 400, `{"code":20015,"message":"length of prompt_tokens (40000) must be less than max_seq_len (32768).","data":null}`, CauseContext},
		{"TGI", 422, `{"error":"Input validation error: ` + "`inputs` tokens + `max_new_tokens`" + ` must be <= 4096. Given: 5000 ` + "`inputs` tokens and 512 `max_new_tokens`" + `","error_type":"validation"}`, CauseContext},
		{"TGI, inputs alone", 422, `{"error":"Input validation error: ` + "`inputs`" + ` must have less than 4095 tokens. Given: 5000","error_type":"validation"}`, CauseContext},
		{"Mistral", 400, `{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":"3051"}`, CauseContext},
		{"vLLM, the prompt", 400, `{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096.","type":"BadRequestError","code":400}}`, CauseContext},
		{"SGLang", 400, `{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).","type":"BadRequestError","code":400}`, CauseContext},
		{"llama.cpp, with numbers", 400, `{"error":{"code":400,"message":"request (9010 tokens) exceeds the available context size (4096 tokens), try increasing it","type":"x"}}`, CauseContext},
		{"Ollama", 400, `{"error":"the input length exceeds the context length"}`, CauseContext},
		{"LM Studio", 400, `{"error":"Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}`, CauseContext},
		{"Bedrock", 400, `{"error":{"message":"Input is too long for requested model.","type":"ValidationException"}}`, CauseContext},
		{"Bedrock, another model", 400, `{"error":{"message":"Too many input tokens. Max input tokens: 8192, request input token count: 9000","type":"x"}}`, CauseContext},
		{"Vertex", 400, `{"error":{"code":400,"message":"Unable to submit request because the input token count is 40000 but model only supports up to 32768.","status":"INVALID_ARGUMENT"}}`, CauseContext},
		{"Baidu", 400, `{"error":{"code":"tokens_too_long","message":"Prompt tokens too long","type":"invalid_request_error"}}`, CauseContext},
		{"Baidu, old", 200, `{"error_code":336007,"error_msg":"the max input characters is 20000"}`, CauseContext},
		{"MiniMax", 400, `{"error":{"message":"invalid params, context window exceeds limit","type":"bad_request_error"}}`, CauseContext},
		{"OpenAI, a message", 400, `{"error":{"message":"Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576, but got 2000000 instead.","type":"invalid_request_error","code":"string_above_max_length"}}`, CauseContext},
		{"an unknown server", 400, `{"error":{"message":"Your conversation has more than 8000 tokens"}}`, CauseContext},
		{"another unknown server", 413, `{"error":{"message":"The total tokens of your prompt exceed 8k"}}`, CauseContext},
		{"OpenAI, the bound of answers", 400, `{"error":{"message":"max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}`, CauseBadRequest},
		{"Groq, the bound of answers", 400, `{"error":{"message":"` + "`max_tokens`" + ` must be less than or equal to 8192, the maximum value for ` + "`max_tokens`" + ` is less than the context_window for this model","type":"invalid_request_error"}}`, CauseBadRequest},
		{"Qwen, the bound of answers", 400, `{"error":{"code":"invalid_parameter_error","message":"Range of max_tokens should be [1, 8192]","type":"invalid_request_error"}}`, CauseBadRequest},
		{"Bedrock, the bound of answers", 400, `{"error":{"message":"The maximum tokens you requested exceeds the model limit of 4096.","type":"invalid_request_error"}}`, CauseBadRequest},
		{"a number", 400, `{"error":{"message":"Input should be less than or equal to 2","type":"invalid_request_error"}}`, CauseBadRequest},
		{"an image", 400, `{"error":{"message":"The input image exceeds the maximum size limit, 1024 tokens","type":"invalid_request_error"}}`, CauseBadRequest},
		{"SiliconFlow", 403, `{"code":30001,"message":"Sorry, your account balance is insufficient","data":null}`, CauseCredit},
		{"Fireworks", 400, `{"error": {"code": 400, "message": "The prompt is too long: 140000, model maximum context length: 131071"}}`, CauseContext},
		{"AI21", 422, `{"error": {"code": 422, "message": "Prompt has too many tokens: 9000 > 8192"}}`, CauseContext},
		{"Perplexity", 400, `{"error": {"code": 400, "message": "Input exceeds max tokens"}}`, CauseContext},
		{"DeepInfra", 500, `{"error": {"code": 500, "message": "Requested input length 5000 exceeds maximum input length 4096"}}`, CauseContext},
		{"NVIDIA", 422, `{"error": {"code": 422, "message": "The sequence of 9000 tokens exceeds the maximum of 8192"}}`, CauseContext},
		{"Anthropic, texts with the bound", 400, "{\"error\": {\"code\": 400, \"message\": \"input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease input length or `max_tokens` and try again\"}}", CauseContext},
		{"a server, the bound with texts", 400, `{"error": {"code": 400, "message": "max_tokens plus prompt tokens must be at most 8192"}}`, CauseContext},
		{"a Chinese server", 400, `{"error": {"code": 400, "message": "输入内容超过模型最大长度"}}`, CauseContext},
		{"another Chinese server", 400, `{"error": {"code": 400, "message": "上下文 token 数超出上限"}}`, CauseContext},
		{"a Chinese server, the bound of answers", 400, `{"error": {"code": 400, "message": "max_tokens 超出 token 上限"}}`, CauseBadRequest},
		{"too few tokens", 400, `{"error": {"code": 400, "message": "Input must have at least 1 token"}}`, CauseBadRequest},
		{"roles", 400, `{"error": {"code": 400, "message": "messages: roles must alternate between user and assistant"}}`, CauseBadRequest},
		{"tools", 400, `{"error": {"code": 400, "message": "Too many functions: at most 128 per request"}}`, CauseBadRequest},
		{"stop sequences", 400, `{"error": {"code": 400, "message": "Invalid 'stop': array too long. Expected an array with maximum length 4"}}`, CauseBadRequest},
		{"images", 400, `{"error": {"code": 400, "message": "At most 1 image(s) may be provided in one request with 100 tokens"}}`, CauseBadRequest},
		{"a queue", 500, `{"error": {"code": 500, "message": "The request exceeds the maximum length of the queue"}}`, CauseServer},
		{"DeepSeek, the bound of answers", 400, `{"error": {"code": 400, "message": "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"}}`, CauseBadRequest},
		{"Mistral, the bound of answers", 422, `{"error": {"code": 422, "message": "Input should be less than or equal to 8192 for max_tokens"}}`, CauseBadRequest},
		{"AWS, of tokens", 429, `{"error": {"code": 429, "message": "Too many tokens, please wait before trying again."}}`, CauseLimit},
		{"Tencent", 200, `{"Response":{"Error":{"Code":"FailedOperation.ResourcePackExhausted","Message":"资源包余量已用尽"},"RequestId":"x"}}`, CauseCredit},
		{"a gateway, a name as a text", 401, `{"error":"Unauthorized"}`, CauseKey},
		{"a gateway, another", 403, `{"error":"Forbidden"}`, CausePermission},
		{"a gateway, of requests", 429, `{"error":"Too Many Requests"}`, CauseLimit},
		{"a gateway, of servers", 500, `{"error":"Internal Server Error"}`, CauseServer},
		{"a gateway, with a status", 401, `{"status":401,"error":"No way in","path":"/v1"}`, CauseKey},
		{"Anthropic", 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, CauseTooLarge},
	} {
		e, ok := errorIn(gjson.Parse(row.body))
		require.True(t, ok, "%s: %s", row.from, row.body)
		require.Equal(t, row.want, causeOf(row.status, e), "%s with status %d: %s", row.from, row.status, row.body)
		for place, media := range map[string]string{"stream": "text/event-stream", "body": "application/json"} {
			sent := row.body
			if place == "stream" && strings.HasPrefix(sent, "{") {
				sent = "data: " + sent + "\n\ndata: [DONE]\n\n"
			}
			got, _, _ := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "+media+"\r\n\r\n"+sent)))
			require.Equal(t, row.want, got.cause, "%s in the %s of a 200: %s", row.from, place, row.body)
		}
	}
}

// How long a provider asks to wait, in a header, a field or its message.
func TestCause_ProviderSaysWhen_CallsWaitThatLong(t *testing.T) { // FM4
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		header, body string
		want         time.Duration
	}{
		{"8", `{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}`, 8 * time.Second},
		{"8", `[{"error":{"code":429,"message":"You exceeded your current quota. Please retry in 8.5s.","status":"RESOURCE_EXHAUSTED"}}]`, 8 * time.Second},
		{"", `[{"error":{"code":429,"message":"You exceeded your current quota. Please retry in 8.5s.","details":[{"retryDelay":"8s"}]}}]`, 8500 * time.Millisecond},
		{"", `{"error":{"code":429,"message":"You exceeded your current quota.","details":[{"@type":"x"},{"retryDelay":"19.5s"}]}}`, 19500 * time.Millisecond},
		{"", `{"error":{"message":"Please retry after 12 seconds."}}`, 12 * time.Second},
		{"", `{"error":{"message":"Please try again in 7.66s. Visit https://x"}}`, 7660 * time.Millisecond},
		{"", `{"error":{"message":"Please try again in 450ms."}}`, 450 * time.Millisecond},
		{"", `{"error":{"message":"Please try again in 1m30.5s."}}`, 90500 * time.Millisecond},
		{"", `{"error":{"message":"Try again in 23h12m3.5s."}}`, 23*time.Hour + 12*time.Minute + 3500*time.Millisecond},
		{"", `{"error":{"message":"Wait for 1 minute and 30 seconds"}}`, 90 * time.Second},
		{"", `{"error":{"message":"Retry after: 4 seconds; your quota resets in 1h"}}`, 4 * time.Second},
		{"", `{"message":"Rate limited","retry_after":3}`, 3 * time.Second},
		{"", `{"error":{"message":"Rate limited","retry_after_ms":300}}`, 300 * time.Millisecond},
		{"", `Too many requests, retry in 5 seconds`, 5 * time.Second},
		{"", `{"error":{"message":"Rate limited","retry_after":"2026-11-26T13:00:00Z"}}`, 0},
		{"", `{"error":{"message":"Rate limited","retry_after":1795694400}}`, 0},
		{"", `{"error":{"message":"Please wait before trying again. 5 tokens"}}`, 0},
	} {
		resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {row.header}}}
		e := endpoint{}.statusError(resp, []byte(row.body), now)
		require.Equal(t, CauseLimit, e.Cause, row.body)
		require.Equal(t, min(row.want, maxRetryAfter), e.RetryAfter, row.body)
		if row.want > 0 {
			require.Equal(t, now.Add(row.want), e.Until, row.body)
		}
	}
}

// An error that has only a text keeps it, and the text counts.
func TestCause_BodyIsOnlyAText_ReasonKept(t *testing.T) { // FM4
	t.Parallel()
	for _, row := range []struct {
		status int
		body   string
		want   Cause
		says   string
	}{
		{400, `{"message":"extraneous key is not permitted"}`, CauseBadRequest, "status 400: extraneous key is not permitted"},
		{400, `{"id":"x","message":"too many tokens: total number of tokens in the prompt cannot exceed 128000 - received 150000."}`, CauseContext, ""},
		{403, `{"message":"The role may not do this."}`, CausePermission, "status 403: The role may not do this."},
		{400, `{"detail":"why"}`, CauseBadRequest, "status 400: why"},
		{400, `{"type":"about:blank","title":"Bad Request","detail":"max_tokens must be at most 4096"}`, CauseBadRequest, "max_tokens must be at most 4096"},
		{400, `{"detail":{"message":"why"}}`, CauseBadRequest, "status 400: why"},
		{400, `{"error_msg":"why"}`, CauseBadRequest, "status 400: why"},
		{400, `{"errors":[{"message":"why"}]}`, CauseBadRequest, "status 400: why"},
		{400, `{"errors":["why"]}`, CauseBadRequest, "status 400: why"},
		{400, `{"msg":"why"}`, CauseBadRequest, "status 400: why"},
		{400, `{"Message":"why"}`, CauseBadRequest, "status 400: why"},
		{400, `{"error":true,"message":"why"}`, CauseBadRequest, "status 400: why"},
		{400, `{"error":"Bad Request","message":"why"}`, CauseBadRequest, "status 400: Bad Request why"},
		{400, `"why"`, CauseBadRequest, "status 400: why"},
		{400, `why`, CauseBadRequest, "status 400: why"},
	} {
		e := endpoint{}.statusError(&http.Response{StatusCode: row.status, Header: http.Header{}}, []byte(row.body), time.Now())
		require.Equal(t, row.want, e.Cause, row.body)
		require.Contains(t, e.Message, row.says, row.body)
	}
}

// An answer without a text says what came instead.
func TestStream_NothingToRead_ReasonNamed(t *testing.T) { // FM3, FM4
	t.Parallel()
	for _, row := range []struct {
		media, body string
		want        Cause
		says        string
	}{
		{"application/json", "", CauseConnection, "(status 200 with an empty response)"},
		{"application/json", `{"message":"Unauthorized"}`, CauseKey, "rejected the API key"},
		{"application/json", `{"message":"prompt is too long"}`, CauseContext, "shorten"},
		{"application/json", `{"code":200,"success":false,"msg":"the account is locked"}`, CauseUnknown, "the account is locked"},
		{"application/json", `{"message":"hello"}`, CauseAddress, "application/json without an answer"},
		{"text/event-stream", "", CauseConnection, "(status 200 with an empty response)"},
		{"text/event-stream", "event: delta\ndata: {\"text\":\"x\"}\n\nevent: ping\ndata: {}\n\ndata: [DONE]\n\n", CauseEmpty, `(events with the name "delta" are not read)`},
		{"text/event-stream", "event: ping\ndata: {\"text\":\"x\"}\n\ndata: [DONE]\n\n", CauseEmpty, "no answer: retry"},
	} {
		got, _, err := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "+row.media+"\r\n\r\n"+row.body)))
		require.Equal(t, row.want, got.cause, row.body)
		require.Contains(t, failure(t, err).Message, row.says, row.body)
	}
}

// A status without a body that says more.
func TestCause_StatusAlone_AsTheTableSays(t *testing.T) { // FM4
	t.Parallel()
	for status := 300; status < 600; status++ {
		for _, body := range []string{"", "{}", "null", "<html>rate limit, context length, 余额不足</html>", `{"error":""}`, `{"error":{}}`, "nonsense"} {
			e := endpoint{}.statusError(&http.Response{StatusCode: status, Header: http.Header{}}, []byte(body), time.Now())
			require.NotEmpty(t, e.Message)
			require.NotContains(t, e.Message, "{", "%d %s", status, body)
			rule := ruleOf(e.Cause)
			require.True(t, slices.Contains(rule.statuses, status) || status == 403 && e.Cause == CauseBlocked ||
				map[int]Cause{3: CauseAddress, 4: CauseBadRequest, 5: CauseServer}[status/100] == e.Cause,
				"%d: %s", status, e.Cause)
		}
	}
}

func TestCause_Table_Consistent(t *testing.T) { // FM4
	t.Parallel()
	names, statuses := map[string]Cause{}, map[int]Cause{}
	for _, r := range causeRules {
		require.NotEmpty(t, r.says, r.cause)
		require.NotEmpty(t, r.code.Info().Description, r.cause)
		require.Equal(t, r.decision == Another, r.decision != Fail && r.code == berth.CodeInvalidOutput, r.cause)
		for _, name := range append(slices.Clone(r.names), r.kinds...) {
			require.Equal(t, []string{name}, reportedError{codes: []string{name}}.names(), "as names are compared")
			require.Empty(t, names[name], "%s is in two rows", name)
			names[name] = r.cause
		}
		for _, phrase := range r.phrases {
			require.Equal(t, strings.ToLower(phrase), phrase)
		}
		for _, status := range r.statuses {
			require.Empty(t, statuses[status], "%d is in two rows", status)
			statuses[status] = r.cause
		}
		ep := endpoint{servedBy: "acme", keySetting: "ACME_KEY", key: "k"}
		e := ep.failure(r.cause, 0, "reason", io.EOF)
		require.NotContains(t, e.Message, "{")
		require.NotContains(t, e.Message, "}")
	}
}

// What users read of an unknown error has the reason, and nothing that may be a secret.
func TestCause_ReasonOfProvider_BoundedAndWithoutSecrets(t *testing.T) { // FM4, P17
	t.Parallel()
	ep := endpoint{servedBy: "acme", key: secret}
	for reason, want := range map[string]string{
		"the flux is too low":                      "acme ended the answer with an error (the flux is too low): retry later",
		"two\n lines\x1b[31m\u202e":                "acme ended the answer with an error (two lines[31m): retry later",
		"key " + secret:                            "acme ended the answer with an error (key […]): retry later",
		"Bearer abc":                               "acme ended the answer with an error ([…]): retry later",
		"at https://me:pass@host/v1":               "acme ended the answer with an error (at https:[…]host/v1): retry later",
		"key sk-abc123 of x":                       "acme ended the answer with an error (key […] of x): retry later",
		"org 0123456789abcdef0123456789abcdef why": "acme ended the answer with an error (org […] why): retry later",
		"code long_name_of_some_error_there":       "acme ended the answer with an error (code long_name_of_some_error_there): retry later",
		"":                                         "acme ended the answer with an error: retry later",
	} {
		e := ep.answerError(reportedError{message: reason}, []byte(reason))
		require.Equal(t, want, e.Message)
		if reason != "" {
			require.Contains(t, want, "("+e.Err.Error()+")", "the log has the same")
		}
	}
	long := ep.answerError(reportedError{message: strings.Repeat("字 ", 1000)}, nil).Message
	require.Less(t, len(long), 300)
}

// A provider may send the key as it was encoded on its way.
func TestCause_KeyInAnyEncoding_NotShown(t *testing.T) { // FI1
	t.Parallel()
	ep := endpoint{servedBy: "acme", key: "Ab1/+&Cd2=<é>"}
	for _, sent := range []string{
		ep.key, url.QueryEscape(ep.key), url.PathEscape(ep.key), html.EscapeString(ep.key),
		`Ab1\/+\u0026Cd2=\u003cé\u003e`, "Ab1&#x2F;&#43;&#038;Cd2&#61;&lt;é&gt;",
	} {
		e := ep.answerError(reportedError{message: "key " + sent + " of x"}, []byte(sent))
		require.Equal(t, "acme ended the answer with an error (key […] of x): retry later", e.Message, sent)
		require.NotContains(t, e.Err.Error(), "Cd2", sent)
		require.NotContains(t, ep.scrub(errors.New("malformed response "+sent)).Error(), "Cd2")
	}
}

// A key such as that of a local server is a word of addresses and reasons.
func TestCause_KeyIsAWord_ReasonComplete(t *testing.T) { // FI1
	t.Parallel()
	for _, key := range []string{"k", "ollama", "EMPTY", "none"} {
		ep := endpoint{servedBy: "local", key: key}
		reason := errors.New("lookup ollama.invalid: unknown authority of EMPTY, none")
		require.Equal(t, reason, ep.scrub(reason), key)
		require.Contains(t, ep.answerError(reportedError{message: reason.Error()}, nil).Message, reason.Error())
	}
}

// docs/providers.md has the table.
func TestCause_Docs_HaveTheTable(t *testing.T) { // FM4
	t.Parallel()
	var b strings.Builder
	b.WriteString("| cause | statuses | concerns | what follows | code | what users read |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range causeRules {
		var statuses []string
		for _, s := range r.statuses {
			statuses = append(statuses, fmt.Sprint(s))
		}
		switch r.cause {
		case CauseServer:
			statuses = append(statuses, "other 5xx")
		case CauseBadRequest:
			statuses = append(statuses, "other 4xx")
		case CauseAddress:
			statuses = append(statuses, "other 3xx")
		}
		says := strings.NewReplacer("{}", "acme", "{reason}", " (*reason*)").Replace(endpoint{keySetting: "ACME_API_KEY", key: "k"}.sayKey(r.says))
		says = strings.ReplaceAll(says, "{}", "acme")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | %s |\n", r.cause, strings.Join(statuses, ", "), r.scope, r.decision, r.code, says)
	}
	testdocs.RequireBlock(t, "../../docs/providers.md", "causes", b.String(), *update)
}

func TestStream_ServerRefusesField_SentWithoutItAndRemembered(t *testing.T) { // FM5
	t.Parallel()
	const named, unnamed = `{"error":{"message":"Unrecognized request argument supplied: stream_options"}}`, `{"detail":"no"}`
	for name, row := range map[string]struct {
		status int
		body   string
		field  string
		calls  int // of three asked
		fails  bool
	}{
		"names the field":             {400, named, "stream_options", 4, false},
		"names what is in it":         {422, `{"detail":[{"loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted"}]}`, "stream_options", 4, false},
		"far back in a long response": {422, `{"detail":[{"input":"` + strings.Repeat("x", 1000) + `","loc":["body","stream_options"]}]}`, "stream_options", 4, false},
		"names nothing":               {422, unnamed, "stream_options", 4, false},
		"refuses the format":          {400, `{"error":{"message":"response_format json_object is not supported"}}`, "response_format", 4, false},
		"refuses everything":          {400, unnamed, "messages", 6, true},
		"context too long":            {400, `{"error":{"code":"context_length_exceeded"}}`, "messages", 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				var body map[string]any
				if json.NewDecoder(r.Body).Decode(&body) != nil || body[row.field] != nil {
					w.WriteHeader(row.status)
					_, _ = io.WriteString(w, row.body)
					return
				}
				send(w, content("text"), stopChunk, doneLine)
			})
			call := ask(Timeouts{})
			call.JSON = true
			for range 3 {
				res, err := p.client.Stream(t.Context(), call, ignore)
				require.Equal(t, row.fails, err != nil, "%v", err)
				require.Equal(t, !row.fails, res.Estimated)
			}
			require.Equal(t, row.calls, calls)
		})
	}
}

// A server that has accepted the field refuses something else.
func TestStream_FieldAcceptedBefore_RefusalNotRepeated(t *testing.T) { // FM5
	t.Parallel()
	calls := 0
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 {
			send(w, content("text"), stopChunk, doneLine)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	_, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	require.NoError(t, err)
	_, err = p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	require.Equal(t, CauseBadRequest, failure(t, err).Cause)
	require.Equal(t, 2, calls)
}

func TestStream_StreamOptionsExcluded_NotSent(t *testing.T) { // FM5
	t.Parallel()
	cfg, err := LoadConfig(rewrite(t, "keySetting: DEEPSEEK_API_KEY", "keySetting: DEEPSEEK_API_KEY\n    streamOptions: false"))
	require.NoError(t, err)
	catalog, err := NewCatalog(cfg, Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": secret}})
	require.NoError(t, err)
	call, _, err := NewClient(Fixed(catalog), nil, nil).at(ask(Timeouts{}))
	require.NoError(t, err)
	require.NotContains(t, string(call.body), "stream_options")
}

// A provider that reports far fewer tokens than the prompt has words did not read all of it.
func TestStream_ReportedInput_TellsTruncatedPrompt(t *testing.T) { // FM5
	t.Parallel()
	for name, row := range map[string]struct {
		prompt string
		tokens int
		want   bool
	}{
		"English, whole":          {strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1000), 10_000, false},
		"English, cut":            {strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1000), 2050, true},
		"Chinese, whole":          {strings.Repeat("我们正在寻找一位工程师", 1000), 6000, false},
		"Chinese, cut":            {strings.Repeat("我们正在寻找一位工程师", 1000), 2050, true},
		"white space is nothing":  {"word" + strings.Repeat(" \n\t--- ", 10_000), 1200, false},
		"numbers are little":      {strings.Repeat("1,234.56 ", 1000), 3000, false},
		"one long word":           {strings.Repeat("x", 40_000), 2050, true},
		"a short prompt":          {"Hello?", 5, false},
		"a short prompt, nothing": {"Hello?", 1, false},
		"Russian, whole":          {strings.Repeat("Мы ищем опытного инженера ", 1000), 6000, false},
	} {
		call := ask(Timeouts{})
		call.Messages = []Message{TextMessage(RoleUser, row.prompt)}
		p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("text"), stopChunk, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":7}}`, row.tokens), doneLine)
		})
		res, err := p.client.Stream(t.Context(), call, ignore)
		require.NoError(t, err)
		require.Equal(t, row.want, res.PromptTruncated, name)
	}
}

// What berth has not asked for and cannot decode costs one call, not three.
func TestStream_OtherContentEncoding_NamedFault(t *testing.T) { // FM2
	t.Parallel()
	got, _, err := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\nConnection: close\r\n\r\n\x1b\x0c\x00")))
	require.Equal(t, CauseMalformed, got.cause)
	require.ErrorContains(t, failure(t, err).Err, "content encoding br", "for the log")
	require.False(t, failure(t, err).Retryable)
	for _, coding := range []string{"identity", ""} {
		got, _, _ := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nContent-Encoding: "+coding+"\r\nConnection: close\r\n\r\ndata: "+
			`{"choices":[{"delta":{"content":"text"},"finish_reason":"stop"}]}`)))
		require.Equal(t, "text", got.text)
	}
}

func TestStream_ContentOfUnknownForm_NamedFault(t *testing.T) { // FM2
	t.Parallel()
	for value, want := range map[string]string{
		`{"text":"x"}`: "content that is an object", `42`: "content that is a number", `true`: "content that is true or false",
		`[42]`: "a content part that is a number", `[{"type":"image_url"}]`: `a content part of type "image_url"`,
		`[{"type":"text","text":{"value":"x"}}]`: "a text part that is an object",
	} {
		got, _, err := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":"+value+"}}]}\n\n")))
		require.Equal(t, CauseMalformed, got.cause, value)
		require.ErrorContains(t, err, want)
		require.False(t, failure(t, err).Retryable, "it sends the same again")
	}
	for value, want := range map[string]answered{
		`null`:      {cause: CauseEmpty, bought: true},
		`"x"`:       {text: "x", finish: "stop", bought: true},
		`["x","y"]`: {text: "xy", finish: "stop", bought: true},
		`[]`:        {cause: CauseEmpty, bought: true},
		`[{"text":"x"},{"type":"reference","reference_ids":[1]}]`:                           {text: "x", finish: "stop", bought: true},
		`[{"type":"thinking","thinking":"hm"},{"type":"text","text":"x"}]`:                  {text: "x", finish: "stop", bought: true},
		`[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]`:                    {cause: CauseEmpty, bought: true},
		`[{"type":"refusal","refusal":"I cannot help with that."}]`:                         {cause: CauseRefused, bought: true},
		`null,"refusal":"I cannot help with that."`:                                         {cause: CauseRefused, bought: true},
		`"","tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f"}}]`:  {cause: CauseTool, bought: true},
		`"x","tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f"}}]`: {text: "x", finish: "stop", bought: true},
		`"<tool_call>\n{\"name\":\"f\"}\n</tool_call>\n"`:                                   {text: "<tool_call>\n{\"name\":\"f\"}\n</tool_call>\n", cause: CauseTool, bought: true},
		`"<tool_call> is a tag"`: {text: "<tool_call> is a tag", finish: "stop", bought: true},
		`"hm\n</think>\n\nx"`:    {text: "x", finish: "stop", bought: true},
	} {
		got, _, _ := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":"+value+"},\"finish_reason\":\"stop\"}]}\n\n")))
		require.Equal(t, want, got, value)
	}
}
