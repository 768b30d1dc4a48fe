package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"

	"berth/internal/llm"
	"berth/internal/testprovider"
)

// gateway is a server of the protocol without keys and slots, and the official client of it.
type gateway struct {
	provider *testprovider.Server
	client   openai.Client
	requests atomic.Int64
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	provider := testprovider.Start(t)
	g := gatewayTo(t, clientOf(t, provider.URL))
	g.provider = provider
	return g
}

// gatewayTo returns a gateway to the model large.
func gatewayTo(t *testing.T, models *llm.Client) *gateway {
	t.Helper()
	g := &gateway{}
	model := llm.Model{Name: "large", Upstreams: []llm.Upstream{{Name: "acme", Extra: []string{"top_k", "min_p"}}}}
	mux := http.NewServeMux()
	handle := func(parse func([]byte) (*Request, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			g.requests.Add(1)
			body, _ := io.ReadAll(r.Body)
			begun := false
			request, err := parse(body)
			if err == nil {
				_, err = request.Check(model)
			}
			if err == nil {
				_, err = models.Forward(r.Context(), request.Call("large", llm.Shown{ID: "chatcmpl-1", Created: 7}), func(object []byte) error {
					if begun = true; !request.Stream {
						w.Header().Set("Content-Type", "application/json")
						_, err := w.Write(object)
						return err
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_, err := fmt.Fprintf(w, "data: %s\n\n", object)
					w.(http.Flusher).Flush()
					return err
				})
			}
			switch {
			case err != nil && begun:
				_, _ = fmt.Fprintf(w, "data: %s\n\n", ErrorOf(err).Body())
			case err != nil:
				ErrorOf(err).SetHeader(w.Header())
				w.WriteHeader(ErrorOf(err).Status)
				_, _ = w.Write(ErrorOf(err).Body())
			case request.Stream:
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			}
		}
	}
	mux.HandleFunc("POST /chat/completions", handle(ParseChat))
	mux.HandleFunc("POST /embeddings", handle(ParseEmbeddings))
	mux.HandleFunc("GET /models", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ModelList{{ID: "chat", Created: 7, OwnedBy: "acme"}})
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	hc := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(hc.CloseIdleConnections)
	g.client = openai.NewClient(option.WithBaseURL(srv.URL), option.WithAPIKey("k"), option.WithHTTPClient(hc))
	return g
}

// answers makes the provider answer with an object.
func (g *gateway) answers(object string) {
	g.provider.Answer(testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + object)))
}

func chat(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "chat", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// The official client reads each stream of a provider, and joins it to the answer that was sent.
func TestClient_StreamsOfProviders_JoinedByOfficialClient(t *testing.T) { // O1, O10
	t.Parallel()
	type call struct{ name, arguments string }
	for name, want := range map[string]struct {
		text, finish string
		calls        []call
		tokens       int64
	}{
		"openai-text":           {text: "Hello wörld 🌊", finish: "stop", tokens: 29},
		"openai-tools":          {finish: "tool_calls", calls: []call{{"weather", `{"city":"Paris"}`}, {"weather", `{"city":"Oslo"}`}}, tokens: 120},
		"azure":                 {text: "Hi", finish: "stop", tokens: 11},
		"vllm-reasoning":        {text: "4", finish: "stop", tokens: 16},
		"vllm-tools-stop":       {finish: "tool_calls", calls: []call{{"add", `{"a": 1}`}}},
		"ollama":                {text: "Hello", finish: "stop", tokens: 29},
		"ollama-tools":          {finish: "tool_calls", calls: []call{{"now", `{}`}, {"now", `{"tz":"UTC"}`}}},
		"deepseek-reasoner":     {text: "42", finish: "stop", tokens: 14},
		"qwen":                  {text: "好", finish: "stop", tokens: 13},
		"mistral":               {text: "Bonjour", finish: "stop", tokens: 8},
		"mistral-tools":         {finish: "tool_calls", calls: []call{{"f", `{}`}, {"g", `{}`}}, tokens: 8},
		"gemini-tools":          {finish: "tool_calls", calls: []call{{"weather", `{"city":"Paris"}`}, {"weather", `{"city":"Oslo"}`}}, tokens: 16},
		"gemini-tools-nameless": {finish: "tool_calls", calls: []call{{"a", `{}`}, {"b", `{}`}}, tokens: 12},
		"openrouter":            {text: "Yes", finish: "stop", tokens: 24},
		"groq":                  {text: "Fast", finish: "stop", tokens: 38},
		"moonshot":              {text: "Ok", finish: "stop", tokens: 10},
		"llamacpp-crlf":         {text: "xy", finish: "stop"},
		"done-only":             {text: "Bare bones", finish: "stop"},
		"unstreamed":            {finish: "tool_calls", calls: []call{{"f", `{}`}}, tokens: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(filepath.Join("../llm/testdata/forward", name+".http"))
			require.NoError(t, err)
			g := newGateway(t)
			g.provider.Answer(testprovider.Replay(raw))
			params := chat("Hello?")
			params.StreamOptions.IncludeUsage = openai.Bool(true)
			stream := g.client.Chat.Completions.NewStreaming(t.Context(), params)
			var joined openai.ChatCompletionAccumulator
			for stream.Next() {
				require.True(t, joined.AddChunk(stream.Current()), "the chunks are of one answer")
			}
			require.NoError(t, stream.Err())
			require.Equal(t, "chatcmpl-1", joined.ID)
			require.Equal(t, "chat", joined.Model)
			require.Len(t, joined.Choices, 1)
			message := joined.Choices[0].Message
			require.Equal(t, want.text, message.Content)
			require.Equal(t, want.finish, joined.Choices[0].FinishReason)
			var calls []call
			for _, c := range message.ToolCalls {
				require.NotEmpty(t, c.ID)
				calls = append(calls, call{c.Function.Name, c.Function.Arguments})
			}
			require.Equal(t, want.calls, calls)
			if require.Positive(t, joined.Usage.TotalTokens); want.tokens > 0 {
				require.Equal(t, want.tokens, joined.Usage.TotalTokens)
			}
		})
	}
}

func TestClient_ChatWithTools_TwoRounds(t *testing.T) { // O1, O10
	t.Parallel()
	g := newGateway(t)
	g.answers(`{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9}}`)
	params := chat("One and one?")
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "add", Parameters: openai.FunctionParameters{"type": "object"},
	})}
	params.ServiceTier = "flex"
	first, err := g.client.Chat.Completions.New(t.Context(), params, option.WithJSONSet("top_k", 40))
	require.NoError(t, err)
	require.Equal(t, "tool_calls", first.Choices[0].FinishReason)
	require.Equal(t, "add", first.Choices[0].Message.ToolCalls[0].Function.Name)

	var got map[string]any
	g.provider.Answer(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"+`{"choices":[{"message":{"role":"assistant","content":"2"},"finish_reason":"stop"}]}`))(w, r)
	})
	params.Messages = append(params.Messages, first.Choices[0].Message.ToParam(), openai.ToolMessage("2", "c1"))
	second, err := g.client.Chat.Completions.New(t.Context(), params, option.WithJSONSet("top_k", 40))
	require.NoError(t, err)
	require.Equal(t, "2", second.Choices[0].Message.Content)
	require.Len(t, got["messages"], 3)
	require.Len(t, got["tools"], 1)
	require.InDelta(t, 40, got["top_k"], 0)
	require.Equal(t, "large-1", got["model"])
	require.NotContains(t, got, "service_tier")
	require.InDelta(t, 1000, got["max_tokens"], 0)
}

func TestClient_StructuredOutputImageAndChoices_Forwarded(t *testing.T) { // O1, O10
	t.Parallel()
	g := newGateway(t)
	var got struct {
		ResponseFormat json.RawMessage `json:"response_format"`
		N              int
		Messages       []struct{ Content []map[string]any }
	}
	g.provider.Answer(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&got)
		testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"+`{"choices":[{"index":0,"message":{"content":"{\"a\":1}"},"finish_reason":"stop","logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":null,"top_logprobs":[]}],"refusal":null}},{"index":1,"message":{"content":"{\"a\":2}"},"finish_reason":"stop"}]}`))(w, r)
	})
	params := chat("")
	params.N = openai.Int(2)
	params.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart("What is it?"), openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,AAAA"}),
	})}
	params.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
		Name: "a", Strict: openai.Bool(true), Schema: map[string]any{"type": "object"},
	}}
	answer, err := g.client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, 2, got.N)
	require.JSONEq(t, `{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"type":"object"}}}`, string(got.ResponseFormat))
	require.Equal(t, "image_url", got.Messages[0].Content[1]["type"])
	require.Len(t, answer.Choices, 2)
	require.Equal(t, `{"a":2}`, answer.Choices[1].Message.Content)
	require.InDelta(t, -0.5, answer.Choices[0].Logprobs.Content[0].Logprob, 0)
}

func TestClient_EmbeddingsAndModels_Read(t *testing.T) { // O1, O10
	t.Parallel()
	g := newGateway(t)
	g.answers(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m","usage":{"prompt_tokens":2,"total_tokens":2}}`)
	answer, err := g.client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
		Model: "vectors", Input: openai.EmbeddingNewParamsInputUnion{OfString: param.NewOpt("a")}, Dimensions: openai.Int(2),
	})
	require.NoError(t, err)
	require.Equal(t, []float64{0.5, -1}, answer.Data[0].Embedding)
	require.Equal(t, "vectors", answer.Model)
	require.Equal(t, int64(2), answer.Usage.PromptTokens)

	page, err := g.client.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "chat", page.Data[0].ID)
	require.Equal(t, "acme", page.Data[0].OwnedBy)
}

// Each row is what fails, with the error that the client has and how often it asks.
func TestClient_Errors_ReadAndRetriedAsTheyShould(t *testing.T) { // O5, O10
	t.Parallel()
	refused := func(status int, body string) http.HandlerFunc {
		return testprovider.Replay(fmt.Appendf(nil, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\n\r\n%s", status, body))
	}
	for name, row := range map[string]struct {
		answer   http.HandlerFunc
		params   func(*openai.ChatCompletionNewParams)
		status   int
		param    string
		code     string
		requests int64
	}{
		"unknown parameter": {params: func(p *openai.ChatCompletionNewParams) { p.SetExtraFields(map[string]any{"top_a": 1}) }, status: 400, param: "top_a", code: "unknown_parameter", requests: 1},
		"wrong type":        {params: func(p *openai.ChatCompletionNewParams) { p.SetExtraFields(map[string]any{"n": "two"}) }, status: 400, param: "n", code: "invalid_type", requests: 1},
		"refused by the provider": {
			answer: refused(400, `{"error":{"message":"too hot","type":"invalid_request_error","param":"temperature","code":"decimal_above_max_value"}}`),
			status: 400, param: "temperature", code: "decimal_above_max_value", requests: 1,
		},
		"key of the operator": {answer: refused(401, `{"error":{"message":"bad","code":"invalid_api_key"}}`), status: 502, code: "invalid_key", requests: 1},
		"no credit":           {answer: refused(429, `{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}`), status: 502, code: "no_credit", requests: 1},
		"overload":            {answer: refused(503, `{"error":{"message":"x","code":"overloaded"}}`), status: 503, code: "server_is_overloaded", requests: 3},
		"rate limit":          {answer: refused(429, `{"error":{"message":"x","code":"rate_limit_exceeded"}}`), status: 429, code: "rate_limit_exceeded", requests: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			if row.answer != nil {
				g.provider.Answer(row.answer)
			}
			params := chat("Hello?")
			if row.params != nil {
				row.params(&params)
			}
			_, err := g.client.Chat.Completions.New(t.Context(), params)
			var failed *openai.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, row.status, failed.StatusCode)
			require.Equal(t, row.param+" "+row.code, failed.Param+" "+failed.Code)
			require.NotEmpty(t, failed.Message)
			require.NotEmpty(t, failed.Type)
			require.Equal(t, row.requests, g.requests.Load())
		})
	}
}

// What a client has of an answer that ends early is not treated as the whole.
func TestClient_ProviderDiesInTheAnswer_ErrorChunk(t *testing.T) { // O1, O10
	t.Parallel()
	g := newGateway(t)
	g.provider.Answer(testprovider.Cut("half"))
	stream := g.client.Chat.Completions.NewStreaming(t.Context(), chat("Hello?"))
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Delta.Content)
	}
	require.Equal(t, "half", text.String())
	require.ErrorContains(t, stream.Err(), "closed the connection")
	require.Equal(t, int64(1), g.provider.Calls.Load())
}

func TestError_Body_AllFourFields(t *testing.T) { // O5
	t.Parallel()
	require.JSONEq(t, `{"error":{"message":"m","type":"t","param":null,"code":null}}`, string((&Error{Message: "m", Type: "t"}).Body()))
	require.JSONEq(t, `{"error":{"message":"m","type":"t","param":"p","code":"c"}}`, string((&Error{Message: "m", Type: "t", Param: "p", Code: "c"}).Body()))
	h := http.Header{}
	(&Error{RetryAfter: 1500 * time.Millisecond}).SetHeader(h)
	require.Equal(t, http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1500"}}, h)
	h = http.Header{}
	(&Error{RetryAfter: time.Second, Final: true}).SetHeader(h)
	require.Equal(t, http.Header{"X-Should-Retry": {"false"}}, h)
}
