package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"berth"
	"berth/internal/client"
)

// membership is one generation of the node and its worker.
type membership struct {
	client.Registered
	worker stopper
}

// stopper is a worker that polls. Stop returns when its jobs have ended.
type stopper interface{ Stop() }

// join registers and polls. last is what the node was before, for a first registration nothing. It tries until both
// are done, ctx ends, or trying is of no use.
func (a *agent) join(ctx context.Context, last membership) (membership, error) {
	for {
		next, err := a.tryJoin(ctx, last)
		if err == nil {
			a.answered()
			return next, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrSuperseded) || (last.Generation == 0 && final(err)) { // at the start it is the settings that are wrong
			return membership{}, err
		}
		select {
		case <-ctx.Done():
			return membership{}, ctx.Err()
		case <-time.After(a.silent("cannot register yet", err)):
		}
	}
}

func (a *agent) tryJoin(ctx context.Context, last membership) (membership, error) {
	call, cancel := context.WithTimeout(ctx, lastPause)
	defer cancel()
	// A node that registers without polling would be sent work that nobody does.
	if err := a.healthy(call); err != nil {
		return membership{}, fmt.Errorf("reach Temporal: %w", err)
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
		return membership{}, fmt.Errorf("register node %s: %w", a.Spec.ID, err)
	}
	a.follow(reg.HeartbeatIntervalMs)
	if reg.Generation == last.Generation {
		return membership{reg, last.worker}, nil
	}
	w, err := a.work(reg)
	if err != nil {
		return membership{}, fmt.Errorf("work task queue %s: %w", reg.TaskQueue, err)
	}
	a.Logger.Info("node is ready", "generation", reg.Generation, "queue", reg.TaskQueue, "pools", reg.Pools,
		"slots", a.Spec.MaxConcurrentJobs, "previous", last.Generation)
	return membership{reg, w}, nil
}

// superseded is ErrSuperseded when another process lives under the node's id since. A process of the same host that
// began earlier is refused by the registration itself; one of another host would only be superseded in its turn.
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

// leave withdraws the node, does what was sent to it already, and lets running jobs finish within the drain time. A node
// that keeps its registration leaves what it has not begun to whoever works the queue next.
func (a *agent) leave(ctx context.Context, now membership) {
	stays := errors.Is(context.Cause(ctx), ErrKeepRegistration)
	ctx = context.WithoutCancel(ctx)
	a.Logger.Info("node is leaving", "generation", now.Generation, "running", a.gate.Running(), "drain", a.Drain)
	end := time.AfterFunc(a.Drain, func() { a.cut(errDrained) })
	defer end.Stop()
	if stays {
		a.Logger.Info("node keeps its registration")
	} else {
		a.withdraw(ctx, now.Generation)
		a.gate.awaitQuiet(min(a.quiet, a.Drain))
	}
	now.worker.Stop()
	a.retired.Wait()
	a.Logger.Info("node has left", "generation", now.Generation)
}

func (a *agent) withdraw(ctx context.Context, generation int64) {
	ctx, cancel := context.WithTimeout(ctx, min(withdrawTime, a.Drain))
	defer cancel()
	for {
		err := a.API.WithdrawNode(ctx, a.Spec.ID, generation)
		if err == nil || final(err) { // refused: the generation is over already
			return
		}
		select {
		case <-ctx.Done():
			a.Logger.Warn("could not withdraw: the node will be missed", "error", err)
			return
		case <-time.After(a.backoff(err)):
		}
	}
}

// final tells a refusal that asking again would not change.
func final(err error) bool {
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
