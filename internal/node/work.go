package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"berth"
	"berth/internal/client"
)

// Work is what is done with what a node's task queue brings.
type Work interface {
	// Register has the worker of one generation do it. Every activity goes through Do.
	Register(w Registry, g *Gate, generation int64)
	// Load is how much is being done now, and how many executors are among it.
	Load() (running, executing int)
}

// Registry is the part of a Temporal worker that activities are registered with.
type Registry interface {
	RegisterActivityWithOptions(activity any, options activity.RegisterOptions)
}

// errDrained is why activities end that outlast the drain.
var errDrained = errors.New("the node stopped before the job was done")

// heartbeatEvery is how often a running activity is told to Temporal; it takes a silent job for lost after 5 s (A11).
const heartbeatEvery = time.Second

// Gate lets what the workers of all generations get through: so many at once, until the node has to end.
type Gate struct {
	slots chan struct{}
	// hard ends when nothing may go on.
	hard    context.Context
	arrived chan struct{} // a hint that something came
	log     *slog.Logger

	running atomic.Int64
}

// NewGate makes a gate for so many activities at once; all end with hard.
func NewGate(hard context.Context, atOnce int, log *slog.Logger) *Gate {
	return &Gate{slots: make(chan struct{}, atOnce), hard: hard, arrived: make(chan struct{}, 1), log: log}
}

// Running is how many activities are at work.
func (g *Gate) Running() int { return int(g.running.Load()) }

// Do runs an activity's work when there is room for it, keeps Temporal told that it lives, and words its failure for the
// workflow. id names it in the log.
func Do[T any](ctx context.Context, g *Gate, id string, work func(context.Context) (T, error)) (out T, err error) {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.hard, func() { cancel(context.Cause(g.hard)) })()
	beating := make(chan struct{})
	go func() { defer close(beating); heartbeat(ctx) }()
	defer func() { cancel(nil); <-beating }()

	select { // the generation before may still have some
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return out, outcome(ctx, ctx.Err())
	}
	g.running.Add(1)
	defer g.running.Add(-1)
	begun := time.Now()
	if out, err = work(ctx); err != nil {
		g.log.Warn("job failed", "job", id, "took", time.Since(begun), "error", err)
		return out, outcome(ctx, err)
	}
	g.log.Debug("job done", "job", id, "took", time.Since(begun))
	return out, nil
}

func heartbeat(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			activity.RecordHeartbeat(ctx)
		}
	}
}

// outcome is the failure as the workflow gets it: worded already, cancelled, invalid (no node could do better), or
// node_failed (another one may).
func outcome(ctx context.Context, err error) error {
	var worded *temporal.ApplicationError
	switch {
	case errors.As(err, &worded):
		return worded
	case errors.Is(context.Cause(ctx), errDrained):
		return temporal.NewApplicationError(errDrained.Error(), string(berth.CodeNodeFailed))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	message := err.Error()
	var e *berth.Error
	if errors.As(err, &e) {
		message = e.Message
	}
	if berth.CodeOf(err) == berth.CodeInvalid {
		return temporal.NewNonRetryableApplicationError(message, string(berth.CodeInvalid), nil)
	}
	return temporal.NewApplicationError(message, string(berth.CodeNodeFailed))
}

// awaitQuiet returns when nothing has come for d.
func (g *Gate) awaitQuiet(d time.Duration) {
	quiet := time.NewTimer(d)
	defer quiet.Stop()
	for {
		select {
		case <-g.arrived:
			quiet.Reset(d)
		case <-quiet.C:
			return
		case <-g.hard.Done():
			return
		}
	}
}

// startWorker polls a generation's task queue. Ten thousand such queues are cheap to serve only without a workflow
// poller and with one activity poller each.
func (a *agent) startWorker(r client.Registered) (stopper, error) {
	w := worker.New(a.Temporal, r.TaskQueue, worker.Options{
		Identity:                           fmt.Sprintf("%s.%d@%s", a.Spec.ID, r.Generation, a.Spec.Incarnation.Host),
		DisableWorkflowWorker:              true,
		DisableEagerActivities:             true,
		DisableRegistrationAliasing:        true,
		MaxConcurrentActivityTaskPollers:   1,
		MaxConcurrentActivityExecutionSize: a.MaxActivities,
		MaxHeartbeatThrottleInterval:       heartbeatEvery,
		// What runs is ended by the agent, so that the workflow hears of it: a little later than that.
		WorkerStopTimeout: a.Drain + lastPause,
		OnFatalError: func(err error) {
			select {
			case a.failed <- workerFailure{r.Generation, err}:
			default: // the first is enough
			}
		},
	})
	a.Work.Register(w, a.gate, r.Generation)
	if err := w.Start(); err != nil {
		return nil, err
	}
	return w, nil
}
