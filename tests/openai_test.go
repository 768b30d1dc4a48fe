package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/testprovider"
)

// keyHolder calls models by OpenAI's protocol.
type keyHolder struct {
	s             *stack
	keyID, secret string
	readers       sync.WaitGroup
}

// newKeyHolder returns the holder of a key of its own team.
func (s *stack) newKeyHolder(t *testing.T, team, durability string) *keyHolder {
	t.Helper()
	_, err := s.operator().PutTeam(t.Context(), client.Team{TeamID: team})
	require.NoError(t, err)
	key, err := s.operator().CreateKey(t.Context(), client.Key{TeamID: team, KeySpec: client.KeySpec{Durability: durability}})
	require.NoError(t, err)
	c := &keyHolder{s: s, keyID: key.KeyID, secret: key.Secret}
	t.Cleanup(c.readers.Wait)
	return c
}

func chatBody(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"Hello"}],"stream":%t}`, model, stream)
}

// send begins a call at an address, and returns the response. header has names and values.
func (c *keyHolder) send(ctx context.Context, addr, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/openai/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.secret)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// whole makes a call and returns its answer.
func (c *keyHolder) whole(ctx context.Context, addr string, stream bool) (status int, text string, err error) {
	return c.sent(ctx, addr, chatBody("m", stream))
}

// sent sends a request and returns the answer.
func (c *keyHolder) sent(ctx context.Context, addr, body string, header ...string) (status int, text string, err error) {
	res, err := c.send(ctx, addr, body, header...)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// read begins a streamed call and returns its lines; the channel is closed when the response ends.
func (c *keyHolder) read(ctx context.Context, t *testing.T, addr string, header ...string) <-chan string {
	t.Helper()
	res, err := c.send(ctx, addr, chatBody("m", true), header...)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := make(chan string, 1000)
	c.readers.Go(func() {
		defer close(lines)
		defer func() { _ = res.Body.Close() }()
		for scanner := bufio.NewScanner(res.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	})
	return lines
}

func rest(lines <-chan string) (text string) {
	for line := range lines {
		text += line + "\n"
	}
	return text
}

// O1, O2, O4, O7, O9, and complaints 1 and 3: two API processes never exceed the cap of a model, and the slots of one that is killed, and those of
// clients that leave, are used by others. Direct calls need no worker and no Temporal; those that run survive a restart of Redis.
func TestOpenAI_ProcessesKilled_CapHoldsAndSlotsReturn(t *testing.T) {
	t.Parallel()
	provider := testprovider.Start(t)
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {p: {baseURL: "`+provider.URL+`"}}
models: {m: {provider: p, cap: 2, maxOutputTokens: 1000, credits: {input: 10, output: 100}}}
routes: {default: {paid: m, free: m}}
`), 0o600))
	s := newStack(t, with("BERTH_ROUTING_FILE="+file, "BERTH_CALL_HOLD=1s"))
	c := s.newKeyHolder(t, "research", "direct")
	s.worker.kill()
	other := freeAddr(t)
	second := s.start("berth", []string{"api"}, append(append([]string{}, s.settings...), "BERTH_HTTP_ADDR="+other))
	ok := func(addr string) bool {
		status, text, err := c.whole(t.Context(), addr, false)
		return err == nil && status == http.StatusOK && strings.Contains(text, testprovider.Text)
	}
	s.eventually("the second API", func() bool { return ok(other) })

	// Calls at both processes.
	provider.Answer(testprovider.Write(20*time.Millisecond, "The ", "answer."))
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			status, text, err := c.whole(t.Context(), []string{s.httpAddr, other}[i%2], i%3 > 0)
			if err != nil || status != http.StatusOK || !strings.Contains(text, "answer.") {
				t.Errorf("call %d: %d %v %s", i, status, err, text)
			}
		})
	}
	calls.Wait()
	require.Equal(t, 2, provider.Peak(), "both slots were used, and never more")

	// One process is killed in the answers of its two calls.
	provider.Answer(testprovider.Hang("The beg"))
	var broken []<-chan string
	for range 2 {
		broken = append(broken, c.read(t.Context(), t, other))
	}
	for _, lines := range broken {
		require.Contains(t, <-lines, "data: {")
	}
	second.kill()
	for _, lines := range broken {
		require.NotContains(t, rest(lines), "[DONE]")
	}
	provider.Answer(testprovider.Write(0, testprovider.Text))
	killed := time.Now()
	s.eventually("a slot of the killed process", func() bool { return ok(s.httpAddr) })
	t.Logf("slots were back %s after the kill", time.Since(killed).Round(100*time.Millisecond))

	// Clients that leave.
	provider.Answer(testprovider.Hang(""))
	for range 10 {
		ctx, leave := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, _, err := c.whole(ctx, s.httpAddr, true)
		leave()
		require.Error(t, err)
	}
	s.eventually("the provider's calls to end", func() bool { return provider.InFlight() == 0 })
	provider.Answer(testprovider.Write(0, testprovider.Text))
	require.True(t, ok(s.httpAddr))

	// Temporal and Redis restart in the middle of an answer.
	free := make(chan struct{})
	provider.Answer(func(w http.ResponseWriter, r *http.Request) {
		testprovider.Part(w, "The beginning")
		<-free
		testprovider.Write(0, " and the end.")(w, r)
	})
	lines := c.read(t.Context(), t, s.httpAddr)
	require.Contains(t, <-lines, "The beginning")
	outlasted := s.replaceInfra(func() {
		s.eventually("calls to be refused", func() bool {
			status, text, err := c.whole(t.Context(), s.httpAddr, false)
			return err == nil && status == http.StatusServiceUnavailable && strings.Contains(text, `"type":"server_error"`)
		})
	})
	close(free)
	if text := rest(lines); outlasted || !strings.Contains(text, `"code":"interrupted"`) {
		require.Contains(t, text, "and the end.")
	}
	provider.Answer(testprovider.Write(0, testprovider.Text))
	s.eventually("calls to be served again", func() bool { return ok(s.httpAddr) })

	// A process that is stopped ends its calls with an error.
	provider.Answer(testprovider.Hang("The beg"))
	lines = c.read(t.Context(), t, s.httpAddr)
	require.Contains(t, <-lines, "The beg")
	require.True(t, s.api.stop(20*time.Second))
	require.Contains(t, rest(lines), `"code":"interrupted"`)
	require.Zero(t, provider.InFlight())
	provider.Answer(testprovider.Write(0, testprovider.Text))
	s.startAPI()
	require.True(t, ok(s.httpAddr))
	s.worker = s.startWorker()

	// What was charged is what the usage log has.
	sums, err := s.operator().UsageSums(t.Context(), map[string][]string{"by": {"team"}})
	require.NoError(t, err)
	require.Len(t, sums.Sums, 1)
	require.Positive(t, sums.Sums[0].Credits)
	require.Less(t, sums.Sums[0].Credits, 100*berth.Credit)
}
