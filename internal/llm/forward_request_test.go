package llm

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
)

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
			require.Equal(t, call.path(), path)
		})
	}
}

// O1, O4: a bound that is not set is not sent, unless what an answer costs has been reserved: models differ in what they accept.
func TestForward_ModelWithoutBound_OnlyThatOfTheClient(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		model, request, want string
	}{
		"neither":           {`{id: x, provider: acme}`, ``, ``},
		"the client's":      {`{id: x, provider: acme}`, `,"max_tokens":16000`, `,"max_tokens":16000`},
		"the model's":       {`{id: x, provider: acme, maxOutputTokens: 70}`, ``, `,"max_tokens":70`},
		"the upstream's":    {`{id: x, upstreams: [{provider: acme, maxOutputTokens: 70}]}`, `,"max_tokens":16000`, `,"max_tokens":70`},
		"metered":           {`{id: x, provider: acme, credits: {output: 1}}`, ``, `,"max_tokens":8192`},
		"metered, a higher": {`{id: x, provider: acme, credits: {input: 1}}`, `,"max_tokens":16000`, `,"max_tokens":8192`},
	} {
		var got []byte
		p := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
		})
		p.client.catalog = Fixed(catalogOf(t, p.server.URL, row.model))
		_, err := p.client.Forward(t.Context(), Call{Model: "large", Raw: rawOf(`{"model":"chat"` + row.request + `}`)}, func([]byte) error { return nil })
		require.NoError(t, err, name)
		require.Equal(t, `{"model":"x"`+row.want+`}`, string(got), name)
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

// What the caller does not decide about an answer is that of the provider's first chunk.
func TestForward_NothingShown_FirstChunkDecides(t *testing.T) { // O1
	t.Parallel()
	chunks := []string{
		`{"id":"a","created":5,"model":"m","service_tier":"default","choices":[{"index":0,"delta":{"content":"x"}}]}`,
		`{"id":"b","created":6,"model":"n","service_tier":"scale","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
	}
	forward := func(shown Shown) (all []string) {
		c := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: always(sse(chunks...))}}, slog.New(slog.DiscardHandler))
		call := rawCall(streamBody)
		call.Raw.Shown = shown
		_, err := c.Forward(t.Context(), call, func(object []byte) error {
			o := gjson.ParseBytes(object)
			all = append(all, fmt.Sprint(o.Get("id"), o.Get("created"), o.Get("model"), o.Get("service_tier")))
			return nil
		})
		require.NoError(t, err)
		return all
	}
	require.Equal(t, []string{"a 5 m default", "a 5 m scale"}, forward(Shown{}))
	require.Equal(t, []string{"i 7 c flex", "i 7 c flex"}, forward(Shown{ID: "i", Created: 7, Model: "c", ServiceTier: "flex"}))
	chunks = []string{`{"choices":[{"delta":{"content":"x"}}]}`, `{"choices":[{"delta":{},"finish_reason":"stop"}]}`}
	got := forward(Shown{})
	require.Regexp(t, `^chatcmpl-[A-Z0-9]{26} [0-9]{10}  $`, got[0])
	require.Equal(t, got[0], got[1])
}

func TestForward_ReportedInput_TellsTruncatedPrompt(t *testing.T) { // O1, FM5
	t.Parallel()
	for read, want := range map[int]bool{5: true, 50: false} {
		c := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: always(object(fmt.Sprintf(
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, read)))}}, slog.New(slog.DiscardHandler))
		call := rawCall(plainBody)
		call.Raw.LeastTokens = 20
		res, err := c.Forward(t.Context(), call, func([]byte) error { return nil })
		require.NoError(t, err)
		require.Equal(t, want, res.PromptTruncated)
	}
}
