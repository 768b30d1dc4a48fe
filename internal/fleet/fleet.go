package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"berth"
	"berth/internal/pause"
	"berth/internal/redisconn"
	"berth/lua"
)

// Options are how a Fleet follows Redis. The zero values are replaced by the defaults.
type Options struct {
	Settle time.Duration // changes within it are read together; 250 ms
	Ping   time.Duration // silence after which Redis is asked whether it is there; a second one later it is away; 500 ms
	Reload time.Duration // everything is read again after it, in case a message was lost; 1 min
	Logger *slog.Logger
}

// Fleet follows what Redis has of the fleet. Many may read it; Run is called once.
type Fleet struct {
	scripts *lua.Scripts
	opt     Options
	now     atomic.Pointer[Snapshot]
	ready   chan struct{}
	changes *redisconn.Listener
	events  chan any     // to the owner; from the reader and who waits
	wanted  chan reading // from the owner to the reader
}

// New makes a Fleet whose first snapshot is empty and stale.
func New(scripts *lua.Scripts, opt Options) *Fleet {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&opt.Settle, 250 * time.Millisecond}, {&opt.Ping, 500 * time.Millisecond}, {&opt.Reload, time.Minute}} {
		if *d.value == 0 {
			*d.value = d.or
		}
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	k := scripts.Keys()
	f := &Fleet{
		scripts: scripts, opt: opt,
		changes: redisconn.NewListener(scripts, redisconn.ListenerOptions{
			Name: "fleet changes", Channels: []string{k.NodeUpdated(), k.PoolUpdated(), k.ConfigUpdated()},
			Ping: opt.Ping, Logger: opt.Logger,
		}),
		ready: make(chan struct{}), events: make(chan any, 256), wanted: make(chan reading, 1),
	}
	f.now.Store(&Snapshot{Config: berth.DefaultFleetConfig(), Stale: true})
	return f
}

// Snapshot is the fleet as it was last read; never nil.
func (f *Fleet) Snapshot() *Snapshot { return f.now.Load() }

// Ready is closed when the fleet was read for the first time.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Writable answers nil, or CodeUnavailable while Redis is away: writes are refused at once then (L11).
func (f *Fleet) Writable() error {
	if f.Snapshot().Stale {
		return berth.Errorf(berth.CodeUnavailable, "the fleet's state cannot be reached; try again in a few seconds")
	}
	return nil
}

// read is what the reader tells the owner.
type read struct {
	reading
	err error
	got Snapshot
}

// wait is somebody who wants to know when the configuration was read anew.
type wait struct{ read chan struct{} }

// CatchUp returns when the snapshot has the configuration that Redis had when it was called, or when ctx ends (L8). While
// Redis is away, that is its end.
func (f *Fleet) CatchUp(ctx context.Context) {
	w := wait{make(chan struct{})}
	if !f.tell(ctx, w) {
		return
	}
	select {
	case <-w.read:
	case <-ctx.Done():
	}
}

// reading is what the owner wants read: everything, or some nodes and perhaps the configuration.
type reading struct {
	all, config bool
	nodes       []string
}

// Run follows Redis until ctx ends, and returns nil then. The goroutine that calls it owns the snapshot and does no I/O.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { f.changes.Run(ctx) })
	others.Go(func() { f.reader(ctx) })
	f.own(ctx)
	cancel()
	others.Wait()
	return nil
}

// owner is the state of the goroutine that owns the snapshot.
type owner struct {
	f           *Fleet
	connected   bool
	busy        bool // a reading is under way
	all, config bool // what is to be read next
	dirty       map[string]bool
	waiting     []wait // for the next reading of the configuration
	served      []wait // by the one that is under way
	started     bool
}

func (f *Fleet) own(ctx context.Context) {
	o := &owner{f: f, dirty: map[string]bool{}}
	settle := time.NewTicker(f.opt.Settle)
	defer settle.Stop()
	reload := time.NewTicker(f.opt.Reload)
	defer reload.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-settle.C:
			o.ask()
		case <-reload.C:
			o.all = true
		case e := <-f.changes.Events():
			o.changed(ctx, e)
		case e := <-f.events:
			o.hear(ctx, e)
		}
	}
}

// changed handles what the listener reports.
func (o *owner) changed(ctx context.Context, e redisconn.Event) {
	switch e := e.(type) {
	case redisconn.Up:
		o.connected, o.all = true, true
		o.ask()
	case redisconn.Down:
		o.connected = false
		o.stale(ctx, e.Err)
	case redisconn.Message:
		if e.Channel == o.f.scripts.Keys().ConfigUpdated() {
			o.config = true
		} else {
			o.dirty[e.Payload] = true
		}
	}
}

func (o *owner) hear(ctx context.Context, e any) {
	switch e := e.(type) {
	case wait:
		o.config, o.waiting = true, append(o.waiting, e)
		o.ask()
	case read:
		o.busy = false
		if e.err != nil {
			o.all = true // also what this reading was to bring
			o.waiting, o.served = append(o.served, o.waiting...), nil
			o.stale(ctx, e.err)
			return
		}
		if !o.connected {
			return
		}
		o.take(ctx, e)
		for _, w := range o.served {
			close(w.read)
		}
		o.served = nil
		if len(o.waiting) > 0 {
			o.ask()
		}
	}
}

// ask has the reader read what has changed, unless it is busy or Redis is away.
func (o *owner) ask() {
	if o.busy || !o.connected || !o.all && !o.config && len(o.dirty) == 0 {
		return
	}
	r := reading{all: o.all, config: o.all || o.config}
	if !o.all {
		for id := range o.dirty {
			r.nodes = append(r.nodes, id)
		}
	}
	o.busy, o.all, o.config = true, false, false
	o.waiting, o.served = nil, append(o.served, o.waiting...)
	clear(o.dirty)
	o.f.wanted <- r // empty: only one reading is under way
}

// take makes the next snapshot of the last one and what was read.
func (o *owner) take(ctx context.Context, e read) {
	next := *o.f.Snapshot()
	if e.config {
		next.Pools, next.Tenants, next.Config = e.got.Pools, e.got.Tenants, e.got.Config
		next.Services, next.Strategies = e.got.Services, e.got.Strategies
	}
	recount := e.all
	if e.all {
		next.Nodes = e.got.Nodes
	} else if len(e.nodes) > 0 {
		nodes := make(map[string]berth.Node, len(next.Nodes)+len(e.got.Nodes))
		for id, n := range next.Nodes {
			nodes[id] = n
		}
		for _, id := range e.nodes {
			n, ok := e.got.Nodes[id]
			recount = recount || !countsAlike(nodes[id], n)
			if ok {
				nodes[id] = n
			} else {
				delete(nodes, id)
			}
		}
		next.Nodes = nodes
	}
	if recount {
		next.count()
	}
	if e.all && next.Stale {
		next.Stale = false
		o.f.opt.Logger.InfoContext(ctx, "fleet state is current", "nodes", len(next.Nodes))
	}
	next.At = e.got.At
	o.f.now.Store(&next)
	if !o.started {
		o.started = true
		close(o.f.ready)
	}
}

func (o *owner) stale(ctx context.Context, err error) {
	if was := o.f.Snapshot(); !was.Stale {
		next := *was
		next.Stale = true
		o.f.now.Store(&next)
		o.f.opt.Logger.WarnContext(ctx, "fleet state is stale: Redis is away", "error", err)
	}
}

// reader reads what the owner wants, one reading at a time.
func (f *Fleet) reader(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-f.wanted:
			got, err := f.read(ctx, r)
			if err != nil && !pause.For(ctx, f.opt.Settle) {
				return
			}
			if !f.tell(ctx, read{r, err, got}) {
				return
			}
		}
	}
}

const readTimeout = 5 * time.Second

func (f *Fleet) read(ctx context.Context, r reading) (out Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s := f.scripts
	out.At = time.Now()
	ids := r.nodes
	if r.all {
		if ids, err = s.NodeIDs(ctx); err != nil {
			return out, fmt.Errorf("read fleet: %w", err)
		}
	}
	if out.Nodes, err = s.ReadNodes(ctx, ids...); err != nil {
		return out, fmt.Errorf("read fleet: %w", err)
	}
	if !r.config {
		return out, nil
	}
	if out.Pools, err = s.Pools(ctx); err != nil {
		return out, err
	}
	if out.Tenants, err = s.Tenants(ctx); err != nil {
		return out, err
	}
	if out.Config, err = s.FleetConfig(ctx); err != nil {
		return out, err
	}
	if out.Services, err = s.Services(ctx); err != nil {
		return out, err
	}
	whole := out
	if !r.all {
		whole.Nodes = f.Snapshot().Nodes
	}
	out.Strategies = map[string]berth.Strategy{}
	for _, id := range whole.DynamicPools() {
		is, err := s.CurrentStrategy(ctx, id)
		if err != nil {
			return out, err
		}
		out.Strategies[id] = is.Strategy
	}
	return out, nil
}

// tell gives the owner an event, and tells whether it may go on.
func (f *Fleet) tell(ctx context.Context, e any) bool {
	select {
	case f.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
