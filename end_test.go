package berth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestTerminalEvent(t *testing.T) { // T10, T13, T16
	t.Parallel()
	task := berth.Task{TaskPlan: berth.TaskPlan{TaskRequest: berth.TaskRequest{ID: "t", ServiceID: "s"}}, Status: berth.TaskCompleted, Usage: berth.Usage{InputTokens: 1, OutputTokens: 2}}
	answer, err := json.Marshal(berth.Answer{Text: "good", Items: []berth.Item{{Kind: "point", Value: json.RawMessage(`{"requirement":"Go","matched":true}`)}}})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		asset        berth.Asset
		text, result string
	}{
		"a match":   {berth.Asset{MediaType: berth.AnswerMediaType, Content: answer}, "good", `{"items":[{"kind":"point","value":{"requirement":"Go","matched":true}}]}`},
		"a batch":   {berth.Asset{MediaType: berth.JSONMediaType, Content: []byte(`{"a":1}`)}, "", `{"a":1}`},
		"a picture": {berth.Asset{MediaType: berth.TextMediaType, Content: []byte("read")}, "read", ""},
	} {
		ev, err := berth.TerminalEvent(task, c.asset)
		require.NoError(t, err, name)
		require.Equal(t, berth.EventDone, ev.Type, name)
		require.Equal(t, c.text, ev.Text, name)
		require.Equal(t, c.result, string(ev.Result), name)
		require.Equal(t, task.Usage, *ev.Usage, name)
	}
	_, err = berth.TerminalEvent(task, berth.Asset{MediaType: berth.JSONMediaType, Content: []byte("{")})
	require.Error(t, err)

	task.Status, task.ErrorCode, task.ErrorMessage = berth.TaskFailed, berth.CodeProviderKey, "no key"
	ev, err := berth.TerminalEvent(task, berth.Asset{})
	require.NoError(t, err)
	require.Equal(t, berth.EventError, ev.Type)
	require.Equal(t, berth.CodeProviderKey, ev.Code)
	require.Equal(t, berth.TaskFailed, ev.Status)
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	err := fmt.Errorf("outer: %w", berth.Invalid("field", "is %s", "wrong").With(cause))
	require.Equal(t, berth.CodeInvalid, berth.CodeOf(err))
	require.ErrorIs(t, err, cause)
	require.Equal(t, "outer: invalid: field: is wrong: cause", err.Error())
	require.Equal(t, berth.CodeInternal, berth.CodeOf(cause))
	require.Empty(t, berth.CodeOf(nil))
}
