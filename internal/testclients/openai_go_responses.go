package testclients

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
)

// goResponses are the features of responses with openai-go.
func goResponses(url, key string) map[string]func(*testing.T) { //nolint:funlen // a list
	client := newClient(url, key)
	request := func(text string) responses.ResponseNewParams {
		return responses.ResponseNewParams{Model: "large", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
	}
	create := func(t *testing.T, params responses.ResponseNewParams) *responses.Response {
		t.Helper()
		response, err := client.Responses.New(t.Context(), params)
		require.NoError(t, err)
		return response
	}
	read := func(t *testing.T, stream *ssestream.Stream[responses.ResponseStreamEventUnion]) (events []responses.ResponseStreamEventUnion) {
		t.Helper()
		for stream.Next() {
			events = append(events, stream.Current())
		}
		require.NoError(t, stream.Err())
		return events
	}
	ended := func(t *testing.T, id string) (response *responses.Response) {
		t.Helper()
		require.Eventually(t, func() bool {
			var err error
			response, err = client.Responses.Get(t.Context(), id, responses.ResponseGetParams{})
			return err == nil && response.Status != "queued" && response.Status != "in_progress"
		}, 30*time.Second, 50*time.Millisecond)
		return response
	}
	weather := []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
		Name: "get_weather", Strict: openai.Bool(false), Parameters: map[string]any{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"},
		},
	}}}
	refused := func(t *testing.T, err error, status int, param, code string) {
		t.Helper()
		var failed *openai.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []any{status, param, code}, []any{failed.StatusCode, failed.Param, failed.Code})
	}
	return map[string]func(*testing.T){
		"create": func(t *testing.T) {
			response := create(t, request("Hello"))
			require.Equal(t, []any{"large", "completed"}, []any{response.Model, string(response.Status)})
			require.Positive(t, response.Usage.TotalTokens)
			require.Equal(t, response.RawJSON(), ended(t, response.ID).RawJSON())
		},
		"stream": func(t *testing.T) {
			whole, text := create(t, request("Hello")), ""
			events := read(t, client.Responses.NewStreaming(t.Context(), request("Hello")))
			for i, event := range events {
				require.EqualValues(t, i, event.SequenceNumber)
				if event.Type == "response.output_text.delta" {
					text += event.Delta
				}
			}
			last := events[len(events)-1].AsResponseCompleted().Response
			require.Equal(t, []any{whole.OutputText(), whole.OutputText(), whole.Usage.TotalTokens}, []any{text, last.OutputText(), last.Usage.TotalTokens})
		},
		"background": func(t *testing.T) {
			params := request("Hello")
			params.Background = openai.Bool(true)
			require.Equal(t, "completed", string(ended(t, create(t, params).ID).Status))
		},
		"resume": func(t *testing.T) {
			params := request("Hello")
			params.Background = openai.Bool(true)
			events := read(t, client.Responses.NewStreaming(t.Context(), params))
			for after := range events {
				rest := read(t, client.Responses.GetStreaming(t.Context(), events[0].Response.ID, responses.ResponseGetParams{StartingAfter: openai.Int(int64(after))}))
				require.Len(t, rest, len(events)-after-1)
				for i, event := range rest {
					require.Equal(t, events[after+1+i].RawJSON(), event.RawJSON())
				}
			}
		},
		"cancel": func(t *testing.T) {
			params := request("[hang]")
			params.Background = openai.Bool(true)
			queued := create(t, params)
			for range 2 {
				cancelled, err := client.Responses.Cancel(t.Context(), queued.ID)
				require.NoError(t, err)
				require.Equal(t, "cancelled", string(cancelled.Status))
			}
			create(t, request("[left]"))
		},
		"delete": func(t *testing.T) {
			response := create(t, request("Hello"))
			require.NoError(t, client.Responses.Delete(t.Context(), response.ID))
			_, err := client.Responses.Get(context.WithoutCancel(t.Context()), response.ID, responses.ResponseGetParams{})
			refused(t, err, http.StatusNotFound, "response_id", "response_not_found")
		},
		"conversation": func(t *testing.T) {
			first, next := create(t, request("My name is Ada.")), request("Hello")
			next.PreviousResponseID = openai.String(first.ID)
			second := create(t, next)
			require.Equal(t, first.ID, second.PreviousResponseID)
			items, err := client.Responses.InputItems.List(t.Context(), second.ID, responses.InputItemListParams{})
			require.NoError(t, err)
			require.Len(t, items.Data, 1)
			require.NoError(t, client.Responses.Delete(t.Context(), first.ID))
			next.PreviousResponseID = openai.String(second.ID)
			_, err = client.Responses.New(t.Context(), next)
			refused(t, err, http.StatusBadRequest, "previous_response_id", "previous_response_not_found")
		},
		"tools": func(t *testing.T) {
			params := request("How is the weather in Paris?")
			params.Tools = weather
			first := create(t, params)
			var call responses.ResponseFunctionToolCall
			for _, item := range first.Output {
				if item.Type == "function_call" {
					call = item.AsFunctionCall()
				}
			}
			require.Equal(t, "get_weather", call.Name)
			next := responses.ResponseNewParams{
				Model: "large", Tools: weather, PreviousResponseID: openai.String(first.ID),
				Input: responses.ResponseNewParamsInputUnion{OfInputItemList: []responses.ResponseInputItemUnionParam{
					{OfFunctionCallOutput: &responses.ResponseInputItemFunctionCallOutputParam{
						CallID: openai.String(call.CallID), Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: openai.String("Sunny, 21 degrees")},
					}},
				}},
			}
			require.Contains(t, create(t, next).OutputText(), "Sunny, 21 degrees")
		},
		"structured output": func(t *testing.T) {
			params := request("Plan a trip to Paris.")
			params.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
				Name: "trip", Strict: openai.Bool(true), Schema: map[string]any{
					"type": "object", "properties": map[string]any{"days": map[string]any{"type": "integer"}}, "required": []string{"days"},
					"additionalProperties": false,
				},
			}
			var trip map[string]int
			require.NoError(t, json.Unmarshal([]byte(create(t, params).OutputText()), &trip))
			require.Contains(t, trip, "days")
		},
		"image": func(t *testing.T) {
			const url = "data:image/png;base64,iVBORw0KGgo="
			response := create(t, responses.ResponseNewParams{
				Model: "large", Input: responses.ResponseNewParamsInputUnion{OfInputItemList: []responses.ResponseInputItemUnionParam{
					responses.ResponseInputItemParamOfMessage(responses.ResponseInputMessageContentListParam{
						responses.ResponseInputContentParamOfInputText("What is it?"),
						{OfInputImage: &responses.ResponseInputImageParam{ImageURL: openai.String(url), Detail: "auto"}},
					}, "user"),
				}},
			})
			require.Equal(t, "The image is "+url, response.OutputText())
		},
		"unknown parameter": func(t *testing.T) {
			for param, value := range map[string]any{"top_a": 1, "conversation": "conv_1"} {
				params := request("Hello")
				params.SetExtraFields(map[string]any{param: value})
				_, err := client.Responses.New(t.Context(), params)
				var failed *openai.Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, []any{http.StatusBadRequest, param}, []any{failed.StatusCode, failed.Param})
			}
		},
		"error in a stream": func(t *testing.T) {
			events := read(t, client.Responses.NewStreaming(t.Context(), request("[cut]")))
			require.Contains(t, events[len(events)-1].AsResponseFailed().Response.Error.Message, "closed the connection")
		},
	}
}
