package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth"
	"berth/api"
	"berth/internal/apikey"
	"berth/internal/llm"
	"berth/internal/routing"
	"berth/internal/testprovider"
	"berth/lua"
)

// turnstile makes a provider record whose calls arrive, in their order: the message of a call names its caller. It answers them once it is open.
type turnstile struct {
	arrivals chan string
	opened   chan struct{}
	open     func()
}

func newTurnstile(p *testprovider.Server, takes time.Duration) *turnstile {
	s := &turnstile{arrivals: make(chan string, 10_000), opened: make(chan struct{})}
	s.open = sync.OnceFunc(func() { close(s.opened) })
	p.Answer(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // it is in memory
		r.Body = io.NopCloser(bytes.NewReader(b))
		var body struct{ Messages []struct{ Content string } }
		_ = json.Unmarshal(b, &body) // that of a test
		s.arrivals <- body.Messages[0].Content
		select {
		case <-s.opened:
			testprovider.Write(takes, testprovider.Text)(w, r)
		case <-r.Context().Done():
		}
	})
	return s
}

// waitingCall is a streamed call and what its client reads.
type waitingCall struct {
	caller    string
	comments  atomic.Int64 // comments with a position
	ahead     atomic.Int64 // of the last one
	positions []int        // of those that were recorded
	answered  bool
	err       error
}

// crowd is many streamed calls whose clients read concurrently.
type crowd struct {
	m         *models
	calls     []*waitingCall
	recording atomic.Bool
	reading   sync.WaitGroup
}

// call begins a streamed call of a caller.
func (c *crowd) call(caller, secret, fields string) {
	w := &waitingCall{caller: caller}
	c.calls = append(c.calls, w)
	body := fmt.Sprintf(`{"model":"large","messages":[{"role":"user","content":%q}],"stream":true%s}`, caller, fields)
	req := c.m.request(http.MethodPost, "/openai/v1/chat/completions", secret, strings.NewReader(body))
	c.reading.Go(func() { w.err = c.read(w, req) })
}

func (c *crowd) read(w *waitingCall, req *http.Request) error {
	res, err := c.m.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, ": waiting, "); ok {
			number, _, _ := strings.Cut(rest, " ")
			ahead, err := strconv.Atoi(number)
			if err != nil {
				return err
			}
			if c.recording.Load() {
				w.positions = append(w.positions, ahead)
			}
			w.ahead.Store(int64(ahead))
			w.comments.Add(1)
		}
		w.answered = w.answered || line == "data: [DONE]"
	}
	return lines.Err()
}

// waits returns when so many calls wait for a slot.
func (m *models) waits(n int) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		room, err := m.scripts.ReadRoom(context.Background(), "large", m.limits("large"), 0)
		require.NoError(c, err)
		require.Equal(c, n, room.Waiting)
	}, time.Minute, 100*time.Millisecond)
}

// record returns when every client has read a position that includes all calls, and lets the positions be recorded from then on.
func (c *crowd) record(waiting int) {
	c.m.t.Helper()
	require.Eventually(c.m.t, func() bool { // one renewal has the positions of all calls of the process
		return slices.ContainsFunc(c.calls, func(w *waitingCall) bool { return w.ahead.Load() == int64(waiting-1) })
	}, time.Minute, 50*time.Millisecond)
	var seen []int64
	for _, w := range c.calls {
		seen = append(seen, w.comments.Load())
	}
	require.Eventually(c.m.t, func() bool {
		behind := 0
		for i, w := range c.calls {
			if w.comments.Load() < seen[i]+2 {
				behind++
			}
		}
		return behind <= len(c.calls)-waiting // those that are called have no position
	}, time.Minute, 50*time.Millisecond)
	c.recording.Store(true)
}

// newTeamKey creates a key of a team of its own, whose calls have the weight among those of other teams.
func (m *models) newTeamKey(team string, weight float64) string {
	m.t.Helper()
	require.NoError(m.t, m.ledger.PutTeam(m.t.Context(), berth.Team{ID: team}, "op"))
	require.NoError(m.t, m.scripts.SetLevel(m.t.Context(), lua.Level{Team: team}, weight, 0))
	secret := apikey.NewSecret()
	_, err := m.ledger.CreateKey(m.t.Context(), berth.APIKey{
		ID: berth.NewID("key_"), TeamID: team, KeySettings: berth.KeySettings{Durability: berth.DurabilityDirect}, CreatedBy: "op",
	}, apikey.Hash(secret))
	require.NoError(m.t, err)
	return secret
}

// requireShares checks the order in which the calls of some callers were served, of which each waited with calls until it has no more. Start-time fair
// queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996, theorem 1) serves two that wait so that |n1/w1 - n2/w2| <= 1/w1 + 1/w2 for calls that
// cost the same. Calls that are granted concurrently may arrive in another order, and a caller that had not waited before may be one call early.
func requireShares(t *testing.T, arrivals []string, calls map[string]int, weights map[string]float64, concurrent int) {
	t.Helper()
	served := map[string]int{}
	for i, caller := range arrivals {
		served[caller]++
		for one := range calls {
			for other := range calls {
				if served[one] == calls[one] || served[other] == calls[other] {
					continue // it does not wait any more
				}
				lead := float64(served[one])/weights[one] - float64(served[other])/weights[other]
				require.LessOrEqual(t, lead, float64(concurrent)/weights[one]+1/weights[other]+1, "%s beside %s after %d calls: %v", one, other, i+1, served)
			}
		}
	}
}

// complaint 4 at scale: five hundred calls of one team wait when those of nine others come. Each gets its share, and sees that it moves up.
func TestOpenAI_NoisyTeam_OthersServedInTurn(t *testing.T) { // O2, G11
	t.Parallel()
	const cap, noisy, others, each = 2, 500, 9, 5
	m := newModels(t, []int{cap}, func(d *api.Deps) { d.Config.HeartbeatInterval = time.Second })
	m.http.Timeout = 0
	gate := newTurnstile(m.providers[0], 20*time.Millisecond)
	c := &crowd{m: m}
	defer c.reading.Wait()
	defer gate.open()
	calls, weights := map[string]int{"noisy": noisy}, map[string]float64{"noisy": 1}
	secret := m.newTeamKey("noisy", 1)
	for n := range noisy + cap { // not all at the same time, since one database reserves what they may cost
		c.call("noisy", secret, "")
		if n%50 == 49 {
			m.waits(n + 1 - cap)
		}
	}
	m.waits(noisy)
	for range cap { // they have their slots already
		<-gate.arrivals
	}
	for i := range others {
		name := fmt.Sprintf("other-%d", i)
		calls[name], weights[name] = each, 1
		if i == 0 {
			weights[name] = 2
		}
		secret := m.newTeamKey(name, weights[name])
		for range each {
			c.call(name, secret, "")
		}
	}
	const waiting = noisy + others*each
	m.waits(waiting)
	c.record(waiting)
	gate.open()
	c.reading.Wait()

	var arrivals []string
	for range waiting {
		arrivals = append(arrivals, <-gate.arrivals)
	}
	requireShares(t, arrivals, calls, weights, cap)
	last := 0
	for i, caller := range arrivals {
		if caller != "noisy" {
			last = i + 1
		}
	}
	// When the last of the others is served, it has had four calls, so the noisy team has had at most 4 + 1 + 1, and one more if two calls arrive in
	// another order. Ideal is 50, one call of each team in each of five rounds; in the order of arrival it is 545.
	const bound = others*each + (each - 1) + 1 + cap
	t.Logf("the last of %d calls of the other teams was number %d of %d; at most %d are fair", others*each, last, waiting, bound)
	require.LessOrEqual(t, last, bound)
	moved := 0
	for _, w := range c.calls {
		require.NoError(t, w.err)
		require.True(t, w.answered, w.caller)
		require.True(t, slices.IsSortedFunc(w.positions, func(a, b int) int { return b - a }), "%s: %v", w.caller, w.positions)
		if len(w.positions) > 1 && w.positions[len(w.positions)-1] < w.positions[0] {
			moved++
		}
	}
	require.Greater(t, moved, noisy/2, "calls whose positions fell")
	t.Logf("positions of %d calls fell, such as %v", moved, c.calls[noisy].positions)
	require.Eventually(t, func() bool { return m.count("calls") == 0 }, 10*time.Second, 20*time.Millisecond)
}

// complaint 5: priority calls without end do not starve those of flex; both have the shares of their queues.
func TestOpenAI_EndlessPriorityCalls_FlexHasItsShare(t *testing.T) { // O2
	t.Parallel()
	const cap, flex, backlog = 2, 20, 20
	p := testprovider.Start(t)
	content, err := llm.ParseContent("routing.yaml", fmt.Sprintf(`
providers: {p: {baseURL: %q, keyOptional: true}}
models: {large: {provider: p, cap: %d, maxOutputTokens: 1000}}
queues: {ordinary: {weight: 2}, first: {weight: 3, serviceTier: priority}, last: {weight: 1, serviceTier: flex}}
`, p.URL, cap))
	require.NoError(t, err)
	catalog, err := llm.NewCatalog(content.Config, llm.Settings{})
	require.NoError(t, err)
	m := newModels(t, []int{1}, func(d *api.Deps) { d.Routing = routing.Fixed(catalog) })
	gate := newTurnstile(p, 5*time.Millisecond)
	_, secret := m.newKey(berth.KeySettings{ServiceTiers: []string{"priority", "flex"}})
	c := &crowd{m: m}
	for range backlog + cap {
		c.call("priority", secret, `,"service_tier":"priority"`)
	}
	m.waits(backlog)
	for range flex {
		c.call("flex", secret, `,"service_tier":"flex"`)
	}
	m.waits(backlog + flex)
	for range cap {
		require.Equal(t, "priority", <-gate.arrivals)
	}
	gate.open()
	var arrivals []string
	for served := 0; served < flex; {
		arrivals = append(arrivals, <-gate.arrivals)
		if arrivals[len(arrivals)-1] == "flex" {
			served++
			continue
		}
		c.call("priority", secret, `,"service_tier":"priority"`) // there are always some that wait
	}
	c.reading.Wait()
	weights := map[string]float64{"priority": 3, "flex": 1}
	requireShares(t, arrivals, map[string]int{"priority": len(arrivals) + 1, "flex": flex}, weights, cap)
	t.Logf("%d flex calls were served among %d of priority", flex, len(arrivals)-flex)
	for _, w := range c.calls {
		require.NoError(t, w.err)
		require.True(t, w.answered, w.caller)
	}
}
