package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strconv"
	"time"

	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"berth"
	"berth/internal/client"
	"berth/internal/config"
)

// parallel is how many chains, and how many bare workflows, are under way at once.
const parallel = 20

// Chain prints how many chains of three model calls a second go through berth, beside bare workflows of three
// empty activities through the same Temporal, in turns: what the one leaves behind slows both alike.
func Chain(ctx context.Context, w io.Writer, cfg config.Config, n int) (err error) {
	const steps, rounds = 3, 4
	bareOne, stop, err := bareWorkflow(ctx, cfg, steps)
	if err != nil {
		return err
	}
	defer stop()
	h, err := open(ctx, cfg, provider{tokens: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		return fmt.Errorf("draw picture: %w", err)
	}
	asset, err := h.client.Upload(ctx, "posting.png", picture.Bytes())
	if err != nil {
		return err
	}
	sub := client.Submission{
		ServiceID: "bench", Template: berth.TemplateJobMatch, Locale: berth.LocaleEN,
		Variables: map[string]any{"resume": "I write Go.", "jobImage": client.AssetRef(asset)},
	}
	chain := func(ctx context.Context) error {
		acc, err := h.client.Submit(ctx, sub, "")
		if err != nil {
			return err
		}
		var last berth.Event
		for ev, err := range h.client.Follow(ctx, acc.TaskID, "") {
			if err != nil {
				return err
			}
			last = ev.Event
		}
		if last.Type != berth.EventDone {
			return fmt.Errorf("task %s ended with %s: %s", acc.TaskID, last.Type, last.Message)
		}
		return nil
	}
	var ours, bare run
	for range rounds {
		for _, side := range []struct {
			total *run
			one   func(context.Context) error
		}{{&bare, bareOne}, {&ours, chain}} {
			r, err := together(ctx, n/rounds, parallel, side.one)
			if err != nil {
				return err
			}
			side.total.took, side.total.wall = append(side.total.took, r.took...), side.total.wall+r.wall
		}
	}
	_, _ = fmt.Fprintf(w, "chains of %d model calls, %d at once, %d in all\n  berth     %.1f/s  %s\n  baseline  %.1f/s  %s  bare workflows of %d empty activities on a task queue of their own\n  ratio     %.2f   goal >= 0.8\n",
		steps, parallel, n, ours.rate(), ours.took, bare.rate(), bare.took, steps, ours.rate()/bare.rate())
	return nil
}

// run is what together measured.
type run struct {
	took figures
	wall time.Duration
}

func (r run) rate() float64 { return float64(len(r.took)) / r.wall.Seconds() }

// together calls one n times, at most limit at once.
func together(ctx context.Context, n, limit int, one func(context.Context) error) (run, error) {
	took := make(figures, n)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for i := range n {
		g.Go(func() error {
			t := time.Now()
			if err := one(ctx); err != nil {
				return err
			}
			took[i] = time.Since(t)
			return nil
		})
	}
	err := g.Wait()
	return run{took: took, wall: time.Since(began)}, err
}

// bareWorkflows runs the baseline n times, at most limit at once.
func bareWorkflows(ctx context.Context, cfg config.Config, n, activities, limit int) (run, error) {
	one, stop, err := bareWorkflow(ctx, cfg, activities)
	if err != nil {
		return run{}, err
	}
	defer stop()
	return together(ctx, n, limit, one)
}

// bareWorkflow is the baseline: one runs a workflow of a few empty activities one after the other, on workers that work until
// stop. The activities have a task queue of their own, as each model has: on the workflow's own queue Temporal would hand
// them back with the workflow task and save a write each.
func bareWorkflow(ctx context.Context, cfg config.Config, activities int) (one func(context.Context) error, stop func(), err error) {
	c, err := dial(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	queue := "bench." + strconv.FormatInt(time.Now().UnixNano(), 36)
	work := worker.New(c, queue, worker.Options{})
	work.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue + ".work", StartToCloseTimeout: time.Minute})
		for range activities {
			if err := workflow.ExecuteActivity(ctx, empty).Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	}, workflow.RegisterOptions{Name: "Bare"})
	acting := worker.New(c, queue+".work", worker.Options{DisableWorkflowWorker: true})
	acting.RegisterActivity(empty)
	if err := errors.Join(work.Start(), acting.Start()); err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("start workers: %w", err)
	}
	stop = func() { acting.Stop(); work.Stop(); c.Close() }
	one = func(ctx context.Context) error {
		r, err := c.ExecuteWorkflow(ctx, temporal.StartWorkflowOptions{TaskQueue: queue}, "Bare")
		if err != nil {
			return err
		}
		return r.Get(ctx, nil)
	}
	if err := one(ctx); err != nil { // the pollers are up and the caches warm
		stop()
		return nil, nil, err
	}
	return one, stop, nil
}

func empty(context.Context) error { return nil }
