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
