package llm

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
)

// responsesCatalog has a model that speaks the responses API.
var responsesCatalog = sync.OnceValue(func() *Catalog {
	content, err := ParseContent("routing.yaml", "providers: {openai: {baseURL: \"https://api.openai.com/v1\", keySetting: OPENAI_API_KEY}}\n"+
		"models: {m: {provider: openai, id: gpt, responses: true, maxOutputTokens: 100, extra: [top_k]}}\n")
	if err != nil {
		panic(err)
	}
	c, err := NewCatalog(content.Config, Settings{Keys: map[string]string{"OPENAI_API_KEY": secret}})
	if err != nil {
		panic(err)
	}
	return c
})

func responseCall(fields ...RawField) Call {
	return Call{Model: "m", Raw: &Raw{
		Operation: OperationChat, Responses: true, Stream: true, Choices: 1, InputTokens: 100, Shown: Shown{ID: "resp_berth", Model: "m", Created: 1},
		Fields: append([]RawField{{Name: "model", Key: []byte("model"), Value: []byte(`"m"`), Use: FieldChanged}}, fields...),
	}}
}

// respondWire makes one call of a provider that returns raw bytes.
func respondWire(t *testing.T, next func(call int) io.Reader) (f forwarded) {
	t.Helper()
	c := NewClient(Fixed(responsesCatalog()), &http.Client{Transport: &wire{next: next}}, slog.New(slog.DiscardHandler))
	f.result, f.err = c.Forward(t.Context(), responseCall(), func(object []byte) error {
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

// events returns a stream of events, each with its name.
func events(lines ...string) []byte {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", gjson.Get(line, "type").Str, line)
	}
	return []byte(b.String())
}

// The events of an answer with reasoning and a text, as OpenAI sends them.
const (
	evCreated  = `{"type":"response.created","sequence_number":0,"response":{"id":"resp_up","object":"response","status":"in_progress","model":"gpt-2026","output":[],"error":null}}`
	evProgress = `{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_up","object":"response","status":"in_progress","output":[]}}`
	evReason   = `{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"rs_up","type":"reasoning","summary":[],"encrypted_content":""}}`
	evThought  = `{"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":{"id":"rs_up","type":"reasoning","summary":[],"encrypted_content":"gAAA"}}`
	evMessage  = `{"type":"response.output_item.added","sequence_number":4,"output_index":1,"item":{"id":"msg_up","type":"message","status":"in_progress","role":"assistant","content":[]}}`
	evPart     = `{"type":"response.content_part.added","sequence_number":5,"item_id":"msg_up","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}`
	evDelta    = `{"type":"response.output_text.delta","sequence_number":6,"item_id":"msg_up","output_index":1,"content_index":0,"delta":"Hello, wörld 🌊","logprobs":[]}`
	evDone     = `{"type":"response.output_text.done","sequence_number":7,"item_id":"msg_up","output_index":1,"content_index":0,"text":"Hello, wörld 🌊","logprobs":[]}`
	evOutput   = `"output":[{"id":"rs_up","type":"reasoning","summary":[],"encrypted_content":"gAAA"},{"id":"msg_up","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello, wörld 🌊","annotations":[]}]}]`
	evUsage    = `"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":8},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":29}`
	evEnd      = `{"type":"response.completed","sequence_number":8,"response":{"id":"resp_up","object":"response","status":"completed","model":"gpt-2026","service_tier":"default","error":null,"incomplete_details":null,` + evOutput + `,` + evUsage + `}}`
	doneEvent  = "data: [DONE]\n\n"
)

func openAI() []byte {
	return events(evCreated, evProgress, evReason, evThought, evMessage, evPart, evDelta, evDone, evEnd)
}

// Streams as different servers send the same answer.
func TestForward_ResponseOfEachServer_SameEvents(t *testing.T) { // O8, P21
	t.Parallel()
	want := respondWire(t, always(openAI()))
	require.NoError(t, want.err)
	require.Equal(t, berth.Usage{InputTokens: 19, OutputTokens: 10, CachedTokens: 8, ReasoningTokens: 4}, want.result.Usage)
	require.Equal(t, berth.FinishStop, want.result.FinishReason)
	require.Len(t, want.objects, 7)
	require.NotContains(t, want.String(), "resp_up")
	require.NotContains(t, want.String(), "gpt-2026")
	raw := string(openAI())
	head, content, _ := strings.Cut(raw, "\r\n\r\n")
	head += "\r\n\r\n"
	for name, stream := range map[string]string{
		"without names":          head + dropLines(content, "event:"),
		"with an end mark":       raw + doneEvent,
		"with comments":          head + ": keep-alive\n\n" + strings.ReplaceAll(content, "\n\n", "\n\n: ping\n\n"),
		"with keep-alive events": strings.ReplaceAll(raw, "event: response.output_text.delta", "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\nevent: response.output_text.delta"),
		"with CRLF":              head + strings.ReplaceAll(content, "\n", "\r\n"),
		"without a blank line":   strings.TrimSuffix(raw, "\n"),
		"without a space":        strings.ReplaceAll(raw, "data: ", "data:"),
		"as text":                strings.Replace(raw, "text/event-stream; charset=utf-8", "text/plain", 1),
		"with more behind":       raw + "event: x\ndata: {\n\n",
		"packed":                 head + zipped(content),
	} {
		got := respondWire(t, always([]byte(stream)))
		require.Equal(t, want.String(), got.String(), name)
	}
	require.Equal(t, want.String(), respondWire(t, func(int) io.Reader { return iotest.OneByteReader(strings.NewReader(raw)) }).String())
}

func dropLines(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A stream that ends at any byte before its last event is the fault of a chat that does, and nothing is passed on before there is something of an answer.
func TestForward_ResponseEndsAtEveryByte_WholeOrFault(t *testing.T) { // O8, P21
	t.Parallel()
	raw := openAI()
	want := respondWire(t, always(raw))
	text := bytes.Index(raw, []byte(`"rs_up","type":"reasoning","summary":[],"encrypted_content":"gAAA"`))
	last := bytes.LastIndex(raw, []byte("}}"))
	for end := bytes.Index(raw, []byte("\r\n\r\n")) + 4; end <= len(raw); end++ {
		for _, tail := range []string{"", "\n\n" + doneEvent} {
			got := respondWire(t, always(append(raw[:end:end], tail...)))
			if got.err == nil {
				require.Greater(t, end, last+1)
				require.Equal(t, want.objects, got.objects)
				continue
			}
			require.LessOrEqual(t, end, last+1, "%s", got)
			require.Contains(t, []Cause{CauseConnection, CauseUnreadable}, failure(t, got.err).Cause, "ends at byte %d", end)
			require.Equal(t, want.objects[:len(got.objects)], append([]string{}, got.objects...))
			if end < text {
				require.Empty(t, got.objects)
			}
		}
	}
}

// Each row is what a provider sends, with how the call ends, how many events are passed on, and whether it may have cost something.
func TestForward_ResponseFaults_KnownCause(t *testing.T) { // O8, P21
	t.Parallel()
	failed := func(err string) string {
		return `{"type":"response.failed","response":{"status":"failed","error":` + err + `}}`
	}
	limit := `{"code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 8.5s."}`
	for name, row := range map[string]struct {
		raw    []byte
		cause  Cause
		shown  int
		bought bool
	}{
		"failed by a limit":           {events(evCreated, failed(limit)), CauseLimit, 0, false},
		"failed after the beginning":  {events(evCreated, evProgress, evMessage, evPart, failed(limit)), CauseLimit, 0, false},
		"failed after the text":       {events(evMessage, evPart, evDelta, failed(limit)), CauseLimit, 3, true},
		"failed by the server":        {events(evCreated, failed(`{"code":"server_error","message":"Sorry"}`)), CauseServer, 0, true},
		"failed by a filter":          {events(evCreated, failed(`{"code":"invalid_prompt","message":"Your prompt was flagged as violating our usage policies"}`)), CauseRefused, 0, false},
		"failed by an image":          {events(evCreated, failed(`{"code":"invalid_image_format","message":"The image is not supported"}`)), CauseBadRequest, 0, false},
		"failed without a reason":     {events(evCreated, `{"type":"response.failed"}`), CauseUnknown, 0, true},
		"cancelled by the provider":   {events(evCreated, `{"type":"response.cancelled","response":{"status":"cancelled","error":null}}`), CauseUnknown, 0, true},
		"error event":                 {events(evCreated, `{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null,"sequence_number":2}`), CauseLimit, 0, false},
		"error event with an object":  {events(`{"type":"error","error":{"type":"requests","code":"rate_limit_exceeded","message":"slow"}}`), CauseLimit, 0, false},
		"error event without a name":  {sse(`{"type":"error","code":"server_error","message":"broken"}`), CauseServer, 0, true},
		"error without a type":        {sse(evMessage, evDelta, `{"error":{"code":"server_is_overloaded","message":"busy"}}`), CauseOverload, 2, true},
		"no event":                    {events(), CauseConnection, 0, true},
		"only the end mark":           {sse("[DONE]"), CauseConnection, 0, true},
		"no last event":               {events(evMessage, evPart, evDelta), CauseConnection, 3, true},
		"end mark, but no last event": {sse(evMessage, evDelta, "[DONE]"), CauseConnection, 2, true},
		"half an event":               {sse(evMessage, evDelta, evDone[:40]), CauseUnreadable, 2, true},
		"last event without response": {events(evMessage, evDelta, `{"type":"response.completed"}`), CauseMalformed, 2, true},
		"chunks of a chat":            {sse(chunkOf(`{"index":0,"delta":{"content":"Hi"}}`)), CauseMalformed, 0, true},
		"a chat":                      {object(`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}`), CauseAddress, 0, false},
		"a page":                      {[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>Welcome</html>"), CauseAddress, 0, false},
		"an object":                   {object(`{"status":"ok"}`), CauseAddress, 0, false},
		"an error as an object":       {object(`{"error":` + limit + `}`), CauseLimit, 0, false},
		"a response that failed":      {object(`{"object":"response","status":"failed","error":` + limit + `,"output":[]}`), CauseLimit, 0, false},
		"a response in progress":      {object(`{"object":"response","status":"in_progress","output":[]}`), CauseMalformed, 0, true},
		"half a response":             {object(`{"object":"response",` + evOutput[:60]), CauseUnreadable, 0, true},
	} {
		got := respondWire(t, always(row.raw))
		require.Error(t, got.err, name)
		e := failure(t, got.err)
		require.Equal(t, row.cause, e.Cause, "%s: %v", name, e.Err)
		require.Len(t, got.objects, row.shown, name)
		require.Equal(t, row.bought, got.result.Usage != (berth.Usage{}), name)
		if strings.Contains(string(row.raw), "8.5s") {
			require.InDelta(t, 8.5, e.RetryAfter.Seconds(), 0.1, name)
		}
	}
}

// Each row is how an answer ends, with what the usage log and the client get.
func TestForward_ResponseEnds_ReasonAndUsage(t *testing.T) { // O8
	t.Parallel()
	call := `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"get","arguments":""}}`
	ended := func(status, more string) string {
		return `{"type":"response.` + status + `","response":{"status":"` + status + `"` + more + `}}`
	}
	for name, row := range map[string]struct {
		raw       []byte
		reason    string
		estimated bool
	}{
		"complete":              {events(evMessage, evDelta, ended("completed", `,"output":[],`+evUsage)), berth.FinishStop, false},
		"a call":                {events(call, ended("completed", `,"output":[],`+evUsage)), finishToolCalls, false},
		"without usage":         {events(evMessage, evDelta, ended("completed", `,"output":[],"usage":null`)), berth.FinishStop, true},
		"token limit":           {events(evMessage, evDelta, ended("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"},"output":[],`+evUsage)), berth.FinishLength, false},
		"filter":                {events(evMessage, evDelta, ended("incomplete", `,"incomplete_details":{"reason":"content_filter"},"output":[],`+evUsage)), "content_filter", false},
		"nothing":               {events(evCreated, ended("completed", `,"output":[],`+evUsage)), berth.FinishStop, false},
		"whole":                 {object(`{"id":"resp_up","object":"response","status":"completed","error":null,` + evOutput + `,` + evUsage + `}`), berth.FinishStop, false},
		"whole, as an event":    {sse(`{"id":"resp_up","object":"response","status":"completed",` + evOutput + `,` + evUsage + `}`), berth.FinishStop, false},
		"unknown reason":        {events(evMessage, evDelta, ended("incomplete", `,"incomplete_details":{"reason":"tired"},"output":[],`+evUsage)), berth.FinishLength, false},
		"no reason":             {events(evMessage, evDelta, ended("incomplete", `,"incomplete_details":null,"output":[],`+evUsage)), berth.FinishLength, false},
		"whole, not complete":   {object(`{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},` + evOutput + `}`), berth.FinishLength, true},
		"whole, without status": {object(`{"object":"response",` + evOutput + `}`), berth.FinishStop, true},
	} {
		got := respondWire(t, always(row.raw))
		require.NoError(t, got.err, name)
		require.Equal(t, row.reason, got.result.FinishReason, name)
		require.Equal(t, row.estimated, got.result.Estimated, name)
		require.Positive(t, got.result.Usage.InputTokens, name)
		require.Positive(t, got.result.Usage.OutputTokens, name)
		last := gjson.Parse(got.objects[len(got.objects)-1])
		require.True(t, last.Get("response.usage").IsObject() && last.Get("response.output").IsArray(), last.Raw)
		if row.estimated {
			require.EqualValues(t, 100, last.Get("response.usage.prompt_tokens").Int(), "as a chat has it, which internal/responses reads")
		}
	}
}

// Encrypted content has the account that made it, and can be read again.
func TestForward_EncryptedContent_NamesItsAccount(t *testing.T) { // O8
	t.Parallel()
	got := respondWire(t, always(openAI()))
	require.NoError(t, got.err)
	model, _ := responsesCatalog().Model("m")
	require.True(t, model.Upstreams[0].Responses)
	want := Encrypted{Account: model.Upstreams[0].Account, ID: "rs_up", Content: "gAAA"}
	found := 0
	for _, o := range got.objects {
		for _, path := range []string{"item.encrypted_content", "response.output.0.encrypted_content"} {
			if text := gjson.Get(o, path).Str; text != "" {
				read, ok := ReadEncrypted(text)
				require.True(t, ok, text)
				require.Equal(t, want, read)
				require.NotContains(t, text, "OPENAI_API_KEY")
				found++
			}
		}
	}
	require.Equal(t, 2, found)
	for _, foreign := range []string{"", "gAAA", "berth.", "berth.a.b", "berth.a.!.c"} {
		_, ok := ReadEncrypted(foreign)
		require.False(t, ok, foreign)
	}
	require.NotEqual(t, account("p", "A"), account("p", "B"))
	require.NotEqual(t, account("p", "A"), account("q", "A"))
}

// An upstream gets the request as it is, but for what is its own.
func TestForward_RequestOfAResponse_EachFieldItsUse(t *testing.T) { // O8
	t.Parallel()
	field := func(name, value string, use FieldUse) RawField {
		return RawField{Name: name, Key: []byte(name), Value: []byte(value), Use: use}
	}
	call := responseCall(field("input", `[{"role":"user","content":1.50}]`, FieldForwarded), field("metadata", `{}`, FieldOwn), field("max_output_tokens", "500", FieldChanged),
		field("top_k", "5", FieldFurther), field("stream", "true", FieldForwarded))
	call.Raw.MaxTokens = 500
	c := NewClient(Fixed(responsesCatalog()), nil, slog.New(slog.DiscardHandler))
	at, _, err := c.at(call)
	require.NoError(t, err)
	require.Equal(t, `{"model":"gpt","input":[{"role":"user","content":1.50}],"top_k":5,"stream":true,"max_output_tokens":100}`, string(at.body))
	require.Equal(t, "/responses", at.path())

	chat := rawOf(streamBody)
	call.Raw.Chat = chat
	call.Model = "deepseek-chat"
	c = NewClient(Fixed(wireCatalog()), nil, slog.New(slog.DiscardHandler))
	at, _, err = c.at(call)
	require.NoError(t, err)
	require.Equal(t, "/chat/completions", at.path())
	require.Same(t, chat, at.Raw)
	call.Raw.Chat = nil
	_, _, err = c.at(call)
	require.True(t, failure(t, err).Retryable, "another upstream may speak it")

	cfg := responsesCatalog().cfg
	local, err := NewCatalog(cfg, Settings{LocalURL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	call = responseCall()
	call.Raw.Chat = chat
	at, _, err = NewClient(Fixed(local), nil, slog.New(slog.DiscardHandler)).at(call)
	require.NoError(t, err)
	require.Equal(t, "/chat/completions", at.path(), "of the simulator")
}

// The setting of a model is the default of its upstreams.
func TestCatalog_Responses_OfModelAndUpstream(t *testing.T) { // O8
	t.Parallel()
	content, err := ParseContent("routing.yaml", "providers: {p: {baseURL: \"http://127.0.0.1/v1\", keySetting: A}}\nmodels:\n"+
		"  m: {responses: true, provider: p, upstreams: [{name: a}, {name: b, responses: false}, {name: c, keySetting: C}]}\n  n: {provider: p}\n")
	require.NoError(t, err)
	c, err := NewCatalog(content.Config, Settings{})
	require.NoError(t, err)
	m, _ := c.Model("m")
	n, _ := c.Model("n")
	speaks := []bool{n.Upstreams[0].Responses}
	for _, u := range m.Upstreams {
		speaks = append(speaks, u.Responses)
	}
	require.Equal(t, []bool{false, true, false, true}, speaks)
	require.Equal(t, m.Upstreams[0].Account, n.Upstreams[0].Account)
	require.NotEqual(t, m.Upstreams[0].Account, m.Upstreams[2].Account)
	_, err = ParseContent("routing.yaml", "providers: {p: {baseURL: \"http://127.0.0.1/v1\"}}\nmodels: {m: {provider: p, responses: 1}}\n")
	require.ErrorContains(t, err, "models.m.responses")
}

// The corpora of other calls have faults of servers, which are the same.
func TestForward_ResponseCorpus_NothingShown(t *testing.T) { // O8, P21
	t.Parallel()
	for name, raw := range readCorpus(t) {
		if corpus[name].cause == "" || bytes.Contains(raw, []byte(`"choices"`)) {
			continue
		}
		got := respondWire(t, always(raw))
		require.Equal(t, corpus[name].cause, failure(t, got.err).Cause, name)
		require.Empty(t, got.objects, name)
	}
	files, err := os.ReadDir("testdata/forward")
	require.NoError(t, err)
	for _, file := range files {
		if raw, err := os.ReadFile("testdata/forward/" + file.Name()); err == nil && strings.HasSuffix(file.Name(), ".http") {
			got := respondWire(t, always(raw))
			require.Contains(t, []Cause{CauseMalformed, CauseAddress}, failure(t, got.err).Cause, file.Name())
		}
	}
}
