package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"berth"
	"berth/client"
	"berth/internal/node"
	"berth/internal/testlivekit"
	"berth/internal/unit"
	"berth/lua"
)

const enES = "translate:en-es"

// pair returns the capability of the test's nodes.
func (s *stack) pair() string { return berth.TranslateCapability("en", s.language) }

func (s *stack) awaitNode(id string) {
	s.tb.Helper()
	operator := s.user("op", "operator")
	s.eventually("node "+id+" to be ready", func() bool {
		n, err := operator.Node(context.Background(), id)
		return err == nil && n.State == berth.NodeReady
	})
}

type testJob struct {
	in     berth.JobInput
	answer chan error
}

// testNode is a translating node in the test's process. It completes jobs immediately or, while held,
// when the test sends an answer.
type testNode struct {
	id   string
	held atomic.Bool
	jobs chan testJob
	stop context.CancelFunc
}

// Translate appends the node to the text.
func (d *testNode) Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	out := berth.JobOutput{Text: in.Text + " @" + d.id}
	if !d.held.Load() {
		return out, nil
	}
	job := testJob{in, make(chan error, 1)}
	d.jobs <- job
	select {
	case err := <-job.answer:
		return out, err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

func (d *testNode) Execute(context.Context, berth.ExecuteInput) (berth.ExecuteOutput, error) {
	return berth.ExecuteOutput{}, errors.New("this node only translates")
}

// next returns the next job that reaches a held node.
func (d *testNode) next(s *stack) testJob {
	s.tb.Helper()
	select {
	case job := <-d.jobs:
		return job
	case <-time.After(maxWait):
		s.tb.Fatalf("no job reached %s", d.id)
		return testJob{}
	}
}

// testNode starts a node in the test's process and waits until it can receive jobs.
func (s *stack) testNode(id string, slots int) *testNode {
	s.tb.Helper()
	incarnation, err := node.NewIncarnation()
	require.NoError(s.tb, err)
	ctx, stop := context.WithCancel(context.Background())
	d := &testNode{id: id, jobs: make(chan testJob, 1000), stop: stop}
	options := node.Options{
		Spec: berth.NodeSpec{
			ID: id, Kind: berth.NodeTranslate, Incarnation: incarnation, Capabilities: []string{s.pair()}, MaxConcurrentJobs: slots,
		},
		API: s.user("nodes", "node"), Temporal: s.temporal(), Driver: d, Drain: time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = node.Run(ctx, options) }) // its effects show how it ended
	s.tb.Cleanup(func() { stop(); running.Wait() })
	s.awaitNode(id)
	return d
}

// translator runs a simulated node.
func (s *stack) translator(id string, args ...string) *process {
	s.tb.Helper()
	p := s.start("berth-sim", append([]string{"node", "--id", id, "--capabilities", enES}, args...),
		append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("nodes", "node")}, s.settings...))
	s.awaitNode(id)
	return p
}

// engine is a node in the test's process. It polls its queue and behaves as the executor's name says. It sends heartbeats as long
// as the test runs, which may take longer on a busy machine than a node may send none.
type engine struct {
	s          *stack
	scripts    *lua.Scripts
	spec       berth.NodeSpec
	generation atomic.Int64
	started    chan berth.ExecuteInput
	finish     chan struct{} // each value ends one "wait"
}

// poll starts a worker for the queue of the current generation. Workers of earlier generations still finish their activities.
func (e *engine) poll() {
	e.s.tb.Helper()
	w := worker.New(e.s.temporal(), berth.NodeTaskQueue(e.spec.ID, e.generation.Load()), worker.Options{DisableWorkflowWorker: true})
	w.RegisterActivityWithOptions(e.execute, activity.RegisterOptions{Name: berth.ActivityExecute})
	require.NoError(e.s.tb, w.Start())
	e.s.tb.Cleanup(w.Stop)
}

// register registers the node, as a new generation if Redis does not know it.
func (e *engine) register() {
	e.s.tb.Helper()
	r, err := e.scripts.RegisterNode(context.Background(), e.spec, lua.Registration{Previous: e.generation.Load()})
	require.NoError(e.s.tb, err)
	e.generation.Store(r.Generation)
}

// keepBeating sends heartbeats until ctx ends.
func (e *engine) keepBeating(ctx context.Context, nodes *client.Client) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = nodes.HeartbeatNode(ctx, e.spec.ID, client.Heartbeat{Generation: e.generation.Load()}) // the next one follows
		}
	}
}

func (e *engine) execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	e.started <- in
	switch in.Executor {
	case "wait":
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-e.finish:
				return berth.ExecuteOutput{Output: in.Input}, nil
			case <-ctx.Done():
				return berth.ExecuteOutput{}, ctx.Err()
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	case "refuse":
		return berth.ExecuteOutput{}, temporal.NewNonRetryableApplicationError("no width", string(berth.CodeInvalid), nil)
	case "break":
		return berth.ExecuteOutput{}, errors.New("out of memory")
	default:
		return berth.ExecuteOutput{Output: in.Input}, nil
	}
}

// slots returns how many slots of the node are held, -1 if Redis cannot be read.
func (e *engine) slots() int {
	n, err := e.scripts.ReadNodes(context.Background(), e.spec.ID)
	if err != nil {
		return -1
	}
	return n[e.spec.ID].Leases
}

// engine registers a node with the given number of slots for the executors of these tests, and polls unless it is mute.
func (s *stack) engine(id string, slots int, mute bool) *engine {
	s.tb.Helper()
	e := &engine{
		s: s, scripts: lua.New(s.redis(), lua.Keys{}), started: make(chan berth.ExecuteInput, 100), finish: make(chan struct{}, 100),
		spec: berth.NodeSpec{
			ID: id, Kind: berth.NodeEngine, MaxConcurrentJobs: slots, Capabilities: []string{"echo", "wait", "refuse", "break"},
			Incarnation: berth.Incarnation{Host: id, PID: 1, StartedAt: time.Now().UnixMilli()},
		},
	}
	if e.register(); !mute {
		e.poll()
	}
	nodes := s.user("nodes", "node")
	ctx, stop := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { e.keepBeating(ctx, nodes) })
	s.tb.Cleanup(func() { stop(); beating.Wait() })
	return e
}

// setParticipants sets the number of participants that the simulated media server reports for a conference.
func (m *media) setParticipants(c berth.Conference, n int) {
	m.s.tb.Helper()
	m.ask(http.MethodPut, "/conferences/"+c.E164, unit.Copy{
		UnitCopy: berth.UnitCopy{E164: c.E164, ConferenceID: c.ID, Epoch: c.Owner.Epoch, StartedAt: c.CopyStartedAt}, Participants: n,
	})
}

// media is a media unit in its own process, with a simulated media server.
type media struct {
	*process
	s       *stack
	id      string
	control string
}

// run starts or restarts its process.
func (m *media) run(slots int, args ...string) {
	m.s.tb.Helper()
	m.process = m.s.start("berth-sim", append([]string{
		"media", "--id", m.id, "--slots", fmt.Sprint(slots), "--control", m.control, "--check", "100ms", "--zone", m.s.zone,
	}, args...), append([]string{"BERTH_URL=http://" + m.s.httpAddr, "BERTH_TOKEN=" + m.s.token("units", "node")}, m.s.settings...))
	m.s.awaitNode(m.id)
}

// ask sends a request to the simulated media server and returns the epochs of the conferences that it runs, by number.
func (m *media) ask(method, path string, body any) (runs map[string]int64) {
	m.s.tb.Helper()
	b, err := json.Marshal(body)
	require.NoError(m.s.tb, err)
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+m.control+path, bytes.NewReader(b))
	require.NoError(m.s.tb, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(m.s.tb, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(m.s.tb, http.StatusOK, res.StatusCode)
	var current struct{ Conferences []unit.Copy }
	require.NoError(m.s.tb, json.NewDecoder(res.Body).Decode(&current))
	runs = map[string]int64{}
	for _, c := range current.Conferences {
		runs[c.E164] = c.Epoch
	}
	return runs
}

func (m *media) runs() map[string]int64 { return m.ask(http.MethodGet, "/", nil) }

func (m *media) fail(f unit.Fault) { m.ask(http.MethodPut, "/fault", map[string]any{"fault": f}) }

func (s *stack) media(id string, slots int, args ...string) *media {
	s.tb.Helper()
	m := &media{s: s, id: id, control: freeAddr(s.tb)}
	m.run(slots, args...)
	return m
}

// observedUnit is a media unit in the test's process that records the calls of its media server.
type observedUnit struct {
	*unit.Sim
	running, peak atomic.Int64
	made          chan berth.UnitConference
}

// Create counts concurrent calls.
func (w *observedUnit) Create(ctx context.Context, c berth.UnitConference, returning bool) error {
	n := w.running.Add(1)
	defer w.running.Add(-1)
	for most := w.peak.Load(); n > most && !w.peak.CompareAndSwap(most, n); most = w.peak.Load() {
	}
	w.made <- c
	return w.Sim.Create(ctx, c, returning)
}

// observedUnit starts a unit whose commands take the given time.
func (s *stack) observedUnit(id string, slots int, delay time.Duration) *observedUnit {
	s.tb.Helper()
	incarnation, err := node.NewIncarnation()
	require.NoError(s.tb, err)
	w := &observedUnit{Sim: unit.NewSim(unit.SimOptions{Incarnation: incarnation, Delay: delay}), made: make(chan berth.UnitConference, 1000)}
	ctx, stop := context.WithCancel(context.Background())
	options := unit.Options{
		Spec: berth.NodeSpec{ID: id, Zone: s.zone, Capabilities: []string{berth.CapabilityConference}, MaxConcurrentJobs: slots},
		API:  s.user("units", "node"), Temporal: s.temporal(), Driver: w, Logger: slog.New(slog.DiscardHandler),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = unit.Run(ctx, options) }) // its effects show how it ended
	s.tb.Cleanup(func() { stop(); running.Wait() })
	s.awaitNode(id)
	return w
}

// liveKitUnit is a media unit in its own process, beside a LiveKit server.
type liveKitUnit struct {
	*process
	*testlivekit.Server
	s     *stack
	id    string
	rooms *unit.LiveKit
}

// epochs returns the epochs of the conferences that have a room on the LiveKit server, by number; nil if it does not respond.
func (h *liveKitUnit) epochs() map[string]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, copies, err := h.rooms.List(ctx)
	if err != nil {
		return nil
	}
	out := map[string]int64{}
	for _, c := range copies {
		out[c.E164] = c.Epoch
	}
	return out
}

// listed is epochs, once the server responds.
func (h *liveKitUnit) listed() (out map[string]int64) {
	h.s.tb.Helper()
	h.s.eventually(h.id+" to list its rooms", func() bool { out = h.epochs(); return out != nil })
	return out
}

func (s *stack) liveKitUnit(id string, slots int) *liveKitUnit {
	s.tb.Helper()
	h := &liveKitUnit{Server: testlivekit.Start(s.tb), s: s, id: id}
	h.process = s.start("berth", []string{
		"media", "--id", id, "--slots", fmt.Sprint(slots), "--livekit-url", h.URL(),
		"--livekit-key", testlivekit.Key, "--livekit-secret", testlivekit.Secret,
	}, append([]string{"BERTH_URL=http://" + s.httpAddr, "BERTH_TOKEN=" + s.token("units", "node")}, s.settings...))
	var err error
	h.rooms, err = unit.NewLiveKit(unit.LiveKitOptions{URL: h.URL(), Key: testlivekit.Key, Secret: testlivekit.Secret, Unit: id})
	require.NoError(s.tb, err)
	s.tb.Cleanup(h.rooms.Close)
	s.awaitNode(id)
	return h
}
