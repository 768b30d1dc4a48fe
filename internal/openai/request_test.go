package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/internal/llm"
)

const hello = `"messages":[{"role":"user","content":"Hello?"}]`

// Each row is a body that is refused, with the field and the code that the client reads.
func TestParseChat_InvalidBody_400WithParam(t *testing.T) { // O1, O5
	t.Parallel()
	for body, want := range map[string]string{
		``:                             " invalid_json",
		`null`:                         " invalid_type",
		`[]`:                           " invalid_type",
		`"x"`:                          " invalid_type",
		`{"model":"m",` + hello + `}x`: " invalid_json",
		`{"model":"m","model":"n",` + hello + `}`: " invalid_json",
		"{\"model\":\"\xff\"," + hello + "}":      " invalid_json",
		`{"model":"m",` + hello + `,"tools":` + strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300) + `}`: " invalid_json",
		`{` + hello + `}`:                                                                   "model missing_required_parameter",
		`{"model":null,` + hello + `}`:                                                      "model missing_required_parameter",
		`{"model":"",` + hello + `}`:                                                        "model missing_required_parameter",
		`{"model":7,` + hello + `}`:                                                         "model invalid_type",
		`{"model":"` + strings.Repeat("m", 600) + `",` + hello + `}`:                        "model string_above_max_length",
		`{"model":"m"}`:                                                                     "messages missing_required_parameter",
		`{"model":"m","messages":null}`:                                                     "messages missing_required_parameter",
		`{"model":"m","messages":{}}`:                                                       "messages invalid_type",
		`{"model":"m","messages":[]}`:                                                       "messages empty_array",
		`{"model":"m","messages":["x"]}`:                                                    "messages[0] invalid_type",
		`{"model":"m","messages":[{"role":"user"},{}]}`:                                     "messages[1].role missing_required_parameter",
		`{"model":"m","messages":[{"role":7}]}`:                                             "messages[0].role invalid_type",
		`{"model":"m",` + hello + `,"stream":"yes"}`:                                        "stream invalid_type",
		`{"model":"m",` + hello + `,"stream":1}`:                                            "stream invalid_type",
		`{"model":"m",` + hello + `,"stream_options":{"include_usage":true}}`:               "stream_options invalid_value",
		`{"model":"m",` + hello + `,"stream":true,"stream_options":7}`:                      "stream_options invalid_type",
		`{"model":"m",` + hello + `,"stream":true,"stream_options":{"include_usage":"no"}}`: "stream_options.include_usage invalid_type",
		`{"model":"m",` + hello + `,"max_tokens":0}`:                                        "max_tokens integer_below_min_value",
		`{"model":"m",` + hello + `,"max_tokens":-1}`:                                       "max_tokens integer_below_min_value",
		`{"model":"m",` + hello + `,"max_tokens":1.5}`:                                      "max_tokens invalid_type",
		`{"model":"m",` + hello + `,"max_tokens":"7"}`:                                      "max_tokens invalid_type",
		`{"model":"m",` + hello + `,"max_tokens":1e99}`:                                     "max_tokens integer_above_max_value",
		`{"model":"m",` + hello + `,"max_tokens":1e999}`:                                    "max_tokens invalid_type",
		`{"model":"m",` + hello + `,"max_completion_tokens":[]}`:                            "max_completion_tokens invalid_type",
		`{"model":"m",` + hello + `,"n":0}`:                                                 "n integer_below_min_value",
		`{"model":"m",` + hello + `,"n":129}`:                                               "n integer_above_max_value",
		`{"model":"m",` + hello + `,"n":true}`:                                              "n invalid_type",
		`{"model":"m",` + hello + `,"service_tier":1}`:                                      "service_tier invalid_type",
		`{"model":"m",` + hello + `,"user":{}}`:                                             "user invalid_type",
		`{"model":"m",` + hello + `,"safety_identifier":[]}`:                                "safety_identifier invalid_type",
		`{"model":"m",` + hello + `,"prompt_cache_key":false}`:                              "prompt_cache_key invalid_type",
		`{"model":"m",` + hello + `,"store":"true"}`:                                        "store invalid_type",
		`{"model":"m",` + hello + `,"metadata":[]}`:                                         "metadata invalid_type",
		`{"model":"m",` + hello + `,"metadata":{"a":1}}`:                                    "metadata.a invalid_type",
		`{"model":"m",` + hello + `,"metadata":{"a":"` + strings.Repeat("x", 513) + `"}}`:   "metadata.a string_above_max_length",
		`{"model":"m",` + hello + `,"metadata":{"` + strings.Repeat("x", 65) + `":"a"}}`:    "metadata string_above_max_length",
		`{"model":"m",` + hello + `,"metadata":{` + entries(17) + `}}`:                      "metadata object_above_max_properties",
	} {
		_, err := ParseChat([]byte(body))
		var e *Error
		require.ErrorAs(t, err, &e, "%.80s", body)
		require.Equal(t, 400, e.Status)
		require.Equal(t, TypeRequest, e.Type)
		require.Equal(t, want, e.Param+" "+e.Code, "%.80s: %s", body, e.Message)
		require.NotEmpty(t, e.Message)
	}
	_, err := ParseChat(bytes.Repeat([]byte(" "), MaxBody+1))
	require.Equal(t, 413, ErrorOf(err).Status)
}

func entries(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(all, ",")
}

func TestParseChat_Fields_Read(t *testing.T) { // O1, O2
	t.Parallel()
	r, err := ParseChat([]byte(` {"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"max_tokens":1e3,"max_completion_tokens":70,"n":2,
		"service_tier":"flex","user":"u","safety_identifier":"s","prompt_cache_key":"k","store":true,"metadata":{"a":"b"},` + hello + `} `))
	require.NoError(t, err)
	tokens := r.InputTokens
	require.InDelta(t, 6, tokens, 2)
	r.raw, r.size, r.InputTokens = llm.Raw{}, estimate{}, 0
	require.Equal(t, &Request{
		Model: "gpt-5", Stream: true, IncludeUsage: true, MaxTokens: 70, Choices: 2, ServiceTier: "flex", EndUser: "s", user: "u", CacheKey: "k",
		Store: true, Metadata: map[string]string{"a": "b"},
	}, r)

	r, err = ParseChat([]byte(`{"model":"m","user":"u","stream":null,"n":null,"max_tokens":null,"metadata":null,"stream_options":null,` + hello + `}`))
	require.NoError(t, err)
	require.Equal(t, "u", r.EndUser)
	require.Equal(t, 1, r.Choices)
	require.False(t, r.Stream)
}

// The estimate is near to what providers count, and grows with what they bill.
func TestParseChat_Estimate_CountsWhatIsBilled(t *testing.T) { // O4
	t.Parallel()
	size := func(rest string) int64 {
		r, err := ParseChat([]byte(`{"model":"m","messages":[{"role":"user","content":` + rest + `}`))
		require.NoError(t, err, rest)
		return r.InputTokens
	}
	image := strings.Repeat("A", 1_000_000)
	for rest, want := range map[string][2]int64{
		`""}]`: {4, 4},
		`"` + strings.Repeat("word ", 1000) + `"}]`:                                                               {1000, 2000},
		`"` + strings.Repeat(`\u6587`, 1000) + `"}]`:                                                              {500, 700},
		`"` + strings.Repeat("文", 1000) + `"}]`:                                                                   {500, 700},
		`[{"type":"text","text":"` + strings.Repeat("word ", 1000) + `"}]}]`:                                      {1000, 2000},
		`[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + image + `"}}]}]`:                      {1000, 1100},
		`[{"type":"input_audio","input_audio":{"format":"mp3","data":"` + image + `"}}]}]`:                        {600, 700},
		`[{"type":"file","file":{"file_data":"` + image + `"}}]}]`:                                                {20_000, 30_000},
		`""},{"role":"assistant","tool_calls":[{"function":{"arguments":"` + strings.Repeat("x", 1000) + `"}}]}]`: {300, 330},
		`""}],"tools":[{"function":{"description":"` + strings.Repeat("x", 1000) + `"}}]`:                         {300, 330},
		`""}],"response_format":{"json_schema":"` + strings.Repeat("x", 1000) + `"}`:                              {300, 330},
	} {
		got := size(rest)
		require.True(t, got >= want[0] && got <= want[1], "%.60s: %d", rest, got)
	}
	require.Positive(t, size(`"`+strings.Repeat("word ", 1000)+`"}]`))
}

func TestParseEmbeddings_Body_ReadOrRefused(t *testing.T) { // O1
	t.Parallel()
	for input, tokens := range map[string]int64{
		`"0123456789"`: 3, `["0123456789","0123456789"]`: 6, `[1,2,3]`: 3, `[[1,2],[3]]`: 3, `""`: 0,
	} {
		r, err := ParseEmbeddings([]byte(`{"model":"m","input":` + input + `,"encoding_format":"base64","dimensions":7,"user":"u"}`))
		require.NoError(t, err, input)
		require.Equal(t, tokens, r.InputTokens, input)
		require.True(t, r.raw.Base64)
		require.Equal(t, "u", r.EndUser)
	}
	for body, want := range map[string]string{
		`{"model":"m"}`:            "input missing_required_parameter",
		`{"model":"m","input":[]}`: "input empty_array",
		`{"model":"m","input":{}}`: "input invalid_type",
		`{"model":"m","input":[` + strings.Repeat(`"",`, 2048) + `""]}`: "input array_above_max_length",
		`{"model":"m","input":"a","encoding_format":"hex"}`:             "encoding_format invalid_value",
		`{"model":"m","input":"a","encoding_format":7}`:                 "encoding_format invalid_type",
	} {
		_, err := ParseEmbeddings([]byte(body))
		require.Equal(t, want, ErrorOf(err).Param+" "+ErrorOf(err).Code, "%.80s", body)
		require.Equal(t, 400, ErrorOf(err).Status)
	}
}

// A field that is not OpenAI's reaches upstreams that accept it, and no other ones.
func TestCheck_FurtherFields_OnlyUpstreamsThatListThem(t *testing.T) { // O1
	t.Parallel()
	m := llm.Model{Name: "m", Upstreams: []llm.Upstream{
		{Name: "plain"}, {Name: "vllm", Extra: []string{"top_k"}}, {Name: "rich", Extra: []string{"top_k", "min_p", "store"}},
	}}
	for fields, want := range map[string]struct {
		excluded []string
		param    string
	}{
		`"seed":1`:                  {},
		`"top_k":1`:                 {excluded: []string{"plain"}},
		`"top_k":1,"min_p":1`:       {excluded: []string{"plain", "vllm"}},
		`"top_k":1,"top_a":1`:       {param: "top_a"},
		`"Model":1`:                 {param: "Model"},
		`"top_k":null,"x":null`:     {},
		`"store":true`:              {excluded: []string{"plain", "vllm"}},
		`"store":true,"x":1`:        {param: "x"},
		`"store":false`:             {},
		`"metadata":{"a":"b"}`:      {},
		`"service_tier":"priority"`: {},
	} {
		r, err := ParseChat([]byte(`{"model":"m",` + hello + `,` + fields + `}`))
		require.NoError(t, err)
		excluded, err := r.Check(m)
		if want.param == "" {
			require.NoError(t, err, fields)
			require.Equal(t, want.excluded, excluded, fields)
			continue
		}
		require.Equal(t, want.param, ErrorOf(err).Param, fields)
		require.Equal(t, 400, ErrorOf(err).Status)
	}
	r, err := ParseChat([]byte(`{"model":"m",` + hello + `,"store":true}`))
	require.NoError(t, err)
	_, err = r.Check(llm.Model{Upstreams: []llm.Upstream{{Name: "plain"}}})
	require.Equal(t, "store", ErrorOf(err).Param)
}

// requests generates bodies with fields of any value.
func requests() *rapid.Generator[string] {
	value := rapid.SampledFrom([]string{
		"null", "true", "1", "1.50", "-0", "12345678901234567890123", "1e400", `"a"`, `"\u00e9\\\""`, `"é"`, `[1, 2]`, `{"b" : 1,"a":[{}]}`, `[]`, `{}`,
	})
	return rapid.Custom(func(t *rapid.T) string {
		fields := map[string]string{
			"model": `"m"`, "messages": `[{"role":"user", "content":"x\u00e9", "cache_control":{"type":"ephemeral"}}]`,
		}
		for _, f := range chatFields {
			if f.read == nil && rapid.Bool().Draw(t, f.name) {
				fields[f.name] = value.Draw(t, f.name)
			}
		}
		for _, choice := range []string{
			`"stream":true`, `"stream":false`, `"max_tokens":5`, `"max_completion_tokens":50`, `"n":2`, `"user":"u"`, `"service_tier":"flex"`, `"store":false`,
			`"metadata":{"a":"b"}`, `"prompt_cache_key":"k"`, `"top_k":40`, `"min_p":{"x": 1}`,
		} {
			if name, v, _ := strings.Cut(choice, ":"); rapid.Bool().Draw(t, choice) {
				fields[strings.Trim(name, `"`)] = v
			}
		}
		var names []string
		for name := range fields {
			names = append(names, name)
		}
		names = rapid.Permutation(sorted(names)).Draw(t, "order")
		var b strings.Builder
		for i, name := range names {
			if i > 0 {
				b.WriteString(rapid.SampledFrom([]string{",", " ,\n", ", "}).Draw(t, "comma"))
			}
			fmt.Fprintf(&b, "%q%s%s", name, rapid.SampledFrom([]string{":", " : "}).Draw(t, "colon"), fields[name])
		}
		return "{" + b.String() + "}"
	})
}

// Whatever the request: the provider gets each field as the client sent it, unless the table says that berth changes it.
func TestRequest_Any_UnchangedFieldsAreEqual(t *testing.T) { // O1
	t.Parallel()
	p := newProvider(t, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	changed := map[string]bool{}
	for _, f := range chatFields {
		changed[f.name] = f.use != llm.FieldForwarded
	}
	rapid.Check(t, func(t *rapid.T) {
		body := requests().Draw(t, "body")
		r, err := ParseChat([]byte(body))
		require.NoError(t, err, body)
		_, err = p.client.Forward(p.ctx, r.Call("large", llm.Shown{}), func([]byte) error { return nil })
		if r.Stream { // the provider answers with an object, which is one chunk
			require.NoError(t, err)
		}
		require.NoError(t, err)
		sent, got := fieldsOf(t, body), fieldsOf(t, p.body())
		for name, value := range sent {
			if !changed[name] {
				require.Equal(t, value, got[name], "%s of %s", name, body)
			}
		}
		require.Equal(t, `"large-1"`, got["model"])
		for name := range got {
			if _, ok := sent[name]; !ok {
				require.Contains(t, []string{"max_tokens", "stream_options"}, name)
			}
		}
		require.Equal(t, r.Stream, got["stream_options"] != "")
		require.NotContains(t, got, "service_tier")
		require.NotContains(t, got, "metadata")
	})
}

func fieldsOf(t require.TestingT, body string) map[string]string {
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(body), &raw), body)
	all := map[string]string{}
	for name, value := range raw {
		all[name] = string(value)
	}
	return all
}

// No body makes the parser fail, and a body that is accepted is sent as valid JSON.
func FuzzParseChat(f *testing.F) {
	f.Add([]byte(`{"model":"m",` + hello + `,"stream":true,"stream_options":{"include_usage":true},"n":2,"max_tokens":5,"metadata":{"a":"b"},"top_k":[{}]}`))
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"image_url":{"url":"x"}},"b",7]}],"tools":[null]}`))
	f.Add([]byte(`{"mo\u0064el":"m","messages":[{"role":"user","content":null}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (*Request, error){ParseChat, ParseEmbeddings} {
			r, err := parse(body)
			if err != nil {
				require.Contains(t, []int{400, 413}, ErrorOf(err).Status)
				require.True(t, json.Valid(ErrorOf(err).Body()))
				continue
			}
			require.NotEmpty(t, r.Model)
			require.GreaterOrEqual(t, r.InputTokens, int64(0))
			require.Positive(t, r.Call("m", llm.Shown{}).Raw.Cost()+1)
		}
	})
}

// A large body is not copied for each of its values.
func TestParseChat_LargeBody_FewAllocations(t *testing.T) { // O1, P14
	for name, body := range map[string]string{
		"image":   `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + strings.Repeat("A", MaxBody-200) + `"}}]}]}`,
		"objects": `{"model":"m","messages":[{"role":"user","content":[` + strings.Repeat(`{"a":1},`, 500_000) + `{}]}]}`,
	} {
		require.Less(t, testing.AllocsPerRun(1, func() {
			_, err := ParseChat([]byte(body))
			require.NoError(t, err, name)
		}), 1000.0, name)
	}
}
