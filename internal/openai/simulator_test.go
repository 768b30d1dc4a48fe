package openai

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"berth/internal/llm"
	"berth/internal/sim"
)

// newSimulated returns a gateway to a model whose provider has no key, which the simulator serves.
func newSimulated(t *testing.T) *gateway {
	t.Helper()
	simulator := httptest.NewServer(sim.ModelServer(sim.Options{}))
	t.Cleanup(simulator.Close)
	content, err := llm.ParseContent("test", `
providers:
  acme: {baseURL: "https://acme.example/v1", keySetting: ACME_API_KEY}
models:
  large: {id: large-1, provider: acme}
`)
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{LocalURL: simulator.URL + "/v1"})
	require.NoError(t, err)
	require.Equal(t, llm.LocalProvider, catalog.ServedBy("large", "acme"))
	hc := llm.NewHTTPClient()
	t.Cleanup(hc.CloseIdleConnections)
	return gatewayTo(t, llm.NewClient(llm.Fixed(catalog), hc, slog.New(slog.DiscardHandler)))
}

var weather = openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
	Name: "get_weather", Parameters: openai.FunctionParameters{
		"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}, "additionalProperties": false,
	},
})

func TestSimulator_ChatThroughForward_StreamedAndNot(t *testing.T) { // O1, O10
	t.Parallel()
	g := newSimulated(t)
	params := chat("We look for an engineer who knows Go.")
	params.N = openai.Int(2)
	whole, err := g.client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, whole.Choices, 2)
	require.Contains(t, whole.Choices[0].Message.Content, "an engineer who knows Go")
	require.Equal(t, "stop", whole.Choices[1].FinishReason)
	require.Equal(t, "chat", whole.Model)
	require.Positive(t, whole.Usage.PromptTokens)

	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := g.client.Chat.Completions.NewStreaming(t.Context(), params)
	var joined openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, joined.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Len(t, joined.Choices, 2)
	for i := range joined.Choices {
		require.Equal(t, whole.Choices[i].Message.Content, joined.Choices[i].Message.Content)
		require.Equal(t, whole.Choices[i].FinishReason, joined.Choices[i].FinishReason)
	}
	require.NotEqual(t, whole.Choices[0].Message.Content, whole.Choices[1].Message.Content)
	require.Equal(t, whole.Usage.TotalTokens, joined.Usage.TotalTokens)
}

func TestSimulator_ToolsThroughForward_TwoRounds(t *testing.T) { // O1, O10
	t.Parallel()
	g := newSimulated(t)
	params := chat("How is the weather in Paris?")
	params.Tools = []openai.ChatCompletionToolUnionParam{weather}
	first, err := g.client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "tool_calls", first.Choices[0].FinishReason)
	require.Len(t, first.Choices[0].Message.ToolCalls, 1)
	call := first.Choices[0].Message.ToolCalls[0]
	require.Equal(t, "get_weather", call.Function.Name)
	var arguments struct{ City string }
	require.NoError(t, json.Unmarshal([]byte(call.Function.Arguments), &arguments))
	require.Contains(t, arguments.City, "Paris")

	stream := g.client.Chat.Completions.NewStreaming(t.Context(), params)
	var joined openai.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, joined.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "tool_calls", joined.Choices[0].FinishReason)
	require.Equal(t, call.Function.Arguments, joined.Choices[0].Message.ToolCalls[0].Function.Arguments)

	params.Messages = append(params.Messages, first.Choices[0].Message.ToParam(), openai.ToolMessage("Sunny, 21 degrees", call.ID))
	second, err := g.client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "stop", second.Choices[0].FinishReason)
	require.Contains(t, second.Choices[0].Message.Content, "Sunny, 21 degrees")
}

func TestSimulator_EmbeddingsThroughForward_SameVectors(t *testing.T) { // O1, O10
	t.Parallel()
	g := newSimulated(t)
	params := openai.EmbeddingNewParams{
		Model: "vectors", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a red lamp", "a blue chair"}}, Dimensions: openai.Int(8),
	}
	floats, err := g.client.Embeddings.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, floats.Data, 2)
	require.Len(t, floats.Data[0].Embedding, 8)
	require.NotEqual(t, floats.Data[0].Embedding, floats.Data[1].Embedding)
	require.Equal(t, "vectors", floats.Model)
	require.Equal(t, int64(6), floats.Usage.PromptTokens)
}
