package responses

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"berth/internal/openai"
)

var update = flag.Bool("update", false, "write the expected events, and the table of docs/openai.md")

// Each kind of answer has the events of its file, which follow the rules.
func TestWriter_EachKindOfAnswer_EventsOfOpenAI(t *testing.T) { // O8
	t.Parallel()
	require.GreaterOrEqual(t, len(kinds), 30)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			events := k.events()
			require.Equal(t, events, k.events(), "the same calls give the same events")
			file := filepath.Join("testdata", "events", k.name+".jsonl")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(events), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), events)
			last := requireRules(t, events)
			requireDecodes(t, events)
			require.Equal(t, k.last, last.Get("type").Str)
			require.JSONEq(t, last.Get("response").Raw, string(Final([]byte(events))))
		})
	}
	t.Cleanup(func() {
		files, err := os.ReadDir(filepath.Join("testdata", "events"))
		require.NoError(t, err)
		require.Len(t, files, len(kinds), "a file of no kind")
	})
}

// log keeps events, each on a line.
type log struct{ strings.Builder }

func (l *log) add(event []byte) error {
	l.Write(event)
	return l.WriteByte('\n')
}

// A stream that is cut at any chunk ends with an event that has what arrived, whether the same process ends it or another one that has its log.
func TestWriter_CutAtEachChunk_LastEventHasWhatArrived(t *testing.T) { // O8
	t.Parallel()
	for _, k := range kinds {
		for cut := range len(k.chunks) + 1 {
			for _, end := range []func(w *Writer) error{
				func(w *Writer) error { return w.End(failedCall) },
				func(w *Writer) error { return w.Cancel() },
			} {
				var l, other log
				w := NewWriter(k.parsed(), head, l.add)
				require.NoError(t, begun(w))
				for _, c := range k.chunks[:cut] {
					require.NoError(t, w.Chunk([]byte(c)))
				}
				other.WriteString(l.String())
				usage := w.usage
				require.NoError(t, end(w))
				requireRules(t, l.String())
				require.NoError(t, w.End(nil), "it has ended")

				w = NewWriter(k.parsed(), head, other.add)
				require.NoError(t, w.Replay([]byte(other.String())), k.name)
				w.usage = usage // which is in no event before the last one
				require.NoError(t, end(w))
				require.Equal(t, l.String(), other.String(), "%s, cut at %d", k.name, cut)
			}
		}
	}
}

// A log that is cut behind any event continues with the next number, and a whole one stays as it is.
func TestReplay_CutBehindEachEvent_Continues(t *testing.T) { // O8
	t.Parallel()
	for _, k := range kinds {
		events := strings.SplitAfter(strings.TrimSuffix(k.events(), "\n"), "\n")
		for cut := 2; cut < len(events); cut++ {
			var l log
			l.WriteString(strings.Join(events[:cut], ""))
			if k.parsed().Background && cut == 2 {
				continue // the call has not been made
			}
			w := NewWriter(k.parsed(), head, l.add)
			require.NoError(t, w.Replay([]byte(l.String())))
			require.NoError(t, w.End(failedCall))
			requireRules(t, l.String())
		}
		whole := k.events()
		w := NewWriter(k.parsed(), head, func([]byte) error { return errors.New("an event") })
		require.NoError(t, w.Replay([]byte(whole)))
		require.NoError(t, w.End(failedCall))
		require.NoError(t, w.Cancel())
	}
	for _, wrong := range []string{"{", `{"sequence_number":1}`, `{"type":"response.created"}`} {
		require.Error(t, NewWriter(kinds[0].parsed(), head, nil).Replay([]byte(wrong+"\n")), wrong)
	}
}

// An upstream that speaks responses gives the events of one that speaks only chats: ids and numbers are berth's.
func TestEvent_EachKindFromAnUpstream_EventsOfTheChat(t *testing.T) { // O8
	t.Parallel()
	for _, k := range kinds {
		var l log
		w := NewWriter(k.parsed(), head, l.add)
		require.NoError(t, begun(w))
		chat := k.events()
		for line := range strings.Lines(chat) {
			if typ := gjson.Get(line, "type").Str; !k.cancel || typ != "response.cancelled" {
				require.NoError(t, w.Event([]byte(asUpstream.Replace(line))))
			}
		}
		if k.cancel {
			require.NoError(t, w.Cancel())
		} else {
			require.NoError(t, w.End(nil))
		}
		requireRules(t, l.String())
		require.Equal(t, chat, l.String(), k.name)
	}
}

// What an upstream sends that berth does not know is passed on with a number, and its errors end the response.
func TestEvent_OfAnotherKind_PassedOn(t *testing.T) { // O8
	t.Parallel()
	var l log
	w := NewWriter(kinds[0].parsed(), head, l.add)
	require.NoError(t, w.Event([]byte(`{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1","sequence_number":9}`)))
	require.NoError(t, w.Event([]byte(`{"type":"keepalive","sequence_number":3}`)))
	require.NoError(t, w.Event([]byte(`{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"ws_1","status":"in_progress","action":{}}}`)))
	require.NoError(t, w.Event([]byte(`{"type":"error","code":"x","message":"m","param":null,"sequence_number":7}`)))
	require.NoError(t, w.Event([]byte(`{"type":"response.output_text.delta","delta":"late"}`)))
	require.Error(t, w.Event([]byte(`[`)))
	require.NoError(t, w.End(nil))
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1","sequence_number":0}`, lines[0])
	require.JSONEq(t, `{"code":"x","message":"m"}`, gjson.Get(lines[2], "response.error").Raw)
	require.JSONEq(t, `[{"type":"web_search_call","id":"ws_1","status":"incomplete","action":{}}]`, gjson.Get(lines[2], "response.output").Raw)
	require.EqualValues(t, 2, gjson.Get(lines[2], "sequence_number").Int())
}

// Any chunks give events that follow the rules.
func TestWriter_AnyChunks_EventsFollowTheRules(t *testing.T) { // O8
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SampledFrom([]string{"", "a", "é", "😀", " ", `"`, "\n", "{", "}", `{"a":1}`, `{}`})
		chunk := rapid.Custom(func(t *rapid.T) string {
			s := texts.Draw(t, "text")
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0, 1:
				return says(s)[0]
			case 2:
				return thinks(rapid.SampledFrom([]string{"reasoning", "reasoning_content"}).Draw(t, "field"), s)[0]
			case 3:
				return refuses(s)[0]
			case 4, 5:
				return calls(rapid.IntRange(0, 3).Draw(t, "call"), rapid.SampledFrom([]string{"", "f"}).Draw(t, "name"), s)[rapid.IntRange(0, 1).Draw(t, "part")]
			case 6:
				return delta(`"tool_calls":[{"index":%d,"id":"c","type":"custom","custom":{"name":"q","input":%s}}]`, rapid.IntRange(0, 3).Draw(t, "call"), quote(s))
			case 7:
				return delta(annotation)
			case 8:
				return withLogprobs(s)
			default:
				return finish(rapid.SampledFrom([]string{"stop", "length", "content_filter", "tool_calls"}).Draw(t, "reason"))[rapid.IntRange(0, 1).Draw(t, "which")]
			}
		})
		k := rapid.SampledFrom(kinds).Draw(t, "request")
		var l log
		w := NewWriter(k.parsed(), head, l.add)
		require.NoError(t, begun(w))
		var err error
		for _, c := range rapid.SliceOfN(chunk, 0, 9).Draw(t, "chunks") {
			if err = w.Chunk([]byte(c)); err != nil {
				break
			}
		}
		switch {
		case err != nil || rapid.Bool().Draw(t, "fails"):
			require.NoError(t, w.End(failedCall))
		default:
			require.NoError(t, w.End(nil))
		}
		requireRules(t, l.String())
	})
}

// An event that cannot be passed on ends the calls of the writer with its error.
func TestWriter_EmitFails_ErrorAtEachEvent(t *testing.T) { // O8
	t.Parallel()
	broken := errors.New("broken")
	for _, k := range kinds {
		for n := range strings.Count(k.events(), "\n") {
			w := NewWriter(k.parsed(), head, func([]byte) error {
				if n--; n < 0 {
					return broken
				}
				return nil
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
			require.ErrorIs(t, err, broken, k.name)
		}
	}
}

// Chunks that no server should send do not get into a response.
func TestWriter_MalformedChunks_ErrorOrNothing(t *testing.T) { // O8
	t.Parallel()
	for chunk, fails := range map[string]bool{
		`{`: true, `null`: false, `[]`: false, `{"choices":null}`: false, `{"choices":[null,1,[]]}`: false, `{"choices":{"index":0}}`: false,
		`{"choices":[{"index":1,"delta":{"content":"of another choice"}}]}`: false,
		`{"choices":[{"delta":{"content":7,"refusal":[],"reasoning":{}}}]}`: false,
		`{"choices":[{"delta":{"tool_calls":[{"id":"a"}]}}]}`:               true,
		`{"usage":{"prompt_tokens":"many"}}`:                                false,
		`{"choices":[{"delta":{"annotations":[7]}}]}`:                       false,
	} {
		w := NewWriter(kinds[0].parsed(), head, func(e []byte) error { return fmt.Errorf("an event: %s", e) })
		err := w.Chunk([]byte(chunk))
		require.Equal(t, fails, err != nil, "%s: %v", chunk, err)
		if fails {
			require.NotContains(t, err.Error(), "an event", chunk)
		}
	}
	w := NewWriter(kinds[0].parsed(), head, func([]byte) error { return nil })
	for _, c := range concat(calls(0, "f", `{"a":1}`), calls(1, "g", "{}")) {
		require.NoError(t, w.Chunk([]byte(c)))
	}
	require.NoError(t, w.Chunk([]byte(calls(0, "", " \n")[1])))
	require.ErrorContains(t, w.Chunk([]byte(calls(0, "", "more")[1])), "continues")
}

// BenchmarkWriter_Delta is the cost of a chunk with a piece of text, in a response with large instructions.
func BenchmarkWriter_Delta(b *testing.B) {
	k := kind{request: `,"instructions":` + quote(strings.Repeat("Be brief. ", 10000))}
	w := NewWriter(k.parsed(), head, func([]byte) error { return nil })
	require.NoError(b, begun(w))
	chunk := []byte(says("Hello, ")[0])
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Chunk(chunk); err != nil {
			b.Fatal(err)
		}
	}
}

// Which response replaces one is known at its end: the events before it are the same with it.
func TestWriter_Replaced_OnlyLastEventNamesIt(t *testing.T) { // O8
	t.Parallel()
	written := func(h Head) []string {
		var l log
		w := NewWriter(kinds[0].parsed(), h, l.add)
		require.NoError(t, w.Begin())
		require.NoError(t, w.Started())
		require.NoError(t, w.Chunk([]byte(`{"choices":[{"delta":{"content":"One"}}]}`)))
		require.NoError(t, w.End(&openai.Error{Status: 503, Message: "it broke off"}))
		return strings.Split(strings.TrimSpace(l.String()), "\n")
	}
	h := head
	h.Replaces = "resp_first"
	plain := written(h)
	h.ReplacedBy = "resp_next"
	replaced := written(h)
	last := len(plain) - 1
	require.Equal(t, plain[:last], replaced[:last])
	require.Equal(t, "resp_next", gjson.Get(replaced[last], "response.replaced_by").Str)
	for _, e := range []string{plain[0], plain[last]} {
		require.Equal(t, "resp_first", gjson.Get(e, "response.replaces").Str)
		require.NotContains(t, e, "replaced_by")
	}
}
