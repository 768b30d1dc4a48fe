package llm

import (
	"bytes"
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

			head, content, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
			packed := string(head) + "\r\n\r\n" + zipped(string(content))
			require.Equal(t, withoutIDs(got), withoutIDs(forwardWire(t, usageBody, always([]byte(packed)))))

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
		"bytes that are not UTF-8": {
			"{\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\xff\"},\"finish_reason\":\"stop\"}]," + usage + `}`,
			head + `{"index":0,"message":{"content":"a�"},"finish_reason":"stop"}],` + usage + `}`,
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

// generatedID matches an id that berth has made for a tool call.
var generatedID = regexp.MustCompile(`call_[A-Z0-9]{26}`)
