package sim_test

import (
	"bytes"
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
	"github.com/openai/openai-go/v3/shared"
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
	content, reasoning, finish, fingerprint string
	chunks                                  int
	usage                                   openai.CompletionUsage
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
			var extra struct {
				Reasoning string `json:"reasoning_content"`
			}
			if err := json.Unmarshal([]byte(ch.Delta.RawJSON()), &extra); err != nil {
				return out, err
			}
			out.reasoning += extra.Reasoning
		}
	}
	return out, st.Err()
}

func TestCompletion_NotStreamed_IsCompleteAndMarked(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	var raw *http.Response
	res, err := s.client.Chat.Completions.New(t.Context(), question("some-model", sentence), option.WithResponseInto(&raw))
	require.NoError(t, err)
	require.Equal(t, "true", raw.Header.Get("X-Berth-Simulated"))
	require.Equal(t, "berth-simulator", res.SystemFingerprint) //nolint:staticcheck // marks simulated answers
	require.Equal(t, "some-model", res.Model)
	require.Equal(t, "stop", res.Choices[0].FinishReason)
	require.Contains(t, res.Choices[0].Message.Content, "Go, Redis, Kubernetes")
	require.Contains(t, res.Choices[0].Message.Content, "Simulated answer")
	require.Positive(t, res.Usage.PromptTokens)
	require.Equal(t, res.Usage.TotalTokens, res.Usage.PromptTokens+res.Usage.CompletionTokens)
	require.Equal(t, sim.Counts{Calls: 1, PeakInFlight: 1}, s.await(t, func(st sim.Stats) bool { return st.Total.InFlight == 0 }).Models["some-model"])
}

func TestCompletion_Streamed_EqualsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	p := question("deepseek-chat", sentence)
	whole, err := s.client.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	got, err := s.stream(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, whole.Choices[0].Message.Content, got.content)
	require.Equal(t, "stop", got.finish)
	require.Equal(t, "berth-simulator", got.fingerprint)
	require.Empty(t, got.reasoning)
	require.Greater(t, got.chunks, 20)
	require.Equal(t, whole.Usage.TotalTokens, got.usage.TotalTokens)

	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	got, err = s.stream(t.Context(), p)
	require.NoError(t, err)
	require.Zero(t, got.usage.TotalTokens, "usage is sent on request")

	p.MaxTokens = param.NewOpt[int64](7)
	got, err = s.stream(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "length", got.finish)
	require.True(t, strings.HasPrefix(whole.Choices[0].Message.Content, got.content))
}

func TestReasoningModel_Stream_SendsReasoningFirst(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	p := question("deepseek-reasoner", "Skipper\n\nRequirements\n- Go\n- Rust")
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	got, err := s.stream(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "Texts: 1, lines: 3, of these in lists: 2.", got.reasoning)
	require.NotContains(t, got.content, got.reasoning)
	require.Positive(t, got.usage.CompletionTokensDetails.ReasoningTokens)
}

func TestJSON_ObjectOrSchema_AnswerFits(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	p := question("deepseek-chat", sentence)
	p.ResponseFormat.OfJSONObject = &shared.ResponseFormatJSONObjectParam{}
	res, err := s.client.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	var free map[string]any
	require.NoError(t, json.Unmarshal([]byte(res.Choices[0].Message.Content), &free))
	require.Equal(t, []any{"Go", "Redis", "Kubernetes"}, free["names"])
	require.Contains(t, free["answer"], "Simulated answer")

	withSchema := func(schema map[string]any) (*openai.ChatCompletion, error) {
		p.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{
			OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "x", Schema: schema}},
		}
		return s.client.Chat.Completions.New(t.Context(), p)
	}
	res, err = withSchema(map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"skills", "level", "count", "who"},
		"properties": map[string]any{
			"skills": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
			"level":  map[string]any{"enum": []string{"junior", "senior"}},
			"count":  map[string]any{"type": "integer"},
			"who":    map[string]any{"$ref": "#/$defs/who"},
		},
		"$defs": map[string]any{"who": map[string]any{"type": "object", "required": []string{"name"}, "properties": map[string]any{"nick": map[string]any{"type": []string{"string", "null"}}, "name": map[string]any{"type": "string"}}}},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"skills":["Go","Redis","Kubernetes"],"level":"junior","count":1,"who":{"name":"We look for an engineer who knows Go, Redis and Kubernetes, and who likes quiet nights and clear words.","nick":null}}`,
		res.Choices[0].Message.Content)

	for name, schema := range map[string]map[string]any{
		"object": {"type": "string"},
		"schema": {"type": "object", "properties": map[string]any{"a": map[string]any{"$ref": "file:///etc/passwd"}}},
	} {
		_, err = withSchema(schema)
		require.Contains(t, requireStatus(t, err, http.StatusBadRequest).Message, name)
	}
}

func TestImage_DataURL_IsReadByOCR(t *testing.T) {
	t.Parallel()
	seen := make(chan []byte, 1)
	s := start(t, sim.Options{OCR: func(_ context.Context, img []byte) (string, error) {
		seen <- img
		return "Deck Hand\nNorwegian", nil
	}})
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 32)...)
	ask := func(url string) (*openai.ChatCompletion, error) {
		p := question("glm-4.1v-thinking-flash", "")
		p.Messages = []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Transcribe images."),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
				openai.TextContentPart("Transcribe."),
				openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: url}),
			}),
		}
		return s.client.Chat.Completions.New(t.Context(), p)
	}
	res, err := ask("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
	require.NoError(t, err)
	require.Equal(t, png, <-seen)
	require.True(t, strings.HasPrefix(res.Choices[0].Message.Content, "Deck Hand\nNorwegian\n"))
	require.Contains(t, res.Choices[0].Message.Content, "Simulated answer")

	for _, url := range []string{
		"https://example.org/a.png", "data:image/png;base64,%%%", "data:image/png,abc", "",
		"data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("GIF89a and so on")),
	} {
		_, err := ask(url)
		requireStatus(t, err, http.StatusBadRequest)
	}
}

func TestImage_TesseractMissing_ErrorNamesThePackages(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{OCR: ocr.Tesseract("no-such-tesseract", time.Second, 1)})
	_, err := s.client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
			openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{
				URL: "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n")),
			}),
		})},
	})
	require.Contains(t, requireStatus(t, err, http.StatusServiceUnavailable).Message, "apt-get install tesseract-ocr")
}

func TestImage_WithoutText_AnswersAsThePromptAsks(t *testing.T) {
	t.Parallel()
	h := sim.ModelServer(sim.Options{OCR: func(context.Context, []byte) (string, error) { return " \n", nil }})
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n")) + `"}}]}]}`
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/chat/completions", strings.NewReader(body)))
	require.Contains(t, w.Body.String(), `"content":"[no text]"`)
}

func TestBadRequest_EachKind_ReturnsAProtocolError(t *testing.T) {
	t.Parallel()
	s := start(t, sim.Options{})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/v1/chat/completions", `{`, 400},
		{http.MethodPost, "/v1/chat/completions", `[]`, 400},
		{http.MethodPost, "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400},
		{http.MethodPost, "/v1/chat/completions", `{"model":"m","messages":[]}`, 400},
		{http.MethodPost, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, 400},
		{http.MethodPost, "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"sound"}]}]}`, 400},
		{http.MethodPost, "/v1/embeddings", `{}`, 404},
		{http.MethodPost, "/sim/faults", `{"kind":"flood"}`, 400},
		{http.MethodGet, "/sim/faults", ``, 404},
		{http.MethodPost, "/sim/faults", `{"kind":"429","colour":"red"}`, 400},
	} {
		var res struct {
			Error struct{ Message, Type string }
		}
		header := s.call(t, c.method, c.path, c.body, c.status, &res)
		require.NotEmpty(t, res.Error.Message, c.body)
		require.Equal(t, "invalid_request_error", res.Error.Type)
		require.Equal(t, "true", header.Get("X-Berth-Simulated"))
	}
	require.Zero(t, s.stats(t).Total.InFlight)
}

func TestRequest_TooLarge_Returns413(t *testing.T) {
	t.Parallel()
	h := sim.ModelServer(sim.Options{})
	w := httptest.NewRecorder()
	body := io.MultiReader(strings.NewReader(`{"model":"m","x":"`), bytes.NewReader(bytes.Repeat([]byte("x"), 49<<20)))
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", body))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
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
