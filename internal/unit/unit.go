// Package unit is the agent that runs beside a media server: a node of kind media whose jobs are conferences. Its
// registration represents the media server: when the server is lost, the unit withdraws immediately and its conferences
// are recovered elsewhere. It implements the contract in docs/units.md.
package unit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"berth"
	"berth/client"
	"berth/internal/node"
	"berth/internal/pause"
)

// Options describe one unit.
type Options struct {
	// Spec is what the unit registers with; Run sets kind and incarnation.
	Spec berth.NodeSpec
	// API is called with a token of scope node.
	API *client.Client
	// Temporal stays open until Run has returned; the caller closes it.
	Temporal temporalclient.Client
	Driver   Driver
	// WithdrawOnStop withdraws the unit when it stops, so that its conferences are recovered elsewhere immediately. Without
	// it, the unit returns before its heartbeat timeout or is declared dead.
	WithdrawOnStop bool
	// Check is the interval of probes of the media server, UnreachableAfter how long it may be unreachable; 0 is the
	// default.
	Check, UnreachableAfter time.Duration
	// FenceAfter is how long the API may accept no heartbeat before the unit ends its conferences itself; 0 is without a
	// limit. It must exceed the outages of the API that conferences are to outlast.
	FenceAfter time.Duration
	// Dedicated removes rooms that are named like a number and were not created by a unit.
	Dedicated bool
	// Changes has the numbers whose participants have changed; nil where the media server reports no changes.
	Changes <-chan string
	Logger  *slog.Logger
}

const (
	// DefaultCheck is the interval of probes of the media server.
	DefaultCheck = 300 * time.Millisecond
	// DefaultUnreachableAfter is how long a media server may be unreachable.
	DefaultUnreachableAfter = 2 * time.Second
	// drain is how long commands may continue when the unit stops.
	drain = 10 * time.Second
	// refusedPause is the pause after a refused registration of a unit that was registered before.
	refusedPause = 5 * time.Second
	// stoppedAfter is how long the media server's host must refuse connections until the server's process is treated as dead,
	// stoppedCheck the interval of probes meanwhile.
	stoppedAfter, stoppedCheck = 100 * time.Millisecond, 25 * time.Millisecond
)

// Reasons for the loss of a link.
var (
	errRestarted   = errors.New("the media server has restarted")
	errUnreachable = errors.New("the media server is unreachable")
	errFenced      = errors.New("the unit was cut off from berth and has ended its conferences")
	// errOutlived is why a server is not registered: its conferences are recovered elsewhere, and it would be asked to keep them because
	// they began earlier.
	errOutlived = errors.New("the rooms have outlived the media server's process: empty its Redis before each start of LiveKit")
)

// Run runs the unit until ctx ends. It waits while the media server, the API or Temporal is unreachable. It fails with
// node.ErrSuperseded, with a refusal of the first registration (a *client.Problem), with *Misconfigured before the media
// server's first response, or when Temporal permanently rejects the worker.
func Run(ctx context.Context, o Options) error {
	o.Spec.Kind = berth.NodeMedia
	if o.Check <= 0 {
		o.Check = DefaultCheck
	}
	if o.UnreachableAfter <= 0 {
		o.UnreachableAfter = DefaultUnreachableAfter
	}
	o.Logger = o.Logger.With("unit", o.Spec.ID)
	u := &unit{Options: o}
	u.be = node.Run
	return u.run(ctx)
}

// unit is a running unit; only the goroutine of run uses its fields.
type unit struct {
	Options
	be     func(context.Context, node.Options) error // node.Run
	joined bool                                      // it was registered at least once
	// stopped is the incarnation of the media server whose process has ended.
	stopped berth.Incarnation
}

func (u *unit) run(ctx context.Context) error {
	for {
		inc, err := u.await(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		err = u.session(ctx, inc)
		var refused *client.Problem
		switch {
		case ctx.Err() != nil:
			return err
		case err == nil:
			continue
		case !u.joined || !errors.As(err, &refused):
			return err
		}
		u.Logger.Warn("registration refused; retrying", "error", err)
		if !pause.For(ctx, refusedPause) {
			return nil
		}
	}
}

// await waits for the media server and returns its incarnation, empty if ctx ended. It fails only on permanent errors.
func (u *unit) await(ctx context.Context) (berth.Incarnation, error) {
	for logged := ""; ctx.Err() == nil; pause.For(ctx, u.Check) {
		inc, err := u.probe(ctx)
		if err == nil {
			err = u.check(ctx)
		}
		if err == nil && inc == u.stopped {
			err = errOutlived
		}
		if err == nil {
			return inc, nil
		}
		var wrong *Misconfigured
		if !u.joined && errors.As(err, &wrong) {
			return berth.Incarnation{}, err
		}
		if kind := errors.Is(err, errOutlived); logged == "" || kind && logged != err.Error() {
			u.Logger.Warn("waiting for the media server", "error", err)
			logged = err.Error()
		}
	}
	return berth.Incarnation{}, nil
}

// probe returns the incarnation of the media server. Its timeout allows for two failures within UnreachableAfter.
func (u *unit) probe(ctx context.Context) (berth.Incarnation, error) {
	ctx, cancel := context.WithTimeout(ctx, min(u.UnreachableAfter/2, time.Second))
	defer cancel()
	return u.Driver.Incarnation(ctx)
}

// check checks the media server's configuration, which stays the same for as long as its incarnation.
func (u *unit) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return u.Driver.Check(ctx)
}

// session runs the unit while the link is up: the node, the reporter, and the probes of the media server.
func (u *unit) session(ctx context.Context, inc berth.Incarnation) error {
	// Commands that are still running when the unit stops need the link.
	link, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	member, leave := context.WithCancelCause(link)
	defer cut(nil)
	defer leave(nil)
	defer context.AfterFunc(ctx, func() {
		if u.WithdrawOnStop {
			leave(context.Cause(ctx))
		} else {
			leave(node.ErrKeepRegistration)
		}
	})()
	report := newReporter(u.Spec.ID, u.Driver, inc, u.API, u.Logger)
	work := newCommands(link, u.Driver, inc, report)
	guard := &guard{commands: work, driver: u.Driver, dedicated: u.Dedicated, fenceAfter: u.FenceAfter, log: u.Logger}
	spec := u.Spec
	spec.Incarnation = inc
	var around sync.WaitGroup
	around.Go(func() { report.run(link) })
	around.Go(func() { report.follow(link, u.Changes) })
	around.Go(func() {
		if guard.run(link) {
			cut(errFenced)
		}
	})
	around.Go(func() {
		reason := u.watch(link, inc)
		if reason == nil {
			return
		}
		u.Logger.Warn("media server link lost", "reason", reason)
		if errors.Is(reason, ErrUnresponsive) {
			reason = node.ErrKeepRegistration
		} else {
			reason = fmt.Errorf("%w: %w", node.ErrServiceLost, reason)
		}
		cut(reason)
	})
	u.Logger.Info("media server link established", "host", inc.Host, "started", time.UnixMilli(inc.StartedAt))
	err := u.be(member, node.Options{
		Spec: spec, API: u.API, Temporal: u.Temporal, Work: work, MaxActivities: MaxCommands, Drain: drain, Logger: u.Logger,
		Accepted: guard.accepted,
	})
	cut(nil)
	around.Wait()
	if errors.Is(context.Cause(link), ErrStopped) {
		u.stopped = inc
	}
	u.joined = u.joined || report.generation.Load() != 0
	return err
}

// watch probes the media server until ctx ends, or returns the reason for the loss of the link. The end of a connection
// triggers a probe.
func (u *unit) watch(ctx context.Context, inc berth.Incarnation) error {
	ctx, cancel := context.WithCancel(ctx)
	closed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		for ctx.Err() == nil {
			u.Driver.Watch(ctx)
			select {
			case closed <- struct{}{}:
			default:
			}
			pause.For(ctx, u.Check)
		}
	})
	var since, stopped time.Time // start of the first of consecutive failed probes, and of those that the host refused
	for wait := u.Check; pause.ForOr(ctx, wait, closed); {
		begun := time.Now()
		now, err := u.probe(ctx)
		wait = u.Check
		if !errors.Is(err, ErrStopped) {
			stopped = time.Time{}
		}
		switch {
		case ctx.Err() != nil: // the loop ends
		case err == nil && now != inc:
			return errRestarted
		case err == nil:
			since = time.Time{}
		case errors.Is(err, ErrUnresponsive):
			return err
		case errors.Is(err, ErrStopped) && !stopped.IsZero() && time.Since(stopped) >= stoppedAfter:
			return err
		case errors.Is(err, ErrStopped):
			if wait = min(stoppedCheck, u.Check); stopped.IsZero() {
				stopped = begun
			}
			if since.IsZero() {
				since = begun
			}
		case since.IsZero(): // a single failure may be a pause of this process
			since = begun
		case time.Since(since) >= u.UnreachableAfter:
			return fmt.Errorf("%w: %w", errUnreachable, err)
		}
	}
	return nil
}
