package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"berth/internal/testprovider"
)

const (
	speaks    = "cap: 1, responses: true"
	onlyChats = "cap: 1"
	last      = ", rank: 2" // used after the others
)

const askResponse = `{"model":"large","input":"Hello","stream":true}`

// respond makes a response and returns its events; one that is refused has none.
func (m *models) respond(body string) (status int, events []gjson.Result, text string) {
	m.t.Helper()
	res, text := m.post("/responses", m.secret, body)
	for line := range strings.Lines(text) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events = append(events, gjson.Parse(data))
		}
	}
	return res.StatusCode, events, text
}

func lastOf(events []gjson.Result) gjson.Result {
	if len(events) == 0 {
		return gjson.Result{}
	}
	return events[len(events)-1]
}

// The events of a response are the same, whichever protocol its upstream speaks, and so is what is charged.
func TestResponses_UpstreamSpeaksThem_EventsOfAChat(t *testing.T) { // O8
	t.Parallel()
	// Comments are sent while an answer is awaited, as many as that takes.
	own := regexp.MustCompile(`(?m)(resp|msg)_[0-9A-Za-z]+|"created_at":[0-9]+|^:.*\n\n`)
	var texts []string
	for _, fields := range []string{speaks, onlyChats} {
		m := newModelsWith(t, []string{fields})
		m.providers[0].Answer(testprovider.Write(0, "One", " two"))
		status, events, text := m.respond(askResponse)
		require.Equal(t, http.StatusOK, status, text)
		require.Equal(t, "response.completed", lastOf(events).Get("type").Str)
		require.Equal(t, "One two", lastOf(events).Get("response.output.0.content.0.text").Str)
		_, whole := m.post("/responses", m.secret, `{"model":"large","input":"Hello"}`)
		require.Equal(t, "completed", gjson.Get(whole, "status").Str, whole)
		texts = append(texts, own.ReplaceAllString(text+whole, ""))
		for _, call := range m.calls(m.key.ID, 2) {
			require.EqualValues(t, []int64{1000, 10}, []int64{call.Usage.InputTokens, call.Usage.OutputTokens})
			require.Positive(t, call.Credits)
		}
	}
	require.Equal(t, texts[1], texts[0])
}

// What an upstream does wrong before it has answered is not seen by the client if another one answers, which may speak the other protocol.
func TestResponses_UpstreamFails_OtherProtocolAnswersUnseen(t *testing.T) { // O8, G13
	t.Parallel()
	failed := func(code string) string {
		return `{"type":"response.failed","response":{"status":"failed","error":{"code":"` + code + `","message":"as the test demands"}}}`
	}
	created := `{"type":"response.created","response":{"status":"in_progress","output":[]}}`
	for name, fault := range map[string]http.HandlerFunc{
		"status 429":        testprovider.Limited(time.Minute),
		"status 500":        testprovider.Status(500, "server_error"),
		"status 404":        testprovider.Status(404, "not_found"),
		"cut":               testprovider.Cut(""),
		"wrong content":     testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>")),
		"failed by a limit": testprovider.Events(created, failed("rate_limit_exceeded")),
		"failed":            testprovider.Events(created, failed("server_error")),
		"error event":       testprovider.Events(created, `{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null}`),
		"no last event":     testprovider.Events(created),
	} {
		for _, fields := range [][]string{{speaks, onlyChats}, {onlyChats, speaks}} {
			t.Run(fmt.Sprintf("%s, %s", name, fields[0]), func(t *testing.T) {
				t.Parallel()
				m := newModelsWith(t, []string{fields[0], fields[1] + last})
				m.providers[0].Fail(fault)
				status, events, text := m.respond(askResponse)
				require.Equal(t, http.StatusOK, status, text)
				require.Equal(t, "response.completed", lastOf(events).Get("type").Str, text)
				require.Equal(t, testprovider.Text, lastOf(events).Get("response.output.0.content.0.text").Str)
				for i, e := range events {
					require.EqualValues(t, i, e.Get("sequence_number").Int())
				}
				require.Positive(t, m.providers[0].Calls.Load())
				require.EqualValues(t, 1, m.providers[1].Calls.Load())
			})
		}
	}
}

// A response that breaks off after its client has a part of it fails with the reason, and is not made again.
func TestResponses_BreaksOffInAnswer_FailedEvent(t *testing.T) { // O8
	t.Parallel()
	delta := `{"type":"response.output_text.delta","item_id":"x","output_index":0,"content_index":0,"delta":"One","logprobs":[]}`
	for name, row := range map[string]struct {
		fault http.HandlerFunc
		code  string
	}{
		"cut":    {testprovider.Cut("One"), "connection"},
		"failed": {testprovider.Events(delta, `{"type":"response.failed","response":{"error":{"code":"server_error","message":"Sorry"}}}`), "provider_failed"},
		"error":  {testprovider.Events(delta, `{"type":"error","code":"rate_limit_exceeded","message":"slow"}`), "rate_limit_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModelsWith(t, []string{speaks, onlyChats + last})
			m.providers[0].Fail(row.fault)
			status, events, text := m.respond(askResponse)
			require.Equal(t, http.StatusOK, status, text)
			require.Equal(t, "response.failed", lastOf(events).Get("type").Str, text)
			require.Equal(t, row.code, lastOf(events).Get("response.error.code").Str, text)
			require.Contains(t, text, `"delta":"One"`)
			require.Zero(t, m.providers[1].Calls.Load())
			require.Positive(t, m.calls(m.key.ID, 1)[0].Credits)
		})
	}
}

// thinking answers with encrypted reasoning, and keeps the bodies of requests.
type thinking struct {
	mu     sync.Mutex //nolint:forbidigo // of a fake
	bodies []string
}

func (p *thinking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.bodies = append(p.bodies, string(body))
	p.mu.Unlock()
	item := `{"type":"reasoning","id":"rs_provider","summary":[],"encrypted_content":"gAAA.secret"}`
	testprovider.Events(
		`{"type":"response.output_item.added","output_index":0,"item":`+strings.Replace(item, "gAAA.secret", "", 1)+`}`,
		`{"type":"response.output_item.done","output_index":0,"item":`+item+`}`,
		`{"type":"response.completed","response":{"status":"completed","output":[`+item+`],"usage":{"input_tokens":5,"output_tokens":2}}}`,
	)(w, r)
}

// Encrypted reasoning is sent to the account that made it and to no other one, as that account has sent it, or the request is refused by its name.
func TestResponses_EncryptedReasoning_OnlyToItsAccount(t *testing.T) { // O8
	t.Parallel()
	m := newModelsWith(t, []string{onlyChats, speaks, speaks})
	var each [3]thinking
	m.providers[0].Fail(testprovider.Status(500, "server_error")) // it makes no reasoning
	m.providers[1].Answer(each[1].ServeHTTP)
	m.providers[2].Answer(each[2].ServeHTTP)
	_, events, text := m.respond(`{"model":"large","input":"Hello","stream":true,"store":false,"include":["reasoning.encrypted_content"]}`)
	require.Equal(t, "response.completed", lastOf(events).Get("type").Str, text)
	maker, another := 1, 2
	if len(each[2].bodies) > 0 {
		maker, another = 2, 1
	}
	made := &each[maker]
	require.JSONEq(t, `["reasoning.encrypted_content"]`, gjson.Get(made.bodies[0], "include").Raw)
	item := lastOf(events).Get("response.output.0")
	require.NotEqual(t, "rs_provider", item.Get("id").Str)
	m.providers[0].Fail(nil)

	body := `{"model":"large","input":[{"role":"user","content":"Hello"},` + item.Raw + `,{"role":"user","content":"Continue"}],"stream":true}`
	for range 3 {
		_, events, text = m.respond(body)
		require.Equal(t, "response.completed", lastOf(events).Get("type").Str, text)
	}
	require.Len(t, made.bodies, 4)
	for _, sent := range made.bodies[1:] {
		require.JSONEq(t, `{"id":"rs_provider","type":"reasoning","summary":[],"encrypted_content":"gAAA.secret"}`, gjson.Get(sent, "input.1").Raw)
	}
	require.Zero(t, m.providers[another].Calls.Load())

	m.providers[maker].Fail(testprovider.Status(500, "server_error"))
	status, _, text := m.respond(strings.Replace(body, `,"stream":true`, "", 1))
	require.Contains(t, []int{http.StatusBadGateway, http.StatusServiceUnavailable}, status, text)
	require.Zero(t, m.providers[another].Calls.Load(), "it cannot read the item")

	other := newModelsWith(t, []string{onlyChats})
	for refused, at := range map[string]*models{body: other, strings.Replace(body, item.Get("encrypted_content").Str, "gAAA.foreign", 1): m} {
		status, _, text = at.respond(refused)
		require.Equal(t, http.StatusBadRequest, status, text)
		require.Equal(t, "input[1].encrypted_content", gjson.Get(text, "error.param").Str)
	}
	require.Zero(t, other.providers[0].Calls.Load())
}

// A request that no chat can carry is served by an upstream that speaks responses, and refused by name without one.
func TestResponses_NoChatCanCarryIt_UpstreamThatSpeaksThem(t *testing.T) { // O8
	t.Parallel()
	m := newModelsWith(t, []string{onlyChats, speaks})
	body := strings.TrimSuffix(askResponse, "}") + `,"truncation":"auto"}`
	for range 2 {
		_, events, text := m.respond(body)
		require.Equal(t, "response.completed", lastOf(events).Get("type").Str, text)
	}
	require.Zero(t, m.providers[0].Calls.Load())
	status, _, text := newModelsWith(t, []string{onlyChats}).respond(body)
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Equal(t, "truncation", gjson.Get(text, "error.param").Str)
}

// Each row is a query, with the parameter that is refused; empty if it is accepted, for a response that does not exist.
func TestResponses_Query_UnknownParameterNamed(t *testing.T) { // O8
	t.Parallel()
	m := newModelsWith(t, []string{onlyChats})
	get := func(path, secret string) (int, gjson.Result) {
		res, err := m.http.Do(m.request(http.MethodGet, "/openai/v1/responses/resp_1"+path, secret, nil))
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, gjson.GetBytes(b, "error")
	}
	for query, param := range map[string]string{
		"": "", "?stream=true&starting_after=3&include_obfuscation=false": "", "?include=a": "", "?include=a&include=b": "", "?include[]=a&include%5B%5D=b": "",
		"?start_after=3": "start_after", "?stream=true&Stream=true": "Stream", "?stream=true&stream=false": "stream", "?limit=3": "limit", "?includes=a": "includes",
		"/input_items?limit=3&order=asc&after=msg_1&include[]=a": "", "/input_items?before=msg_1": "before", "/input_items?limit=1&limit=2": "limit",
		"?stream=false&starting_after=1": "starting_after", "?stream=true&starting_after=": "starting_after", "?starting_after=x": "starting_after",
		"?starting_after=-1": "starting_after", "?stream=": "stream", "?stream=yes": "stream", "?include_obfuscation=yes": "include_obfuscation", "?stream=false": "",
		"?starting_after=0": "", "/input_items?limit=": "limit", "/input_items?limit=0": "limit", "/input_items?order=": "order", "/input_items?order=up": "order",
		"/input_items?after=":      "after",
		"/input_items?stream=true": "stream", "/input_items?ticket=x": "ticket",
	} {
		status, refused := get(query, m.secret)
		if param == "" {
			require.Equal(t, []any{http.StatusNotFound, "response_not_found"}, []any{status, refused.Get("code").Str}, query)
			continue
		}
		require.Equal(t, []any{http.StatusBadRequest, param}, []any{status, refused.Get("param").Str}, query)
		require.Contains(t, refused.Get("message").Str, param)
	}
	status, refused := get("?start_after=3", m.secret)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "start_after: unknown parameter; the route has stream, starting_after, include, include_obfuscation, ticket", refused.Get("message").Str)
	status, _ = get("?stream=%zz", m.secret)
	require.Equal(t, http.StatusBadRequest, status)
	status, _ = get("?start_after=3", "sk-berth-unknown")
	require.Equal(t, http.StatusUnauthorized, status, "the key is checked first")
}

// The provider's work ends with that of its client.
func TestResponses_ClientLeaves_ProviderCancelledWithinSecond(t *testing.T) { // O7, O8
	t.Parallel()
	for _, part := range []string{"", "The ans"} {
		t.Run("after "+part, func(t *testing.T) {
			t.Parallel()
			m := newModelsWith(t, []string{speaks})
			m.providers[0].Answer(testprovider.Hang(part))
			ctx, leave := context.WithCancel(t.Context())
			req := m.request(http.MethodPost, "/openai/v1/responses", m.secret, strings.NewReader(askResponse), "Content-Type", "application/json").WithContext(ctx)
			res, err := m.http.Do(req) // once the stream has begun
			require.NoError(t, err)
			defer func() { _ = res.Body.Close() }()
			require.Eventually(t, func() bool { return m.providers[0].InFlight() == 1 }, 10*time.Second, 10*time.Millisecond)
			left := time.Now()
			leave()
			require.Eventually(t, func() bool { return m.providers[0].InFlight() == 0 }, 10*time.Second, time.Millisecond)
			require.Less(t, time.Since(left), time.Second)
		})
	}
}
