package node

import (
	"context"
	"sync/atomic"

	"go.temporal.io/sdk/activity"

	"berth"
)

// jobs is the Work of nodes that translate or run executors.
type jobs struct {
	driver    Driver
	executors bool
	gate      *Gate
	executing atomic.Int64
}

func newJobs(g *Gate, o Options) *jobs {
	return &jobs{driver: o.Driver, executors: o.Spec.Kind == berth.NodeEngine, gate: g}
}

// Register registers translation, and executors for nodes of kind engine.
func (j *jobs) Register(w Registry, _ *Gate, _ int64) {
	w.RegisterActivityWithOptions(j.translate, activity.RegisterOptions{Name: berth.ActivityTranslate})
	if j.executors {
		w.RegisterActivityWithOptions(j.execute, activity.RegisterOptions{Name: berth.ActivityExecute})
	}
}

// Load returns the number of running jobs, and of the executors among them.
func (j *jobs) Load() (running, executing int) { return j.gate.Running(), int(j.executing.Load()) }

// translate is the activity berth.ActivityTranslate.
func (j *jobs) translate(ctx context.Context, in berth.JobInput) (berth.JobOutput, error) {
	return Do(ctx, j.gate, in.JobID, func(ctx context.Context) (berth.JobOutput, error) {
		out, err := j.driver.Translate(ctx, in)
		if err == nil {
			err = checkLength(len(out.Text), berth.MaxTranslationBytes)
		}
		return out, err
	})
}

// execute is the activity berth.ActivityExecute.
func (j *jobs) execute(ctx context.Context, in berth.ExecuteInput) (berth.ExecuteOutput, error) {
	j.executing.Add(1)
	defer j.executing.Add(-1)
	return Do(ctx, j.gate, in.ExecutionID, func(ctx context.Context) (berth.ExecuteOutput, error) {
		out, err := j.driver.Execute(ctx, in)
		if err == nil {
			err = checkLength(len(out.Output), berth.MaxExecutionBytes)
		}
		return out, err
	})
}

func checkLength(n, limit int) error {
	if n > limit {
		return berth.Errorf(berth.CodeTooLarge, "the output of %d bytes exceeds the limit of %d bytes", n, limit)
	}
	return nil
}
