package sim_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"berth/internal/sim"
)

// reply is an answer that is not streamed.
type reply struct {
	Object, Model     string
	SystemFingerprint string `json:"system_fingerprint"`
	Choices           []struct {
		Index   int
		Message struct {
			Role      string
			Content   *string
			ToolCalls []struct {
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage map[string]int
}

// said returns the texts and the calls of the choices, each on a line, with the finish reasons.
func (r reply) said() string {
	var b strings.Builder
	for i, c := range r.Choices {
		fmt.Fprintf(&b, "%d %s:", c.Index-i, c.FinishReason)
		for _, call := range c.Message.ToolCalls {
			fmt.Fprintf(&b, " %s%s", call.Function.Name, call.Function.Arguments)
		}
		if c.Message.Content != nil {
			b.WriteString(" " + *c.Message.Content)
		}
		b.WriteString("\n")
	}
	return b.String()
}

const tools = `"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Paris","Oslo"]}},"required":["city"],"additionalProperties":false}}},{"type":"function","function":{"name":"now"}}]`

func TestCompletion_NotStreamed_AnswersAsTheRequestSays(t *testing.T) { // O10
	t.Parallel()
	s := start(t, sim.Options{})
	for name, row := range map[string]struct {
		said, fields string // the message of the user, and further fields
		want         string // a regular expression
	}{
		"text":                 {"Two lamps", ``, `^0 stop: (?s:.*)Two lamps`},
		"choices differ":       {"Two lamps", `"n":2`, `^0 stop: ##(?s:.*)\n0 stop: \[2\] ##`},
		"limit":                {"Two lamps", `"max_completion_tokens":3`, `^0 length: .{1,12}\n$`},
		"stop word":            {"Two lamps", `"stop":["lamps","Two"]`, `^0 stop: (?s:[^T]*)$`},
		"one stop word":        {"Two lamps", `"stop":"##"`, `^0 stop: \n$`},
		"format":               {"Two lamps", `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"kind":{"const":"lamp"}},"required":["kind"]}}}`, `^0 stop: {"kind":"lamp"}\n$`},
		"any object":           {"Two lamps", `"response_format":{"type":"json_object"}`, `^0 stop: {"answer":"Two lamps.+"}\n$`},
		"same objects":         {"Two lamps", `"n":2,"response_format":{"type":"json_object"}`, `^0 stop: {"a.+\n0 stop: {"a`},
		"tool that is named":   {"How is the weather?", tools, `^0 tool_calls: get_weather{"city":"Paris"}\n$`},
		"both tools":           {"The weather now?", tools, `^0 tool_calls: get_weather{"city":"Paris"} now{}\n$`},
		"both, one at a time":  {"The weather now?", tools + `,"parallel_tool_calls":false`, `^0 tool_calls: get_weather{"city":"Paris"}\n$`},
		"no tool is named":     {"Two lamps", tools, `^0 stop: ##`},
		"no tool is wanted":    {"How is the weather?", tools + `,"tool_choice":"none"`, `^0 stop: ##`},
		"any tool":             {"Two lamps", tools + `,"tool_choice":"required"`, `^0 tool_calls: get_weather{"city":"Paris"}\n$`},
		"this tool":            {"The weather?", tools + `,"tool_choice":{"type":"function","function":{"name":"now"}}`, `^0 tool_calls: now{}\n$`},
		"choices with tools":   {"The weather?", tools + `,"n":2`, `^(0 tool_calls: get_weather{"city":"Paris"}\n){2}$`},
		"arguments over limit": {"The weather?", tools + `,"max_tokens":2`, `^0 length: get_weather{"\n$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fields := row.fields
			if fields != "" {
				fields = "," + fields
			}
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]%s}`, row.said, fields)
			var got reply
			header := s.call(t, http.MethodPost, "/v1/chat/completions", body, http.StatusOK, &got)
			require.Equal(t, "true", header.Get("X-Berth-Simulated"))
			require.Equal(t, "chat.completion berth-simulator m", got.Object+" "+got.SystemFingerprint+" "+got.Model)
			require.Regexp(t, row.want, got.said())
			require.Equal(t, got.Usage["total_tokens"], got.Usage["prompt_tokens"]+got.Usage["completion_tokens"])
			require.Positive(t, got.Usage["prompt_tokens"])

			// A stream has the same.
			streamed := option.WithRequestBody("application/json", []byte(strings.Replace(body, "{", `{"stream":true,"stream_options":{"include_usage":true},`, 1)))
			stream := s.client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{}, streamed)
			var joined openai.ChatCompletionAccumulator
			for stream.Next() {
				require.True(t, joined.AddChunk(stream.Current()))
			}
			require.NoError(t, stream.Err())
			require.Len(t, joined.Choices, len(got.Choices))
			for i, c := range joined.Choices {
				want := got.Choices[i]
				require.Equal(t, want.FinishReason, c.FinishReason)
				if want.Message.Content != nil {
					require.Equal(t, *want.Message.Content, c.Message.Content)
				}
				require.Len(t, c.Message.ToolCalls, len(want.Message.ToolCalls))
				for n, call := range c.Message.ToolCalls {
					require.NotEmpty(t, call.ID)
					require.Equal(t, want.Message.ToolCalls[n].Function.Arguments, call.Function.Arguments)
				}
			}
			require.EqualValues(t, got.Usage["total_tokens"], joined.Usage.TotalTokens)
		})
	}
}

func TestCompletion_ResultOfATool_AnsweredWithText(t *testing.T) { // O10
	t.Parallel()
	s := start(t, sim.Options{})
	for _, choice := range []string{"auto", "required"} {
		var got reply
		s.call(t, http.MethodPost, "/v1/chat/completions", `{"model":"m",`+tools+`,"tool_choice":"`+choice+`","messages":[{"role":"user","content":"How is the weather?"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"Sunny, 21 degrees"}]}`, http.StatusOK, &got)
		require.Contains(t, got.said(), "0 stop: ")
		require.Contains(t, got.said(), "Sunny, 21 degrees")
	}
}

func TestFault_NotStreamed_NoneOrAPartOfTheAnswer(t *testing.T) { // O10
	t.Parallel()
	s := start(t, sim.Options{})
	ask := func() (reply, error) {
		p := question("m", sentence)
		answer, err := s.client.Chat.Completions.New(t.Context(), p)
		var got reply
		if err == nil {
			require.NoError(t, json.Unmarshal([]byte(answer.RawJSON()), &got))
		}
		return got, err
	}
	whole, err := ask()
	require.NoError(t, err)
	s.fault(t, `{"kind":"cut"}`)
	_, err = ask()
	require.Error(t, err)
	s.fault(t, `{"kind":"length"}`)
	half, err := ask()
	require.NoError(t, err)
	require.Contains(t, half.said(), "0 length: ")
	require.True(t, strings.HasPrefix(*whole.Choices[0].Message.Content, *half.Choices[0].Message.Content))
	s.fault(t, `{"kind":"500"}`)
	_, err = ask()
	requireStatus(t, err, http.StatusInternalServerError)
}

type embeddings struct {
	Data []struct {
		Index     int
		Embedding json.RawMessage
	}
	Usage map[string]int
}

func TestEmbeddings_EachKindOfInput_VectorsOfLengthOne(t *testing.T) { // O10
	t.Parallel()
	s := start(t, sim.Options{})
	ask := func(fields string) (all [][]float64, tokens int) {
		var got embeddings
		s.call(t, http.MethodPost, "/v1/embeddings", `{"model":"m",`+fields+`}`, http.StatusOK, &got)
		for i, d := range got.Data {
			require.Equal(t, i, d.Index)
			vector := []float64{}
			if d.Embedding[0] == '"' {
				var text string
				require.NoError(t, json.Unmarshal(d.Embedding, &text))
				b, err := base64.StdEncoding.DecodeString(text)
				require.NoError(t, err)
				for ; len(b) > 0; b = b[4:] {
					vector = append(vector, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
				}
			} else {
				require.NoError(t, json.Unmarshal(d.Embedding, &vector))
			}
			require.InDelta(t, 1, dot(vector, vector), 1e-4)
			all = append(all, vector)
		}
		require.Equal(t, got.Usage["total_tokens"], got.Usage["prompt_tokens"])
		return all, got.Usage["total_tokens"]
	}
	for name, row := range map[string]struct {
		fields             string
		vectors, size, sum int // sum: of tokens
	}{
		"text":            {`"input":"two lamps"`, 1, 256, 2},
		"texts":           {`"input":["two lamps","1"],"dimensions":8`, 2, 8, 3},
		"numbers in text": {`"input":["1","2"],"dimensions":8`, 2, 8, 2},
		"tokens":          {`"input":[17,4,9],"dimensions":3`, 1, 3, 3},
		"lists of tokens": {`"input":[[17,4,9],[1]],"dimensions":3`, 2, 3, 4},
		"base64":          {`"input":"two lamps","encoding_format":"base64","dimensions":5`, 1, 5, 2},
		"no word":         {`"input":"?!","dimensions":4`, 1, 4, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, tokens := ask(row.fields)
			require.Len(t, all, row.vectors)
			require.Len(t, all[0], row.size)
			require.Equal(t, row.sum, tokens)
			again, _ := ask(row.fields)
			require.Equal(t, all, again)
		})
	}
	same, _ := ask(`"input":["a red lamp","the red lamps","blue chairs"],"encoding_format":"float"`)
	encoded, _ := ask(`"input":"a red lamp","encoding_format":"base64"`)
	require.InDeltaSlice(t, same[0], encoded[0], 1e-6)
	require.Greater(t, dot(same[0], same[1]), 0.9)
	require.Less(t, dot(same[0], same[2]), 0.5)
	require.Zero(t, s.stats(t).Total.InFlight)
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func TestModels_List_HasMore(t *testing.T) { // O10
	t.Parallel()
	s := start(t, sim.Options{})
	page, err := s.client.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "simulator", page.Data[0].ID)
	require.Contains(t, page.RawJSON(), `"has_more":true`)
}
