package responses

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// What an upstream's last event has counts: items without events get theirs, and what events had is replaced.
func TestEvent_LastOneHasMore_ResponseHasIt(t *testing.T) { // O8
	t.Parallel()
	var l log
	w := NewWriter(kinds[0].parsed(), head, l.add)
	require.NoError(t, begun(w))
	for _, e := range []string{
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_up","status":"in_progress","summary":[]}}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_up","status":"completed","summary":[]}}`,
		`{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"rs_up","status":"completed","summary":[],"encrypted_content":"berth.a.b.c"},
			{"type":"function_call","id":"fc_up","call_id":"c","name":"f","arguments":"{}"},{"type":"compaction","id":"cmp_up","encrypted_content":"berth.a.b.d"},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[{"type":"url_citation","url":"u"}]},{"type":"video","url":"x"}]}],
			"usage":{"input_tokens":3,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}}}`,
	} {
		require.NoError(t, w.Take([]byte(strings.ReplaceAll(e, "\n", ""))))
	}
	require.NoError(t, w.End(nil))
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	last := gjson.Get(lines[len(lines)-1], "response")
	var ids []string
	for _, item := range last.Get("output").Array() {
		ids = append(ids, item.Get("id").Str)
	}
	require.Equal(t, []string{"rs_abc_0", "fc_abc_1", "cmp_up", "msg_abc_3"}, ids)
	require.Equal(t, "berth.a.b.c", last.Get("output.0.encrypted_content").Str)
	require.JSONEq(t, `{"input_tokens":3,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":1},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":5}`, last.Get("usage").Raw)
	for _, want := range []string{
		`"type":"response.function_call_arguments.delta","sequence_number":5,"item_id":"fc_abc_1","output_index":1,"delta":"{}"`,
		`"type":"response.output_text.delta"`, `"type":"response.output_text.annotation.added"`, `"delta":"Hi"`,
	} {
		require.Contains(t, l.String(), want)
	}
	for i, line := range lines {
		require.EqualValues(t, i, gjson.Get(line, "sequence_number").Int())
	}
}
