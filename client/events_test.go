package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestDecode_StreamCutOff_YieldsCompleteEvents(t *testing.T) {
	t.Parallel()
	const wire = ": comment\n\nretry: 1000\n\n" +
		"id: 1-1\nevent: token\ndata: {\"text\":\"a\"}\n\n" +
		"id: 1-2\r\nevent: token_batch\r\ndata: {\"text\":\r\ndata: \"b\"}\r\n\r\n" +
		"id: 1-3\nevent: done\ndata: {\"text\":\"cut off"
	var got []StreamEvent
	decode(strings.NewReader(wire), func(f frame, err error) bool {
		ev, err := f.taskEvent(err)
		require.NoError(t, err)
		got = append(got, ev)
		return true
	})
	require.Len(t, got, 2, "an incomplete event is not yielded")
	require.Equal(t, "1-1", got[0].ID)
	require.Equal(t, berth.EventToken, got[0].Event.Type)
	require.Equal(t, "a", got[0].Event.Text)
	require.Equal(t, berth.EventTokenBatch, got[1].Event.Type)
	require.Equal(t, "b", got[1].Event.Text)
}

// The standard knows three line ends and a byte order mark, which proxies and other servers may send.
func TestDecode_FormsOfTheStandard_SameEvents(t *testing.T) { // FM1
	t.Parallel()
	const wire = "id: 1-1\nevent: token\ndata: {\"text\":\"a\"}\n\n"
	for name, stream := range map[string]string{
		"LF": wire, "CRLF": strings.ReplaceAll(wire, "\n", "\r\n"), "CR": strings.ReplaceAll(wire, "\n", "\r"),
		"byte order mark": "\ufeff" + wire, "no spaces": strings.ReplaceAll(wire, ": ", ":"),
	} {
		var got []StreamEvent
		decode(strings.NewReader(stream), func(f frame, err error) bool {
			ev, err := f.taskEvent(err)
			require.NoError(t, err, name)
			got = append(got, ev)
			return true
		})
		require.Len(t, got, 1, name)
		require.Equal(t, "1-1", got[0].ID, name)
		require.Equal(t, berth.EventToken, got[0].Event.Type, name)
		require.Equal(t, "a", got[0].Event.Text, name)
	}
}

func TestDecode_MalformedJSON_ReturnsPermanentError(t *testing.T) {
	t.Parallel()
	var last error
	decode(strings.NewReader("event: token\ndata: no json\n\n"), func(f frame, err error) bool {
		_, last = f.taskEvent(err)
		return true
	})
	require.ErrorContains(t, last, "decode event")
	require.True(t, permanent(last))
}
