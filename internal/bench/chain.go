package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strconv"
	"time"

	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/client"
	"berth/internal/config"
)

// parallel is the number of chains, and of bare workflows, that run concurrently.
const parallel = 20

// chainSteps is the number of model calls of a measured chain.
const chainSteps = 3

// chain measures the throughput of chains of three model calls and of bare workflows of three empty activities on the same
// Temporal. The two alternate, so that both are slowed equally by a growing database.
func chain(ctx context.Context, r *Run) (err error) {
	const rounds = 4
	n := max(rounds, r.times(400))
	bareOne, stop, err := bareWorkflow(ctx, r.Config, chainSteps)
	if err != nil {
		return err
	}
	defer stop()
	h, err := r.open(ctx, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	one, err := h.chains(ctx)
	if err != nil {
		return err
	}
	var measured, baseline run
	for round := range rounds {
		r.step("round %d of %d, %d chains and as many bare workflows", round+1, rounds, n/rounds)
		for _, side := range []struct {
			total *run
			one   func(context.Context, int) error
		}{{&baseline, bareOne}, {&measured, one}} {
			got, err := concurrently(ctx, n/rounds, parallel, side.one)
			if err != nil {
				return err
			}
			side.total.add(got)
		}
	}
	bare := fmt.Sprintf("bare workflows of %d empty activities on a task queue of their own", chainSteps)
	name := fmt.Sprintf("chains of %d model calls, %d concurrent", chainSteps, parallel)
	r.add(Figure{Name: name, Unit: "/s", Value: measured.rate()}.beside(bare, baseline.rate()).within(minRatio(0.8)))
	r.quantiles(name+", submission to end", measured.took, bare, baseline.took)
	return nil
}

// chains returns a function that runs one chain: text of an image, its summary, and an answer.
func (h *stack) chains(ctx context.Context) (one func(ctx context.Context, i int) error, err error) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		return nil, fmt.Errorf("encode image: %w", err)
	}
	asset, err := h.client.Upload(ctx, "picture.png", picture.Bytes())
	if err != nil {
		return nil, err
	}
	sub := client.Submission{
		ServiceID: "bench", Template: chainTemplate, Locale: berth.LocaleEN,
		Variables: map[string]any{"image": client.AssetRef(asset)},
	}
	return func(ctx context.Context, _ int) error { return h.run(ctx, sub, func(berth.Event) {}) }, nil
}

// run is the result of one measurement: the latency of each call and the total time.
type run struct {
	took latencies
	wall time.Duration
}

// rate returns calls per second.
func (r run) rate() float64 { return float64(len(r.took)) / r.wall.Seconds() }

func (r *run) add(o run) { r.took, r.wall = append(r.took, o.took...), r.wall+o.wall }

// concurrently calls one n times, with numbers from 0, at most limit at the same time.
func concurrently(ctx context.Context, n, limit int, one func(ctx context.Context, i int) error) (run, error) {
	took := make(latencies, n)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error {
			t := time.Now()
			if err := one(ctx, i); err != nil {
				return err
			}
			took[i] = time.Since(t)
			return nil
		})
	}
	err := g.Wait()
	return run{took: took, wall: time.Since(began)}, err
}

// bareWorkflow starts workers for the baseline: one runs a workflow of several empty activities in sequence, stop ends
// the workers. The activities have their own task queue, as each model has: on the workflow's queue Temporal would start
// them eagerly and save one write each.
func bareWorkflow(ctx context.Context, cfg config.Config, activities int) (one func(context.Context, int) error, stop func(), err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	queue := "bench." + strconv.FormatInt(time.Now().UnixNano(), 36)
	workflowWorker := worker.New(c, queue, worker.Options{})
	workflowWorker.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue + ".work", StartToCloseTimeout: time.Minute})
		for range activities {
			if err := workflow.ExecuteActivity(ctx, empty).Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	}, workflow.RegisterOptions{Name: "Bare"})
	activityWorker := worker.New(c, queue+".work", worker.Options{DisableWorkflowWorker: true})
	activityWorker.RegisterActivity(empty)
	if err := errors.Join(workflowWorker.Start(), activityWorker.Start()); err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("start workers: %w", err)
	}
	stop = func() { activityWorker.Stop(); workflowWorker.Stop(); c.Close() }
	one = func(ctx context.Context, _ int) error {
		r, err := c.ExecuteWorkflow(ctx, temporal.StartWorkflowOptions{TaskQueue: queue}, "Bare")
		if err != nil {
			return err
		}
		return r.Get(ctx, nil)
	}
	if err := one(ctx, 0); err != nil { // starts the pollers and warms the caches
		stop()
		return nil, nil, err
	}
	return one, stop, nil
}

func empty(context.Context) error { return nil }
