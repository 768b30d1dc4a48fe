package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
	"berth/internal/rawjson"
)

// rawOf returns a raw request, as internal/openai makes it of a body.
func rawOf(body string) *Raw {
	r := &Raw{Operation: OperationChat, Choices: 1, InputTokens: 100, Shown: Shown{ID: "chatcmpl-berth", Model: "chat", Created: 1}}
	all := rawjson.Read([]byte(body))
	for key, value, ok := all.Field(); ok; key, value, ok = all.Field() {
		f := RawField{Name: string(key), Key: key, Value: value}
		switch v := gjson.ParseBytes(value); f.Name {
		case "model":
			f.Use = FieldChanged
		case "max_tokens", "max_completion_tokens":
			r.MaxTokens, f.Use = int(v.Int()), FieldChanged
		case "stream":
			r.Stream = v.Bool()
		case "stream_options":
			r.IncludeUsage, f.Use = v.Get("include_usage").Bool(), FieldChanged
		case "n":
			r.Choices = int(v.Int())
		case "service_tier":
			f.Use = FieldOwn
		case "top_k":
			f.Use = FieldFurther
		case "input":
			r.Operation, r.Choices = OperationEmbeddings, 0
		case "encoding_format":
			r.Base64 = v.Str == "base64"
		}
		r.Fields = append(r.Fields, f)
	}
	return r
}

const (
	plainBody  = `{"model":"chat","messages":[{"role":"user","content":"Hello?"}]}`
	streamBody = `{"model":"chat","messages":[{"role":"user","content":"Hello?"}],"stream":true}`
	usageBody  = `{"model":"chat","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}`
)

func rawCall(body string) Call { return Call{Model: "deepseek-chat", Raw: rawOf(body)} }

// forwarded is what a client gets: the objects, and how the call ended.
type forwarded struct {
	objects []string
	result  Result
	err     error
}

func (f forwarded) String() string {
	var b strings.Builder
	for _, o := range f.objects {
		b.WriteString(o + "\n")
	}
	u := f.result.Usage
	fmt.Fprintf(&b, "finish %q, tokens %d + %d, cached %d, reasoning %d, estimated %t\n", f.result.FinishReason,
		u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, f.result.Estimated)
	if e, ok := errors.AsType[*CallError](f.err); ok {
		fmt.Fprintf(&b, "error %s\n", e.Cause)
	}
	return b.String()
}

// forwardWire makes one raw call of a provider that returns raw bytes.
func forwardWire(t *testing.T, body string, next func(call int) io.Reader) (f forwarded) {
	t.Helper()
	c := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: next}}, slog.New(slog.DiscardHandler))
	f.result, f.err = c.Forward(t.Context(), rawCall(body), func(object []byte) error {
		require.True(t, gjson.ValidBytes(object), "%s", object)
		require.NotContains(t, string(object), "\n")
		f.objects = append(f.objects, string(object))
		return nil
	})
	require.Equal(t, len(f.objects) > 0, f.result.FirstToken > 0, "the first token is that of the client")
	if f.err != nil {
		failure(t, f.err)
	}
	return f
}

// Each stream of a provider in testdata/forward, with what a client gets that wants the usage.
func TestForward_StreamsOfProviders_AsClientsExpect(t *testing.T) { // O1, P21
	t.Parallel()
	files, err := filepath.Glob("testdata/forward/*.http")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".http"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			got := forwardWire(t, usageBody, always(raw))
			golden := strings.TrimSuffix(file, ".http") + ".want"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(withoutIDs(got)), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), withoutIDs(got), "run the test with -update and read what has changed")
			requireProtocol(t, got.objects, true)
			for i := 0; i <= len(raw); i += 1 + i/200 { // the network cuts it anywhere
				cut := forwardWire(t, usageBody, func(int) io.Reader { return io.MultiReader(bytes.NewReader(raw[:i]), bytes.NewReader(raw[i:])) })
				require.Equal(t, withoutIDs(got), withoutIDs(cut), "cut at byte %d", i)
			}
			bytewise := forwardWire(t, usageBody, func(int) io.Reader { return iotest.OneByteReader(bytes.NewReader(raw)) })
			require.Equal(t, withoutIDs(got), withoutIDs(bytewise))

			plain := forwardWire(t, streamBody, always(raw))
			requireProtocol(t, plain.objects, false)
			require.Equal(t, got.result.Usage, plain.result.Usage)
			require.Len(t, plain.objects, len(got.objects)-1)
		})
	}
}

// withoutIDs returns what a client gets, with one text for all ids that berth has made.
func withoutIDs(f forwarded) string {
	return generatedID.ReplaceAllString(f.String(), "call_generated")
}

// requireProtocol checks what the official clients require of a stream.
func requireProtocol(t *testing.T, chunks []string, usage bool) {
	t.Helper()
	finished := map[int64]string{}
	tools := map[int64]bool{}
	ids := map[string]string{}
	for i, text := range chunks {
		chunk := gjson.Parse(text)
		require.Equal(t, `"chatcmpl-berth" "chat.completion.chunk" 1 "chat"`,
			chunk.Get("id").Raw+" "+chunk.Get("object").Raw+" "+chunk.Get("created").Raw+" "+chunk.Get("model").Raw)
		require.False(t, chunk.Get("error").Exists())
		if last := i == len(chunks)-1; usage && last {
			require.Equal(t, "[]", chunk.Get("choices").Raw)
			require.Positive(t, chunk.Get("usage.prompt_tokens").Int())
			require.True(t, chunk.Get("usage.completion_tokens").Exists())
			break
		}
		require.Equal(t, gjson.Null, chunk.Get("usage").Type, "only the last chunk has the usage")
		require.NotEmpty(t, chunk.Get("choices").Array())
		for _, c := range chunk.Get("choices").Array() {
			require.Equal(t, gjson.Number, c.Get("index").Type)
			require.True(t, c.Get("delta").IsObject())
			index := c.Get("index").Int()
			for _, call := range c.Get("delta.tool_calls").Array() {
				tools[index] = true
				require.Equal(t, gjson.Number, call.Get("index").Type)
				at := fmt.Sprint(index, call.Get("index"))
				if ids[at] == "" {
					require.NotEmpty(t, call.Get("id").String(), "the first part of a call has its id")
					require.Equal(t, "function", call.Get("type").String())
					require.NotEmpty(t, call.Get("function.name").String())
					ids[at] = call.Get("id").String()
				} else if id := call.Get("id").String(); id != "" {
					require.Equal(t, ids[at], id, "the parts of a call have one index")
				}
			}
			if reason := c.Get("finish_reason").String(); reason != "" {
				finished[index] = reason
			}
		}
	}
	require.NotEmpty(t, finished)
	for index, reason := range finished {
		require.False(t, tools[index] && reason == "stop", "an answer with tool calls does not end with stop")
	}
}

// A stream that ends early is complete only if each of its answers has ended.
func TestForward_StreamEndsAtEveryByte_WholeOrFault(t *testing.T) { // O1, P21
	t.Parallel()
	for _, name := range []string{"openai-text", "openai-choices", "gemini-tools", "done-only"} {
		raw, err := os.ReadFile("testdata/forward/" + name + ".http")
		require.NoError(t, err)
		text := func(f forwarded) (all string) {
			for _, o := range f.objects {
				for _, c := range gjson.Get(o, "choices").Array() {
					all += c.Get("index").String() + c.Get("delta.content").String() + c.Get("delta.tool_calls").Raw
				}
			}
			return all
		}
		want := text(forwardWire(t, streamBody, always(raw)))
		for end := bytes.Index(raw, []byte("\r\n\r\n")) + 4; end <= len(raw); end++ {
			got := forwardWire(t, streamBody, always(raw[:end]))
			if got.err == nil {
				require.Truef(t, strings.HasPrefix(want, text(got)) && got.result.FinishReason != "", "%s ends at byte %d", name, end)
				continue
			}
			require.Contains(t, []Cause{CauseConnection, CauseUnreadable}, failure(t, got.err).Cause, "%s ends at byte %d", name, end)
		}
	}
}

// The corpus of the other calls has faults of servers, which are the same for forwarded ones.
func TestForward_Corpus_SameCause(t *testing.T) { // O1, P21
	t.Parallel()
	for name, raw := range readCorpus(t) {
		got := forwardWire(t, usageBody, always(raw))
		switch want := corpus[name]; {
		case want.cause == CauseTool: // the client has tools
			require.NoError(t, got.err)
			require.Equal(t, finishToolCalls, got.result.FinishReason)
		case want.cause != "":
			require.Equal(t, want.cause, failure(t, got.err).Cause, name)
			require.Empty(t, got.objects, name)
			require.Equal(t, want.bought, got.result.Usage != (berth.Usage{}), name)
		default:
			require.NoError(t, got.err, name)
			requireProtocol(t, got.objects, true)
		}
	}
}

// chunkOf is a chunk of a provider.
func chunkOf(choice string) string {
	return `{"id":"p","created":7,"model":"m","choices":[` + choice + `]}`
}

// Each row is what a provider sends, with how the call ends and how many chunks a client that wants no usage has.
func TestForward_Faults_KnownCauseAndNothingShownBeforeText(t *testing.T) { // O1, O4
	t.Parallel()
	role := chunkOf(`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`)
	text := chunkOf(`{"index":0,"delta":{"content":"Hi"},"finish_reason":null}`)
	stop := chunkOf(`{"index":0,"delta":{},"finish_reason":"stop"}`)
	for name, row := range map[string]struct {
		lines  []string
		cause  Cause
		shown  int
		bought bool
	}{
		"complete":                          {[]string{role, text, stop, doneLine}, "", 3, true},
		"without the end mark":              {[]string{role, text, stop}, "", 3, true},
		"without a finish reason":           {[]string{role, text, doneLine}, "", 3, true},
		"without either":                    {[]string{role, text}, CauseConnection, 2, true},
		"only the role":                     {[]string{role}, CauseConnection, 0, true},
		"only the role and the end mark":    {[]string{role, doneLine}, CauseEmpty, 0, true},
		"only the end mark":                 {[]string{doneLine}, CauseEmpty, 0, true},
		"only the usage":                    {[]string{usageChunk, doneLine}, CauseEmpty, 0, true},
		"overload before the text":          {[]string{role, `{"error":{"message":"busy","type":"server_error","code":"overloaded"}}`}, CauseOverload, 0, false},
		"rate limit after the text":         {[]string{role, text, `{"error":{"code":"rate_limit_exceeded","message":"slow"}}`}, CauseLimit, 2, true},
		"failed, by the finish reason":      {[]string{role, chunkOf(`{"index":0,"delta":{},"finish_reason":"error"}`)}, CauseUnknown, 0, true},
		"overload, by the finish reason":    {[]string{text, chunkOf(`{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}`)}, CauseOverload, 1, true},
		"the filter, by the finish reason":  {[]string{text, chunkOf(`{"index":0,"delta":{},"finish_reason":"content_filter"}`), doneLine}, "", 2, true},
		"an unknown finish reason":          {[]string{text, chunkOf(`{"index":0,"delta":{},"finish_reason":"new"}`), doneLine}, "", 2, true},
		"an empty finish reason":            {[]string{chunkOf(`{"index":0,"delta":{"content":"Hi"},"finish_reason":""}`), stop}, "", 2, true},
		"empty error beside the text":       {[]string{`{"error":{},` + text[1:], stop}, "", 2, true},
		"half a chunk":                      {[]string{text, text[:40]}, CauseUnreadable, 1, true},
		"text that is not JSON":             {[]string{text, `{"choices":}`, stop}, CauseUnreadable, 1, true},
		"a choice that is a text":           {[]string{chunkOf(`"x"`)}, CauseMalformed, 0, true},
		"a delta that is a text":            {[]string{chunkOf(`{"index":0,"delta":"x"}`)}, CauseMalformed, 0, true},
		"tool calls that are an object":     {[]string{chunkOf(`{"index":0,"delta":{"tool_calls":{"a":1}}}`)}, CauseMalformed, 0, true},
		"a tool call that is a text":        {[]string{chunkOf(`{"index":0,"delta":{"tool_calls":["a"]}}`)}, CauseMalformed, 0, true},
		"a choice with a negative index":    {[]string{chunkOf(`{"index":-1,"delta":{"content":"x"}}`)}, CauseMalformed, 0, true},
		"a choice with an enormous index":   {[]string{chunkOf(`{"index":1000000000,"delta":{"content":"x"}}`)}, CauseMalformed, 0, true},
		"keep-alives of an empty delta":     {[]string{role, role, role, role, role, role, text, stop}, "", 8, true},
		"another choice has not ended":      {[]string{text, chunkOf(`{"index":1,"delta":{"content":"x"}}`), stop}, CauseConnection, 3, true},
		"an older function call":            {[]string{chunkOf(`{"index":0,"delta":{"function_call":{"name":"f","arguments":"{}"}}}`), stop}, "", 2, true},
		"a number too large for any reader": {[]string{chunkOf(`{"index":0,"delta":{"content":"x"},"score":1e999}`), stop}, "", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := forwardWire(t, streamBody, always(sse(row.lines...)))
			require.Len(t, got.objects, row.shown, "%s", got)
			require.Equal(t, row.bought, got.result.Usage != (berth.Usage{}), "%s", got)
			if row.cause != "" {
				require.Error(t, got.err)
				require.Equal(t, row.cause, failure(t, got.err).Cause)
				return
			}
			require.NoError(t, got.err)
			require.NotEmpty(t, got.result.FinishReason)
		})
	}
}

// sse is a response with a stream.
func sse(lines ...string) []byte {
	return []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: " + strings.Join(lines, "\n\ndata: ") + "\n\n")
}

// object is a response with one object.
func object(text string) []byte {
	return []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + text)
}

// Each row is a whole answer, with what the client gets.
func TestForward_WholeAnswer_FieldsKept(t *testing.T) { // O1
	t.Parallel()
	const head = `{"id":"chatcmpl-berth","object":"chat.completion","created":1,"model":"chat","choices":[`
	const usage = `"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"x":1.50}`
	for name, row := range map[string]struct{ sent, want string }{
		"as it is": {
			`{"id":"a","model":"m","created":5,"object":"o","system_fingerprint":"f","choices":[{"index":0,"message":{"role":"assistant","content":"é","annotations":[]},"logprobs":null,"finish_reason":"stop"}],` + usage + `,"z":{"b":1,"a":[1e2]}}`,
			head + `{"index":0,"message":{"role":"assistant","content":"é","annotations":[]},"logprobs":null,"finish_reason":"stop"}],"system_fingerprint":"f","z":{"b":1,"a":[1e2]},` + usage + `}`,
		},
		"on several lines": {
			"{\n \"choices\": [\n {\"index\": 0, \"message\": {\"content\": \"a\\nb\"}, \"finish_reason\": \"stop\"}\n],\n" + usage + "}",
			head + `{"index": 0, "message": {"content": "a\nb"}, "finish_reason": "stop"}],` + usage + `}`,
		},
		"tool calls without ids": {
			`{"choices":[{"message":{"tool_calls":[{"function":{"name":"a","arguments":"{}"}},{"function":{"name":"b","arguments":"{}"}}]},"finish_reason":"stop"}],` + usage + `}`,
			head + `{"index":0,"message":{"tool_calls":[{"id":"call_generated","type":"function","function":{"name":"a","arguments":"{}"}},{"id":"call_generated","type":"function","function":{"name":"b","arguments":"{}"}}]},"finish_reason":"tool_calls"}],` + usage + `}`,
		},
		"several choices": {
			`{"choices":[{"message":{"content":"a"},"finish_reason":"stop"},{"message":{"content":"b"},"finish_reason":"length"}],` + usage + `}`,
			head + `{"index":0,"message":{"content":"a"},"finish_reason":"stop"},{"index":1,"message":{"content":"b"},"finish_reason":"length"}],` + usage + `}`,
		},
		"without usage": {
			`{"choices":[{"index":0,"message":{"content":"0123456789"},"finish_reason":"stop"}]}`,
			head + `{"index":0,"message":{"content":"0123456789"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103}}`,
		},
		"usage by other names": {
			`{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":5}}}`,
			head + `{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":5}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := forwardWire(t, plainBody, always(object(row.sent)))
			require.NoError(t, got.err)
			require.Len(t, got.objects, 1)
			require.Equal(t, row.want, generatedID.ReplaceAllString(got.objects[0], "call_generated"))
			require.Positive(t, got.result.Usage.OutputTokens)
		})
	}
}

func TestForward_WholeAnswerWithFault_KnownCause(t *testing.T) { // O1
	t.Parallel()
	for sent, want := range map[string]Cause{
		string(sse(chunkOf(`{"index":0,"delta":{"content":"x"}}`), doneLine)):                                                  CauseMalformed,
		string(object(`{"error":{"message":"busy","code":"overloaded"}}`)):                                                     CauseOverload,
		string(object(`{"choices":[]}`)):                                                                                       CauseAddress,
		string(object(`{"choices":[{"message":"x"}]}`)):                                                                        CauseMalformed,
		string(object(`{"choices":[{"message":{"content":"x"},"finish_reason":"error"}]}`)):                                    CauseUnknown,
		string(object(`<html><title>Sign in</title>`)):                                                                         CauseAddress,
		string(object(`{"choices":[{"message":{"con`)):                                                                         CauseUnreadable,
		string(object(`{"a":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `,"choices":[{"message":{}}]}`)): CauseUnreadable,
		string(object("")): CauseConnection,
	} {
		got := forwardWire(t, plainBody, always([]byte(sent)))
		require.Error(t, got.err, "%.200s", sent)
		require.Equal(t, want, failure(t, got.err).Cause, "%.200s", sent)
		require.Empty(t, got.objects)
	}
}

// What the provider says about a request reaches its client, but no key does.
func TestForward_RequestRefused_ProvidersWordsKept(t *testing.T) { // O5
	t.Parallel()
	refused := func(status int, body string) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n%s", status, body)
	}
	for name, row := range map[string]struct {
		answer []byte
		cause  Cause
		want   ProviderError
	}{
		"OpenAI": {
			refused(400, `{"error":{"message":"Invalid schema for function 'get_current_weather_for_city': 'x'.","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`),
			CauseBadRequest,
			ProviderError{"Invalid schema for function 'get_current_weather_for_city': 'x'.", "invalid_request_error", "tools[0].function.parameters", "invalid_function_parameters"},
		},
		"null fields": {
			refused(400, `{"error":{"message":"No.","type":"invalid_request_error","param":null,"code":null}}`),
			CauseBadRequest,
			ProviderError{"No.", "invalid_request_error", "", ""},
		},
		"the context": {
			refused(400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`),
			CauseContext,
			ProviderError{"This model's maximum context length is 8192 tokens.", "invalid_request_error", "messages", "context_length_exceeded"},
		},
		"in the answer": {
			object(`{"error":{"message":"flagged","code":"content_filter","innererror":{"x":1}}}`),
			CauseRefused,
			ProviderError{"flagged", "", "", "content_filter"},
		},
		"FastAPI": {
			refused(422, `{"detail":[{"loc":["body","temperature"],"msg":"too high","type":"value_error"}]}`),
			CauseBadRequest,
			ProviderError{`[{"loc":["body","temperature"],"msg":"too high","type":"value_error"}]`, "value_error", "temperature", ""},
		},
		"a key in it":      {refused(400, `{"error":{"message":"Bearer `+secret+` is odd"}}`), CauseBadRequest, ProviderError{"Bearer […] is odd", "", "", ""}},
		"of the operator":  {refused(401, `{"error":{"message":"bad key","code":"invalid_api_key"}}`), CauseKey, ProviderError{}},
		"a page":           {refused(400, `<html><title>Bad</title></html>`), CauseBadRequest, ProviderError{}},
		"no such model":    {refused(404, `{"error":{"message":"no such model"}}`), CauseModel, ProviderError{}},
		"only a plain one": {refused(400, `temperature is too high`), CauseBadRequest, ProviderError{"temperature is too high", "", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := forwardWire(t, plainBody, always(row.answer))
			failed := failure(t, got.err)
			require.Equal(t, row.cause, failed.Cause)
			require.Equal(t, row.want, failed.Said)
			require.Zero(t, got.result.Usage)
		})
	}
}

// The provider gets the request as the client sent it, except for what berth decides.
func TestForward_Request_ChangedByTable(t *testing.T) { // O1, O4
	t.Parallel()
	const messages = `"messages":[{"role":"user","content":"\u00e9","x":1.0}]`
	for name, row := range map[string]struct {
		body  string
		bound int
		want  string
	}{
		"nothing else":              {`{"model":"chat",` + messages + `}`, 0, `{"model":"large-1",` + messages + `,"max_tokens":1000}`},
		"bound of the call":         {`{"model":"chat",` + messages + `}`, 70, `{"model":"large-1",` + messages + `,"max_tokens":70}`},
		"lower bound of the client": {`{"max_completion_tokens":50,` + messages + `,"model":"chat"}`, 70, `{` + messages + `,"model":"large-1","max_tokens":50}`},
		"higher one":                {`{"max_tokens":5000,"model":"chat",` + messages + `}`, 70, `{"model":"large-1",` + messages + `,"max_tokens":70}`},
		"stream":                    {`{"model":"chat","stream":true,` + messages + `}`, 70, `{"model":"large-1","stream":true,` + messages + `,"max_tokens":70,"stream_options":{"include_usage":true}}`},
		"stream options": {
			`{"stream_options":{"include_usage":false,"include_obfuscation":false},"model":"chat","stream":true,` + messages + `}`, 70,
			`{"model":"large-1","stream":true,` + messages + `,"max_tokens":70,"stream_options":{"include_obfuscation":false,"include_usage":true}}`,
		},
		"own fields":     {`{"service_tier":"flex","model":"chat",` + messages + `}`, 70, `{"model":"large-1",` + messages + `,"max_tokens":70}`},
		"further fields": {`{"top_k" : 40,"model":"chat",` + messages + `}`, 70, `{"top_k":40,"model":"large-1",` + messages + `,"max_tokens":70}`},
		"vectors":        {`{"input":["a"],"model":"chat","encoding_format":"base64"}`, 70, `{"input":["a"],"model":"large-1","encoding_format":"base64"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			var path string
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				path = r.URL.Path
				_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"data":[{"embedding":"AAAA"}]}`)
			})
			p.client.catalog = Fixed(catalogOf(t, p.server.URL, `{id: large-1, provider: acme, maxOutputTokens: 1000, extra: [top_k]}`))
			call := Call{Model: "large", Raw: rawOf(row.body), MaxTokens: row.bound}
			_, err := p.client.Forward(t.Context(), call, func([]byte) error { return nil })
			require.NoError(t, err)
			require.Equal(t, row.want, string(got))
			require.Equal(t, call.Raw.Operation.path(), path)
		})
	}
}

// catalogOf has one model, large.
func catalogOf(t *testing.T, url, model string) *Catalog {
	t.Helper()
	content, err := ParseContent("test", "providers:\n  acme: {baseURL: \""+url+"\"}\nmodels:\n  large: "+model+"\n")
	require.NoError(t, err)
	c, err := NewCatalog(content.Config, Settings{})
	require.NoError(t, err)
	return c
}

func TestForward_UpstreamDoesNotAcceptField_NotSentWithoutIt(t *testing.T) { // O1
	t.Parallel()
	p := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	p.client.catalog = Fixed(catalogOf(t, p.server.URL, `{provider: acme}`))
	_, err := p.client.Forward(t.Context(), Call{Model: "large", Raw: rawOf(`{"model":"chat","top_k":4}`)}, func([]byte) error { return nil })
	failed := failure(t, err)
	require.True(t, failed.Retryable)
	require.Equal(t, ScopeUpstream, failed.Scope)
	require.Contains(t, failed.Message, "top_k")
}

// A server that does not know an optional field gets the request without it, if the client's answer is the same.
func TestForward_ServerRefusesField_DroppedOnlyWhereAnswerIsTheSame(t *testing.T) { // O1, FM5
	t.Parallel()
	for name, row := range map[string]struct {
		body, field string
		dropped     bool
		answer      string
	}{
		"usage of a stream":   {streamBody, "stream_options", true, "data: " + chunkOf(`{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}`) + "\n\n"},
		"encoding of vectors": {`{"model":"m","input":"a","encoding_format":"base64"}`, "encoding_format", true, `{"data":[{"index":0,"embedding":[1,0.5]}]}`},
		"format of an answer": {`{"model":"m","messages":[],"response_format":{"type":"json_object"}}`, "response_format", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(row.field)) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = fmt.Fprintf(w, `{"error":{"message":"unknown field %s","type":"invalid_request_error"}}`, row.field)
					return
				}
				_, _ = io.WriteString(w, row.answer)
			})
			for want := range 2 {
				_, err := p.client.Forward(t.Context(), rawCall(row.body), func([]byte) error { return nil })
				if !row.dropped {
					require.Equal(t, CauseBadRequest, failure(t, err).Cause)
					require.Equal(t, want+1, calls)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, want+2, calls, "the refusal is remembered")
			}
		})
	}
}

func TestForward_Vectors_InTheEncodingOfTheClient(t *testing.T) { // O1
	t.Parallel()
	const list, packed = `[1,-0.5,1e-07]`, `"AACAPwAAAL+Vv9Yz"`
	const usage = `"usage":{"prompt_tokens":8,"total_tokens":8}`
	ask := map[string]string{
		"":       `{"model":"m","input":"a"}`,
		"float":  `{"model":"m","input":"a","encoding_format":"float"}`,
		"base64": `{"model":"m","input":"a","encoding_format":"base64"}`,
	}
	for _, row := range []struct{ format, sent, want string }{
		{"", list, list}, {"float", list, list}, {"float", packed, list}, {"", packed, list}, {"base64", packed, packed}, {"base64", list, packed},
	} {
		got := forwardWire(t, ask[row.format], always(object(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":`+row.sent+`,"x":1.0}],"model":"m",`+usage+`,"id":"z"}`)))
		require.NoError(t, got.err)
		require.Equal(t, []string{`{"data":[{"object":"embedding","index":0,"embedding":` + row.want + `,"x":1.0}],"model":"chat","id":"z","object":"list",` + usage + `}`}, got.objects)
		require.Equal(t, berth.Usage{InputTokens: 8}, got.result.Usage)
	}
	for sent, cause := range map[string]Cause{
		`{"data":[{"embedding":"AAA"}]}`:               CauseMalformed,
		`{"data":[{"embedding":"AADAfw=="}]}`:          CauseMalformed, // not a number
		`{"data":[{"embedding":{}}]}`:                  CauseMalformed,
		`{"data":[]}`:                                  CauseAddress,
		`{"error":{"message":"x","type":"ratelimit"}}`: CauseLimit,
	} {
		got := forwardWire(t, ask["float"], always(object(sent)))
		require.Equal(t, cause, failure(t, got.err).Cause, sent)
	}
	got := forwardWire(t, ask["base64"], always(object(`{"data":[{"embedding":["x"]}]}`)))
	require.Equal(t, CauseMalformed, failure(t, got.err).Cause)
}

// Guards of other calls hold for forwarded ones.
func TestForward_HostileProvider_Bounded(t *testing.T) { // O4, P16
	t.Parallel()
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		cause  Cause
		body   string
	}{
		"sends nothing":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, CauseTimeout, streamBody},
		"whole answer, likewise": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, CauseTimeout, plainBody},
		"stops": {func(w http.ResponseWriter, r *http.Request) {
			send(w, chunkOf(`{"index":0,"delta":{"content":"x"}}`))
			<-r.Context().Done()
		}, CauseTimeout, streamBody},
		"never ends": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, chunkOf(`{"index":0,"delta":{"content":"`+strings.Repeat("x", 10_000)+`"}}`))
			}
		}, CauseEndless, streamBody},
		"one long line": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 1<<20))
			}
		}, CauseMalformed, streamBody},
		"chunks without choices": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, `{"x":"`+strings.Repeat("x", 100_000)+`"}`)
			}
		}, CauseMalformed, streamBody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, row.answer)
			call := rawCall(row.body)
			call.Timeouts = Timeouts{FirstByte: 20 * time.Second, Idle: 20 * time.Second, Whole: 20 * time.Second}
			if row.cause == CauseTimeout {
				call.Timeouts = Timeouts{FirstByte: 50 * time.Millisecond, Idle: 50 * time.Millisecond, Whole: 50 * time.Millisecond}
			}
			_, err := p.client.Forward(t.Context(), call, func([]byte) error { return nil })
			require.Equal(t, row.cause, failure(t, err).Cause)
		})
	}
}

// An answer that is not streamed may take longer than the first byte of one that is.
func TestForward_WholeAnswerIsLate_WaitsForIt(t *testing.T) { // O1
	t.Parallel()
	late := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-late
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	})
	call := rawCall(plainBody)
	call.Timeouts = Timeouts{FirstByte: time.Millisecond, Idle: time.Minute}
	time.AfterFunc(100*time.Millisecond, func() { close(late) })
	_, err := p.client.Forward(t.Context(), call, func([]byte) error { return nil })
	require.NoError(t, err)
}

func TestForward_CallerEnds_ProviderIsLeft(t *testing.T) { // O7
	t.Parallel()
	left := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, chunkOf(`{"index":0,"delta":{"content":"four tokens of text"}}`))
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has left")
	res, err := p.client.Forward(ctx, rawCall(streamBody), func([]byte) error {
		cancel(gone)
		return nil
	})
	require.ErrorIs(t, err, gone)
	require.True(t, res.Estimated)
	require.Equal(t, berth.Usage{InputTokens: 100, OutputTokens: 6}, res.Usage)
	<-left

	own := errors.New("cannot write")
	got := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: always(sse(chunkOf(`{"index":0,"delta":{"content":"x"}}`)))}}, slog.New(slog.DiscardHandler))
	_, err = got.Forward(t.Context(), rawCall(streamBody), func([]byte) error { return own })
	require.Equal(t, own, err)
}

// generatedID matches an id that berth has made for a tool call.
var generatedID = regexp.MustCompile(`call_[A-Z0-9]{26}`)
