package responses

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth/internal/openai"
)

// Each row is a part of a request that is refused, with the parameter that the client reads.
func TestParse_Refused_NamesTheParameter(t *testing.T) { // O8
	t.Parallel()
	for body, param := range map[string]string{
		`{"input":"x"}`:                         "model",
		`{"model":"m"}`:                         "input",
		`{"model":"m","input":[]}`:              "input",
		`{"model":7,"input":"x"}`:               "model",
		`{"model":"m","input":7}`:               "input",
		`[]`:                                    "",
		`"x"`:                                   "",
		`{"model":"m","input":"x","model":"n"}`: "",
		`{"model":"m","input":"x"`:              "",
		`{"model":"m","input":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`: "",
	} {
		requireRefused(t, body, param)
	}
	for more, param := range map[string]string{
		`"stream":1`:                                           "stream",
		`"stream_options":[]`:                                  "stream_options",
		`"stream_options":{"a":true}`:                          "stream_options.a",
		`"background":true,"store":false`:                      "store",
		`"conversation":"conv_1"`:                              "conversation",
		`"prompt":{"id":"p"}`:                                  "prompt",
		`"messages":[]`:                                        "messages",
		`"max_tokens":5`:                                       "max_tokens",
		`"n":2`:                                                "n",
		`"response_format":{}`:                                 "response_format",
		`"include":["file_search_call.results"]`:               "include[0]",
		`"include":"x"`:                                        "include",
		`"max_output_tokens":0`:                                "max_output_tokens",
		`"max_output_tokens":1.5`:                              "max_output_tokens",
		`"max_output_tokens":1e400`:                            "max_output_tokens",
		`"max_output_tokens":99999999999999999999999999`:       "max_output_tokens",
		`"top_logprobs":21`:                                    "top_logprobs",
		`"metadata":{"a":1}`:                                   "metadata.a",
		`"metadata":[]`:                                        "metadata",
		`"reasoning":{"effort":1}`:                             "reasoning.effort",
		`"reasoning":{"speed":"high"}`:                         "reasoning.speed",
		`"reasoning":{"summary":"long"}`:                       "reasoning.summary",
		`"reasoning":{"summary":true}`:                         "reasoning.summary",
		`"reasoning":{"generate_summary":"none"}`:              "reasoning.generate_summary",
		`"temperature":-0.1`:                                   "temperature",
		`"temperature":2.5`:                                    "temperature",
		`"temperature":-1e400`:                                 "temperature",
		`"temperature":"1"`:                                    "temperature",
		`"top_p":1.01`:                                         "top_p",
		`"top_p":-1`:                                           "top_p",
		`"top_p":[]`:                                           "top_p",
		`"top_logprobs":-1`:                                    "top_logprobs",
		`"max_tool_calls":0`:                                   "max_tool_calls",
		`"max_tool_calls":"2"`:                                 "max_tool_calls",
		`"text":{"format":{"type":"xml"}}`:                     "text.format.type",
		`"text":{"format":{"type":"json_schema","name":"a"}}`:  "text.format.schema",
		`"text":{"format":{"type":"json_schema","schema":{}}}`: "text.format.name",
		schemaNamed("a trip"):                                  "text.format.name",
		schemaNamed(""):                                        "text.format.name",
		schemaNamed(strings.Repeat("f", 129)):                  "text.format.name",
		`"previous_response_id":""`:                            "previous_response_id",
		`"text":{"style":"x"}`:                                 "text.style",
		`"tools":[{"type":"web_search"}]`:                      "tools[0].type",
		`"tools":[{"type":"mcp","server_label":"x"}]`:          "tools[0].type",
		`"tools":[{"type":"function","name":"f"},{"type":"code_interpreter","container":{"type":"auto"}}]`: "tools[1].type",
		`"tools":[{"type":"function","function":{"name":"f"}}]`:                                            "tools[0].name",
		`"tools":[{"name":"f"}]`:                 "tools[0].type",
		functionsNamed("f", "get weather"):       "tools[1].name",
		functionsNamed("f.g"):                    "tools[0].name",
		functionsNamed("Wetter_für"):             "tools[0].name",
		functionsNamed("f\\n"):                   "tools[0].name",
		functionsNamed(strings.Repeat("f", 129)): "tools[0].name",
		functionsNamed("f", "g", "f"):            "tools[2].name",
		`"tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]`:                                                                    "tools[1].name",
		`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f g"}]}`: "tool_choice.tools[0].name",
		`"tool_choice":"required"`:                  "tool_choice",
		`"tool_choice":"any"`:                       "tool_choice",
		`"tool_choice":{"type":"file_search"}`:      "tool_choice.type",
		`"tool_choice":{"type":"function"}`:         "tool_choice.name",
		`"truncation":"some"`:                       "truncation",
		`"instructions":["x"]`:                      "instructions",
		`"user":` + quote(strings.Repeat("u", 600)): "user",
	} {
		requireRefused(t, `{"model":"m","input":"x",`+more+`}`, param)
	}
	for input, param := range map[string]string{
		`7`:                             "input[0]",
		`{"type":"message"}`:            "input[0].role",
		`{"role":"tool","content":"x"}`: "input[0].role",
		`{"role":"user"}`:               "input[0].content",
		`{"role":"user","content":[{"type":"text","text":"x"}]}`:           "input[0].content[0].type",
		`{"role":"user","content":[{"type":"input_text"}]}`:                "input[0].content[0].text",
		`{"role":"user","content":["x"]}`:                                  "input[0].content[0]",
		`{"type":"function_call","name":"f","arguments":"{}"}`:             "input[0].call_id",
		`{"type":"function_call","call_id":"c","arguments":"{}"}`:          "input[0].name",
		`{"type":"function_call","call_id":"c","name":"f","arguments":{}}`: "input[0].arguments",
		`{"type":"function_call_output","output":"x"}`:                     "input[0].call_id",
		`{"type":"function_call_output","call_id":"c","output":{}}`:        "input[0].output",
		`{"type":"item_reference"}`:                                        "input[0].id",
		`{"type":"reasoning","summary":"x"}`:                               "input[0].summary",
		`{"id":"x"}`:                                                       "input[0].type",
	} {
		requireRefused(t, `{"model":"m","input":[`+input+`]}`, param)
	}
	_, err := Parse(make([]byte, openai.MaxBody+1))
	var refused *openai.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 413, refused.Status)
}

// functionsNamed is a parameter with functions that have names.
func functionsNamed(names ...string) string {
	return `"tools":[{"type":"function","name":"` + strings.Join(names, `"},{"type":"function","name":"`) + `"}]`
}

// schemaNamed is a parameter with a schema that has a name.
func schemaNamed(name string) string {
	return `"text":{"format":{"type":"json_schema","name":"` + name + `","schema":{}}}`
}

// Each row is at a bound, or is something that a provider may accept.
func TestParse_AtTheBound_Accepted(t *testing.T) { // O8
	t.Parallel()
	for _, more := range []string{
		`"temperature":0`, `"temperature":2.0`, `"temperature":1e-400`, `"temperature":null`, `"top_p":0`, `"top_p":1`, `"top_logprobs":0`, `"top_logprobs":20`,
		`"max_output_tokens":1`, `"max_tool_calls":1`, `"metadata":{"a":"b","c":null}`,
		`"reasoning":{"summary":"auto"}`, `"reasoning":{"summary":"concise"}`, `"reasoning":{"generate_summary":"detailed"}`, `"reasoning":{"summary":null}`,
		`"reasoning":{"effort":"extreme","context":"some","mode":"other"}`,
		functionsNamed("a-Z_9", strings.Repeat("f", 128)), `"tools":[{"type":"custom","name":"a b"}]`, `"tools":[]`,
		schemaNamed("a-Z_9"), schemaNamed(strings.Repeat("f", 128)), `"previous_response_id":null`,
		functionsNamed("f") + `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]}`,
	} {
		_, err := Parse([]byte(`{"model":"m","input":"x",` + more + `}`))
		require.NoError(t, err, more)
	}
}

func requireRefused(t *testing.T, body, param string) {
	t.Helper()
	_, err := Parse([]byte(body))
	var refused *openai.Error
	require.ErrorAs(t, err, &refused, "%.200s", body)
	require.Equal(t, param, refused.Param, "%.200s: %s", body, refused.Message)
	require.Equal(t, 400, refused.Status)
	require.Contains(t, refused.Message, param)
	require.True(t, refused.Final)
}

// A refused parameter that is null is as one that is missing.
func TestParse_Fields_Read(t *testing.T) { // O8
	t.Parallel()
	r, err := Parse([]byte(` {"model":"m","input":"x","stream":true,"background":true,"previous_response_id":"resp_1","service_tier":"flex","user":"u","safety_identifier":"s",
		"prompt_cache_key":"k","metadata":{"a":"b"},"conversation":null,"top_k":5,"stop":["a"]}`))
	require.NoError(t, err)
	require.True(t, r.Stream && r.Background && r.Store)
	require.Equal(t, []string{"m", "resp_1", "flex", "s", "k"}, []string{r.Model, r.PreviousID, r.ServiceTier, r.EndUser, r.CacheKey})
	require.Equal(t, map[string]string{"a": "b"}, r.Metadata)
	chat, err := r.chat(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true},"service_tier":"flex","user":"u",
		"safety_identifier":"s","prompt_cache_key":"k","metadata":{"a":"b"},"top_k":5,"stop":["a"]}`, string(chat))
	r, err = Parse([]byte(`{"model":"m","input":"x","store":false,"user":"u"}`))
	require.NoError(t, err)
	require.False(t, r.Store)
	require.Equal(t, "u", r.EndUser)
}

// Each row is a part of a request, and what the chat has of it.
func TestChat_EachParameter_Translated(t *testing.T) { // O8
	t.Parallel()
	const tools = `"tools":[{"type":"function","name":"f"}]`
	const chatTools = `"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, row := range [][2]string{
		{`"temperature":0.50,"top_p":1.0`, `"temperature":0.50,"top_p":1.0`},
		{`"max_output_tokens":7`, `"max_completion_tokens":7`},
		{`"reasoning":{"effort":"low","summary":"auto","context":"auto","mode":"standard"}`, `"reasoning_effort":"low"`},
		{`"reasoning":{"summary":"auto"}`, ``},
		{`"text":{"format":{"type":"text"},"verbosity":"low"}`, `"verbosity":"low"`},
		{`"text":{"format":{"type":"json_object"}}`, `"response_format":{"type":"json_object"}`},
		{
			`"text":{"format":{"type":"json_schema","name":"a","strict":true,"description":"d","schema":{"type":"object","x":1.50}}}`,
			`"response_format":{"type":"json_schema","json_schema":{"name":"a","description":"d","schema":{"type":"object","x":1.50},"strict":true}}`,
		},
		{`"include":["message.output_text.logprobs"]`, `"logprobs":true`},
		{`"include":["message.output_text.logprobs"],"top_logprobs":3`, `"logprobs":true,"top_logprobs":3`},
		{`"top_logprobs":0`, ``},
		{`"include":["message.input_image.image_url"]`, ``},
		{`"truncation":"disabled","max_tool_calls":3,"stream_options":{"include_obfuscation":false}`, ``},
		{`"parallel_tool_calls":true,"tool_choice":"auto"`, ``},
		{`"parallel_tool_calls":true,"tool_choice":"none","tools":[]`, ``},
		{
			`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true,"defer_loading":false,"allowed_callers":["direct"],"cache_control":{"a":1}}],"parallel_tool_calls":false`,
			`"tools":[{"type":"function","cache_control":{"a":1},"function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],"parallel_tool_calls":false`,
		},
		{
			`"tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},{"type":"custom","name":"d","format":{"type":"text"}}]`,
			`"tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}},{"type":"custom","custom":{"name":"d","format":{"type":"text"}}}]`,
		},
		{tools + `,"tool_choice":"required"`, chatTools + `,"tool_choice":"required"`},
		{tools + `,"tool_choice":{"type":"function","name":"f"}`, chatTools + `,"tool_choice":{"type":"function","function":{"name":"f"}}`},
		{tools + `,"tool_choice":{"type":"custom","name":"f"}`, chatTools + `,"tool_choice":{"type":"custom","custom":{"name":"f"}}`},
		{
			tools + `,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}`,
			chatTools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`,
		},
		{`"a\"b":1`, `"a\"b":1`},
	} {
		want := `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}`
		if row[1] != "" {
			want += "," + row[1]
		}
		r, err := Parse([]byte(`{"model":"m","input":"x",` + row[0] + `}`))
		require.NoError(t, err, row[0])
		chat, err := r.chat(nil)
		require.NoError(t, err)
		require.Equal(t, want+"}", string(chat))
		_, err = openai.ParseChat(chat)
		require.NoError(t, err)
	}
}

const (
	askItem    = `{"role":"user","content":"?"}`
	callItem   = `{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"f","arguments":"{\"a\":1}"}`
	outputItem = `{"type":"function_call_output","call_id":"c1","output":"1"}`
	callMsg    = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`
	toolMsg    = `{"role":"tool","tool_call_id":"c1","content":"1"}`
	askMsg     = `{"role":"user","content":"?"}`
)

// another returns the text of items or messages with another call.
func another(s string) string { return strings.ReplaceAll(s, "c1", "c2") }

// Each row is an input, and the messages of the chat.
func TestChat_EachItem_Message(t *testing.T) { // O8
	t.Parallel()
	for _, row := range []struct{ name, input, messages string }{
		{
			"roles", `[{"role":"system","content":"a"},{"type":"message","role":"developer","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d","phase":"final_answer"}]`,
			`{"role":"system","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}`,
		},
		{
			"parts", `[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x","detail":"low"},{"type":"input_file","filename":"f.pdf","file_data":"data:y"},{"type":"input_audio","input_audio":{"data":"z","format":"wav"}}]}]`,
			`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x","detail":"low"}},{"type":"file","file":{"filename":"f.pdf","file_data":"data:y"}},{"type":"input_audio","input_audio":{"data":"z","format":"wav"}}]}`,
		},
		{"one text", `[{"role":"user","content":[{"type":"input_text","text":"a"}]}]`, `{"role":"user","content":"a"}`},
		{"no text", `[{"role":"user","content":[]}]`, `{"role":"user","content":""}`},
		{"cache marks", `[{"role":"user","cache":1,"content":[{"type":"input_text","text":"a","cache_control":{"x":1}}]}]`, `{"role":"user","content":[{"type":"text","text":"a","cache_control":{"x":1}}],"cache":1}`},
		{"output", `[` + askItem + `,{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}]`, askMsg + `,{"role":"assistant","content":"a"}`},
		{"refusal", `[{"role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"}]}]`, `{"role":"assistant","content":"a","refusal":"no"}`},
		{"texts", `[{"role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}]`, `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`},
		{"two messages", `[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]`, `{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}`},
		{"a call", `[` + askItem + `,` + callItem + `,` + outputItem + `]`, askMsg + `,` + callMsg + `,` + toolMsg},
		{"text and a call", `[{"role":"assistant","content":"I look."},` + callItem + `,` + outputItem + `]`, strings.Replace(callMsg, "null", `"I look."`, 1) + `,` + toolMsg},
		{"text behind a call", `[` + callItem + `,{"role":"assistant","content":"Done."},` + outputItem + `]`, strings.Replace(callMsg, "null", `"Done."`, 1) + `,` + toolMsg},
		{
			"in parallel", `[` + callItem + `,` + another(callItem) + `,` + outputItem + `,` + another(outputItem) + `]`,
			strings.Replace(callMsg, `]}`, `,`+another(callMsg[strings.Index(callMsg, `{"id"`):]), 1) + `,` + toolMsg + `,` + another(toolMsg),
		},
		{
			"another order", `[` + callItem + `,` + another(callItem) + `,` + another(outputItem) + `,` + askItem + `,` + outputItem + `]`,
			strings.Replace(callMsg, `]}`, `,`+another(callMsg[strings.Index(callMsg, `{"id"`):]), 1) + `,` + toolMsg + `,` + another(toolMsg) + `,` + askMsg,
		},
		{"one after the other", `[` + callItem + `,` + outputItem + `,` + another(callItem) + `,` + another(outputItem) + `]`, callMsg + `,` + toolMsg + `,` + another(callMsg) + `,` + another(toolMsg)},
		{"the same id twice", `[` + callItem + `,` + outputItem + `,` + callItem + `,` + strings.Replace(outputItem, `"1"`, `"2"`, 1) + `]`, callMsg + `,` + toolMsg + `,` + callMsg + `,` + strings.Replace(toolMsg, `"1"`, `"2"`, 1)},
		{
			"output in parts", `[` + callItem + `,{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"1"},{"type":"input_text","text":"2"}]}]`,
			callMsg + `,{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]}`,
		},
		{
			"custom", `[{"type":"custom_tool_call","call_id":"c1","name":"q","input":"select"},{"type":"custom_tool_call_output","call_id":"c1","output":"1"}]`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"q","input":"select"}}]},` + toolMsg,
		},
		{"reasoning", `[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm"}],"encrypted_content":"x"},{"type":"reasoning","summary":[]},` + callItem + `,` + outputItem + `]`, callMsg + `,` + toolMsg},
	} {
		r, err := Parse([]byte(`{"model":"m","input":` + row.input + `}`))
		require.NoError(t, err, row.name)
		chat, err := r.chat(nil)
		require.NoError(t, err, row.name)
		require.Equal(t, `[`+row.messages+`]`, gjson.GetBytes(chat, "messages").Raw, row.name)
		_, err = openai.ParseChat(chat)
		require.NoError(t, err)

		again, err := Parse([]byte(`{"model":"m","instructions":"I","input":"x","previous_response_id":"resp_1"}`))
		require.NoError(t, err)
		chat, err = again.chat(r.Input())
		require.NoError(t, err, row.name)
		require.Equal(t, `[{"role":"system","content":"I"},`+row.messages+`,{"role":"user","content":"x"}]`, gjson.GetBytes(chat, "messages").Raw, "%s, as a response before", row.name)
	}
}

// Each row is what a chat cannot carry, with the parameter that the client reads.
func TestChat_CannotCarry_NamesTheItem(t *testing.T) { // O8
	t.Parallel()
	for _, row := range [][3]string{
		{`[{"type":"web_search_call","id":"ws_1","status":"completed"}]`, ``, "input[0].type"},
		{`[{"type":"item_reference","id":"msg_abc_0"}]`, ``, "input[0]"},
		{`[` + askItem + `,{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","file_id":"file_1"}]}]`, ``, "input[1].content[1].file_id"},
		{`[{"role":"user","content":[{"type":"input_file","file_url":"https://example.org"}]}]`, ``, "input[0].content[0].file_url"},
		{`[{"role":"user","content":[{"type":"input_file"}]}]`, ``, "input[0].content[0].file_data"},
		{`[{"role":"user","content":[{"type":"refusal","refusal":"x"}]}]`, ``, "input[0].content[0].type"},
		{`[{"role":"assistant","content":[{"type":"input_image","image_url":"x"}]}]`, ``, "input[0].content[0].type"},
		{`[` + callItem + `]`, ``, "input[0]"},
		{`[` + outputItem + `]`, ``, "input[0].call_id"},
		{`[` + outputItem + `,` + callItem + `]`, ``, "input[0].call_id"},
		{`[` + callItem + `,` + another(callItem) + `,` + another(outputItem) + `]`, ``, "input[0]"},
		{`[` + callItem + `,` + another(callItem) + `,` + strings.ReplaceAll(outputItem, "c1", "nope") + `]`, ``, "input[2].call_id"},
		{`[` + callItem + `,` + outputItem + `,` + outputItem + `]`, ``, "input[2].call_id"},
		{`[` + callItem + `,{"type":"function_call_output","call_id":"c1","output":[{"type":"input_image","image_url":"x"}]}]`, ``, "input[1].output[0].type"},
		{`"x"`, `,"truncation":"auto"`, "truncation"},
		{`"x"`, `,"reasoning":{"mode":"pro"}`, "reasoning.mode"},
		{`"x"`, `,"tools":[{"type":"function","name":"f","defer_loading":true}]`, "tools[0].defer_loading"},
	} {
		r, err := Parse([]byte(`{"model":"m","input":` + row[0] + row[1] + `}`))
		require.NoError(t, err, row)
		_, err = r.chat(nil)
		var refused *openai.Error
		require.ErrorAs(t, err, &refused, row)
		require.Equal(t, row[2], refused.Param, refused.Message)
		require.Contains(t, refused.Message, refused.Param)
		if row[1] == "" {
			next, err := Parse([]byte(`{"model":"m","input":"x"}`))
			require.NoError(t, err)
			_, err = next.chat(r.Input())
			require.ErrorAs(t, err, &refused)
			require.True(t, strings.HasPrefix(refused.Param, "previous_response_id"), refused.Param)
		}
	}
}

// The kept items have ids, which are the same whenever the body is read.
func TestInput_EachItem_KeptWithAnID(t *testing.T) { // O8
	t.Parallel()
	body := []byte(`{"model":"m","input":[ {"role":"user","content":"a"}, {"role":"assistant","content":"b"}, {"type":"function_call","id":null,"call_id":"c","name":"f","arguments":""},
		{"type":"function_call_output","id":"fco_own","call_id":"c","output":"1"}, {"type":"item_reference","id":"msg_abc_0"} ]}`)
	r, err := Parse(body)
	require.NoError(t, err)
	again, err := Parse(body)
	require.NoError(t, err)
	items := r.Input()
	require.Equal(t, items, again.Input())
	ids := map[string]bool{}
	for i, want := range []string{
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}`,
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]}]}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":""}`,
		`{"type":"function_call_output","call_id":"c","output":"1"}`,
		`{"type":"item_reference"}`,
	} {
		var item map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(items[i], &item))
		require.True(t, isText(item["id"]), "%s", items[i])
		ids[string(item["id"])] = true
		delete(item, "id")
		rest, _ := json.Marshal(item)
		require.JSONEq(t, want, string(rest))
		require.NotContains(t, string(items[i]), "\n")
	}
	require.Len(t, ids, len(items))
	require.True(t, ids[`"fco_own"`])
}

// A reference to an item of a response names the response, by which its items are found.
func TestReferences_OfResponses_Resolved(t *testing.T) { // O8
	t.Parallel()
	r, err := Parse([]byte(`{"model":"m","input":[{"role":"user","content":"x"},{"type":"item_reference","id":"fc_abc_0"},{"type":"item_reference","id":"msg_abc_12"},
		{"type":"item_reference","id":"msg_other"},{"type":"function_call_output","call_id":"call_0","output":"1"}]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"resp_abc"}, r.References())
	r.Resolve(Items(Final([]byte(kindNamed("call").events()))))
	_, err = r.chat(nil)
	require.ErrorContains(t, err, "msg_abc_12")
	r.Resolve([]json.RawMessage{[]byte(`{"type":"message","id":"msg_abc_12","role":"assistant","content":"y"}`), []byte(`{"type":"message","id":"msg_other","role":"assistant","content":"z"}`)})
	chat, err := r.chat(nil)
	require.NoError(t, err)
	require.Equal(t, `{"role":"assistant","content":[{"type":"text","text":"y"},{"type":"text","text":"z"}],"tool_calls":[{"id":"call_0","type":"function","function":{"name":"get","arguments":"{\"city\":\"Paris\"}"}}]}`,
		gjson.GetBytes(chat, "messages.1").Raw)
	require.Equal(t, "call_0", gjson.GetBytes(r.Input()[1], "call_id").Str)
	whole, _, err := r.whole(nil)
	require.NoError(t, err)
	require.Equal(t, "function_call", gjson.GetBytes(whole, "input.1.type").Str)
}

func kindNamed(name string) kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	panic(name)
}

// The items of each kind of answer continue a conversation, once its calls have outputs.
func TestItems_EachKindOfAnswer_ContinueTheChat(t *testing.T) { // O8
	t.Parallel()
	for _, k := range kinds {
		items := append(k.parsed().Input(), Items(Final([]byte(k.events())))...)
		text, outputs, reasoning := "", []string{`{"role":"user","content":"Continue"}`}, 0
		for _, item := range items[1:] {
			v := gjson.ParseBytes(item)
			if v.Get("type").Str == "reasoning" { // that no upstream can read again
				reasoning++
			}
			for _, part := range v.Get("content").Array() {
				if v.Get("type").Str == "message" {
					text += part.Get("text").Str + part.Get("refusal").Str
				}
			}
			if id := v.Get("call_id"); id.Exists() {
				outputs = append(outputs, fmt.Sprintf(`{"type":"function_call_output","call_id":%s,"output":"1"}`, id.Raw))
			}
		}
		next, err := Parse([]byte(`{"model":"m","previous_response_id":"resp_abc","input":[` + strings.Join(outputs, ",") + `]}`))
		require.NoError(t, err)
		chat, err := next.chat(items)
		require.NoError(t, err, k.name)
		_, err = openai.ParseChat(chat)
		require.NoError(t, err, k.name)
		said, tools := "", 0
		messages := gjson.GetBytes(chat, "messages").Array()
		for _, m := range messages[1:] { // a part of refusal is a field of its own, behind the text
			if m.Get("role").Str == "assistant" {
				for _, part := range m.Get("content").Array() {
					said += part.Str + part.Get("text").Str
				}
				said += m.Get("refusal").Str
				tools += len(m.Get("tool_calls").Array())
			}
		}
		require.Len(t, said, len(text), k.name)
		require.Equal(t, len(outputs)-1, tools, k.name)
		require.Equal(t, "Continue", messages[len(messages)-1].Get("content").Str)

		whole, _, err := next.whole(items)
		require.NoError(t, err)
		require.Len(t, gjson.GetBytes(whole, "input").Array(), len(items)+len(outputs)-reasoning)
	}
}

// An upstream that speaks responses gets the conversation in the input, and keeps nothing.
func TestWhole_State_StaysWithBerth(t *testing.T) { // O8
	t.Parallel()
	r, err := Parse([]byte(`{"model":"m","previous_response_id":"resp_1","store":true,"background":true,"stream":false,"temperature":1.0,"include":["reasoning.encrypted_content"],"truncation":"auto","input":[{"role":"user","id":"x","content":"b"}]}`))
	require.NoError(t, err)
	whole, encrypted, err := r.whole([]json.RawMessage{
		[]byte(`{"type":"message","id":"msg_1","role":"user","content":"a"}`), []byte(`{"type":"reasoning","id":"rs_abc_0","summary":[],"encrypted_content":"berth.acct.cnNfdXA.e.f"}`),
		[]byte(`{"type":"reasoning","id":"rs_abc_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm"}]}`), []byte(`{"type":"web_search_call","id":"ws_1"}`),
	})
	require.NoError(t, err)
	require.Equal(t, `{"model":"m","temperature":1.0,"include":["reasoning.encrypted_content"],"truncation":"auto","input":[{"type":"message","role":"user","content":"a"},`+
		`{"id":"rs_up","type":"reasoning","summary":[],"encrypted_content":"e.f"},{"type":"web_search_call","id":"ws_1"},{"role":"user","content":"b"}],"store":false,"stream":true}`, string(whole))
	require.Equal(t, []openai.Encrypted{{Param: "previous_response_id.encrypted_content", Account: "acct"}}, encrypted)
	r, err = Parse([]byte(`{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`))
	require.NoError(t, err)
	_, _, err = r.whole(nil)
	var refused *openai.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "input[0]", refused.Param)
}

// Bodies with very many items or parts are translated or refused: a time that is not linear in their number would show here.
func TestParse_ManyItems_TranslatedOrRefused(t *testing.T) { // O1, O8
	t.Parallel()
	const size = 1 << 19
	many := func(item string) string { return strings.TrimSuffix(strings.Repeat(item+",", size/len(item)), ",") }
	for name, input := range map[string]string{
		"a text":      quote(strings.Repeat("x", size)),
		"messages":    `[` + many(askItem) + `]`,
		"calls":       `[` + many(callItem+`,`+outputItem) + `]`,
		"references":  `[` + many(`{"type":"item_reference","id":"msg_abc_0"}`) + `]`,
		"one call id": `[` + many(callItem) + `,` + many(outputItem) + `]`,
		"outputs":     `[` + many(outputItem) + `]`,
		"parts":       `[{"role":"user","content":[` + many(`{"type":"input_text","text":"x"}`) + `]}]`,
	} {
		r, err := Parse([]byte(`{"model":"m","input":` + input + `}`))
		require.NoError(t, err, name)
		require.NotEmpty(t, r.Input())
		r.References()
		chat, err := r.chat(nil)
		var refused *openai.Error
		require.True(t, err == nil && json.Valid(chat) || errors.As(err, &refused), name)
	}
}

// FuzzParse checks that any body is refused with an error of the protocol, or gives bodies and items that are valid.
func FuzzParse(f *testing.F) {
	for _, k := range kinds {
		f.Add([]byte(`{"model":"m","input":"Hello"` + k.request + `}`))
	}
	f.Add([]byte(`{"model":"m","input":[` + askItem + `,` + callItem + `,` + outputItem + `,{"type":"item_reference","id":"msg_a_0"},{"type":"reasoning","summary":[]}]}`))
	f.Add([]byte(`{"model":"m","input":[{"role":"assistant","content":[{"type":"refusal","refusal":"x"},{"type":"output_text","text":"x"}]}],"tools":[{"type":"custom","name":"x","format":{"type":"grammar"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var refused *openai.Error
		r, err := Parse(body)
		if err != nil {
			require.ErrorAs(t, err, &refused)
			return
		}
		for _, item := range r.Input() {
			require.True(t, json.Valid(item), "%s", item)
		}
		if chat, err := r.chat(nil); err != nil {
			require.ErrorAs(t, err, &refused)
		} else {
			require.True(t, json.Valid(chat), "%s", chat)
		}
		if whole, _, err := r.whole(r.Input()); err != nil {
			require.ErrorAs(t, err, &refused)
		} else {
			require.True(t, json.Valid(whole), "%s", whole)
		}
		w := NewWriter(r, head, func(event []byte) error {
			require.True(t, json.Valid(event), "%s", event)
			return nil
		})
		require.NoError(t, w.Begin())
	})
}
