package api_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/identity"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/testprovider"
)

// models is the API with providers of the test, called up1 and up2, and a key of team t.
type models struct {
	*harness
	providers []*testprovider.Server
	secret    string
	key       berth.APIKey
}

// newModels starts the API with the model large, which an upstream serves for each cap. Its calls cost 1 credit per 1,000 tokens of input, and 10 of
// output.
func newModels(t *testing.T, caps []int, change ...func(*api.Deps)) *models {
	t.Helper()
	return newModelsWith(t, convert(caps, func(c int) string { return fmt.Sprintf("cap: %d", c) }), change...)
}

func convert[A, B any](list []A, one func(A) B) (out []B) {
	for _, a := range list {
		out = append(out, one(a))
	}
	return out
}

// newModelsWith is newModels with further fields of each upstream.
func newModelsWith(t *testing.T, fields []string, change ...func(*api.Deps)) *models {
	t.Helper()
	m := &models{}
	text := "providers:\n"
	for i := range fields {
		p := testprovider.Start(t)
		m.providers = append(m.providers, p)
		text += fmt.Sprintf("  p%d: {baseURL: %q, keyOptional: true}\n", i+1, p.URL)
	}
	text += "models:\n  large:\n    aliases: [gpt-large]\n    credits: {input: 1000, output: 10000}\n    upstreams:\n"
	for i, more := range fields {
		text += fmt.Sprintf("      - {name: up%d, provider: p%d, %s, maxOutputTokens: 1000, extra: [top_k]}\n", i+1, i+1, more)
	}
	content, err := llm.ParseContent("routing.yaml", text)
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	m.harness = newHarness(t, append([]func(*api.Deps){func(d *api.Deps) {
		d.Routing = routing.Fixed(catalog)
		d.Config.CallHold = 200 * time.Millisecond
	}}, change...)...)
	require.NoError(t, m.ledger.PutTeam(t.Context(), berth.Team{ID: "t"}, "op"))
	m.key, m.secret = m.newKey(berth.KeySettings{})
	return m
}

// newKey creates a key of team t.
func (m *models) newKey(settings berth.KeySettings) (berth.APIKey, string) {
	m.t.Helper()
	secret := apikey.NewSecret()
	settings.Hint, settings.Durability = apikey.Hint(secret), cmp.Or(settings.Durability, berth.DurabilityDirect) // no worker runs
	key, err := m.ledger.CreateKey(m.t.Context(), berth.APIKey{ID: berth.NewID("key_"), TeamID: "t", KeySettings: settings, CreatedBy: "op"}, apikey.Hash(secret))
	require.NoError(m.t, err)
	return key, secret
}

// client returns the official client with a key. It does not retry.
func (m *models) client(secret string, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(m.base + "/openai/v1"), option.WithAPIKey(secret), option.WithHTTPClient(m.http), option.WithMaxRetries(0),
	}, options...)...)
}

func ask(text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "large", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}
}

// post sends a body to a route.
func (m *models) post(path, secret, body string, header ...string) (*http.Response, string) {
	m.t.Helper()
	res, err := m.http.Do(m.request(http.MethodPost, "/openai/v1"+path, secret, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, header...)...))
	require.NoError(m.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(m.t, err)
	return res, string(b)
}

const hello = `{"model":"large","messages":[{"role":"user","content":"Hello"}]}`

func streamed(body string) string { return strings.TrimSuffix(body, "}") + `,"stream":true}` }

// calls returns the usage log of a user or key, once it has as many rows as expected and all have an outcome.
func (m *models) calls(user string, want int) (calls []ledger.ModelCall) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		var err error
		calls, _, err = m.ledger.UsageLog(context.Background(), ledger.UsageQuery{UserID: user}, "", 200)
		require.NoError(c, err)
		require.Len(c, calls, want)
		for _, call := range calls {
			require.False(c, call.FinishedAt.IsZero())
		}
	}, 10*time.Second, 20*time.Millisecond)
	return calls
}

func TestOpenAI_OfficialClient_Answered(t *testing.T) { // O1, O10
	t.Parallel()
	m := newModels(t, []int{2})
	client := m.client(m.secret)
	answer, err := client.Chat.Completions.New(t.Context(), ask("Hello"))
	require.NoError(t, err)
	require.Equal(t, testprovider.Text, answer.Choices[0].Message.Content)
	require.Equal(t, "large", answer.Model)

	stream := client.Chat.Completions.NewStreaming(t.Context(), ask("Hello"))
	joined := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		joined.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err())
	require.Equal(t, testprovider.Text, joined.Choices[0].Message.Content)

	vectors, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "gpt-large", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("x")}})
	require.NoError(t, err)
	require.Equal(t, []float64{0.5, -0.25}, vectors.Data[0].Embedding)

	list, err := client.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Data, 2)
	one, err := client.Models.Get(t.Context(), "gpt-large")
	require.NoError(t, err)
	require.Equal(t, "p1", one.OwnedBy)

	calls := m.calls(m.key.ID, 3)
	for _, call := range calls {
		require.True(t, call.Success)
		require.Equal(t, [3]string{"t", "up1", "large"}, [3]string{call.TeamID, call.Upstream, call.Model})
		require.Positive(t, call.Credits)
	}
	require.Equal(t, berth.StepName("embeddings"), calls[0].Name)
	require.Zero(t, m.count("calls"))
}

// Every mistake has the envelope of the protocol, and no effect.
func TestOpenAI_Mistakes_NamedInEnvelope(t *testing.T) { // O1, O5
	t.Parallel()
	m := newModels(t, []int{1})
	_, limited := m.newKey(berth.KeySettings{Models: []string{"other"}})
	operator := m.token("op", identity.ScopeOperator, identity.ScopeUser)
	with := func(field string) string { return strings.TrimSuffix(hello, "}") + "," + field + "}" }
	for name, c := range map[string]struct {
		method, path, secret, body string
		whole                      string // path, in place of one below /openai/v1
		status                     int
		code, param, says, allow   string
	}{
		"no key":             {path: "/chat/completions", body: hello, status: 401, code: "invalid_api_key"},
		"unknown key":        {path: "/chat/completions", secret: apikey.NewSecret(), body: hello, status: 401, code: "invalid_api_key"},
		"broken key":         {path: "/chat/completions", secret: "sk-berth-x", body: hello, status: 401, code: "invalid_api_key"},
		"another key":        {path: "/chat/completions", secret: "sk-proj-abc", body: hello, status: 401, code: "invalid_api_key"},
		"operator's token":   {path: "/chat/completions", secret: operator, body: hello, status: 403, code: "permission_denied"},
		"no model":           {path: "/chat/completions", secret: m.secret, body: strings.Replace(hello, `"model":"large",`, "", 1), status: 400, code: "missing_required_parameter", param: "model"},
		"unknown model":      {path: "/chat/completions", secret: m.secret, body: strings.Replace(hello, "large", "huge", 1), status: 404, code: "model_not_found", param: "model"},
		"model of others":    {path: "/chat/completions", secret: limited, body: hello, status: 404, code: "model_not_found", param: "model"},
		"no messages":        {path: "/chat/completions", secret: m.secret, body: `{"model":"large"}`, status: 400, code: "missing_required_parameter", param: "messages"},
		"no JSON":            {path: "/chat/completions", secret: m.secret, body: `{"model":`, status: 400},
		"empty":              {path: "/chat/completions", secret: m.secret, status: 400},
		"unknown parameter":  {path: "/chat/completions", secret: m.secret, body: with(`"min_p":1`), status: 400, code: "unknown_parameter", param: "min_p"},
		"unknown tier":       {path: "/chat/completions", secret: m.secret, body: with(`"service_tier":"gold"`), status: 400, code: "invalid_value", param: "service_tier", says: "service_tier: must be one of auto, "},
		"unknown null":       {path: "/chat/completions", secret: m.secret, body: with(`"min_p":null,"top_k":-1,"n":0`), status: 400, param: "n", says: "n: must be"},
		"wrong type":         {path: "/chat/completions", secret: m.secret, body: with(`"model":5`), status: 400, says: "model"},
		"text of a message":  {path: "/chat/completions", secret: m.secret, body: `{"model":"large","messages":[{"role":5,"content":"x"}]}`, status: 400, param: "messages[0].role", says: "messages[0].role: must be a text"},
		"no /openai":         {whole: "/v1/chat/completions", secret: m.secret, body: hello, status: 404, code: "not_found", says: "ends with /openai/v1"},
		"no /openai/v1":      {whole: "/chat/completions", body: hello, status: 404, code: "not_found", says: "ends with /openai/v1"},
		"a slash too many":   {whole: "//chat/completions", body: hello, status: 404, code: "not_found", says: "ends with /openai/v1"},
		"responses":          {whole: "/v1/responses", body: hello, status: 404, code: "not_found", says: "ends with /openai/v1"},
		"store":              {path: "/chat/completions", secret: m.secret, body: with(`"store":true`), status: 400, code: "unsupported_value", param: "store"},
		"unknown path":       {path: "/audio/speech", secret: m.secret, body: `{}`, status: 404, code: "not_found"},
		"unknown path, get":  {method: http.MethodGet, path: "/files", secret: m.secret, status: 404, code: "not_found"},
		"empty id":           {method: http.MethodGet, path: "/responses/", secret: m.secret, status: 404, code: "not_found", says: "has chat/completions, embeddings, responses, models"},
		"input_tokens":       {path: "/responses/input_tokens", secret: m.secret, body: `{}`, status: 404, code: "not_found", says: "is not a route of berth"},
		"compact":            {path: "/responses/compact", secret: m.secret, body: `{}`, status: 404, code: "not_found", says: "is not a route of berth"},
		"method of response": {path: "/responses/resp_1", secret: m.secret, body: `{}`, status: 405, allow: "GET, DELETE", says: "only GET, DELETE"},
		"wrong method":       {method: http.MethodGet, path: "/chat/completions", secret: m.secret, status: 405, allow: "POST", says: "does not accept GET, only POST"},
		"method of a list":   {path: "/models", secret: m.secret, status: 405, allow: "GET", says: "/openai/v1/models does not accept POST, only GET"},
		"method of a model":  {method: http.MethodDelete, path: "/models/large", secret: m.secret, status: 405, allow: "GET", says: "only GET"},
		"model not found":    {method: http.MethodGet, path: "/models/huge", secret: m.secret, status: 404, code: "model_not_found", param: "model"},
		"embeddings, no key": {path: "/embeddings", body: `{"model":"large","input":"x"}`, status: 401, code: "invalid_api_key"},
		"no input":           {path: "/embeddings", secret: m.secret, body: `{"model":"large"}`, status: 400, code: "missing_required_parameter", param: "input"},
	} {
		method := c.method
		if method == "" {
			method = http.MethodPost
		}
		res := m.raw(method, cmp.Or(c.whole, "/openai/v1"+c.path), c.secret, c.body)
		var envelope struct {
			Error map[string]any `json:"error"`
		}
		require.NoError(t, json.Unmarshal(res.body, &envelope), "%s: %s", name, res.body)
		require.Equal(t, c.status, res.status, "%s: %s", name, res.body)
		require.Len(t, envelope.Error, 4, name)
		require.NotEmpty(t, envelope.Error["message"], name)
		require.Contains(t, envelope.Error["message"], c.says, name)
		if c.code != "" {
			require.Equal(t, c.code, envelope.Error["code"], name)
		}
		if c.param != "" {
			require.Equal(t, c.param, envelope.Error["param"], name)
		}
		require.Equal(t, c.allow, res.header.Get("Allow"), name)
		require.NotEmpty(t, res.header.Get("X-Request-Id"), name)
		require.Equal(t, "false", res.header.Get("X-Should-Retry"), name)
	}
	require.Zero(t, m.providers[0].Calls.Load())
	require.Zero(t, m.count("calls"))
	require.Zero(t, m.count("usage_log"))
	res := m.call(http.MethodGet, "/v1/tasks", m.secret, nil)
	require.Equal(t, http.StatusUnauthorized, res.status)
	require.Contains(t, res.problem.Detail, "/openai/v1")
	require.Contains(t, m.log.String(), `"msg":"request failed"`)
	require.NotContains(t, m.log.String(), `"level":"ERROR"`, "a mistake of a client is none of the server")
}

// raw sends a request and reads the response.
func (m *models) raw(method, path, secret, body string) answer {
	m.t.Helper()
	res, err := m.http.Do(m.request(method, path, secret, strings.NewReader(body), "Content-Type", "application/json"))
	require.NoError(m.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(m.t, err)
	return answer{status: res.StatusCode, header: res.Header, body: b}
}

// While a call is settled, nothing follows its answer: the connection is used again.
func TestOpenAI_SettlementTakesLong_ConnectionIsUsedAgain(t *testing.T) { // O4
	t.Parallel()
	m := newModels(t, []int{1})
	m.settling.Store(int64(300 * time.Millisecond)) // longer than an idle stream gets no comment
	for range 3 {
		for _, body := range []string{hello, streamed(hello)} {
			res, text := m.post("/chat/completions", m.secret, body)
			require.Equal(t, http.StatusOK, res.StatusCode, text)
		}
	}
}

// What an upstream does wrong before it has answered is not seen by the client if another one answers.
func TestOpenAI_UpstreamFails_OtherAnswersUnseen(t *testing.T) { // O1, G13
	t.Parallel()
	for name, fault := range map[string]http.HandlerFunc{
		"status 500":    testprovider.Status(500, "server_error"),
		"status 429":    testprovider.Limited(time.Minute),
		"invalid key":   testprovider.Status(401, "invalid_api_key"),
		"no credit":     testprovider.Status(429, "insufficient_quota"),
		"cut":           testprovider.Cut(""),
		"wrong content": testprovider.Replay([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModels(t, []int{1, 1})
			m.providers[0].Fail(fault)
			for _, body := range []string{hello, streamed(hello)} {
				res, text := m.post("/chat/completions", m.secret, body)
				require.Equal(t, http.StatusOK, res.StatusCode, text)
				require.Contains(t, text, testprovider.Text)
				require.NotContains(t, text, `"error"`)
			}
			charged := 0
			for _, call := range m.calls(m.key.ID, int(m.providers[0].Calls.Load()+m.providers[1].Calls.Load())) {
				if call.Credits > 0 {
					charged++
					require.True(t, call.Success)
				}
			}
			require.Equal(t, 2, charged)
		})
	}
}

// A call whose failure pauses all upstreams for long gets its failure, rather than a wait and an error that hides it. A pause that the provider asks for
// is waited for.
func TestOpenAI_FailurePausesAllUpstreams_ItIsTheAnswer(t *testing.T) { // O1, G13
	t.Parallel()
	m := newModels(t, []int{1, 1})
	limits, rdb := m.scripts.Keys().ModelLimits("large"), m.redis.Client()
	for _, p := range m.providers {
		p.Answer(func(w http.ResponseWriter, r *http.Request) {
			until := time.Now().Add(time.Hour).UnixMilli()
			for _, up := range []string{"up1", "up2"} { // as after many failures
				assert.NoError(t, rdb.HSet(r.Context(), limits, "until:"+up, until, "probe:"+up, "1").Err())
			}
			testprovider.Status(500, "server_error")(w, r)
		})
	}
	for _, body := range []string{hello, streamed(hello)} {
		require.NoError(t, rdb.Del(t.Context(), limits).Err())
		before := m.providers[0].Calls.Load() + m.providers[1].Calls.Load()
		_, text := m.post("/chat/completions", m.secret, body)
		require.Contains(t, text, "provider_failed")
		require.EqualValues(t, before+1, m.providers[0].Calls.Load()+m.providers[1].Calls.Load())
	}
}

// A call that failed and then waits in vain for another upstream gets its failure, also in its first round.
func TestOpenAI_OtherUpstreamIsBusyAfterFailure_FailureIsTheAnswer(t *testing.T) { // O1, G13
	t.Parallel()
	m := newModels(t, []int{1, 1}, func(d *api.Deps) { d.Config.CallWait = time.Second })
	var calls atomic.Int64
	for _, p := range m.providers {
		p.Answer(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 { // it keeps its slot
				<-r.Context().Done()
				return
			}
			testprovider.Status(500, "server_error")(w, r)
		})
	}
	ctx, leave := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() {
		client := m.client(m.secret)
		_, err := client.Chat.Completions.New(ctx, ask("Hello"))
		assert.Error(t, err)
	})
	require.Eventually(t, func() bool { return calls.Load() == 1 }, 10*time.Second, 10*time.Millisecond)
	for i, body := range []string{hello, streamed(hello)} {
		require.NoError(t, m.redis.Client().Del(t.Context(), m.scripts.Keys().ModelLimits("large")).Err(), "the pause after the last failure")
		_, text := m.post("/chat/completions", m.secret, body)
		require.Contains(t, text, "provider_failed")
		require.EqualValues(t, i+2, calls.Load(), "one call in its first round")
	}
	leave()
	kept.Wait()
}

// A mistake that the provider finds in the request is its own, with message, param and code.
func TestOpenAI_ProviderRefusesRequest_ItsOwnError(t *testing.T) { // O1
	t.Parallel()
	m := newModels(t, []int{1, 1})
	for _, p := range m.providers {
		p.Fail(testprovider.Replay([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n\r\n" +
			`{"error":{"message":"Invalid schema for function 'f'","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`)))
	}
	for _, body := range []string{hello, streamed(hello)} {
		res, text := m.post("/chat/completions", m.secret, body)
		require.Equal(t, http.StatusBadRequest, res.StatusCode)
		require.JSONEq(t, `{"error":{"message":"Invalid schema for function 'f'","type":"invalid_request_error","param":"tools[0].function.parameters","code":"invalid_function_parameters"}}`, text)
	}
	for _, call := range m.calls(m.key.ID, 2) {
		require.Zero(t, call.Credits)
	}
}

// An answer that breaks off after its beginning ends with an error, is not requested again, and is charged for what arrived.
func TestOpenAI_BreaksOffInAnswer_ErrorChunk(t *testing.T) { // O4, O7
	t.Parallel()
	m := newModels(t, []int{1, 1})
	for _, p := range m.providers {
		p.Fail(testprovider.Cut("The ans"))
	}
	res, text := m.post("/chat/completions", m.secret, streamed(hello))
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, text, "The ans")
	events := strings.Split(strings.TrimSpace(text), "\n\n")
	require.Contains(t, events[len(events)-1], `data: {"error":{`)
	require.NotContains(t, text, "[DONE]")
	require.EqualValues(t, 1, m.providers[0].Calls.Load()+m.providers[1].Calls.Load())
	call := m.calls(m.key.ID, 1)[0]
	require.Positive(t, call.Credits)
	require.False(t, call.Success)
}

// hold makes the provider answer only once the function that it returns is called.
func hold(p *testprovider.Server) (let func()) {
	free := make(chan struct{})
	p.Answer(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-free:
		case <-r.Context().Done():
			return
		}
		testprovider.Write(0, testprovider.Text)(w, r)
	})
	return sync.OnceFunc(func() { close(free) })
}

// open begins a streamed call, and returns its events and comments.
func (m *models) open(ctx context.Context, secret string) (lines <-chan string, status int) {
	m.t.Helper()
	req := m.request(http.MethodPost, "/openai/v1/chat/completions", secret, strings.NewReader(streamed(hello))).WithContext(ctx)
	res, err := m.http.Do(req)
	require.NoError(m.t, err)
	out := make(chan string, 1000)
	go func() {
		defer close(out)
		defer func() { _ = res.Body.Close() }()
		for scanner := bufio.NewScanner(res.Body); scanner.Scan(); {
			out <- scanner.Text()
		}
	}()
	return out, res.StatusCode
}

func TestOpenAI_CallWaits_CommentsWithPosition(t *testing.T) { // O2
	t.Parallel()
	m := newModels(t, []int{1})
	let := hold(m.providers[0])
	defer let()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first, _ := m.open(ctx, m.secret)
	require.Contains(t, <-first, ": the model is called")
	second, status := m.open(ctx, m.secret)
	require.Equal(t, http.StatusOK, status)
	require.Regexp(t, `^: waiting, \d+ ahead`, <-second)
	let()
	text := ""
	for line := range second {
		text += line + "\n"
	}
	require.Contains(t, text, testprovider.Text)
	require.Contains(t, text, "data: [DONE]")
}

// complaint 9: the provider's answer ends within a second when the client leaves, and what was used is charged.
func TestOpenAI_ClientLeaves_ProviderCancelledWithinSecond(t *testing.T) { // O7
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{"before the first token": testprovider.Hang(""), "in the answer": testprovider.Hang("The ans")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModels(t, []int{1})
			m.providers[0].Answer(answer)
			ctx, leave := context.WithCancel(t.Context())
			lines, _ := m.open(ctx, m.secret)
			<-lines
			require.Eventually(t, func() bool { return m.providers[0].InFlight() == 1 }, 10*time.Second, 10*time.Millisecond)
			left := time.Now()
			leave()
			require.Eventually(t, func() bool { return m.providers[0].InFlight() == 0 }, 10*time.Second, time.Millisecond)
			require.Less(t, time.Since(left), 2*time.Second)
			call := m.calls(m.key.ID, 1)[0]
			require.Equal(t, berth.CodeCancelled, call.Code)
			require.Equal(t, strings.Contains(name, "answer"), call.Credits > 0, "%+v", call)
			require.Zero(t, m.count("calls"))
			m.providers[0].Answer(testprovider.Write(0, "next"))
			res, text := m.post("/chat/completions", m.secret, hello) // complaint 1: the slot is free
			require.Equal(t, http.StatusOK, res.StatusCode, text)
		})
	}
}

// complaint 2: a request that is refused because of concurrency does not use the rate.
func TestOpenAI_LimitsOfKey_Refused(t *testing.T) { // O5
	t.Parallel()
	m := newModels(t, []int{5})
	let := hold(m.providers[0])
	defer let()
	_, secret := m.newKey(berth.KeySettings{RPM: 2, MaxCalls: 1})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first, _ := m.open(ctx, secret)
	<-first
	for range 3 {
		res, text := m.post("/chat/completions", secret, hello)
		require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		require.Contains(t, text, "1 call is unfinished")
		require.Contains(t, text, "rate_limit_exceeded")
		require.NotEmpty(t, res.Header.Get("Retry-After"))
		require.Equal(t, "1", res.Header.Get("X-Ratelimit-Remaining-Requests"))
	}
	let()
	for range first { //nolint:revive // until it has ended
	}
	require.Eventually(t, func() bool {
		res, _ := m.post("/chat/completions", secret, hello)
		return res.StatusCode == http.StatusOK
	}, 10*time.Second, 50*time.Millisecond)
	res, text := m.post("/chat/completions", secret, hello)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Contains(t, text, "in a minute")
	require.Equal(t, "2", res.Header.Get("X-Ratelimit-Limit-Requests"))

	_, tokens := m.newKey(berth.KeySettings{TPM: 1500})
	res, text = m.post("/chat/completions", tokens, hello)
	require.Equal(t, http.StatusOK, res.StatusCode, text)
	require.NotEmpty(t, res.Header.Get("X-Ratelimit-Remaining-Tokens"))
	res, text = m.post("/chat/completions", tokens, hello)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Contains(t, text, `"type":"tokens"`)
}

// complaint 11: eight calls at a barrier with a budget for one.
func TestOpenAI_BudgetForOne_OneOfEightAdmitted(t *testing.T) { // O4
	t.Parallel()
	m := newModels(t, []int{20})
	let := hold(m.providers[0])
	defer let()
	key, secret := m.newKey(berth.KeySettings{})
	require.NoError(t, m.ledger.PutBudget(t.Context(), berth.Budget{Kind: berth.BudgetKey, ID: key.ID, Credits: 15 * berth.Credit, Period: berth.PeriodDay}, "op"))
	statuses := make(chan int, 8)
	for range 8 {
		go func() {
			res, _ := m.post("/chat/completions", secret, hello)
			if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("X-Should-Retry") != "false" {
				statuses <- 0
				return
			}
			statuses <- res.StatusCode
		}()
	}
	for range 7 {
		require.Equal(t, http.StatusTooManyRequests, <-statuses)
	}
	let()
	require.Equal(t, http.StatusOK, <-statuses)
	call := m.calls(key.ID, 1)[0]
	b, err := m.ledger.Budget(t.Context(), berth.BudgetKey, key.ID)
	require.NoError(t, err)
	require.Equal(t, call.Credits, b.Used)
	_, text := m.post("/chat/completions", secret, strings.TrimSuffix(hello, "}")+`,"max_tokens":100}`)
	require.Contains(t, text, "choices", "what is left suffices for a shorter answer")
}

func TestOpenAI_Dependencies_Unavailable(t *testing.T) { // O4, O9
	t.Parallel()
	m := newModels(t, []int{1})
	res, _ := m.post("/chat/completions", m.secret, hello)
	require.Equal(t, http.StatusOK, res.StatusCode)
	permit := m.refuseWrites()
	res, text := m.post("/chat/completions", m.secret, hello)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, text)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	permit()
	m.starter.down.Store(true) // direct calls need no Temporal
	res, _ = m.post("/chat/completions", m.secret, hello)
	require.Equal(t, http.StatusOK, res.StatusCode)
	m.calls(m.key.ID, 2) // recorded
	m.damageDatabase()
	res, _ = m.post("/chat/completions", m.secret, hello)
	require.GreaterOrEqual(t, res.StatusCode, 500)
	require.EqualValues(t, 2, m.providers[0].Calls.Load())
}

func TestOpenAI_ServiceTier_ChoosesQueue(t *testing.T) { // O2
	t.Parallel()
	m := newModels(t, []int{1})
	_, flex := m.newKey(berth.KeySettings{ServiceTiers: []string{"flex"}})
	for _, c := range []struct{ secret, tier, shown, queue string }{
		{m.secret, "", "", "q_paid_stream"},
		{m.secret, "auto", "default", "q_paid_stream"},
		{m.secret, "flex", "default", "q_paid_stream"},
		{flex, "flex", "flex", "q_free_batch"},
		{flex, "priority", "default", "q_paid_stream"},
	} {
		body := hello
		if c.tier != "" {
			body = strings.TrimSuffix(hello, "}") + fmt.Sprintf(`,"service_tier":%q}`, c.tier)
		}
		res, text := m.post("/chat/completions", c.secret, body)
		require.Equal(t, http.StatusOK, res.StatusCode, text)
		var answer struct {
			Tier string `json:"service_tier"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &answer))
		require.Equal(t, c.shown, answer.Tier, c)
		calls, _, err := m.ledger.UsageLog(t.Context(), ledger.UsageQuery{}, "", 1)
		require.NoError(t, err)
		require.Equal(t, berth.Queue(c.queue), calls[0].Queue)
	}
}

// A user with a token calls models, too, and pays with the account.
func TestOpenAI_TokenOfUser_AccountCharged(t *testing.T) { // O3, O4
	t.Parallel()
	m := newModels(t, []int{1})
	token := m.token("alice", identity.ScopeModels)
	res, text := m.post("/chat/completions", token, hello)
	require.Equal(t, http.StatusOK, res.StatusCode, text)
	call := m.calls("alice", 1)[0]
	require.Empty(t, call.AppID)
	credits, err := m.ledger.Credits(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, 1000*berth.Credit-call.Credits, credits)
	res, text = m.post("/chat/completions", m.token("poor", identity.ScopeModels), hello)
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Contains(t, text, "insufficient_quota")
	require.Equal(t, "false", res.Header.Get("X-Should-Retry"))
}

// complaint 4: A queues fifty calls, B one: B gets one of the next slots.
func TestOpenAI_NoisyNeighbour_NextSlotIsOfTheOther(t *testing.T) { // O2, G11
	t.Parallel()
	m := newModels(t, []int{1})
	gate := make(chan struct{})
	m.providers[0].Answer(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
			testprovider.Write(0, testprovider.Text)(w, r)
		case <-r.Context().Done():
		}
	})
	require.NoError(t, m.ledger.PutTeam(t.Context(), berth.Team{ID: "u"}, "op"))
	secret := apikey.NewSecret()
	_, err := m.ledger.CreateKey(t.Context(), berth.APIKey{
		ID: berth.NewID("key_"), TeamID: "u", KeySettings: berth.KeySettings{Durability: berth.DurabilityDirect}, CreatedBy: "op",
	}, apikey.Hash(secret))
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var noisy sync.WaitGroup
	defer noisy.Wait()
	defer leave()
	for range 50 {
		noisy.Go(func() {
			lines, _ := m.open(ctx, m.secret)
			for range lines { //nolint:revive // until it ends
			}
		})
	}
	waits := func(n int) {
		require.Eventually(t, func() bool {
			room, err := m.scripts.ReadRoom(ctx, "large", m.limits("large"), 0)
			return err == nil && room.Waiting == n
		}, 30*time.Second, 20*time.Millisecond)
	}
	waits(49)
	other, _ := m.open(ctx, secret)
	waits(50)
	for answers := 1; ; answers++ {
		gate <- struct{}{}
		waits(50 - answers)
		for len(other) > 0 {
			if strings.HasPrefix(<-other, "data: {") {
				return
			}
		}
		require.Less(t, answers, 4)
	}
}

// Large bodies are forwarded whole; what exceeds the limit is refused, and so is what this process cannot keep.
func TestOpenAI_LargeBodies_ForwardedOrRefused(t *testing.T) { // O1
	t.Parallel()
	m := newModels(t, []int{1})
	m.http.Timeout = 5 * time.Minute // the race detector makes them slow
	var received atomic.Int64
	m.providers[0].Answer(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		received.Store(int64(len(b)))
		r.Body = io.NopCloser(bytes.NewReader(b))
		testprovider.Write(0, testprovider.Text)(w, r)
	})
	image := func(size int) string {
		return `{"model":"large","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
			strings.Repeat("A", size) + `"}}]}]}`
	}
	res, text := m.post("/chat/completions", m.secret, image(30<<20))
	require.Equal(t, http.StatusOK, res.StatusCode, text)
	require.Greater(t, received.Load(), int64(30<<20))
	for name, header := range map[string][]string{"length known": nil, "gzip": {"Content-Encoding", "gzip"}} {
		body := image(33 << 20)
		want := http.StatusRequestEntityTooLarge
		if header != nil {
			body, want = hello, http.StatusUnsupportedMediaType
		}
		res, text := m.post("/chat/completions", m.secret, body, header...)
		require.Equal(t, want, res.StatusCode, "%s: %s", name, text)
		require.Contains(t, text, `{"error":{`, name)
	}
	req := m.request(http.MethodPost, "/openai/v1/chat/completions", m.secret, io.MultiReader(strings.NewReader(image(33<<20)))) // chunked
	res, err := m.http.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
}

// A client that never reads is disconnected, and its slot is used by others.
func TestOpenAI_ClientNeverReads_SlotReturns(t *testing.T) { // O7
	t.Parallel()
	m := newModels(t, []int{1})
	part := strings.Repeat("x", 8<<10)
	m.providers[0].Answer(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			testprovider.Part(w, part)
		}
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(m.base, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	body := streamed(hello)
	_, err = fmt.Fprintf(conn, "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", m.secret, len(body), body)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return m.providers[0].InFlight() == 1 }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return m.providers[0].InFlight() == 0 }, 30*time.Second, 20*time.Millisecond)
	m.providers[0].Answer(testprovider.Write(0, testprovider.Text))
	res, text := m.post("/chat/completions", m.secret, hello)
	require.Equal(t, http.StatusOK, res.StatusCode, text)
	require.Positive(t, m.calls(m.key.ID, 2)[1].Credits)
}

// A retired key ends within a second, also on a process that has just used it.
func TestOpenAI_KeyRevoked_RefusedWithinSecond(t *testing.T) { // O3
	t.Parallel()
	m := newModels(t, []int{1})
	res, _ := m.post("/chat/completions", m.secret, hello)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, m.ledger.RevokeKey(t.Context(), m.key.ID, "op"))
	revoked := time.Now()
	require.Eventually(t, func() bool {
		res, text := m.post("/chat/completions", m.secret, hello)
		return res.StatusCode == http.StatusUnauthorized && strings.Contains(text, "revoked")
	}, 10*time.Second, 10*time.Millisecond)
	require.Less(t, time.Since(revoked), 2*time.Second)
}
