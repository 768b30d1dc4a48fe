package llm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
)

// wire is a provider that returns raw bytes. next returns the reader of the next response, and counts the calls.
type wire struct {
	calls int
	next  func(call int) io.Reader
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.calls++
	return http.ReadResponse(bufio.NewReaderSize(w.next(w.calls), 16), req)
}

// answered is the outcome of one call.
type answered struct {
	text, finish string
	cause        Cause
	bought       bool
}

// wireCatalog is parsed once: some tests make thousands of calls.
var wireCatalog = sync.OnceValue(func() *Catalog {
	cfg, err := LoadConfig("")
	if err != nil {
		panic(err)
	}
	c, err := NewCatalog(cfg, Settings{Keys: map[string]string{"DEEPSEEK_API_KEY": secret}})
	if err != nil {
		panic(err)
	}
	return c
})

// callWire makes one call of a provider that returns raw bytes.
func callWire(t *testing.T, next func(call int) io.Reader) (answered, Result, error) {
	t.Helper()
	c := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: next}}, slog.New(slog.DiscardHandler))
	var read strings.Builder // by readers
	res, err := c.Stream(t.Context(), ask(Timeouts{}), func(d Delta) error {
		if d.Withdrawn {
			read.Reset()
		}
		read.WriteString(d.Content)
		return nil
	})
	a := answered{text: res.Text, finish: res.FinishReason, bought: res.Usage != (berth.Usage{})}
	if err != nil {
		e := failure(t, err)
		a.cause, a.finish = e.Cause, ""
	} else {
		require.Equal(t, res.Text, read.String(), "readers have the result")
	}
	return a, res, err
}

// always returns the same bytes for each call.
func always(raw []byte) func(int) io.Reader {
	return func(int) io.Reader { return bytes.NewReader(raw) }
}

// corpus are the raw answers in testdata/provider, with what a call gets.
var corpus = map[string]answered{
	"18-provider-boxes":     {text: "The answer", finish: "stop", bought: true},
	"19-provider-nofin":     {text: "The complete answer.", finish: berth.FinishUnknown, bought: true},
	"21-provider-ctxlen":    {cause: CauseContext},
	"21-provider-risk":      {cause: CauseRefused},
	"22-provider-trunc":     {text: "A short answer.", finish: "stop", bought: true},
	"x-provider-bom":        {text: "w0 w1 w2 ", finish: "stop", bought: true},
	"x-provider-cr":         {text: "w0 w1 w2 ", finish: "stop", bought: true},
	"x-provider-errfalse":   {text: "w0 w1 w2 ", finish: "stop", bought: true},
	"x-provider-inctx":      {cause: CauseContext},
	"x-provider-nodone":     {text: "w0 w1 w2 ", finish: "stop", bought: true},
	"x-provider-pingev":     {text: "Hello", finish: "stop", bought: true},
	"x-provider-tools":      {cause: CauseTool, bought: true},
	"x-provider-twochoices": {text: "A0 A1 A2 A3", finish: "stop", bought: true},
}

func readCorpus(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/provider/*.http")
	require.NoError(t, err)
	all := map[string][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".http")] = raw
	}
	require.Len(t, all, len(corpus))
	return all
}

// An answer is the same wherever the network cuts it.
func TestStream_CorpusCutAtEveryByte_SameAnswer(t *testing.T) { // P21, FM1, FM2, FM3, FM4
	t.Parallel()
	for name, raw := range readCorpus(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, ok := corpus[name]
			require.True(t, ok)
			for i := range len(raw) + 1 {
				got, _, _ := callWire(t, func(int) io.Reader { return io.MultiReader(bytes.NewReader(raw[:i]), bytes.NewReader(raw[i:])) })
				require.Equal(t, want, got, "cut at byte %d", i)
			}
			got, _, _ := callWire(t, func(int) io.Reader { return iotest.OneByteReader(bytes.NewReader(raw)) })
			require.Equal(t, want, got)
		})
	}
}

// An answer that ends early is either whole or a fault that is known to be one: never half an answer as a whole.
func TestStream_CorpusEndsAtEveryByte_WholeOrFault(t *testing.T) { // P21, FM3
	t.Parallel()
	for name, raw := range readCorpus(t) {
		want := corpus[name]
		if want.cause != "" {
			continue
		}
		head := bytes.Index(raw, []byte("\r\n\r\n")) + 4
		for end := head; end <= len(raw); end++ {
			got, _, _ := callWire(t, always(raw[:end]))
			if got.cause == "" {
				require.Equal(t, want.text, got.text, "%s ends at byte %d", name, end)
			} else {
				require.Contains(t, []Cause{CauseConnection, CauseUnreadable}, got.cause, "%s ends at byte %d", name, end)
			}
		}
	}
}

// variant is a change to a raw answer that must not change what a call gets.
type variant struct {
	name   string
	change func(stream string) string
}

// eachChunk changes the JSON objects of a stream.
func eachChunk(change func(n int, object string) string) func(string) string {
	return func(stream string) string {
		lines := strings.Split(stream, "\n")
		n := 0
		for i, line := range lines {
			if object, ok := strings.CutPrefix(line, "data: "); ok && strings.HasPrefix(object, "{") {
				lines[i] = "data: " + change(n, object)
				n++
			}
		}
		return strings.Join(lines, "\n")
	}
}

// with adds a field to each chunk, at its beginning.
func with(field string) func(string) string {
	return eachChunk(func(_ int, object string) string { return "{" + field + "," + object[1:] })
}

// between adds something before each event.
func between(text string) func(string) string {
	return func(stream string) string { return text + strings.ReplaceAll(stream, "\n\n", "\n\n"+text) }
}

// reordered writes the fields of an object in another order.
func reordered(v gjson.Result, order func([]string)) string {
	switch {
	case v.IsObject():
		var fields []string
		v.ForEach(func(key, value gjson.Result) bool {
			fields = append(fields, key.Raw+":"+reordered(value, order))
			return true
		})
		order(fields)
		return "{" + strings.Join(fields, ",") + "}"
	case v.IsArray():
		var all []string
		for _, inner := range v.Array() {
			all = append(all, reordered(inner, order))
		}
		return "[" + strings.Join(all, ",") + "]"
	default:
		return v.Raw
	}
}

func orderedBy(order func([]string)) func(string) string {
	return eachChunk(func(_ int, object string) string { return reordered(gjson.Parse(object), order) })
}

func replaced(old, with string) func(string) string {
	return func(stream string) string { return strings.ReplaceAll(stream, old, with) }
}

// variants are by what they change. One of each group is combined with one of each other.
func variants() [][]variant {
	same := variant{"", func(s string) string { return s }}
	lineEnds := []variant{same, {"CRLF", replaced("\n", "\r\n")}, {"CR", replaced("\n", "\r")}}
	fields := []variant{
		same, {"no space", replaced("data: ", "data:")}, {"several lines", replaced(`, "choices"`, ",\ndata: \"choices\"")},
	}
	ends := []variant{
		same,
		{"no blank line at the end", func(s string) string { return strings.TrimRight(s, "\n") + "\n" }},
		{"no line end at the end", func(s string) string { return strings.TrimRight(s, "\n") }},
		{"something behind the end", func(s string) string { return s + "data: {\"choices\":[]}\n\n: bye\n\n" }},
	}
	around := []variant{same, {"byte order mark", func(s string) string { return "\ufeff" + s }}, {"blank lines before", func(s string) string { return "\n\n" + s }}}
	around = append(around, variant{"single line ends", replaced("\n\ndata: {", "\ndata: {")})
	for name, text := range map[string]string{
		"comments": ": keep-alive\n\n", "ping with an object": "event: ping\ndata: {}\n\n", "ping with a text": "event: ping\ndata: keepalive\n\n",
		"ping without data": "event: ping\n\n", "unnamed text": "data: ping\n\n", "empty data": "data:\n\n", "ids and retry": "id: 1\nretry: 1\n",
		"another event with a chunk": "event: debug\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n", "the default name": "event: message\n",
		"empty errors": "event: error\ndata: {}\n\n",
	} {
		around = append(around, variant{name, between(text)})
	}
	objects := []variant{
		same,
		{"fields sorted", orderedBy(slices.Sort)},
		{"fields reversed", orderedBy(slices.Reverse)},
		{"role in the delta", replaced(`"delta": {"`, `"delta": {"role": "assistant", "refusal": null, "tool_calls": [], "reasoning_content": null, "`)},
		{"usage null", with(`"usage": null`)},
		{"unknown fields", with(`"provider": {"error": "x"}, "obfuscation": "aB3", "nvext": [1]`)},
		{"index missing", replaced(`"index": 0, `, "")},
		{"index null", replaced(`"index": 0`, `"index": null`)},
		{"finish reason empty", replaced(`"finish_reason": null`, `"finish_reason": ""`)},
		{"finish reason missing", replaced(`, "finish_reason": null`, "")},
		{"content as parts", replaced(`"content": "`, `"content": [{"type": "text", "text": "`)}, // closed below
	}
	objects[len(objects)-1].change = eachChunk(func(_ int, object string) string {
		content := gjson.Get(object, "choices.0.delta.content")
		if content.Type != gjson.String {
			return object
		}
		return strings.Replace(object, content.Raw, `[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": `+content.Raw+`}]`, 1)
	})
	for _, falsy := range []string{`false`, `""`, `null`, `{}`, `[]`, `0`, `" "`, `true`, `{"message": null, "code": 0}`, `{"message": "", "details": {}}`} {
		objects = append(objects, variant{"error " + falsy, with(`"error": ` + falsy)})
	}
	return [][]variant{lineEnds, fields, ends, around, objects}
}

// The standard and the protocol permit, or servers send, these forms of an answer.
func TestStream_VariantsOfAnswer_SameAnswer(t *testing.T) { // P21, FM1, FM2
	t.Parallel()
	raw := readCorpus(t)
	names := []string{"19-provider-nofin", "22-provider-trunc", "x-provider-nodone"}
	groups := variants()
	total := 0
	var vary func(name, stream string, from int, left []variant)
	vary = func(name, stream string, from int, left []variant) {
		// Each variant alone, and each pair of groups: a change of the lines applies last.
		if from == 0 || len(left) == 2 {
			for _, v := range left {
				stream = v.change(stream)
				name += ", " + v.name
			}
			total++
			want := corpus[strings.Split(name, ",")[0]]
			for media, framed := range map[string]string{
				"text/event-stream": "Connection: close\r\n\r\n" + stream, "TEXT/Event-Stream; charset=utf-8": "Transfer-Encoding: chunked\r\n\r\n" + chunked(stream),
				"application/octet-stream": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(stream), stream),
			} {
				got, _, _ := callWire(t, always([]byte("HTTP/1.1 200 OK\r\nContent-Type: "+media+"\r\n"+framed)))
				require.Equal(t, want, got, "%s, %s", name, media)
			}
			return
		}
		for group := from - 1; group >= 0; group-- {
			for _, v := range groups[group] {
				vary(name, stream, group, append(slices.Clone(left), v))
			}
		}
	}
	for _, name := range names {
		_, stream, _ := strings.Cut(string(raw[name]), "\r\n\r\n")
		vary(name, stream, len(groups), nil)
	}
	require.Greater(t, total, 500)
	t.Logf("%d variants, each with three framings", total)
}

// chunked frames a body in chunks of 7 bytes.
func chunked(body string) string {
	var b strings.Builder
	for part := range slices.Chunk([]byte(body), 7) {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
	}
	return b.String() + "0\r\n\r\n"
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// Some servers send chunks line by line, without the form of an event stream, or cut a character in two.
func TestStream_OddFramingAndCharacters_SameAnswer(t *testing.T) { // P21, FM1
	t.Parallel()
	chunk := func(content, finish string) string {
		return `{"choices":[{"index":0,"delta":{"content":"` + content + `"},"finish_reason":` + finish + `}]}`
	}
	message := func(content string) string { return strings.Replace(chunk(content, "null"), "delta", "message", 1) }
	stop := chunk("", `"stop"`)
	indexed := func(index, content, finish string) string {
		return strings.Replace(chunk(content, finish), `"index":0`, `"index":`+index, 1)
	}
	for name, row := range map[string]struct{ body, want string }{
		"objects line by line":                       {chunk("a ", "null") + "\n" + chunk("b", "null") + "\n" + stop + "\n", "a b"},
		"objects and the end line by line":           {chunk("a ", "null") + "\r\n" + chunk("b", "null") + "\r\n[DONE]\r\n", "a b"},
		"objects without line ends":                  {chunk("a ", "null") + chunk("b", "null") + stop + "[DONE]", "a b"},
		"surrogates cut":                             {"data: " + chunk(`wave \ud83c`, "null") + "\n\ndata: " + chunk(`\udf0a!`, "null") + "\n\ndata: " + stop, "wave 🌊!"},
		"surrogates cut, empty between":              {"data: " + chunk(`\uD83C`, "null") + "\n\ndata: " + chunk("", "null") + "\n\ndata: " + chunk(`\uDF0A`, `"stop"`), "🌊"},
		"half a surrogate alone":                     {"data: " + chunk(`a\ud83c`, "null") + "\n\ndata: " + chunk("b", "null") + "\n\ndata: " + stop, "a\ufffdb"},
		"half a surrogate at the end":                {"data: " + chunk(`a\ud83c`, `"stop"`), "a\ufffd"},
		"a text about an escape":                     {"data: " + chunk(`a\\ud83c`, "null") + "\n\ndata: " + chunk("b", `"stop"`), `a\ud83cb`},
		"bytes cut":                                  {"data: " + chunk("\xe4\xbd", "null") + "\n\ndata: " + chunk("\xa0\xe5", "null") + "\n\ndata: " + chunk("\xa5\xbd", `"stop"`), "你好"},
		"bytes cut at the end":                       {"data: " + chunk("a\xe4\xbd", `"stop"`), "a\ufffd"},
		"text beside no message":                     {`data: {"choices":[{"index":0,"text":"a "}]}` + "\n\n" + `data: {"choices":[{"text":"b","finish_reason":"stop"}]}`, "a b"},
		"NUL":                                        {"data: " + chunk(`a\u0000b`, `"stop"`), "a\ufffdb"},
		"messages with the whole text so far":        {"data: " + message("a ") + "\n\ndata: " + message("a b") + "\n\ndata: " + message("a b c") + "\n\ndata: " + stop, "a b c"},
		"messages with a part of the text each":      {"data: " + message("a ") + "\n\ndata: " + message("b ") + "\n\ndata: " + stop, "a b "},
		"deltas, then the whole message":             {"data: " + chunk("a ", "null") + "\n\ndata: " + chunk("b", "null") + "\n\ndata: " + message("a b") + "\n\ndata: " + stop, "a b"},
		"stop in every chunk":                        {"data: " + chunk("a ", `"stop"`) + "\n\ndata: " + chunk("b", `"stop"`) + "\n\n", "a b"},
		"another index":                              {"data: " + indexed("1", "a ", "null") + "\n\ndata: " + indexed("1", "b", `"stop"`), "a b"},
		"the index as a text":                        {"data: " + indexed(`"0"`, "a ", "null") + "\n\ndata: " + indexed(`"0"`, "b", `"stop"`), "a b"},
		"another index as a text":                    {"data: " + indexed(`"1"`, "a ", "null") + "\n\ndata: " + indexed(`"1"`, "b", `"stop"`), "a b"},
		"an index below 0":                           {"data: " + indexed("-1", "a", `"stop"`), "a"},
		"an index now and then":                      {"data: " + indexed("1", "a ", "null") + "\n\ndata: " + strings.Replace(chunk("b ", "null"), `"index":0,`, "", 1) + "\n\ndata: " + indexed("1", "c", `"stop"`), "a b c"},
		"two choices, the second first":              {"data: " + indexed("1", "b ", "null") + "\n\ndata: " + indexed("0", "a ", "null") + "\n\ndata: " + indexed("1", "b", `"stop"`) + "\n\ndata: " + indexed("0", "a", `"stop"`), "b b"},
		"two choices in one chunk":                   {`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}`, "a"},
		"two choices without an index":               {`data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"},{"delta":{"content":"b"},"finish_reason":"stop"}]}`, "a"},
		"roles first, then another index":            {`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\ndata: " + indexed("1", "b", `"stop"`), "b"},
		"choices that are an object":                 {`data: {"choices":{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}}`, "a"},
		"a delta beside no choices":                  {`data: {"choices":[],"delta":{"content":"a "}}` + "\n\n" + `data: {"delta":{"content":"b"},"finish_reason":"stop"}`, "a b"},
		"a message beside no choices":                {`data: {"choices":[],"message":{"role":"assistant","content":"a "},"done":false}` + "\n\n" + `data: {"message":{"content":"b"},"done":true,"done_reason":"stop"}`, "a b"},
		"a message alone":                            {`{"role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}`, "a"},
		"text behind the finish reason":              {"data: " + chunk("a ", `"stop"`) + "\n\ndata: " + chunk("b", "null") + "\n\ndata: [DONE]\n\n", "a b"},
		"usage behind the finish reason":             {"data: " + chunk("a", `"stop"`) + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, "a"},
		"gzip that no header states":                 {zipped("data: " + chunk("a ", "null") + "\n\ndata: " + chunk("b", `"stop"`) + "\n\n"), "a b"},
		"framed twice":                               {"data: data: " + chunk("a ", "null") + "\n\ndata: data:" + chunk("b", `"stop"`) + "\n\ndata: data: [DONE]\n\n", "a b"},
		"a closing tag behind thoughts of a field":   {`data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}` + "\n\ndata: " + chunk(`</think>\n\na b`, `"stop"`), "a b"},
		"a closing tag in pieces behind them":        {`data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\ndata: " + chunk(`\n</th`, "null") + "\n\ndata: " + chunk(`ink>\n`, "null") + "\n\ndata: " + chunk("a b", `"stop"`), "a b"},
		"a closing tag in one response":              {`{"choices":[{"message":{"reasoning":"hm","content":"</think>\n\na b"},"finish_reason":"stop"}]}`, "a b"},
		"a closing tag of another model behind them": {`data: {"choices":[{"delta":{"thinking":"hm"}}]}` + "\n\ndata: " + chunk(`[/THINK]a b`, `"stop"`), "a b"},
		"two closing tags behind them":               {`data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\ndata: " + chunk(`</think></think>a b`, `"stop"`), "</think>a b"},
		"a closing tag further back":                 {`data: {"choices":[{"delta":{"reasoning":"hm"}}]}` + "\n\ndata: " + chunk(`a\n</think>\nb`, `"stop"`), "a\n</think>\nb"},
		"events with a name":                         {"event: chunk\ndata: " + chunk("a ", "null") + "\n\nevent: data\ndata: " + chunk("b", "null") + "\n\nevent: completion\ndata: " + stop + "\n\nevent: done\ndata: [DONE]\n\n", "a b"},
		"pings with chunks":                          {"event: keep-alive\ndata: " + chunk("x", "null") + "\n\nevent: Heartbeat\ndata: " + chunk("x", "null") + "\n\ndata: " + chunk("a", `"stop"`), "a"},
		"events without choices":                     {"event: status\ndata: {\"content\":\"x\",\"message\":{\"content\":\"x\"}}\n\ndata: " + chunk("a", `"stop"`), "a"},
		"an end in quotes":                           {"data: " + chunk("a", "null") + "\n\ndata: \"[DONE]\"\n\n", "a"},
		"an end in small letters":                    {"data: " + chunk("a", "null") + "\n\ndata: [done]\n\n", "a"},
	} {
		for _, media := range []string{"text/event-stream", "application/x-ndjson", "text/plain"} {
			raw := []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + media + "\r\n\r\n" + row.body)
			for i := range len(raw) + 1 {
				got, _, err := callWire(t, func(int) io.Reader { return io.MultiReader(bytes.NewReader(raw[:i]), bytes.NewReader(raw[i:])) })
				require.NoError(t, err, "%s, %s", name, media)
				require.Equal(t, row.want, got.text, "%s, %s, cut at byte %d", name, media, i)
			}
		}
	}
}
