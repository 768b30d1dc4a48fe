// Package waiting lets tasks wait for a model, and other work for a node, in their workflows. Rooms in Redis order them; see the
// includes model_waiters and handover of package lua. Workflows that may continue are signalled by the process whose call to Redis
// promoted them, and by any other if that one does not.
package waiting

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/lua"
)

const (
	// sweepEvery is the interval at which each process looks for promotions that no process has confirmed.
	sweepEvery = time.Second
	// maxSignals bounds the concurrent signals of one batch, maxBatches the concurrent batches.
	maxSignals = 32
	maxBatches = 4
	// callTimeout bounds a call to Redis, signalTimeout one to Temporal.
	callTimeout   = 2 * time.Second
	signalTimeout = 5 * time.Second
)

// Options configures New. All fields are required.
type Options struct {
	// Models returns the models whose waiters are swept.
	Models func() []string
	// Limits returns the configured limits of a model.
	Limits func(model string) lua.ModelLimits
	// Signal tells the workflow of a waiter that its call may be made. It returns false if the workflow has ended.
	Signal func(ctx context.Context, e lua.ModelWaiter) (running bool, err error)
	// SignalHandover tells the workflow of work that a node is reserved for it. It returns false if the workflow has ended.
	SignalHandover func(ctx context.Context, w lua.NodeWaiter) (running bool, err error)
	Logger         *slog.Logger
}

// Room is one process's access to the work that waits.
type Room struct {
	scripts  *lua.Scripts
	opts     Options
	times    lua.SlotTimes
	promoted chan []lua.Promotion
	handed   chan []string // waiters for which a node is reserved
}

// New returns the access of a process, which signals workflows while Run runs.
func New(scripts *lua.Scripts, opts Options) *Room {
	r := &Room{
		scripts: scripts, opts: opts, times: lua.SlotTimes{TTL: lua.ModelLease, Grant: lua.ModelGrant},
		promoted: make(chan []lua.Promotion, 256), handed: make(chan []string, 256),
	}
	scripts.OnHandover(func(waiters []string) {
		select {
		case r.handed <- waiters:
		default: // a later sweep returns them again
		}
	})
	scripts.OnPromotion(func(p []lua.Promotion) {
		select {
		case r.promoted <- p:
		default: // a later sweep returns them again
		}
	})
	return r
}

func (r *Room) call(e lua.ModelWaiter) lua.ModelWaiterCall {
	return lua.ModelWaiterCall{ModelWaiter: e, Limits: r.opts.Limits(e.Model), Times: r.times}
}

// Enter enters a task, and reports whether its call may be made immediately. Otherwise its workflow is signalled. Tasks of a user that
// waited when Redis lost its data are ordered by the time of their creation, zero for others. Idempotent.
func (r *Room) Enter(ctx context.Context, e lua.ModelWaiter, created, deadline time.Time) (promoted bool, err error) {
	return r.scripts.EnterTask(ctx, r.call(e), time.Until(deadline), created.UnixMicro())
}

// Leave removes the waiter of a task that has ended. Idempotent.
func (r *Room) Leave(ctx context.Context, e lua.ModelWaiter) error {
	return r.scripts.LeaveTask(ctx, r.call(e))
}

// Run signals the workflows of promoted waiters until ctx ends.
func (r *Room) Run(ctx context.Context) error {
	var batches errgroup.Group
	batches.SetLimit(maxBatches)
	defer func() { _ = batches.Wait() }() // they return nil
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case p := <-r.promoted:
			batches.Go(func() error { r.signal(ctx, p); return nil })
		case w := <-r.handed:
			batches.Go(func() error { r.announce(ctx, w); return nil })
		case <-tick.C:
			batches.TryGo(func() error { r.sweep(ctx); return nil })
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Room) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.scripts.SweepModels(ctx, r.opts.Models(), r.opts.Limits, r.times); err != nil {
		r.opts.Logger.DebugContext(ctx, "waiting tasks not swept; retrying", "error", err)
	}
	if err := r.scripts.SweepWaiting(ctx); err != nil {
		r.opts.Logger.DebugContext(ctx, "waiting work not swept; retrying", "error", err)
	}
}

// announce signals the workflows of work for which nodes are reserved, and records it. A sweep returns those that failed.
func (r *Room) announce(ctx context.Context, waiters []string) {
	running, errs := signalAll(ctx, waiters, func(ctx context.Context, id string) (bool, error) {
		w, err := lua.ParseNodeWaiter(id)
		if err != nil {
			return false, err
		}
		return r.opts.SignalHandover(ctx, w)
	})
	var signalled, gone []string
	for i, id := range waiters {
		switch {
		case errs[i] != nil:
			r.opts.Logger.WarnContext(ctx, "work not signalled that a node is reserved; retrying", "waiter", id, "error", errs[i])
		case running[i]:
			signalled = append(signalled, id)
		default:
			gone = append(gone, id)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := r.scripts.ConfirmHandovers(ctx, signalled, gone); err != nil {
		r.opts.Logger.WarnContext(ctx, "reservations not confirmed; their workflows are signalled again", "error", err)
	}
}

// signal signals the workflows of promotions, and records which have been signalled. A failed one is returned by a sweep.
func (r *Room) signal(ctx context.Context, promotions []lua.Promotion) {
	running, errs := signalAll(ctx, promotions, func(ctx context.Context, p lua.Promotion) (bool, error) {
		e, err := lua.ParseModelWaiter(p.Model, p.Waiter)
		if err != nil {
			return false, err
		}
		return r.opts.Signal(ctx, e)
	})
	type outcome struct{ signalled, gone []string }
	outcomes := map[string]outcome{}
	for i, p := range promotions {
		o := outcomes[p.Model]
		switch {
		case errs[i] != nil:
			r.opts.Logger.WarnContext(ctx, "promoted task not signalled; retrying", "model", p.Model, "waiter", p.Waiter, "error", errs[i])
		case running[i]:
			o.signalled = append(o.signalled, p.Waiter)
		default:
			o.gone = append(o.gone, p.Waiter)
		}
		outcomes[p.Model] = o
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	for model, o := range outcomes {
		if err := r.scripts.ConfirmPromotions(ctx, model, r.opts.Limits(model), r.times, o.signalled, o.gone); err != nil {
			r.opts.Logger.WarnContext(ctx, "promotions not confirmed; their workflows are signalled again", "model", model, "error", err)
		}
	}
}

// signalAll signals one workflow for each item, several at the same time. It returns which of them were running, and the errors.
func signalAll[T any](ctx context.Context, items []T, signal func(context.Context, T) (running bool, err error)) ([]bool, []error) {
	running, errs := make([]bool, len(items)), make([]error, len(items))
	var g errgroup.Group
	g.SetLimit(maxSignals)
	for i, item := range items {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, signalTimeout)
			defer cancel()
			running[i], errs[i] = signal(ctx, item)
			return nil
		})
	}
	_ = g.Wait() // its functions return nil
	return running, errs
}
