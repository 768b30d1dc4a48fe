package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"berth"
	"berth/client"
	"berth/internal/metrics"
	"berth/internal/pause"
)

// Work implements the activities of a node's task queue.
type Work interface {
	// Register registers the activities with the worker of one generation. Every activity calls Do.
	Register(w Registry, g *Gate, generation int64)
	// Load returns the number of running jobs, and of the executors among them.
	Load() (running, executing int)
}

// Registry is the part of a Temporal worker that activities are registered with.
type Registry interface {
	RegisterActivityWithOptions(activity any, options activity.RegisterOptions)
}

// errDrained is the failure of activities that outlast the drain time.
var errDrained = errors.New("the node stopped before the job finished")

// heartbeatEvery is the interval of a running activity's heartbeats; Temporal treats it as lost after 5 s without one.
const heartbeatEvery = time.Second

// Gate limits the concurrent activities of all generations' workers and cancels them when the node has to end.
type Gate struct {
	slots chan struct{}
	// hard ends when running activities must end.
	hard    context.Context
	arrived chan struct{} // a hint that an activity was delivered
	log     *slog.Logger

	running atomic.Int64
}

// NewGate returns a gate for at most limit concurrent activities; the end of hard cancels them.
func NewGate(hard context.Context, limit int, log *slog.Logger) *Gate {
	return &Gate{slots: make(chan struct{}, limit), hard: hard, arrived: make(chan struct{}, 1), log: log}
}

// Running returns the number of running activities.
func (g *Gate) Running() int { return int(g.running.Load()) }

// Do runs an activity's work in a free slot of the gate, sends its heartbeats, and converts its failure for the workflow.
// id identifies the activity in the log.
func Do[T any](ctx context.Context, g *Gate, id string, work func(context.Context) (T, error)) (out T, err error) {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
	called := ctx
	ctx, cancel := independent(called)
	defer cancel(nil)
	defer context.AfterFunc(g.hard, func() { cancel(context.Cause(g.hard)) })()
	beating := make(chan struct{})
	go func() { defer close(beating); heartbeat(ctx, called, cancel) }()
	defer func() { cancel(nil); <-beating }()

	select { // the previous generation may still hold slots
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-ctx.Done():
		return out, outcome(ctx, called, ctx.Err())
	}
	g.running.Add(1)
	defer g.running.Add(-1)
	begun := time.Now()
	out, err = work(ctx)
	observeJob(ctx, begun, err)
	if err != nil {
		g.log.Warn("job failed", "job", id, "took", time.Since(begun), "error", err)
		return out, outcome(ctx, called, err)
	}
	g.log.Debug("job finished", "job", id, "took", time.Since(begun))
	return out, nil
}

func observeJob(ctx context.Context, begun time.Time, err error) {
	outcome := metrics.OK
	if full := (*busy)(nil); errors.As(err, &full) {
		outcome = "busy"
	} else if err != nil {
		outcome = "failed"
	}
	labels := metrics.With(metrics.Outcome.String(outcome))
	metrics.Jobs.Add(ctx, 1, labels)
	metrics.JobDuration.Record(ctx, time.Since(begun).Seconds(), labels)
}

// independent returns a context of the work of an activity. The SDK cancels an activity as soon as Temporal has not taken its heartbeats
// for a second; the work continues, because Temporal may be back before it treats the activity as lost.
func independent(called context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(called))
	stop := context.AfterFunc(called, func() {
		if cause := context.Cause(called); ends(cause) {
			cancel(cause)
		}
	})
	deadline, ok := called.Deadline()
	if !ok {
		return ctx, func(cause error) { stop(); cancel(cause) }
	}
	ctx, expire := context.WithDeadline(ctx, deadline)
	return ctx, func(cause error) { stop(); cancel(cause); expire() }
}

// ends reports whether work ends because of the cause of its activity's end, or of a failed heartbeat: it was cancelled, or Temporal does
// not have the activity any more. A failure of the connection does not end it.
func ends(cause error) bool {
	var unknown *serviceerror.NotFound
	var namespace *serviceerror.NamespaceNotFound
	return temporal.IsCanceledError(cause) || errors.Is(cause, context.Canceled) || errors.As(cause, &unknown) || errors.As(cause, &namespace)
}

// heartbeat sends heartbeats until the work ends. The SDK sends none after it has cancelled the activity.
func heartbeat(ctx, called context.Context, cancel context.CancelCauseFunc) {
	for pause.For(ctx, heartbeatEvery) {
		if called.Err() == nil {
			activity.RecordHeartbeat(called)
			continue
		}
		beat, stop := context.WithTimeout(ctx, 2*heartbeatEvery)
		err := activity.GetClient(called).RecordActivityHeartbeat(beat, activity.GetInfo(called).TaskToken)
		stop()
		if ctx.Err() == nil && ends(err) {
			cancel(err)
		}
	}
}

// interrupted is the failure of work that has ended although neither its input nor its node is the reason: it may run again anywhere.
func interrupted(message string) error {
	return temporal.NewApplicationError(message, string(berth.CodeInterrupted))
}

// outcome converts a failure for the workflow: an application error as it is, cancelled, invalid (no other node could do
// better), too_large, busy, node_failed (another node may succeed), or interrupted.
func outcome(ctx, called context.Context, err error) error {
	var converted *temporal.ApplicationError
	var full *busy
	switch cause := context.Cause(ctx); {
	case errors.As(err, &converted):
		return converted
	case errors.Is(cause, errDrained):
		return temporal.NewApplicationError(errDrained.Error(), string(berth.CodeNodeFailed))
	case ctx.Err() == nil && errors.As(err, &full):
		return full.returned()
	case ctx.Err() == nil:
	case called.Err() != nil && ends(context.Cause(called)), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ctx.Err() // Temporal has ended the activity
	case temporal.IsCanceledError(cause):
		return interrupted("the work was cancelled")
	case ends(cause):
		return interrupted("Temporal was unavailable for so long that the work was given up")
	default:
		return interrupted("the node stopped before the job finished")
	}
	message := err.Error()
	var e *berth.Error
	if errors.As(err, &e) {
		message = e.Message
	}
	switch code := berth.CodeOf(err); code {
	case berth.CodeInvalid, berth.CodeTooLarge:
		return temporal.NewNonRetryableApplicationError(message, string(code), nil)
	}
	return temporal.NewApplicationError(message, string(berth.CodeNodeFailed))
}

// awaitQuiet returns when no activity was delivered for d.
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

// startWorker starts a worker for a generation's task queue. It has no workflow poller and one activity poller, which
// keeps ten thousand such queues affordable for the server.
func (a *agent) startWorker(r client.Registered) (stopper, error) {
	w := worker.New(a.Temporal, r.TaskQueue, worker.Options{
		Identity:                           fmt.Sprintf("%s.%d@%s", a.Spec.ID, r.Generation, a.Spec.Incarnation.Host),
		DisableWorkflowWorker:              true,
		DisableEagerActivities:             true,
		DisableRegistrationAliasing:        true,
		MaxConcurrentActivityTaskPollers:   1,
		MaxConcurrentActivityExecutionSize: a.MaxActivities,
		MaxHeartbeatThrottleInterval:       heartbeatEvery,
		// The agent cancels running jobs when the node ends. Those of an earlier generation finish, however long they take.
		WorkerStopTimeout: math.MaxInt64,
		OnFatalError: func(err error) {
			select {
			case a.failed <- workerFailure{r.Generation, err}:
			default: // only the first failure matters
			}
		},
	})
	a.Work.Register(w, a.gate, r.Generation)
	if err := w.Start(); err != nil {
		return nil, err
	}
	return w, nil
}
