package sim_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"

	"berth/internal/ocr"
	"berth/internal/sim"
)

// server is a simulator behind a real socket, with the protocol's official client.
type server struct {
	*httptest.Server
	client openai.Client
}

func start(t *testing.T, opt sim.Options) *server {
	t.Helper()
	srv := httptest.NewServer(sim.ModelServer(opt))
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	return &server{srv, openai.NewClient(
		option.WithBaseURL(srv.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}))}
}

func (s *server) stats(t *testing.T) sim.Stats {
	t.Helper()
	var out sim.Stats
	s.call(t, http.MethodGet, "/sim/stats", "", http.StatusOK, &out)
	return out
}

func (s *server) call(t *testing.T, method, path, body string, status int, out any) http.Header {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, status, res.StatusCode, string(b))
	if out != nil {
		require.NoError(t, json.Unmarshal(b, out), string(b))
	}
	return res.Header
}

func (s *server) fault(t *testing.T, fault string) {
	t.Helper()
	s.call(t, http.MethodPost, "/sim/faults", fault, http.StatusOK, nil)
}

func question(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

const sentence = "We look for an engineer who knows Go, Redis and Kubernetes, and who likes quiet nights and clear words."

type streamed struct {
	content, finish, fingerprint string
	chunks                       int
	usage                        openai.CompletionUsage
}

func (s *server) stream(ctx context.Context, p openai.ChatCompletionNewParams, opts ...option.RequestOption) (streamed, error) {
	var out streamed
	st := s.client.Chat.Completions.NewStreaming(ctx, p, opts...)
	defer func() { _ = st.Close() }()
	for st.Next() {
		c := st.Current()
		out.fingerprint = c.SystemFingerprint //nolint:staticcheck // marks simulated answers
		if c.Usage.TotalTokens > 0 {
			out.usage = c.Usage
		}
		for _, ch := range c.Choices {
			out.chunks++
			out.content += ch.Delta.Content
			if ch.FinishReason != "" {
				out.finish = ch.FinishReason
			}
		}
	}
	return out, st.Err()
}

func TestCompletion_Streamed_IsPacedCompleteAndMarked(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{TokensPerSecond: 500, FirstTokenDelay: 20 * time.Millisecond})
	p := question("some-model", sentence)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	var raw *http.Response
	begin := time.Now()
	whole, err := s.stream(t.Context(), p, option.WithResponseInto(&raw))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond+time.Duration(whole.chunks-2)*2*time.Millisecond)
	require.Equal(t, "true", raw.Header.Get("X-Berth-Simulated"))
	require.Equal(t, "berth-simulator", whole.fingerprint)
	require.Equal(t, "stop", whole.finish)
	require.Contains(t, whole.content, sentence)
	require.Len(t, simulated.FindAllString(whole.content, -1), 1)
	require.Positive(t, whole.usage.PromptTokens)
	require.EqualValues(t, whole.chunks-2, whole.usage.CompletionTokens)
	require.Equal(t, whole.usage.TotalTokens, whole.usage.PromptTokens+whole.usage.CompletionTokens)
	require.Equal(t, sim.Counts{Calls: 1, PeakInFlight: 1}, s.await(t, func(st sim.Stats) bool { return st.Total.InFlight == 0 }).Models["some-model"])

	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	p.MaxTokens = param.NewOpt[int64](7)
	got, err := s.stream(t.Context(), p)
	require.NoError(t, err)
	require.Zero(t, got.usage.TotalTokens, "usage is sent on request")
	require.Equal(t, "length", got.finish)
	require.Equal(t, 7+2, got.chunks)
	require.True(t, strings.HasPrefix(whole.content, got.content))
}

func TestImage_DataURL_IsReadByOCR(t *testing.T) {
	t.Parallel()
	seen := make(chan []byte, 10)
	read := make(chan string, 10)
	s := start(t, sim.Options{OCR: func(_ context.Context, img []byte) (string, error) {
		seen <- img
		return <-read, nil
	}})
	ask := func(text, system, url string) (streamed, error) {
		read <- text
		p := question("glm-4.1v-thinking-flash", "")
		p.Messages = []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage(system),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("Transcribe."),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}),
			}),
		}
		return s.stream(t.Context(), p)
	}
	png := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG"))
	res, err := ask("Deck Hand\nNorwegian", "Transcribe images.", png)
	require.NoError(t, err)
	require.Equal(t, "\x89PNG", string(<-seen))
	require.True(t, strings.HasPrefix(res.content, "Deck Hand\nNorwegian\n"))
	require.Regexp(t, simulated, res.content)
	res, err = ask(" \n", "Transcribe images.", png)
	require.NoError(t, err)
	require.Equal(t, "[no text]", res.content)
	res, err = ask("Invoice 17\n\nItems\n• Two lamps\n• One chair", `Read the invoice: {"type":"object","required":["items"],"properties":{"items":{"type":"array","items":{"type":"string"}}}}`, png)
	require.NoError(t, err)
	require.JSONEq(t, `{"items":["Two lamps","One chair"]}`, res.content)
	for _, url := range []string{"https://example.org/a.png", "data:image/png;base64,%%%", "data:image/png,abc", "data:text/plain;base64,YQ=="} {
		_, err := ask("", "", url)
		requireStatus(t, err, http.StatusBadRequest)
	}
}

func TestImage_TesseractMissing_ErrorNamesThePackages(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{OCR: ocr.Tesseract("no-such-tesseract", time.Second, 1)})
	p := question("m", "")
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64,YQ=="}),
	})}
	_, err := s.stream(t.Context(), p)
	require.Contains(t, requireStatus(t, err, http.StatusServiceUnavailable).Message, "apt-get install tesseract-ocr")
}

func TestBadRequest_EachKind_ReturnsAProtocolError(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	const asked = `"model":"m","messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		path, body string
		status     int
		param      string
	}{
		{"/v1/chat/completions", `{`, 400, ""},
		{"/v1/chat/completions", `[]`, 400, ""},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
		{"/v1/chat/completions", `{"model":"m","messages":[]}`, 400, "messages"},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, 400, ""},
		{"/v1/chat/completions", `{` + asked + `,"n":0}`, 400, "n"},
		{"/v1/chat/completions", `{` + asked + `,"tools":[{"type":"function"}]}`, 400, "tools"},
		{"/v1/chat/completions", `{` + asked + `,"tool_choice":"required"}`, 400, "tool_choice"},
		{"/v1/chat/completions", `{` + asked + `,` + tools + `,"tool_choice":"often"}`, 400, "tool_choice"},
		{"/v1/chat/completions", `{` + asked + `,` + tools + `,"tool_choice":{"type":"function","function":{"name":"other"}}}`, 400, "tool_choice"},
		{"/v1/embeddings", `{"model":"m"}`, 400, "input"},
		{"/v1/embeddings", `{"model":"m","input":[]}`, 400, "input"},
		{"/v1/embeddings", `{"model":"m","input":["a",""]}`, 400, "input"},
		{"/v1/embeddings", `{"model":"m","input":["a",7]}`, 400, ""},
		{"/v1/embeddings", `{"input":"a"}`, 400, "model"},
		{"/v1/embeddings", `{"model":"m","input":"a","dimensions":5000}`, 400, "dimensions"},
		{"/v1/embeddings", `{"model":"m","input":"a","encoding_format":"hex"}`, 400, "encoding_format"},
		{"/v1/responses", `{}`, 404, ""},
		{"/sim/faults", `{"kind":"flood"}`, 400, ""},
		{"/sim/faults", `{"kind":"429","colour":"red"}`, 400, ""},
	} {
		var res struct {
			Error struct {
				Message, Type string
				Param         *string
			}
		}
		header := s.call(t, http.MethodPost, c.path, c.body, c.status, &res)
		require.NotEmpty(t, res.Error.Message, c.body)
		require.Equal(t, "invalid_request_error", res.Error.Type)
		require.Equal(t, "true", header.Get("X-Berth-Simulated"))
		if c.param == "" {
			require.Nil(t, res.Error.Param, c.body)
		} else {
			require.Equal(t, &c.param, res.Error.Param, c.body)
		}
	}
	require.Zero(t, s.stats(t).Total.InFlight)
}

func requireStatus(t *testing.T, err error, status int) *openai.Error {
	t.Helper()
	var apiErr *openai.Error
	require.True(t, errors.As(err, &apiErr), "%v", err)
	require.Equal(t, status, apiErr.StatusCode)
	require.NotEmpty(t, apiErr.Message)
	require.NotEmpty(t, apiErr.Type)
	return apiErr
}

func (s *server) await(t *testing.T, holds func(sim.Stats) bool) sim.Stats {
	t.Helper()
	var st sim.Stats
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if st = s.stats(t); holds(st) {
			return st
		}
		<-tick.C
	}
	require.Fail(t, "condition not reached", "%+v", st)
	return st
}
