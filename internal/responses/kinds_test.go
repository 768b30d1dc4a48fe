package responses

import (
	"encoding/json"
	"fmt"
	"strings"

	"berth/internal/openai"
)

// kind is a kind of answer: what a client requests, the chunks of a chat, and the end.
type kind struct {
	name    string
	request string // further parameters
	chunks  []string
	err     *openai.Error
	cancel  bool
	last    string // type of the last event
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// delta returns a chunk with the fields of a delta.
func delta(format string, args ...any) string {
	return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{` + fmt.Sprintf(format, args...) + `},"finish_reason":null}],"usage":null}`
}

func says(texts ...string) (chunks []string) {
	for _, s := range texts {
		chunks = append(chunks, delta(`"content":%s`, quote(s)))
	}
	return chunks
}

func thinks(field string, texts ...string) (chunks []string) {
	for _, s := range texts {
		chunks = append(chunks, delta(`%q:%s`, field, quote(s)))
	}
	return chunks
}

func refuses(texts ...string) []string { return thinks("refusal", texts...) }

// calls returns the chunks of a call.
func calls(index int, name string, arguments ...string) (chunks []string) {
	for i, s := range append([]string{""}, arguments...) {
		head := ""
		if i == 0 {
			head = fmt.Sprintf(`"id":"call_%d","type":"function",`, index)
			s, name = "", fmt.Sprintf(`"name":%q,`, name)
		}
		chunks = append(chunks, delta(`"tool_calls":[{"index":%d,%s"function":{%s"arguments":%s}}]`, index, head, name, quote(s)))
		name = ""
	}
	return chunks
}

func finish(reason string) []string {
	return []string{
		`{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4},` +
			`"completion_tokens_details":{"reasoning_tokens":3}}}`,
	}
}

func concat(lists ...[]string) (all []string) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func one(chunk string) []string { return []string{chunk} }

// withLogprobs returns a chunk with a text and the probabilities of its tokens.
func withLogprobs(s string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%[1]s},"logprobs":{"content":[{"token":%[1]s,"logprob":-0.5,"bytes":[72],"top_logprobs":[{"token":%[1]s,"logprob":-0.5,"bytes":null}]}]},"finish_reason":null}]}`, quote(s))
}

const annotation = `"annotations":[{"type":"url_citation","url_citation":{"start_index":0,"end_index":2,"url":"https://example.org","title":"T"}}]`

var (
	failedCall     = &openai.Error{Status: 502, Type: openai.TypeServer, Code: "connection", Message: "the connection broke"}
	withTools      = `,"tools":[{"type":"function","name":"get","parameters":{"type":"object"}}]`
	lastCompleted  = "response.completed"
	lastIncomplete = "response.incomplete"
	lastFailed     = "response.failed"
)

var kinds = []kind{
	{"text", "", concat(says("", "Hel", "lo", " \"you\"\n", "é😀"), finish("stop")), nil, false, lastCompleted},
	{"text-in-one-chunk", "", one(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`), nil, false, lastCompleted},
	{"background", `,"background":true`, concat(says("Hello"), finish("stop")), nil, false, lastCompleted},
	{"no-usage", "", concat(says("Hello"), finish("stop")[:1]), nil, false, lastCompleted},
	{"no-finish-reason", "", says("Hello"), nil, false, lastCompleted},
	{"cached-deepseek", "", concat(says("Hello"), one(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,"prompt_cache_hit_tokens":3}}`)), nil, false, lastCompleted},
	{"empty", "", concat(says(""), finish("stop")), nil, false, lastCompleted},
	{"nothing", "", nil, nil, false, lastCompleted},
	{"length", "", concat(says("Hel", "lo"), finish("length")), nil, false, lastIncomplete},
	{"length-without-text", "", finish("length"), nil, false, lastIncomplete},
	{"length-in-reasoning", "", concat(thinks("reasoning_content", "Hm", ".."), finish("length")), nil, false, lastIncomplete},
	{"length-in-a-call", withTools, concat(calls(0, "get", `{"a"`), finish("length")), nil, false, lastIncomplete},
	{"length-after-a-call", withTools, concat(calls(0, "get", `{"a":1}`), calls(1, "get", `{"b`), finish("length")), nil, false, lastIncomplete},
	{"content-filter", "", concat(says("Hel"), finish("content_filter")), nil, false, lastIncomplete},
	{"content-filter-without-text", "", finish("content_filter"), nil, false, lastIncomplete},
	{"refusal", "", concat(says(""), refuses("I can't", " do that."), finish("stop")), nil, false, lastCompleted},
	{"refusal-after-text", "", concat(says("Well: "), refuses("no."), finish("stop")), nil, false, lastCompleted},
	{"text-after-refusal", "", concat(refuses("No."), says("But"), finish("stop")), nil, false, lastCompleted},
	{"reasoning", "", concat(thinks("reasoning_content", "Let me", " see."), says("42"), finish("stop")), nil, false, lastCompleted},
	{"reasoning-as-summary", `,"reasoning":{"effort":"low","summary":"auto"}`, concat(thinks("reasoning", "Let me", " see."), says("42"), finish("stop")), nil, false, lastCompleted},
	{"reasoning-sent-twice", "", concat(one(delta(`"reasoning":"Hm","reasoning_content":"Hm"`)), says("42"), finish("stop")), nil, false, lastCompleted},
	{"reasoning-between-texts", "", concat(says("One."), thinks("reasoning", "Hm"), says("Two."), finish("stop")), nil, false, lastCompleted},
	{"reasoning-only", "", concat(thinks("thinking", "Hm"), finish("stop")), nil, false, lastCompleted},
	{"reasoning-then-call", withTools, concat(thinks("reasoning_content", "Hm"), calls(0, "get", "{}"), finish("tool_calls")), nil, false, lastCompleted},
	{"reasoning-in-parts", "", concat(one(delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm"}]}]`)), one(delta(`"content":[{"type":"text","text":"42"}]`)), finish("stop")), nil, false, lastCompleted},
	{"call", withTools, concat(calls(0, "get", `{"ci`, `ty":"Paris"}`), finish("tool_calls")), nil, false, lastCompleted},
	{"call-in-one-chunk", withTools, concat(one(delta(`"tool_calls":[{"index":0,"id":"call_0","type":"function","function":{"name":"get","arguments":"{}"}},{"index":1,"id":"call_1","type":"function","function":{"name":"set","arguments":"{\"a\":1}"}}]`)), finish("tool_calls")), nil, false, lastCompleted},
	{"call-without-arguments", withTools, concat(calls(0, "get"), finish("tool_calls")), nil, false, lastCompleted},
	{"call-with-an-object", withTools, concat(one(delta(`"tool_calls":[{"index":0,"id":"call_0","function":{"name":"get","arguments":{"a":1}}}]`)), finish("tool_calls")), nil, false, lastCompleted},
	{"call-with-a-late-name", withTools, concat(one(delta(`"tool_calls":[{"index":0,"id":"call_0","function":{"arguments":"{\"a\""}}]`)), one(delta(`"tool_calls":[{"index":0,"function":{"name":"get","arguments":":1}"}}]`)), finish("tool_calls")), nil, false, lastCompleted},
	{"call-without-a-name", withTools, concat(one(delta(`"tool_calls":[{"index":0,"id":"call_0","function":{"arguments":"{}"}}]`)), finish("tool_calls")), nil, false, lastCompleted},
	{"calls-in-parallel", withTools, concat(calls(0, "get", `{"a":`, `1}`), calls(1, "get", `{"b":`, `2}`), calls(2, "set", `{}`), finish("tool_calls")), nil, false, lastCompleted},
	{"calls-mixed", withTools, concat(calls(0, "get", `{"a":`), calls(1, "get", `{"b":`), calls(0, "", "1}")[1:], calls(1, "", "2}")[1:], finish("tool_calls")), nil, false, lastCompleted},
	{"custom-call", `,"tools":[{"type":"custom","name":"sql"}]`, concat(one(delta(`"tool_calls":[{"index":0,"id":"call_0","type":"custom","custom":{"name":"sql","input":"select"}}]`)), one(delta(`"tool_calls":[{"index":0,"custom":{"input":" 1"}}]`)), finish("tool_calls")), nil, false, lastCompleted},
	{"text-then-calls", withTools, concat(says("I look."), calls(0, "get", `{"a":1}`), calls(1, "get", `{}`), finish("tool_calls")), nil, false, lastCompleted},
	{"text-after-calls", withTools, concat(calls(0, "get", `{"a":1}`), says("Done", "."), finish("tool_calls")), nil, false, lastCompleted},
	{"text-within-a-call", withTools, concat(calls(0, "get", `{"a":`), says("Wait"), calls(0, "", "1}")[1:], says(" a bit"), finish("tool_calls")), nil, false, lastCompleted},
	{"logprobs", `,"include":["message.output_text.logprobs"],"top_logprobs":1`, concat(one(withLogprobs("Hel")), one(withLogprobs("lo")), finish("stop")), nil, false, lastCompleted},
	{"annotations", "", concat(says("Hi"), one(delta(`"content":"",%s`, annotation)), finish("stop")), nil, false, lastCompleted},
	{"annotations-before-text", "", concat(one(delta(annotation)), says("Hi"), finish("stop")), nil, false, lastCompleted},
	{"several-items", withTools, concat(thinks("reasoning", "Hm"), says("First."), calls(0, "get", "{}"), thinks("reasoning", "Then"), says("Last."), finish("stop")), nil, false, lastCompleted},
	{"error-before-text", "", nil, failedCall, false, lastFailed},
	{"error-after-text", "", says("Hel", "lo"), failedCall, false, lastFailed},
	{"error-in-reasoning", `,"reasoning":{"summary":"auto"}`, thinks("reasoning", "Hm"), failedCall, false, lastFailed},
	{"error-in-a-call", withTools, concat(says("I look."), calls(0, "get", `{"a"`)), failedCall, false, lastFailed},
	{"error-without-code", "", nil, &openai.Error{Status: 400, Message: "no"}, false, lastFailed},
	{"cancelled-before-text", `,"background":true`, nil, nil, true, "response.cancelled"},
	{"cancelled-after-text", `,"background":true`, concat(thinks("reasoning", "Hm"), says("Hel", "lo")), nil, true, "response.cancelled"},
	{
		"all-parameters", `,"background":false,"previous_response_id":"resp_0","instructions":"Be\nbrief","max_output_tokens":100,"max_tool_calls":3,"metadata":{"a":"b"},
		"parallel_tool_calls":false,"prompt_cache_key":"k","reasoning":{"effort":"high"},"safety_identifier":"s","temperature":0.5,
		"text":{"format":{"type":"json_object"},"verbosity":"low"},"tool_choice":"none","tools":[{"type":"function","name":"f","strict":null}],"top_p":1.0,"truncation":"disabled","user":"u"`,
		concat(says("{}"), finish("stop")), nil, false, lastCompleted,
	},
}

var head = Head{ID: "resp_abc", Model: "large", ServiceTier: "flex", Created: 7}

// request returns the request of a kind.
func (k kind) parsed() *Request {
	r, err := Parse([]byte(`{"model":"large","input":"Hello"` + k.request + `}`))
	if err != nil {
		panic(err)
	}
	return r
}

// events returns the events of a kind, each on a line.
func (k kind) events() string {
	var log strings.Builder
	w := NewWriter(k.parsed(), head, func(event []byte) error {
		log.Write(event)
		return log.WriteByte('\n')
	})
	err := begun(w)
	for _, c := range k.chunks {
		if err == nil {
			err = w.Chunk([]byte(c))
		}
	}
	if err == nil {
		err = k.end(w)
	}
	if err != nil {
		panic(err)
	}
	return log.String()
}

func begun(w *Writer) error {
	if err := w.Begin(); err != nil {
		return err
	}
	return w.Started()
}

func (k kind) end(w *Writer) error {
	if k.cancel {
		return w.Cancel()
	}
	return w.End(k.err)
}
