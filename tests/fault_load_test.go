//go:build faults

package tests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth"
	"berth/client"
	"berth/internal/sim"
)

// setDuration returns a duration from the environment.
func setDuration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	for _, v := range os.Environ() {
		if text, ok := strings.CutPrefix(v, name+"="); ok && text != "" {
			d, err := time.ParseDuration(text)
			require.NoError(t, err, name)
			otherwise = d
		}
	}
	return otherwise
}

// fault is one kind of fault. It lasts until the function that it returns is called.
type fault struct {
	name   string
	inject func() (end func())
	// explains are the rules whose repairs the fault explains.
	explains []berth.ReconcileRule
}

// faults returns all kinds of faults.
func (w *cluster) faults(t *testing.T, rng *rand.Rand) (all []fault) {
	named := func(kind string) (parts []*part) {
		for _, p := range w.parts {
			if name, _, _ := strings.Cut(p.name, "-"); name == kind {
				parts = append(parts, p)
			}
		}
		return parts
	}
	for _, kind := range []string{"api", "worker", "node", "engine", "unit", "temporal", "database", "redis", "answers"} {
		parts := named(kind)
		require.NotEmpty(t, parts, kind)
		all = append(all, fault{name: "kill " + kind, inject: func() func() {
			p := parts[rng.IntN(len(parts))]
			p.kill()
			return p.start
		}})
		if parts[0].signal != nil {
			all = append(all, fault{name: "stop " + kind, inject: func() func() {
				p := parts[rng.IntN(len(parts))]
				p.signal(syscall.SIGSTOP)
				return func() { p.signal(syscall.SIGCONT) }
			}})
		}
	}
	return append(all, fault{name: "partition from Redis", inject: func() func() {
		_, err := w.link.Toxics.AddToxicJson(strings.NewReader(`{"type":"timeout","stream":"downstream","attributes":{"timeout":0}}`))
		require.NoError(t, err)
		return func() { w.link.Toxics.ResetToxics(context.Background()) }
	}}, fault{name: "Redis loses its data", inject: func() func() {
		require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
		w.store.Kill()
		return w.store.Restart
	}})
}

// submitted is an accepted task of the load with what its reader received, or the reason why the test has failed.
type submitted struct {
	user, id  string
	cancelled bool // its cancellation was requested
	ends      []berth.Event
	err       error
}

// taskUsers is how many users submit tasks; each has at most five at a time.
const taskUsers = 3

// order submits tasks until ctx ends. A reader follows each to its end.
func (l *load) order(ctx context.Context, n uint64, out chan<- submitted) {
	user := fmt.Sprintf("client-%d", n)
	rng, apis := rand.New(rand.NewPCG(l.seed, 3000+n)), l.apis(user)
	if _, err := insist(l, rng, l.apis("op", "operator"), func(ctx context.Context, c *client.Client) (client.Account, error) {
		return c.AddCredits(ctx, user, 1_000_000*berth.Credit, "test", "test")
	}); err != nil {
		out <- submitted{err: err}
		return
	}
	var readers sync.WaitGroup
	defer readers.Wait()
	limit := make(chan struct{}, 5)
	for i := 0; ctx.Err() == nil; i++ {
		limit <- struct{}{}
		s := summary(fmt.Sprintf("We need %d cooks, and %d more.", i, n))
		s.TaskID = fmt.Sprintf("task-%d", i)
		_, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (client.Acceptance, error) { return c.Submit(ctx, s, "") })
		if err != nil {
			out <- submitted{err: fmt.Errorf("task %s of %s: %w", s.TaskID, user, err)}
			return
		}
		task := submitted{user: user, id: s.TaskID, cancelled: rng.IntN(8) == 0}
		readers.Go(func() {
			defer func() { <-limit }()
			wait, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			for ev, err := range apis[i%len(apis)].Follow(wait, task.id, "") {
				if err != nil {
					task.err = fmt.Errorf("reader of %s of %s: %w", task.id, user, err)
					break
				}
				if ev.Event.Type.Terminal() {
					task.ends = append(task.ends, ev.Event)
				}
			}
			out <- task
		})
		if task.cancelled {
			_, err := insist(l, rng, apis, func(ctx context.Context, c *client.Client) (struct{}, error) {
				return struct{}{}, c.Cancel(ctx, task.id)
			})
			if p := refusedFor(err); err != nil && (p == nil || p.Code != berth.CodeConflict) {
				out <- submitted{err: fmt.Errorf("cancel %s of %s: %w", task.id, user, err)}
			}
		}
		<-time.After(time.Duration(200+rng.IntN(1000)) * time.Millisecond)
	}
}

// everyTask checks that each accepted task ended once, as its reader was notified, and that every account is exact: one charge for
// each task, and a refund for each that did not complete.
func (w *cluster) everyTask(t *testing.T, tasks []submitted) {
	t.Helper()
	byUser := map[string]map[string]berth.TaskStatus{}
	ends := map[berth.TaskStatus]int{}
	for _, s := range tasks {
		require.NoError(t, s.err)
		require.Len(t, s.ends, 1, "terminal events of %s of %s", s.id, s.user)
		c := client.New(w.urls[0], w.token(s.user))
		task, err := c.Get(t.Context(), s.id)
		require.NoError(t, err)
		require.True(t, task.Status == berth.TaskCompleted || s.cancelled && task.Status == berth.TaskCancelled, "%s of %s: %s %+v", s.id, s.user, task.Status, task.Error)
		require.Equal(t, task.Status == berth.TaskCompleted, s.ends[0].Type == berth.EventDone, "%s of %s: %s", s.id, s.user, s.ends[0].Type)
		if byUser[s.user] == nil {
			byUser[s.user] = map[string]berth.TaskStatus{}
		}
		byUser[s.user][s.id] = task.Status
		ends[task.Status]++
	}
	t.Logf("tasks ended: %v", ends)
	require.Greater(t, ends[berth.TaskCompleted], 5)
	for user, statuses := range byUser {
		c := client.New(w.urls[0], w.token(user))
		var sum berth.Credits
		amounts := map[string][]berth.Credits{}
		for cursor := ""; ; {
			entries, next, err := c.CreditEntries(t.Context(), "", cursor, 200)
			require.NoError(t, err)
			for _, e := range entries {
				sum += e.Amount
				if e.TaskID != "" {
					amounts[e.TaskID] = append(amounts[e.TaskID], e.Amount)
				}
			}
			if cursor = next; next == "" {
				break
			}
		}
		account, err := c.Account(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, account.Credits, sum, "balance of %s", user)
		for id, status := range statuses { // an acceptance that failed was refunded, and the repeated submission charged again
			var cost berth.Credits
			for i, amount := range amounts[id] {
				cost -= amount
				require.Equal(t, (i+len(amounts[id]))%2 == 1, amount < 0, "charges and refunds of %s of %s alternate: %v", id, user, amounts[id])
			}
			require.Equal(t, status == berth.TaskCompleted, cost > 0, "%s of %s: %v", id, user, amounts[id])
			require.Equal(t, status == berth.TaskCompleted, len(amounts[id])%2 == 1, "%s of %s: %v", id, user, amounts[id])
		}
		for id := range amounts {
			require.Contains(t, statuses, id, "a charge of %s for a task that was not accepted", user)
		}
	}
}

// size is what must not grow: goroutines and memory of processes, and keys of Redis, of which those without an expiry are bounded.
type size struct {
	goroutines, memory map[string]int // memory in MiB
	keys, lasting      int
}

func (w *cluster) measure() (s size) {
	s.goroutines, s.memory = map[string]int{}, map[string]int{}
	for name, addr := range w.metrics {
		lines := bufio.NewScanner(strings.NewReader(scrape(addr)))
		for lines.Scan() {
			metric, text, _ := strings.Cut(lines.Text(), " ")
			value, _ := strconv.ParseFloat(text, 64)
			switch metric {
			case "go_goroutines":
				s.goroutines[name] = int(value)
			case "process_resident_memory_bytes":
				s.memory[name] = int(value) >> 20
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys := w.rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		s.keys++
		if ttl, err := w.rdb.PTTL(ctx, keys.Val()).Result(); err == nil && ttl == -1 {
			s.lasting++
		}
	}
	return s
}

// repairs collects the findings of all passes until ctx ends.
func (w *cluster) repairs(ctx context.Context) <-chan map[string]berth.ReconcileFinding {
	out := make(chan map[string]berth.ReconcileFinding, 1)
	go func() {
		seen := map[string]berth.ReconcileFinding{}
		for last := false; !last; {
			select {
			case <-ctx.Done():
				last = true
			case <-time.After(10 * time.Second):
			}
			for _, url := range w.urls {
				state, err := client.New(url, w.token("op", "operator")).Reconciliation(context.Background())
				if err != nil {
					continue
				}
				for _, p := range state.Passes {
					for _, f := range p.Findings {
						seen[fmt.Sprint(p.ID, f.Rule, f.Subject)] = f
					}
				}
				break
			}
		}
		out <- seen
	}()
	return out
}

// everyTurn checks that each accepted segment has a result and that no turn was done twice, where Redis lost events.
func (w *cluster) everyTurn(t *testing.T, accepted map[string]segments, received []berth.SessionEvent) {
	t.Helper()
	done := map[string]int{}
	for _, ev := range received {
		if ev.Type == berth.EventDone {
			done[ev.TurnID]++
		}
	}
	c := client.New(w.urls[0], w.token("op", "operator", "user"))
	for id, want := range accepted {
		turn, err := c.Turn(t.Context(), id)
		require.NoError(t, err, id)
		require.Equal(t, berth.TurnFinalized, turn.Status, id)
		require.Len(t, turn.Jobs, len(want), id)
		require.LessOrEqual(t, done[id], 1, id)
	}
}

// mixedLoad is work of every kind: turns, executions, conferences and tasks.
type mixedLoad struct {
	*load
	tasks  chan submitted
	quiet  context.CancelFunc // ends the submission of work
	cancel context.CancelFunc // ends the readers
}

func beginMixedLoad(t *testing.T, w *cluster, seed uint64) *mixedLoad {
	t.Helper()
	l := &mixedLoad{load: newLoad(w, seed, 100_000), tasks: make(chan submitted, 100_000)}
	var speaking, listening context.Context
	speaking, l.quiet = context.WithCancel(t.Context())
	listening, l.cancel = context.WithCancel(t.Context())
	for n := range uint64(2) {
		l.session(speaking, listening, n)
	}
	l.speaking.Go(func() { l.execute(speaking) })
	for n := range uint64(rooms) {
		l.speaking.Go(func() { l.host(speaking, listening, n) })
	}
	for n := range uint64(taskUsers) {
		l.speaking.Go(func() { l.order(speaking, n, l.tasks) })
	}
	return l
}

// orders returns the tasks that were submitted, once no more are.
func (l *mixedLoad) orders() (all []submitted) {
	close(l.tasks)
	for s := range l.tasks {
		all = append(all, s)
	}
	return all
}

// Mixed load with a fault every FAULTS_EVERY (1m) for FAULTS_FOR (20m): kill -9 and SIGSTOP of every kind of process, restarts of
// Temporal, the database and Redis, a Redis that loses its data, cut and hanging connections. Nothing that was accepted is lost, each
// piece of work ends once, balances are exact, nothing is held or open at the end, and the reconciliation repairs only what a fault
// explains.
func TestStack_FaultEveryMinute_NothingLostAndNoFalseAlarm(t *testing.T) { // B2, B4
	seed := streamSeed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	lasts, every := setDuration(t, "FAULTS_FOR", 20*time.Minute), setDuration(t, "FAULTS_EVERY", time.Minute)
	model := httptest.NewServer(sim.ModelServer(sim.Options{
		FirstTokenDelay: 200 * time.Millisecond, TokensPerSecond: 100, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(model.Close)
	w := newCluster(t, "BERTH_LOCAL_MODEL_URL="+model.URL+"/v1", "BERTH_CONFERENCE_LICENCES=30", "BERTH_RECONCILE_FULL_EVERY=2m")
	l := beginMixedLoad(t, w, seed)
	defer l.cancel()
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	findings := w.repairs(watching)

	<-time.After(every)
	before := w.measure()
	t.Logf("after %s: %+v", every, before)
	explained, lost := map[berth.ReconcileRule]bool{}, false
	var kinds []fault
	for until := time.Now().Add(lasts); time.Now().Before(until); {
		if len(kinds) == 0 {
			kinds = w.faults(t, rng)
			rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		f := kinds[0]
		kinds = kinds[1:]
		hold := time.Duration(500+rng.IntN(10_000)) * time.Millisecond
		began := time.Now()
		end := f.inject()
		<-time.After(hold)
		end()
		for _, rule := range f.explains {
			explained[rule] = true
		}
		lost = lost || f.name == "Redis loses its data"
		t.Logf("%s for %s", f.name, hold)
		<-time.After(every - time.Since(began))
	}
	l.quiet()
	calm := time.Now()
	l.speaking.Wait()
	t.Logf("the load ended %s after the last fault; %d calls were repeated", time.Since(calm).Round(time.Millisecond), l.retries.Load())
	turns, executions := l.accepted(t)
	w.ended(t, executions)
	w.everyTask(t, l.orders())
	conferences := w.keptOnly(t, l.load, calm)
	w.release(t, conferences)
	w.noneOpen(t)
	w.awaitReady()
	w.noSlotHeld()
	require.NoError(t, w.agree())
	licences, err := w.rdb.SCard(t.Context(), w.scripts.Keys().Licences()).Result()
	require.NoError(t, err)
	require.Zero(t, licences)

	pass := w.fullPass(false)
	require.Zero(t, pass.Found(), "%+v", pass.Findings)
	stop()
	var wrong []error
	counts := map[string]int{}
	for _, f := range <-findings {
		counts[fmt.Sprintf("%s %s", f.Rule, f.Outcome)]++
		// A task that has just been submitted has a run and no row yet. The first check finds it; the second one does not, or is not
		// made because a dependency has become unavailable.
		unconfirmed := f.Outcome == berth.FindingGone || f.Outcome == berth.FindingFound
		if !unconfirmed && !explained[f.Rule] {
			wrong = append(wrong, fmt.Errorf("no fault explains %+v", f))
		}
	}
	t.Logf("findings: %v", counts)
	require.NoError(t, errors.Join(wrong...))

	l.cancel()
	l.readers.Wait()
	var received []berth.SessionEvent
	for close(l.received); ; {
		ev, more := <-l.received
		if !more {
			break
		}
		received = append(received, ev.Event)
	}
	if lost {
		w.everyTurn(t, turns, received)
		for c, err := range client.New(w.urls[0], w.token("op", "operator")).Conferences(t.Context(), "", "") {
			require.NoError(t, err)
			require.True(t, c.Status.Final(), "%s of %s: %s", c.ID, c.E164, c.Status)
		}
	} else {
		require.NoError(t, checkEvents(turns, received))
		require.Positive(t, w.everyConference(t, l.load, conferences), "some were recovered")
	}
	after := w.measure()
	t.Logf("at the end: %+v", after)
	for name, n := range after.goroutines {
		require.LessOrEqual(t, n, 2*slices.Max(slices.Collect(maps.Values(before.goroutines)))+200, "goroutines of %s", name)
	}
	require.LessOrEqual(t, after.lasting, before.lasting+50, "keys without an expiry")
	w.replayAll()
}
