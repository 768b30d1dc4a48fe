package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"berth"
	"berth/client"
	"berth/internal/pause"
)

// membership is one generation of the node and its worker.
type membership struct {
	client.Registered
	worker stopper
}

// stopper is a polling worker. Stop returns when its jobs have ended.
type stopper interface{ Stop() }

// join registers the node and starts polling. last is the previous membership, empty for the first registration. It
// retries until both succeed, ctx ends, or the error is permanent.
func (a *agent) join(ctx context.Context, last membership) (membership, error) {
	for {
		next, err := a.tryJoin(ctx, last)
		if err == nil {
			a.succeeded()
			a.accepted()
			return next, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrSuperseded) || (last.Generation == 0 && permanent(err)) { // wrong settings
			return membership{}, err
		}
		if !pause.For(ctx, a.failedCall("register", err)) {
			return membership{}, ctx.Err()
		}
	}
}

// temporalError is the error of a node that cannot work at Temporal.
type temporalError struct{ error }

func (e temporalError) Error() string {
	return "use Temporal (check BERTH_TEMPORAL_ADDR, BERTH_TEMPORAL_NAMESPACE and BERTH_TEMPORAL_TLS…): " + e.error.Error()
}

func (e temporalError) Unwrap() error { return e.error }

func (a *agent) tryJoin(ctx context.Context, last membership) (membership, error) {
	call, cancel := context.WithTimeout(ctx, lastPause)
	defer cancel()
	// A node that registers but cannot poll would be sent jobs that never start.
	if err := a.healthy(call); err != nil {
		return membership{}, temporalError{err}
	}
	if last.Generation != 0 {
		if err := a.superseded(call, last.Generation); err != nil {
			return membership{}, err
		}
	}
	reg, err := a.API.RegisterNode(call, client.Registration{NodeSpec: a.Spec, PreviousGeneration: last.Generation})
	var refused *client.Problem
	if errors.As(err, &refused) && refused.Status == http.StatusConflict {
		return membership{}, fmt.Errorf("%w: node %s: %s", ErrSuperseded, a.Spec.ID, refused.Detail)
	}
	if err != nil {
		if refused != nil && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
			err = fmt.Errorf("%w; check BERTH_TOKEN", err)
		}
		return membership{}, fmt.Errorf("register node %s: %w", a.Spec.ID, err)
	}
	a.setInterval(reg.HeartbeatIntervalMs)
	if reg.Generation == last.Generation {
		return membership{reg, last.worker}, nil
	}
	w, err := a.work(reg)
	if err != nil {
		return membership{}, temporalError{fmt.Errorf("work task queue %s: %w", reg.TaskQueue, err)}
	}
	a.Logger.Info("node registered", "generation", reg.Generation, "queue", reg.TaskQueue, "pools", reg.Pools,
		"slots", a.Spec.MaxConcurrentJobs, "previous", last.Generation)
	return membership{reg, w}, nil
}

// superseded returns ErrSuperseded if another process is registered under the node's id. The registration itself refuses
// only an earlier process of the same host; two processes on different hosts would supersede each other.
func (a *agent) superseded(ctx context.Context, generation int64) error {
	n, err := a.API.Node(ctx, a.Spec.ID)
	var refused *client.Problem
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("look up node %s: %w", a.Spec.ID, err)
	case n.Generation > generation && n.State != berth.NodeDead && n.Incarnation != a.Spec.Incarnation:
		return fmt.Errorf("%w: node %s, process %d on %s", ErrSuperseded, a.Spec.ID, n.Incarnation.PID, n.Incarnation.Host)
	}
	return nil
}

// leave withdraws the node, runs the jobs that were already dispatched, and lets running jobs finish within the drain
// time. With ErrKeepRegistration, jobs that have not started stay in the queue for the node's next process.
func (a *agent) leave(ctx context.Context, now membership) {
	cause := context.Cause(ctx)
	ctx = context.WithoutCancel(ctx)
	a.Logger.Info("node stopping", "generation", now.Generation, "running", a.gate.Running(), "drain", a.Drain)
	end := time.AfterFunc(a.Drain, func() { a.cut(errDrained) })
	defer end.Stop()
	if errors.Is(cause, ErrKeepRegistration) {
		a.Logger.Info("node registration kept")
	} else {
		a.withdraw(ctx, now.Generation, errors.Is(cause, ErrServiceLost))
		a.gate.awaitQuiet(min(a.quiet, a.Drain))
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		now.worker.Stop()
		a.retired.Wait()
	}()
	select {
	case <-stopped:
	case <-a.gate.hard.Done():
		select {
		case <-stopped:
		case <-time.After(lastPause):
			a.Logger.Warn("jobs that do not end are abandoned", "generation", now.Generation, "running", a.gate.Running())
		}
	}
	a.Logger.Info("node stopped", "generation", now.Generation)
}

func (a *agent) withdraw(ctx context.Context, generation int64, lost bool) {
	withdraw := a.API.WithdrawNode
	if lost {
		withdraw = a.API.WithdrawLostNode
	}
	ctx, cancel := context.WithTimeout(ctx, min(withdrawTime, a.Drain))
	defer cancel()
	for {
		err := withdraw(ctx, a.Spec.ID, generation)
		if err == nil || permanent(err) { // refused: the generation has already ended
			return
		}
		if !pause.For(ctx, a.backoff(err)) {
			a.Logger.Warn("withdrawal failed; the node will be declared dead", "error", err)
			return
		}
	}
}

// permanent reports whether an error is a refusal that a retry would not change.
func permanent(err error) bool {
	var p *client.Problem
	if !errors.As(err, &p) {
		return false
	}
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return p.Status < http.StatusInternalServerError
}
