//go:build faults

package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/client"
	"berth/internal/sim"
	"berth/workflows"
)

// alertLoad is a mixed load that continues through every fault, whatever the outcome of its work.
func (w *cluster) alertLoad(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	n := 0
	repeat := func(every time.Duration, call func(ctx context.Context, c *client.Client, i int)) {
		n++
		c := client.New(w.urls[n%2], w.token(fmt.Sprintf("load-%d", n), "user", "node"))
		operator := client.New(w.urls[0], w.token("op", "operator"))
		_, err := operator.AddCredits(t.Context(), fmt.Sprintf("load-%d", n), 1_000_000*berth.Credit, "test", "test")
		require.NoError(t, err)
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				calling, cancel := context.WithTimeout(ctx, 5*time.Second)
				call(calling, c, i)
				cancel()
				select {
				case <-time.After(every):
				case <-ctx.Done():
				}
			}
		})
	}
	for range 2 {
		repeat(400*time.Millisecond, func(ctx context.Context, c *client.Client, i int) {
			accepted, err := c.Submit(ctx, summary(fmt.Sprintf("We need %d cooks.", i)), "")
			if err == nil {
				for _, err := range c.Follow(ctx, accepted.TaskID, "") { // until its end, or that of the call
					if err != nil {
						return
					}
				}
			}
		})
	}
	// More tasks at a time than a user has slots.
	repeat(5*time.Second, func(ctx context.Context, c *client.Client, i int) {
		for n := range 12 {
			_, _ = c.Submit(ctx, summary(fmt.Sprintf("We need %d waiters and %d cooks.", i, n)), "")
		}
	})
	repeat(500*time.Millisecond, func(ctx context.Context, c *client.Client, i int) {
		id := fmt.Sprintf("alerts-%d", i%5)
		if _, err := c.PutSession(ctx, id, client.SessionSpec{SrcLang: "en", TgtLang: "es"}); err != nil {
			return
		}
		_, _ = c.Dispatch(ctx, id, client.JobSpec{
			RequestID: fmt.Sprintf("alerts.%d", i), SpeakerID: "ann", Segment: client.Segment{Text: "words"}, Finalize: berth.FinalizeManual,
		})
	})
	repeat(time.Second, func(ctx context.Context, c *client.Client, i int) {
		_, _ = c.Execute(ctx, client.ExecutionSpec{
			ExecutionID: fmt.Sprintf("alerts-%d", i), Executor: "report", Input: json.RawMessage(`1`), TimeoutMs: 6000, DeadlineMs: 600_000,
		})
	})
	repeat(time.Second, func(ctx context.Context, c *client.Client, i int) {
		// Four conferences stay open, where they are not already, and another one is opened and ended repeatedly.
		_, _ = c.CreateConference(ctx, client.ConferenceSpec{E164: fmt.Sprint(8670000001 + i%4), DurationMs: time.Hour.Milliseconds()})
		if _, err := c.CreateConference(ctx, client.ConferenceSpec{E164: "8670000009", DurationMs: time.Hour.Milliseconds()}); err == nil {
			_, _ = c.EndConference(ctx, "8670000009")
		}
	})
}

// alertFault is a fault with exactly the alerts that it causes.
type alertFault struct {
	name   string
	inject func() (end func())
	alerts []string
	// after are alerts that fire when the fault has ended.
	after []string
	// also are alerts that follow from the fault if it lasts long enough.
	also []string
	// lasts is how long the fault lasts at least after its alerts.
	lasts time.Duration
	// panels are those of the dashboard that have data only after this fault.
	panels []string
}

// The alerts that no fault here causes; rules_test.yml tests them.
var otherAlerts = map[string]string{
	"BerthLongWait":              "needs waits of more than a minute",
	"BerthRecoveriesFailing":     "needs participants",
	"BerthSignalMisconfigured":   "needs participants",
	"BerthWebhooksRejected":      "needs a LiveKit server",
	"BerthReconciliationStopped": "needs a thousand differences",
	"BerthReconciliationFailed":  "needs a repair that fails",
	"BerthRowsPastDeadline":      "needs minutes",
	"BerthUpstreamPaused":        "needs a model with several upstreams",
	"BerthUpstreamBelowMax":      "needs a learned limit",
	"BerthBudgetNearlyUsed":      "needs a budget",
	"BerthBudgetUsed":            "needs a budget",
}

func (w *cluster) named(prefix string) (parts []*part) {
	for _, p := range w.parts {
		if strings.HasPrefix(p.name, prefix) {
			parts = append(parts, p)
		}
	}
	return parts
}

func (w *cluster) killed(prefix string) func() func() {
	return func() func() {
		for _, p := range w.named(prefix) {
			p.kill()
		}
		return func() {
			for _, p := range w.named(prefix) {
				p.start()
			}
		}
	}
}

func (w *cluster) suspended(prefix string) func() func() {
	return func() func() {
		for _, p := range w.named(prefix) {
			p.signal(syscall.SIGSTOP)
		}
		return func() {
			for _, p := range w.named(prefix) {
				p.signal(syscall.SIGCONT)
			}
		}
	}
}

// ownerKilled kills the unit of one of the conferences that stay open.
func (w *cluster) ownerKilled(t *testing.T) func() func() {
	t.Helper()
	return func() func() {
		c, err := client.New(w.urls[0], w.token("op", "operator")).Conference(context.Background(), "8670000001", "")
		require.NoError(t, err)
		require.NotNil(t, c.Owner)
		return w.killed(c.Owner.NodeID)()
	}
}

// provider makes every call of a model fail, until the function that it returns is called.
func provider(t *testing.T, model *httptest.Server, kind string) func() func() {
	t.Helper()
	send := func(method string, f sim.Fault) {
		body, err := json.Marshal(f)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(context.Background(), method, model.URL+"/sim/faults", strings.NewReader(string(body)))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Less(t, res.StatusCode, 300)
	}
	return func() func() {
		send(http.MethodPost, sim.Fault{Kind: kind, Times: -1})
		return func() { send(http.MethodDelete, sim.Fault{}) }
	}
}

func (w *cluster) alertFaults(t *testing.T, model *httptest.Server) []alertFault {
	t.Helper()
	schedule := w.frontend.ScheduleClient().GetHandle(t.Context(), workflows.ReconcileID)
	pause := func(paused bool) {
		for _, name := range []string{"deepseek-chat", "glm-4.5-flash"} {
			status, out := w.send(http.MethodPatch, "/v1/models/"+name, w.token("op", "operator"), map[string]any{"paused": paused})
			require.Equal(t, http.StatusOK, status, "%v", out)
		}
	}
	return []alertFault{
		{name: "nodes cordoned", alerts: []string{"BerthNoCapacity"}, panels: []string{"Work refused with 503 A"}, inject: func() func() {
			order := func(order string) {
				for _, p := range w.named("node-") {
					status, out := w.send(http.MethodPost, "/v1/nodes/"+p.name+"/"+order, w.token("op", "operator"), nil)
					require.Equal(t, http.StatusOK, status, "%v", out)
				}
			}
			order("cordon")
			return func() { order("uncordon") }
		}},
		{name: "reconciliation paused", alerts: []string{"BerthReconciliationStalled"}, inject: func() func() {
			require.NoError(t, schedule.Pause(t.Context(), temporalclient.SchedulePauseOptions{}))
			return func() {
				require.NoError(t, schedule.Unpause(context.Background(), temporalclient.ScheduleUnpauseOptions{}))
			}
		}},
		{name: "memory of Redis full", alerts: []string{"BerthRedisMemoryHigh"}, panels: []string{"Memory of Redis B"}, inject: func() func() {
			limit := func(bytes int64) {
				require.NoError(t, w.rdb.ConfigSet(context.Background(), "maxmemory", fmt.Sprint(bytes)).Err())
			}
			limit(w.usedMemory(t) * 9 / 8)
			return func() { limit(0) }
		}},
		{name: "one unit killed", inject: w.ownerKilled(t), alerts: []string{"BerthNodesLost"}, panels: []string{"Recovered conferences A"}},
		{
			// The first recovery of a process has no rate.
			name: "units hang", inject: w.suspended("unit-"), panels: []string{"Recovery duration A", "Recovery duration B"},
			alerts: []string{"BerthConferencesWaiting", "BerthNoReadyNode", "BerthNodesLost"}, after: []string{"BerthRecoveriesSlow"}, lasts: 45 * time.Second,
		},
		{name: "provider fails", alerts: []string{"BerthModelPaused"}, also: []string{"BerthUpstreamsPaused"}, inject: provider(t, model, sim.Fault500)},
		{name: "provider rejects the key", alerts: []string{"BerthTasksFailing"}, also: []string{"BerthUpstreamsPaused"}, inject: provider(t, model, sim.Fault401)},
		{name: "model paused by an operator", alerts: []string{"BerthNothingGranted", "BerthUpstreamsPaused"}, inject: func() func() {
			pause(true)
			return func() { pause(false) }
		}},
		{
			name: "API killed", inject: w.killed("api-"), alerts: []string{"BerthAPIDown", "BerthDependencyUnavailable"},
			also: []string{"BerthNoReadyNode", "BerthConferencesWaiting"}, // nodes cannot send heartbeats
		},
		{
			name: "workers killed", inject: w.killed("worker-"), panels: []string{"Refused submissions A"},
			alerts: []string{"BerthNoPoller", "BerthQueueNotServed", "BerthReconciliationStalled", "BerthSweepFailing"},
			also:   []string{"BerthNoCapacity"},
		},
		{
			name: "Redis killed", inject: w.killed("redis"),
			alerts: []string{"BerthDependencyUnavailable", "BerthReconciliationStalled", "BerthSweepFailing"},
			also:   []string{"BerthConferencesWaiting", "BerthNoCapacity", "BerthNothingGranted", "BerthNoPoller", "BerthPublishesFailing", "BerthQueueNotServed"},
		},
		{name: "run terminated", alerts: []string{"BerthReconciliationRepaired"}, inject: func() func() {
			pause(true) // a task whose call runs may still complete
			defer pause(false)
			c := client.New(w.urls[0], w.token("load-1", "user"))
			accepted, err := c.Submit(context.Background(), summary("We need a baker."), "")
			require.NoError(t, err)
			require.NoError(t, w.frontend.TerminateWorkflow(context.Background(), workflows.TaskWorkflowID(berth.TaskRef{UserID: "load-1", TaskID: accepted.TaskID}), "", "test"))
			w.eventually("the task to be repaired", func() bool {
				task, err := c.Get(context.Background(), accepted.TaskID)
				return err == nil && task.Status.Final()
			})
			return func() {}
		}},
	}
}

func (w *cluster) usedMemory(t *testing.T) (bytes int64) {
	t.Helper()
	info, err := w.rdb.Info(context.Background(), "memory").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &bytes)
	}
	require.Positive(t, bytes)
	return bytes
}

// The shipped alerts and dashboard on a running stack under mixed load: every query returns data, no alert fires without a fault, and
// each fault causes exactly its alerts, which resolve after it.
func TestAlerts_EachFault_ExpectedAlertsFireAndResolve(t *testing.T) { // X3
	model := httptest.NewServer(sim.ModelServer(sim.Options{
		FirstTokenDelay: 100 * time.Millisecond, TokensPerSecond: 500, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(model.Close)
	w := newCluster(t, "BERTH_LOCAL_MODEL_URL="+model.URL+"/v1", "BERTH_RECONCILE_EVERY=2s", "BERTH_RECONCILE_PAUSE=2s", "BERTH_SAMPLE_EVERY=1s",
		"TURN_TIMEOUT_MS=2000", "WORKER_TIMEOUT_MS=5000")
	faults := w.alertFaults(t, model)
	covered := slices.Collect(maps.Keys(otherAlerts))
	for _, f := range faults {
		covered = slices.Concat(covered, f.alerts, f.after, f.also)
	}
	slices.Sort(covered)
	require.ElementsMatch(t, shippedAlerts(t), slices.Compact(covered))

	w.alertLoad(t)
	w.eventually("the first pass of the reconciliation and sample", func() bool {
		scraped := scrape(w.metrics["worker-0"]) + scrape(w.metrics["worker-1"]) + scrape(w.metrics["api-0"]) + scrape(w.metrics["api-1"])
		return strings.Contains(scraped, `outcome="completed"} `) && strings.Contains(scraped, "berth_task_queue_pollers{")
	})
	m := monitor(t, w.metrics)
	queries, later := panelQueries(t), map[string]bool{}
	for _, f := range faults {
		for _, p := range f.panels {
			require.Contains(t, queries, p)
			later[p] = true
		}
	}
	for _, name := range livekitPanels {
		require.Contains(t, queries, name)
		delete(queries, name)
	}
	empty := func(only func(panel string) bool) (names []string) {
		for _, name := range slices.Sorted(maps.Keys(queries)) {
			if only(name) && len(m.query(queries[name])) == 0 {
				names = append(names, name)
			}
		}
		return names
	}
	var without []string
	healthy := func(name string) bool { return !later[name] }
	began := time.Now()
	for until := began.Add(maxWait); ; <-time.After(time.Second) {
		if without = empty(healthy); len(without) == 0 || time.Now().After(until) {
			break
		}
	}
	require.Empty(t, without, "panels without data")
	t.Logf("every panel that needs no fault had data after %s", time.Since(began).Round(time.Second))
	// The shortened windows are shorter than the time until the first successful scrape on a busy machine.
	w.eventually("no alert of the start", func() bool { return len(m.firing()) == 0 })
	t.Logf("alerts during the start: %v", m.drain())
	<-time.After(setDuration(t, "ALERTS_HEALTHY_FOR", time.Minute))
	require.Empty(t, m.drain(), "alerts without a fault")
	for labels, n := range m.query(`count({__name__=~".+"})`) {
		t.Logf("time series: %.0f %s", n, labels)
	}
	t.Logf("series by service: %v", m.query(`count by (service) ({__name__=~".+"})`))
	t.Logf("largest metrics: %v", m.query(`topk(12, count by (__name__) ({__name__=~".+"}))`))

	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			m.tb = t
			w.cause(t, m, f, func() []string {
				return empty(func(name string) bool { return slices.Contains(f.panels, name) })
			})
		})
	}
}

// livekitPanels need a LiveKit server.
var livekitPanels = []string{"Foreign rooms removed A", "Rejected events of media servers A"}

// drain returns the names of the alerts that fired since the last call.
func (m *monitoring) drain() (fired []string) {
	for {
		select {
		case n := <-m.notices:
			if n.Status == "firing" {
				fired = append(fired, n.Labels["alertname"])
			}
		default:
			slices.Sort(fired)
			return slices.Compact(fired)
		}
	}
}

const (
	// firesWithin and resolvesWithin limit the wait for the alerts of a fault, holdsFor is how long others may follow them.
	firesWithin, resolvesWithin, holdsFor = 4 * time.Minute, 8 * time.Minute, 15 * time.Second
)

// cause injects a fault until its alerts fire, ends it, and waits until none fires. Each panel of the fault has data at the end of the
// fault or afterwards.
func (w *cluster) cause(t *testing.T, m *monitoring, f alertFault, empty func() []string) {
	t.Helper()
	w.eventually("no alert before the fault", func() bool { return len(m.firing()) == 0 })
	m.drain()
	began := time.Now()
	ended := false
	end := f.inject()
	defer func() {
		if !ended {
			end()
		}
	}()
	fired := map[string]time.Duration{}
	firing := map[string]bool{} // by labels
	note := func(n notice) {
		name, labels := n.Labels["alertname"], fmt.Sprint(n.Labels)
		if firing[labels] = n.Status == "firing"; !firing[labels] {
			delete(firing, labels)
			return
		}
		if _, known := fired[name]; !known {
			fired[name] = n.at.Sub(began).Round(time.Second)
		}
	}
	await := func(within time.Duration, done func() bool) error {
		limit := time.After(within)
		for !done() {
			select {
			case n := <-m.notices:
				note(n)
			case <-limit:
				return errors.New("waited too long")
			}
		}
		return nil
	}
	all := func(names []string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := fired[name]; return !ok })
	}
	late := await(firesWithin, func() bool { return all(f.alerts) })
	for limit := time.After(max(holdsFor, f.lasts)); limit != nil; {
		select {
		case n := <-m.notices:
			note(n)
		case <-limit:
			limit = nil
		}
	}
	without := empty()
	end()
	ended = true
	over := time.Now()
	unresolved := await(resolvesWithin, func() bool { return len(firing) == 0 && all(f.after) })
	t.Logf("fault %q, seconds until each alert: %v; resolved after %s", f.name, fired, time.Since(over).Round(time.Second))
	for _, name := range f.also {
		delete(fired, name)
	}
	require.ElementsMatch(t, slices.Concat(f.alerts, f.after), slices.Collect(maps.Keys(fired)))
	require.NoError(t, late, "%v", fired)
	require.NoError(t, unresolved, "%v", firing)
	w.eventually("data in the panels of the fault", func() bool {
		now := empty()
		without = slices.DeleteFunc(without, func(panel string) bool { return !slices.Contains(now, panel) })
		return len(without) == 0
	})
}
