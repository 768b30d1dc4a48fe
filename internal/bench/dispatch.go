package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"berth/internal/client"
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

// Dispatch measures and prints the cost of choosing a node, Redis memory, turns compared with bare Temporal, and
// registrations and heartbeats over HTTP.
func Dispatch(ctx context.Context, w io.Writer, cfg config.Config, turns int) error {
	if err := choose(ctx, w, cfg); err != nil {
		return err
	}
	if err := memory(ctx, w, cfg); err != nil {
		return err
	}
	bare, err := bareTurns(ctx, cfg, turns)
	if err != nil {
		return err
	}
	return turnsOverHTTP(ctx, w, cfg, turns, bare)
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

// turnsOverHTTP measures turns over HTTP on one node that completes its jobs immediately, and prints them beside bare.
func turnsOverHTTP(ctx context.Context, w io.Writer, cfg config.Config, turns int, bare turnLatencies) (err error) {
	h, err := open(ctx, cfg, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	stop, err := h.node(ctx, "bench-node")
	if err != nil {
		return err
	}
	defer stop()
	if err := h.session(ctx); err != nil {
		return err
	}
	measured, err := measureTurns(ctx, turns, func(name string) func(int) error {
		turn := ""
		return func(i int) error {
			job := client.JobSpec{RequestID: name + "." + strconv.Itoa(i), TurnID: turn, Segment: client.Segment{Index: i, Text: "hello"}}
			if i == segments-1 {
				job.Finalize = berth.FinalizeManual
			}
			d, err := h.client.Dispatch(ctx, benchSession, job)
			turn = d.TurnID
			return err
		}
	})
	if err != nil {
		return err
	}
	const update = "bare Temporal update with an empty local activity"
	compare(w, fmt.Sprintf("dispatch of a job in a running turn, segments %s apart, HTTP to node id", spacing), measured.paced, bare.paced,
		update, "p50 <= 1.5x, p99 <= 2x")
	compare(w, "the same back to back: each update arrives while the previous job ends", measured.backToBack, bare.backToBack,
		update, "none")
	compare(w, "first dispatch of a turn, HTTP to node id", measured.first, bare.first,
		"bare update-with-start with an empty local activity", "none")
	_, _ = fmt.Fprintf(w, "turns of %d jobs, %d concurrent, %d in total\n  berth     %.1f/s, each job done by a node, results published in order\n  baseline  %.1f/s  bare workflows of %d updates with an empty local activity\n  ratio     %.2f   goal none\n\n",
		segments, parallel, turns, measured.rate, bare.rate, segments, measured.rate/bare.rate)
	return h.nodesOverHTTP(ctx, w)
}

const benchSession = "bench-session"

// session creates the session for the jobs. It retries until the API has a snapshot with the node.
func (h *stack) session(ctx context.Context) error {
	return pause.Until(ctx, 30*time.Second, 20*time.Millisecond, func(ctx context.Context) error {
		_, err := h.client.PutSession(ctx, benchSession, client.SessionSpec{SrcLang: "en", TgtLang: "es"})
		return err
	})
}

// node registers a node that completes its jobs immediately and returns the function that stops it.
func (h *stack) node(ctx context.Context, id string) (stop func(), err error) {
	r, err := h.client.RegisterNode(ctx, client.Registration{NodeSpec: benchNode(id, 0, 10_000)})
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
	if err := work.Start(); err != nil {
		c.Close()
		return nil, fmt.Errorf("start node: %w", err)
	}
	heartbeatCtx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() {
		for pause.For(heartbeatCtx, time.Duration(r.HeartbeatIntervalMs)*time.Millisecond) {
			// A lost heartbeat is not retried: the next one follows.
			_, _ = h.client.HeartbeatNode(heartbeatCtx, id, client.Heartbeat{Generation: r.Generation})
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

// nodesOverHTTP measures and prints registrations and heartbeats over HTTP with 10,000 nodes.
func (h *stack) nodesOverHTTP(ctx context.Context, w io.Writer) error {
	const n = 10_000
	generations := make([]int64, n)
	id := func(i int) string { return "bench-" + strconv.Itoa(i) }
	registered, err := concurrently(ctx, n, dispatchers, func(ctx context.Context, i int) error {
		r, err := h.client.RegisterNode(ctx, client.Registration{NodeSpec: benchNode(id(i), i+1, 4)})
		generations[i] = r.Generation
		return err
	})
	if err != nil {
		return err
	}
	heartbeat := func(ctx context.Context, i int) error {
		_, err := h.client.HeartbeatNode(ctx, id(i), client.Heartbeat{
			Generation: generations[i], NodeLoad: berth.NodeLoad{CPUUsage: float64(i % 100), MemoryUsage: 40},
		})
		return err
	}
	every := berth.DefaultNodeTimes(berth.NodeTranslate).Heartbeat / n
	paced, err := atFixedRate(ctx, n, every, heartbeat)
	if err != nil {
		return err
	}
	unpaced, err := concurrently(ctx, n, dispatchers, heartbeat)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "nodes over HTTP, up to %d nodes\n  registration  %s  %.0f/s, %d callers without pauses   goal p99 < 20ms\n  heartbeat     %s  %.0f/s, at the rate of %d translation nodes   goal p99 < 5ms\n  heartbeat     %s  %.0f/s, %d callers without pauses\n\n",
		n, registered.took, registered.rate(), dispatchers, paced.took, paced.rate(), n, unpaced.took, unpaced.rate(), dispatchers)
	return nil
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
