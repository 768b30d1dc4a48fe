package activities

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"berth"
	"berth/workflows"
)

// heartbeatEvery is the interval of a running step's heartbeats. The SDK throttles them to what the heartbeat timeout
// needs.
const heartbeatEvery = 2 * time.Second

const (
	// earlierEvery is the interval at which an attempt looks whether an earlier one still makes its call.
	earlierEvery = 500 * time.Millisecond
	// earlierRecords is the time that an earlier attempt gets to record its answer once it has released its slot.
	earlierRecords = time.Second
)

// attempting is what the heartbeats of an attempt tell the next one, and what the attempt knows of Temporal.
type attempting struct {
	lease atomic.Pointer[string] // of the slot in which a call is made, nil if there is none
	lost  atomic.Bool            // Temporal has given up the attempt
}

func (a *attempting) calling() string {
	if lease := a.lease.Load(); lease != nil {
		return *lease
	}
	return ""
}

// attend sends heartbeats for the step, and cancels its context when the task ends elsewhere or when this worker stops and the drain
// time has passed. An attempt that Temporal gives up without a request to cancel, such as after an outage of Temporal, continues while
// it makes a call: its answer was paid for, and the next attempt waits for it, see awaitEarlier.
func (a *Tasks) attend(ctx context.Context, task berth.TaskRef, fence int64) (attended context.Context, at *attempting, stop func()) {
	stopping, beat, at := activity.GetWorkerStopChannel(ctx), ctx, &attempting{}
	ctx, expire := context.WithoutCancel(ctx), func() {}
	if deadline, ok := beat.Deadline(); ok {
		ctx, expire = context.WithDeadline(ctx, deadline)
	}
	ctx, leave := a.Running.Watch(ctx, task, uint64(fence)) //nolint:gosec // a fence is never negative
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		given := beat.Done()
		var drained <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if given != nil {
					activity.RecordHeartbeat(beat, at.calling())
				}
			case <-given:
				why := context.Cause(beat)
				if given = nil; errors.Is(beat.Err(), context.DeadlineExceeded) { // which ctx has, too
					continue
				}
				if requested(why) || at.calling() == "" {
					cancel(why)
					return
				}
				at.lost.Store(true)
				a.Logger.InfoContext(ctx, "Temporal has given up an attempt whose call continues", "task", task, "fence", fence, "reason", why)
			case <-stopping:
				stopping, drained = nil, time.After(a.Options.Drain)
			case <-drained:
				cancel(errStopping)
				return
			}
		}
	}()
	return ctx, at, func() { cancel(nil); leave(); expire() }
}

// requested reports whether the context of an activity ended because a caller wants the activity to end, and not because Temporal was
// not reached or has given up the attempt.
func requested(why error) bool {
	return temporal.IsCanceledError(why) || errors.Is(why, activity.ErrActivityPaused) || errors.Is(why, activity.ErrActivityReset) || errors.Is(why, errStopping)
}

// awaitEarlier waits while an earlier attempt of the step makes its call. Whatever that attempt records is there when this one begins.
func (a *Tasks) awaitEarlier(ctx context.Context, in workflows.StepInput) error {
	var lease string
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &lease) != nil || lease == "" {
		return nil
	}
	defer heartbeats(ctx, lease)()
	stopping := activity.GetWorkerStopChannel(ctx)
	for waited := false; ; waited = true {
		held, err := a.Scripts.HoldsSlot(ctx, in.Step.Model, lease)
		if err != nil {
			a.Logger.WarnContext(ctx, "call of an earlier attempt not looked for", "task", in.ID, "error", err)
		}
		pause := earlierEvery
		switch {
		case !held && !waited:
			return nil
		case !held:
			pause = earlierRecords
		case !waited:
			a.Logger.InfoContext(ctx, "step waits for the call of an earlier attempt", "task", in.ID, "step", in.Step.Name)
		}
		select {
		case <-ctx.Done():
			return cause(ctx, ctx.Err())
		case <-stopping:
			return errStopping
		case <-time.After(pause):
		}
		if !held {
			return nil
		}
	}
}

// heartbeats sends heartbeats until the function that it returns is called, so that another worker repeats an activity soon after its
// worker was killed.
func heartbeats(ctx context.Context, details ...any) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx, details...)
			}
		}
	}()
	return stop
}
