package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"berth"
	"berth/internal/health"
	"berth/internal/metrics"
	"berth/internal/pause"
	"berth/internal/redisconn"
	"berth/lua"
)

// Options are the settings of a Fleet. Zero values take the defaults named.
type Options struct {
	Settle time.Duration // changes within this time are read together; 250 ms
	Tick   time.Duration // see redisconn.ListenerOptions; 500 ms
	Reload time.Duration // interval at which everything is read again, in case a message was lost; 1 min per 1,000 nodes
	Sample time.Duration // interval at which the loads are read; 1 s per 1,000 nodes
	Logger *slog.Logger
}

// Fleet keeps a Snapshot up to date. It is safe for concurrent use; Run is called once.
type Fleet struct {
	scripts  *lua.Scripts
	opt      Options
	snapshot atomic.Pointer[Snapshot]
	ready    chan struct{}
	changes  *redisconn.Listener
	replies  chan reply   // from the reader to the updater
	catchUps chan catchUp // from callers of CatchUp to the updater
	requests chan request // from the updater to the reader
}

// New returns a Fleet whose first snapshot is empty and stale.
func New(scripts *lua.Scripts, opt Options) *Fleet {
	opt.Settle = cmp.Or(opt.Settle, 250*time.Millisecond)
	opt.Tick = cmp.Or(opt.Tick, 500*time.Millisecond)
	opt.Reload = cmp.Or(opt.Reload, time.Minute)
	opt.Sample = cmp.Or(opt.Sample, time.Second)
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	k := scripts.Keys()
	f := &Fleet{
		scripts: scripts, opt: opt,
		changes: redisconn.NewListener(scripts, redisconn.ListenerOptions{
			Name: "fleet changes", Channels: []string{k.NodeChanged(), k.PoolUpdated(), k.ConfigUpdated()},
			Tick: opt.Tick, Logger: opt.Logger,
		}),
		ready: make(chan struct{}), replies: make(chan reply), catchUps: make(chan catchUp), requests: make(chan request, 1),
	}
	f.snapshot.Store(&Snapshot{Config: berth.DefaultFleetConfig(), Stale: true})
	return f
}

// Snapshot returns the fleet as it was last read; never nil.
func (f *Fleet) Snapshot() *Snapshot { return f.snapshot.Load() }

// Ready returns a channel that is closed after the first reading.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Writable returns CodeUnavailable while Redis is unavailable, so that a write is refused without waiting for a timeout.
func (f *Fleet) Writable() error {
	if f.Snapshot().Stale {
		return berth.Errorf(berth.CodeUnavailable, "the fleet's state is unavailable; retry in a few seconds")
	}
	return nil
}

// request is what the reader is to read: everything, or some nodes and optionally the configuration and all loads.
type request struct {
	all, config, loads bool
	nodes              []string
}

// reply is what the reader has read.
type reply struct {
	request
	read  Snapshot
	loads map[string]lua.NodeSample
	err   error
}

// catchUp waits for the next reading of the configuration and of these nodes; done is closed then.
type catchUp struct {
	nodes []string
	done  chan struct{}
}

// CatchUp returns when the snapshot has at least the configuration that Redis had at the time of the call, and the nodes whose
// changes had arrived by then, or when ctx ends.
// While Redis is unavailable, only ctx ends it.
func (f *Fleet) CatchUp(ctx context.Context) { f.CatchUpNodes(ctx) }

// CatchUpNodes is CatchUp for a snapshot that also has these nodes as they were at the time of the call.
func (f *Fleet) CatchUpNodes(ctx context.Context, nodes ...string) {
	c := catchUp{nodes, make(chan struct{})}
	select {
	case f.catchUps <- c:
	case <-ctx.Done():
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

// Run follows Redis until ctx ends, and returns nil then. Its goroutine alone replaces the snapshot, and does no I/O.
func (f *Fleet) Run(ctx context.Context) error {
	defer metrics.Observe(func(o metric.Observer) {
		type label struct {
			kind  berth.NodeKind
			state berth.NodeState
		}
		counts := map[label]int64{}
		for _, n := range f.Snapshot().Nodes {
			counts[label{n.Kind, n.State}]++
		}
		for l, n := range counts {
			o.ObserveInt64(metrics.Nodes, n, metrics.With(metrics.Kind.String(string(l.kind)), metrics.State.String(string(l.state))))
		}
	}, metrics.Nodes)()
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { f.changes.Run(ctx) })
	others.Go(func() { f.reader(ctx) })
	f.update(ctx)
	cancel()
	others.Wait()
	return nil
}

// updater is the state of the goroutine that replaces the snapshot.
type updater struct {
	*Fleet
	connected bool
	reading   bool // a request is at the reader
	// What the next request asks for.
	all, config, loads bool
	nodes              map[string]bool
	reloaded, sampled  time.Time // the last request of everything, and of the loads
	// Callers of CatchUp, by the request that they wait for.
	waiting, served []catchUp
	started         bool
}

func (f *Fleet) update(ctx context.Context) {
	u := &updater{Fleet: f, nodes: map[string]bool{}}
	settle := time.NewTicker(f.opt.Settle)
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settle.C:
			u.due()
			u.request()
		case e := <-f.changes.Events():
			u.handleEvent(ctx, e)
		case c := <-f.catchUps:
			u.handleEvents(ctx)
			u.config, u.waiting = true, append(u.waiting, c)
			for _, id := range c.nodes {
				u.nodes[id] = true
			}
			u.request()
		case r := <-f.replies:
			u.handleReply(ctx, r)
		}
	}
}

// due determines whether it is time to read the loads, or everything. The intervals grow with the fleet, so that the commands
// of a process per second do not.
func (u *updater) due() {
	thousands := max(1, len(u.Snapshot().Nodes)/1000)
	u.all = u.all || time.Since(u.reloaded) > u.opt.Reload*time.Duration(thousands)
	u.loads = u.loads || time.Since(u.sampled) > u.opt.Sample*time.Duration(thousands)
}

// handleEvents handles the changes that have arrived, so that the next request reads them.
func (u *updater) handleEvents(ctx context.Context) {
	for {
		select {
		case e := <-u.changes.Events():
			u.handleEvent(ctx, e)
		default:
			return
		}
	}
}

func (u *updater) handleEvent(ctx context.Context, e redisconn.Event) {
	switch e := e.(type) {
	case redisconn.Up:
		u.connected, u.all = true, true
		u.request()
	case redisconn.Down:
		u.connected = false
		u.markStale(ctx, e.Err)
	case redisconn.Message:
		if e.Channel == u.scripts.Keys().ConfigUpdated() {
			u.config = true
		} else {
			u.nodes[e.Payload] = true
		}
	}
}

func (u *updater) handleReply(ctx context.Context, r reply) {
	u.reading = false
	if r.err != nil {
		u.all = true // includes what this request asked for
		u.waiting, u.served = append(u.served, u.waiting...), nil
		u.markStale(ctx, r.err)
		return
	}
	if !u.connected {
		return
	}
	u.apply(ctx, r)
	for _, c := range u.served {
		close(c.done)
	}
	u.served = nil
	if len(u.waiting) > 0 {
		u.request()
	}
}

// request sends what has changed to the reader, unless it is busy or Redis is unavailable.
func (u *updater) request() {
	if u.reading || !u.connected || !u.all && !u.config && !u.loads && len(u.nodes) == 0 {
		return
	}
	r := request{all: u.all, config: u.all || u.config, loads: u.loads && !u.all}
	if u.all {
		u.reloaded = time.Now()
	}
	if u.all || u.loads {
		u.sampled = time.Now()
	}
	if !u.all {
		for id := range u.nodes {
			r.nodes = append(r.nodes, id)
		}
	}
	u.reading, u.all, u.config, u.loads = true, false, false, false
	u.waiting, u.served = nil, append(u.served, u.waiting...)
	clear(u.nodes)
	u.requests <- r // does not block: it has room for the one request
}

// apply replaces the snapshot by one with what was read.
func (u *updater) apply(ctx context.Context, r reply) {
	next := *u.Snapshot()
	recount := r.all || r.config && needsChanged(&next, &r.read)
	if r.config {
		next.Pools, next.Tenants, next.Config = r.read.Pools, r.read.Tenants, r.read.Config
		next.Services, next.Strategies = r.read.Services, r.read.Strategies
		next.languages = &atomic.Pointer[berth.LanguageIndex]{}
	}
	if r.all {
		next.Nodes = r.read.Nodes
	} else if len(r.nodes) > 0 || r.request.loads {
		nodes := make(map[string]berth.Node, len(next.Nodes)+len(r.nodes))
		maps.Copy(nodes, next.Nodes)
		next.Nodes = nodes
		if r.request.loads {
			u.applyLoads(nodes, r.loads)
		}
		for _, id := range r.nodes {
			n, ok := r.read.Nodes[id]
			recount = recount || !sameCounts(next.Nodes[id], n)
			if ok {
				next.Nodes[id] = n
			} else {
				delete(next.Nodes, id)
			}
		}
	}
	if recount {
		next.count()
	}
	if r.all && next.Stale {
		next.Stale = false
		u.opt.Logger.InfoContext(ctx, "fleet state is current", "dependency", health.Redis, "nodes", len(next.Nodes))
	}
	next.At = r.read.At
	u.snapshot.Store(&next)
	if !u.started {
		u.started = true
		close(u.ready)
	}
}

// needsChanged reports whether other services are required of the nodes of a pool.
func needsChanged(before, after *Snapshot) bool {
	return !maps.EqualFunc(before.Services, after.Services, slices.Equal) ||
		len(after.Services) > 0 && !maps.EqualFunc(before.Pools, after.Pools, func(a, b berth.Pool) bool {
			return slices.Equal(a.Capabilities, b.Capabilities)
		})
}

// applyLoads copies the sampled loads to the nodes. Nodes that a sample shows to have changed in other ways are read again.
func (u *updater) applyLoads(nodes map[string]berth.Node, loads map[string]lua.NodeSample) {
	for id, sample := range loads {
		n := nodes[id]
		fresh := sample.HeartbeatAt.After(n.HeartbeatAt) // otherwise the node was read after this sample
		switch {
		case n.Generation != sample.Generation, fresh && n.State != berth.NodeReady:
			u.nodes[id] = true
		case fresh:
			n.Load, n.Leases, n.Excluded, n.HeartbeatAt = sample.Load, sample.Leases, sample.Excluded, sample.HeartbeatAt
			n.UpdatedAt = later(n.UpdatedAt, sample.HeartbeatAt)
			nodes[id] = n
		}
	}
	for id := range nodes {
		if _, ok := loads[id]; !ok {
			u.nodes[id] = true
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (u *updater) markStale(ctx context.Context, err error) {
	if previous := u.Snapshot(); !previous.Stale {
		next := *previous
		next.Stale = true
		u.snapshot.Store(&next)
		u.opt.Logger.WarnContext(ctx, "Redis unavailable: fleet state is stale", "dependency", health.Redis, "error", err)
	}
}

// reader reads what the updater requests, one request at a time.
func (f *Fleet) reader(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-f.requests:
			got, loads, err := f.read(ctx, r)
			if err != nil && !pause.For(ctx, f.opt.Settle) {
				return
			}
			select {
			case f.replies <- reply{r, got, loads, err}:
			case <-ctx.Done():
				return
			}
		}
	}
}

const readTimeout = 5 * time.Second

func (f *Fleet) read(ctx context.Context, r request) (out Snapshot, loads map[string]lua.NodeSample, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s := f.scripts
	out.At = time.Now()
	ids := r.nodes
	if r.all {
		if ids, err = s.NodeIDs(ctx); err != nil {
			return out, nil, fmt.Errorf("read fleet: %w", err)
		}
	}
	if out.Nodes, err = s.ReadNodes(ctx, ids...); err != nil {
		return out, nil, fmt.Errorf("read fleet: %w", err)
	}
	if r.loads {
		if loads, err = s.SampleNodes(ctx); err != nil {
			return out, nil, fmt.Errorf("read fleet: %w", err)
		}
	}
	if !r.config {
		return out, loads, nil
	}
	if out.Pools, err = s.Pools(ctx); err != nil {
		return out, nil, err
	}
	if out.Tenants, err = s.Tenants(ctx); err != nil {
		return out, nil, err
	}
	var written bool
	if out.Config, written, err = s.FindFleetConfig(ctx); err != nil {
		return out, nil, err
	}
	// What Redis has lost will be restored: until then the last known settings apply.
	if !written {
		out.Config = f.Snapshot().Config
	}
	if out.Services, err = s.Services(ctx); err != nil {
		return out, nil, err
	}
	if out.Services == nil {
		out.Services = f.Snapshot().Services
	}
	whole := out
	if !r.all {
		whole.Nodes = f.Snapshot().Nodes
	}
	out.Strategies = map[string]berth.Strategy{}
	for _, id := range whole.DynamicPools() {
		state, err := s.CurrentStrategy(ctx, id)
		if err != nil {
			return out, nil, err
		}
		out.Strategies[id] = state.Strategy
	}
	return out, loads, nil
}
