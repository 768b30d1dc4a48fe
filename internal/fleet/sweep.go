package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/health"
	"berth/internal/metrics"
	"berth/lua"
)

// SweeperOptions are the settings and callbacks of a Sweeper. Zero values take the defaults named; a nil callback is skipped.
type SweeperOptions struct {
	Every  time.Duration // between two sweeps; 1 s
	Switch time.Duration // between two checks of the dynamic pools; 5 s
	Limits lua.SweepLimits
	// OnNotice handles an event of a generation. Every notice is delivered until one process has returned nil for it, perhaps
	// repeatedly and to several processes at the same time.
	OnNotice func(ctx context.Context, n berth.NodeNotice) error
	// Restore writes the operators' settings to a Redis that may have lost them, or missed changes while it was unavailable. It
	// is called at the start, in each grace before OnGrace, and after Redis was unavailable; it is retried until it succeeds.
	// After a grace this process declares no node dead before that, because Redis may lack the operator's times.
	Restore func(ctx context.Context) error
	// OnGrace is called for each grace with its end by Redis's clock, and retried until it succeeds; also for one that ended
	// shortly before this process started, because perhaps no process was running.
	OnGrace func(ctx context.Context, until time.Time) error
	// Confirm checks by other means whether the nodes of a kind are lost, when more than half of them miss heartbeats at the same
	// time. It is called repeatedly while the sweep holds the loss back; after true, those nodes are declared dead.
	Confirm func(ctx context.Context, kind berth.NodeKind) (bool, error)
	// OnCapacity receives the ids of media units that may have a free slot again, for the conferences that wait for one. It is
	// called in every process.
	OnCapacity func(ctx context.Context, unitIDs []string) error
	Logger     *slog.Logger
}

// Sweeper detects nodes that missed heartbeats, switches dynamic strategies, and delivers the events of the fleet to the
// callbacks. Every worker process runs one; scripts coordinate them. Run is called once.
type Sweeper struct {
	fleet *Fleet
	opt   SweeperOptions
	// graces has the latest grace that the sweep found, for deliver.
	graces chan grace
	// filled wakes deliver: the outbox has notices.
	filled chan struct{}
	// capacity has ids of units with a free slot, for deliverCapacity; empty for all units.
	capacity chan string
	// doubts has the kinds whose loss is to be confirmed, confirmed those whose loss was.
	doubts    chan []berth.NodeKind
	confirmed chan []berth.NodeKind
	// sweeps counts the successful sweeps. A failure elsewhere while it does not grow means that Redis is unavailable.
	sweeps atomic.Int64
	// restored is the end of the last grace for which the settings were restored, in Unix ms.
	restored atomic.Int64
}

const (
	// sweepTimeout limits one sweep, callbackTimeout one callback.
	sweepTimeout    = 2 * time.Second
	callbackTimeout = 5 * time.Second
	// graceMemory is how long after a grace a process that did not see it still handles it.
	graceMemory = time.Hour
	// confirmedFor is how long a confirmed loss is valid: one sweep declares a limited number of nodes dead.
	confirmedFor = 10 * time.Second
	// maxLoggedNodes is the number of nodes that one log line lists.
	maxLoggedNodes = 20
)

// NewSweeper returns a Sweeper for the fleet that f follows.
func NewSweeper(f *Fleet, opt SweeperOptions) *Sweeper {
	opt.Every = cmp.Or(opt.Every, time.Second)
	opt.Switch = cmp.Or(opt.Switch, 5*time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	return &Sweeper{
		fleet: f, opt: opt, graces: make(chan grace, 1), filled: make(chan struct{}, 1), capacity: make(chan string, maxCapacityEvents),
		doubts: make(chan []berth.NodeKind), confirmed: make(chan []berth.NodeKind, 1),
	}
}

// Run sweeps until ctx ends, and returns nil then. It starts after the first reading of the fleet, so that the first sweep uses
// the operator's times. Callbacks run in other goroutines: a slow one does not delay the sweep.
func (s *Sweeper) Run(ctx context.Context) error {
	select {
	case <-s.fleet.Ready():
	case <-ctx.Done():
		return nil
	}
	BeginLost(berth.DepartureUnresponsive)
	var others sync.WaitGroup
	others.Go(func() { s.deliver(ctx) })
	others.Go(func() { s.confirmLosses(ctx) })
	others.Go(func() { s.listen(ctx) })
	others.Go(func() { s.deliverCapacity(ctx) })
	s.sweepRepeatedly(ctx)
	others.Wait()
	return nil
}

// sweepState is the state that the sweeping goroutine keeps between sweeps.
type sweepState struct {
	grace    time.Time // end of the last grace
	failed   bool      // the previous sweep failed
	held     string    // the kinds whose losses were held back
	switched time.Time // when the dynamic pools were checked, by this process's clock
	// confirmed are the kinds whose loss was confirmed, with the end of its validity by this process's clock.
	confirmed map[berth.NodeKind]time.Time
}

func (s *Sweeper) sweepRepeatedly(ctx context.Context) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	outages := outage{logger: s.opt.Logger, task: "sweep", of: health.Redis, after: 1}
	var state sweepState
	for {
		sweepCtx, cancel := context.WithTimeout(ctx, sweepTimeout)
		err := s.sweepOnce(sweepCtx, &state)
		cancel()
		state.failed = err != nil
		s.countSweep(ctx, err)
		outages.note(ctx, err)
		if err == nil {
			s.sweeps.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Sweeper) countSweep(ctx context.Context, err error) {
	outcome := metrics.OK
	if err != nil {
		outcome = "failed"
	}
	metrics.Sweeps.Add(ctx, 1, metrics.With(metrics.Outcome.String(outcome)))
}

// sweepOnce checks whether Redis has lost data, sweeps the nodes, and checks the dynamic pools when that is due.
func (s *Sweeper) sweepOnce(ctx context.Context, state *sweepState) error {
	g, err := s.fleet.scripts.CheckGuard(ctx)
	if err != nil {
		return err
	}
	if !g.Until.Equal(state.grace) || state.failed || s.sweeps.Load() == 0 {
		state.grace = g.Until
		s.reportGrace(grace{until: g.Until, ended: g.Left <= 0, recent: g.Left > -graceMemory && !g.Until.IsZero()})
	}
	if s.opt.Restore == nil || s.restored.Load() == g.Until.UnixMilli() {
		if err := s.sweepNodes(ctx, state); err != nil {
			return err
		}
	}
	if time.Since(state.switched) < s.opt.Switch {
		return nil
	}
	state.switched = time.Now()
	return s.switchStrategies(ctx)
}

func (s *Sweeper) sweepNodes(ctx context.Context, state *sweepState) error {
	select {
	case kinds := <-s.confirmed:
		state.confirmed = map[berth.NodeKind]time.Time{}
		for _, kind := range kinds {
			state.confirmed[kind] = time.Now().Add(confirmedFor)
		}
	default:
	}
	config := s.fleet.Snapshot().Config
	var rules []lua.SweepRule
	for _, kind := range berth.NodeKinds() {
		rules = append(rules, lua.SweepRule{Kind: kind, Times: config.TimesOf(kind), Confirmed: time.Now().Before(state.confirmed[kind])})
	}
	found, err := s.fleet.scripts.SweepNodes(ctx, s.opt.Limits, rules...)
	if err != nil {
		return err
	}
	if n := len(found.Suspects); n > 0 {
		s.opt.Logger.WarnContext(ctx, "nodes missed heartbeats", "count", n, "nodes", found.Suspects[:min(n, maxLoggedNodes)])
	}
	if n := len(found.Deaths); n > 0 {
		s.opt.Logger.WarnContext(ctx, "nodes declared dead", "count", n, "nodes", found.Deaths[:min(n, maxLoggedNodes)])
		nodes := s.fleet.Snapshot().Nodes
		for _, dead := range found.Deaths {
			CountLost(ctx, nodes[dead.NodeID].Kind, berth.DepartureUnresponsive)
		}
	}
	if s.opt.Confirm != nil && len(found.Held) > 0 {
		select {
		case s.doubts <- found.Held:
		default: // a confirmation is running
		}
	}
	held := ""
	for _, kind := range found.Held {
		held += " " + string(kind)
	}
	switch held {
	case state.held:
	case "":
		s.opt.Logger.InfoContext(ctx, "mass loss of nodes is no longer held back")
	default:
		s.opt.Logger.WarnContext(ctx, "mass loss of nodes held back until confirmed: more than half of them missed heartbeats", "kinds", held[1:])
	}
	state.held = held
	return nil
}

// confirmLosses calls Confirm, which may take seconds, outside of the goroutines that sweep and deliver.
func (s *Sweeper) confirmLosses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case kinds := <-s.doubts:
			var lost []berth.NodeKind
			for _, kind := range kinds {
				confirmCtx, cancel := context.WithTimeout(ctx, callbackTimeout)
				confirmed, err := s.opt.Confirm(confirmCtx, kind)
				cancel()
				if err != nil && ctx.Err() == nil {
					s.opt.Logger.WarnContext(ctx, "confirmation of a mass loss failed", "kind", kind, "error", err)
				}
				if err == nil && confirmed {
					s.opt.Logger.WarnContext(ctx, "mass loss of nodes confirmed", "kind", kind)
					lost = append(lost, kind)
				}
			}
			select {
			case s.confirmed <- lost:
			case <-ctx.Done():
				return
			}
		}
	}
}

// switchStrategies lets the script switch the dynamic pools. It skips a stale snapshot, whose load is not current.
func (s *Sweeper) switchStrategies(ctx context.Context) error {
	snapshot := s.fleet.Snapshot()
	if snapshot.Stale {
		return nil
	}
	pools := snapshot.DynamicPools()
	states := snapshot.States(pools...)
	for _, pool := range pools {
		current, previous, err := s.fleet.scripts.SwitchStrategy(ctx, pool, states[pool], snapshot.Config.Dynamic)
		if err != nil {
			return err
		}
		if current.Strategy != previous {
			s.opt.Logger.InfoContext(ctx, "pool switched its strategy", "pool", pool, "from", previous, "to", current.Strategy,
				"load", states[pool].Load, "latencyMs", states[pool].LatencyMs)
		}
	}
	return nil
}

// outage logs once that a task fails, after a number of failures in a row, and once that it succeeds again.
type outage struct {
	logger   *slog.Logger
	task     string
	of       string // the dependency that it needs, if that is only one
	after    int
	failures int
}

func (o *outage) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if o.failures++; o.failures == o.after {
			o.logger.WarnContext(ctx, "fleet maintenance failed", append(o.labels(), "error", err)...)
		}
	default:
		if o.failures >= o.after {
			o.logger.InfoContext(ctx, "fleet maintenance works again", o.labels()...)
		}
		o.failures = 0
	}
}

func (o *outage) labels() []any {
	if o.of == "" {
		return []any{"task", o.task}
	}
	return []any{"task", o.task, "dependency", o.of}
}
