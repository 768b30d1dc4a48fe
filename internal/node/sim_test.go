package node

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
)

func TestSim_Translate_KnownWords(t *testing.T) {
	t.Parallel()
	sim := NewSim("n1", SimOptions{})
	for _, c := range []struct{ src, tgt, text, want string }{
		{"en", "es", "hello world", "hola mundo [sim]"},
		{"en", "es", "Hello, world!", "Hola, mundo! [sim]"},
		{"en", "fr", "good morning my friend", "bonjour my ami [sim]"},
		{"en", "zh", "hello world", "你好世界 [sim]"},
		{"en", "zh", "the big ship", "大船 [sim]"},
		{"zh", "en", "你好，世界", "hello，world [sim]"},
		{"zh", "de", "我们今天在港口", "wir heute in Hafen [sim]"},
		{"de", "zh", "Der Hafen ist groß", "港口是大 [sim]"},
		{"es", "en", "adiós amigos", "goodbye friends [sim]"},
		{"en", "es", "worldwide hello", "worldwide hola [sim]"},
		{"ja", "ko", "こんにちは", "こんにちは [sim]"},
		{"en", "es", "", " [sim]"},
	} {
		out, err := sim.Translate(t.Context(), berth.JobInput{Job: berth.Job{SrcLang: c.src, TgtLang: c.tgt}, Text: c.text})
		require.NoError(t, err)
		require.Equal(t, c.want, out.Text, "%s to %s", c.src, c.tgt)
	}
}

func TestSim_FailEvery_FailsEveryNthJob(t *testing.T) {
	t.Parallel()
	sim := NewSim("n1", SimOptions{FailEvery: 3})
	var failed []int
	for i := range 7 {
		if _, err := sim.Translate(t.Context(), segment); err != nil {
			require.Equal(t, berth.CodeNodeFailed, berth.CodeOf(err))
			failed = append(failed, i)
		}
	}
	require.Equal(t, []int{2, 5}, failed)
}

func TestSim_DeadlineExceeded_Returns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := NewSim("n1", SimOptions{Delay: time.Hour}).Translate(ctx, segment)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestSim_Execute_ReturnsItsInput(t *testing.T) {
	t.Parallel()
	out, err := NewSim("n1", SimOptions{}).Execute(t.Context(), berth.ExecuteInput{Executor: "report", Input: json.RawMessage(`{"a":1}`)})
	require.NoError(t, err)
	require.JSONEq(t, `{"executor":"report","input":{"a":1},"node":"n1"}`, string(out.Output))
}
