package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
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
)

const (
	// segments is how many jobs a measured turn has.
	segments = 6
	// spoken is how far apart the segments of somebody who speaks are, at least: the job before has ended by then.
	spoken = 50 * time.Millisecond
)

// Dispatch prints what the fleet and its turns cost: choosing a node, Redis memory, nodes over HTTP, and turns beside bare
// Temporal.
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
	return ourTurns(ctx, w, cfg, turns, bare)
}

// turnFigures are what turns of one side took.
type turnFigures struct {
	first   figures // dispatches that begin a turn
	running figures // dispatches in a running turn, as people speak
	chased  figures // dispatches in a running turn, each sent with the answer to the one before
	rate    float64 // turns a second, many at once
}

// measureTurns has turns of a few dispatches made: one at a time as people speak, one at a time flat out, many at once.
// begin names a turn, and answers what makes its i-th dispatch.
func measureTurns(ctx context.Context, turns int, begin func(turn string) func(i int) error) (turnFigures, error) {
	var f turnFigures
	speak := func(name string, pause time.Duration, tell func(i int, d time.Duration)) error {
		dispatch := begin(name)
		for i := range segments {
			if i > 0 {
				if err := sleep(ctx, pause); err != nil {
					return err
				}
			}
			began := time.Now()
			if err := dispatch(i); err != nil {
				return err
			}
			tell(i, time.Since(began))
		}
		return nil
	}
	for t := -5; t < turns; t++ { // the first ones warm the caches
		name := strconv.Itoa(t)
		err := errors.Join(
			speak("spoken-"+name, spoken, func(i int, d time.Duration) {
				switch {
				case t < 0:
				case i == 0:
					f.first = append(f.first, d)
				default:
					f.running = append(f.running, d)
				}
			}),
			speak("chased-"+name, 0, func(i int, d time.Duration) {
				if t >= 0 && i > 0 {
					f.chased = append(f.chased, d)
				}
			}),
		)
		if err != nil {
			return turnFigures{}, err
		}
	}
	number := make(chan int, turns)
	for t := range turns {
		number <- t
	}
	all, err := together(ctx, turns, parallel, func(context.Context) error {
		return speak("many-"+strconv.Itoa(<-number), 0, func(int, time.Duration) {})
	})
	f.rate = all.rate()
	return f, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ourTurns runs turns over HTTP on one node that answers at once.
func ourTurns(ctx context.Context, w io.Writer, cfg config.Config, turns int, bare turnFigures) (err error) {
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
	ours, err := measureTurns(ctx, turns, func(name string) func(int) error {
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
	compare(w, fmt.Sprintf("dispatch of a job in a running turn, segments %s apart, HTTP to node id", spoken), ours.running, bare.running,
		update, "p50 <= 1.5x, p99 <= 2x")
	compare(w, "the same, each sent with the answer to the one before: its update meets the end of that job", ours.chased, bare.chased,
		update, "none")
	compare(w, "first dispatch of a turn, HTTP to node id", ours.first, bare.first,
		"bare update-with-start with an empty local activity", "none")
	_, _ = fmt.Fprintf(w, "turns of %d jobs, %d at once, %d in all\n  berth     %.1f/s, each job done by a node, results published in order\n  baseline  %.1f/s  bare workflows of %d updates with an empty local activity\n  ratio     %.2f   goal none\n\n",
		segments, parallel, turns, ours.rate, bare.rate, segments, ours.rate/bare.rate)
	return h.nodesOverHTTP(ctx, w)
}

const benchSession = "bench-session"

// session makes the session that jobs go to, as soon as the API has seen the node.
func (h *house) session(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := h.client.PutSession(ctx, benchSession, client.SessionSpec{SrcLang: "en", TgtLang: "es"})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("session: %w", err)
		case <-tick.C:
		}
	}
}

// node registers a node and answers its jobs at once.
func (h *house) node(ctx context.Context, id string) (stop func(), err error) {
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
	beating, cancel := context.WithCancel(ctx)
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		tick := time.NewTicker(time.Duration(r.HeartbeatIntervalMs) * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case <-tick.C:
				// One that is lost is followed by the next.
				_, _ = h.client.HeartbeatNode(beating, id, client.Heartbeat{Generation: r.Generation})
			}
		}
	}()
	return func() { cancel(); <-beats; work.Stop(); c.Close() }, nil
}

func benchNode(id string, i, slots int) berth.NodeSpec {
	return berth.NodeSpec{
		ID: id, Kind: berth.NodeTranslate, Capabilities: []string{benchPool}, MaxConcurrentJobs: slots,
		Incarnation: berth.Incarnation{Host: "bench", PID: os.Getpid() + i, StartedAt: time.Now().UnixMilli()},
	}
}

// nodesOverHTTP prints how long registrations and heartbeats take over HTTP with 10,000 nodes registered (L13).
func (h *house) nodesOverHTTP(ctx context.Context, w io.Writer) error {
	const n = 10_000
	generations := make([]int64, n)
	ids := make(chan int, n)
	for i := range n {
		ids <- i
	}
	id := func(i int) string { return "bench-" + strconv.Itoa(i) }
	registered, err := together(ctx, n, dispatchers, func(ctx context.Context) error {
		i := <-ids
		r, err := h.client.RegisterNode(ctx, client.Registration{NodeSpec: benchNode(id(i), i+1, 4)})
		generations[i] = r.Generation
		return err
	})
	if err != nil {
		return err
	}
	beat := func(ctx context.Context, i int) error {
		_, err := h.client.HeartbeatNode(ctx, id(i), client.Heartbeat{
			Generation: generations[i], NodeLoad: berth.NodeLoad{CPUUsage: float64(i % 100), MemoryUsage: 40},
		})
		return err
	}
	every := berth.DefaultNodeTimes(berth.NodeTranslate).Heartbeat / n
	paced, err := steadily(ctx, n, every, beat)
	if err != nil {
		return err
	}
	for i := range n {
		ids <- i
	}
	flat, err := together(ctx, n, dispatchers, func(ctx context.Context) error { return beat(ctx, <-ids) })
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "nodes over HTTP, up to %d nodes\n  registration  %s  %.0f/s, %d callers flat out   goal p99 < 20ms\n  heartbeat     %s  %.0f/s, at the pace of %d translating nodes   goal p99 < 5ms\n  heartbeat     %s  %.0f/s, %d callers flat out\n\n",
		n, registered.took, registered.rate(), dispatchers, paced.took, paced.rate(), n, flat.took, flat.rate(), dispatchers)
	return nil
}

// steadily calls one n times, each at its time whether or not the ones before have ended; what is measured counts from that
// time.
func steadily(ctx context.Context, n int, every time.Duration, one func(ctx context.Context, i int) error) (run, error) {
	took := make(figures, n)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		due := began.Add(time.Duration(i) * every)
		if err := sleep(ctx, time.Until(due)); err != nil {
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

// bareTurns is the baseline: workflows that take updates, each with an empty local activity, and end after the last.
func bareTurns(ctx context.Context, cfg config.Config, turns int) (turnFigures, error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return turnFigures{}, err
	}
	defer c.Close()
	queue := "bench." + strconv.FormatInt(time.Now().UnixNano(), 36)
	work := worker.New(c, queue, worker.Options{LocalActivityWorkerOnly: true})
	work.RegisterWorkflowWithOptions(bareTurn, workflow.RegisterOptions{Name: "BareTurn"})
	work.RegisterActivity(empty)
	if err := work.Start(); err != nil {
		return turnFigures{}, fmt.Errorf("start worker: %w", err)
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

// bareTurn is a workflow of a few updates.
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
