package testprovider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Write answers with chunks, one after each interval, and the usage; a request that is not for a stream with the whole text after all of them, one for
// embeddings with a vector, and one for a response with its events.
func Write(every time.Duration, chunks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if isResponse(r) {
			respond(w, r, every, chunks)
			return
		}
		if wants := requested(r); !wants.Stream {
			if wait(r, every*time.Duration(len(chunks))) {
				whole(w, r, strings.Join(chunks, ""))
			}
			return
		}
		for _, text := range chunks {
			if !wait(r, every) {
				return
			}
			chunk(w, text, nil)
		}
		chunk(w, "", "stop")
		c := callOf(r)
		send(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":%d}}}`, c.prompt, c.cached))
		c.end()
		send(w, "[DONE]")
	}
}

// request is what decides how a call is answered.
type request struct {
	Stream bool `json:"stream"`
}

func requested(r *http.Request) (wants request) {
	body, _ := io.ReadAll(r.Body) // it is in memory
	r.Body = io.NopCloser(bytes.NewReader(body))
	_ = json.Unmarshal(body, &wants) // what is not readable is not for a stream
	return wants
}

func whole(w http.ResponseWriter, r *http.Request, text string) {
	c := callOf(r)
	answer := map[string]any{"object": "chat.completion", "choices": []any{map[string]any{
		"index": 0, "message": map[string]any{"role": "assistant", "content": text}, "finish_reason": "stop",
	}}, "usage": map[string]any{"prompt_tokens": c.prompt, "completion_tokens": 10, "total_tokens": c.prompt + 10}}
	if strings.HasSuffix(r.URL.Path, "/embeddings") {
		answer = map[string]any{"object": "list", "data": []any{map[string]any{"object": "embedding", "index": 0, "embedding": []float64{0.5, -0.25}}}, "usage": map[string]any{
			"prompt_tokens": c.prompt, "total_tokens": c.prompt,
		}}
	}
	b, _ := json.Marshal(answer) // never fails
	c.end()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// Status refuses calls with an error of the protocol.
func Status(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"as the test demands"}}`, code)
	}
}

// Limited refuses calls with the status 429, and with Retry-After if that is at least a second.
func Limited(retryAfter time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if retryAfter >= time.Second {
			w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
		}
		Status(http.StatusTooManyRequests, "rate_limit_exceeded")(w, r)
	}
}

// Cut closes the connection after a part of an answer, which may be empty.
func Cut(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin(w, r, part)
		panic(http.ErrAbortHandler)
	}
}

// CutFirst cuts the next calls after a part of an answer, and answers those that follow.
func (s *Server) CutFirst(calls int64, part string, then http.HandlerFunc) {
	cut, last := Cut(part), s.Calls.Load()+calls
	s.Answer(func(w http.ResponseWriter, r *http.Request) {
		if s.Calls.Load() <= last {
			cut(w, r)
		}
		then(w, r)
	})
}

// Hang sends nothing after a part of an answer, which may be empty, until the caller leaves.
func Hang(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin(w, r, part)
		<-r.Context().Done()
	}
}

// begin sends a part of an answer, which may be empty: then a response has begun, and a chat has not.
func begin(w http.ResponseWriter, r *http.Request, part string) {
	switch {
	case isResponse(r) && part == "":
		Events(beginning()...)(w, r)
	case isResponse(r):
		Events(append(beginning(), textDelta(part))...)(w, r)
	case part != "":
		chunk(w, part, nil)
	}
}

// Finish ends an answer for a reason.
func Finish(part, reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { chunk(w, part, reason) }
}

// wait reports whether the caller is still there after a time.
func wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context().Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// Part sends a part of an answer.
func Part(w http.ResponseWriter, text string) { chunk(w, text, nil) }

func chunk(w http.ResponseWriter, text string, finish any) {
	b, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{ // never fails
		"index": 0, "delta": map[string]any{"content": text}, "finish_reason": finish,
	}}})
	send(w, string(b))
}

func send(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data) // fails only if the caller has left
	w.(http.Flusher).Flush()                    //nolint:errcheck,forcetypeassert // the server's own
}

// Replay answers with a raw response, as a server sent it, in flushes of a few bytes.
func Replay(raw []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		part := make([]byte, replayBytes)
		for err == nil {
			var n int
			n, err = resp.Body.Read(part)
			_, _ = w.Write(part[:n]) // fails only if the caller has left
			w.(http.Flusher).Flush() //nolint:errcheck,forcetypeassert // the server's own
		}
	}
}

// replayBytes is the size of a flush, which cuts events.
const replayBytes = 61
