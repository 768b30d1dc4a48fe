package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"berth"
	"berth/internal/eventstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "sk-very-secret-0123456789"

// provider is a server controlled by the test, and a client of it with its log.
type provider struct {
	client *Client
	log    *bytes.Buffer
	server *httptest.Server
}

func serve(t *testing.T, h http.HandlerFunc) provider {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server notices that its client left only once it has read the request.
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	p := provider{log: &bytes.Buffer{}, server: srv}
	p.client = clientOf(t, srv.URL+"/v1", p.log)
	return p
}

func clientOf(t *testing.T, url string, log io.Writer) *Client {
	t.Helper()
	catalog := builtin(t, Settings{
		Keys:     map[string]string{"DEEPSEEK_API_KEY": secret},
		BaseURLs: map[string]string{"deepseek": url},
	})
	hc := NewHTTPClient()
	t.Cleanup(hc.CloseIdleConnections)
	return NewClient(Fixed(catalog), hc, slog.New(slog.NewTextHandler(log, nil)))
}

func ask(timeouts Timeouts) Call {
	return Call{
		Model:    "deepseek-chat",
		Messages: []Message{TextMessage(RoleSystem, "Be brief."), TextMessage(RoleUser, "Hello?")},
		Timeouts: timeouts,
	}
}

func ignore(Delta) error { return nil }

func send(w http.ResponseWriter, lines ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, l := range lines {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", l)
	}
	w.(http.Flusher).Flush()
}

func content(s string) string {
	b, _ := json.Marshal(s)
	return `{"id":"1","choices":[{"index":0,"delta":{"content":` + string(b) + `}}]}`
}

const (
	stopChunk  = `{"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageChunk = `{"id":"1","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}`
	doneLine   = "[DONE]"
)

func failure(t *testing.T, err error) *CallError {
	t.Helper()
	var e *CallError
	require.True(t, errors.As(err, &e), "%v", err)
	require.Equal(t, e.Code, berth.CodeOf(err))
	require.NotEmpty(t, e.Message)
	require.NotContains(t, err.Error(), secret)
	return e
}

// Servers without streaming send the answer in one response.
func TestStream_UnstreamedResponse_OneDelta(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, `{"id": "1", "object": "chat.completion", "choices": [
			{"index": 0, "message": {"role": "assistant", "content": "你好,\nworld", "reasoning_content": "Hm."}, "finish_reason": "stop"}
		], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}`)
	})
	var got []Delta
	res, err := p.client.Stream(t.Context(), ask(Timeouts{}), func(d Delta) error {
		got = append(got, d)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []Delta{{Content: "你好,\nworld", Reasoning: "Hm."}}, got)
	require.Equal(t, "你好,\nworld", res.Text)
	require.Equal(t, "stop", res.FinishReason)
	require.Equal(t, berth.Usage{InputTokens: 11, OutputTokens: 7}, res.Usage)
}

func TestStream_StreamedResponse_DeltasInOrder(t *testing.T) {
	t.Parallel()
	var body map[string]any
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+secret {
			http.Error(w, "wrong call", http.StatusNotFound)
			return
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil {
			http.Error(w, "no JSON", http.StatusBadRequest)
			return
		}
		send(w, `{"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"Hm, "}}]}`,
			`{"id":"1","choices":[{"index":0,"delta":{"reasoning":"well."}}]}`)
		_, _ = io.WriteString(w, ": keep-alive\n\nnot an event at all\n\n")
		send(w, content("你好"), content(", "), content("world"), stopChunk, usageChunk, doneLine)
	})
	var got []Delta
	call := ask(Timeouts{})
	call.JSON = true
	res, err := p.client.Stream(t.Context(), call, func(d Delta) error {
		got = append(got, d)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []Delta{
		{Reasoning: "Hm, "}, {Reasoning: "well."}, {Content: "你好"}, {Content: ", "}, {Content: "world"},
	}, got)
	require.Equal(t, "你好, world", res.Text)
	require.Equal(t, berth.Usage{InputTokens: 11, OutputTokens: 7}, res.Usage)
	require.False(t, res.Estimated)
	require.Equal(t, "stop", res.FinishReason)
	require.Equal(t, "deepseek", res.Provider)
	require.False(t, res.Stub)
	require.Positive(t, res.FirstToken)
	require.GreaterOrEqual(t, res.Took, res.FirstToken)

	require.Equal(t, "deepseek-chat", body["model"])
	require.Equal(t, true, body["stream"])
	require.Equal(t, map[string]any{"include_usage": true}, body["stream_options"])
	require.Equal(t, map[string]any{"type": "json_object"}, body["response_format"])
	require.EqualValues(t, 8192, body["max_tokens"])
	require.Equal(t, []any{
		map[string]any{"role": "system", "content": "Be brief."},
		map[string]any{"role": "user", "content": "Hello?"},
	}, body["messages"])
	require.Empty(t, p.log.String())
}

// The next call reuses the connection, and the provider has finished a call before its slot is released.
func TestStream_CompleteAnswer_ConnectionReused(t *testing.T) {
	t.Parallel()
	var connections, answered atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		send(w, content("text"), stopChunk, usageChunk, doneLine)
		<-time.After(restWait / 10) // the provider finishes its own work
		answered.Add(1)
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := clientOf(t, srv.URL, io.Discard)
	c.rest = time.Minute // on a busy machine the provider takes longer
	for n := range 5 {
		_, err := c.Stream(t.Context(), ask(Timeouts{}), ignore)
		require.NoError(t, err)
		require.EqualValues(t, n+1, answered.Load())
	}
	require.EqualValues(t, 1, connections.Load())
}

// A provider that leaves the stream open after the answer does not delay the caller.
func TestStream_CompleteAnswerLeftOpen_ReturnsWithoutDelay(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, content("text"), stopChunk, doneLine)
		<-r.Context().Done()
	})
	res, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	require.NoError(t, err)
	require.Equal(t, "text", res.Text)
	require.Less(t, res.Took, afterEnd)
}

func TestStream_Image_SentAsPart(t *testing.T) {
	t.Parallel()
	var body struct {
		Messages []struct{ Content []map[string]any }
		Max      int `json:"max_completion_tokens"`
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		send(w, content("text"), stopChunk, doneLine)
	}))
	t.Cleanup(srv.Close)
	cfg, err := LoadConfig(rewrite(t, "keySetting: ZHIPUAI_API_KEY", "maxTokensField: max_completion_tokens"))
	require.NoError(t, err)
	catalog, err := NewCatalog(cfg, Settings{BaseURLs: map[string]string{"zhipu": srv.URL}})
	require.NoError(t, err)
	hc := NewHTTPClient()
	t.Cleanup(hc.CloseIdleConnections)
	msgs := []Message{{Role: RoleUser, Parts: []Part{{ImageURL: "data:image/png;base64,cG5n"}, {Text: "请转录这张图片中的文字。"}}}}
	res, err := NewClient(Fixed(catalog), hc, slog.New(slog.DiscardHandler)).
		Stream(t.Context(), Call{Model: "glm-4.1v-thinking-flash", Messages: msgs}, nil)
	require.NoError(t, err)
	require.Equal(t, "text", res.Text)
	require.Equal(t, 16384, body.Max)
	require.Equal(t, []map[string]any{
		{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,cG5n"}},
		{"type": "text", "text": "请转录这张图片中的文字。"},
	}, body.Messages[0].Content)
}

func TestStream_ModelSimulator_MarkedAsStub(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]bool{"header": true, "fingerprint": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var auth string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				auth = r.Header.Get("Authorization")
				if header {
					w.Header().Set(StubHeader, "true")
					send(w, content("hi"), stopChunk)
				} else {
					send(w, `{"system_fingerprint":"berth-simulator-1","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`)
				}
			}))
			t.Cleanup(srv.Close)
			hc := NewHTTPClient()
			t.Cleanup(hc.CloseIdleConnections)
			c := NewClient(Fixed(builtin(t, Settings{LocalURL: srv.URL + "/v1/"})), hc, slog.New(slog.DiscardHandler))
			res, err := c.Stream(t.Context(), ask(Timeouts{}), ignore)
			require.NoError(t, err)
			require.True(t, res.Stub)
			require.Equal(t, LocalProvider, res.Provider)
			require.Empty(t, auth)
		})
	}
}

func TestStream_ErrorResponse_CodeAndRetry(t *testing.T) {
	t.Parallel()
	type want struct {
		code      berth.Code
		retryable bool
		after     time.Duration
		message   string
	}
	jsonError := func(code string) string { return `{"error":{"message":"no","code":"` + code + `"}}` }
	for name, row := range map[string]struct {
		status int
		header http.Header
		body   string
		want   want
	}{
		"401":                 {401, nil, jsonError("invalid_api_key"), want{berth.CodeProviderKey, false, 0, "DEEPSEEK_API_KEY"}},
		"403":                 {403, nil, jsonError(""), want{berth.CodeProviderKey, false, 0, "(status 403: no): the operator has to check the rights of DEEPSEEK_API_KEY"}},
		"403 page":            {403, nil, "<!DOCTYPE html><title> Just a\nmoment&hellip;</title>", want{berth.CodeProviderRejected, false, 0, "in front of deepseek refused the call (status 403: Just a moment…): "}},
		"403 page, no title":  {403, nil, "\n<html>", want{berth.CodeProviderRejected, false, 0, "(status 403: a page): the operator has to check baseURL"}},
		"407":                 {407, nil, "", want{berth.CodeProviderRejected, false, 0, "proxy"}},
		"400":                 {400, nil, jsonError("invalid_request_error"), want{berth.CodeProviderRejected, false, 0, "400"}},
		"404":                 {404, nil, "", want{berth.CodeProviderRejected, false, 0, "404"}},
		"422":                 {422, nil, jsonError(""), want{berth.CodeProviderRejected, false, 0, "422"}},
		"402":                 {402, nil, jsonError(""), want{berth.CodeProviderRejected, false, 0, "credit"}},
		"429":                 {429, nil, jsonError(""), want{berth.CodeProviderUnavailable, true, 0, "too many"}},
		"429 seconds":         {429, http.Header{"Retry-After": {"7"}}, "", want{berth.CodeProviderUnavailable, true, 7 * time.Second, ""}},
		"429 milliseconds":    {429, http.Header{"Retry-After-Ms": {"250"}}, "", want{berth.CodeProviderUnavailable, true, 250 * time.Millisecond, ""}},
		"429 past":            {429, http.Header{"Retry-After": {"Mon, 02 Jan 2006 15:04:05 GMT"}}, "", want{berth.CodeProviderUnavailable, true, 0, ""}},
		"429 nonsense":        {429, http.Header{"Retry-After": {"soon"}}, "", want{berth.CodeProviderUnavailable, true, 0, ""}},
		"429 without end":     {429, http.Header{"Retry-After": {"1e300"}}, "", want{berth.CodeProviderUnavailable, true, time.Minute, ""}},
		"429 out of quota":    {429, http.Header{"Retry-After": {"7"}}, jsonError("insufficient_quota"), want{berth.CodeProviderRejected, false, 0, "credit"}},
		"429 Zhipu's balance": {429, nil, jsonError("1113"), want{berth.CodeProviderRejected, false, 0, "credit"}},
		"500":                 {500, nil, jsonError(""), want{berth.CodeProviderUnavailable, true, 0, "500"}},
		"502 HTML":            {502, nil, "<html>bad gateway</html>", want{berth.CodeProviderUnavailable, true, 0, "502"}},
		"503 seconds":         {503, http.Header{"Retry-After": {"3"}}, "", want{berth.CodeProviderUnavailable, true, 3 * time.Second, ""}},
		"redirect":            {307, http.Header{"Location": {"http://127.0.0.1:1/"}}, "", want{berth.CodeProviderRejected, false, 0, "307"}},
		"200 JSON":            {200, http.Header{"Content-Type": {"application/json"}}, "{}", want{berth.CodeProviderRejected, false, 0, "application/json"}},
		"200 unknown error":   {200, http.Header{"Content-Type": {"application/json"}}, `{"error":{"message":"no"}}`, want{berth.CodeProviderUnavailable, true, 0, "(no)"}},
		"200 HTML":            {200, http.Header{"Content-Type": {"text/html"}}, "<html>", want{berth.CodeProviderRejected, false, 0, "text/html"}},
		"huge body":           {500, nil, strings.Repeat("x", 1<<20), want{berth.CodeProviderUnavailable, true, 0, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				for k, v := range row.header {
					w.Header()[k] = v
				}
				w.WriteHeader(row.status)
				_, _ = io.WriteString(w, row.body)
			})
			_, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
			e := failure(t, err)
			require.Equal(t, row.want.code, e.Code)
			require.Equal(t, row.want.retryable, e.Retryable)
			require.Equal(t, row.want.after, e.RetryAfter)
			require.Equal(t, row.status, e.Status)
			require.Equal(t, "deepseek-chat", e.Model)
			require.Contains(t, e.Message, row.want.message)
			if e.Cause == CauseBadRequest {
				require.EqualValues(t, 2, calls.Load(), "again without stream_options")
			} else {
				require.EqualValues(t, 1, calls.Load(), "the client never retries")
			}
			require.Less(t, p.log.Len(), 1500)
		})
	}
}

func TestStream_RetryAfterDate_Parsed(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	after := failure(t, err).RetryAfter
	require.Greater(t, after, 50*time.Second)
	require.LessOrEqual(t, after, time.Minute)
}

// A wait of more than a minute pauses the model for a minute; a caller whose deadline is earlier than the end of the wait need not try.
func TestStream_RetryAfter_ComparedWithDeadline(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for after, want := range map[string]struct {
		pause, until time.Duration
		late         bool // for a deadline in an hour
	}{
		"": {}, "-5": {}, "soon": {}, "7": {7 * time.Second, 7 * time.Second, false}, "1800": {time.Minute, 30 * time.Minute, false},
		"7200": {time.Minute, 2 * time.Hour, true}, now.Add(24 * time.Hour).UTC().Format(http.TimeFormat): {time.Minute, 24 * time.Hour, true},
	} {
		e := endpoint{servedBy: "acme"}.statusError(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {after}}}, nil, now)
		require.Equal(t, want.pause, e.RetryAfter, after)
		if want.until == 0 {
			require.Zero(t, e.Until, after)
		} else {
			require.WithinDuration(t, now.Add(want.until), e.Until, time.Second, after)
		}
		before := e.Before(now.Add(time.Hour))
		require.Equal(t, want.late, !before.Retryable, after)
		require.Equal(t, want.late, strings.Contains(before.Message, "acme asks this server to wait until "+e.Until.UTC().Format("2006-01-02 ")), before.Message)
	}
}

func TestStream_KeyInErrorBody_Redacted(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"wrong key %s"}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	})
	call := ask(Timeouts{})
	call.Labels = []any{"task", "t-1", "step", "match"}
	_, err := p.client.Stream(t.Context(), call, ignore)
	require.Contains(t, p.log.String(), `msg="model call failed" task=t-1 step=match model=deepseek-chat`)
	require.Contains(t, failure(t, err).Err.Error(), "wrong key […]")
	require.Contains(t, p.log.String(), "wrong key")
	require.NotContains(t, p.log.String(), secret)
}

func TestStream_NoKey_SettingNamed(t *testing.T) {
	t.Parallel()
	c := NewClient(Fixed(builtin(t, Settings{})), nil, slog.New(slog.DiscardHandler))
	_, err := c.Stream(t.Context(), ask(Timeouts{}), ignore)
	e := failure(t, err)
	require.Equal(t, berth.CodeProviderKey, e.Code)
	require.False(t, e.Retryable)
	require.Contains(t, e.Message, "DEEPSEEK_API_KEY")

	_, err = c.Stream(t.Context(), Call{Model: "gpt"}, ignore)
	require.Equal(t, berth.CodeInternal, failure(t, err).Code)
}

func TestStream_ProviderUnreachable_Retryable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	_, err = clientOf(t, url, io.Discard).Stream(t.Context(), ask(Timeouts{}), ignore)
	e := failure(t, err)
	require.Equal(t, berth.CodeProviderUnavailable, e.Code)
	require.True(t, e.Retryable)
	require.Zero(t, e.Status)
}

// Each row is one way in which an answer can break.
func TestStream_BrokenAnswer_CodeAndRetry(t *testing.T) {
	t.Parallel()
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	short := Timeouts{FirstByte: 100 * time.Millisecond, Idle: 100 * time.Millisecond}
	for name, row := range map[string]struct {
		handler   func(http.ResponseWriter, *http.Request)
		timeouts  Timeouts
		limits    Limits
		code      berth.Code
		retryable bool
		unusable  bool
		cause     error
		text      string
	}{
		"stall before the header": {handler: hang, timeouts: short, code: berth.CodeProviderUnavailable, retryable: true, cause: errFirstByte},
		"stall before the first byte": {handler: func(w http.ResponseWriter, r *http.Request) {
			send(w)
			hang(w, r)
		}, timeouts: short, code: berth.CodeProviderUnavailable, retryable: true, cause: errFirstByte},
		"stall in the middle": {handler: func(w http.ResponseWriter, r *http.Request) {
			send(w, content("half"))
			hang(w, r)
		}, timeouts: Timeouts{FirstByte: time.Minute, Idle: 100 * time.Millisecond}, code: berth.CodeProviderUnavailable, retryable: true, cause: errIdle, text: "half"},
		"clean end without finish": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"))
		}, code: berth.CodeProviderUnavailable, retryable: true, cause: io.ErrUnexpectedEOF, text: "half"},
		"empty stream": {
			handler: func(w http.ResponseWriter, _ *http.Request) { send(w) },
			code:    berth.CodeProviderUnavailable, retryable: true,
		},
		"connection cut": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"))
			panic(http.ErrAbortHandler)
		}, code: berth.CodeProviderUnavailable, retryable: true, text: "half"},
		"garbage line": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"), "{\x00not json")
		}, code: berth.CodeProviderUnavailable, retryable: true, cause: errUnreadable, text: "half"},
		"done line within a text": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half\ndata: [DONE]"))
		}, code: berth.CodeProviderUnavailable, retryable: true, cause: io.ErrUnexpectedEOF, text: "half\ndata: [DONE]"},
		"error inside": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"), `{"error":{"message":"overloaded","code":"server_error"}}`)
		}, code: berth.CodeProviderUnavailable, retryable: true, text: "half"},
		"refusal inside": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, `{"error":{"message":"too long","type":"invalid_request_error"}}`)
		}, code: berth.CodeProviderRejected},
		"40 MB line": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 40<<20)+"\n\n")
		}, code: berth.CodeInvalidOutput, cause: eventstream.ErrLongLine},
		"endless text": {handler: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, content(strings.Repeat("more ", 4000)))
			}
		}, code: berth.CodeInvalidOutput, cause: errTooLong},
		"endless thought": {handler: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, `{"choices":[{"index":0,"delta":{"reasoning_content":"`+strings.Repeat("hm ", 5000)+`"}}]}`)
			}
		}, code: berth.CodeInvalidOutput, cause: errTooLong},
		"endless nothing": {handler: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				send(w, strings.Repeat(`{"choices":[]}`+"\n\ndata: ", 1000)+"{}")
			}
		}, limits: Limits{OutputBytes: 1 << 20, LineBytes: 1 << 20, WireBytes: 1 << 20}, code: berth.CodeInvalidOutput, cause: errTooMuch},
		"out of resources": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"), strings.Replace(stopChunk, "stop", "insufficient_system_resource", 1), doneLine)
		}, code: berth.CodeProviderUnavailable, retryable: true, text: "half"},
		"filtered": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, content("half"), strings.Replace(stopChunk, "stop", "content_filter", 1), doneLine)
		}, code: berth.CodeProviderRejected, text: "half"},
		"no text": {
			handler: func(w http.ResponseWriter, _ *http.Request) { send(w, stopChunk, doneLine) },
			code:    berth.CodeInvalidOutput, retryable: true, unusable: true,
		},
		"only thought": {handler: func(w http.ResponseWriter, _ *http.Request) {
			send(w, `{"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":"length"}]}`, doneLine)
		}, code: berth.CodeInvalidOutput},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, row.handler)
			if row.limits != (Limits{}) {
				p.client.limits = row.limits
			}
			res, err := p.client.Stream(t.Context(), ask(row.timeouts), ignore)
			e := failure(t, err)
			require.Equal(t, row.code, e.Code)
			require.Equal(t, row.retryable, e.Retryable)
			require.Equal(t, row.unusable, e.Unusable)
			require.Equal(t, errors.Is(row.cause, errTooLong), strings.Contains(e.Message, "shorter texts"), "only where the texts can be the cause")
			if row.cause != nil {
				require.ErrorIs(t, e.Err, row.cause)
			}
			if !errors.Is(row.cause, errTooLong) {
				require.Equal(t, row.text, res.Text)
			}
			require.LessOrEqual(t, len(res.Text), DefaultLimits().OutputBytes+64<<10)
		})
	}
}

func TestStream_AnswerCutByTokenLimit_FinishReasonReported(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		send(w, content("half an ans"), strings.Replace(stopChunk, "stop", "length", 1), doneLine)
	})
	res, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	require.NoError(t, err)
	require.Equal(t, "length", res.FinishReason)
}

func TestStream_UsageNotReported_Estimated(t *testing.T) {
	t.Parallel()
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		send(w, content("0123456789"), content("你好你好你"), stopChunk, doneLine)
	})
	res, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
	require.NoError(t, err)
	require.True(t, res.Estimated)
	require.Equal(t, berth.Usage{InputTokens: 5, OutputTokens: 6}, res.Usage)
}

// The provider's count is used where it can be true; sums of such counts can be stored.
func TestStream_UsageReported_CheckedAndDetailed(t *testing.T) {
	t.Parallel()
	estimated := berth.Usage{InputTokens: 5, OutputTokens: 2}
	for name, row := range map[string]struct {
		usage string
		want  berth.Usage
	}{
		"without details": {`{"prompt_tokens":11,"completion_tokens":7}`, berth.Usage{InputTokens: 11, OutputTokens: 7}},
		"with details": {
			`{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}`,
			berth.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 4, ReasoningTokens: 3},
		},
		"cache hits of DeepSeek": {
			`{"prompt_tokens":11,"completion_tokens":7,"prompt_cache_hit_tokens":6}`,
			berth.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 6},
		},
		"more details than tokens": {
			`{"prompt_tokens":11,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens_details":{"reasoning_tokens":-3}}`,
			berth.Usage{InputTokens: 11, OutputTokens: 7, CachedTokens: 11},
		},
		"largest numbers": {`{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807}`, estimated},
		"beyond numbers":  {`{"prompt_tokens":11,"completion_tokens":99999999999999999999}`, estimated},
		"negative":        {`{"prompt_tokens":-5,"completion_tokens":7}`, estimated},
		"text":            {`{"prompt_tokens":"many","completion_tokens":"few"}`, estimated},
		"nothing":         {`{"prompt_tokens":0,"completion_tokens":0}`, estimated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				send(w, content("text"), stopChunk, `{"id":"1","choices":[],"usage":`+row.usage+`}`, doneLine)
			})
			res, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
			require.NoError(t, err)
			require.Equal(t, row.want, res.Usage)
			require.Equal(t, row.want == estimated, res.Estimated)
		})
	}
}

// Reasons that berth does not know are faults: the answer may be half of one.
func TestStream_FinishReason_ByAllowList(t *testing.T) { // FM3
	t.Parallel()
	type want struct {
		finish    string
		cause     Cause
		retryable bool
	}
	rows := map[string]want{
		"cancelled": {cause: CauseFinish, retryable: true}, "abort": {cause: CauseFinish, retryable: true},
		"STOP": {finish: "stop"}, " stop ": {finish: "stop"}, "MAX_TOKENS": {finish: "length"}, "SAFETY": {cause: CauseRefused},
		strings.Repeat("long", 1000): {cause: CauseFinish, retryable: true}, "<script>\n": {cause: CauseFinish, retryable: true},
	}
	for reason, kind := range finishReasons {
		rows[reason] = map[finishKind]want{
			finishStop: {finish: "stop"}, finishLength: {finish: "length"}, finishFiltered: {cause: CauseRefused},
			finishOverload: {cause: CauseOverload, retryable: true}, finishTimeout: {cause: CauseTimeout, retryable: true},
			finishFailed: {cause: CauseUnknown, retryable: true}, finishTool: {cause: CauseTool, retryable: true},
		}[kind]
	}
	for reason, row := range rows {
		p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			quoted, _ := json.Marshal(reason)
			send(w, content("text"), strings.Replace(stopChunk, `"stop"`, string(quoted), 1), doneLine)
		})
		res, err := p.client.Stream(t.Context(), ask(Timeouts{}), ignore)
		require.Less(t, len(res.FinishReason), 100)
		if row.cause == "" {
			require.NoError(t, err, reason)
			require.Equal(t, row.finish, res.FinishReason, reason)
			continue
		}
		e := failure(t, err)
		require.Equal(t, row.cause, e.Cause, reason)
		require.Equal(t, row.retryable, e.Retryable, reason)
		require.Less(t, len(e.Message), 300)
		require.Positive(t, res.Usage.OutputTokens, "it was bought")
	}
}

// An answer with a finish reason is complete. A provider that then leaves the connection open or cuts it causes no error.
func TestStream_BrokenAfterFinishReason_Complete(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(r *http.Request){
		"hangs": func(r *http.Request) { <-r.Context().Done() },
		"cuts":  func(*http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				send(w, content("all of it"), stopChunk)
				after(r)
			})
			res, err := p.client.Stream(t.Context(), ask(Timeouts{Idle: time.Hour}), ignore)
			require.NoError(t, err)
			require.Equal(t, "all of it", res.Text)
		})
	}
}

func TestStream_ContextEnds_StopsWithItsCause(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, content("first"))
		<-r.Context().Done()
		close(gone)
	})
	lost := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	res, err := p.client.Stream(ctx, ask(Timeouts{}), func(Delta) error {
		cancel(lost)
		return nil
	})
	require.ErrorIs(t, err, lost)
	var e *CallError
	require.False(t, errors.As(err, &e), "a cancelled context is not reported as a failure of the provider")
	require.Equal(t, "first", res.Text)
	require.True(t, res.Estimated)
	<-gone
	require.Empty(t, p.log.String())
}

func TestStream_ReaderFails_StopsWithItsError(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		send(w, content("first"))
		<-r.Context().Done()
		close(gone)
	})
	fenced := errors.New("fenced")
	_, err := p.client.Stream(t.Context(), ask(Timeouts{}), func(Delta) error { return fenced })
	require.Equal(t, fenced, err)
	<-gone
}

// A slow reader of the answer is not mistaken for a provider that sends nothing.
func TestStream_ReaderBusy_NoIdleTimeout(t *testing.T) {
	t.Parallel()
	received := make(chan struct{}, 2)
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		send(w, content("a"))
		<-received
		send(w, content("b"), stopChunk, doneLine)
	})
	idle := 2 * time.Second
	res, err := p.client.Stream(t.Context(), ask(Timeouts{Idle: idle}), func(d Delta) error {
		if d.Content == "a" {
			<-time.After(idle + idle/2) // the reader must be busy for longer than the timeout
		}
		received <- struct{}{}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "ab", res.Text)
}

// A call that waits for a slot is made as it was prepared, whatever the routing file has become meanwhile; the next one follows the file.
func TestStream_CatalogReplaced_PreparedCallUnchangedNextOneFollows(t *testing.T) { // G15
	t.Parallel()
	asked := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- r.URL.Path + " " + gjson.GetBytes(body, "model").Str
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(srv.Close)
	serving := func(path, id string) *Catalog {
		catalog, err := NewCatalog(Config{
			Providers: map[string]ProviderConfig{"p": {BaseURL: srv.URL + path}}, Models: map[string]ModelConfig{"m": {UpstreamConfig: UpstreamConfig{Provider: "p", ID: id}}},
		}, Settings{})
		require.NoError(t, err)
		return catalog
	}
	var current atomic.Pointer[Catalog]
	current.Store(serving("/old", "m-1"))
	c := NewClient(func(string) *Catalog { return current.Load() }, srv.Client(), slog.New(slog.DiscardHandler))
	call := Call{Model: "m", MaxTokens: 9, Timeouts: Timeouts{FirstByte: time.Minute, Idle: time.Minute}, Messages: []Message{{Role: RoleUser, Parts: []Part{{Text: "?"}}}}}
	prepared, err := c.Prepare(call)
	require.NoError(t, err)
	current.Store(serving("/new", "m-2"))
	for _, call := range []Call{prepared, call} {
		_, err = c.Stream(t.Context(), call, func(Delta) error { return nil })
		require.NoError(t, err)
	}
	require.Equal(t, "/old/chat/completions m-1", <-asked)
	require.Equal(t, "/new/chat/completions m-2", <-asked)
}
