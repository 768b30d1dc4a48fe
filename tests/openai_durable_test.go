package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/testclients"
	"berth/internal/testprovider"
)

// durable is a stack with a model m of one upstream of a provider, and a key whose calls are durable, of a team with a budget.
type durable struct {
	*stack

	*keyHolder
	provider *testprovider.Server
}

func newDurable(t *testing.T, settings ...string) *durable {
	t.Helper()
	return newDurableStack(t, with(settings...))
}

func newDurableStack(t *testing.T, opts ...option) *durable {
	t.Helper()
	d := &durable{provider: testprovider.Start(t)}
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {p: {baseURL: "`+d.provider.URL+`"}}
models:
  m: {provider: p, cap: 2, maxOutputTokens: 1000, credits: {input: 10, output: 100}}
  large: {provider: p, cap: 4, maxOutputTokens: 1000, aliases: [gpt-large], credits: {input: 10, output: 100}}
routes: {default: {paid: m, free: m}}
`), 0o600))
	d.stack = newStack(t, append([]option{with("BERTH_ROUTING_FILE=" + file)}, opts...)...)
	d.keyHolder = d.newKeyHolder(t, "research", "durable")
	_, err := d.operator().PutBudget(t.Context(), berth.BudgetTeam, "research", client.BudgetSpec{Credits: 1000 * berth.Credit, Period: berth.PeriodTotal})
	require.NoError(t, err)
	return d
}

// secondAPI starts another API process and returns its address.
func (d *durable) secondAPI(t *testing.T) (addr string, api *process) {
	t.Helper()
	addr = freeAddr(t)
	api = d.start("berth", []string{"api"}, append(append([]string{}, d.settings...), "BERTH_HTTP_ADDR="+addr))
	d.eventually("the second API", func() bool {
		res, err := http.Get("http://" + addr + "/readyz") //nolint:noctx // it ends soon
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil && res.StatusCode == http.StatusOK
	})
	return addr, api
}

// settled returns what the calls of the team have cost, once the budget has nothing reserved: the sum of the usage log is what was taken from it.
func (d *durable) settled(t *testing.T) (credits berth.Credits) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		sums, err := d.operator().UsageSums(context.Background(), map[string][]string{"by": {"team"}})
		require.NoError(c, err)
		credits = 0
		for _, s := range sums.Sums {
			credits += s.Credits
		}
		b, err := d.operator().Budget(context.Background(), berth.BudgetTeam, "research")
		require.NoError(c, err)
		require.Equal(c, credits, b.Used)
	}, 60*time.Second, 100*time.Millisecond)
	return credits
}

// retry repeats a request, as the official clients do after a lost connection.
func (c *keyHolder) retry(ctx context.Context, addr string, stream bool, attempts int) (status int, text string, err error) {
	return c.sent(ctx, addr, chatBody("m", stream), "X-Stainless-Retry-Count", fmt.Sprint(attempts))
}

// O2: the limit of a user's concurrent calls is not one of a key: its calls use all slots that are free.
func TestOpenAI_LimitOfUsers_NotOneOfKeys(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_USER_CONCURRENCY=1")
	for _, durability := range []string{"durable", "direct"} {
		free := make(chan struct{})
		d.provider.Answer(gated(free))
		key := d.newKeyHolder(t, "research", durability)
		var calls errgroup.Group
		for range 4 {
			calls.Go(func() error {
				status, text, err := key.sent(t.Context(), d.httpAddr, chatBody("large", true))
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("status %d: %s", status, text)
				}
				return err
			})
		}
		d.eventually(durability+" calls to use all slots", func() bool { return d.provider.InFlight() == 4 })
		close(free)
		require.NoError(t, calls.Wait())
	}
}

// O1, O9: a durable call has the same answer as a direct one, and the client reads the same errors.
func TestOpenAI_DurableCall_AnsweredOrRefusedAsDirect(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_HOLD=1m")
	direct, err := d.operator().CreateKey(t.Context(), client.Key{TeamID: "research", KeySpec: client.KeySpec{Durability: "direct"}})
	require.NoError(t, err)
	other := &keyHolder{s: d.stack, secret: direct.Secret}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		text   string
	}{
		"answer": {testprovider.Write(0, testprovider.Text), http.StatusOK, testprovider.Text},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"temperature is too high","type":"invalid_request_error","param":"temperature","code":"too_high"}}`)
		}, http.StatusBadRequest, `"param":"temperature","code":"too_high"`},
		"fails":    {testprovider.Status(http.StatusInternalServerError, ""), http.StatusBadGateway, `"code":"provider_failed"`},
		"no money": {testprovider.Status(http.StatusPaymentRequired, "insufficient_quota"), http.StatusBadGateway, `"code":"no_credit"`},
	} {
		for _, stream := range []bool{false, true} {
			d.provider.Answer(c.answer)
			before := d.provider.Calls.Load()
			status, text, err := d.whole(t.Context(), d.httpAddr, stream)
			require.NoError(t, err)
			require.Equal(t, c.status, status, "%s: %s", name, text)
			require.Contains(t, text, c.text, name)
			require.Equal(t, stream && status == http.StatusOK, strings.HasSuffix(text, "data: [DONE]\n\n"), text)
			if c.status >= 500 {
				d.resumeModel(t)
			}
			durably := d.provider.Calls.Load() - before
			wantStatus, want, err := other.whole(t.Context(), d.httpAddr, stream)
			require.NoError(t, err)
			require.Equal(t, wantStatus, status, name)
			require.Equal(t, withoutIDs(want), withoutIDs(text), name)
			require.Equal(t, durably, d.provider.Calls.Load()-before-durably, "%s: calls of the provider", name)
			if c.status >= 500 {
				d.resumeModel(t)
			}
		}
	}
	d.settled(t)
}

// resumeModel ends the pause that failures have caused.
func (d *durable) resumeModel(t *testing.T) {
	t.Helper()
	_, err := d.operator().PatchModel(t.Context(), "m", map[string]any{"paused": false})
	require.NoError(t, err)
}

// withoutIDs replaces what differs between two calls.
func withoutIDs(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		data, isData := strings.CutPrefix(line, "data: ")
		var object map[string]any
		if strings.HasPrefix(line, ":") || strings.TrimSpace(line) == "" {
			continue
		}
		if json.Unmarshal([]byte(data), &object) == nil {
			delete(object, "id")
			delete(object, "created")
			b, _ := json.Marshal(object) //nolint:errchkjson // it was decoded
			data = string(b)
		}
		fmt.Fprintln(&out, isData, data)
	}
	return out.String()
}

// loser loses responses after the server has sent them.
type loser struct {
	whole bool // all of a response arrives before it is lost
	lost  atomic.Int64
}

func (l *loser) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Header.Get("X-Stainless-Retry-Count") != "0" {
		return res, err
	}
	if l.whole {
		_, _ = io.Copy(io.Discard, res.Body)
	}
	_ = res.Body.Close()
	l.lost.Add(1)
	return nil, errors.New("the response was lost")
}

// O6, complaint 8: a client whose every first response is lost pays once for each call, also where several calls are equal.
func TestOpenAI_EveryFirstResponseLost_BoughtOnce(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(20*time.Millisecond, "The ", "whole ", "answer."))
	const calls = 12
	for _, whole := range []bool{true, false} {
		l := &loser{whole: whole}
		official := openai.NewClient(openaioption.WithBaseURL("http://"+d.httpAddr+"/openai/v1"), openaioption.WithAPIKey(d.secret),
			openaioption.WithHTTPClient(&http.Client{Transport: l}))
		before := d.provider.Calls.Load()
		var asked sync.WaitGroup
		for i := range calls {
			asked.Go(func() {
				params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(fmt.Sprint("Hello ", i/3, whole))}}
				if i%2 == 0 {
					answer, err := official.Chat.Completions.New(t.Context(), params)
					if assert.NoError(t, err) {
						assert.Equal(t, "The whole answer.", answer.Choices[0].Message.Content)
					}
					return
				}
				stream, joined := official.Chat.Completions.NewStreaming(t.Context(), params), openai.ChatCompletionAccumulator{}
				for stream.Next() {
					joined.AddChunk(stream.Current())
				}
				if assert.NoError(t, stream.Err()) {
					assert.Equal(t, "The whole answer.", joined.Choices[0].Message.Content)
				}
			})
		}
		asked.Wait()
		require.EqualValues(t, calls, l.lost.Load())
		require.EqualValues(t, calls, d.provider.Calls.Load()-before, "calls of the provider, whole: %v", whole)
	}
	require.Positive(t, d.settled(t))
}

// O6: requests with one key are one call, whatever number of clients send them, and a key of another request is refused.
func TestOpenAI_IdempotencyKey_OneCall(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(50*time.Millisecond, "The ", "answer."))
	var together sync.WaitGroup
	texts := make([]string, 5)
	for i := range texts {
		together.Go(func() {
			_, texts[i], _ = d.sent(t.Context(), d.httpAddr, chatBody("m", true), "Idempotency-Key", "one")
		})
	}
	together.Wait()
	_, after, err := d.sent(t.Context(), d.httpAddr, chatBody("m", true), "Idempotency-Key", "one")
	require.NoError(t, err)
	for _, text := range texts {
		require.Equal(t, dataOf(after), dataOf(text))
		require.Contains(t, text, "[DONE]")
	}
	require.EqualValues(t, 1, d.provider.Calls.Load())
	status, text, err := d.sent(t.Context(), d.httpAddr, chatBody("m", false), "Idempotency-Key", "one")
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, text, `"param":"Idempotency-Key","code":"idempotency_mismatch"`)
	status, text, err = d.sent(t.Context(), d.httpAddr, chatBody("m", false), "Idempotency-Key", strings.Repeat("x", 256))
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status, text)
	d.provider.Answer(testprovider.Status(http.StatusBadRequest, ""))
	status, _, err = d.sent(t.Context(), d.httpAddr, chatBody("m", false), "Idempotency-Key", "two")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	d.provider.Answer(testprovider.Write(0, "again"))
	status, text, err = d.sent(t.Context(), d.httpAddr, chatBody("m", false), "Idempotency-Key", "two")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	require.Contains(t, text, "again", "the answer of a failed call is not kept")
	d.settled(t)
}

// dataOf returns the data of a stream without its comments.
func dataOf(text string) (data string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "data:") {
			data += line
		}
	}
	return data
}

// begun returns once a stream has the first part of a gated answer.
func begun(t *testing.T, lines <-chan string) {
	t.Helper()
	for line := range lines {
		if strings.Contains(line, "The beginning") {
			return
		}
	}
	require.FailNow(t, "the stream ended without an answer")
}

// gated answers in two parts, the second once it is opened.
func gated(free <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		testprovider.Part(w, "The beginning")
		select {
		case <-free:
			testprovider.Write(0, " and the end.")(w, r)
		case <-r.Context().Done():
		}
	}
}

// O4, O6, O7, O9 and complaints 9 and 10: what a client sees of a durable call when something dies before the first chunk and in mid-answer, what the
// provider has made, and what is charged.
func TestOpenAI_DurableCall_AnythingDies_ContinuesOrEndsOnce(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=30s")
	// both parts of an answer, the first chunk of which comes when held is closed
	answers := func(stream bool) (first, free chan struct{}) {
		first, free = make(chan struct{}), make(chan struct{})
		d.provider.Answer(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-first:
			case <-r.Context().Done():
				return
			}
			if !stream {
				testprovider.Write(0, "The beginning and the end.")(w, r)
				return
			}
			gated(free)(w, r)
		})
		return first, free
	}
	begins := func() {
		t.Helper()
		d.eventually("the provider's call", func() bool { return d.provider.InFlight() == 1 })
	}
	type reply struct {
		status int
		text   string
		err    error
	}
	ask := func(stream bool) <-chan reply {
		out := make(chan reply, 1)
		go func() {
			var r reply
			r.status, r.text, r.err = d.whole(context.WithoutCancel(t.Context()), d.httpAddr, stream)
			out <- r
		}()
		return out
	}
	whole := func(name string, r reply) {
		t.Helper()
		require.NoError(t, r.err, name)
		require.Equal(t, http.StatusOK, r.status, "%s: %s", name, r.text)
		require.Contains(t, r.text, "The beginning", name)
		require.Contains(t, r.text, "and the end.", name)
	}
	calls := func(name string, of func()) int64 {
		t.Helper()
		before := d.provider.Calls.Load()
		of()
		made := d.provider.Calls.Load() - before
		d.eventually(name+": the provider's calls to end", func() bool { return d.provider.InFlight() == 0 })
		return made
	}
	made := func(name string, want int64, of func()) {
		t.Helper()
		require.Equal(t, want, calls(name, of), "%s: calls of the provider", name)
	}
	// replaceInfra reports whether the calls of the worker outlast the replacement of Temporal and Redis: their leases have, and the worker has not noticed.
	replaceInfra := func() (outlasted func() bool) {
		t.Helper()
		noticed := func() int {
			return bytes.Count(d.worker.output(), []byte(`msg="dependency unavailable" dependency=redis`))
		}
		before := noticed()
		leases := d.replaceInfra(func() {})
		return func() bool { return leases && noticed() == before }
	}
	for _, stream := range []bool{false, true} {
		name := fmt.Sprintf("stream %v: ", stream)
		made(name+"worker before the first chunk", 2, func() {
			first, free := answers(stream)
			r := ask(stream)
			begins()
			d.worker.kill()
			d.worker = d.startWorker()
			close(first)
			close(free)
			whole(name+"worker", <-r)
		})
		made(name+"API before the first chunk", 1, func() {
			first, free := answers(stream)
			r := ask(stream)
			begins()
			d.api.kill()
			require.Error(t, (<-r).err)
			d.startAPI()
			close(first)
			close(free)
			status, text, err := d.retry(t.Context(), d.httpAddr, stream, 1)
			whole(name+"API", reply{status, text, err})
		})
		var outlasted func() bool
		n := calls(name+"Temporal and Redis", func() {
			first, free := answers(stream)
			r := ask(stream)
			begins()
			outlasted = replaceInfra()
			close(first)
			close(free)
			whole(name+"Temporal and Redis", <-r)
		})
		require.True(t, n == 1 || n == 2 && !outlasted(), "%sTemporal and Redis: %d calls of the provider, outlasted %v", name, n, outlasted())
	}

	made("worker in mid-answer", 1, func() {
		first, _ := answers(true)
		close(first)
		lines := d.keyHolder.read(t.Context(), t, d.httpAddr)
		begun(t, lines)
		before := d.settledBefore(t)
		d.worker.kill()
		d.worker = d.startWorker()
		text := rest(lines)
		require.Contains(t, text, `"code":"interrupted"`)
		require.NotContains(t, text, "[DONE]")
		require.Greater(t, d.settled(t), before, "what had arrived is charged")
	})
	made("API in mid-answer", 1, func() {
		first, free := answers(true)
		close(first)
		lines := d.keyHolder.read(t.Context(), t, d.httpAddr)
		begun(t, lines)
		d.api.kill()
		require.NotContains(t, rest(lines), "[DONE]")
		d.startAPI()
		close(free)
		status, text, err := d.retry(t.Context(), d.httpAddr, true, 1)
		whole("API in mid-answer", reply{status, text, err})
		require.Contains(t, text, "[DONE]")
	})
	made("Temporal and Redis in mid-answer", 1, func() {
		first, free := answers(true)
		close(first)
		lines := d.keyHolder.read(t.Context(), t, d.httpAddr)
		begun(t, lines)
		outlasted := replaceInfra()
		close(free)
		text := rest(lines)
		if !outlasted() && strings.Contains(text, `"code":"interrupted"`) {
			require.NotContains(t, text, "[DONE]")
			return
		}
		require.Contains(t, text, "and the end.")
		require.Contains(t, text, "[DONE]")
		require.Equal(t, 1, strings.Count(text, "and the end."), text)
	})
	d.settled(t)
}

// settledBefore returns what finished calls have cost.
func (d *durable) settledBefore(t *testing.T) (credits berth.Credits) {
	t.Helper()
	sums, err := d.operator().UsageSums(t.Context(), map[string][]string{"by": {"team"}})
	require.NoError(t, err)
	for _, s := range sums.Sums {
		credits += s.Credits
	}
	return credits
}

// O7: a call whose client has left is cancelled at the provider after the grace, and what was used is charged; a retry within the grace continues it.
func TestOpenAI_ClientLeaves_CallContinuesForTheGrace(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=2s")
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	leave := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lines := d.keyHolder.read(ctx, t, d.httpAddr)
		begun(t, lines)
	}
	leave()
	left := time.Now()
	d.eventually("the provider's call to end", func() bool { return d.provider.InFlight() == 0 })
	require.Greater(t, time.Since(left), time.Second)
	require.Positive(t, d.settled(t), "what had arrived")

	leave()
	close(free)
	status, text, err := d.retry(t.Context(), d.httpAddr, true, 1)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "The beginning")
	require.Contains(t, text, "and the end.")
	require.EqualValues(t, 2, d.provider.Calls.Load())

	// The process that has the connection dies with it: the grace runs elsewhere, and a retry continues the call within it.
	free = make(chan struct{})
	d.provider.Answer(gated(free))
	other, second := d.secondAPI(t)
	lines := d.keyHolder.read(t.Context(), t, other)
	begun(t, lines)
	second.kill()
	d.eventually("the provider's call to end", func() bool { return d.provider.InFlight() == 0 })
	d.settled(t)
}

// O6: a retry of a client whose process was killed joins the call at another one, while the grace of the first connection runs.
func TestOpenAI_APIKilled_RetryAtAnotherJoins(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=30s")
	other, _ := d.secondAPI(t)
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	lines := d.keyHolder.read(t.Context(), t, d.httpAddr)
	begun(t, lines)
	d.api.kill()
	lines = d.keyHolder.read(t.Context(), t, other, "X-Stainless-Retry-Count", "1")
	begun(t, lines)
	close(free)
	require.Contains(t, rest(lines), "[DONE]")
	require.EqualValues(t, 1, d.provider.Calls.Load())
}

// O2: a call that is not streamed and has waited too long is refused, and keeps its place for its retry.
func TestOpenAI_RefusedCall_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_WAIT=2s", "BERTH_CALL_GRACE=30s")
	free := make(chan struct{})
	d.provider.Answer(gated(free))
	for range 2 { // all slots
		lines := d.keyHolder.read(t.Context(), t, d.httpAddr)
		begun(t, lines)
	}
	res, err := d.keyHolder.send(t.Context(), d.httpAddr, chatBody("m", false))
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, string(b))
	require.Contains(t, string(b), `"code":"server_is_overloaded"`)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	d.provider.Answer(testprovider.Write(0, testprovider.Text))
	close(free)
	status, text, err := d.retry(t.Context(), d.httpAddr, false, 1)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	require.EqualValues(t, 3, d.provider.Calls.Load(), "the retry has joined the call that waited")
	d.settled(t)
}

// O4, O5, complaint 11: of eight durable calls at a barrier one has a budget, and those that are refused use nothing.
func TestOpenAI_BudgetForOne_OneOfEightIsAdmitted(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	d.provider.Answer(testprovider.Write(0, testprovider.Text))
	_, _, err := d.whole(t.Context(), d.httpAddr, false)
	require.NoError(t, err)
	used := d.settled(t)
	price := 101 * berth.Credit / 1000 // input and at most 1,000 tokens of the answer
	_, err = d.operator().PutBudget(t.Context(), berth.BudgetTeam, "research", client.BudgetSpec{Credits: used + price, Period: berth.PeriodTotal})
	require.NoError(t, err)
	d.provider.Answer(testprovider.Hang(""))
	ctx, stop := context.WithCancel(t.Context())
	var barrier sync.WaitGroup
	var refused atomic.Int64
	for range 8 {
		barrier.Go(func() {
			status, text, err := d.whole(ctx, d.httpAddr, false)
			if err == nil && status == http.StatusTooManyRequests && strings.Contains(text, "insufficient_quota") {
				refused.Add(1)
			}
		})
	}
	d.eventually("seven refusals", func() bool { return refused.Load() == 7 })
	d.eventually("the call of the eighth", func() bool { return d.provider.InFlight() == 1 })
	stop()
	barrier.Wait()
	d.settled(t)
}

// Official clients have every feature with durable calls, too.
func TestOpenAI_OfficialClientsOfDurableCalls_EveryFeatureWorks(t *testing.T) { // O1, O5, O6, O10
	t.Parallel()
	d := newDurable(t, "BERTH_CALL_GRACE=1s")
	key, err := d.operator().CreateKey(t.Context(), client.Key{TeamID: "research", KeySpec: client.KeySpec{Models: []string{"large"}}})
	require.NoError(t, err)
	noNode := testclients.Install(t)
	for name, suite := range map[string]testclients.Suite{"calls": testclients.Calls, "responses": testclients.Responses} {
		for _, c := range suite.Clients {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				d.provider.Answer(testclients.Provider())
				suite.Try(t, c, noNode, "http://"+d.httpAddr, key.Secret)
			})
		}
	}
	d.settled(t)
}
