package fleet

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"berth"
	"berth/lua"
)

// SweeperOptions say how often a Sweeper looks, and who hears of what it found. The zero values are replaced by the
// defaults; a nil callback is not called.
type SweeperOptions struct {
	Every  time.Duration // between two sweeps; 1 s
	Switch time.Duration // between two looks at the dynamic pools; 5 s
	Limits lua.SweepLimits
	// OnNotice takes up what befell a generation. It may come again and to several processes at once, until one of them
	// has answered nil.
	OnNotice func(ctx context.Context, n berth.NodeNotice) error
	// Restore writes the operator's configuration into a Redis that may have lost it, or lacks what was set while it was
	// away. It is called at the start, for each grace before OnGrace, and when Redis is back, each time until it succeeds.
	// After a grace nobody is declared dead by this process before that, for the times may not be the operator's.
	Restore func(ctx context.Context) error
	// OnGrace is told of each grace, by its end on Redis's clock, until it has answered nil; also of one that ended not
	// long before this process began, when perhaps no process was there.
	OnGrace func(ctx context.Context, until time.Time) error
	// Confirm asks by a second way whether a kind's nodes, more than half of them silent at once, are lost, or whether it is us
	// who do not hear them (C21). It is asked again and again while the loss is held back. Confirmed, the silent nodes are dead.
	Confirm func(ctx context.Context, kind berth.NodeKind) (bool, error)
	// OnCapacity is told of media units that may have room again, whatever gave it to them: lost units' conferences may wait for
	// it (C2). Every process is told.
	OnCapacity func(ctx context.Context, unitIDs []string) error
	Logger     *slog.Logger
}

// Sweeper is one process's part in looking after the fleet; every worker process has one, and they need not know of each
// other: scripts decide. Run is called once.
type Sweeper struct {
	fleet *Fleet
	opt   SweeperOptions
	// grace is from the sweeping goroutine to the one that tells: the latest counts.
	grace chan grace
	// filled wakes the one that tells: there is something in the outbox.
	filled chan struct{}
	// roomy are from the listening goroutine to the one that tells of room: a unit's id, empty for all units.
	roomy chan string
	// doubts are from the sweeping goroutine to the one that asks, confirmed are its answers.
	doubts    chan []berth.NodeKind
	confirmed chan []berth.NodeKind
	// looks counts those that succeeded: what fails while it stands still is Redis being away.
	looks atomic.Int64
	// restored is the end of the last grace after which the configuration was restored, in Unix ms.
	restored atomic.Int64
}

// grace is one that is to be acted on.
type grace struct {
	until  time.Time
	over   bool
	recent bool // so that it is to be told
}

const (
	// sweepTimeout bounds what one look may take, callbackTimeout what one callback may.
	sweepTimeout    = 2 * time.Second
	callbackTimeout = 5 * time.Second
	// memory is how long after a grace a process that did not see it still acts on it.
	memory = time.Hour
	// noticesAtOnce are handed over side by side, noticePage taken at once.
	noticesAtOnce = 16
	noticePage    = 200
	// confirmedFor is how long a confirmed loss counts: a sweep declares only so many nodes dead at once.
	confirmedFor = 10 * time.Second
	// namesInLog is how many nodes one line of the log names.
	namesInLog = 20
)

// NewSweeper makes a Sweeper for the fleet that f follows.
func NewSweeper(f *Fleet, opt SweeperOptions) *Sweeper {
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	if opt.Switch == 0 {
		opt.Switch = 5 * time.Second
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{
		fleet: f, opt: opt, grace: make(chan grace, 1), filled: make(chan struct{}, 1), roomy: make(chan string, roomyMost),
		doubts: make(chan []berth.NodeKind), confirmed: make(chan []berth.NodeKind, 1),
	}
}

// Run sweeps until ctx ends, and returns nil then. It begins when the fleet has been read, so that the operator's times
// count from the first sweep on. Callbacks run in a goroutine of their own: a slow one must not blind the sweep.
func (s *Sweeper) Run(ctx context.Context) error {
	select {
	case <-s.fleet.Ready():
	case <-ctx.Done():
		return nil
	}
	var others sync.WaitGroup
	others.Go(func() { s.tell(ctx) })
	others.Go(func() { s.ask(ctx) })
	others.Go(func() { s.listen(ctx) })
	others.Go(func() { s.tellOfRoom(ctx) })
	s.look(ctx)
	others.Wait()
	return nil
}

// look is the sweeping goroutine.
func (s *Sweeper) look(ctx context.Context) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	away := outage{logger: s.opt.Logger, part: "sweep", after: 1}
	var last seen
	for {
		looking, cancel := context.WithTimeout(ctx, sweepTimeout)
		err := s.once(looking, &last)
		cancel()
		last.failed = err != nil
		away.note(ctx, err)
		if err == nil {
			s.looks.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// seen is what the sweeping goroutine remembers from one look to the next.
type seen struct {
	grace    time.Time // the last one
	failed   bool      // the look before this one failed
	held     string    // the kinds whose losses were held back
	switched time.Time // when it looked at the dynamic pools, by this process's clock
	// sure are kinds whose loss was confirmed, until when by this process's clock.
	sure map[berth.NodeKind]time.Time
}

// once is one look: first whether Redis can be trusted, then who is silent, then how the dynamic pools do.
func (s *Sweeper) once(ctx context.Context, last *seen) error {
	g, err := s.fleet.scripts.CheckGuard(ctx)
	if err != nil {
		return err
	}
	if !g.Until.Equal(last.grace) || last.failed || s.looks.Load() == 0 {
		last.grace = g.Until
		s.pass(grace{until: g.Until, over: g.Left <= 0, recent: g.Left > -memory && !g.Until.IsZero()})
	}
	if s.opt.Restore == nil || s.restored.Load() == g.Until.UnixMilli() {
		if err := s.sweep(ctx, last); err != nil {
			return err
		}
	}
	if time.Since(last.switched) < s.opt.Switch {
		return nil
	}
	last.switched = time.Now()
	return s.strategies(ctx)
}

// pass gives the telling goroutine the latest grace.
func (s *Sweeper) pass(g grace) {
	select {
	case <-s.grace: // an older one that was not taken up yet
	default:
	}
	s.grace <- g
}

func (s *Sweeper) sweep(ctx context.Context, last *seen) error {
	select {
	case kinds := <-s.confirmed:
		last.sure = map[berth.NodeKind]time.Time{}
		for _, kind := range kinds {
			last.sure[kind] = time.Now().Add(confirmedFor)
		}
	default:
	}
	config := s.fleet.Snapshot().Config
	var rules []lua.SweepRule
	for _, kind := range berth.NodeKinds() {
		rules = append(rules, lua.SweepRule{Kind: kind, Times: config.TimesOf(kind), Confirmed: time.Now().Before(last.sure[kind])})
	}
	found, err := s.fleet.scripts.SweepNodes(ctx, s.opt.Limits, rules...)
	if err != nil {
		return err
	}
	if n := len(found.Suspects); n > 0 {
		s.opt.Logger.WarnContext(ctx, "nodes are silent", "count", n, "nodes", found.Suspects[:min(n, namesInLog)])
	}
	if n := len(found.Deaths); n > 0 {
		s.opt.Logger.WarnContext(ctx, "nodes were declared dead", "count", n, "nodes", found.Deaths[:min(n, namesInLog)])
	}
	if s.opt.Confirm != nil && len(found.Held) > 0 {
		select {
		case s.doubts <- found.Held:
		default: // it is asking already
		}
	}
	held := ""
	for _, kind := range found.Held {
		held += " " + string(kind)
	}
	switch held {
	case last.held:
	case "":
		s.opt.Logger.InfoContext(ctx, "losses of nodes are no longer held back")
	default:
		s.opt.Logger.WarnContext(ctx, "more than half of the nodes are silent at once: held back until it is confirmed", "kinds", held[1:])
	}
	last.held = held
	return nil
}

// ask is the goroutine that has mass losses confirmed: that may take seconds, and must neither blind the sweep nor keep back
// what is told.
func (s *Sweeper) ask(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case kinds := <-s.doubts:
			var lost []berth.NodeKind
			for _, kind := range kinds {
				asking, cancel := context.WithTimeout(ctx, callbackTimeout)
				is, err := s.opt.Confirm(asking, kind)
				cancel()
				if err != nil && ctx.Err() == nil {
					s.opt.Logger.WarnContext(ctx, "a loss of nodes cannot be confirmed", "kind", kind, "error", err)
				}
				if err == nil && is {
					s.opt.Logger.WarnContext(ctx, "the loss of nodes is confirmed", "kind", kind)
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

// strategies has the dynamic pools' strategies decided (S7). A stale copy tells nothing of the load now.
func (s *Sweeper) strategies(ctx context.Context) error {
	now := s.fleet.Snapshot()
	if now.Stale {
		return nil
	}
	pools := now.DynamicPools()
	states := now.States(pools...)
	for _, pool := range pools {
		is, before, err := s.fleet.scripts.SwitchStrategy(ctx, pool, states[pool], now.Config.Dynamic)
		if err != nil {
			return err
		}
		if is.Strategy != before {
			s.opt.Logger.InfoContext(ctx, "pool switched its strategy", "pool", pool, "from", before, "to", is.Strategy,
				"load", states[pool].Load, "latencyMs", states[pool].LatencyMs)
		}
	}
	return nil
}

// tell is the goroutine of the callbacks.
func (s *Sweeper) tell(ctx context.Context) {
	tick := time.NewTicker(s.opt.Every)
	defer tick.Stop()
	graces := outage{logger: s.opt.Logger, part: "recovery after a grace", after: 1}
	// That Redis is away is told by the sweep: here only what fails again while sweeps succeed.
	outbox := outage{logger: s.opt.Logger, part: "outbox", after: 3}
	failedAt := int64(-1)
	var due *grace
	var told time.Time
	for {
		if due != nil {
			err := s.recover(ctx, *due, &told)
			graces.note(ctx, err)
			if err == nil {
				due = nil
			}
		}
		if s.looks.Load() != failedAt {
			err := s.handOver(ctx)
			outbox.note(ctx, err)
			if failedAt = -1; err != nil {
				failedAt = s.looks.Load()
			}
		}
		select {
		case g := <-s.grace:
			due = &g
			if !g.over && !g.until.Equal(told) {
				s.opt.Logger.WarnContext(ctx, "Redis is new or may have lost data: nothing is assigned for a time", "until", g.until)
			}
		case <-tick.C:
		case <-s.filled:
		case <-ctx.Done():
			return
		}
	}
}

// recover has everything put back that Redis may have lost: the configuration first, for nodes register by it. told is
// the last grace that OnGrace knows.
func (s *Sweeper) recover(ctx context.Context, g grace, told *time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	if s.opt.Restore != nil {
		if err := s.opt.Restore(ctx); err != nil {
			return err
		}
		s.restored.Store(g.until.UnixMilli())
	}
	if g.recent && !g.until.Equal(*told) {
		if s.opt.OnGrace != nil {
			if err := s.opt.OnGrace(ctx, g.until); err != nil {
				return err
			}
		}
		*told = g.until
	}
	return nil
}

// handOver has every notice of the outbox taken up. One that was not stays there, and comes again to whoever looks then.
func (s *Sweeper) handOver(ctx context.Context) error {
	var receipts []string
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, sweepTimeout)
		notices, _, err := s.fleet.scripts.TakeOutbox(asking, noticePage, 2*s.opt.Every, receipts...)
		cancel()
		if err != nil {
			return err
		}
		receipts = nil
		for i, err := range s.takeUp(ctx, notices) {
			if err == nil {
				receipts = append(receipts, notices[i].Receipt)
				continue
			}
			s.opt.Logger.WarnContext(ctx, "notice was not taken up", "node", notices[i].NodeID, "generation", notices[i].Generation,
				"reason", notices[i].Reason, "error", err)
		}
		if len(receipts) == 0 { // there were none, or who takes them up is away
			return nil
		}
	}
	return ctx.Err()
}

// takeUp hands notices to OnNotice, some at once, and answers what became of each.
func (s *Sweeper) takeUp(ctx context.Context, notices []berth.NodeNotice) []error {
	out := make([]error, len(notices))
	var g errgroup.Group
	g.SetLimit(noticesAtOnce)
	for i, n := range notices {
		g.Go(func() error {
			s.opt.Logger.InfoContext(ctx, "notice of a node", "node", n.NodeID, "generation", n.Generation, "kind", n.Kind,
				"reason", n.Reason, "at", n.At)
			if s.opt.OnNotice != nil {
				calling, cancel := context.WithTimeout(ctx, callbackTimeout)
				defer cancel()
				out[i] = s.opt.OnNotice(calling, n)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in out
	return out
}

// outage tells once that something fails, after so many failures in a row, and once that it works again.
type outage struct {
	logger *slog.Logger
	part   string
	after  int
	row    int
}

func (o *outage) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if o.row++; o.row == o.after {
			o.logger.WarnContext(ctx, "the fleet cannot be looked after", "part", o.part, "error", err)
		}
	default:
		if o.row >= o.after {
			o.logger.InfoContext(ctx, "the fleet is looked after again", "part", o.part)
		}
		o.row = 0
	}
}
