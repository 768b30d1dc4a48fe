// Package unit is what runs beside a media server: a node of kind media whose work are conferences (C1-C23). It keeps a
// link for the media server, not for itself: when the server is lost the unit withdraws at once, and what it ran is
// recovered elsewhere. The contract it keeps is docs/units.md.
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
)

// Options describe one unit.
type Options struct {
	// Spec is what the unit says of itself; kind and incarnation are filled in.
	Spec berth.NodeSpec
	// API is called with a token of scope node.
	API *client.Client
	// Temporal stays open until Run has returned; the caller closes it.
	Temporal temporalclient.Client
	Driver   Driver
	// WithdrawOnStop has the unit withdraw when it stops, so that its conferences are recovered elsewhere at once. Without, it is
	// back before it is missed, or it is missed.
	WithdrawOnStop bool
	// Check is the time between two looks at the media server, UnreachableAfter how long it may be unreachable; 0 are the
	// defaults.
	Check, UnreachableAfter time.Duration
	Logger                  *slog.Logger
}

const (
	// DefaultCheck is the time between two looks at the media server.
	DefaultCheck = 300 * time.Millisecond
	// DefaultUnreachableAfter is how long a media server may be unreachable.
	DefaultUnreachableAfter = 2 * time.Second
	// drain is how long commands may go on when the unit stops.
	drain = 10 * time.Second
	// refusedPause is waited when a unit that was registered before may not register.
	refusedPause = 5 * time.Second
)

// Why a link is down.
var (
	errRestarted   = errors.New("the media server was started anew")
	errUnreachable = errors.New("the media server is unreachable")
)

// Run is the unit until ctx ends. A media server, an API or a Temporal that is away is waited for. It fails with
// node.ErrSuperseded, with a refusal of the first registration (a *client.Problem), with *Misconfigured before the media
// server has ever answered, or when Temporal refuses the worker for good.
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

// unit is a running unit; its fields belong to the goroutine of run.
type unit struct {
	Options
	be     func(context.Context, node.Options) error // node.Run
	joined bool                                      // it was registered once
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
		u.Logger.Warn("may not register now: trying again", "error", err)
		if !wait(ctx, refusedPause) {
			return nil
		}
	}
}

// await is the incarnation of the media server once it answers, or nothing once ctx has ended. It fails only when waiting
// is of no use.
func (u *unit) await(ctx context.Context) (berth.Incarnation, error) {
	for said := false; ctx.Err() == nil; wait(ctx, u.Check) {
		inc, err := u.probe(ctx)
		if err == nil {
			return inc, nil
		}
		var wrong *Misconfigured
		if !u.joined && errors.As(err, &wrong) {
			return berth.Incarnation{}, err
		}
		if !said {
			u.Logger.Warn("waiting for the media server", "error", err)
			said = true
		}
	}
	return berth.Incarnation{}, nil
}

// probe asks which run of the media server answers. Two have to fail within the time of silence.
func (u *unit) probe(ctx context.Context) (berth.Incarnation, error) {
	ctx, cancel := context.WithTimeout(ctx, min(u.UnreachableAfter/2, time.Second))
	defer cancel()
	return u.Driver.Incarnation(ctx)
}

// session is the time that the link is up: the unit as a node, the reporter, and the eye on the media server.
func (u *unit) session(ctx context.Context, inc berth.Incarnation) error {
	// The link is there for commands that are still running when the unit stops.
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
		why := u.watch(link, inc)
		if why == nil {
			return
		}
		u.Logger.Warn("the link is down", "because", why)
		if errors.Is(why, ErrUnresponsive) {
			why = node.ErrKeepRegistration
		}
		cut(why)
	})
	u.Logger.Info("the media server answers", "host", inc.Host, "started", time.UnixMilli(inc.StartedAt))
	err := u.be(member, node.Options{
		Spec: spec, API: u.API, Temporal: u.Temporal, Work: newCommands(link, u.Driver, inc, report), MaxActivities: MaxCommands,
		Drain: drain, Logger: u.Logger,
	})
	cut(nil)
	around.Wait()
	u.joined = u.joined || report.generation.Load() != 0
	return err
}

// watch looks at the media server until ctx ends, or answers why the link is down.
func (u *unit) watch(ctx context.Context, inc berth.Incarnation) error {
	var since time.Time // of the first look in a row that failed
	for wait(ctx, u.Check) {
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
		case since.IsZero(): // one that failed may be our own standstill
			since = begun
		case time.Since(since) >= u.UnreachableAfter:
			return fmt.Errorf("%w: %w", errUnreachable, err)
		}
	}
	return nil
}

// wait is false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
