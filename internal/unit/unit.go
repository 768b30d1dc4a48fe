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
	"berth/internal/client"
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
	Logger                  *slog.Logger
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
)

// Reasons for the loss of a link.
var (
	errRestarted   = errors.New("the media server has restarted")
	errUnreachable = errors.New("the media server is unreachable")
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
	for logged := false; ctx.Err() == nil; pause.For(ctx, u.Check) {
		inc, err := u.probe(ctx)
		if err == nil {
			return inc, nil
		}
		var wrong *Misconfigured
		if !u.joined && errors.As(err, &wrong) {
			return berth.Incarnation{}, err
		}
		if !logged {
			u.Logger.Warn("waiting for the media server", "error", err)
			logged = true
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
	spec := u.Spec
	spec.Incarnation = inc
	var around sync.WaitGroup
	around.Go(func() { report.run(link) })
	around.Go(func() {
		reason := u.watch(link, inc)
		if reason == nil {
			return
		}
		u.Logger.Warn("media server link lost", "reason", reason)
		if errors.Is(reason, ErrUnresponsive) {
			reason = node.ErrKeepRegistration
		}
		cut(reason)
	})
	u.Logger.Info("media server link established", "host", inc.Host, "started", time.UnixMilli(inc.StartedAt))
	err := u.be(member, node.Options{
		Spec: spec, API: u.API, Temporal: u.Temporal, Work: newCommands(link, u.Driver, inc, report), MaxActivities: MaxCommands,
		Drain: drain, Logger: u.Logger,
	})
	cut(nil)
	around.Wait()
	u.joined = u.joined || report.generation.Load() != 0
	return err
}

// watch probes the media server until ctx ends, or returns the reason for the loss of the link.
func (u *unit) watch(ctx context.Context, inc berth.Incarnation) error {
	var since time.Time // start of the first of consecutive failed probes
	for pause.For(ctx, u.Check) {
		begun := time.Now()
		now, err := u.probe(ctx)
		switch {
		case ctx.Err() != nil: // the loop ends
		case err == nil && now != inc:
			return errRestarted
		case err == nil:
			since = time.Time{}
		case errors.Is(err, ErrUnresponsive):
			return err
		case since.IsZero(): // a single failure may be a pause of this process
			since = begun
		case time.Since(since) >= u.UnreachableAfter:
			return fmt.Errorf("%w: %w", errUnreachable, err)
		}
	}
	return nil
}
