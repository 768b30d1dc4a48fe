package health

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/pause"
)

// The dependencies of a process, by their names in reports and logs.
const (
	Redis    = "redis"
	Database = "database"
	Temporal = "temporal"
	Identity = "identity" // the OpenID Connect provider of an API, if there is one
)

const (
	// gateInterval is the time between two checks of a gate, gateTimeout limits one of them.
	gateInterval = 400 * time.Millisecond
	gateTimeout  = time.Second
	// staleAfter is how long after the last successful check a dependency is treated as unavailable. One slow
	// reply is not enough, and together with the start or stop of the work it is less than two seconds.
	staleAfter = 1600 * time.Millisecond
)

// Gate reports to work that needs dependencies when these are available. It reacts faster than a Probe, whose reports are for
// operators.
type Gate struct {
	deps map[string]*gated
}

type gated struct {
	check  Check
	period atomic.Pointer[period]
	failed atomic.Pointer[error] // of the last check that failed
}

// period is a time in which a dependency is available, or is not.
type period struct {
	available bool
	since     time.Time // zero: since before the gate was started
	over      chan struct{}
}

// UnavailableError is the cause of the end of a context that Await returned.
type UnavailableError struct {
	Dependency string
	Err        error // of the last check that failed; nil if the checks hang
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("%s is unavailable", e.Dependency) }

// NewGate returns a gate for dependencies, which are unavailable until Run has checked them.
func NewGate(checks map[string]Check) *Gate {
	g := &Gate{deps: map[string]*gated{}}
	for name, check := range checks {
		g.deps[name] = &gated{check: check}
		g.deps[name].period.Store(&period{over: make(chan struct{})})
	}
	return g
}

// Run checks the dependencies until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, d := range g.deps {
		running.Go(func() { d.run(ctx) })
	}
	running.Wait()
}

// Await waits until all the named dependencies are available. The context that it returns ends as soon as one of them is not
// any more, with an *UnavailableError as its cause, or with ctx; stop releases it. The only error is that of ctx.
func (g *Gate) Await(ctx context.Context, names ...string) (available context.Context, stop context.CancelFunc, err error) {
	for missing := g.missing(names); missing != nil; missing = g.missing(names) {
		select {
		case <-missing.over:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	available, stop = g.during(ctx, names)
	return available, stop, nil
}

// AvailableFor returns for how long a dependency has been available without interruption: 0 while it is not, and the longest time where no
// interruption is known.
func (g *Gate) AvailableFor(name string) time.Duration {
	switch p := g.deps[name].period.Load(); {
	case !p.available:
		return 0
	case p.since.IsZero():
		return math.MaxInt64
	default:
		return time.Since(p.since)
	}
}

// Missing returns those of the named dependencies that are unavailable now.
func (g *Gate) Missing(names ...string) (missing []string) {
	for _, name := range names {
		if !g.deps[name].period.Load().available {
			missing = append(missing, name)
		}
	}
	return missing
}

func (g *Gate) missing(names []string) *period {
	for _, name := range names {
		if p := g.deps[name].period.Load(); !p.available {
			return p
		}
	}
	return nil
}

// during returns a context that ends when one of the dependencies becomes unavailable. One that has become so meanwhile ends
// it immediately.
func (g *Gate) during(ctx context.Context, names []string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, name := range names {
		p := g.deps[name].period.Load()
		if !p.available {
			cancel(g.unavailable(name))
			break
		}
		go func() {
			select {
			case <-p.over:
				cancel(g.unavailable(name))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

func (g *Gate) unavailable(name string) error {
	u := &UnavailableError{Dependency: name}
	if err := g.deps[name].failed.Load(); err != nil {
		u.Err = *err
	}
	return u
}

// run checks one dependency until ctx ends. A check that hangs does not delay the end of the period.
func (d *gated) run(ctx context.Context) {
	succeeded := make(chan struct{})
	var checking sync.WaitGroup
	checking.Go(func() {
		for {
			if err := d.checkOnce(ctx); err != nil {
				d.failed.Store(&err)
			} else {
				select {
				case succeeded <- struct{}{}:
				case <-ctx.Done():
				}
			}
			if !pause.For(ctx, gateInterval) {
				return
			}
		}
	})
	defer checking.Wait()
	stale, interrupted := time.NewTimer(staleAfter), false
	defer stale.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-succeeded:
			stale.Reset(staleAfter)
			since := time.Time{}
			if interrupted {
				since = time.Now()
			}
			d.set(true, since)
		case <-stale.C:
			interrupted = true
			d.set(false, time.Now())
		}
	}
}

func (d *gated) checkOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	return d.check(ctx)
}

func (d *gated) set(available bool, since time.Time) {
	if before := d.period.Load(); before.available != available {
		d.period.Store(&period{available: available, since: since, over: make(chan struct{})})
		close(before.over)
	}
}
