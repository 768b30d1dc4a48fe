//go:build faults

package tests

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/eventstream"
	"berth/internal/testprovider"
)

// O8, O4: 200 responses in the background while worker, API, Redis (with and without its data) and Temporal are killed. Each is read in pieces by a client
// that continues at the number that it has: the events are those that are stored, with numbers without a gap and one end, and what was bought is
// charged once. One that breaks off after a part was read is replaced, and its client reads the other from its beginning.
func TestResponses_TwoHundredWhileEverythingIsKilled_EventsAreFacts(t *testing.T) {
	t.Parallel()
	const responses = 200
	provider := testprovider.Start(t)
	words := make([]string, 20)
	for i := range words {
		words[i] = fmt.Sprintf(" word %d", i)
	}
	provider.Answer(testprovider.Write(150*time.Millisecond, words...))
	file := filepath.Join(t.TempDir(), "routing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
providers: {p: {baseURL: "`+provider.URL+`"}}
models: {m: {provider: p, cap: 10, maxOutputTokens: 1000, credits: {input: 10, output: 100}}}
routes: {default: {paid: m, free: m}}
`), 0o600))
	d := &durable{provider: provider, stack: newStack(t, with("BERTH_ROUTING_FILE="+file))}
	d.keyHolder = d.newKeyHolder(t, "research", "durable")
	_, err := d.operator().PutBudget(t.Context(), berth.BudgetTeam, "research", client.BudgetSpec{Credits: 100000 * berth.Credit, Period: berth.PeriodTotal})
	require.NoError(t, err)
	_, err = d.operator().PutKey(t.Context(), d.keyID, client.KeySpec{ReplaceResponses: true})
	require.NoError(t, err)

	var left atomic.Int64
	left.Store(responses)
	var all errgroup.Group
	var mu sync.Mutex
	ends, replacements := map[string]int{}, 0
	for i := range responses {
		all.Go(func() error {
			defer left.Add(-1)
			r := &reader{d: d, polls: i%4 == 0, random: rand.New(rand.NewPCG(uint64(i), 1))} //nolint:gosec // a test
			err := r.run(t.Context(), i)
			mu.Lock()
			defer mu.Unlock()
			ends[r.ended]++
			replacements += r.replacements
			return err
		})
	}
	faults := []string{"worker", "API", "Redis and Temporal", "Redis without data"}
	for n := range 4 * len(faults) {
		d.eventually("calls", func() bool { return provider.InFlight() > 0 || left.Load() == 0 })
		switch faults[n%len(faults)] {
		case "API":
			d.api.kill()
			d.startAPI()
		case "Redis and Temporal":
			d.infra.kill()
			d.startInfra()
			pauseFor(t, 15*time.Second, &left) // as below: workers have ended their calls
		case "Redis without data":
			_ = d.redis().FlushAll(t.Context()).Err()
		case "worker":
			d.worker.kill()
			d.worker = d.startWorker()
			// Its calls are found to be lost, and end, before Redis loses what it has published: both together lose events.
			pauseFor(t, 15*time.Second, &left)
		}
		pauseFor(t, 5*time.Second, &left)
	}
	require.NoError(t, all.Wait())
	credits := d.settled(t)
	t.Logf("%d responses ended as %v, with %d replacements; %d calls of the provider; %s credits", responses, ends, replacements, provider.Calls.Load(), credits)
	require.Greater(t, ends["response.completed"], responses*9/10)
	require.Equal(t, responses, ends["response.completed"]+ends["response.failed"])
	require.LessOrEqual(t, provider.Calls.Load(), int64(2*responses))
}

// pauseFor waits for a time, or until no response is left.
func pauseFor(t *testing.T, d time.Duration, left *atomic.Int64) {
	t.Helper()
	until := time.Now().Add(d)
	require.Eventually(t, func() bool { return left.Load() == 0 || time.Now().After(until) }, 2*d, 100*time.Millisecond)
}

// reader creates a response, and polls it or reads its events in pieces.
type reader struct {
	d      *durable
	polls  bool
	random *rand.Rand
	id     string
	events []string
	ended  string // type of the last event

	replacements int
}

func (r *reader) run(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	key := fmt.Sprintf("key-%d", number)
	err := r.retried(ctx, func() error {
		text, err := r.whole(ctx, http.MethodPost, "", responseBody(`,"background":true`), "Idempotency-Key", key)
		if err == nil {
			r.id = gjson.Get(text, "id").Str
		}
		return err
	})
	if err != nil {
		return err
	}
	for r.polls {
		var status string
		err := r.retried(ctx, func() error {
			text, err := r.whole(ctx, http.MethodGet, "/"+r.id, "")
			status = gjson.Get(text, "status").Str
			return err
		})
		if err != nil {
			return err
		}
		if status != "queued" && status != "in_progress" {
			break
		}
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // a client polls
	}
	for {
		if err := r.retried(ctx, func() error { return r.piece(ctx) }); err != nil {
			return fmt.Errorf("%s after %d events: %w", r.id, len(r.events), err)
		}
		if err := r.check(ctx); err != nil {
			return err
		}
		last := gjson.Get(r.events[len(r.events)-1], "response")
		next := last.Get("replaced_by").Str
		if next == "" {
			return nil
		}
		r.replacements++
		if err := r.retried(ctx, func() error {
			text, err := r.whole(ctx, http.MethodGet, "/"+next, "")
			if replaces := gjson.Get(text, "replaces").Str; err == nil && (replaces != r.id || last.Get("status").Str != "failed") {
				err = fmt.Errorf("%s replaces %q, and %s has ended with %s", next, replaces, r.id, last.Raw)
			}
			return err
		}); err != nil {
			return err
		}
		r.id, r.events = next, nil
	}
}

// retried repeats a request until it succeeds.
func (r *reader) retried(ctx context.Context, do func() error) (err error) {
	for ctx.Err() == nil {
		if err = do(); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a client pauses before a retry
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

func (r *reader) whole(ctx context.Context, method, path, body string, header ...string) (string, error) {
	res, err := r.d.keyHolder.responses(ctx, r.d.httpAddr, method, path, body, header...)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, b)
	}
	return string(b), err
}

// piece reads some of the events from where the client is; nil once it has the last one.
func (r *reader) piece(ctx context.Context) error {
	path := "/" + r.id + "?stream=true"
	if n := len(r.events); n > 0 {
		path += fmt.Sprintf("&starting_after=%d", n-1)
	}
	res, err := r.d.keyHolder.responses(ctx, r.d.httpAddr, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	for decoder, n := eventstream.NewDecoder(res.Body, eventstream.Options{MaxLine: 1 << 20, MaxEvent: 1 << 20}), 1+r.random.IntN(30); n > 0; n-- {
		event, err := decoder.Next()
		if err != nil {
			return err
		}
		text := string(event.Data)
		if gjson.Get(text, "type").Str == "error" {
			return fmt.Errorf("the stream says %s", text)
		}
		r.events = append(r.events, text)
		switch typ := gjson.Get(text, "type").Str; typ {
		case "response.completed", "response.failed", "response.incomplete", "response.cancelled":
			r.ended = typ
			return nil
		}
	}
	return fmt.Errorf("it has %d events", len(r.events))
}

// check compares what the client has read with what is stored.
func (r *reader) check(ctx context.Context) error {
	text := ""
	for i, e := range r.events {
		if gjson.Get(e, "sequence_number").Int() != int64(i) {
			return fmt.Errorf("%s: event %d is %s", r.id, i, e)
		}
		text += gjson.Get(e, "delta").Str
	}
	again := &reader{d: r.d, id: r.id, random: r.random}
	if err := again.retried(ctx, func() error { return again.piece(ctx) }); err != nil {
		return err
	}
	if strings.Join(again.events, "\n") != strings.Join(r.events, "\n") {
		return fmt.Errorf("%s: read\n%s\nand again\n%s", r.id, strings.Join(r.events, "\n"), strings.Join(again.events, "\n"))
	}
	if whole := gjson.Get(r.events[len(r.events)-1], "response.output.0.content.0.text").Str; whole != text {
		return fmt.Errorf("%s: the text is %q, and of the events %q", r.id, whole, text)
	}
	return nil
}

// O8: a report of three minutes, by the recipe for jobs. Its program is killed after a third, and another process reads the rest from the number that was
// reached.
func TestResponses_ReportOfThreeMinutes_AnotherProcessReadsTheRest(t *testing.T) {
	t.Parallel()
	d := newDurable(t)
	words := make([]string, 180)
	for i := range words {
		words[i] = fmt.Sprintf(" word %d", i)
	}
	command := jobs(t)["Node"]
	d.provider.Answer(testprovider.Write(time.Second, words...))
	file := jobFile(filepath.Join(t.TempDir(), "report.json"))
	begun := time.Now()
	first := d.runExample(t, nil, append(command, string(file), "Write a report.")...)
	require.Eventually(t, func() bool { return file.read().Get("after").Int() > int64(len(words)/3) }, 3*time.Minute, 50*time.Millisecond, "%s", first.output())
	first.kill()
	reached := file.read()

	second := d.runExample(t, nil, append(command, string(file))...)
	d.awaitOutput(second, fmt.Sprintf("%s: continues after event %d\n", reached.Get("id").Str, reached.Get("after").Int()))
	select {
	case <-second.done:
	case <-time.After(4 * time.Minute):
		require.FailNow(t, "the report was not read", "%s", second.output())
	}
	require.True(t, second.cmd.ProcessState.Success(), "%s", second.output())
	require.Greater(t, time.Since(begun), time.Duration(len(words)-1)*time.Second)
	whole, report := strings.Join(words, ""), file.read()
	require.Contains(t, string(second.output()), whole+"\n")
	require.Equal(t, whole, report.Get("text").Str)
	stored := d.readAll(t, reached.Get("id").Str)
	require.EqualValues(t, len(stored.events)-1, report.Get("after").Int())
	require.Equal(t, whole, gjson.Get(stored.whole, `output.0.content.0.text`).Str)
	require.EqualValues(t, 1, d.provider.Calls.Load())
	d.settled(t)
}
