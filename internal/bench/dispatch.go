package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/config"
	"berth/internal/pause"
)

const (
	// segments is the number of jobs of a measured turn.
	segments = 6
	// spacing is the pause between the segments of a paced turn. It is shorter than between spoken segments and long
	// enough for the previous job to end.
	spacing = 50 * time.Millisecond
)

// dispatch measures the cost of choosing a node, Redis memory, turns compared with bare Temporal, and registrations and
// heartbeats over HTTP.
func dispatch(ctx context.Context, r *Run) error {
	if err := r.choose(ctx); err != nil {
		return err
	}
	if err := r.memory(ctx); err != nil {
		return err
	}
	return r.turnsOverHTTP(ctx, r.times(100))
}

// turnLatencies holds the measurements of berth's turns or of the baseline.
type turnLatencies struct {
	first      latencies // dispatches that start a turn
	paced      latencies // later dispatches, spacing apart
	backToBack latencies // later dispatches, each sent on the response to the previous one
	rate       float64   // turns per second, many concurrent
}

// measureTurns runs turns of several dispatches: paced turns and back-to-back turns one at a time, then many concurrent
// turns. begin starts a turn with the given name and returns the function that makes its i-th dispatch.
func measureTurns(ctx context.Context, turns int, begin func(turn string) func(i int) error) (turnLatencies, error) {
	var f turnLatencies
	runTurn := func(name string, between time.Duration, record func(i int, d time.Duration)) error {
		dispatch := begin(name)
		for i := range segments {
			if i > 0 && !pause.For(ctx, between) {
				return ctx.Err()
			}
			began := time.Now()
			if err := dispatch(i); err != nil {
				return err
			}
			record(i, time.Since(began))
		}
		return nil
	}
	for t := -5; t < turns; t++ { // the first five warm the caches
		name := strconv.Itoa(t)
		err := errors.Join(
			runTurn("paced-"+name, spacing, func(i int, d time.Duration) {
				switch {
				case t < 0:
				case i == 0:
					f.first = append(f.first, d)
				default:
					f.paced = append(f.paced, d)
				}
			}),
			runTurn("back-to-back-"+name, 0, func(i int, d time.Duration) {
				if t >= 0 && i > 0 {
					f.backToBack = append(f.backToBack, d)
				}
			}),
		)
		if err != nil {
			return turnLatencies{}, err
		}
	}
	all, err := concurrently(ctx, turns, parallel, func(_ context.Context, t int) error {
		return runTurn("concurrent-"+strconv.Itoa(t), 0, func(int, time.Duration) {})
	})
	f.rate = all.rate()
	return f, err
}

// turnsOverHTTP measures turns over HTTP on one node that completes its jobs immediately, beside bare Temporal.
func (r *Run) turnsOverHTTP(ctx context.Context, turns int) (err error) {
	r.step("%d bare workflows with updates", 3*turns)
	bare, err := bareTurns(ctx, r.Config, turns)
	if err != nil {
		return err
	}
	h, err := r.open(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	stop, err := h.node(ctx, benchNode("bench-node", 0, manySlots))
	if err != nil {
		return err
	}
	defer stop()
	if err := h.session(ctx); err != nil {
		return err
	}
	r.step("%d turns over HTTP", 3*turns)
	measured, err := measureTurns(ctx, turns, func(name string) func(int) error { return h.turn(ctx, name) })
	if err != nil {
		return err
	}
	const update = "bare Temporal update with an empty local activity"
	r.quantiles(fmt.Sprintf("dispatch of a job in a running turn, segments %s apart, HTTP to node id", spacing), measured.paced, update, bare.paced,
		maxRatio(1.3), maxRatio(1.5))
	r.quantiles("the same back to back: each update arrives while the previous job ends", measured.backToBack, update, bare.backToBack)
	r.quantiles("first dispatch of a turn, HTTP to node id", measured.first, "bare update-with-start with an empty local activity", bare.first)
	r.add(Figure{Name: fmt.Sprintf("turns of %d jobs, %d concurrent, each job done by a node", segments, parallel), Unit: "/s", Value: measured.rate}.
		beside(fmt.Sprintf("bare workflows of %d updates with an empty local activity", segments), bare.rate).within(minRatio(0.6)))
	return r.nodesOverHTTP(ctx, h)
}

// turn returns a function that dispatches the jobs of a new turn; the last one ends it.
func (h *stack) turn(ctx context.Context, name string) func(i int) error {
	turn := ""
	return func(i int) error {
		job := client.JobSpec{RequestID: name + "." + strconv.Itoa(i), TurnID: turn, Segment: client.Segment{Index: i, Text: "hello"}}
		if i == segments-1 {
			job.Finalize = berth.FinalizeManual
		}
		// As clients do, retry what is not confirmed in time, such as on a busy machine.
		return pause.Until(ctx, opened, time.Millisecond, func(ctx context.Context) error {
			d, err := h.client.Dispatch(ctx, h.sessionID(), job)
			if err == nil {
				turn = d.TurnID
			}
			return err
		})
	}
}

func (h *stack) sessionID() string { return "bench-" + h.tag }

// session creates the session for the jobs. It retries until the API has a snapshot with the node.
func (h *stack) session(ctx context.Context) error {
	return pause.Until(ctx, 30*time.Second, 20*time.Millisecond, func(ctx context.Context) error {
		_, err := h.client.PutSession(ctx, h.sessionID(), client.SessionSpec{SrcLang: "en", TgtLang: "es"})
		return err
	})
}

// manySlots never run out in a benchmark.
const manySlots = 10_000

// node registers a node that completes its jobs immediately and returns the function that stops it.
func (h *stack) node(ctx context.Context, spec berth.NodeSpec) (stop func(), err error) {
	r, err := h.client.RegisterNode(ctx, client.Registration{NodeSpec: spec})
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, h.cfg)
	if err != nil {
		return nil, err
	}
	work := worker.New(c, r.TaskQueue, worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityTaskPollers: 4})
	work.RegisterActivityWithOptions(func(_ context.Context, in berth.JobInput) (berth.JobOutput, error) {
		return berth.JobOutput{Text: in.Text}, nil
	}, activity.RegisterOptions{Name: berth.ActivityTranslate})
	work.RegisterActivityWithOptions(func(_ context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
		return berth.ExecuteOutput{Output: in.Input}, nil
	}, activity.RegisterOptions{Name: berth.ActivityExecute})
	if err := work.Start(); err != nil {
		c.Close()
		return nil, fmt.Errorf("start node: %w", err)
	}
	heartbeatCtx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		for pause.For(heartbeatCtx, time.Duration(r.HeartbeatIntervalMs)*time.Millisecond) {
			// A lost heartbeat is not retried: the next one follows.
			_, _ = h.client.HeartbeatNode(heartbeatCtx, spec.ID, client.Heartbeat{Generation: r.Generation})
		}
	})
	return func() { cancel(); beating.Wait(); work.Stop(); c.Close() }, nil
}

func benchNode(id string, i, slots int) berth.NodeSpec {
	return berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Capabilities: []string{benchPool}, MaxConcurrentJobs: slots,
		Incarnation: berth.Incarnation{Host: "bench", PID: os.Getpid() + i, StartedAt: time.Now().UnixMilli()},
	}
}

// heartbeats is the rate at which 10,000 translation nodes send them, per second.
const heartbeats = 2000

// nodesOverHTTP measures registrations and heartbeats over HTTP with 10,000 nodes.
func (r *Run) nodesOverHTTP(ctx context.Context, h *stack) error {
	n := r.times(10_000)
	r.step("%d nodes over HTTP", n)
	nodes := make([]registeredNode, n)
	registered, err := concurrently(ctx, n, dispatchers, func(ctx context.Context, i int) (err error) {
		nodes[i], err = h.register(ctx, i)
		return err
	})
	if err != nil {
		return err
	}
	heartbeat := func(ctx context.Context, i int) error { return h.heartbeat(ctx, nodes[i], i) }
	paced, err := atFixedRate(ctx, n, time.Second/heartbeats, heartbeat)
	if err != nil {
		return err
	}
	unpaced, err := concurrently(ctx, n, dispatchers, heartbeat)
	if err != nil {
		return err
	}
	callers := fmt.Sprintf(", %d nodes, %d callers without pauses", n, dispatchers)
	r.add(Figure{Name: "registrations over HTTP" + callers, Unit: "/s", Value: registered.rate()})
	r.add(Figure{Name: "registrations over HTTP" + callers + ", p99", Unit: "ms", Value: milliseconds(registered.took.at(0.99))}.within(maximum(20)))
	r.add(Figure{Name: "heartbeats over HTTP" + callers, Unit: "/s", Value: unpaced.rate()})
	r.add(Figure{Name: fmt.Sprintf("heartbeats over HTTP, %d nodes, %d/s, p99", n, heartbeats), Unit: "ms", Value: milliseconds(paced.took.at(0.99))}.
		within(maximum(5)))
	return nil
}

// registeredNode is a node that only sends heartbeats.
type registeredNode struct {
	id         string
	generation int64
}

// register registers the i-th node.
func (h *stack) register(ctx context.Context, i int) (registeredNode, error) {
	n := registeredNode{id: "bench-" + strconv.Itoa(i)}
	r, err := h.client.RegisterNode(ctx, client.Registration{NodeSpec: benchNode(n.id, i+1, 4)})
	n.generation = r.Generation
	return n, err
}

// heartbeat sends a heartbeat; i varies its load.
func (h *stack) heartbeat(ctx context.Context, n registeredNode, i int) error {
	_, err := h.client.HeartbeatNode(ctx, n.id, client.Heartbeat{
		Generation: n.generation, NodeLoad: berth.NodeLoad{CPUUsage: float64(i % 100), MemoryUsage: 40},
	})
	return err
}

// atFixedRate calls one n times, one call per interval whether or not the previous ones have returned. Latencies are
// measured from the scheduled time of each call.
func atFixedRate(ctx context.Context, n int, every time.Duration, one func(ctx context.Context, i int) error) (run, error) {
	took := make(latencies, n)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		due := began.Add(time.Duration(i) * every)
		if !pause.For(ctx, time.Until(due)) {
			break
		}
		g.Go(func() error {
			err := one(ctx, i)
			took[i] = time.Since(due)
			return err
		})
	}
	err := g.Wait()
	return run{took: took, wall: time.Since(began)}, err
}

// bareTurns measures the baseline: workflows that handle updates with an empty local activity each and end after the last
// one.
func bareTurns(ctx context.Context, cfg config.Config, turns int) (turnLatencies, error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return turnLatencies{}, err
	}
	defer c.Close()
	queue := "bench." + strconv.FormatInt(time.Now().UnixNano(), 36)
	work := worker.New(c, queue, worker.Options{LocalActivityWorkerOnly: true})
	work.RegisterWorkflowWithOptions(bareTurn, workflow.RegisterOptions{Name: "BareTurn"})
	work.RegisterActivity(empty)
	if err := work.Start(); err != nil {
		return turnLatencies{}, fmt.Errorf("start worker: %w", err)
	}
	defer work.Stop()
	return measureTurns(ctx, turns, func(name string) func(int) error {
		id := queue + "." + name
		return func(i int) error {
			update := temporal.UpdateWorkflowOptions{
				WorkflowID: id, UpdateID: strconv.Itoa(i), UpdateName: "work", WaitForStage: temporal.WorkflowUpdateStageCompleted,
			}
			var handle temporal.WorkflowUpdateHandle
			var err error
			if i == 0 {
				handle, err = c.UpdateWithStartWorkflow(ctx, temporal.UpdateWithStartWorkflowOptions{
					StartWorkflowOperation: c.NewWithStartWorkflowOperation(temporal.StartWorkflowOptions{
						ID: id, TaskQueue: queue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
					}, "BareTurn"),
					UpdateOptions: update,
				})
			} else {
				handle, err = c.UpdateWorkflow(ctx, update)
			}
			if err == nil {
				err = handle.Get(ctx, nil)
			}
			if err != nil {
				return fmt.Errorf("bare update: %w", err)
			}
			return nil
		}
	})
}

// bareTurn is the baseline workflow: it handles one update per segment.
func bareTurn(ctx workflow.Context) error {
	done := 0
	err := workflow.SetUpdateHandler(ctx, "work", func(ctx workflow.Context) error {
		defer func() { done++ }()
		return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: time.Second,
		}), empty).Get(ctx, nil)
	})
	if err != nil {
		return err
	}
	return workflow.Await(ctx, func() bool { return done == segments && workflow.AllHandlersFinished(ctx) })
}
