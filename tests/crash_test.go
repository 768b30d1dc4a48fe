//go:build faults

package tests

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/client"
	"berth/internal/node"
	"berth/internal/testdb"
	"berth/internal/testredis"
	"berth/lua"
)

// cluster is a berth with several instances of each process, or with data in files: each part can be killed and restarted
// separately.
type cluster struct {
	*stack
	store *testredis.Server
	parts []*part
	urls  []string
	units []simulated
	// metrics has the addresses at which processes serve their metrics.
	metrics map[string]string
	link    *toxiproxy.Proxy // to Redis
	// scripts and frontend are the test's direct connections to Redis and Temporal.
	rdb      *redis.Client
	scripts  *lua.Scripts
	frontend temporalclient.Client
}

// part is a process, or a group of processes, that is killed and started again.
type part struct {
	name        string
	kill, start func()
	signal      func(syscall.Signal) // nil if it is not a process
}

// runs returns the part that runs a program.
func (w *cluster) runs(name, bin string, args, env []string) *part {
	var p *process
	return &part{
		name: name, kill: func() { p.kill() }, start: func() { p = w.stack.start(bin, args, env) },
		signal: func(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }, // the process may have ended
	}
}

func newCluster(t *testing.T, more ...string) *cluster {
	t.Helper()
	w := &cluster{stack: &stack{tb: t, dir: t.TempDir()}, store: testredis.Start(t, "--appendonly", "yes"), metrics: map[string]string{}}
	t.Cleanup(w.killAll)
	w.rdb = w.store.Client()
	w.scripts = lua.New(w.rdb, lua.Keys{})
	database := testdb.Start(t)
	temporal := freeAddr(t)
	link := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "redis", "127.0.0.1:0", w.store.Addr())
	require.NoError(t, link.Start())
	t.Cleanup(link.Stop)
	w.link = link
	w.ready.TemporalAddr, w.ready.RedisAddr = temporal, w.store.Addr()
	w.settings = append([]string{
		"BERTH_TEMPORAL_ADDR=" + temporal, "BERTH_REDIS_ADDR=" + link.Listen, "BERTH_DATABASE=" + database.Database(t),
		"BERTH_AUTH_SECRET=" + secret, "TURN_TIMEOUT_MS=4000", "BERTH_JOB_TIMEOUT=6s", "BERTH_CONFERENCE_COMMAND=4s",
		"BERTH_METRICS_ADDR=off",
	}, more...)
	w.parts = []*part{
		w.runs("temporal", "berth-dev", nil, []string{
			"BERTH_DATA_DIR=" + filepath.Join(w.dir, "data"), "BERTH_DEV_ONLY=temporal", "BERTH_TEMPORAL_ADDR=" + temporal,
			"BERTH_TEMPORAL_DRAINAGE=5s",
		}),
		{name: "redis", kill: w.store.Kill, start: w.store.Restart},
		{name: "database", kill: database.Kill, start: func() { database.Restart(t) }},
		// The replies of Redis are cut off after it has run the commands (P6).
		{name: "answers", kill: func() {
			_, err := link.Toxics.AddToxicJson(strings.NewReader(`{"type":"limit_data","stream":"downstream","attributes":{"bytes":500}}`))
			require.NoError(t, err)
		}, start: func() { link.Toxics.ResetToxics(context.Background()) }},
	}
	for i := range 2 {
		addr := freeAddr(t)
		w.urls = append(w.urls, "http://"+addr)
		w.parts = append(w.parts,
			w.runs(fmt.Sprintf("api-%d", i), "berth", []string{"api"}, append(w.measured(fmt.Sprintf("api-%d", i)), "BERTH_HTTP_ADDR="+addr)),
			w.runs(fmt.Sprintf("worker-%d", i), "berth", []string{"worker"}, w.measured(fmt.Sprintf("worker-%d", i))))
	}
	for i := range 3 {
		w.parts = append(w.parts, w.runs(fmt.Sprintf("node-%d", i), "berth-sim",
			[]string{"node", "--id", fmt.Sprintf("node-%d", i), "--capabilities", enES, "--delay", "200ms", "--slots", "3"},
			append(w.measured(fmt.Sprintf("node-%d", i)), "BERTH_URL="+w.urls[i%2], "BERTH_TOKEN="+w.token("nodes", "node"))))
	}
	for i := range 2 {
		w.parts = append(w.parts, w.runs(fmt.Sprintf("engine-%d", i), "berth-sim",
			[]string{"node", "--id", fmt.Sprintf("engine-%d", i), "--kind", "engine", "--capabilities", "report", "--delay", "500ms", "--slots", "2"},
			append(w.measured(fmt.Sprintf("engine-%d", i)), "BERTH_URL="+w.urls[i%2], "BERTH_TOKEN="+w.token("nodes", "node"))))
	}
	for i := range 3 {
		w.parts = append(w.parts, w.unit(fmt.Sprintf("unit-%d", i), w.urls[i%2], 5)...)
	}
	w.httpAddr = strings.TrimPrefix(w.urls[0], "http://")
	_, err := w.scripts.MarkNew(t.Context())
	require.NoError(t, err)
	for _, p := range w.parts {
		if !slices.Contains([]string{"redis", "database", "answers"}, p.name) {
			p.start()
		}
	}
	w.awaitReady()
	w.frontend = w.temporal()
	return w
}

// measured returns the settings of a process that serves its metrics.
func (w *cluster) measured(name string) []string {
	w.metrics[name] = freeAddr(w.tb)
	return append(slices.Clone(w.settings), "BERTH_METRICS_ADDR="+w.metrics[name])
}

// awaitReady waits until all parts are ready.
func (w *cluster) awaitReady() {
	w.tb.Helper()
	for _, url := range w.urls {
		w.eventually(url+" to be ready", func() bool {
			res, err := http.Get(url + "/readyz") //nolint:noctx,gosec // a test's own server
			return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
		})
	}
	operator := client.New(w.urls[0], w.token("op", "operator"))
	for _, p := range w.parts {
		kind, _, _ := strings.Cut(p.name, "-")
		if slices.Contains([]string{"node", "engine", "unit"}, kind) {
			w.eventually(p.name+" to be free", func() bool {
				n, err := operator.Node(context.Background(), p.name)
				return err == nil && n.State == berth.NodeReady && n.Excluded == "" && (n.Leases == 0 || kind == "unit")
			})
		}
	}
}

// P2 for turns, executions, conferences and the slots of nodes: under steady load everything is killed and started again, one
// or two at a time. Nothing that was accepted is lost, repeated or out of order; each turn, execution and conference ends
// once; what is to stay open does, on one unit at a time; no slot is kept, no run stays open, and every history is replayed.
func TestStack_CrashesUnderLoad_NothingIsLost(t *testing.T) { // X7, L7, A10, A11, C1, C4, C7, C10, C13-C17, C20, C22; P1, P2
	seed := streamSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newCluster(t)
	l := newLoad(w, seed, 10_000)
	speaking, quiet := context.WithCancel(t.Context())
	listening, cancel := context.WithCancel(t.Context())
	for n := range uint64(4) {
		l.session(speaking, listening, n)
	}
	l.speaking.Go(func() { l.execute(speaking) })
	for n := range uint64(rooms) {
		l.speaking.Go(func() { l.host(speaking, listening, n) })
	}
	looking, blind := context.WithCancel(t.Context())
	defer blind()
	seen := w.observe(looking)

	w.crash(t, rng, 90*time.Second)
	quiet()
	calm := time.Now()
	l.speaking.Wait()
	accepted, executions := l.accepted(t)
	silent := time.Now()
	segments := 0
	for _, turn := range accepted {
		segments += len(turn)
	}
	t.Logf("%d segments of %d turns and %d executions were accepted, after %d refusals and lost answers", segments, len(accepted), len(executions), l.retries.Load())
	require.Greater(t, segments, 50)
	require.NotEmpty(t, executions)

	var received []berth.SessionEvent
	done := map[string]bool{}
	for left := time.After(maxWait); len(done) < len(accepted); {
		select {
		case ev := <-l.received:
			received = append(received, ev.Event)
			if ev.Event.Type == berth.EventDone {
				done[ev.Event.TurnID] = true
			}
		case <-left:
			cancel()
			require.NoError(t, checkEvents(accepted, received))
		}
	}
	t.Logf("every turn was done %s after the last segment", time.Since(silent).Round(10*time.Millisecond))
	w.ended(t, executions)
	conferences := w.keptOnly(t, l, calm)
	blind()
	require.NoError(t, (<-seen).twice())
	w.everyDisagreementIsSeen(t)
	w.release(t, conferences)
	w.noneOpen(t)
	ended := time.Now()
	w.awaitReady() // no slot is held and every node can be chosen
	t.Logf("every slot was free %s after the last run had ended", time.Since(ended).Round(10*time.Millisecond))
	cancel()
	l.readers.Wait()
	for close(l.received); ; {
		ev, more := <-l.received
		if !more {
			break
		}
		received = append(received, ev.Event)
	}
	failed := 0
	for _, ev := range received {
		if ev.Type == berth.EventTranslationFailed {
			failed++
		}
	}
	t.Logf("%d segments were reported as failed", failed)
	require.NoError(t, checkEvents(accepted, received))
	require.NoError(t, w.agree())
	require.Positive(t, w.everyConference(t, l, conferences), "some were recovered")
	w.replayAll()
}

// crash kills parts at random and starts them again.
func (w *cluster) crash(t *testing.T, rng *rand.Rand, during time.Duration) {
	t.Helper()
	kills := map[string]int{}
	for until := time.Now().Add(during); time.Now().Before(until); {
		victims := []*part{w.parts[rng.IntN(len(w.parts))]}
		if other := w.parts[rng.IntN(len(w.parts))]; rng.IntN(3) == 0 && other != victims[0] {
			victims = append(victims, other)
		}
		for _, p := range victims {
			p.kill()
			kills[p.name]++
		}
		<-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond)
		for _, p := range victims {
			p.start()
		}
		<-time.After(time.Duration(500+rng.IntN(3000)) * time.Millisecond)
	}
	t.Logf("killed: %v", kills)
}

// accepted has the accepted segments by turn, and the accepted executions.
func (l *load) accepted(t *testing.T) (turns map[string]segments, executions []string) {
	t.Helper()
	turns = map[string]segments{}
	for {
		select {
		case a := <-l.answers:
			require.NoError(t, a.err)
			if a.execution != "" {
				executions = append(executions, a.execution)
				continue
			}
			if turns[a.turn] == nil {
				turns[a.turn] = segments{}
			}
			out, err := node.NewSim("", node.SimOptions{}).Translate(t.Context(), berth.JobInput{Job: berth.Job{SrcLang: "en", TgtLang: "es"}, Text: a.text})
			require.NoError(t, err)
			turns[a.turn][a.index] = out.Text
		default:
			return turns, executions
		}
	}
}

// ended waits until every execution has ended.
func (w *cluster) ended(t *testing.T, ids []string) {
	t.Helper()
	c := client.New(w.urls[1], w.token("operations", "user", "node"))
	ends := map[berth.ExecutionStatus]int{}
	for _, id := range ids {
		var e berth.Execution
		w.eventually(id+" to end", func() bool {
			var err error
			e, err = c.Execution(t.Context(), id)
			return err == nil && !e.EndedAt.IsZero()
		})
		ends[e.Status]++
		if e.Status == berth.ExecutionCompleted {
			require.True(t, bytes.Contains(e.Output, []byte(`"input":`+strings.TrimPrefix(id, "execution-"))), "%s: %s", id, e.Output)
		}
	}
	t.Logf("executions ended: %v", ends)
	require.Equal(t, []berth.ExecutionStatus{berth.ExecutionCompleted}, slices.Collect(maps.Keys(ends)))
}

// noneOpen waits until no run is open.
func (w *cluster) noneOpen(t *testing.T) {
	t.Helper()
	w.eventually("every run to end", func() bool {
		list, err := w.frontend.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: `ExecutionStatus = "Running"`})
		return err == nil && len(list.GetExecutions()) == 0
	})
}
