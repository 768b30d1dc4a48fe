package llm

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
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
		"the flux is too low":                      "acme ended the answer with an error (the flux is too low): submit again later",
		"two\n lines\x1b[31m\u202e":                "acme ended the answer with an error (two lines[31m): submit again later",
		"key " + secret:                            "acme ended the answer with an error (key […]): submit again later",
		"Bearer abc":                               "acme ended the answer with an error ([…]): submit again later",
		"at https://me:pass@host/v1":               "acme ended the answer with an error (at https:[…]host/v1): submit again later",
		"key sk-abc123 of x":                       "acme ended the answer with an error (key […] of x): submit again later",
		"org 0123456789abcdef0123456789abcdef why": "acme ended the answer with an error (org […] why): submit again later",
		"code long_name_of_some_error_there":       "acme ended the answer with an error (code long_name_of_some_error_there): submit again later",
		"":                                         "acme ended the answer with an error: submit again later",
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

// docs/providers.md has the table.
func TestCause_Docs_HaveTheTable(t *testing.T) { // FM4
	t.Parallel()
	var b strings.Builder
	b.WriteString("| cause | statuses | what follows | code | what users read |\n| --- | --- | --- | --- | --- |\n")
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
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", r.cause, strings.Join(statuses, ", "), r.decision, r.code, says)
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
	call, err := NewClient(catalog, nil, nil).Prepare(ask(Timeouts{}))
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
		call.Messages = []Message{{Role: RoleUser, Text: row.prompt}}
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
