package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth"
)

// Guards of other calls hold for forwarded ones.
func TestForward_HostileProvider_Bounded(t *testing.T) { // O4, P16
	t.Parallel()
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		cause  Cause
		body   string
	}{
		"sends nothing":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, CauseTimeout, streamBody},
		"whole answer, likewise": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, CauseTimeout, plainBody},
		"stops": {func(w http.ResponseWriter, r *http.Request) {
			send(w, chunkOf(`{"index":0,"delta":{"content":"x"}}`))
			<-r.Context().Done()
		}, CauseTimeout, streamBody},
		"never ends": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, chunkOf(`{"index":0,"delta":{"content":"`+strings.Repeat("x", 10_000)+`"}}`))
			}
		}, CauseEndless, streamBody},
		"one long line": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 1<<20))
			}
		}, CauseMalformed, streamBody},
		"chunks without choices": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, `{"x":"`+strings.Repeat("x", 100_000)+`"}`)
			}
		}, CauseMalformed, streamBody},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, row.answer)
			call := rawCall(row.body)
			call.Timeouts = Timeouts{FirstByte: 20 * time.Second, Idle: 20 * time.Second, Whole: 20 * time.Second}
			if row.cause == CauseTimeout {
				call.Timeouts = Timeouts{FirstByte: 50 * time.Millisecond, Idle: 50 * time.Millisecond, Whole: 50 * time.Millisecond}
			}
			_, err := p.client.Forward(t.Context(), call, func([]byte) error { return nil })
			require.Equal(t, row.cause, failure(t, err).Cause)
		})
	}
}

// An answer that is not streamed may take longer than the first byte of one that is.
func TestForward_WholeAnswerIsLate_WaitsForIt(t *testing.T) { // O1
	t.Parallel()
	late := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-late
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	})
	call := rawCall(plainBody)
	call.Timeouts = Timeouts{FirstByte: time.Millisecond, Idle: time.Minute}
	time.AfterFunc(100*time.Millisecond, func() { close(late) })
	_, err := p.client.Forward(t.Context(), call, func([]byte) error { return nil })
	require.NoError(t, err)
}

func TestForward_CallerEnds_ProviderIsLeft(t *testing.T) { // O7
	t.Parallel()
	left := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, chunkOf(`{"index":0,"delta":{"content":"four tokens of text"}}`))
		<-r.Context().Done()
		close(left)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has left")
	res, err := p.client.Forward(ctx, rawCall(streamBody), func([]byte) error {
		cancel(gone)
		return nil
	})
	require.ErrorIs(t, err, gone)
	require.True(t, res.Estimated)
	require.Equal(t, berth.Usage{InputTokens: 100, OutputTokens: 6}, res.Usage)
	<-left

	own := errors.New("cannot write")
	got := NewClient(Fixed(wireCatalog()), &http.Client{Transport: &wire{next: always(sse(chunkOf(`{"index":0,"delta":{"content":"x"}}`)))}}, slog.New(slog.DiscardHandler))
	_, err = got.Forward(t.Context(), rawCall(streamBody), func([]byte) error { return own })
	require.Equal(t, own, err)
}

// Whatever a server sends: a client has objects of the protocol, and no answer ends twice.
func FuzzForward_Stream(f *testing.F) {
	files, err := filepath.Glob("testdata/forward/*.http")
	require.NoError(f, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		_, body, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
		f.Add(body)
	}
	f.Add([]byte(`data: {"choices":[{"index":1,"message":{"tool_calls":[{"index":3},{"id":"a"},{"index":3,"id":"b"},{}]},"finish_reason":"stop"},{"delta":null}]}` + "\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, request := range []string{usageBody, plainBody} {
			raw := append([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"), body...)
			got := forwardWire(t, request, always(raw))
			for _, o := range got.objects {
				require.True(t, json.Valid([]byte(o)), "%s", o)
				require.True(t, utf8.ValidString(o))
				require.Equal(t, "chatcmpl-berth", gjson.Get(o, "id").Str)
				require.Equal(t, "chat", gjson.Get(o, "model").Str)
				require.True(t, gjson.Get(o, "choices").IsArray())
			}
			require.True(t, got.err != nil || len(got.objects) > 0)
		}
	})
}
