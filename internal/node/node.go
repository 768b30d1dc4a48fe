// Package node is what runs beside a node's capacity: it registers the node, tells how busy it is, and works the
// node's own task queue with a driver (L3, A11, S8). It needs berth's HTTP API and Temporal, no Redis. The contract it
// keeps is docs/nodes.md; a node in another language keeps the same.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/internal/client"
)

// ErrKeepRegistration as the cause of the end of Run's context has the node stop without withdrawing: it is back before anybody
// misses it, or it is missed.
var ErrKeepRegistration = errors.New("the node stops and keeps its registration")

// ErrSuperseded is why a node stops when another process has taken its id over. Two processes under one id would
// take it from each other for ever.
var ErrSuperseded = errors.New("another process has registered under this node id")

// Options describe one node.
type Options struct {
	// Spec is what the node says of itself. Each run needs an incarnation of its own, see NewIncarnation.
	Spec berth.NodeSpec
	// API is called with a token of scope node.
	API *client.Client
	// Temporal stays open until Run has returned; the caller closes it.
	Temporal temporalclient.Client
	// Driver does the jobs of a node. One whose work is another has Work instead.
	Driver Driver
	Work   Work
	// MaxActivities is how many activities run at once; 0 is as many as the node has slots.
	MaxActivities int
	// Drain is how long running jobs may go on when the node stops; 0 is DefaultDrain.
	Drain  time.Duration
	Logger *slog.Logger
}

// DefaultDrain is how long running jobs may go on when a node stops.
const DefaultDrain = 20 * time.Second

const (
	// quietTime is how long a withdrawn node must have got nothing before it stops polling: what was dispatched before
	// reaches the queue within one workflow task.
	quietTime = time.Second
	// withdrawTime bounds the attempts to withdraw from an API that may be away, too.
	withdrawTime = 3 * time.Second
	// Pauses after failed calls.
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	// Bounds of what is believed of an interval or a Retry-After.
	shortestInterval = 50 * time.Millisecond
	longestInterval  = 5 * time.Minute
)

// NewIncarnation names this run of this process (C14).
func NewIncarnation() (berth.Incarnation, error) {
	host, err := os.Hostname()
	if err != nil {
		return berth.Incarnation{}, fmt.Errorf("name of this host: %w", err)
	}
	return berth.Incarnation{Host: host, PID: os.Getpid(), StartedAt: time.Now().UnixMilli()}, nil
}

// Run is the node from its registration until ctx ends; then it withdraws, unless the cause is ErrKeepRegistration, lets running jobs
// finish within the drain time and returns nil. An API or a Temporal that is away is waited for. It fails with ErrSuperseded, with the API's
// refusal of the first registration (a *client.Problem), or when Temporal refuses the worker for good.
func Run(ctx context.Context, o Options) error {
	if err := o.Spec.Validate(); err != nil {
		return err
	}
	a := newAgent(ctx, o)
	a.work = a.startWorker
	a.healthy = func(ctx context.Context) error {
		_, err := o.Temporal.CheckHealth(ctx, &temporalclient.CheckHealthRequest{})
		return err
	}
	return a.run(ctx)
}

// agent is a running node. Its fields belong to the goroutine of run, but for the gate and the work.
type agent struct {
	Options
	gate  *Gate
	cut   context.CancelCauseFunc // ends the jobs that are left
	meter *meter
	// failed hears when the worker of a generation has failed for good.
	failed chan workerFailure
	// retired are the workers of generations that are over, as long as they have jobs.
	retired sync.WaitGroup

	healthy func(context.Context) error
	work    func(client.Registered) (stopper, error)
	quiet   time.Duration

	every  time.Duration // between heartbeats, as the server said last
	outage time.Time     // since when the API does not answer as it should; zero while it does
	pause  time.Duration
	orders string // the operator's, as logged last
}

type workerFailure struct {
	generation int64
	err        error
}

func newAgent(ctx context.Context, o Options) *agent {
	if o.Drain <= 0 {
		o.Drain = DefaultDrain
	}
	if o.Spec.MaxConcurrentJobs == 0 {
		o.Spec.MaxConcurrentJobs = berth.DefaultMaxConcurrentJobs
	}
	if o.Spec.Capabilities == nil {
		o.Spec.Capabilities = []string{}
	}
	if o.MaxActivities <= 0 {
		o.MaxActivities = o.Spec.MaxConcurrentJobs
	}
	o.Logger = o.Logger.With("node", o.Spec.ID)
	hard, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	gate := NewGate(hard, o.MaxActivities, o.Logger)
	if o.Work == nil {
		o.Work = newJobs(gate, o)
	}
	return &agent{
		Options: o, every: berth.DefaultNodeTimes(o.Spec.Kind).Heartbeat, cut: cut, gate: gate, meter: newMeter(),
		failed: make(chan workerFailure, 1), quiet: quietTime,
	}
}

func (a *agent) run(ctx context.Context) error {
	defer a.cut(nil)
	now, err := a.join(ctx, membership{})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	beat := time.NewTimer(0)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			a.leave(ctx, now)
			return nil
		case f := <-a.failed:
			if f.generation != now.Generation {
				continue
			}
			a.leave(ctx, now)
			return fmt.Errorf("work task queue %s: %w", now.TaskQueue, f.err)
		case <-beat.C:
		}
		wait, again := a.beat(ctx, now)
		if again {
			next, err := a.join(ctx, now)
			if err != nil && ctx.Err() == nil {
				a.leave(ctx, now)
				return err
			}
			if err == nil {
				now, wait = a.move(now, next), 0
			}
		}
		beat.Reset(wait)
	}
}

// move goes on under the next generation; the jobs of the last one finish beside it.
func (a *agent) move(last, next membership) membership {
	if next.Generation == last.Generation {
		return membership{next.Registered, last.worker}
	}
	a.retired.Go(func() {
		// What was sent to the last generation before anybody knew that it was over is still worth doing.
		select {
		case <-time.After(a.quiet):
		case <-a.gate.hard.Done():
		}
		last.worker.Stop()
	})
	return next
}

// beat tells how busy the node is. again: the generation is over, register anew; else wait before the next.
func (a *agent) beat(ctx context.Context, now membership) (wait time.Duration, again bool) {
	call, cancel := context.WithTimeout(ctx, min(max(a.every, time.Second), lastPause))
	defer cancel()
	begun := time.Now()
	reply, err := a.API.HeartbeatNode(call, a.Spec.ID, client.Heartbeat{
		Generation: now.Generation, NodeLoad: a.meter.read(ctx, a.Work),
	})
	var refused *client.Problem
	switch {
	case err == nil:
		a.meter.took(time.Since(begun))
		a.answered()
		a.note(reply)
		a.follow(reply.HeartbeatIntervalMs)
		// Never later than asked for, and not all nodes of a fleet at once.
		return a.every - rand.N(a.every/10), false
	case ctx.Err() != nil:
		return 0, false
	case errors.As(err, &refused) && refused.Status == http.StatusConflict:
		a.Logger.Warn("the registration is over: registering again", "generation", now.Generation)
		return 0, true
	default:
		return min(a.silent("heartbeat failed", err), a.every), false
	}
}

// silent notes that a call failed, says so once per outage, and answers how long to wait before the next.
func (a *agent) silent(what string, err error) time.Duration {
	wait := a.backoff(err)
	if a.outage.IsZero() {
		a.outage = time.Now()
		a.Logger.Warn("the node goes on by itself and keeps trying", "because", what, "error", err)
	} else {
		a.Logger.Debug("still no answer", "because", what, "error", err)
	}
	return wait
}

func (a *agent) answered() {
	if !a.outage.IsZero() {
		a.Logger.Info("answered again", "after", time.Since(a.outage).Round(time.Millisecond))
	}
	a.outage, a.pause = time.Time{}, 0
}

// backoff is the next pause: twice the last, or what the server asks for, and different on every node.
func (a *agent) backoff(err error) time.Duration {
	a.pause = min(max(firstPause, 2*a.pause), lastPause)
	wait := a.pause
	var p *client.Problem
	if errors.As(err, &p) && p.RetryAfter > 0 {
		wait = min(max(wait, time.Duration(p.RetryAfter)*time.Second), lastPause)
	}
	return wait/2 + rand.N(wait/2)
}

// follow takes the server's interval over; without one it stays as it is.
func (a *agent) follow(ms int64) {
	if ms > 0 {
		a.every = min(max(time.Duration(min(ms, longestInterval.Milliseconds()))*time.Millisecond, shortestInterval), longestInterval)
	}
}

// note logs the operator's orders when they change. The scheduler keeps to them; the node only works on.
func (a *agent) note(r client.HeartbeatReply) {
	orders := ""
	switch {
	case !r.DrainUntil.IsZero():
		orders = "drain until " + r.DrainUntil.Format(time.RFC3339)
	case r.Cordoned:
		orders = "cordoned"
	}
	if orders != a.orders {
		a.Logger.Info("the operator's orders changed", "now", orders, "before", a.orders)
		a.orders = orders
	}
}
