package responses

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/respjson"
	official "github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// required are the fields that the types of the official clients require of each event, besides type and sequence_number.
var requiredFields = map[string]string{
	"response.created":                       "response",
	"response.queued":                        "response",
	"response.in_progress":                   "response",
	"response.completed":                     "response",
	"response.incomplete":                    "response",
	"response.failed":                        "response",
	"response.cancelled":                     "response",
	"response.output_item.added":             "output_index item",
	"response.output_item.done":              "output_index item",
	"response.content_part.added":            "item_id output_index content_index part",
	"response.content_part.done":             "item_id output_index content_index part",
	"response.output_text.delta":             "item_id output_index content_index delta logprobs",
	"response.output_text.done":              "item_id output_index content_index text logprobs",
	"response.output_text.annotation.added":  "item_id output_index content_index annotation_index annotation",
	"response.refusal.delta":                 "item_id output_index content_index delta",
	"response.refusal.done":                  "item_id output_index content_index refusal",
	"response.reasoning_text.delta":          "item_id output_index content_index delta",
	"response.reasoning_text.done":           "item_id output_index content_index text",
	"response.reasoning_summary_part.added":  "item_id output_index summary_index part",
	"response.reasoning_summary_part.done":   "item_id output_index summary_index part",
	"response.reasoning_summary_text.delta":  "item_id output_index summary_index delta",
	"response.reasoning_summary_text.done":   "item_id output_index summary_index text",
	"response.function_call_arguments.delta": "item_id output_index delta",
	"response.function_call_arguments.done":  "item_id output_index name arguments",
	"response.custom_tool_call_input.delta":  "item_id output_index delta",
	"response.custom_tool_call_input.done":   "item_id output_index input",
}

// objectFields are those that the types require of a response, and those that OpenAI always sends.
const objectFields = "id object created_at status background error incomplete_details instructions max_output_tokens metadata model output parallel_tool_calls " +
	"previous_response_id reasoning service_tier store temperature text tool_choice tools top_logprobs top_p truncation usage user"

// itemFields and partFields are required of items and parts, by their type.
var itemFields = map[string]string{
	"message": "id status role content", "function_call": "id status call_id name arguments", "custom_tool_call": "id call_id name input", "reasoning": "id summary",
}

var partFields = map[string]string{
	"output_text": "text annotations logprobs", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text",
}

// seenItem is an item of the events, and seenPart a part of one.
type seenItem struct {
	item, done string
	argument   string
	parts      map[string]*seenPart // by the name of their index, and the index
	whole      bool                 // the arguments are done
}

type seenPart struct {
	kind, text  string
	whole, done bool
	logprobs    int
	annotations int
}

func has(t require.TestingT, v gjson.Result, fields string) {
	for f := range strings.FieldsSeq(fields) {
		require.True(t, v.Get(f).Exists(), "%s is missing in %s", f, v.Raw)
	}
}

// requireRules checks that events follow OpenAI's rules. It returns the last one.
func requireRules(t require.TestingT, log string) gjson.Result {
	require.True(t, strings.HasSuffix(log, "\n"))
	lines := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	items := map[int]*seenItem{}
	open := ""
	for n, line := range lines {
		require.True(t, json.Valid([]byte(line)), line)
		e := gjson.Parse(line)
		kind := e.Get("type").Str
		fields, known := requiredFields[kind]
		require.True(t, known, "unknown event %s", kind)
		has(t, e, fields)
		require.True(t, e.Get("sequence_number").Exists())
		require.EqualValues(t, n, e.Get("sequence_number").Int())
		if r := e.Get("response"); r.Exists() {
			has(t, r, objectFields)
			if open == "" || kind == "response.queued" || kind == "response.in_progress" {
				require.Empty(t, items)
				require.Equal(t, "[]", r.Get("output").Raw)
			}
			switch status := strings.TrimPrefix(kind, "response."); status {
			case "created":
				require.Zero(t, n)
			case "queued":
				require.Equal(t, "response.created", open)
				require.Equal(t, "queued", r.Get("status").Str)
			case "in_progress":
				require.Contains(t, []string{"response.created", "response.queued"}, open)
			default:
				require.Equal(t, len(lines)-1, n, "an event follows the last one")
				require.Equal(t, status, r.Get("status").Str)
				requireSum(t, r, items)
				return e
			}
			open = kind
			continue
		}
		require.Equal(t, "response.in_progress", open)
		requireItem(t, e, kind, items)
	}
	require.FailNow(t, "no last event", log)
	return gjson.Result{}
}

// requireDecodes checks that the official client has a type for each event, and reads all of its fields.
func requireDecodes(t require.TestingT, log string) {
	for line := range strings.Lines(log) {
		var e official.ResponseStreamEventUnion
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		if e.Type == "response.cancelled" { // which is in no official stream
			continue
		}
		typed := reflect.ValueOf(e.AsAny())
		require.True(t, typed.IsValid(), "%s", e.Type)
		fields := typed.FieldByName("JSON")
		for i := range fields.NumField() {
			if !fields.Type().Field(i).IsExported() {
				continue
			}
			if field, ok := fields.Field(i).Interface().(respjson.Field); ok {
				require.True(t, field.Valid() || field.Raw() == respjson.Null || field.Raw() == "", "%s: %s", fields.Type().Field(i).Name, line)
			}
		}
		extra := fields.FieldByName("ExtraFields").Interface().(map[string]respjson.Field)
		if e.Type == "response.function_call_arguments.done" {
			delete(extra, "name") // that of Node requires it
		}
		require.Empty(t, extra, line)
	}
}

// requireItem checks an event of an item.
func requireItem(t require.TestingT, e gjson.Result, kind string, items map[int]*seenItem) {
	index := int(e.Get("output_index").Int())
	it := items[index]
	if kind == "response.output_item.added" {
		require.Nil(t, it, "%s", e.Raw)
		require.Len(t, items, index, "the indexes have a gap")
		require.Equal(t, "in_progress", e.Get("item.status").Str)
		has(t, e.Get("item"), itemFields[e.Get("item.type").Str])
		for _, other := range items {
			require.NotEqual(t, gjson.Get(other.item, "id").Str, e.Get("item.id").Str)
		}
		items[index] = &seenItem{item: e.Get("item").Raw, parts: map[string]*seenPart{}}
		return
	}
	require.NotNil(t, it, "%s", e.Raw)
	require.Empty(t, it.done, "the item has ended: %s", e.Raw)
	if kind == "response.output_item.done" {
		it.done = e.Get("item").Raw
		requireWhole(t, it, it.done, true)
		return
	}
	require.Equal(t, gjson.Get(it.item, "id").Str, e.Get("item_id").Str)
	switch kind {
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		require.False(t, it.whole)
		require.NotEmpty(t, e.Get("delta").Str)
		it.argument += e.Get("delta").Str
		return
	case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
		require.False(t, it.whole)
		it.whole = true
		require.Equal(t, it.argument, e.Get("arguments").Str+e.Get("input").Str)
		return
	}
	requirePart(t, e, kind, it)
}

// requirePart checks an event of a part.
func requirePart(t require.TestingT, e gjson.Result, kind string, it *seenItem) {
	list := "content_index"
	if e.Get("summary_index").Exists() {
		list = "summary_index"
	}
	key := list + e.Get(list).Raw
	p := it.parts[key]
	if strings.HasSuffix(kind, "part.added") {
		require.Nil(t, p)
		for _, other := range it.parts {
			require.True(t, other.done, "a part is open: %s", e.Raw)
		}
		require.EqualValues(t, len(it.parts), e.Get(list).Int())
		part := e.Get("part")
		has(t, part, partFields[part.Get("type").Str])
		require.Empty(t, part.Get("text").Str+part.Get("refusal").Str)
		it.parts[key] = &seenPart{kind: part.Get("type").Str}
		return
	}
	require.NotNil(t, p, "%s", e.Raw)
	require.False(t, p.done)
	events := map[string]string{
		"output_text": "response.output_text.", "refusal": "response.refusal.", "reasoning_text": "response.reasoning_text.", "summary_text": "response.reasoning_summary_text.",
	}[p.kind]
	switch kind {
	case events + "delta":
		require.False(t, p.whole)
		require.NotEmpty(t, e.Get("delta").Str)
		p.text += e.Get("delta").Str
		p.logprobs += len(e.Get("logprobs").Array())
	case events + "done":
		require.False(t, p.whole)
		p.whole = true
		require.Equal(t, p.text, e.Get("text").Str+e.Get("refusal").Str)
		require.Len(t, e.Get("logprobs").Array(), p.logprobs)
	case "response.output_text.annotation.added":
		require.EqualValues(t, p.annotations, e.Get("annotation_index").Int())
		require.False(t, p.whole)
		p.annotations++
	case "response.content_part.done", "response.reasoning_summary_part.done":
		require.True(t, p.whole)
		p.done = true
		p.requireWhole(t, e.Get("part"))
	default:
		require.Fail(t, "event of another part", e.Raw)
	}
}

func (p *seenPart) requireWhole(t require.TestingT, part gjson.Result) {
	require.Equal(t, p.kind, part.Get("type").Str)
	has(t, part, partFields[p.kind])
	require.Equal(t, p.text, part.Get("text").Str+part.Get("refusal").Str)
	require.Len(t, part.Get("logprobs").Array(), p.logprobs)
	require.Len(t, part.Get("annotations").Array(), p.annotations)
}

// requireWhole checks that an item has what its events had.
func requireWhole(t require.TestingT, it *seenItem, item string, done bool) {
	v, was := gjson.Parse(item), gjson.Parse(it.item)
	kind := v.Get("type").Str
	require.Equal(t, was.Get("type").Str, kind)
	require.Equal(t, was.Get("id").Str, v.Get("id").Str)
	require.Equal(t, was.Get("name").Raw+was.Get("call_id").Raw, v.Get("name").Raw+v.Get("call_id").Raw)
	has(t, v, itemFields[kind])
	require.Equal(t, it.argument, v.Get("arguments").Str+v.Get("input").Str)
	parts := append(v.Get("summary").Array(), v.Get("content").Array()...)
	require.Len(t, parts, len(it.parts))
	for i, part := range parts {
		key := "content_index"
		if part.Get("type").Str == "summary_text" {
			key = "summary_index"
		}
		p := it.parts[key+string(rune('0'+i))]
		require.NotNil(t, p)
		require.True(t, !done || p.done)
		p.requireWhole(t, part)
	}
	if done {
		require.Contains(t, []string{"completed", "incomplete"}, v.Get("status").Str)
		require.Equal(t, it.argument != "" || strings.HasSuffix(kind, "_call"), it.whole)
	}
}

// requireSum checks that a response has the items of the events before it.
func requireSum(t require.TestingT, response gjson.Result, items map[int]*seenItem) {
	output := response.Get("output").Array()
	require.Len(t, output, len(items))
	ended := slices.Contains([]string{"completed", "incomplete"}, response.Get("status").Str)
	for i, item := range output {
		if items[i].done != "" {
			require.Equal(t, items[i].done, item.Raw)
			continue
		}
		require.False(t, ended, "an item has not ended")
		require.Equal(t, "incomplete", item.Get("status").Str)
		requireWhole(t, items[i], item.Raw, false)
	}
	if usage := response.Get("usage"); usage.IsObject() {
		has(t, usage, "input_tokens input_tokens_details.cached_tokens input_tokens_details.cache_write_tokens output_tokens output_tokens_details.reasoning_tokens total_tokens")
	}
	require.Equal(t, response.Get("status").Str == "failed", response.Get("error.message").Exists())
	require.Equal(t, response.Get("status").Str == "incomplete", response.Get("incomplete_details.reason").Exists())
}

// Each rule is broken once, so that the checks are known to work.
func TestRules_BrokenOnce_AreNoticed(t *testing.T) { // O8
	t.Parallel()
	log := kinds[0].events()
	requireRules(t, log)
	for name, change := range map[string][2]string{
		"number":      {`"sequence_number":4`, `"sequence_number":5`},
		"delta":       {`"delta":"lo"`, `"delta":"la"`},
		"required":    {`,"logprobs":[]}`, `}`},
		"order":       {`response.content_part.added`, `response.content_part.done`},
		"item":        {`"item_id":"msg_abc_0"`, `"item_id":"msg_abc_1"`},
		"last":        {`"response.completed"`, `"response.in_progress"`},
		"status":      {`"status":"completed","error"`, `"status":"failed","error"`},
		"field":       {`"truncation"`, `"truncated"`},
		"done":        {`response.output_item.done`, `response.output_item.added`},
		"text of all": {`"text":"Hello`, `"text":"Hallo`},
	} {
		require.Contains(t, log, change[0], name)
		broken := &recorder{}
		func() {
			defer func() { _ = recover() }()
			requireRules(broken, strings.Replace(log, change[0], change[1], 1))
		}()
		require.True(t, broken.failed, name)
	}
}

// recorder notes whether a check has failed.
type recorder struct{ failed bool }

func (r *recorder) Errorf(string, ...any) { r.failed = true }

func (r *recorder) FailNow() {
	r.failed = true
	panic("failed")
}
