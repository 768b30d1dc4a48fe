package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/client"
)

// refuser is an API whose nodes accept no segment.
func refuser(t *testing.T) (api *client.Client, sent *atomic.Int32) {
	t.Helper()
	sent = &atomic.Int32{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions/{id}/jobs", func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status":503,"code":"no_node","detail":"no node for en:es","retryAfter":1}`)
	})
	mux.HandleFunc("GET /v1/sessions/{id}/events", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return client.New(srv.URL, "t"), sent
}

func TestTurn_NoNodeAcceptsSegment_EndsWithReasonAndAdvice(t *testing.T) {
	t.Parallel()
	api, sent := refuser(t)
	var info bytes.Buffer
	talk := conversation{api: api, session: "s", wait: time.Second, out: io.Discard, info: &info, begun: make(chan string, 1)}
	err := talk.run(t.Context(), strings.NewReader("hello\n")) // the input ends after the first segment
	require.ErrorContains(t, err, "no node accepted segment 0 within 1s (--wait): no node for en:es")
	require.ErrorContains(t, err, "`berth node run`")
	require.EqualValues(t, 2, sent.Load(), "one attempt and one retry within the limit")
	require.Contains(t, info.String(), "no node for en:es; retrying in 1 s")
}

func TestTurn_EventsRefused_EndsWithTheReason(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"status":401,"code":"unauthorized","detail":"the token has expired"}`)
	}))
	t.Cleanup(srv.Close)
	input, typing := io.Pipe() // nothing is typed
	t.Cleanup(func() { _ = typing.Close() })
	talk := conversation{api: client.New(srv.URL, "t"), session: "s", out: io.Discard, info: io.Discard, begun: make(chan string, 1)}
	err := talk.run(t.Context(), input)
	require.ErrorContains(t, err, "the token has expired")
	require.NotErrorIs(t, err, context.Canceled)
}
