// Package node is the agent that runs beside a node's capacity: it registers the node, sends heartbeats with its load, and
// works the node's own task queue with a driver. It needs berth's HTTP API and Temporal, but not Redis. It implements the
// contract in docs/nodes.md; nodes in other languages implement the same contract.
package node

import (
	"cmp"
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
	"berth/client"
	"berth/internal/pause"
)

// ErrKeepRegistration is the cause with which the cancellation of Run's context stops the node without withdrawing it. The
// node returns before its heartbeat timeout, or is declared dead.
var ErrKeepRegistration = errors.New("node stopped; its registration stays")

// ErrSuperseded is the error of a node whose id another process has registered. Registering again would make the two
// processes supersede each other indefinitely.
var ErrSuperseded = errors.New("another process has registered under this node id")

// ErrServiceLost is the cause with which the cancellation of Run's context reports that the server that the node represents is
// lost: operators see it as the reason of the withdrawal.
var ErrServiceLost = errors.New("the node's service is lost")

// Options describe one node.
type Options struct {
	// Spec is what the node registers with. Each run needs its own incarnation, see NewIncarnation.
	Spec berth.NodeSpec
	// API is called with a token of scope node.
	API *client.Client
	// Temporal stays open until Run has returned; the caller closes it.
	Temporal temporalclient.Client
	// Driver runs the jobs of a node. A node with other activities sets Work instead.
	Driver Driver
	Work   Work
	// MaxActivities is the maximum number of concurrent activities; 0 is the number of the node's slots.
	MaxActivities int
	// Drain is how long running jobs may continue when the node stops; 0 is DefaultDrain.
	Drain  time.Duration
	Logger *slog.Logger
	// Accepted is called after each registration and heartbeat that the API accepted; it may be nil.
	Accepted func()
}

// DefaultDrain is how long running jobs may continue when a node stops.
const DefaultDrain = 20 * time.Second

const (
	// quietTime is how long a withdrawn node must receive no job before it stops polling: jobs dispatched earlier reach
	// the queue within one workflow task.
	quietTime = time.Second
	// withdrawTime bounds the attempts to withdraw while the API is unreachable.
	withdrawTime = 3 * time.Second
	// Pauses after failed calls.
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	// Bounds of the heartbeat interval that the server may set.
	minInterval = 50 * time.Millisecond
	maxInterval = 5 * time.Minute
)

// NewIncarnation returns the identity of this run of this process.
func NewIncarnation() (berth.Incarnation, error) {
	host, err := os.Hostname()
	if err != nil {
		return berth.Incarnation{}, fmt.Errorf("read host name: %w", err)
	}
	return berth.Incarnation{Host: host, PID: os.Getpid(), StartedAt: time.Now().UnixMilli()}, nil
}

// Run registers the node and works until ctx ends. Then it withdraws, unless the cause is ErrKeepRegistration, lets running
// jobs finish within the drain time and returns nil. It waits while the API or Temporal is unreachable. It fails with
// ErrSuperseded, with the API's refusal of the first registration (a *client.Problem), or when Temporal permanently
// rejects the worker.
func Run(ctx context.Context, o Options) error {
	if err := o.Spec.Normalize(); err != nil {
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

// agent is a running node. Only the goroutine of run uses its fields, apart from gate and Work.
type agent struct {
	Options
	gate  *Gate
	cut   context.CancelCauseFunc // cancels the remaining jobs
	meter *meter
	// failed receives the permanent failure of a generation's worker.
	failed chan workerFailure
	// retired are the workers of earlier generations that still run jobs.
	retired sync.WaitGroup

	healthy func(context.Context) error
	work    func(client.Registered) (stopper, error)
	quiet   time.Duration

	interval time.Duration // between heartbeats, as the server last set it
	outage   time.Time     // start of the current outage of the API or Temporal; zero without one
	// unreachable is the server that the last call of the outage did not reach: API or Temporal.
	unreachable string
	retries     pause.Backoff
	settings    string // operator settings, as last logged
}

type workerFailure struct {
	generation int64
	err        error
}

func newAgent(ctx context.Context, o Options) *agent {
	if o.Drain <= 0 {
		o.Drain = DefaultDrain
	}
	o.Spec.MaxConcurrentJobs = cmp.Or(o.Spec.MaxConcurrentJobs, berth.DefaultMaxConcurrentJobs)
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
		Options: o, interval: berth.DefaultNodeTimes(o.Spec.Kind).Heartbeat, cut: cut, gate: gate, meter: newMeter(),
		failed: make(chan workerFailure, 1), quiet: quietTime, retries: pause.NewBackoff(firstPause, lastPause),
	}
}

func (a *agent) run(ctx context.Context) error {
	defer a.cut(nil)
	measuring, stop := context.WithCancel(ctx)
	var measured sync.WaitGroup
	measured.Go(func() { a.meter.gpus.run(measuring) })
	defer measured.Wait()
	defer stop()
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
		wait, expired := a.beat(ctx, now)
		if expired {
			next, err := a.join(ctx, now)
			if err != nil && ctx.Err() == nil {
				a.leave(ctx, now)
				return err
			}
			if err == nil {
				now, wait = a.replace(now, next), 0
			}
		}
		beat.Reset(wait)
	}
}

// replace continues under the next generation, while the jobs of the last one finish.
func (a *agent) replace(last, next membership) membership {
	if next.Generation == last.Generation {
		return membership{next.Registered, last.worker}
	}
	a.retired.Go(func() {
		// Jobs that were dispatched before the last generation's end became known are still valid.
		pause.For(a.gate.hard, a.quiet)
		last.worker.Stop()
	})
	return next
}

// beat sends a heartbeat with the node's load. It returns the time until the next one, or expired if the generation has
// ended and the node must register again.
func (a *agent) beat(ctx context.Context, now membership) (wait time.Duration, expired bool) {
	call, cancel := context.WithTimeout(ctx, min(max(a.interval, time.Second), lastPause))
	defer cancel()
	begun := time.Now()
	reply, err := a.API.HeartbeatNode(call, a.Spec.ID, client.Heartbeat{
		Generation: now.Generation, NodeLoad: a.meter.read(ctx, a.Work),
	})
	var refused *client.Problem
	switch {
	case err == nil:
		a.meter.addRoundTrip(time.Since(begun))
		a.succeeded()
		a.accepted()
		a.logSettings(reply)
		a.setInterval(reply.HeartbeatIntervalMs)
		// Earlier than required, and jittered across the nodes of a fleet.
		return a.interval - rand.N(a.interval/10), false
	case ctx.Err() != nil:
		return 0, false
	case errors.As(err, &refused) && refused.Status == http.StatusConflict:
		a.Logger.Warn("registration expired; registering again", "generation", now.Generation)
		return 0, true
	default:
		return min(a.failedCall("heartbeat", err), a.interval), false
	}
}

// failedCall logs a failed call, as a warning once per outage of a server, and returns the pause before the next attempt.
func (a *agent) failedCall(call string, err error) time.Duration {
	wait, server := a.backoff(err), "API"
	if _, ok := errors.AsType[temporalError](err); ok {
		server = "Temporal"
	}
	if a.outage.IsZero() {
		a.outage = time.Now()
	}
	if a.unreachable != server {
		a.Logger.Warn("server unreachable; retrying", "server", server, "call", call, "error", err)
	} else {
		a.Logger.Debug("server still unreachable", "server", server, "call", call, "error", err)
	}
	a.unreachable = server
	return wait
}

func (a *agent) accepted() {
	if a.Accepted != nil {
		a.Accepted()
	}
}

// succeeded ends an outage.
func (a *agent) succeeded() {
	if !a.outage.IsZero() {
		a.Logger.Info("server reachable again", "server", a.unreachable, "outage", time.Since(a.outage).Round(time.Millisecond))
	}
	a.outage, a.unreachable = time.Time{}, ""
	a.retries.Reset()
}

// backoff returns the next pause: that of retries or the server's Retry-After, with jitter.
func (a *agent) backoff(err error) time.Duration {
	wait := a.retries.Next()
	var p *client.Problem
	if errors.As(err, &p) && p.RetryAfter > 0 {
		wait = min(max(wait, time.Duration(p.RetryAfter)*time.Second), lastPause)
	}
	return wait/2 + rand.N(wait/2)
}

// setInterval adopts the server's heartbeat interval; 0 keeps the current one.
func (a *agent) setInterval(ms int64) {
	if ms > 0 {
		a.interval = min(max(time.Duration(min(ms, maxInterval.Milliseconds()))*time.Millisecond, minInterval), maxInterval)
	}
}

// logSettings logs operator settings when they change. The scheduler enforces them; the node keeps working.
func (a *agent) logSettings(r client.HeartbeatReply) {
	settings := ""
	switch {
	case !r.DrainUntil.IsZero():
		settings = "drain until " + r.DrainUntil.Format(time.RFC3339)
	case r.Cordoned:
		settings = "cordoned"
	}
	if settings != a.settings {
		a.Logger.Info("operator settings changed", "settings", settings, "previous", a.settings)
		a.settings = settings
	}
}
