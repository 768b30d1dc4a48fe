package testclients

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

func newClient(url, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/openai/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "large", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// goFeatures are the features with openai-go.
func goFeatures(url, key string) map[string]func(*testing.T) { //nolint:funlen // a list
	client := newClient(url, key)
	create := func(t *testing.T, text string, change ...func(*openai.ChatCompletionNewParams)) (*openai.ChatCompletion, error) {
		t.Helper()
		params := ask(text)
		for _, c := range change {
			c(&params)
		}
		return client.Chat.Completions.New(t.Context(), params)
	}
	join := func(t *testing.T, params openai.ChatCompletionNewParams) openai.ChatCompletionAccumulator {
		t.Helper()
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var joined openai.ChatCompletionAccumulator
		for stream.Next() {
			require.True(t, joined.AddChunk(stream.Current()))
		}
		require.NoError(t, stream.Err())
		return joined
	}
	refused := func(t *testing.T, err error, status int, param, code string) {
		t.Helper()
		var failed *openai.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []any{status, "invalid_request_error", param, code}, []any{failed.StatusCode, failed.Type, failed.Param, failed.Code})
		require.NotEmpty(t, failed.Message)
	}
	// retried returns the statuses of a call that is made twice, the time that the first response asks for, and how long the client waited.
	retried := func(t *testing.T, text string) (statuses []int, asked, waited time.Duration) {
		t.Helper()
		var answered time.Time
		count := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			if !answered.IsZero() {
				waited = time.Since(answered)
			}
			res, err := next(r)
			if err != nil {
				return nil, err
			}
			answered = time.Now()
			statuses = append(statuses, res.StatusCode)
			if ms, err := strconv.Atoi(res.Header.Get("Retry-After-Ms")); err == nil {
				asked = time.Duration(ms) * time.Millisecond
			}
			return res, nil
		})
		_, err := client.Chat.Completions.New(t.Context(), ask(text), option.WithMaxRetries(2), count)
		require.NoError(t, err)
		return statuses, asked, waited
	}
	return map[string]func(*testing.T){
		"chat": func(t *testing.T) {
			answer, err := create(t, "Hello")
			require.NoError(t, err)
			require.Equal(t, "large", answer.Model)
			require.Equal(t, "stop", answer.Choices[0].FinishReason)
			require.Positive(t, answer.Usage.TotalTokens)
		},
		"stream": func(t *testing.T) {
			whole, err := create(t, "Hello")
			require.NoError(t, err)
			params := ask("Hello")
			params.StreamOptions.IncludeUsage = openai.Bool(true)
			joined := join(t, params)
			require.Equal(t, whole.Choices[0].Message.Content, joined.Choices[0].Message.Content)
			require.Equal(t, whole.Usage.TotalTokens, joined.Usage.TotalTokens)
		},
		"tools": func(t *testing.T) {
			params := ask("How is the weather in Paris?")
			params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
				Name: "get_weather", Parameters: openai.FunctionParameters{
					"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
				},
			})}
			first, err := client.Chat.Completions.New(t.Context(), params)
			require.NoError(t, err)
			require.Equal(t, "tool_calls", first.Choices[0].FinishReason)
			call := first.Choices[0].Message.ToolCalls[0]
			require.Equal(t, call.Function.Arguments, join(t, params).Choices[0].Message.ToolCalls[0].Function.Arguments)
			params.Messages = append(params.Messages, first.Choices[0].Message.ToParam(), openai.ToolMessage("Sunny, 21 degrees", call.ID))
			second, err := client.Chat.Completions.New(t.Context(), params)
			require.NoError(t, err)
			require.Contains(t, second.Choices[0].Message.Content, "Sunny, 21 degrees")
		},
		"structured output": func(t *testing.T) {
			answer, err := create(t, "Plan a trip to Paris.", func(p *openai.ChatCompletionNewParams) {
				p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{
					Name: "trip", Strict: openai.Bool(true), Schema: map[string]any{
						"type": "object", "properties": map[string]any{"days": map[string]any{"type": "integer"}}, "required": []string{"days"},
						"additionalProperties": false,
					},
				}}
			})
			require.NoError(t, err)
			var trip map[string]int
			require.NoError(t, json.Unmarshal([]byte(answer.Choices[0].Message.Content), &trip))
			require.Contains(t, trip, "days")
		},
		"image": func(t *testing.T) {
			const url = "data:image/png;base64,iVBORw0KGgo="
			answer, err := create(t, "", func(p *openai.ChatCompletionNewParams) {
				p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
					openai.TextContentPart("What is it?"),
					openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}),
				})}
			})
			require.NoError(t, err)
			require.Equal(t, "The image is "+url, answer.Choices[0].Message.Content)
		},
		"several choices": func(t *testing.T) {
			answer, err := create(t, "Hello", func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) })
			require.NoError(t, err)
			require.Len(t, answer.Choices, 2)
			require.NotEqual(t, answer.Choices[0].Message.Content, answer.Choices[1].Message.Content)
		},
		"logprobs": func(t *testing.T) {
			answer, err := create(t, "Hello", func(p *openai.ChatCompletionNewParams) { p.Logprobs = openai.Bool(true) })
			require.NoError(t, err)
			require.InDelta(t, -0.5, answer.Choices[0].Logprobs.Content[0].Logprob, 0)
		},
		"embeddings": func(t *testing.T) {
			answer, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{
				Model: "large", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a red lamp", "a blue chair"}}, Dimensions: openai.Int(8),
			})
			require.NoError(t, err)
			require.Len(t, answer.Data, 2)
			require.Len(t, answer.Data[1].Embedding, 8)
		},
		"models": func(t *testing.T) {
			list, err := client.Models.List(t.Context())
			require.NoError(t, err)
			require.Len(t, list.Data, 2)
			_, err = client.Models.Get(t.Context(), "large")
			require.NoError(t, err)
		},
		"unknown model": func(t *testing.T) {
			_, err := create(t, "Hello", func(p *openai.ChatCompletionNewParams) { p.Model = "huge" })
			refused(t, err, http.StatusNotFound, "model", "model_not_found")
		},
		"wrong key": func(t *testing.T) {
			other := newClient(url, "sk-wrong")
			_, err := other.Models.List(t.Context())
			refused(t, err, http.StatusUnauthorized, "", "invalid_api_key")
		},
		"unknown parameter": func(t *testing.T) {
			_, err := create(t, "Hello", func(p *openai.ChatCompletionNewParams) { p.SetExtraFields(map[string]any{"top_a": 1}) })
			refused(t, err, http.StatusBadRequest, "top_a", "unknown_parameter")
		},
		"abort": func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			stream := client.Chat.Completions.NewStreaming(ctx, ask("[hang]"))
			text := ""
			for stream.Next() {
				if text += stream.Current().Choices[0].Delta.Content; text == "The ans" {
					leave()
				}
			}
			require.ErrorIs(t, stream.Err(), context.Canceled)
			_, err := create(t, "[left]")
			require.NoError(t, err)
		},
		"error in a stream": func(t *testing.T) {
			stream := client.Chat.Completions.NewStreaming(t.Context(), ask("[cut]"))
			text := ""
			for stream.Next() {
				text += stream.Current().Choices[0].Delta.Content
			}
			require.Equal(t, "The ans", text)
			require.ErrorContains(t, stream.Err(), "closed the connection")
		},
		"retry after 429": func(t *testing.T) {
			statuses, asked, waited := retried(t, "[limited]")
			require.Equal(t, []int{429, 200}, statuses)
			require.Greater(t, asked, 2*time.Second)
			require.GreaterOrEqual(t, waited, asked)
		},
		"retry after 5xx": func(t *testing.T) {
			statuses, _, _ := retried(t, "[failing]")
			require.Equal(t, []int{502, 200}, statuses)
		},
	}
}
