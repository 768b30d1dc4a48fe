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

// Driver does a node's work. Its calls end when their context does, with everything they started. A failure is a
// *berth.Error: of code invalid when no node could do better with this input, else another node tries.
type Driver interface {
	Translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error)
	Execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error)
}

// errDrained is why jobs end that outlast the drain.
var errDrained = errors.New("the node stopped before the job was done")

// heartbeatEvery is how often a running job is told to Temporal; it takes a silent one for lost after 5 s (A11).
const heartbeatEvery = time.Second

// jobs runs what the workers of all generations get, at most as many at once as the node has slots.
type jobs struct {
	driver Driver
	slots  chan struct{}
	// hard ends when jobs may not go on.
	hard    context.Context
	arrived chan struct{} // a hint that a job came
	log     *slog.Logger

	running, executing atomic.Int64
}

func newJobs(hard context.Context, o Options) *jobs {
	return &jobs{
		driver: o.Driver, slots: make(chan struct{}, o.Spec.MaxConcurrentJobs), hard: hard,
		arrived: make(chan struct{}, 1), log: o.Logger,
	}
}

// translate is the activity berth.ActivityTranslate.
func (j *jobs) translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	return do(ctx, j, in.JobID, func(ctx context.Context) (berth.JobOutput, error) {
		out, err := j.driver.Translate(ctx, in)
		if err == nil {
			err = tooLong(len(out.Text), berth.MaxSegmentBytes)
		}
		return out, err
	})
}

// execute is the activity berth.ActivityExecute.
func (j *jobs) execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	j.executing.Add(1)
	defer j.executing.Add(-1)
	return do(ctx, j, in.ExecutionID, func(ctx context.Context) (berth.ExecuteOutput, error) {
		out, err := j.driver.Execute(ctx, in)
		if err == nil {
			err = tooLong(len(out.Output), berth.MaxExecutionBytes)
		}
		return out, err
	})
}

func tooLong(n, most int) error {
	if n > most {
		return berth.Errorf(berth.CodeNodeFailed, "the output has %d bytes, over %d", n, most)
	}
	return nil
}

// do runs one piece of work in a slot, keeps Temporal told that it lives, and words its failure for the workflow.
func do[T any](ctx context.Context, j *jobs, id string, work func(context.Context) (T, error)) (out T, err error) {
	select {
	case j.arrived <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(j.hard, func() { cancel(context.Cause(j.hard)) })()
	beating := make(chan struct{})
	go func() { defer close(beating); heartbeat(ctx) }()
	defer func() { cancel(nil); <-beating }()

	select { // the generation before may still have some
	case j.slots <- struct{}{}:
		defer func() { <-j.slots }()
	case <-ctx.Done():
		return out, outcome(ctx, ctx.Err())
	}
	j.running.Add(1)
	defer j.running.Add(-1)
	begun := time.Now()
	if out, err = work(ctx); err != nil {
		j.log.Warn("job failed", "job", id, "took", time.Since(begun), "error", err)
		return out, outcome(ctx, err)
	}
	j.log.Debug("job done", "job", id, "took", time.Since(begun))
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

// outcome is the failure as the workflow gets it: cancelled, invalid (no node could do better), or node_failed (another
// one may).
func outcome(ctx context.Context, err error) error {
	switch {
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

// awaitQuiet returns when no job has come for d.
func (j *jobs) awaitQuiet(d time.Duration) {
	quiet := time.NewTimer(d)
	defer quiet.Stop()
	for {
		select {
		case <-j.arrived:
			quiet.Reset(d)
		case <-quiet.C:
			return
		case <-j.hard.Done():
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
		MaxConcurrentActivityExecutionSize: a.Spec.MaxConcurrentJobs,
		MaxHeartbeatThrottleInterval:       heartbeatEvery,
		// Jobs are ended by the agent, so that the workflow hears of it: a little later than that.
		WorkerStopTimeout: a.Drain + lastPause,
		OnFatalError: func(err error) {
			select {
			case a.failed <- workerFailure{r.Generation, err}:
			default: // the first is enough
			}
		},
	})
	w.RegisterActivityWithOptions(a.jobs.translate, activity.RegisterOptions{Name: berth.ActivityTranslate})
	if a.Spec.Kind == berth.NodeEngine {
		w.RegisterActivityWithOptions(a.jobs.execute, activity.RegisterOptions{Name: berth.ActivityExecute})
	}
	if err := w.Start(); err != nil {
		return nil, err
	}
	return w, nil
}
